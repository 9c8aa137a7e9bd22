//! What a case reads about the daemon and its record: memory, descriptors, journal entries.

use std::time::Duration;

use serde_json::Value;

use super::World;
use crate::check::Outcome;
use crate::time::wait_at_most;

/// Descriptors that may be added over time: SQLite opens its files again when it first checkpoints, and a session its
/// folder of pre-images when it first changes something.
pub const DESCRIPTORS_SLACK: usize = 5;

impl World {
    /// Resident memory of the daemon in bytes.
    pub fn rss(&self) -> u64 {
        self.memory("VmRSS")
    }

    /// The peak of the daemon's resident memory, in bytes.
    pub fn rss_peak(&self) -> u64 {
        self.memory("VmHWM")
    }

    fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon_pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    pub fn open_descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.daemon_pid())).unwrap().count()
    }

    /// Waits until the daemon holds no more descriptors than `before`, plus a few.
    pub fn expect_descriptors(&self, before: usize) -> Outcome {
        // The journal and the folders of pre-images open a few descriptors on first use and keep them.
        let most = before + 4;
        // The thread of a connection that just ended closes its descriptors a moment later.
        wait_at_most(Duration::from_secs(2), &format!("at most {most} descriptors are open"), || {
            self.open_descriptors() <= most
        })
    }

    /// The entries of the journal, as `aos log --json` prints them.
    pub fn journal(&self) -> Vec<Value> {
        self.entries(&["log", "--json"])
    }

    /// The entries of one tool call in a session.
    pub fn entries_of(&self, session: &str, tool_call: &str) -> Vec<Value> {
        let entries = self.entries(&["log", "--json", "--session", session]);
        entries.into_iter().filter(|entry| entry["tool_call_id"] == tool_call).collect()
    }

    fn entries(&self, arguments: &[&str]) -> Vec<Value> {
        let (_, out, _) = self.aos(arguments);
        out.lines().map(|line| serde_json::from_str(line).expect("an entry is JSON")).collect()
    }

    /// Stores a blob as the operator would. Returns its reference.
    pub fn blob(&self, bytes: &[u8]) -> String {
        let file = self.parent.join("blob");
        std::fs::write(&file, bytes).unwrap();
        let (code, out, err) = self.aos(&["blob", "put", file.to_str().unwrap()]);
        assert_eq!(code, 0, "aos blob put: {err}");
        out.trim().to_owned()
    }
}
