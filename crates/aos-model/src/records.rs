//! Plain records that entries, receipts and the state share: sessions, snapshots, and the images of paths.
//!
//! They have no behaviour beyond their JSON form. That form is part of the journal's bytes and must not change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::capability::Capability;
use crate::policy::PolicySpec;
use crate::request::{Base64, Isolation, OnFailure};

/// The state of a session.
///
/// ```text
/// open ──signal term|kill, root changed──▶ closed
///   └────time to live elapsed─────────▶ expired
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    Open,
    Closed,
    Expired,
}

/// Everything that is needed to serve a session again after a restart.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRecord {
    pub session_id: String,
    pub state: SessionState,
    pub started_at_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ns: Option<u64>,
    /// The target as requested, for display. The fields below hold what is in force.
    pub target: Box<RawValue>,
    pub workdir: RootRecord,
    pub roots: Vec<RootRecord>,
    pub capability: Capability,
    pub policy: PolicySpec,
    pub isolation: Isolation,
    /// Commands run with Landlock and seccomp only where there are no namespaces.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_reduced: bool,
    pub auto_snapshot: bool,
    pub snapshot_bytes_max: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capture_exclude: Vec<String>,
    pub on_failure: OnFailure,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The host mounts of a virtual tree, as the prompt for models lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountSummary>,
}

/// A host mount as the prompt for models shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountSummary {
    pub mount_path: String,
    /// The mount path, or the host path where the operator allows it to be shown.
    pub shown: String,
    pub entries: Vec<String>,
    /// How many further entries the top level has.
    pub more: u64,
}

impl PartialEq for SessionRecord {
    fn eq(&self, other: &Self) -> bool {
        serde_json::to_vec(self).ok() == serde_json::to_vec(other).ok()
    }
}

/// A pinned folder: its link-free absolute path, spelled as in receipts, and its device and inode (I3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootRecord {
    pub path: String,
    pub dev: u64,
    pub ino: u64,
}

/// The pre-images of one mutation. Session, tool call, turn and time are in its entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRecord {
    pub snapshot_id: String,
    /// The tool call that the snapshot belongs to, where it is not the one of the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope_id: Option<String>,
    /// Taken by `host.fs.snapshot`: the paths were captured and nothing was changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub explicit: bool,
    /// Belongs to a restore, rollback or redo: no other change is captured into it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// The paths are in the session's tree, not on disk. The other facts of the entry hold what they were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_tree: bool,
    /// How much of the change `paths` covers.
    #[serde(default, skip_serializing_if = "Coverage::is_exact")]
    pub coverage: Coverage,
    pub paths: Vec<PathRecord>,
}

/// One path of a mutation: what it was before, where its pre-image is stored, and what it became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathRecord {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Image>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Image>,
    /// The new path of the object, if it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
    /// The object stayed in place; only its mode or its extended attributes changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mode_only: bool,
}

/// One journaled change with its paths, in the order in which they were changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedChange {
    pub seq: u64,
    pub turn_id: Option<String>,
    pub snapshot_id: String,
    /// Captured by `host.fs.snapshot`, without a change: it has no post-images.
    pub explicit: bool,
    /// In a virtual or staged tree: nodes are restored there, not files on disk.
    pub in_tree: bool,
    pub paths: Vec<PathRecord>,
}

/// The user extended attributes and the ACL of a file or folder, by attribute name.
pub type Attributes = BTreeMap<String, Base64>;

/// What one path is at one time. An absent path is `None` instead of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    pub kind: Kind,
    pub mode: u32,
    pub size_bytes: u64,
    /// The hash of the content, where it was known without reading the file again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The name of the pre-image in the session's pre-image folder.
    #[serde(rename = "bank", default, skip_serializing_if = "Option::is_none")]
    pub preimage: Option<String>,
    /// Identifies the object without reading it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Of what a change made, and of both sides of a change of attributes alone. `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xattrs: Option<Attributes>,
}

impl Image {
    /// The image with the name of its pre-image.
    pub fn with_preimage(mut self, name: String) -> Image {
        self.preimage = Some(name);
        self
    }
}

/// Device, inode and mtime. A later writer may keep inode and size, but changes the mtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub dev: u64,
    pub ino: u64,
    pub mtime_ns: i64,
}

/// The type of the object at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Other,
}

/// How much of an effect can be undone, least first. It never claims more than is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// A command without capture.
    None,
    /// A command whose roots were compared before and after: created paths can be undone, the others are only listed.
    Scan,
    /// A command that ran over an overlay and changed folders that are not captured: everything else that it changed.
    Partial,
    /// A command that ran over an overlay: everything that it changed in the roots.
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
