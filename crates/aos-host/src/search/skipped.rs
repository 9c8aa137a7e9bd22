//! The paths that a search skipped because they could not be read, reported as warnings.

use std::collections::BTreeMap;
use std::sync::Mutex;

use aos_model::limits::SCAN_WARNINGS_MAX;
use aos_model::receipt::Warning;
use rustix::io::Errno;

use crate::jail::Jail;

/// More are kept than are reported, because those after the cut of a search are dropped later.
const KEPT_MAX: usize = 50 * SCAN_WARNINGS_MAX;

#[derive(Debug, Default)]
pub(super) struct SkippedPaths {
    /// By absolute path, so that the warnings do not depend on the number of threads.
    paths: Mutex<BTreeMap<Vec<u8>, String>>,
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
        let mut paths = self.paths.lock().expect("BUG: lock poisoned");
        paths.insert(path.to_vec(), why);
        if paths.len() > KEPT_MAX {
            paths.pop_last();
        }
    }

    /// The warnings in path order. Paths after `bound` were reached by chance and are left out.
    pub(super) fn warnings(self, jail: &Jail, bound: Option<&[u8]>) -> Vec<Warning> {
        let paths = self.paths.into_inner().expect("BUG: lock poisoned");
        let mut reported: Vec<(Vec<u8>, String)> = paths.into_iter().collect();
        if let Some(bound) = bound {
            reported.retain(|(path, _)| path.as_slice() <= bound);
        }
        let more = reported.len().saturating_sub(SCAN_WARNINGS_MAX);
        reported.truncate(SCAN_WARNINGS_MAX);
        let mut warnings: Vec<Warning> = reported
            .into_iter()
            .map(|(path, why)| {
                let path = path.strip_suffix(b"/").unwrap_or(&path);
                Warning::new("unreadable", format!("{} was skipped: {why}", jail.display(path)))
            })
            .collect();
        if more > 0 {
            warnings.push(Warning::new("unreadable", format!("{more} more paths were skipped")));
        }
        warnings
    }
}
