//! Content in a request, and the form in which the journal stores it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::limits::RECORDED_CONTENT_BYTES_MAX;

/// Content of a request: inline, or a reference to a blob.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    InlineText { text: String },
    InlineBytes { bytes: Base64 },
    BlobRef { blob_ref: String },
}

/// The form in the journal: small content as it is, large content as its hash and size.
impl Serialize for Content {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "snake_case")]
        enum Recorded<'a> {
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
            Content::InlineText { text } => Recorded::InlineText { text }.serialize(s),
            Content::InlineBytes { bytes } => Recorded::InlineBytes { bytes }.serialize(s),
            Content::BlobRef { blob_ref } => Recorded::BlobRef { blob_ref }.serialize(s),
        }
    }
}

pub(super) fn record_text<S: Serializer>(text: &str, s: S) -> Result<S::Ok, S::Error> {
    if text.len() > RECORDED_CONTENT_BYTES_MAX { digest(text.as_bytes(), s) } else { s.serialize_str(text) }
}

pub(super) fn record_some_text<S: Serializer>(text: &Option<String>, s: S) -> Result<S::Ok, S::Error> {
    record_text(text.as_deref().unwrap_or_default(), s)
}

fn digest<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
    let mut map = s.serialize_map(Some(2))?;
    map.serialize_entry("digest", &content_hash(bytes))?;
    map.serialize_entry("size_bytes", &bytes.len())?;
    map.end()
}

/// `sha256:<64 hex>`, the name of content everywhere.
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

/// Bytes as base64 in JSON.
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
