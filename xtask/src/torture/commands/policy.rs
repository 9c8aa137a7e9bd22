//! `cargo xtask torture policy`.

use std::time::Instant;

use clap::Args;

use crate::torture::{Common, Found, TempSetup, progress, report};
use aos_testkit::Random;
use aos_testkit::torture::policy;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 100_000)]
    pairs: u64,
    /// One policy of so many is driven through MCP too
    #[arg(long, default_value_t = 10)]
    mcp_every: usize,
    /// One pair of so many goes through the command line
    #[arg(long, default_value_t = 100)]
    cli_every: usize,
}

/// A home serves for so many pairs: its journal grows with each.
const PAIRS_PER_HOME: u64 = 10_000;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let programs = options.common.programs()?;
    let (seed, until) = (options.common.seed(), options.common.until());
    println!("torture policy: seed {seed}, {} pairs", options.pairs);
    let bar = progress(options.pairs, "pairs");
    let (mut random, mut total, begun) = (Random::new(seed), policy::Tally::default(), Instant::now());
    while total.pairs < options.pairs && until.is_none_or(|until| Instant::now() < until) && total.is_clean()
    {
        let temp = TempSetup::new(&programs)?;
        let pairs = PAIRS_PER_HOME.min(options.pairs - total.pairs);
        let (mcp_every, cli_every) = (options.mcp_every, options.cli_every);
        let plan = policy::Plan { seed: random.number(), pairs, mcp_every, cli_every, until };
        let done = total.pairs;
        let tally = policy::torture(&temp.setup, &plan, &mut |pairs| bar.set_position(done + pairs));
        total.add(tally);
    }
    bar.finish_and_clear();
    report("policy", seed, begun, &total)
}

impl Found for policy::Tally {
    fn is_clean(&self) -> bool {
        self.is_clean()
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
