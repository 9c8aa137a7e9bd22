//! The capability: the hard limit of a session, set when it is opened and never widened.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::limits::{INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX, SCRATCH_BYTES_DEFAULT};
use crate::refusal::{Code, Refusal};
use crate::strict::present;

/// A kind of file access that a capability can allow. `remove`, `move` and `make_dir` need `write`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FsOp {
    Read,
    Write,
    Edit,
    Patch,
    Search,
    List,
    Stat,
}

impl FsOp {
    pub const ALL: [FsOp; 7] =
        [FsOp::Read, FsOp::Write, FsOp::Edit, FsOp::Patch, FsOp::Search, FsOp::List, FsOp::Stat];

    pub fn as_str(self) -> &'static str {
        match self {
            FsOp::Read => "read",
            FsOp::Write => "write",
            FsOp::Edit => "edit",
            FsOp::Patch => "patch",
            FsOp::Search => "search",
            FsOp::List => "list",
            FsOp::Stat => "stat",
        }
    }
}

/// Which symbolic links a path may traverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowSymlinks {
    Deny,
    #[default]
    WithinRootOnly,
    Allow,
}

/// What happens to paths that run code or configure agents, such as `.git/hooks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtectedPaths {
    #[default]
    Deny,
    Warn,
    Allow,
    /// As `deny`, but of a command's changes only these stay out.
    Withhold,
}

/// What happens to paths that steer agents or builds and are changed in ordinary work, such as `AGENTS.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SensitivePaths {
    Deny,
    #[default]
    Warn,
    Allow,
}

impl SensitivePaths {
    fn is_default(&self) -> bool {
        *self == SensitivePaths::default()
    }
}

/// The limits for commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecCapability {
    #[serde(default = "yes")]
    pub allowed: bool,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub programs: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_timeout_ns: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_processes: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_memory_bytes: Option<u64>,
    /// Bounds the private home and `/tmp` of the session together; see [`ExecCapability::scratch_bytes_max`].
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_scratch_bytes: Option<u64>,
    /// Bounds what one command changes in the roots before it is applied.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_overlay_bytes: Option<u64>,
    /// Whether commands may run without capture, so that what they change is neither checked before it lands nor
    /// undoable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncaptured: bool,
}

impl Default for ExecCapability {
    fn default() -> Self {
        ExecCapability {
            allowed: true,
            programs: None,
            max_timeout_ns: None,
            max_output_bytes: None,
            max_processes: None,
            max_memory_bytes: None,
            max_scratch_bytes: None,
            max_overlay_bytes: None,
            uncaptured: false,
        }
    }
}

impl ExecCapability {
    pub fn scratch_bytes_max(&self) -> u64 {
        self.max_scratch_bytes.unwrap_or(SCRATCH_BYTES_DEFAULT)
    }
}

fn yes() -> bool {
    true
}

fn all_ops() -> BTreeSet<FsOp> {
    FsOp::ALL.into()
}

/// A capability, as requested and as in force. Both have one form, so the capability in a receipt can be used in a
/// request.
///
/// In a request `fs_roots` may be absent or relative; in force it holds absolute, link-free paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capability {
    #[serde(default = "all_ops")]
    pub allowed_fs_ops: BTreeSet<FsOp>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub fs_roots: Option<Vec<String>>,
    #[serde(default)]
    pub follow_symlinks: FollowSymlinks,
    #[serde(default)]
    pub protected_paths: ProtectedPaths,
    #[serde(default, skip_serializing_if = "SensitivePaths::is_default")]
    pub sensitive_paths: SensitivePaths,
    #[serde(default)]
    pub cross_mounts: bool,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_read_bytes: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_write_bytes: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_patch_bytes: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_inline_bytes: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_grep_results: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_glob_results: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_scan_files: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_scan_bytes: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub allowed_patch_formats: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_changed_files: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_edit_replacements: Option<u64>,
    #[serde(default)]
    pub exec: ExecCapability,
}

impl Default for Capability {
    fn default() -> Self {
        crate::strict::parse("{}").expect("BUG: a field of the capability has no default")
    }
}

impl Capability {
    pub fn allows(&self, op: FsOp) -> Result<(), Refusal> {
        if self.allowed_fs_ops.contains(&op) {
            return Ok(());
        }
        Err(Refusal::new(
            Code::OpNotAllowed,
            format!(
                "the capability of this session does not allow `{}`; it allows [{}]. Open a session whose `allowed_fs_ops` includes it",
                op.as_str(),
                self.allowed_fs_ops.iter().map(|op| op.as_str()).collect::<Vec<_>>().join(", "),
            ),
        ))
    }

    pub fn inline_bytes_max(&self) -> u64 {
        self.max_inline_bytes.unwrap_or(INLINE_BYTES_DEFAULT).min(INLINE_BYTES_MAX)
    }
}

/// Refuses an `actual` above `limit`. A write is refused as a whole, never truncated.
pub fn check_limit(limit: Option<u64>, name: &str, actual: u64, subject: &str) -> Result<(), Refusal> {
    match limit {
        Some(limit) if actual > limit => Err(Refusal::new(
            Code::LimitExceeded,
            format!(
                "{subject}: {actual} is over the capability's `{name}` of {limit}; nothing was changed. Split the work or open a session with a higher limit"
            ),
        )),
        _ => Ok(()),
    }
}

/// The smaller of the limits in the request and in the capability.
pub fn smaller_limit(request: Option<u64>, capability: Option<u64>) -> Option<u64> {
    match (request, capability) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_capability_allows_everything() {
        let open = Capability::default();
        for op in FsOp::ALL {
            assert!(open.allows(op).is_ok());
        }
        assert_eq!(open.inline_bytes_max(), INLINE_BYTES_DEFAULT);
        assert_eq!(open.follow_symlinks, FollowSymlinks::WithinRootOnly);
        assert!(check_limit(None, "max_write_bytes", u64::MAX, "f").is_ok());
    }

    #[test]
    fn only_the_allowed_operations_are_allowed() {
        let reader: Capability = crate::strict::parse(r#"{"allowed_fs_ops":["read"]}"#).unwrap();
        assert!(reader.allows(FsOp::Read).is_ok());
        for op in FsOp::ALL.into_iter().filter(|op| *op != FsOp::Read) {
            assert_eq!(reader.allows(op).unwrap_err().code, Code::OpNotAllowed);
        }
    }

    #[test]
    fn the_smaller_limit_applies() {
        assert_eq!(smaller_limit(Some(5), Some(3)), Some(3));
        assert_eq!(smaller_limit(Some(2), Some(3)), Some(2));
        assert_eq!(smaller_limit(None, Some(3)), Some(3));
        assert_eq!(smaller_limit(None, None), None);
    }

    #[test]
    fn invalid_numbers_are_refused_with_their_field() {
        for bad in ["18446744073709551616", "-1", "1e308", "\"10\"", "null"] {
            let error =
                crate::strict::parse::<Capability>(&format!("{{\"max_read_bytes\":{bad}}}")).unwrap_err();
            assert!(error.to_string().contains("max_read_bytes"), "{error}");
        }
    }
}
