//! The torture suites: each is an adversary and what it holds the daemon to.
//!
//! `cargo xtask torture` runs them for long, the attack cases run them for a short time.

pub mod corrupt;
pub mod crowd;
pub mod errors;
pub mod exec;
pub mod kill;
pub mod load;
pub mod memory;
pub mod path;
pub mod policy;
pub mod power;
pub mod pulse;
pub mod replay;
mod setup;
pub mod undo;

pub use setup::{Daemon, NotUp, Setup};
