//! `cargo xtask torture kill`.

use std::process::Command;
use std::time::Instant;

use clap::Args;

use crate::torture::kill::{self, Plan};
use crate::torture::load::{Random, Tally, Taste};
use crate::torture::{Common, Found, Ground, progress, report};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 500)]
    kills: u64,
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
        let ground = Ground::new(&programs)?;
        let kills = KILLS_PER_HOME.min(options.kills - total.kills);
        let (writers, verify_every) = (options.writers, 10);
        let seed = random.number();
        let plan = Plan { seed, kills, writers, taste: Taste::Mixed, strace, verify_every, until };
        let tally = kill::torture(&ground.bench, &plan, &mut |tally| {
            bar.set_position(total.kills + tally.kills);
            bar.set_message(tally.to_string());
        });
        if !tally.is_clean() {
            println!("kept for a look: {}", ground.keep().display());
        }
        total.add(tally);
    }
    bar.finish_and_clear();
    report("kill", seed, begun, &total)
}

impl Found for Tally {
    fn is_clean(&self) -> bool {
        self.is_clean()
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
