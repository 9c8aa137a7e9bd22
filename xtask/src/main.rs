//! The project's own commands: `cargo xtask test` is the one of README and CI.
#![allow(
    clippy::disallowed_methods,
    reason = "the workshop runs programs and touches files; the product does not"
)]

mod setup;
mod test;
mod torture;

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
    /// Long runs of what the tests do shortly; each prints its seed and its counts
    #[command(subcommand)]
    Torture(torture::Torture),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Torture(torture) => torture::run(&torture),
    }
}
