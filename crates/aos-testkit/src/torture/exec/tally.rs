//! What a run of stubborn programs counted.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::torture::pulse::Pulse;

#[derive(Debug, Default)]
pub struct Tally {
    pub runs: u64,
    late: u64,
    survivors: u64,
    zombies: u64,
    statuses: BTreeMap<String, u64>,
    latest: Duration,
    pulse: Pulse,
    pub resident_bytes: u64,
    /// Zombies that were reported already.
    known_dead: Vec<i32>,
    pub complaints: Vec<String>,
}

impl Tally {
    pub fn failed(why: String) -> Tally {
        Tally { complaints: vec![why], ..Tally::default() }
    }

    pub fn fault(&mut self, why: String) {
        self.complaints.push(why);
    }

    pub fn is_clean(&self) -> bool {
        self.complaints.is_empty()
    }

    /// Counts the returned call of a command.
    pub(super) fn returned(&mut self, receipt: &Value, late: Duration, too_late: bool, what: &str) {
        self.runs += 1;
        self.latest = self.latest.max(late);
        let status = receipt["status"].as_str().unwrap_or("none").to_owned();
        let closed = receipt["error_code"] == "session_closed";
        if !closed && !["ok", "timeout", "signaled"].contains(&status.as_str()) {
            self.fault(format!("unexpected: {what}: {receipt}"));
        }
        *self.statuses.entry(status).or_default() += 1;
        if too_late {
            self.late += 1;
            self.fault(format!("late by {late:?}: {what}"));
        }
    }

    pub(super) fn left(&mut self, survivors: &[String], what: &str) {
        self.survivors += survivors.len() as u64;
        if !survivors.is_empty() {
            self.fault(format!("left running by {what}: {}", survivors.join(", ")));
        }
    }

    pub(super) fn answered(&mut self, pulse: Pulse) {
        self.complaints.extend(pulse.complaint());
        self.pulse = pulse;
    }

    pub(super) fn zombies(&mut self, dead: impl Iterator<Item = i32>) {
        for pid in dead {
            if !self.known_dead.contains(&pid) {
                self.known_dead.push(pid);
                self.zombies += 1;
                self.fault(format!("zombie {pid} is not waited for"));
            }
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let statuses: Vec<String> =
            self.statuses.iter().map(|(status, count)| format!("{count} {status}")).collect();
        write!(
            to,
            "{} process trees ({}): {} late (latest {} ms after its time), {} survivors, {} zombies; {}; {} MB \
             resident at most",
            self.runs,
            statuses.join(", "),
            self.late,
            self.latest.as_millis(),
            self.survivors,
            self.zombies,
            self.pulse,
            self.resident_bytes >> 20,
        )
    }
}
