//! The torture suites: each is an adversary with the properties that it checks.
//!
//! `cargo xtask torture` runs them for a long time, the attack cases for a short time.

pub mod corrupt;
pub mod crowd;
pub mod denied;
pub mod errors;
pub mod exec;
pub mod full;
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

use std::sync::{Mutex, MutexGuard};

pub use setup::{Daemon, NotUp, Setup};

/// A suite stops after more complaints than this: further ones would only repeat.
const COMPLAINTS_MAX: usize = 20;

/// Locks what the threads of a suite share.
pub fn lock<T: ?Sized>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("no thread panics while it holds the lock")
}
