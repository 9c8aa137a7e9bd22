//! `cargo xtask torture crowd`.

use std::time::{Duration, Instant};

use clap::Args;

use crate::torture::{Common, Found, TempSetup, report};
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

/// How long the crowd works by default, and how long the quiet and the noisy one are compared.
const STAY: Duration = Duration::from_secs(600);
const COMPARE: Duration = Duration::from_secs(60);

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.common.programs()?;
    let (seed, time) = (options.common.seed(), options.common.time.unwrap_or(STAY));
    let (sessions, clients) = (options.sessions, options.clients);
    println!("torture crowd: seed {seed}, {sessions} sessions of {clients} clients for {time:?}");
    let (temp, begun) = (TempSetup::new(&programs)?, Instant::now());
    let plan = crowd::Plan { seed, sessions, clients, time, fairness: COMPARE.min(time) };
    let mut tally = crowd::torture(&temp.setup, &plan);
    for line in tally.times.lines() {
        println!("{line}");
    }
    if !tally.is_clean() {
        println!("kept for a look: {}", temp.keep().display());
    }
    report("crowd", seed, begun, &tally)
}

impl Found for crowd::Tally {
    fn is_clean(&self) -> bool {
        self.is_clean() && self.pulse.is_well() && !self.pulse.gone
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
