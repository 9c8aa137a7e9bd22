//! `cargo xtask torture path`.

use std::time::Instant;

use clap::Args;

use crate::torture::{Common, Found, TempSetup, progress, report};
use aos_testkit::Random;
use aos_testkit::torture::path;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Paths that must have reached the resolver
    #[arg(long, default_value_t = 1_000_000)]
    resolutions: u64,
    /// How many of them in requests that write
    #[arg(long, default_value_t = 100_000)]
    writes: u64,
    /// Connections that ask at the same time
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Threads that swap links, folders and files
    #[arg(long, default_value_t = 2)]
    neighbours: usize,
}

/// A home serves for so many resolutions: its journal grows with each.
const RESOLUTIONS_PER_HOME: u64 = 100_000;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.common.programs()?;
    let (seed, until) = (options.common.seed(), options.common.until());
    println!(
        "torture path: seed {seed}, {} resolutions, {} of them writes",
        options.resolutions, options.writes
    );
    let bar = progress(options.resolutions, "resolutions");
    let (mut random, mut total, begun) = (Random::new(seed), path::Tally::default(), Instant::now());
    while (total.resolutions < options.resolutions || total.writes < options.writes)
        && until.is_none_or(|until| Instant::now() < until)
        && total.is_clean()
    {
        let temp = TempSetup::new(&programs)?;
        let left = options.resolutions.saturating_sub(total.resolutions);
        let resolutions = RESOLUTIONS_PER_HOME.min(left);
        // What is left of the writes is made in the last home.
        let writes = if resolutions == left { options.writes.saturating_sub(total.writes) } else { 0 };
        let (clients, neighbours) = (options.clients, options.neighbours);
        let plan = path::Plan { seed: random.number(), resolutions, writes, clients, neighbours, until };
        let done = total.resolutions;
        let tally = path::torture(&temp.setup, &plan, &mut |resolved| bar.set_position(done + resolved));
        if !tally.is_clean() {
            println!("kept for a look: {}", temp.keep().display());
        }
        total.add(tally);
    }
    bar.finish_and_clear();
    report("path", seed, begun, &total)
}

impl Found for path::Tally {
    fn is_clean(&self) -> bool {
        self.is_clean()
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
