//! The long runs: measuring, attacking for hours, planting bugs, working with other programs.

use std::process::ExitCode;

use clap::Subcommand;

use crate::{bench, clients, mutants, torture};

#[derive(Subcommand)]
pub(crate) enum Command {
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
    /// Let developer tools work in sessions as root and as an ordinary user, and check that nothing hinders them
    Clients(clients::Options),
    /// Plant known bugs, one at a time, and check that the tests named for each fail
    Mutants(mutants::Options),
    /// Run long versions of what the tests run for a short time; each run prints its seed and its counts
    #[command(subcommand)]
    Torture(torture::Torture),
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Clients(options) => return clients::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::MiniHost { socket, root, bank, manner } => {
            bench::mini_host::run(&socket, &root, &bank, manner)
        }
        Command::Mutants(options) => mutants::run(&options),
        Command::Torture(torture) => torture::run(&torture),
    }?;
    Ok(ExitCode::SUCCESS)
}
