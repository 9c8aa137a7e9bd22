//! The project's own commands. README and CI use `cargo xtask test`.
#![allow(
    clippy::disallowed_methods,
    reason = "these commands run programs and touch files; the product does not"
)]

#[cfg(feature = "long")]
mod bench;
mod cargo;
#[cfg(feature = "long")]
mod clients;
#[cfg(feature = "long")]
mod long;
#[cfg(feature = "long")]
mod mutants;
mod setup;
mod test;
#[cfg(feature = "long")]
mod torture;

#[cfg(not(feature = "long"))]
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "The project's own commands")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what is missing, then check and run everything
    Test(test::Options),
    #[cfg(feature = "long")]
    #[command(flatten)]
    Long(long::Command),
    /// bench, clients, torture, mutants: built with the feature `long`, which links the product
    #[cfg(not(feature = "long"))]
    #[command(external_subcommand)]
    Long(Vec<OsString>),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Test(options) => test::run(&options),
        #[cfg(feature = "long")]
        Command::Long(command) => long::run(command),
        #[cfg(not(feature = "long"))]
        Command::Long(arguments) => cargo::run_long(&arguments),
    }
}
