//! The project's own commands. README and CI use `cargo xtask test`.
#![allow(
    clippy::disallowed_methods,
    reason = "these commands run programs and touch files; the product does not"
)]

mod bench;
mod cargo;
mod mutants;
mod setup;
mod test;
mod torture;

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
    /// Measure the product and its contenders in one run
    Bench(bench::Options),
    /// A contender of the bench
    #[command(hide = true)]
    MiniHost {
        socket: std::path::PathBuf,
        root: std::path::PathBuf,
        bank: std::path::PathBuf,
        #[command(flatten)]
        manner: bench::mini_host::MiniHostOptions,
    },
    /// Plant known bugs, one at a time, and check that the tests named for each fail
    Mutants(mutants::Options),
    /// Run long versions of what the tests run for a short time; each run prints its seed and its counts
    #[command(subcommand)]
    Torture(torture::Torture),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Test(options) => return test::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::MiniHost { socket, root, bank, manner } => {
            bench::mini_host::run(&socket, &root, &bank, manner)
        }
        Command::Mutants(options) => mutants::run(&options),
        Command::Torture(torture) => torture::run(&torture),
    }?;
    Ok(ExitCode::SUCCESS)
}
