//! The params of `host.session.open`, `list` and `signal`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Home, Isolation, MountMode, NetworkMode, OnFailure, Signal, StagedTarget, VfsTarget};
use crate::strict::{UniqueMap, present, present_shallow};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionOpen {
    pub target: TargetSpec,
    /// Not parsed yet: an error inside it is `invalid_capability`, not `invalid_params`.
    #[serde(default, deserialize_with = "present_shallow", skip_serializing_if = "Option::is_none")]
    pub capability: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present_shallow", skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub allow_reduced: Option<bool>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub session_ttl_ns: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub labels: Option<UniqueMap<String>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub auto_snapshot: Option<bool>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub snapshot_bytes_max: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub capture_exclude: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
}

impl SessionOpen {
    pub(super) fn about(&self) -> Option<&str> {
        None
    }
}

/// What a session works on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TargetSpec {
    Local(LocalTarget),
    Vfs(VfsTarget),
    Staged(StagedTarget),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalTarget {
    pub workdir: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub mounts: Option<Vec<Mount>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub env: Option<UniqueMap<String>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub network_mode: Option<NetworkMode>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub home: Option<Home>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub git_identity: Option<Box<GitIdentity>>,
}

/// What `.gitconfig` of the private home says, so that commands can commit as their caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitIdentity {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub default_branch: Option<String>,
}

impl GitIdentity {
    /// The longest value.
    const VALUE_BYTES_MAX: usize = 1_024;

    /// Whether a value can be written: it has no control characters and is not too long.
    pub fn takes(value: &str) -> bool {
        value.len() <= GitIdentity::VALUE_BYTES_MAX && !value.chars().any(char::is_control)
    }

    /// The fields with their names.
    pub fn values(&self) -> [(&'static str, Option<&str>); 3] {
        let GitIdentity { name, email, default_branch } = self;
        [
            ("name", name.as_deref()),
            ("email", email.as_deref()),
            ("default_branch", default_branch.as_deref()),
        ]
    }

    /// The file.
    pub fn gitconfig(&self) -> String {
        let line = |key: &str, value: &Option<String>| {
            let quoted = value.as_ref().map(|text| text.replace('\\', "\\\\").replace('"', "\\\""));
            quoted.map_or(String::new(), |text| format!("\t{key} = \"{text}\"\n"))
        };
        let user = line("name", &self.name) + &line("email", &self.email);
        let branch = line("defaultBranch", &self.default_branch);
        let section =
            |name: &str, lines: String| if lines.is_empty() { lines } else { format!("[{name}]\n{lines}") };
        section("user", user) + &section("init", branch)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub host_path: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub mount_path: Option<String>,
    pub mode: MountMode,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionList {}

impl SessionList {
    pub(super) fn about(&self) -> Option<&str> {
        None
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSignal {
    pub session_id: String,
    pub signal: Signal,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub grace_timeout_ns: Option<u64>,
}

impl SessionSignal {
    pub(super) fn about(&self) -> Option<&str> {
        Some(&self.session_id)
    }
}
