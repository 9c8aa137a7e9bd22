//! `cargo xtask torture denied`.

use clap::Args;

use crate::torture::{Common, TempSetup, progress};
use aos_testkit::Random;
use aos_testkit::torture::denied;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// The number of attempts, each on one path
    #[arg(long, default_value_t = 100_000)]
    tries: u64,
    /// Sessions at the same time
    #[arg(long, default_value_t = 2)]
    at_once: usize,
    /// Repeat only this session of a seed that a failure named
    #[arg(long)]
    session: Option<u64>,
}

/// Tries per home: its journal grows with each.
const TRIES_PER_HOME: u64 = 10_000;
const TRIES_PER_SESSION: u64 = 48;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let run = options.common.begin("denied")?;
    println!(
        "torture denied: seed {}, {} tries, {} sessions at once",
        run.seed, options.tries, options.at_once
    );
    let bar = progress(options.tries, "tries");
    // The first home has the seed itself, so that a short run repeats the first home of a long one.
    let (mut random, mut seed, mut total) = (Random::new(run.seed), run.seed, denied::Tally::default());
    while total.tries() < options.tries && !run.is_over() && total.is_clean() {
        let temp = TempSetup::new(&run.programs)?;
        let done = total.tries();
        let tries = TRIES_PER_HOME.min(options.tries - done);
        let plan = denied::Plan {
            seed,
            tries,
            per_session: TRIES_PER_SESSION,
            only: options.session,
            at_once: options.at_once,
            until: run.until,
        };
        let tally = denied::torture(&temp.setup, &plan, &mut |tries| bar.set_position(done + tries));
        temp.keep_unless(tally.is_clean());
        total.add(tally);
        seed = random.number();
        if options.session.is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    total.complaints.extend(total.blunt());
    run.report(&total, &total.complaints, total.is_clean())
}
