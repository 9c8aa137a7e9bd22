//! One entry of the journal: who asked what, what was answered, and the facts from which the state is folded.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::state::{SessionRecord, SessionState, SnapshotRecord};

/// An entry as it is written. Its bytes are frozen: fields are added at the end or not at all.
#[derive(Debug, Serialize)]
pub struct Draft<'a, P: Serialize> {
    pub at_ns: u64,
    pub kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<&'a str>,
    pub params: P,
    pub receipt: &'a RawValue,
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    pub blobs: &'a [&'a str],
    #[serde(skip_serializing_if = "<[Fact]>::is_empty")]
    pub facts: &'a [Fact],
}

/// An entry as it is read back. Params and receipt stay as they are until somebody wants them.
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

/// What an entry changes in the state. What changes nothing carries none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fact {
    SessionOpened(Box<SessionRecord>),
    SessionEnded { session_id: String, state: SessionState },
    Captured(Box<SnapshotRecord>),
    BlobPut { blob_ref: String },
}
