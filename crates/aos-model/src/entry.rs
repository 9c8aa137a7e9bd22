//! One entry of the journal: the request, the receipt, and the facts from which the state is folded.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::records::{SessionRecord, SessionState, SnapshotRecord};
use crate::vfs::{CapturedNode, TreeChange};

/// An entry to be written. Params and receipt are JSON already and are copied unchanged.
#[derive(Debug, Clone, Copy)]
pub struct EntryDraft<'a> {
    pub at_ns: u64,
    pub kind: &'a str,
    pub session_id: Option<&'a str>,
    pub tool_call_id: Option<&'a str>,
    pub turn_id: Option<&'a str>,
    pub params: &'a str,
    pub receipt: &'a str,
    pub blobs: &'a [&'a str],
    pub facts: &'a [Fact],
}

impl EntryDraft<'_> {
    /// The bytes of the entry. Their form is frozen: new fields may only be added at the end.
    pub fn to_bytes(&self) -> Vec<u8> {
        fn json(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
            serde_json::to_writer(out, value).expect("BUG: an entry did not serialize");
        }
        let mut out = Vec::with_capacity(self.params.len() + self.receipt.len() + 512);
        out.extend_from_slice(b"{\"at_ns\":");
        json(&self.at_ns, &mut out);
        out.extend_from_slice(b",\"kind\":");
        json(self.kind, &mut out);
        let ids =
            [("session_id", self.session_id), ("tool_call_id", self.tool_call_id), ("turn_id", self.turn_id)];
        for (name, id) in ids {
            if let Some(id) = id {
                out.extend_from_slice(b",\"");
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"\":");
                json(id, &mut out);
            }
        }
        for (name, value) in [("params", self.params), ("receipt", self.receipt)] {
            debug_assert!(serde_json::from_str::<&RawValue>(value).is_ok(), "BUG: {name} is not JSON");
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            out.extend_from_slice(value.as_bytes());
        }
        if !self.blobs.is_empty() {
            out.extend_from_slice(b",\"blobs\":");
            json(self.blobs, &mut out);
        }
        if !self.facts.is_empty() {
            out.extend_from_slice(b",\"facts\":");
            json(self.facts, &mut out);
        }
        out.push(b'}');
        out
    }
}

/// An entry that was read. Params and receipt stay unparsed.
#[derive(Debug, Deserialize)]
pub struct Entry<'a> {
    pub at_ns: u64,
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub session_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub tool_call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub turn_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub params: &'a RawValue,
    #[serde(borrow)]
    pub receipt: &'a RawValue,
    #[serde(borrow, default)]
    pub blobs: Vec<Cow<'a, str>>,
    #[serde(default)]
    pub facts: Vec<Fact>,
}

/// What an entry changes in the state. An entry that changes nothing has no facts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fact {
    SessionOpened(Box<SessionRecord>),
    SessionEnded {
        session_id: String,
        state: SessionState,
    },
    Captured(Box<SnapshotRecord>),
    SnapshotDropped {
        snapshot_id: String,
    },
    /// The entry rolled back turns (newest first), or with `again` redid them (oldest first).
    Rolled {
        steps: Vec<u64>,
        again: bool,
    },
    BlobPut {
        blob_ref: String,
    },
    /// How the entry changed the virtual or staged tree of its session (I18).
    Tree(TreeChange),
    /// The nodes that `host.fs.snapshot` captured from a tree, beside the `captured` fact of the same entry.
    TreeKept(Vec<CapturedNode>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_entry_are_frozen_and_can_be_read() {
        let facts = [Fact::SessionEnded { session_id: "hs_1".into(), state: SessionState::Closed }];
        let draft = EntryDraft {
            at_ns: 7,
            kind: "host.x\"y",
            session_id: Some("hs_1"),
            tool_call_id: None,
            turn_id: Some("t"),
            params: "{\"a\":1}",
            receipt: "{\"status\":\"ok\"}",
            blobs: &["sha256:00"],
            facts: &facts,
        };
        let bytes = draft.to_bytes();
        let frozen = r#"{"at_ns":7,"kind":"host.x\"y","session_id":"hs_1","turn_id":"t","params":{"a":1},"receipt":{"status":"ok"},"blobs":["sha256:00"],"facts":[{"session_ended":{"session_id":"hs_1","state":"closed"}}]}"#;
        assert_eq!(String::from_utf8_lossy(&bytes), frozen);
        let entry: Entry<'_> = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((entry.at_ns, &*entry.kind, entry.facts.as_slice()), (7, "host.x\"y", facts.as_slice()));
    }
}
