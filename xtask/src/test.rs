//! `cargo xtask test`: everything that must be green, in the order in which it fails fastest.

use std::process::Command;

use anyhow::{Context as _, bail};
use clap::Args;

use crate::setup;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Install nothing; count what had to be skipped
    #[arg(long)]
    no_setup: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let missing = setup::prepare(options.no_setup);
    step("formatting", &["fmt", "--all", "--check"])?;
    step("lints", &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    // Before the build, which puts the programs without the feature back into their place.
    step("panics", &["test", "--quiet", "-p", "aos", "--features", "testing", "--test", "panics"])?;
    step("build", &["build", "--quiet", "--workspace", "--all-targets"])?;
    step("tests", &["test", "--workspace", "--no-fail-fast"])?;
    if !missing.is_empty() {
        println!("skipped for want of: {}", missing.join(", "));
    }
    Ok(())
}

fn step(name: &str, arguments: &[&str]) -> anyhow::Result<()> {
    println!("── {name}: cargo {}", arguments.join(" "));
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let status = Command::new(cargo)
        .args(arguments)
        .status()
        .with_context(|| format!("cannot run cargo for {name}"))?;
    if !status.success() {
        bail!("{name} failed");
    }
    Ok(())
}
