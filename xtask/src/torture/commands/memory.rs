//! `cargo xtask torture memory`.

use std::time::Instant;

use clap::Args;

use crate::torture::{Common, Found, TempSetup, report};
use aos_testkit::torture::memory;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// The steps whose name holds this
    #[arg(long, default_value = "")]
    only: String,
    /// The size that the tests use
    #[arg(long)]
    short: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.common.programs()?;
    // Nothing here is random; every report has a seed.
    let (seed, until) = (options.common.seed(), options.common.until());
    println!("torture memory: every step below 200 MB; files go to {}", std::env::temp_dir().display());
    let (temp, begun) = (TempSetup::new(&programs)?, Instant::now());
    let scale = if options.short { memory::SHORT } else { memory::FULL };
    let plan = memory::Plan { scale, only: &options.only, until };
    let tally = memory::torture(&temp.setup, &plan, &mut |step| println!("now: {step}"));
    report("memory", seed, begun, &tally)
}

impl Found for memory::Tally {
    fn is_clean(&self) -> bool {
        self.is_clean()
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
