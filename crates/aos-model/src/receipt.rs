//! Receipts: the answer to one effect. The caller and the journal get the bytes that are made here.

mod executed;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::records::{Coverage, Kind, MountSummary, SessionState};
use crate::refusal::{Code, Detail, Refusal, Status};
use crate::request::Base64;
pub use executed::Executed;

/// A warning. It does not stop the effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    pub code: String,
    pub message: String,
}

impl Warning {
    pub fn new(code: &str, message: impl Into<String>) -> Warning {
        Warning { code: code.to_owned(), message: message.into() }
    }
}

/// Bytes in a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    InlineText {
        text: String,
    },
    InlineBytes {
        bytes: Base64,
    },
    Blob {
        blob_ref: String,
        size_bytes: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        preview_bytes: Option<Base64>,
    },
}

impl Payload {
    /// An inline payload: text if the bytes are UTF-8.
    pub fn from_bytes(bytes: Vec<u8>) -> Payload {
        match String::from_utf8(bytes) {
            Ok(text) => Payload::InlineText { text },
            Err(not_text) => Payload::InlineBytes { bytes: Base64(not_text.into_bytes()) },
        }
    }

    pub fn blob_ref(&self) -> Option<&str> {
        match self {
            Payload::Blob { blob_ref, .. } => Some(blob_ref),
            Payload::InlineText { .. } | Payload::InlineBytes { .. } => None,
        }
    }
}

/// What an acknowledged mutation survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The death of any process.
    Process,
    /// Also a power cut.
    Power,
}

/// The fields of each effect's receipt.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Body {
    Opened(Box<Opened>),
    Listed {
        sessions: Vec<Box<RawValue>>,
    },
    /// What the journal stores instead of `Listed`: the sessions are in it already.
    Counted {
        sessions_count: usize,
    },
    Signaled {},
    /// How many commands were told to end.
    Cancelled {
        ended: usize,
    },
    Collected {
        kept: u64,
        removed: u64,
        removed_bytes: u64,
    },
    Read(Box<ReadBody>),
    Written(Written),
    Edited(Edited),
    Patched(Box<Patched>),
    Grepped {
        matches: Payload,
        match_count: u64,
        truncated: bool,
        summary_text: String,
    },
    Globbed {
        paths: Payload,
        count: u64,
        truncated: bool,
        summary_text: String,
    },
    Stat(StatBody),
    Exists {
        exists: bool,
    },
    Entries {
        entries: Payload,
        count: u64,
        truncated: bool,
    },
    Removed {
        removed: u64,
    },
    Moved {},
    Made {},
    Executed(Box<Executed>),
    Snapshotted(Snapshotted),
    Restored(Box<Restored>),
    Snapshots {
        snapshots: Vec<ListedSnapshot>,
    },
    Dropped {},
    Latest {
        tree_version: u64,
        files: Vec<VfsFile>,
    },
    /// What the journal stores instead of `Latest`: the contents are in it already.
    LatestCounted {
        tree_version: u64,
        files_count: usize,
    },
    StagedDiff {
        diff: String,
        files: Vec<StagedFile>,
        files_count: u64,
    },
    Committed {
        committed_paths: Vec<String>,
        committed_paths_count: u64,
    },
    Discarded {
        discarded_paths: Vec<String>,
        discarded_paths_count: u64,
    },
}

/// One file of a virtual tree.
#[derive(Debug, Clone, Serialize)]
pub struct VfsFile {
    pub path: String,
    /// Absent once the size limit of one answer is reached; `read_file` returns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    pub encoding: &'static str,
    pub size_bytes: u64,
    pub version: u64,
    pub created_at: String,
    pub updated_at: String,
}

/// One path that differs between a staged tree and the host folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StagedFile {
    pub path: String,
    /// `added`, `changed` or `removed`.
    pub change: &'static str,
}

#[derive(Debug, Clone, Serialize)]
pub struct Snapshotted {
    pub snapshot_id: String,
    pub mode: &'static str,
    pub captured: u64,
}

/// The result of a restore, rollback or redo.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Restored {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back_turns: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redone_turns: Option<Vec<String>>,
    pub restored_paths: Vec<String>,
    pub restored_paths_count: u64,
    pub deleted_paths: Vec<String>,
    pub deleted_paths_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redo_snapshot_id: Option<String>,
}

/// One snapshot in `host.fs.list_snapshots`.
#[derive(Debug, Clone, Serialize)]
pub struct ListedSnapshot {
    pub snapshot_id: String,
    pub scope_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    pub captured_at_ns: u64,
    pub paths: Vec<String>,
    pub paths_count: u64,
    pub bytes: u64,
    pub coverage: Coverage,
}

#[derive(Debug, Clone, Serialize)]
pub struct Opened {
    pub session_id: String,
    pub started_at_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_ns: Option<u64>,
    pub isolation_applied: String,
    pub capability: crate::capability::Capability,
    pub policy: crate::policy::Policy,
}

/// One session in `host.session.list`.
#[derive(Debug, Clone, Serialize)]
pub struct ListedSession<'a> {
    pub session_id: &'a str,
    pub target: &'a RawValue,
    pub state: SessionState,
    pub started_at_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<&'a std::collections::BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub mounts: &'a [MountSummary],
}

#[derive(Debug, Clone, Serialize)]
pub struct ReadBody {
    pub content: Payload,
    pub truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset_bytes: Option<u64>,
    pub size_bytes: u64,
    pub mtime_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Written {
    pub written_bytes: u64,
    pub created: bool,
    pub new_mtime_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Edited {
    pub replacements: u64,
    pub applied: bool,
    pub match_kind: &'static str,
    pub summary_text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Patched {
    pub files_changed: u64,
    pub changed_paths: Vec<String>,
    pub changed_paths_count: u64,
    pub ops: PatchOps,
    pub summary_text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PatchOps {
    pub add: u64,
    pub update: u64,
    pub delete: u64,
    pub r#move: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct StatBody {
    pub exists: bool,
    pub kind: Kind,
    pub size_bytes: u64,
    pub mtime_ns: i64,
    pub mode: u32,
}

/// The fields that every mutation adds to its receipt.
#[derive(Debug, Clone, Serialize)]
pub struct MutationFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    pub durability: Durability,
}

/// A finished answer without its `seq`, which the journal assigns.
#[derive(Debug, Serialize)]
pub struct Receipt {
    pub status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    #[serde(flatten)]
    pub body: Option<Body>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<Code>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    #[serde(flatten)]
    pub detail: Detail,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    #[serde(flatten)]
    pub trace: Option<MutationFields>,
}

impl Receipt {
    pub fn success(status: Status, body: Body, warnings: Vec<Warning>) -> Receipt {
        Receipt {
            status,
            tool_call_id: None,
            turn_id: None,
            body: Some(body),
            error_code: None,
            error_message: None,
            detail: Detail::default(),
            warnings,
            trace: None,
        }
    }

    pub fn refusal(refusal: Refusal) -> Receipt {
        Receipt {
            status: refusal.code.status(),
            tool_call_id: None,
            turn_id: None,
            body: None,
            error_code: Some(refusal.code),
            error_message: Some(refusal.message),
            detail: *refusal.detail,
            warnings: Vec::new(),
            trace: None,
        }
    }

    /// The blobs that the receipt names. They must be kept as long as its entry.
    pub fn blob_refs(&self) -> Vec<&str> {
        match &self.body {
            Some(Body::Read(read)) => read.content.blob_ref().into_iter().collect(),
            Some(Body::Entries { entries: payload, .. })
            | Some(Body::Grepped { matches: payload, .. })
            | Some(Body::Globbed { paths: payload, .. }) => payload.blob_ref().into_iter().collect(),
            Some(Body::Executed(executed)) => {
                [&executed.stdout, &executed.stderr].into_iter().filter_map(|out| out.blob_ref()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The JSON that the journal stores, if it is shorter than what the caller gets.
    pub fn recorded(&mut self) -> Option<String> {
        let counted = match &self.body {
            Some(Body::Listed { sessions }) => Body::Counted { sessions_count: sessions.len() },
            Some(Body::Latest { tree_version, files }) => {
                Body::LatestCounted { tree_version: *tree_version, files_count: files.len() }
            }
            _ => return None,
        };
        let listed = self.body.replace(counted);
        let json = self.to_json();
        self.body = listed;
        Some(json)
    }

    /// The receipt as JSON without `seq`, as the journal stores it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("BUG: a receipt did not serialize")
    }
}

/// Inserts `seq` at the start of a receipt's JSON. This is what the caller gets.
pub fn with_seq(seq: u64, receipt: &str) -> String {
    debug_assert!(receipt.starts_with("{\"status\""), "BUG: a receipt does not start with its status");
    let mut out = String::with_capacity(receipt.len() + 28);
    out.push_str("{\"seq\":");
    out.push_str(&seq.to_string());
    out.push(',');
    out.push_str(&receipt[1..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_receipt_are_frozen() {
        let ok = Receipt::success(
            Status::Ok,
            Body::Exists { exists: true },
            vec![Warning::new("absolute_path", "Path is absolute: /x")],
        );
        assert_eq!(
            with_seq(7, &ok.to_json()),
            r#"{"seq":7,"status":"ok","exists":true,"warnings":[{"code":"absolute_path","message":"Path is absolute: /x"}]}"#
        );
        let no = Receipt::refusal(Refusal::new(Code::PathNotFound, "f: nothing is there"));
        assert_eq!(
            no.to_json(),
            r#"{"status":"not_found","error_code":"path_not_found","error_message":"f: nothing is there"}"#
        );
    }
}
