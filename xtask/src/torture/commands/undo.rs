//! `cargo xtask torture undo`.

use std::sync::{Mutex, MutexGuard};

use clap::Args;

use crate::torture::{Common, Run, TempSetup, progress};
use aos_testkit::Random;
use aos_testkit::torture::{lock, undo};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 1_000)]
    histories: u64,
    /// Steps per history: turns, rollbacks, redos, restores
    #[arg(long, default_value_t = 40)]
    steps: usize,
    /// Run only the history with this seed, which a complaint names
    #[arg(long, value_name = "SEED")]
    only: Option<u64>,
    /// Let a person change the folder between the steps, and force some of the undos
    #[arg(long)]
    outside: bool,
    /// With `--outside`: shorten a history that fails
    #[arg(long)]
    shrink: bool,
    /// Homes that are used at the same time
    #[arg(long, default_value_t = 1)]
    at_once: usize,
}

/// Histories per home: their sessions are closed, but the journal of the home grows.
const HISTORIES_PER_HOME: u64 = 50;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let run = &options.common.begin("undo")?;
    let beside = if options.outside { " beside a person" } else { "" };
    let Options { histories, steps, .. } = options;
    println!("torture undo: seed {}, {histories} histories of {steps} steps{beside}", run.seed);
    let walks = Walks {
        options,
        run,
        homes: Mutex::new(Homes { random: Random::new(run.seed), left: options.histories }),
        total: Mutex::default(),
        bar: progress(options.histories, "histories"),
    };
    std::thread::scope(|scope| {
        for _ in 0..options.at_once.max(1) {
            scope.spawn(|| walks.work());
        }
    });
    walks.bar.finish_and_clear();
    let total = walks.total();
    run.report(&*total, &total.complaints, total.is_clean())
}

/// The state that the worker threads share.
struct Walks<'a> {
    options: &'a Options,
    run: &'a Run,
    homes: Mutex<Homes>,
    total: Mutex<undo::Tally>,
    bar: indicatif::ProgressBar,
}

/// The number of histories left; each home has its own seed.
struct Homes {
    random: Random,
    left: u64,
}

impl Walks<'_> {
    /// Runs one home after the other, until all are done, the time is over or a failure is found.
    fn work(&self) {
        while !self.run.is_over() && self.total().is_clean() {
            let Some((seed, histories)) = self.next() else { return };
            let tally = self.walk(seed, histories);
            self.total().add(tally.unwrap_or_else(|why| undo::Tally::failed(format!("{why:#}"))));
        }
    }

    fn next(&self) -> Option<(u64, u64)> {
        let mut homes = lock(&self.homes);
        let histories = HISTORIES_PER_HOME.min(homes.left);
        homes.left -= histories;
        (histories > 0).then(|| (homes.random.number(), histories))
    }

    fn walk(&self, seed: u64, histories: u64) -> anyhow::Result<undo::Tally> {
        let temp = TempSetup::new(&self.run.programs)?;
        let Options { steps, only, outside, shrink, .. } = *self.options;
        let plan = undo::Plan { seed, histories, steps, only, outside, shrink, until: self.run.until };
        let tally = undo::torture(&temp.setup, &plan, &mut |_| self.bar.inc(1));
        temp.keep_unless(tally.is_clean());
        Ok(tally)
    }

    fn total(&self) -> MutexGuard<'_, undo::Tally> {
        lock(&self.total)
    }
}
