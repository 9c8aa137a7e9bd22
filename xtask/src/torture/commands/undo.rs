//! `cargo xtask torture undo`.

use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use clap::Args;

use crate::torture::{Common, Found, TempSetup, progress, report};
use aos_testkit::Programs;
use aos_testkit::Random;
use aos_testkit::torture::undo;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 1_000)]
    histories: u64,
    /// Steps of each: turns, rollbacks, redos, restores
    #[arg(long, default_value_t = 40)]
    steps: usize,
    /// One history alone, by the seed that a complaint names
    #[arg(long, value_name = "SEED")]
    only: Option<u64>,
    /// Homes that are worked in at the same time
    #[arg(long, default_value_t = 1)]
    at_once: usize,
}

/// A home serves for so many histories: their sessions are closed, but its journal grows.
const HISTORIES_PER_HOME: u64 = 50;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.common.programs()?;
    let (seed, until) = (options.common.seed(), options.common.until());
    println!("torture undo: seed {seed}, {} histories of {} steps", options.histories, options.steps);
    let run = Run {
        options,
        programs,
        until,
        homes: Mutex::new(Homes { random: Random::new(seed), left: options.histories }),
        total: Mutex::default(),
        bar: progress(options.histories, "histories"),
    };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..options.at_once.max(1) {
            scope.spawn(|| run.work());
        }
    });
    run.bar.finish_and_clear();
    report("undo", seed, begun, &run.total.into_inner().expect("no thread panics while it holds the lock"))
}

struct Run<'a> {
    options: &'a Options,
    programs: Programs,
    until: Option<Instant>,
    homes: Mutex<Homes>,
    total: Mutex<undo::Tally>,
    bar: indicatif::ProgressBar,
}

/// What is still to be walked; each home has a seed of its own.
struct Homes {
    random: Random,
    left: u64,
}

impl Run<'_> {
    /// Takes one home after the other, until all are done, the time is over or a fault was found.
    fn work(&self) {
        while self.until.is_none_or(|until| Instant::now() < until) && self.total().is_clean() {
            let Some((seed, histories)) = self.next() else { return };
            let tally = self.walk(seed, histories).unwrap_or_else(|why| undo::Tally {
                faults: 1,
                complaints: vec![format!("{why:#}")],
                ..undo::Tally::default()
            });
            self.total().add(tally);
        }
    }

    fn next(&self) -> Option<(u64, u64)> {
        let mut homes = self.homes.lock().expect("no thread panics while it holds the lock");
        let histories = HISTORIES_PER_HOME.min(homes.left);
        homes.left -= histories;
        (histories > 0).then(|| (homes.random.number(), histories))
    }

    fn walk(&self, seed: u64, histories: u64) -> anyhow::Result<undo::Tally> {
        let temp = TempSetup::new(&self.programs)?;
        let (steps, only, until) = (self.options.steps, self.options.only, self.until);
        let plan = undo::Plan { seed, histories, steps, only, until };
        let tally = undo::torture(&temp.setup, &plan, &mut |_| self.bar.inc(1));
        if !tally.is_clean() {
            println!("kept for a look: {}", temp.keep().display());
        }
        Ok(tally)
    }

    fn total(&self) -> MutexGuard<'_, undo::Tally> {
        self.total.lock().expect("no thread panics while it holds the lock")
    }
}

impl Found for undo::Tally {
    fn is_clean(&self) -> bool {
        self.is_clean()
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
