//! `cargo xtask torture kill`.

use std::process::Command;
use std::time::Instant;

use clap::Args;

use crate::torture::{Common, Found, TempSetup, progress, report};
use aos_testkit::Programs;
use aos_testkit::Random;
use aos_testkit::torture::errors;
use aos_testkit::torture::kill::{self, Plan};
use aos_testkit::torture::load::{Tally, Taste};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 500)]
    kills: u64,
    /// How many EIO and ENOSPC at the steps of five-file patches and restores, after the kills
    #[arg(long, default_value_t = 0)]
    errors: u64,
    /// Clients that work at the same time
    #[arg(long, default_value_t = 8)]
    writers: usize,
}

/// A home serves for so many kills, then a fresh one: reading a long journal after each would take all the time.
const KILLS_PER_HOME: u64 = 50;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.common.programs()?;
    let (seed, until) = (options.common.seed(), options.common.until());
    let strace = Command::new("strace").arg("-V").output().is_ok();
    println!("torture kill: seed {seed}, {} kills{}", options.kills, if strace { "" } else { ", no strace" });
    let bar = progress(options.kills, "kills, this home: ");
    let mut random = Random::new(seed);
    let mut total = Tally::default();
    let begun = Instant::now();
    while total.kills < options.kills && until.is_none_or(|until| Instant::now() < until) && total.is_clean()
    {
        let temp = TempSetup::new(&programs)?;
        let kills = KILLS_PER_HOME.min(options.kills - total.kills);
        let (writers, verify_every) = (options.writers, 10);
        let seed = random.number();
        let plan = Plan { seed, kills, writers, taste: Taste::Mixed, strace, verify_every, until };
        let tally = kill::torture(&temp.setup, &plan, &mut |tally| {
            bar.set_position(total.kills + tally.kills);
            bar.set_message(tally.to_string());
        });
        if !tally.is_clean() {
            println!("kept for a look: {}", temp.keep().display());
        }
        total.add(tally);
    }
    bar.finish_and_clear();
    report("kill", seed, begun, &total)?;
    if options.errors > 0 { run_errors(options, &programs, until) } else { Ok(()) }
}

/// Every way in which pre-images are kept and things are synced: each in a home of its own, again and again.
fn run_errors(options: &Options, programs: &Programs, until: Option<Instant>) -> anyhow::Result<()> {
    let (seed, begun) = (options.common.seed(), Instant::now());
    println!("torture kill --errors: seed {seed}, {} errors", options.errors);
    let bar = progress(options.errors, "errors, this home: ");
    let mut random = Random::new(seed);
    let mut total = errors::Tally::default();
    for round in 0.. {
        let over = total.errors >= options.errors || !total.is_clean();
        if over || until.is_some_and(|until| Instant::now() > until) {
            break;
        }
        let mut temp = TempSetup::new(programs)?;
        // The last root lies on another file system than the home, where there is one.
        let last = temp.setup.roots.len() - 1;
        temp.setup.roots.swap(0, if round % 2 == 0 { 0 } else { last });
        let (power, linked) = (round / 2 % 2 == 1, round / 4 % 2 == 1);
        let left = options.errors - total.errors;
        let plan = errors::Plan { seed: random.number(), errors: left, power, linked, stride: 1, until };
        let mut tally = match round % 4 {
            3 if rustix::process::geteuid().is_root() => full_disks(&temp, &plan)?,
            _ => errors::Tally::default(),
        };
        tally.add(errors::torture(&temp.setup, &plan, &mut |tally| {
            bar.set_position(total.errors + tally.errors);
            bar.set_message(tally.to_string());
        }));
        if !tally.is_clean() {
            println!("kept for a look: {}", temp.keep().display());
        }
        total.add(tally);
    }
    bar.finish_and_clear();
    report("kill --errors", seed, begun, &total)
}

fn full_disks(temp: &TempSetup, plan: &errors::Plan) -> anyhow::Result<errors::Tally> {
    let mut total = errors::Tally::default();
    for small in [errors::Small::Home, errors::Small::Root, errors::Small::Both] {
        total.add(errors::full(&temp.setup, small, plan).map_err(anyhow::Error::msg)?);
    }
    Ok(total)
}

impl Found for errors::Tally {
    fn is_clean(&self) -> bool {
        self.is_clean() && self.pulse.is_well()
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }
}

impl Found for Tally {
    fn is_clean(&self) -> bool {
        self.is_clean() && self.pulse.is_well()
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
