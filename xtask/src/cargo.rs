//! Cargo, and where it puts what it builds.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
}

/// Builds for release what `arguments` select. Returns the folder of the programs.
pub(crate) fn build(arguments: &[&str]) -> anyhow::Result<PathBuf> {
    let built = cargo().args(["build", "--release"]).args(arguments).status();
    ensure!(built.context("cannot run cargo")?.success(), "the build failed");
    Ok(target_dir()?.join("release"))
}

pub(crate) fn target_dir() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.parent().and_then(Path::parent).expect("BUG: xtask is in target/<profile>");
    Ok(target.to_owned())
}
