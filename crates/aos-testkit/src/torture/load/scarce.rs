//! What a writer accepts where a disk may be full, and what such refusals may leave: nothing.

use std::time::Instant;

use serde_json::Value;

use super::{Acked, COMMAND, Journal, Tally, Writer};

/// Refusals for lack of space.
#[derive(Debug, Default)]
pub struct Scarce {
    /// Whether a disk may be full.
    pub allowed: bool,
    /// Requests that were refused with `no_space`.
    pub refused: u64,
    /// Commands that were ended, because they or others filled the disk.
    pub ended: u64,
    /// The calls that were refused without an entry in the journal, because that had no room either.
    unrecorded: Vec<String>,
}

impl Scarce {
    pub(super) fn accepts(&self, kind: &str, verdict: &str) -> bool {
        let is_ended = kind == COMMAND && verdict == "forbidden / limit_exceeded";
        self.allowed && (verdict == "error / no_space" || is_ended)
    }
}

impl Writer {
    /// A request that was refused for lack of space: the tree is as before.
    pub(super) fn lacked_space(&mut self, tool_call: String, receipt: &Value) {
        let status = receipt["status"].as_str().unwrap_or_default().to_owned();
        if status == "error" {
            self.scarce.refused += 1;
        } else {
            self.scarce.ended += 1;
        }
        match receipt["seq"].as_u64() {
            Some(seq) => {
                self.acked.push(Acked { at: Instant::now(), seq, tool_call, status, recent: None });
            }
            None => self.scarce.unrecorded.push(tool_call),
        }
    }

    /// A receipt of a request about the session itself.
    pub fn acknowledged(&mut self, tool_call: String, receipt: &Value) -> Result<(), String> {
        let seq = receipt["seq"].as_u64().ok_or_else(|| format!("a receipt without seq: {receipt}"))?;
        let status = receipt["status"].as_str().unwrap_or_default().to_owned();
        self.acked.push(Acked { at: Instant::now(), seq, tool_call, status, recent: None });
        Ok(())
    }

    /// Works in another session from now on. What an earlier one did cannot be undone in it.
    pub fn continue_in(&mut self, session: String) {
        self.session = session;
        self.last = None;
    }

    /// The entry of a refused request may be a rollback of its steps by a later start, and nothing else.
    pub(super) fn judge_refused(&self, journal: &Journal, tally: &mut Tally) {
        for call in &self.scarce.unrecorded {
            let entries = journal.of(call);
            if !entries.iter().all(|line| line.rolled_back() && line.receipt.not_rolled_back.is_empty()) {
                tally.fault(format!("{call} was refused without an entry, and the journal has {entries:?}"));
            }
        }
    }
}
