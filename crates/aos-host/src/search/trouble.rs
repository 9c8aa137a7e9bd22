//! What a search could not look at: skipped, and named in the receipt.

use std::collections::BTreeMap;
use std::sync::Mutex;

use aos_model::limits::SCAN_WARNINGS_MAX;
use aos_model::receipt::Warning;
use rustix::io::Errno;

use crate::jail::Jail;

/// More than is shown are kept: those behind the cut of a search drop out of the account.
const KEPT_MAX: usize = 50 * SCAN_WARNINGS_MAX;

#[derive(Debug, Default)]
pub(super) struct Troubles {
    /// By absolute path, so that the same search tells the same whatever the number of threads.
    met: Mutex<BTreeMap<Vec<u8>, String>>,
}

impl Troubles {
    /// Notes a path that was skipped. What vanished meanwhile or never was a file is no trouble.
    pub(super) fn skipped(&self, path: &[u8], why: Errno) {
        if matches!(
            why,
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::STALE
        ) {
            return;
        }
        self.note(path, why.to_string());
    }

    pub(super) fn note(&self, path: &[u8], why: String) {
        let mut met = self.met.lock().expect("BUG: nobody panics noting");
        met.insert(path.to_vec(), why);
        if met.len() > KEPT_MAX {
            met.pop_last();
        }
    }

    /// As warnings, in path order. Those behind `bound` were met by chance and are left out.
    pub(super) fn warnings(self, jail: &Jail, bound: Option<&[u8]>) -> Vec<Warning> {
        let met = self.met.into_inner().expect("BUG: nobody panics noting");
        let mut told: Vec<(Vec<u8>, String)> = met.into_iter().collect();
        if let Some(bound) = bound {
            told.retain(|(path, _)| path.as_slice() <= bound);
        }
        let more = told.len().saturating_sub(SCAN_WARNINGS_MAX);
        told.truncate(SCAN_WARNINGS_MAX);
        let mut warnings: Vec<Warning> = told
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
