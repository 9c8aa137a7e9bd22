//! `cargo xtask torture kill`.

use std::process::Command;
use std::time::Instant;

use clap::Args;

use crate::torture::{Common, Run, TempSetup, progress, show};
use aos_testkit::Random;
use aos_testkit::torture::errors;
use aos_testkit::torture::kill::{self, Plan};
use aos_testkit::torture::load::{Tally, Workload};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 500)]
    kills: u64,
    /// The number of EIO and ENOSPC errors to inject into five-file patches and restores, after the kills
    #[arg(long, default_value_t = 0)]
    errors: u64,
    /// Clients that work at the same time
    #[arg(long, default_value_t = 8)]
    writers: usize,
}

/// Kills per home. A new home follows, because reading a long journal after each kill would take most of the time.
const KILLS_PER_HOME: u64 = 50;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let run = options.common.begin("kill")?;
    let strace = Command::new("strace").arg("-V").output().is_ok();
    let watched = if strace { "" } else { ", no strace" };
    println!("torture kill: seed {}, {} kills{watched}", run.seed, options.kills);
    let bar = progress(options.kills, "kills, this home: ");
    let (mut random, mut total) = (Random::new(run.seed), Tally::default());
    while total.kills < options.kills && !run.is_over() && total.is_clean() {
        let temp = TempSetup::new(&run.programs)?;
        let kills = KILLS_PER_HOME.min(options.kills - total.kills);
        let (seed, until, writers, verify_every) = (random.number(), run.until, options.writers, 10);
        let plan = Plan { seed, kills, writers, workload: Workload::Mixed, verify_every, until };
        let tally = kill::torture(&temp.setup, &plan, strace, &mut |tally| {
            show(&bar, total.kills + tally.kills, tally);
        });
        temp.keep_unless(tally.is_clean());
        total.add(tally);
    }
    bar.finish_and_clear();
    run.report(&total, &total.complaints, total.is_clean() && total.pulse.is_well())?;
    if options.errors > 0 { run_errors(options, run) } else { Ok(()) }
}

/// Runs each combination of keeping pre-images and syncing in a new home, repeatedly.
fn run_errors(options: &Options, kills: Run) -> anyhow::Result<()> {
    let run = Run { suite: "kill --errors", seed: options.common.seed(), begun: Instant::now(), ..kills };
    println!("torture kill --errors: seed {}, {} errors", run.seed, options.errors);
    let bar = progress(options.errors, "errors, this home: ");
    let (mut random, mut total, mut round) = (Random::new(run.seed), errors::Tally::default(), 0);
    while total.errors < options.errors && !run.is_over() && total.is_clean() {
        let mut temp = TempSetup::new(&run.programs)?;
        // The last root is on another file system than the home, if there is one.
        let last = temp.setup.roots.len() - 1;
        temp.setup.roots.swap(0, if round % 2 == 0 { 0 } else { last });
        let (power, linked) = (round / 2 % 2 == 1, round / 4 % 2 == 1);
        let (seed, errors, until) = (random.number(), options.errors - total.errors, run.until);
        let plan = errors::Plan { seed, errors, power, linked, stride: 1, until };
        let mut tally = match round % 4 {
            3 if rustix::process::geteuid().is_root() => full_disks(&temp, &plan)?,
            _ => errors::Tally::default(),
        };
        tally.add(errors::torture(&temp.setup, &plan, &mut |tally| {
            show(&bar, total.errors + tally.errors, tally);
        }));
        temp.keep_unless(tally.is_clean());
        total.add(tally);
        round += 1;
    }
    bar.finish_and_clear();
    run.report(&total, &total.complaints, total.is_clean() && total.pulse.is_well())
}

fn full_disks(temp: &TempSetup, plan: &errors::Plan) -> anyhow::Result<errors::Tally> {
    let mut total = errors::Tally::default();
    for small in [errors::Small::Home, errors::Small::Root, errors::Small::Both] {
        total.add(errors::full(&temp.setup, small, plan).map_err(anyhow::Error::msg)?);
    }
    Ok(total)
}
