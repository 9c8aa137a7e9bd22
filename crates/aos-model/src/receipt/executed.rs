//! What the receipt of a command says.

use serde::Serialize;

use super::Payload;
use crate::limits::RECEIPT_PATHS_MAX;
use crate::records::Coverage;

/// A command that was started.
#[derive(Debug, Clone, Serialize)]
pub struct Executed {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it, such as `SIGKILL`, if it did not exit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    pub stdout: Payload,
    pub stderr: Payload,
    /// All bytes that were written, stored or not.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    pub started_at_ns: u64,
    pub ended_at_ns: u64,
    pub isolation_applied: String,
    /// The paths that it changed in the roots, as far as they were captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_paths: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_paths_count: Option<u64>,
    /// Paths that it changed and that were left out, because they run code or steer agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withheld_paths: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld_paths_count: Option<u64>,
    /// Paths that it changed although they are protected or denied, and that are as before again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied_paths: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied_paths_count: Option<u64>,
    /// Paths that it changed in folders that are not captured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded_paths: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded_paths_count: Option<u64>,
    pub coverage: Coverage,
    /// Changed paths that cannot be undone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_undoable: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_undoable_count: Option<u64>,
    /// The changes of a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// A list in path order, cut at the limit, and its full length if it is not empty.
fn bounded(mut paths: Vec<String>) -> (Vec<String>, Option<u64>) {
    paths.sort_unstable();
    paths.dedup();
    let count = (!paths.is_empty()).then_some(paths.len() as u64);
    paths.truncate(RECEIPT_PATHS_MAX);
    (paths, count)
}

impl Executed {
    /// Sets the list of changed paths: in path order, and cut at the limit.
    pub fn list_changed(&mut self, mut paths: Vec<String>) {
        paths.sort_unstable();
        paths.dedup();
        self.changed_paths_count = Some(paths.len() as u64);
        paths.truncate(RECEIPT_PATHS_MAX);
        self.changed_paths = Some(paths);
    }

    /// Adds to the list of paths that were left out: in path order, and cut at the limit.
    pub fn list_withheld(&mut self, paths: Vec<String>) {
        self.withheld_paths.extend(paths);
        self.withheld_paths.sort_unstable();
        self.withheld_paths.dedup();
        let count = self.withheld_paths.len() as u64;
        self.withheld_paths_count = (count > 0).then_some(count);
        self.withheld_paths.truncate(RECEIPT_PATHS_MAX);
    }

    /// Sets the list of paths that were put back: in path order, and cut at the limit.
    pub fn list_denied(&mut self, paths: Vec<String>) {
        (self.denied_paths, self.denied_paths_count) = bounded(paths);
    }

    /// Sets the list of paths that changed without capture: in path order, and cut at the limit.
    pub fn list_excluded(&mut self, paths: Vec<String>) {
        (self.excluded_paths, self.excluded_paths_count) = bounded(paths);
    }

    /// Sets the list of paths that cannot be undone: in path order, and cut at the limit.
    pub fn list_not_undoable(&mut self, paths: Vec<String>) {
        (self.not_undoable, self.not_undoable_count) = bounded(paths);
    }
}
