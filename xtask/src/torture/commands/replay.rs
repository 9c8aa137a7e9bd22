//! `cargo xtask torture replay`.

use std::process::Command;

use clap::Args;

use crate::torture::{Common, TempSetup, progress, show};
use aos_testkit::Random;
use aos_testkit::torture::replay;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// The number of histories, each replayed three times
    #[arg(long, default_value_t = 10_000)]
    histories: u64,
    /// Requests per history, on average
    #[arg(long, default_value_t = 15)]
    steps: usize,
}

/// Histories per home: each replay folds its whole journal.
const HISTORIES_PER_HOME: u64 = 25;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let run = options.common.begin("replay")?;
    let strace = Command::new("strace").arg("-V").output().is_ok();
    let watched = if strace { "" } else { ", no strace" };
    println!(
        "torture replay: seed {}, {} histories of {} steps{watched}",
        run.seed, options.histories, options.steps
    );
    let bar = progress(options.histories, "histories: ");
    let (mut random, mut total) = (Random::new(run.seed), replay::Tally::default());
    while total.histories < options.histories && !run.is_over() && total.is_clean() {
        let temp = TempSetup::new(&run.programs)?;
        let histories = HISTORIES_PER_HOME.min(options.histories - total.histories) as usize;
        let plan = replay::Plan { seed: random.number(), histories, steps: options.steps, strace };
        let tally = replay::torture(&temp.setup, &plan);
        if !tally.is_clean() {
            print!("seed of this home {}, ", plan.seed);
        }
        temp.keep_unless(tally.is_clean());
        total.add(tally);
        show(&bar, total.histories, &total);
    }
    bar.finish_and_clear();
    run.report(&total, &total.complaints, total.is_clean() && total.pulse.is_well())
}
