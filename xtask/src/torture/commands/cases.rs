//! `cargo xtask torture cases`.
//!
//! In `cargo xtask test` a time is only a hang bound. Here the figures themselves are asserted, on a machine that runs
//! nothing else.

use aos_testkit::time::ASSERT_FIGURES;
use clap::Args;

use crate::cargo::cargo;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only the cases whose name contains this
    filter: Option<String>,
    /// Run the long form of the cases that have one
    #[arg(long)]
    full: bool,
    /// The profile that the product and its tests are built with
    #[arg(long, default_value = "release")]
    profile: String,
}

/// The test programs that have time figures.
const PROGRAMS: [&str; 2] = ["attack", "semantics"];

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    for program in PROGRAMS {
        println!("torture cases: {program}, one case at a time, figures asserted");
        let mut command = cargo();
        command.args(["test", "--package", "aos", "--profile", &options.profile, "--test", program, "--"]);
        // Parallel cases would affect each other's times.
        command.args(["--test-threads", "1"]).args(&options.filter).env(ASSERT_FIGURES, "1");
        if options.full {
            command.env("AOS_ATTACK_FULL", "1");
        }
        anyhow::ensure!(command.status()?.success(), "a case of {program} failed or took too long");
    }
    Ok(())
}
