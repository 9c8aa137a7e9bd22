//! Loads the content that a request carries or an operation needs in memory.

use aos_model::refusal::{Code, Refusal};
use aos_model::request::Content;
use aos_model::state::blob_key;
use rustix::io::Errno;

use crate::content::Source;
use crate::host::Host;
use crate::jail::Place;
use crate::session::OpenSession;

/// Reads a whole open file.
pub(crate) fn read_whole(place: &Place, file: &Source, size: u64) -> Result<Vec<u8>, Refusal> {
    whole(place, file, size, aos_model::limits::READ_BYTES_MAX)
}

/// Whether a session may use a blob: the operator stored it, or a receipt of this session named it.
pub(crate) fn may_name(host: &Host, session: &OpenSession, blob_ref: &str) -> Result<bool, Refusal> {
    for session in [None, Some(session.id.as_str())] {
        if host.journal.state(&blob_key(session, blob_ref))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The content of a request: inline, or from a blob that the session may use.
pub(crate) fn content(
    host: &Host,
    session: &OpenSession,
    content: &Content,
    bytes_max: u64,
) -> Result<Vec<u8>, Refusal> {
    match content {
        Content::InlineText { text } => Ok(text.clone().into_bytes()),
        Content::InlineBytes { bytes } => Ok(bytes.0.clone()),
        Content::BlobRef { blob_ref } => {
            let shown = aos_model::text::escape(blob_ref);
            let unknown = || {
                Refusal::new(
                    Code::BlobNotFound,
                    format!("{shown}: no such blob for this session; make it with `aos blob put`"),
                )
            };
            let known = may_name(host, session, blob_ref)?;
            let size = if known { host.blobs.size_of(blob_ref)? } else { None }.ok_or_else(unknown)?;
            if size > bytes_max {
                return Err(Refusal::new(
                    Code::LimitExceeded,
                    format!("{shown}: {size} bytes are over the limit of {bytes_max}; nothing was changed"),
                ));
            }
            host.blobs.read(blob_ref, bytes_max)?.ok_or_else(unknown)
        }
    }
}

/// Reads a whole file of at most `bytes_max` bytes.
pub(crate) fn whole(place: &Place, file: &Source, size: u64, bytes_max: u64) -> Result<Vec<u8>, Refusal> {
    let too_large = |size: u64| {
        Refusal::new(
            Code::FileTooLarge,
            format!("{}: {size} bytes exceed the {bytes_max} that can be processed in memory", place.shown),
        )
    };
    if size > bytes_max {
        return Err(too_large(size));
    }
    let mut bytes = Vec::new();
    let mut range = Range { place, file, at: 0, left: size, sized: true };
    range.piece(&mut bytes, size as usize)?;
    Ok(bytes)
}

/// A range of an open file.
#[derive(Debug)]
pub(crate) struct Range<'a> {
    pub(crate) place: &'a Place,
    pub(crate) file: &'a Source,
    pub(crate) at: u64,
    pub(crate) left: u64,
    /// Whether the reported size is reliable: files of /proc report 0.
    pub(crate) sized: bool,
}

impl Range<'_> {
    /// Reads at most `max` bytes; empty at the end of the range.
    pub(crate) fn piece(&mut self, buffer: &mut Vec<u8>, max: usize) -> Result<(), Refusal> {
        let want = (max as u64).min(self.left) as usize;
        buffer.resize(want, 0);
        let mut filled = 0;
        // `off_t` is signed: an offset above `i64::MAX` is past the end of every file.
        while filled < want && i64::try_from(self.at).is_ok() {
            match self.file.read_at(&mut buffer[filled..], self.at) {
                Ok(0) => break,
                Ok(n) => {
                    filled += n;
                    self.at += n as u64;
                    self.left -= n as u64;
                }
                Err(Errno::INTR) => {}
                Err(why) => return Err(self.place.refusal("read", why)),
            }
        }
        buffer.truncate(filled);
        Ok(())
    }
}
