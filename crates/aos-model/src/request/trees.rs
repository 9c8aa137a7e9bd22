//! Virtual and staged trees: their targets, and the params of the effects that only they have.

use serde::{Deserialize, Deserializer, Serialize};

use crate::strict::present;

/// A tree that starts empty or with host mounts and never changes the host (I17).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfsTarget {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub mounts: Option<Vec<HostMount>>,
    /// Host folders that mounts may come from. Without any, no mount is allowed.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub allowed_roots: Option<Vec<String>>,
    /// Whether the prompt for models shows the host path of a mount.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub show_host_paths: Option<bool>,
}

/// A host folder or file that is copied into a virtual tree when its session is opened.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostMount {
    pub host_path: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub mount_path: Option<String>,
    #[serde(default, deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub include_glob: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub exclude_glob: Vec<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub follow_symlinks: Option<bool>,
}

/// One glob, or a list of them.
fn one_or_many<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a glob or a list of globs")]
    enum Globs {
        One(String),
        Many(Vec<String>),
    }
    Globs::deserialize(d).map(|globs| match globs {
        Globs::One(glob) => vec![glob],
        Globs::Many(globs) => globs,
    })
}

/// A host folder whose changes are staged until they are committed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedTarget {
    pub workdir: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfsLatest {
    pub session_id: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub tree_version: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedDiff {
    pub session_id: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedCommit {
    pub session_id: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedDiscard {
    pub session_id: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
}
