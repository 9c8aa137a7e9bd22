//! `cargo xtask torture policy`.

use clap::Args;

use crate::torture::{Common, TempSetup, progress};
use aos_testkit::Random;
use aos_testkit::torture::policy;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 100_000)]
    pairs: u64,
    /// Also drive one policy of this many through MCP
    #[arg(long, default_value_t = 10)]
    mcp_every: usize,
    /// Run one pair of this many through the command line
    #[arg(long, default_value_t = 100)]
    cli_every: usize,
}

/// Pairs per home: its journal grows with each.
const PAIRS_PER_HOME: u64 = 10_000;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let run = options.common.begin("policy")?;
    let (seed, until) = (run.seed, run.until);
    println!("torture policy: seed {seed}, {} pairs", options.pairs);
    let bar = progress(options.pairs, "pairs");
    let (mut random, mut total) = (Random::new(seed), policy::Tally::default());
    while total.pairs < options.pairs && !run.is_over() && total.is_clean() {
        let temp = TempSetup::new(&run.programs)?;
        let pairs = PAIRS_PER_HOME.min(options.pairs - total.pairs);
        let (mcp_every, cli_every) = (options.mcp_every, options.cli_every);
        let plan = policy::Plan { seed: random.number(), pairs, mcp_every, cli_every, until };
        let done = total.pairs;
        let tally = policy::torture(&temp.setup, &plan, &mut |pairs| bar.set_position(done + pairs));
        total.add(tally);
    }
    bar.finish_and_clear();
    run.report(&total, &total.complaints, total.is_clean())
}
