//! `cargo xtask torture corrupt`.

use clap::Args;

use crate::torture::{Common, TempSetup, progress};
use aos_testkit::torture::corrupt;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Damage every Nth byte; 1 damages each
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Ways to flip a byte: one bit, all bits, another bit, …
    #[arg(long, default_value_t = 3)]
    patterns: usize,
    /// Damages of each home that are also checked with the programs, including the start of a daemon
    #[arg(long, default_value_t = 1_000)]
    starts: usize,
    /// Copies that are damaged at the same time
    #[arg(long, default_value_t = 2)]
    workers: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let run = options.common.begin("corrupt")?;
    let (seed, until) = (run.seed, run.until);
    println!("torture corrupt: seed {seed}, one byte of {} in {} ways", options.every, options.patterns);
    let bar = progress(0, "damages");
    let temp = TempSetup::new(&run.programs)?;
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
    run.report(&tally, &tally.complaints, tally.is_clean())
}
