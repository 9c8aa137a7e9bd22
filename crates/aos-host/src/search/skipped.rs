//! The paths that a search skipped because they could not be read, and the ignore files that it did not apply as a whole,
//! reported as warnings.

use std::collections::BTreeMap;
use std::sync::Mutex;

use aos_model::limits::{IGNORE_FILE_BYTES_MAX, IGNORE_PATTERNS_MAX, SCAN_WARNINGS_MAX};
use aos_model::receipt::Warning;
use rustix::io::Errno;

use crate::jail::Jail;

/// More are kept than are reported, because those after the cut of a search are dropped later.
const KEPT_MAX: usize = 50 * SCAN_WARNINGS_MAX;

#[derive(Debug, Default)]
pub(super) struct SkippedPaths {
    /// By absolute path, so that the warnings do not depend on the number of threads.
    paths: Mutex<BTreeMap<Vec<u8>, Reason>>,
}

#[derive(Debug)]
enum Reason {
    Unreadable(String),
    TooManyRules,
}

impl SkippedPaths {
    /// Adds a skipped path. Paths that vanished meanwhile or are not regular files are not reported.
    pub(super) fn add(&self, path: &[u8], why: Errno) {
        if matches!(
            why,
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::STALE
        ) {
            return;
        }
        self.add_reason(path, why.to_string());
    }

    pub(super) fn add_reason(&self, path: &[u8], why: String) {
        self.insert(path, Reason::Unreadable(why));
    }

    /// Adds an ignore file whose last part was not applied.
    pub(super) fn add_ignore_file(&self, path: &[u8]) {
        self.insert(path, Reason::TooManyRules);
    }

    fn insert(&self, path: &[u8], why: Reason) {
        let mut paths = self.paths.lock().expect("BUG: lock poisoned");
        paths.insert(path.to_vec(), why);
        if paths.len() > KEPT_MAX {
            paths.pop_last();
        }
    }

    /// The warnings in path order. Paths after `bound` were reached by chance and are left out.
    pub(super) fn warnings(self, jail: &Jail, bound: Option<&[u8]>) -> Vec<Warning> {
        let paths = self.paths.into_inner().expect("BUG: lock poisoned");
        let mut reported: Vec<(Vec<u8>, Reason)> = paths.into_iter().collect();
        if let Some(bound) = bound {
            reported.retain(|(path, _)| path.as_slice() <= bound);
        }
        let more = reported.len().saturating_sub(SCAN_WARNINGS_MAX);
        reported.truncate(SCAN_WARNINGS_MAX);
        let mut warnings: Vec<Warning> = reported
            .into_iter()
            .map(|(path, why)| {
                let shown = jail.display(path.strip_suffix(b"/").unwrap_or(&path));
                match why {
                    Reason::Unreadable(why) => {
                        Warning::new("unreadable", format!("{shown} was skipped: {why}"))
                    }
                    Reason::TooManyRules => Warning::new(
                        "ignore_rules_skipped",
                        format!(
                            "{shown}: the last part of its rules was not applied; at most {} KiB of a file and {IGNORE_PATTERNS_MAX} rules are",
                            IGNORE_FILE_BYTES_MAX >> 10
                        ),
                    ),
                }
            })
            .collect();
        if more > 0 {
            warnings
                .push(Warning::new("unreadable", format!("{more} more paths were skipped, or their rules")));
        }
        warnings
    }
}
