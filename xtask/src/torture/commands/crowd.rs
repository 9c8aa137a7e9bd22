//! `cargo xtask torture crowd`.

use std::time::Duration;

use clap::Args;

use crate::torture::{Common, TempSetup};
use aos_testkit::torture::crowd;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 64)]
    sessions: usize,
    /// Clients in each session
    #[arg(long, default_value_t = 8)]
    clients: usize,
}

/// How long the crowd works by default, and how long a quiet and a noisy session are compared.
const STAY: Duration = Duration::from_secs(600);
const COMPARE: Duration = Duration::from_secs(60);

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let run = options.common.begin("crowd")?;
    let (seed, time) = (run.seed, options.common.time.unwrap_or(STAY));
    let (sessions, clients) = (options.sessions, options.clients);
    println!("torture crowd: seed {seed}, {sessions} sessions of {clients} clients for {time:?}");
    let temp = TempSetup::new(&run.programs)?;
    let plan = crowd::Plan { seed, sessions, clients, time, fairness: COMPARE.min(time) };
    let mut tally = crowd::torture(&temp.setup, &plan);
    for line in tally.times.lines() {
        println!("{line}");
    }
    temp.keep_unless(tally.is_clean());
    let is_clean = tally.is_clean() && tally.pulse.is_well() && !tally.pulse.gone;
    run.report(&tally, &tally.complaints, is_clean)
}
