//! `cargo xtask torture replay`.

use std::process::Command;
use std::time::Instant;

use clap::Args;

use crate::torture::{Common, Found, TempSetup, progress, report};
use aos_testkit::Random;
use aos_testkit::torture::replay;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// How many histories, each replayed three times
    #[arg(long, default_value_t = 10_000)]
    histories: u64,
    /// Requests of each, on average
    #[arg(long, default_value_t = 15)]
    steps: usize,
}

/// So many share a home: each replay folds all of its journal.
const HISTORIES_PER_HOME: u64 = 25;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.common.programs()?;
    let (seed, until) = (options.common.seed(), options.common.until());
    let strace = Command::new("strace").arg("-V").output().is_ok();
    let watched = if strace { "" } else { ", no strace" };
    println!(
        "torture replay: seed {seed}, {} histories of {} steps{watched}",
        options.histories, options.steps
    );
    let bar = progress(options.histories, "histories: ");
    let mut random = Random::new(seed);
    let (mut total, begun) = (replay::Tally::default(), Instant::now());
    while total.histories < options.histories
        && until.is_none_or(|until| Instant::now() < until)
        && total.is_clean()
    {
        let temp = TempSetup::new(&programs)?;
        let histories = HISTORIES_PER_HOME.min(options.histories - total.histories) as usize;
        let plan = replay::Plan { seed: random.number(), histories, steps: options.steps, strace };
        let tally = replay::torture(&temp.setup, &plan);
        if !tally.is_clean() {
            println!("seed of this home {}, kept for a look: {}", plan.seed, temp.keep().display());
        }
        total.add(tally);
        bar.set_position(total.histories);
        bar.set_message(total.to_string());
    }
    bar.finish_and_clear();
    report("replay", seed, begun, &total)
}

impl Found for replay::Tally {
    fn is_clean(&self) -> bool {
        self.is_clean() && self.pulse.is_well()
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
