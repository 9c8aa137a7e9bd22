//! Requests: one typed struct an effect, parsed strictly, and the form in which the journal keeps them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::limits::RECORDED_CONTENT_BYTES_MAX;
use crate::refusal::{Code, Refusal};
use crate::strict::{self, Invalid, UniqueMap, present, present_shallow, shallow};

/// One line an effect: the variant (and params struct), its kind on the wire.
macro_rules! effects {
    (sessions { $($outer:ident $outer_kind:literal,)* } inside { $($inner:ident $inner_kind:literal,)* }) => {
        /// Everything that can be asked, named as on the wire.
        #[derive(Debug, Clone)]
        pub enum Request { $($outer($outer),)* $($inner($inner),)* }

        impl Request {
            pub const KINDS: &'static [&'static str] = &[$($outer_kind,)* $($inner_kind,)*];

            pub fn parse(kind: &str, params: &str) -> Result<Request, Unparsed> {
                Ok(match kind {
                    $($outer_kind => Request::$outer(strict::parse(params)?),)*
                    $($inner_kind => Request::$inner(strict::parse(params)?),)*
                    unknown => return Err(Unparsed::Refused(Refusal::new(
                        Code::InvalidParams,
                        format!("kind: there is no effect `{}`; known are {}", crate::text::escape(unknown), Self::KINDS.join(", ")),
                    ))),
                })
            }

            pub fn kind(&self) -> &'static str {
                match self {
                    $(Request::$outer(_) => $outer_kind,)*
                    $(Request::$inner(_) => $inner_kind,)*
                }
            }

            /// The session it is about; `None` for those that make or list sessions.
            pub fn session_id(&self) -> Option<&str> {
                match self {
                    $(Request::$outer(params) => params.about(),)*
                    $(Request::$inner(params) => Some(&params.session_id),)*
                }
            }
        }

        impl Serialize for Request {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Request::$outer(params) => params.serialize(s),)*
                    $(Request::$inner(params) => params.serialize(s),)*
                }
            }
        }
    };
}

effects! {
    sessions {
        SessionOpen "host.session.open",
        SessionList "host.session.list",
        SessionSignal "host.session.signal",
    }
    inside {
        ReadFile "host.fs.read_file",
        WriteFile "host.fs.write_file",
        EditFile "host.fs.edit_file",
        ApplyPatch "host.fs.apply_patch",
        Stat "host.fs.stat",
        Exists "host.fs.exists",
        ListDir "host.fs.list_dir",
        Remove "host.fs.remove",
        Move "host.fs.move",
        MakeDir "host.fs.make_dir",
    }
}

/// Why a request became none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unparsed {
    /// The JSON itself is broken: the envelope's error, not a receipt.
    #[error("{0}")]
    Syntax(String),
    #[error("{0}")]
    Refused(Refusal),
}

impl From<Invalid> for Unparsed {
    fn from(invalid: Invalid) -> Unparsed {
        match invalid {
            Invalid::Syntax(why) => Unparsed::Syntax(why),
            Invalid::Shape(why) => Unparsed::Refused(Refusal::new(Code::InvalidParams, why)),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionOpen {
    pub target: TargetSpec,
    /// Kept raw: what is wrong inside it is `invalid_capability`, not `invalid_params`.
    #[serde(default, deserialize_with = "present_shallow", skip_serializing_if = "Option::is_none")]
    pub capability: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present_shallow", skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
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
    fn about(&self) -> Option<&str> {
        None
    }
}

/// What a session works on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TargetSpec {
    Local(LocalTarget),
    /// Not served yet: kept as it came, so that the refusal says `unsupported_target`, not `invalid_params`.
    Vfs(#[serde(deserialize_with = "shallow")] Box<RawValue>),
    Staged(#[serde(deserialize_with = "shallow")] Box<RawValue>),
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
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub host_path: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub mount_path: Option<String>,
    pub mode: MountMode,
}

/// Small vocabularies: closed enums spelled in snake case.
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
}

/// How `write_file` treats what is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    Overwrite,
    #[serde(alias = "create")]
    CreateNew,
    Append,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionList {}

impl SessionList {
    fn about(&self) -> Option<&str> {
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
    fn about(&self) -> Option<&str> {
        Some(&self.session_id)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    pub session_id: String,
    pub path: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub offset_bytes: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub with_hash: Option<bool>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub output_mode: Option<OutputMode>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    pub session_id: String,
    pub path: String,
    pub content: Content,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub create_parents: Option<bool>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub mode: Option<WriteMode>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub executable: Option<bool>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub expected_hash: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub with_diff: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditFile {
    pub session_id: String,
    pub path: String,
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none",
        serialize_with = "record_some_text"
    )]
    pub old_string: Option<String>,
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none",
        serialize_with = "record_some_text"
    )]
    pub new_string: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub replace_all: Option<bool>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub edits: Option<Vec<EditItem>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub expected_hash: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub with_diff: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditItem {
    #[serde(serialize_with = "record_text")]
    pub old_string: String,
    #[serde(serialize_with = "record_text")]
    pub new_string: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub replace_all: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyPatch {
    pub session_id: String,
    pub patch: Content,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub patch_format: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub with_diff: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stat {
    pub session_id: String,
    pub path: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub no_follow: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exists {
    pub session_id: String,
    pub path: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListDir {
    pub session_id: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_results: Option<u64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub output_mode: Option<OutputMode>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    pub session_id: String,
    pub path: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub recursive: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    pub session_id: String,
    pub from: String,
    pub to: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub overwrite: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MakeDir {
    pub session_id: String,
    pub path: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub parents: Option<bool>,
}

/// Bytes on their way in: spelled out, or named by a blob.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    InlineText { text: String },
    InlineBytes { bytes: Base64 },
    BlobRef { blob_ref: String },
}

/// The journal keeps small content as it came and large content by digest.
impl Serialize for Content {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "snake_case")]
        enum Kept<'a> {
            InlineText { text: &'a str },
            InlineBytes { bytes: &'a Base64 },
            BlobRef { blob_ref: &'a str },
        }
        match self {
            Content::InlineText { text } if text.len() > RECORDED_CONTENT_BYTES_MAX => {
                digest(text.as_bytes(), s)
            }
            Content::InlineBytes { bytes } if bytes.0.len() > RECORDED_CONTENT_BYTES_MAX => {
                digest(&bytes.0, s)
            }
            Content::InlineText { text } => Kept::InlineText { text }.serialize(s),
            Content::InlineBytes { bytes } => Kept::InlineBytes { bytes }.serialize(s),
            Content::BlobRef { blob_ref } => Kept::BlobRef { blob_ref }.serialize(s),
        }
    }
}

fn record_text<S: Serializer>(text: &str, s: S) -> Result<S::Ok, S::Error> {
    if text.len() > RECORDED_CONTENT_BYTES_MAX { digest(text.as_bytes(), s) } else { s.serialize_str(text) }
}

fn record_some_text<S: Serializer>(text: &Option<String>, s: S) -> Result<S::Ok, S::Error> {
    record_text(text.as_deref().unwrap_or_default(), s)
}

fn digest<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
    let mut map = s.serialize_map(Some(2))?;
    map.serialize_entry("digest", &content_hash(bytes))?;
    map.serialize_entry("size_bytes", &bytes.len())?;
    map.end()
}

/// `sha256:<64 hex>`, the name that content has everywhere.
pub fn content_hash(bytes: &[u8]) -> String {
    hash_name(&Sha256::digest(bytes).into())
}

pub fn hash_name(hash: &[u8; 32]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut name = String::with_capacity(71);
    name.push_str("sha256:");
    for byte in hash {
        name.push(DIGITS[usize::from(byte >> 4)] as char);
        name.push(DIGITS[usize::from(byte & 15)] as char);
    }
    name
}

/// Bytes that JSON carries in base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base64(pub Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Base64, D::Error> {
        let text = String::deserialize(d)?;
        BASE64.decode(text).map(Base64).map_err(|why| serde::de::Error::custom(format!("not base64: {why}")))
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&BASE64.encode(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: &str, params: &str) -> String {
        match Request::parse(kind, params) {
            Err(Unparsed::Refused(refusal)) => {
                assert_eq!(refusal.code, Code::InvalidParams);
                refusal.message
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
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
    fn large_content_is_recorded_by_digest() {
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
