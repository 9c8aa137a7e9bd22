//! `cargo xtask torture full`.

use anyhow::ensure;
use clap::Args;

use crate::torture::{Common, progress, show};
use aos_testkit::torture::full::{self, Plan};
use aos_testkit::{Need, is_root, missing};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// How often a disk is filled
    #[arg(long, default_value_t = 1_000)]
    rounds: u64,
    /// Homes that are tortured at the same time
    #[arg(long, default_value_t = 2)]
    at_once: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(is_root(), "a disk of our own needs root");
    let run = options.common.begin("full")?;
    let ext4 = missing(Need::Loop).is_none();
    println!("torture full: seed {}, {} rounds, {} homes at once", run.seed, options.rounds, options.at_once);
    if !ext4 {
        println!("no ext4 in this run: {}", missing(Need::Loop).unwrap_or_default());
    }
    let bar = progress(options.rounds, "rounds: ");
    let plan = Plan {
        seed: run.seed,
        rounds: options.rounds,
        at_once: options.at_once,
        ext4,
        keep: true,
        until: run.until,
    };
    let tally = full::torture(&run.programs, &plan, &|tally| show(&bar, tally.rounds, tally));
    bar.finish_and_clear();
    run.report(&tally, tally.complaints(), tally.is_clean())
}
