//! `cargo xtask torture memory`.

use clap::Args;

use crate::torture::{Common, TempSetup};
use aos_testkit::torture::memory;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Run only the steps whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Use the sizes of the tests
    #[arg(long)]
    short: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    // Nothing here is random, but every report prints a seed.
    let run = options.common.begin("memory")?;
    println!("torture memory: every step below 200 MB; files go to {}", std::env::temp_dir().display());
    let temp = TempSetup::new(&run.programs)?;
    let scale = if options.short { memory::SHORT } else { memory::FULL };
    let plan = memory::Plan { scale, only: &options.only, until: run.until };
    let tally = memory::torture(&temp.setup, &plan, &mut |step| println!("now: {step}"));
    run.report(&tally, &tally.complaints, tally.is_clean())
}
