//! Reads pages of lines with an effect that reads ranges of bytes.

use std::fmt::Write as _;

use serde_json::json;

use crate::context::{Receipt, ToolContext, plain_text};
use crate::truncate::LINE_BYTES_MAX;
use crate::{Failure, Outcome};

/// The most lines of one page.
pub(crate) const PAGE_LINES_MAX: u64 = 2_000;
/// The bytes of one effect: as many as a receipt usually carries inline.
const CHUNK_BYTES: u64 = aos_model::limits::INLINE_BYTES_DEFAULT;
/// How far a page is searched from the last known line start. A front end caches where pages end.
const SEEK_BYTES_MAX: u64 = 64 << 20;

/// Consecutive lines of a file.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Lines before the page; if the offset was past the end, the number of lines of the file.
    pub(crate) start: u64,
    /// The number of lines of the page.
    pub(crate) lines: u64,
    /// The lines, each as `   1 | text`.
    pub(crate) numbered: String,
    /// Whether the file has more lines.
    pub(crate) more: bool,
    pub(crate) last_receipt: Option<Receipt>,
}

/// Which lines to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRequest {
    pub(crate) offset: u64,
    pub(crate) limit: u64,
    pub(crate) budget_bytes: usize,
}

/// The blob of a path `blob:sha256:…`, by which a truncated result is read in full.
pub(crate) fn blob_named(path: &str) -> Option<&str> {
    let name = path.strip_prefix("blob:")?;
    let digits = name.strip_prefix("sha256:")?;
    (digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit())).then_some(name)
}

impl Page {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.lines
    }

    pub(crate) fn outcome(&self, text: String) -> Outcome {
        match &self.last_receipt {
            Some(receipt) => receipt.outcome(text),
            None => Outcome { text, ..Outcome::default() },
        }
    }
}

/// Collects the lines of a page from consecutive chunks.
struct PageReader {
    request: PageRequest,
    page: Page,
    /// Complete lines so far.
    line: u64,
    /// The start of a line whose end is not read yet, truncated to the part that would be shown.
    partial: String,
    partial_bytes: u64,
    has_partial: bool,
    /// The offset of the line after the page, once the page is full.
    full_at: Option<u64>,
}

impl PageReader {
    /// Adds the chunk at byte `at`. Ignores the rest once the page is full.
    fn push(&mut self, chunk: &str, at: u64) {
        let mut rest = chunk;
        let mut here = at;
        while !rest.is_empty() {
            if self.is_full() {
                self.full_at.get_or_insert(here - self.partial_bytes);
                return;
            }
            let end = rest.find('\n');
            let part = &rest[..end.unwrap_or(rest.len())];
            self.push_partial(part);
            match end {
                Some(end) => {
                    here += end as u64 + 1;
                    rest = &rest[end + 1..];
                    self.end_line();
                }
                None => return,
            }
        }
    }

    fn push_partial(&mut self, part: &str) {
        self.has_partial = true;
        self.partial_bytes += part.len() as u64;
        if self.line >= self.request.offset {
            // A few bytes more than are shown, for a whole character.
            let room = (LINE_BYTES_MAX + 4).saturating_sub(self.partial.len());
            self.partial.push_str(&part[..part.floor_char_boundary(room.min(part.len()))]);
        }
    }

    fn end_line(&mut self) {
        self.line += 1;
        if self.line > self.request.offset {
            let whole = self.partial.strip_suffix('\r').unwrap_or(&self.partial);
            let shown = &whole[..whole.floor_char_boundary(LINE_BYTES_MAX.min(whole.len()))];
            let out = &mut self.page.numbered;
            // Writing into a string cannot fail.
            let _ = write!(out, "{:>4} | {shown}", self.line);
            if self.partial_bytes > LINE_BYTES_MAX as u64 {
                let _ =
                    write!(out, "… [{} bytes more in this line]", self.partial_bytes - shown.len() as u64);
            }
            out.push('\n');
            self.page.lines += 1;
            self.partial.clear();
        }
        (self.partial_bytes, self.has_partial) = (0, false);
    }

    fn is_full(&self) -> bool {
        let Page { lines, numbered, .. } = &self.page;
        *lines >= self.request.limit || (*lines > 0 && numbered.len() >= self.request.budget_bytes)
    }
}

/// Reads a page of a file, or of a blob if the path names one.
pub(crate) fn read(context: &mut ToolContext<'_>, path: &str, request: PageRequest) -> Result<Page, Failure> {
    let known = context.line_offsets.before(&key(context, path), request.offset);
    match known {
        // If the file has changed since, the offset is not valid any more.
        Some((version, start)) if start.1 > 0 => {
            match read_from(context, path, request, start, Some(version))? {
                Some(page) => Ok(page),
                None => read_from_start(context, path, request),
            }
        }
        _ => read_from_start(context, path, request),
    }
}

/// Reads from the start of the file. A file that changes meanwhile is read again, a few times.
fn read_from_start(context: &mut ToolContext<'_>, path: &str, request: PageRequest) -> Result<Page, Failure> {
    for _ in 0..3 {
        if let Some(page) = read_from(context, path, request, (0, 0), None)? {
            return Ok(page);
        }
    }
    let why = format!("{path} changed while it was read; try again later");
    Err(Failure::new("changed_since", why))
}

fn key(context: &ToolContext<'_>, path: &str) -> String {
    format!("{}\n{path}", context.session)
}

/// `None` if the file changed since `version`, or while it was read.
fn read_from(
    context: &mut ToolContext<'_>,
    path: &str,
    request: PageRequest,
    (line, mut at): (u64, u64),
    mut version: Option<(u64, i64)>,
) -> Result<Option<Page>, Failure> {
    let mut reader = PageReader {
        request,
        page: Page::default(),
        line,
        partial: String::new(),
        partial_bytes: 0,
        has_partial: false,
        full_at: None,
    };
    let started_at = at;
    let last = loop {
        let receipt = read_chunk(context, path, at)?;
        let found = (receipt.number("size_bytes"), receipt.0["mtime_ns"].as_i64().unwrap_or(0));
        if *version.get_or_insert(found) != found {
            return Ok(None);
        }
        reader.push(&plain_text(&receipt.0["content"]), at);
        let next = receipt.0["next_offset_bytes"].as_u64().filter(|next| *next > at);
        match next {
            Some(_) if reader.full_at.is_some() || reader.is_full() => break receipt,
            None => break receipt,
            Some(next) if next - started_at > SEEK_BYTES_MAX => return Err(too_far(path, &reader)),
            Some(next) => at = next,
        }
    };
    let has_more = last.0["next_offset_bytes"].is_u64();
    if reader.has_partial && !has_more && !reader.is_full() {
        reader.end_line();
    }
    let full_at =
        reader.full_at.or_else(|| last.0["next_offset_bytes"].as_u64().filter(|_| !reader.has_partial));
    let mut page = reader.page;
    page.more = reader.full_at.is_some() || has_more;
    page.start = reader.line - page.lines;
    if let (Some(version), Some(at), true) = (version, full_at, page.more) {
        context.line_offsets.insert(key(context, path), version, (page.end(), at));
    }
    page.last_receipt = Some(last);
    Ok(Some(page))
}

fn too_far(path: &str, reader: &PageReader) -> Failure {
    let why = format!(
        "{path}: line {} is more than {} MiB into the file, too far to count lines; use grep, or shell with `sed -n`",
        reader.request.offset + 1,
        SEEK_BYTES_MAX >> 20
    );
    Failure::new("file_too_large", why)
}

/// Reads one chunk. If the receipt has it as a blob, smaller chunks are tried, unless policy forbids inline content.
fn read_chunk(context: &mut ToolContext<'_>, path: &str, at: u64) -> Result<Receipt, Failure> {
    if let Some(blob) = blob_named(path) {
        let params = json!({ "session_id": context.session, "blob_ref": blob, "offset_bytes": at });
        return context.query("blob.read", &params);
    }
    let mut bytes = CHUNK_BYTES;
    loop {
        let mut params = json!({ "session_id": context.session, "path": path, "max_bytes": bytes });
        if at > 0 {
            params["offset_bytes"] = json!(at);
        }
        let receipt = context.effect("host.fs.read_file", &params)?;
        let Some(blob) = receipt.0.pointer("/content/blob") else { return Ok(receipt) };
        if blob.get("preview_bytes").is_none() || bytes <= 64 {
            let name = blob["blob_ref"].as_str().unwrap_or_default();
            let why = format!("{path}: policy does not allow to show its content; blob {name}");
            return Err(Failure::new("policy_denied", why));
        }
        bytes /= 4;
    }
}

/// The whole text of a file.
pub(crate) fn read_all(context: &mut ToolContext<'_>, path: &str, bytes_max: u64) -> Result<String, Failure> {
    let (mut text, mut at) = (String::new(), 0);
    loop {
        let receipt = read_chunk(context, path, at)?;
        if receipt.number("size_bytes") > bytes_max {
            return Err(Failure::new("file_too_large", format!("{path} has more than {bytes_max} bytes")));
        }
        text.push_str(&plain_text(&receipt.0["content"]));
        match receipt.0["next_offset_bytes"].as_u64() {
            Some(next) if next > at => at = next,
            _ => return Ok(text),
        }
    }
}
