//! `cargo xtask torture path`.

use clap::Args;

use crate::torture::{Common, TempSetup, progress};
use aos_testkit::Random;
use aos_testkit::torture::path;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// The number of paths that must reach the resolver
    #[arg(long, default_value_t = 1_000_000)]
    resolutions: u64,
    /// How many of them in requests that write
    #[arg(long, default_value_t = 100_000)]
    writes: u64,
    /// Connections that send requests at the same time
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Threads that swap links, folders and files
    #[arg(long, default_value_t = 2)]
    neighbours: usize,
}

/// Resolutions per home: its journal grows with each.
const RESOLUTIONS_PER_HOME: u64 = 100_000;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let run = options.common.begin("path")?;
    let (seed, until) = (run.seed, run.until);
    println!(
        "torture path: seed {seed}, {} resolutions, {} of them writes",
        options.resolutions, options.writes
    );
    let bar = progress(options.resolutions, "resolutions");
    let (mut random, mut total) = (Random::new(seed), path::Tally::default());
    while (total.resolutions < options.resolutions || total.writes < options.writes)
        && !run.is_over()
        && total.is_clean()
    {
        let temp = TempSetup::new(&run.programs)?;
        let left = options.resolutions.saturating_sub(total.resolutions);
        let resolutions = RESOLUTIONS_PER_HOME.min(left);
        // The last home makes the remaining writes.
        let writes = if resolutions == left { options.writes.saturating_sub(total.writes) } else { 0 };
        let (clients, neighbours) = (options.clients, options.neighbours);
        let plan = path::Plan { seed: random.number(), resolutions, writes, clients, neighbours, until };
        let done = total.resolutions;
        let tally = path::torture(&temp.setup, &plan, &mut |resolved| bar.set_position(done + resolved));
        temp.keep_unless(tally.is_clean());
        total.add(tally);
    }
    bar.finish_and_clear();
    run.report(&total, &total.complaints, total.is_clean())
}
