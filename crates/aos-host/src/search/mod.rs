//! Search: walks folders by descriptor inside the jail, for grep and glob.
//!
//! `walk` visits folders with several threads, `listing` reads one folder of a `merged` directory (the disk and the session's
//! layer), `rules` applies ignore files, `skipped` collects unreadable paths. `grep` searches files; `lines` formats matches,
//! `long_lines` searches lines that do not fit into memory, `collect` sorts and cuts the results of all threads. `glob` matches
//! names. The matchers are ripgrep's. Its walker is not used: it opens by path, which can leave the jail, and its order
//! differs from run to run.

mod collect;
mod glob;
mod grep;
mod lines;
mod listing;
mod long_lines;
mod merged;
mod rules;
mod skipped;
mod walk;

use std::sync::atomic::{AtomicBool, Ordering};

use aos_model::limits::SCAN_TIME_NS_MAX;
use aos_model::receipt::Warning;

pub(crate) use glob::{GlobQuery, Pattern};
pub(crate) use grep::{GrepQuery, Grepped, compile_filter, compile_regex};

use crate::machine::Machine;

/// The time limit of a search. It ends with what it has found by then.
#[derive(Debug)]
struct Deadline {
    clock: fn() -> u64,
    end_ns: u64,
    passed: AtomicBool,
}

impl Deadline {
    fn new(machine: &Machine) -> Deadline {
        let end_ns = (machine.monotonic_ns)().saturating_add(SCAN_TIME_NS_MAX);
        Deadline { clock: machine.monotonic_ns, end_ns, passed: AtomicBool::new(false) }
    }

    /// Reads the clock.
    fn is_over(&self) -> bool {
        if (self.clock)() >= self.end_ns {
            self.passed.store(true, Ordering::Relaxed);
        }
        self.has_passed()
    }

    fn warning(&self) -> Option<Warning> {
        let seconds = SCAN_TIME_NS_MAX / 1_000_000_000;
        let message = format!(
            "the search ended after {seconds} s with what it had found; narrow it by `path` or a pattern"
        );
        self.has_passed().then(|| Warning::new("deadline", message))
    }

    /// Whether the limit had passed when the clock was last read.
    fn has_passed(&self) -> bool {
        self.passed.load(Ordering::Relaxed)
    }
}
