//! Search: a walk by folder handles inside the jail, and what grep and glob make of it.
//!
//! [`walk`] goes through the folders with many hands, [`listing`] reads one of them from its
//! `merged` (the disk or the session's tree), [`rules`] knows what is ignored.
//! `grep` reads files (`lines` is how a match is shown, `giant` searches lines that do not fit into memory, `collect`
//! puts what many hands found in order and cuts it), `glob` matches names. The matchers are ripgrep's own; its walker
//! is not used, since it opens by path, outside the jail, and in another order at each run.

mod collect;
mod giant;
mod glob;
mod grep;
mod lines;
mod listing;
mod merged;
mod rules;
mod trouble;
mod walk;

use std::sync::atomic::{AtomicBool, Ordering};

use aos_model::limits::SCAN_TIME_NS_MAX;
use aos_model::receipt::Warning;

pub(crate) use glob::{GlobQuery, Pattern};
pub(crate) use grep::{GrepQuery, Grepped, compile_filter, compile_regex};

use crate::machine::Machine;

/// When a search has to end, with whatever it has.
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

    /// Looks at the clock.
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

    /// What the last look at the clock said.
    fn has_passed(&self) -> bool {
        self.passed.load(Ordering::Relaxed)
    }
}
