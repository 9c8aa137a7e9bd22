//! The long runs: measuring, attacking for hours, planting bugs.

use clap::Subcommand;

use crate::{bench, mutants, torture};

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
    /// Plant known bugs, one at a time, and check that the tests named for each fail
    Mutants(mutants::Options),
    /// Run long versions of what the tests run for a short time; each run prints its seed and its counts
    #[command(subcommand)]
    Torture(torture::Torture),
}

pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Bench(options) => bench::run(&options),
        Command::MiniHost { socket, root, bank, manner } => {
            bench::mini_host::run(&socket, &root, &bank, manner)
        }
        Command::Mutants(options) => mutants::run(&options),
        Command::Torture(torture) => torture::run(&torture),
    }
}
