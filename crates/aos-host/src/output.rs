//! The form of returned content: inline when small, else a blob; the same form for the same input.

use aos_model::capability::Capability;
use aos_model::limits::PREVIEW_BYTES_MAX;
use aos_model::receipt::Payload;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{Base64, OutputMode};
use aos_store::Blobs;

/// How content may be returned, from the request, the capability and the policy together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) inline_bytes_max: u64,
    pub(crate) require_inline: bool,
    pub(crate) blob_only: bool,
}

impl Form {
    pub(crate) fn new(
        capability: &Capability,
        mode: Option<OutputMode>,
        blob_only: bool,
    ) -> Result<Form, Refusal> {
        let require_inline = mode == Some(OutputMode::RequireInline);
        if blob_only && require_inline {
            return Err(Refusal::new(
                Code::PolicyDenied,
                "a policy rule returns this content as a blob only; leave `output_mode` at `auto`",
            ));
        }
        Ok(Form { inline_bytes_max: capability.inline_bytes_max(), require_inline, blob_only })
    }

    pub(crate) fn is_inline(&self, size: u64) -> bool {
        !self.blob_only && size <= self.inline_bytes_max
    }

    pub(crate) fn refuse_large(&self, size: u64, shown: &str) -> Result<(), Refusal> {
        if self.require_inline && size > self.inline_bytes_max {
            return Err(Refusal::new(
                Code::InlineRequiredTooLarge,
                format!(
                    "{shown}: {size} bytes are over the inline ceiling of {}; read less with `max_bytes`, or use `output_mode` `auto`",
                    self.inline_bytes_max
                ),
            ));
        }
        Ok(())
    }

    pub(crate) fn preview(&self, head: &[u8]) -> Option<Base64> {
        (!self.blob_only).then(|| Base64(head[..head.len().min(PREVIEW_BYTES_MAX)].to_vec()))
    }

    /// Returns text.
    pub(crate) fn text(&self, blobs: &Blobs, text: String, shown: &str) -> Result<Payload, Refusal> {
        let size = text.len() as u64;
        self.refuse_large(size, shown)?;
        if self.is_inline(size) {
            return Ok(Payload::InlineText { text });
        }
        self.blob(blobs, text.as_bytes())
    }

    /// Returns text in pieces. They are concatenated only when they are returned inline.
    pub(crate) fn pieces(&self, blobs: &Blobs, pieces: &[&[u8]], shown: &str) -> Result<Payload, Refusal> {
        let size = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.refuse_large(size, shown)?;
        if self.is_inline(size) {
            let text = String::from_utf8(pieces.concat()).expect("BUG: the pieces are text");
            return Ok(Payload::InlineText { text });
        }
        let mut head = Vec::new();
        for piece in pieces {
            if head.len() >= PREVIEW_BYTES_MAX {
                break;
            }
            head.extend_from_slice(&piece[..piece.len().min(PREVIEW_BYTES_MAX - head.len())]);
        }
        let blob_ref = blobs.put_pieces(pieces)?;
        Ok(Payload::Blob { blob_ref, size_bytes: size, preview_bytes: self.preview(&head) })
    }

    pub(crate) fn blob(&self, blobs: &Blobs, bytes: &[u8]) -> Result<Payload, Refusal> {
        Ok(Payload::Blob {
            blob_ref: blobs.put(bytes)?,
            size_bytes: bytes.len() as u64,
            preview_bytes: self.preview(bytes),
        })
    }
}
