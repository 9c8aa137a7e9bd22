//! The journal as `aos log --json` prints it, which a load is compared with, and the counts of a run.

use std::collections::HashMap;

use serde::Deserialize;

use super::Acked;
use crate::torture::pulse::Pulse;

/// The journal as `aos log --json` prints it.
#[derive(Debug, Default)]
pub struct Journal {
    lines: Vec<Line>,
    by_call: HashMap<String, Vec<usize>>,
}

/// The needed fields of one entry.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Line {
    seq: u64,
    #[serde(default)]
    tool_call_id: Option<String>,
    pub(super) receipt: Head,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Head {
    status: String,
    #[serde(default)]
    error_code: Option<String>,
    #[serde(default)]
    pub(super) not_rolled_back: Vec<String>,
    /// Of a command.
    #[serde(default)]
    pub(super) exit_code: Option<i64>,
}

impl Head {
    pub(super) fn verdict(&self) -> String {
        match &self.error_code {
            None => self.status.clone(),
            Some(code) => format!("{} / {code}", self.status),
        }
    }
}

impl Line {
    pub(super) fn rolled_back(&self) -> bool {
        self.receipt.error_code.as_deref() == Some("interrupted_rolled_back")
    }
}

impl Journal {
    /// Parses the log, and checks that it counts from 1 without a gap.
    pub fn parse(log: &str) -> Result<Journal, String> {
        let mut journal = Journal::default();
        for (index, text) in log.lines().enumerate() {
            let line: Line =
                serde_json::from_str(text).map_err(|why| format!("the log holds `{text}`: {why}"))?;
            if line.seq != index as u64 + 1 {
                return Err(format!("entry {} is where {} was due", line.seq, index + 1));
            }
            if let Some(call) = &line.tool_call_id {
                journal.by_call.entry(call.clone()).or_default().push(index);
            }
            journal.lines.push(line);
        }
        Ok(journal)
    }

    /// The number of entries that report a rollback of an interrupted request.
    pub fn rolled_back(&self) -> usize {
        self.lines.iter().filter(|line| line.rolled_back()).count()
    }

    /// `status` or `status / error_code` of each entry of a call.
    pub fn verdicts(&self, tool_call: &str) -> Vec<String> {
        self.of(tool_call).into_iter().map(|line| line.receipt.verdict()).collect()
    }

    pub(super) fn of(&self, tool_call: &str) -> Vec<&Line> {
        let places = self.by_call.get(tool_call).map_or(&[][..], Vec::as_slice);
        places.iter().map(|place| &self.lines[*place]).collect()
    }

    pub(super) fn must_hold(&self, acked: &Acked, tally: &mut Tally) {
        let Acked { seq, tool_call, status, .. } = acked;
        match self.of(tool_call).as_slice() {
            [line] if line.seq == *seq && line.receipt.status == *status => {}
            [] => {
                tally.lost += 1;
                tally.complaints.push(format!("lost: {tool_call} was acknowledged as {seq} and is gone"));
            }
            [line] => {
                tally.lost += 1;
                tally.complaints.push(format!("lost: {tool_call} was {seq} {status} and is {line:?}"));
            }
            several => {
                tally.doubled += 1;
                tally
                    .complaints
                    .push(format!("doubled: {tool_call} is in the journal {} times", several.len()));
            }
        }
    }
}

/// What was counted.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    pub kills: u64,
    pub acked: u64,
    /// Acknowledged and not in the journal, or not on the disk.
    pub lost: u64,
    pub doubled: u64,
    /// Patches that are half applied, or that a rollback left half applied.
    pub mixed: u64,
    /// Unanswered requests that a restart rolled back, as it should.
    pub rolled_back: u64,
    /// Unanswered requests that were done and recorded, which is allowed.
    pub unanswered: u64,
    /// Any other failure: a daemon that does not start, an unexpected answer, a damaged record.
    pub faults: u64,
    pub pulse: Pulse,
    pub complaints: Vec<String>,
}

impl Tally {
    pub fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.mixed + self.faults == 0
    }

    pub fn fault(&mut self, complaint: String) {
        self.faults += 1;
        self.complaints.push(complaint);
    }

    pub fn add(&mut self, other: Tally) {
        self.kills += other.kills;
        self.acked += other.acked;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.mixed += other.mixed;
        self.rolled_back += other.rolled_back;
        self.unanswered += other.unanswered;
        self.faults += other.faults;
        self.pulse.add(&other.pulse);
        self.complaints.extend(other.complaints);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} kills, {} acknowledged, {} lost, {} doubled, {} mixed, {} rolled back, {} done unanswered, {} other faults; {}",
            self.kills,
            self.acked,
            self.lost,
            self.doubled,
            self.mixed,
            self.rolled_back,
            self.unanswered,
            self.faults,
            self.pulse
        )
    }
}
