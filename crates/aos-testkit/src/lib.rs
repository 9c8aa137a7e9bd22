//! What the tests and `cargo xtask torture` share: a temporary world with a daemon, one client, one random generator,
//! load and kill helpers. No product crate depends on it.
#![allow(
    clippy::disallowed_methods,
    reason = "a test prepares and inspects the disk and starts programs directly"
)]
#![allow(
    missing_debug_implementations,
    clippy::needless_pass_by_value,
    reason = "test helpers: a world is not printed, and a `json!` value is passed as it is"
)]

pub mod check;
pub mod client;
pub mod copy;
pub mod mcp;
pub mod needs;
pub mod programs;
pub mod random;
pub mod time;
pub mod torture;
pub mod tracer;
pub mod tree;
pub mod walk;
pub mod ways;
pub mod world;

pub use check::{Findings, Outcome, check, expect, verdict, warning_codes};
pub use client::{Client, request_line};
pub use mcp::McpClient;
pub use needs::{Need, is_root, missing};
pub use programs::Programs;
pub use random::{Random, new_seed};
pub use time::{run_bounded, timed, wait_for};
pub use tracer::Tracer;
pub use tree::tree;
pub use walk::Walk;
pub use ways::{patch_of, patch_params, text};
pub use world::{Agent, Fixture, Start, World, reaches, rust_toolchain, uncaptured};

/// Whether `AOS_ATTACK_FULL=1` asks for the long form of the cases that have one.
pub fn is_full() -> bool {
    std::env::var_os("AOS_ATTACK_FULL").is_some_and(|value| value == "1")
}

/// The count of a case that has a short form: `full` with `AOS_ATTACK_FULL=1`, else `short`.
pub fn full_figure(full: usize, short: usize) -> usize {
    if is_full() { full } else { short }
}

/// Sends a signal; a process that has already ended is not an error.
pub fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
