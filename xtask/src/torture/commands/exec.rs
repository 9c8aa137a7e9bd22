//! `cargo xtask torture exec`.

use clap::Args;

use crate::torture::{Common, TempSetup, progress};
use aos_testkit::torture::exec;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// The number of process trees
    #[arg(long, default_value_t = 2_000)]
    runs: u64,
    /// Commands that run at the same time
    #[arg(long, default_value_t = 4)]
    at_once: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let run = options.common.begin("exec")?;
    let (seed, until) = (run.seed, run.until);
    println!("torture exec: seed {seed}, {} process trees, {} at once", options.runs, options.at_once);
    let bar = progress(options.runs, "process trees");
    let temp = TempSetup::new(&run.programs)?;
    let plan = exec::Plan { seed, runs: options.runs, at_once: options.at_once, until };
    let tally = exec::torture(&temp.setup, &plan, &mut |done| bar.set_position(done));
    bar.finish_and_clear();
    run.report(&tally, &tally.complaints, tally.is_clean())
}
