//! `cargo xtask torture undo`.

use std::time::Instant;

use clap::Args;

use crate::torture::load::Random;
use crate::torture::{Common, Found, Ground, progress, report, undo};

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
}

/// A home serves for so many histories: their sessions are closed, but its journal grows.
const HISTORIES_PER_HOME: u64 = 50;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.common.programs()?;
    let (seed, until) = (options.common.seed(), options.common.until());
    println!("torture undo: seed {seed}, {} histories of {} steps", options.histories, options.steps);
    let bar = progress(options.histories, "histories, this home: ");
    let mut random = Random::new(seed);
    let mut total = undo::Tally::default();
    let begun = Instant::now();
    while total.histories < options.histories
        && until.is_none_or(|until| Instant::now() < until)
        && total.is_clean()
    {
        let ground = Ground::new(&programs)?;
        let histories = HISTORIES_PER_HOME.min(options.histories - total.histories);
        let (seed, steps, only) = (random.number(), options.steps, options.only);
        let plan = undo::Plan { seed, histories, steps, only, until };
        let tally = undo::torture(&ground.bench, &plan, &mut |tally| {
            bar.set_position(total.histories + tally.histories);
            bar.set_message(tally.to_string());
        });
        if !tally.is_clean() {
            println!("kept for a look: {}", ground.keep().display());
        }
        total.add(tally);
    }
    bar.finish_and_clear();
    report("undo", seed, begun, &total)
}

impl Found for undo::Tally {
    fn is_clean(&self) -> bool {
        self.is_clean()
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
