//! Cargo, and where it puts what it builds.

use std::path::{Path, PathBuf};
use std::process::Command;
#[cfg(not(feature = "long"))]
use std::process::ExitCode;

use anyhow::Context as _;

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
}

/// Runs this program again, built with the feature `long`.
#[cfg(not(feature = "long"))]
pub(crate) fn run_long(arguments: &[std::ffi::OsString]) -> anyhow::Result<ExitCode> {
    let run = ["run", "--package", "xtask", "--features", "long", "--"];
    let status = cargo().args(run).args(arguments).status().context("cannot run cargo")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Builds for release what `arguments` select. Returns the folder of the programs.
#[cfg(feature = "long")]
pub(crate) fn build(arguments: &[&str]) -> anyhow::Result<PathBuf> {
    let built = cargo().args(["build", "--release"]).args(arguments).status();
    anyhow::ensure!(built.context("cannot run cargo")?.success(), "the build failed");
    Ok(target_dir()?.join("release"))
}

pub(crate) fn target_dir() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.parent().and_then(Path::parent).expect("BUG: xtask is in target/<profile>");
    Ok(target.to_owned())
}
