//! `cargo xtask torture corrupt`.

use std::time::Instant;

use clap::Args;

use crate::torture::{Common, Found, TempSetup, progress, report};
use aos_testkit::torture::corrupt;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// One byte of so many; 1 is each
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Ways to turn a byte: one bit, all bits, another bit, …
    #[arg(long, default_value_t = 3)]
    patterns: usize,
    /// Damages of each home that go the whole way, through the programs and the start of a daemon
    #[arg(long, default_value_t = 1_000)]
    starts: usize,
    /// Copies that are damaged at the same time
    #[arg(long, default_value_t = 2)]
    workers: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.common.programs()?;
    let (seed, until) = (options.common.seed(), options.common.until());
    println!("torture corrupt: seed {seed}, one byte of {} in {} ways", options.every, options.patterns);
    let bar = progress(0, "damages");
    let (temp, begun) = (TempSetup::new(&programs)?, Instant::now());
    let plan = corrupt::Plan {
        seed,
        every: options.every,
        patterns: options.patterns,
        starts: options.starts,
        workers: options.workers,
        until,
    };
    let tally = corrupt::torture(&temp.setup, &plan, &mut |done, planned| {
        bar.set_length(planned);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    report("corrupt", seed, begun, &tally)
}

impl Found for corrupt::Tally {
    fn is_clean(&self) -> bool {
        self.is_clean()
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
