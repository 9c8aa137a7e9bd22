//! `host.fs.read_file`: returns a range of a regular file, inline or as a blob.

use aos_model::capability::smaller_limit;
use aos_model::limits::{PREVIEW_BYTES_MAX, READ_BYTES_MAX};
use aos_model::policy::Op;
use aos_model::receipt::{Body, Payload, ReadBody};
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{Base64, Encoding, ReadFile, hash_name};
use sha2::{Digest as _, Sha256};

use super::{Operation, PlanInput, Proposal};
use crate::content::Source;
use crate::jail::{Last, Place};
use crate::output::Form;
use crate::payload::Range;
use crate::target::Target;

const PIECE_BYTES: usize = 256 << 10;

impl Operation for ReadFile {
    fn targets(&self) -> Vec<Target> {
        vec![Target::new(&self.path, Op::Read, Last::Follow)]
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let (place, _) = input.found[0].existing()?;
        let (file, meta) = place.open_file().map_err(with_read_status)?;
        let offset = self.offset_bytes.unwrap_or(0);
        let limit = smaller_limit(self.max_bytes, input.session.capability.max_read_bytes)
            .unwrap_or(u64::MAX)
            .min(READ_BYTES_MAX);
        let form = input.form(self.output_mode)?;
        // Files of /proc report size 0, so their size is known only after reading.
        let expected = if meta.size == 0 { None } else { Some(meta.size.saturating_sub(offset).min(limit)) };
        form.refuse_large(expected.unwrap_or(0), &place.shown)?;
        let mut reader = Range { place, file: &file, at: offset, left: limit, sized: meta.size > 0 };
        let text = self.encoding != Some(Encoding::Bytes);
        let taken = reader.take(&input, &form, expected, text)?;
        let more = reader.more(meta.size)?;
        let hash =
            if self.with_hash == Some(true) { Some(whole_hash(place, &file, meta.size)?) } else { None };
        let end = offset + taken.bytes;
        let body = ReadBody {
            content: taken.payload,
            truncated: more || taken.held_back,
            next_offset_bytes: (more || taken.held_back).then_some(end),
            size_bytes: meta.size,
            mtime_ns: meta.mtime_ns,
            hash,
        };
        input.answer(Body::Read(Box::new(body)))
    }
}

/// Reading a folder has a status of its own.
fn with_read_status(refusal: Refusal) -> Refusal {
    match refusal.code {
        Code::IsDirectory => Refusal {
            code: Code::ReadIsDirectory,
            message: format!("{} (or list it)", refusal.message),
            ..refusal
        },
        _ => refusal,
    }
}

struct ReadContent {
    payload: Payload,
    bytes: u64,
    /// The range ended inside a character; its first bytes were not returned.
    held_back: bool,
}

impl Range<'_> {
    fn take(
        &mut self,
        input: &PlanInput<'_>,
        form: &Form,
        expected: Option<u64>,
        text: bool,
    ) -> Result<ReadContent, Refusal> {
        let inline_max = form.inline_bytes_max.min(READ_BYTES_MAX) as usize;
        let first_max = match expected {
            Some(expected) if form.is_inline(expected) => expected as usize,
            Some(_) => PIECE_BYTES,
            None => inline_max.saturating_add(1).min(PIECE_BYTES),
        };
        let mut bytes = Vec::new();
        self.piece(&mut bytes, first_max)?;
        let whole = bytes.len() < first_max || expected == Some(bytes.len() as u64);
        if whole && form.is_inline(bytes.len() as u64) {
            return self.inline(bytes, text);
        }
        form.refuse_large(bytes.len() as u64 + u64::from(!whole), &self.place.shown)?;
        self.stream(input, form, bytes, text)
    }

    fn inline(&self, mut bytes: Vec<u8>, text: bool) -> Result<ReadContent, Refusal> {
        let read = bytes.len();
        if !text {
            return Ok(ReadContent {
                bytes: read as u64,
                payload: Payload::InlineBytes { bytes: Base64(bytes) },
                held_back: false,
            });
        }
        let mut check = Utf8::default();
        check.piece(&bytes).and_then(|()| check.end(self.left == 0)).map_err(|()| self.not_text())?;
        bytes.truncate(read - check.pending);
        let text = String::from_utf8(bytes).map_err(|_| self.not_text())?;
        Ok(ReadContent {
            bytes: text.len() as u64,
            payload: Payload::InlineText { text },
            held_back: check.pending > 0,
        })
    }

    /// Copies large content to a blob in pieces, so that memory stays bounded.
    fn stream(
        &mut self,
        input: &PlanInput<'_>,
        form: &Form,
        mut bytes: Vec<u8>,
        text: bool,
    ) -> Result<ReadContent, Refusal> {
        let mut blob = input.host.blobs.writer()?;
        let head = bytes[..bytes.len().min(PREVIEW_BYTES_MAX)].to_vec();
        let (mut check, mut held, mut size) = (Utf8::default(), Vec::new(), 0);
        while !bytes.is_empty() {
            if text {
                check.piece(&bytes).map_err(|()| self.not_text())?;
                // The start of a character is held back until its rest is read: the blob must not end inside one.
                held.append(&mut bytes);
                let whole = held.len() - check.pending;
                blob.write(&held[..whole])?;
                held.drain(..whole);
                size += whole as u64;
            } else {
                blob.write(&bytes)?;
                size += bytes.len() as u64;
            }
            self.piece(&mut bytes, PIECE_BYTES)?;
        }
        if text {
            check.end(self.left == 0).map_err(|()| self.not_text())?;
        }
        let payload =
            Payload::Blob { blob_ref: blob.finish()?, size_bytes: size, preview_bytes: form.preview(&head) };
        Ok(ReadContent { payload, bytes: size, held_back: !held.is_empty() })
    }

    /// Whether the file continues after the range.
    fn more(&self, size: u64) -> Result<bool, Refusal> {
        if self.left > 0 {
            return Ok(false);
        }
        if self.sized {
            return Ok(self.at < size);
        }
        let mut one = [0];
        self.file.read_at(&mut one, self.at).map(|n| n > 0).map_err(|why| self.place.refusal("read", why))
    }

    fn not_text(&self) -> Refusal {
        Refusal::new(
            Code::InvalidUtf8,
            format!(
                "{}: the requested bytes are not UTF-8 text; read with `encoding` `bytes`, or start at a character's first byte",
                self.place.shown
            ),
        )
    }
}

/// Checks UTF-8 in pieces: a character may span two of them.
#[derive(Debug, Default)]
struct Utf8 {
    carry: Vec<u8>,
    /// Trailing bytes that begin a character without completing it.
    pending: usize,
}

impl Utf8 {
    fn piece(&mut self, bytes: &[u8]) -> Result<(), ()> {
        let joined;
        let bytes = if self.carry.is_empty() {
            bytes
        } else {
            joined = [self.carry.as_slice(), bytes].concat();
            &joined
        };
        let valid = match std::str::from_utf8(bytes) {
            Ok(_) => bytes.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Err(()),
        };
        self.pending = bytes.len() - valid;
        self.carry = bytes[valid..].to_vec();
        Ok(())
    }

    /// At the end of the file the last character must be complete; where the range was cut it need not be.
    fn end(&self, cut: bool) -> Result<(), ()> {
        if self.pending == 0 || cut { Ok(()) } else { Err(()) }
    }
}

/// The hash of the whole file.
pub(super) fn whole_hash(place: &Place, file: &Source, size: u64) -> Result<String, Refusal> {
    if size > READ_BYTES_MAX {
        return Err(Refusal::new(
            Code::FileTooLarge,
            format!(
                "{}: {size} bytes are too many to hash in one effect; leave `with_hash` out",
                place.shown
            ),
        ));
    }
    let mut hash = Sha256::new();
    let mut range = Range { place, file, at: 0, left: READ_BYTES_MAX, sized: size > 0 };
    let mut buffer = Vec::new();
    loop {
        range.piece(&mut buffer, PIECE_BYTES)?;
        if buffer.is_empty() {
            return Ok(hash_name(&hash.finalize().into()));
        }
        hash.update(&buffer);
    }
}
