//! Requests: one struct per effect, parsed strictly, and the form in which the journal stores them.

mod content;
mod exec;
mod files;
mod session;
mod snapshots;
mod trees;

pub use content::{Base64, Content, content_hash, hash_name};
pub use exec::*;
pub use files::*;
pub use session::*;
pub use snapshots::*;
pub use trees::*;

use serde::{Deserialize, Serialize, Serializer};

use crate::refusal::{Code, Refusal};
use crate::strict::{self, JsonError};

/// One line per effect: the variant, which is also the name of its params struct, and its kind on the wire.
macro_rules! effects {
    (host { $($outer:ident $outer_kind:literal,)* } session { $($inner:ident $inner_kind:literal,)* }) => {
        /// One request, by who answers it.
        #[derive(Debug, Clone)]
        pub enum Request {
            Host(HostRequest),
            Session(SessionRequest),
        }

        /// A request that opens, lists or ends sessions. The variants follow the kinds on the wire.
        #[derive(Debug, Clone)]
        pub enum HostRequest { $($outer($outer),)* }

        /// A request inside an open session. The variants follow the kinds on the wire.
        #[derive(Debug, Clone)]
        pub enum SessionRequest { $($inner($inner),)* }

        impl Request {
            pub const KINDS: &'static [&'static str] = &[$($outer_kind,)* $($inner_kind,)*];

            pub fn parse(kind: &str, params: &str) -> Result<Request, RequestError> {
                Ok(match kind {
                    $($outer_kind => Request::Host(HostRequest::$outer(strict::parse(params)?)),)*
                    $($inner_kind => Request::Session(SessionRequest::$inner(strict::parse(params)?)),)*
                    unknown => return Err(RequestError::Refused(Refusal::new(
                        Code::InvalidParams,
                        format!("kind: unknown effect `{}`; known effects: {}", crate::text::escape(unknown), Self::KINDS.join(", ")),
                    ))),
                })
            }

            pub fn kind(&self) -> &'static str {
                match self {
                    $(Request::Host(HostRequest::$outer(_)) => $outer_kind,)*
                    $(Request::Session(SessionRequest::$inner(_)) => $inner_kind,)*
                }
            }
        }

        impl HostRequest {
            /// The session that the request is about; `None` for `host.session.open` and `host.session.list`.
            pub fn session_id(&self) -> Option<&str> {
                match self { $(HostRequest::$outer(params) => params.about(),)* }
            }
        }

        impl SessionRequest {
            pub fn session_id(&self) -> &str {
                match self { $(SessionRequest::$inner(params) => &params.session_id,)* }
            }
        }

        impl Serialize for Request {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Request::Host(HostRequest::$outer(params)) => params.serialize(s),)*
                    $(Request::Session(SessionRequest::$inner(params)) => params.serialize(s),)*
                }
            }
        }
    };
}

effects! {
    host {
        SessionOpen "host.session.open",
        SessionList "host.session.list",
        SessionSignal "host.session.signal",
    }
    session {
        ReadFile "host.fs.read_file",
        WriteFile "host.fs.write_file",
        EditFile "host.fs.edit_file",
        ApplyPatch "host.fs.apply_patch",
        Grep "host.fs.grep",
        Glob "host.fs.glob",
        Stat "host.fs.stat",
        Exists "host.fs.exists",
        ListDir "host.fs.list_dir",
        Remove "host.fs.remove",
        Move "host.fs.move",
        MakeDir "host.fs.make_dir",
        Exec "host.exec",
        Snapshot "host.fs.snapshot",
        Restore "host.fs.restore",
        ListSnapshots "host.fs.list_snapshots",
        DropSnapshot "host.fs.drop_snapshot",
        Rollback "host.fs.rollback",
        Redo "host.fs.redo",
        VfsLatest "host.vfs.latest",
        StagedDiff "host.staged.diff",
        StagedCommit "host.staged.commit",
        StagedDiscard "host.staged.discard",
    }
}

impl Request {
    /// The session that the request is about; `None` for `host.session.open` and `host.session.list`.
    pub fn session_id(&self) -> Option<&str> {
        match self {
            Request::Host(request) => request.session_id(),
            Request::Session(request) => Some(request.session_id()),
        }
    }
}

/// Why a request was not parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The JSON is invalid: answered with a JSON-RPC error, without a receipt.
    #[error("{0}")]
    Syntax(String),
    #[error("{0}")]
    Refused(Refusal),
}

impl From<JsonError> for RequestError {
    fn from(invalid: JsonError) -> RequestError {
        match invalid {
            JsonError::Syntax(why) => RequestError::Syntax(why),
            JsonError::Shape(why) => RequestError::Refused(Refusal::new(Code::InvalidParams, why)),
        }
    }
}

/// Closed enums of snake-case words.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($variant),* }
    )* };
}

words! {
    MountMode { Ro, Rw }
    NetworkMode { None, Full }
    Home { Private, ReadOnly, Host }
    Isolation { Auto, Strict, None }
    OnFailure { Keep, Discard }
    Signal { Int, Term, Kill }
    OutputMode { Auto, RequireInline }
    Encoding { Utf8, Bytes }
    Capture { Auto, None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RECORDED_CONTENT_BYTES_MAX;

    fn refused(kind: &str, params: &str) -> String {
        match Request::parse(kind, params) {
            Err(RequestError::Refused(refusal)) => {
                assert_eq!(refusal.code, Code::InvalidParams);
                refusal.message
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_error_names_the_field_or_kind() {
        assert!(refused("host.fs.frobnicate", "{}").contains("host.fs.frobnicate"));
        assert!(refused("host.fs.read_file", r#"{"sesion_id":"x","path":"f"}"#).contains("sesion_id"));
        assert!(refused("host.fs.read_file", r#"{"session_id":"x"}"#).contains("path"));
        assert!(refused("host.fs.read_file", r#"{"session_id":"x","path":["f"]}"#).contains("path"));
        assert!(
            refused("host.fs.write_file", r#"{"session_id":"x","path":"f","content":{"text":"x"}}"#)
                .contains("content")
        );
        assert!(refused("host.session.signal", r#"{"session_id":"x","signal":"KILL;x"}"#).contains("signal"));
        assert!(refused("host.session.signal", r#"{"session_id":"x","signal":9}"#).contains("signal"));
    }

    #[test]
    fn large_content_is_recorded_by_hash() {
        let small = Content::InlineText { text: "hello".into() };
        assert_eq!(serde_json::to_string(&small).unwrap(), r#"{"inline_text":{"text":"hello"}}"#);
        let large = Content::InlineText { text: "x".repeat(RECORDED_CONTENT_BYTES_MAX + 1) };
        let recorded = serde_json::to_string(&large).unwrap();
        assert!(recorded.starts_with(r#"{"digest":"sha256:"#) && recorded.len() < 200, "{recorded}");
    }

    #[test]
    fn create_is_an_alias_of_create_new() {
        for word in ["create", "create_new"] {
            assert_eq!(
                serde_json::from_str::<WriteMode>(&format!("\"{word}\"")).unwrap(),
                WriteMode::CreateNew
            );
        }
    }
}
