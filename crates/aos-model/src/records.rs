//! Plain records that entries, receipts and the state share: sessions, snapshots, and the images of paths.
//!
//! They have no behaviour beyond their JSON form. That form is part of the journal's bytes and must not change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::capability::Capability;
use crate::policy::PolicySpec;
use crate::request::{Base64, Isolation, OnFailure};

/// Where a session stands.
///
/// ```text
/// open ──signal term|kill, root gone──▶ closed
///   └────time to live is over─────────▶ expired
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    Open,
    Closed,
    Expired,
}

/// All that is needed to serve a session again after a restart.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRecord {
    pub session_id: String,
    pub state: SessionState,
    pub started_at_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ns: Option<u64>,
    /// As in the request, for people; what is in force stands below.
    pub target: Box<RawValue>,
    pub workdir: RootRecord,
    pub roots: Vec<RootRecord>,
    pub capability: Capability,
    pub policy: PolicySpec,
    pub isolation: Isolation,
    pub auto_snapshot: bool,
    pub snapshot_bytes_max: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capture_exclude: Vec<String>,
    pub on_failure: OnFailure,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The host mounts of a virtual tree, as a model is told of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountShown>,
}

/// A host mount as it is shown: where it is, how it is called, and its top level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountShown {
    pub mount_path: String,
    /// The mount path, unless the operator lets the host's path be shown.
    pub shown: String,
    pub entries: Vec<String>,
    /// How many entries there are beside those.
    pub more: u64,
}

impl PartialEq for SessionRecord {
    fn eq(&self, other: &Self) -> bool {
        serde_json::to_vec(self).ok() == serde_json::to_vec(other).ok()
    }
}

/// A pinned folder: its link-free absolute path, as receipts show paths, and its identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootRecord {
    pub path: String,
    pub dev: u64,
    pub ino: u64,
}

/// The pre-images of one mutation. Session, tool call, turn and time are those of its entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRecord {
    pub snapshot_id: String,
    /// The tool call it is for, where that is not the one of the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope_id: Option<String>,
    /// Captured by hand: the paths are as they were found, nothing was changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub explicit: bool,
    /// Of a change that takes others back: nothing else is ever captured into it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// The paths are of the session's tree, not of the disk: what they were stands in the entry's other facts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_tree: bool,
    /// How much of what was done the paths are.
    #[serde(default, skip_serializing_if = "Coverage::is_exact")]
    pub coverage: Coverage,
    pub paths: Vec<PathRecord>,
}

/// What one path was before a mutation, where its pre-image lies, and what the mutation made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathRecord {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Image>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Image>,
    /// Where the object went when it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
    /// The object stayed; only its mode, or its attributes, are others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mode_only: bool,
}

/// User attributes and the ACL of a file or a folder.
pub type Attributes = BTreeMap<String, Base64>;

/// One state of one path. Absent is `None` around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    pub kind: Kind,
    pub mode: u32,
    pub size_bytes: u64,
    /// The content's name, where it was at hand without reading the file again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The pre-image's file in the session's folder of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank: Option<String>,
    /// By what the object is known again without reading it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Where a change set them and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xattrs: Option<Attributes>,
}

impl Image {
    pub fn in_bank(mut self, name: String) -> Image {
        self.bank = Some(name);
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub dev: u64,
    pub ino: u64,
    pub mtime_ns: i64,
}

/// What kind of thing stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Other,
}

/// How far what an effect did can be undone, the least first. Never more than is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// A command that nobody watched.
    None,
    /// A command, by comparing before and after: what it made can be taken back, the rest was listed.
    Scan,
    /// A command over an overlay: all that it did in the roots.
    Overlay,
    /// A file effect.
    #[default]
    Exact,
}

impl Coverage {
    pub fn is_exact(&self) -> bool {
        *self == Coverage::Exact
    }
}
