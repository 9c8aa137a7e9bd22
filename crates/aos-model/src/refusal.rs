//! How an effect ends: its status, and unless it succeeded an error code and a message.

use serde::Serialize;

/// The `status` field of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    Ready,
    Signaled,
    Timeout,
    AlreadyExited,
    NotFound,
    IsDirectory,
    Conflict,
    Ambiguous,
    ParseError,
    Reject,
    InvalidRegex,
    InvalidPattern,
    NothingToRollBack,
    NothingToRedo,
    Forbidden,
    Error,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Ready => "ready",
            Status::Signaled => "signaled",
            Status::Timeout => "timeout",
            Status::AlreadyExited => "already_exited",
            Status::NotFound => "not_found",
            Status::IsDirectory => "is_directory",
            Status::Conflict => "conflict",
            Status::Ambiguous => "ambiguous",
            Status::ParseError => "parse_error",
            Status::Reject => "reject",
            Status::InvalidRegex => "invalid_regex",
            Status::InvalidPattern => "invalid_pattern",
            Status::NothingToRollBack => "nothing_to_roll_back",
            Status::NothingToRedo => "nothing_to_redo",
            Status::Forbidden => "forbidden",
            Status::Error => "error",
        }
    }
}

/// One line per code: the variant, its status, and its name on the wire.
macro_rules! codes {
    ($($variant:ident $status:ident $word:literal,)*) => {
        /// The `error_code` field of a receipt. Each code comes with exactly one status.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($variant,)* }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $word,)* }
            }

            pub fn status(self) -> Status {
                match self { $(Code::$variant => Status::$status,)* }
            }
        }
    };
}

codes! {
    // the request
    InvalidParams Error "invalid_params",
    // the session
    SessionNotFound Error "session_not_found",
    SessionClosed Error "session_closed",
    SessionExpired Error "session_expired",
    // `host.session.signal` has a status of its own for it
    SignalSessionNotFound NotFound "session_not_found",
    InvalidWorkdir Error "invalid_workdir",
    UnsupportedTarget Error "unsupported_target",
    InvalidCapability Error "invalid_capability",
    InvalidPolicy Error "invalid_policy",
    InvalidMount Error "invalid_mount",
    TooManySessions Error "too_many_sessions",
    IsolationUnavailable Error "isolation_unavailable",
    // the boundary
    PathOutsideRoots Forbidden "path_outside_roots",
    SymlinkNotAllowed Forbidden "symlink_not_allowed",
    OpNotAllowed Forbidden "op_not_allowed",
    PolicyDenied Forbidden "policy_denied",
    ProtectedPath Forbidden "protected_path",
    LimitExceeded Forbidden "limit_exceeded",
    // paths and the objects at them
    InvalidPath Error "invalid_path",
    PathNotFound NotFound "path_not_found",
    IsDirectory Error "is_directory",
    // `host.fs.read_file` has a status of its own for it
    ReadIsDirectory IsDirectory "is_directory",
    NotDirectory Error "not_directory",
    NotRegularFile Error "not_regular_file",
    // only for writes; `edit_file` and `stat` of a path whose parent is missing are `path_not_found`
    ParentNotFound Error "parent_not_found",
    DirectoryNotEmpty Error "directory_not_empty",
    // content
    InvalidUtf8 Error "invalid_utf8",
    InlineRequiredTooLarge Error "inline_required_too_large",
    BlobNotFound Error "blob_not_found",
    ContentTooLong Error "content_too_long",
    FileTooLarge Error "file_too_large",
    // writing
    FileExists Conflict "file_exists",
    StaleBase Conflict "stale_base",
    // editing
    InvalidInputEmptyOldString Error "invalid_input_empty_old_string",
    EditTargetNotFound NotFound "edit_target_not_found",
    AmbiguousMatches Ambiguous "ambiguous_matches",
    // patching
    InvalidPatchEmpty Error "invalid_patch_empty",
    UnsupportedPatchFormat Error "unsupported_patch_format",
    PatchParseError ParseError "patch_parse_error",
    PatchContextNotFound Reject "patch_context_not_found",
    // searching
    InvalidRegex InvalidRegex "invalid_regex",
    InvalidGlobFilter Error "invalid_glob_filter",
    InvalidPattern InvalidPattern "invalid_pattern",
    // commands
    ExecNotAllowed Forbidden "exec_not_allowed",
    ProgramNotAllowed Forbidden "program_not_allowed",
    ArgvEmpty Error "argv_empty",
    CwdNotFound Error "cwd_not_found",
    StdinRefNotFound Error "stdin_ref_not_found",
    SpawnFailed Error "spawn_failed",
    Unsupported Error "unsupported",
    // the command ran and was ended
    Timeout Timeout "timeout",
    Signaled Signaled "signaled",
    // undoing
    SnapshotNotFound NotFound "snapshot_not_found",
    ChangedSince Conflict "changed_since",
    PreimageDamaged Error "preimage_damaged",
    NothingToRollBack NothingToRollBack "nothing_to_roll_back",
    NothingToRedo NothingToRedo "nothing_to_redo",
    // the system
    PermissionDenied Error "permission_denied",
    NoSpace Error "no_space",
    IoError Error "io_error",
    InterruptedRolledBack Error "interrupted_rolled_back",
    Interrupted Error "interrupted",
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

/// A negative answer: what was refused, why, and what to do. It is journaled like any other answer (I2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// Further fields of the receipt.
    pub detail: Box<Detail>,
}

/// Fields that only some refusals have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Detail {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub already_applied: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_rolled_back: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflicts_count: Option<u64>,
}

/// A path that undo would have overwritten, and who changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    pub path: String,
    /// The id of a tool call, or `outside` for a change that was not made through aos.
    pub changed_by: String,
    /// It was changed between these two tool calls, which are both to be undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between: Option<[String; 2]>,
}

impl Conflict {
    pub fn new(path: String, changed_by: String) -> Conflict {
        Conflict { path, changed_by, between: None }
    }
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into(), detail: Box::default() }
    }

    pub fn with(mut self, detail: Detail) -> Refusal {
        self.detail = Box::new(detail);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_one_status_except_where_an_effect_has_its_own() {
        for code in Code::ALL {
            let twins: Vec<_> = Code::ALL.iter().filter(|c| c.as_str() == code.as_str()).collect();
            let status_of_its_own = ["session_not_found", "is_directory"];
            assert!(twins.len() == 1 || status_of_its_own.contains(&code.as_str()), "{twins:?}");
        }
    }
}
