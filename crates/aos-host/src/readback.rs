//! `blob.read`: returns a range of a blob that a receipt of the session named. Does not open user files.

use aos_model::limits::INLINE_BYTES_DEFAULT;
use aos_model::policy::OutputRule;
use aos_model::receipt::Payload;
use aos_model::refusal::{Code, Refusal};
use aos_model::strict::present;
use aos_store::own_rights;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::lifecycle;
use crate::payload::may_name;

/// The params of `blob.read`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadBlob {
    pub session_id: String,
    pub blob_ref: String,
    #[serde(default, deserialize_with = "present")]
    pub offset_bytes: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    pub max_bytes: Option<u64>,
}

/// A range of a blob. The end of a range never splits a UTF-8 character.
#[derive(Debug, Serialize)]
pub struct BlobRange {
    pub content: Payload,
    pub size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset_bytes: Option<u64>,
}

impl Host {
    pub fn read_blob(&self, asked: &ReadBlob) -> Result<BlobRange, Refusal> {
        let _own = own_rights();
        let session = lifecycle::find_session(self, &asked.session_id)?;
        let shown = aos_model::text::escape(&asked.blob_ref.chars().take(100).collect::<String>());
        let unknown =
            || Refusal::new(Code::BlobNotFound, format!("{shown}: no receipt of this session names it"));
        if session.policy.rules().iter().any(|rule| rule.output == Some(OutputRule::BlobOnly)) {
            return Err(Refusal::new(
                Code::PolicyDenied,
                format!(
                    "{shown}: a policy rule of this session returns content as blobs only (`blob_only`); the operator reads it with `aos blob get`"
                ),
            ));
        }
        if !may_name(self, &session, &asked.blob_ref)? {
            return Err(unknown());
        }
        let size_bytes = self.blobs.size_of(&asked.blob_ref)?.ok_or_else(unknown)?;
        let file = self.blobs.open_blob(&asked.blob_ref)?.ok_or_else(unknown)?;
        let offset = asked.offset_bytes.unwrap_or(0).min(size_bytes);
        let most = session.capability.inline_bytes_max().min(INLINE_BYTES_DEFAULT);
        let wanted = asked.max_bytes.unwrap_or(most).min(most).min(size_bytes - offset);
        let mut bytes = vec![0; wanted as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::io::pread(&file, &mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(why) => {
                    return Err(Refusal::new(Code::IoError, format!("{shown}: cannot be read: {why}")));
                }
            }
        }
        bytes.truncate(filled);
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
            && error.valid_up_to() > 0
        {
            bytes.truncate(error.valid_up_to());
        }
        let next = offset + bytes.len() as u64;
        Ok(BlobRange {
            content: Payload::from_bytes(bytes),
            size_bytes,
            next_offset_bytes: (next < size_bytes).then_some(next),
        })
    }
}
