//! The programs `aos`, the command-line client, and `aosd`, the daemon.

mod cli;
mod commands;
mod connect;
pub mod daemon;
mod demo;
mod detach;
mod exit;
mod git_identity;
mod home;
mod logging;
mod own_file;
mod panics;
mod render;
mod run;

pub use exit::Exit;
pub use run::main;
