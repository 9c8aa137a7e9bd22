//! Reading a file by lines, over an effect that reads by bytes: piece by piece, no more than a page needs.

use std::fmt::Write as _;

use serde_json::json;

use crate::context::{Receipt, ToolContext, plain_text};
use crate::cut::LINE_BYTES_MAX;
use crate::{Failure, Outcome};

/// Lines of one page, whatever is asked for.
pub(crate) const PAGE_LINES_MAX: u64 = 2_000;
/// What is read in one effect: as much as a receipt usually carries inline.
const PIECE_BYTES: u64 = aos_model::limits::INLINE_BYTES_DEFAULT;
/// How far a page is sought before it is given up. A door that lives on remembers where pages end.
const SEEK_BYTES_MAX: u64 = 64 << 20;

/// Consecutive lines of a file.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Lines before the first one here; the number of lines of the file where the offset was behind its end.
    pub(crate) start: u64,
    /// How many there are.
    pub(crate) lines: u64,
    /// `   1 | text`, a line each.
    pub(crate) numbered: String,
    /// Whether the file goes on.
    pub(crate) more: bool,
    pub(crate) last: Option<Receipt>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) offset: u64,
    pub(crate) limit: u64,
    pub(crate) budget_bytes: usize,
}

/// The name in `blob:sha256:…`, by which a cut result is read on.
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
        match &self.last {
            Some(receipt) => receipt.outcome(text),
            None => Outcome { text, ..Outcome::default() },
        }
    }
}

/// A place in the file while it is read through.
struct Reader {
    wanted: Wanted,
    page: Page,
    /// Lines that ended before this place.
    line: u64,
    /// The start of a line whose end was not seen yet, cut to what would be shown.
    open: String,
    open_bytes: u64,
    is_open: bool,
    /// Where the page's next line would begin, once the page is full.
    full_at: Option<u64>,
}

impl Reader {
    /// Takes a piece that stands at byte `at`. Stops taking once the page is full.
    fn take(&mut self, piece: &str, at: u64) {
        let mut rest = piece;
        let mut here = at;
        while !rest.is_empty() {
            if self.is_full() {
                self.full_at.get_or_insert(here - self.open_bytes);
                return;
            }
            let end = rest.find('\n');
            let part = &rest[..end.unwrap_or(rest.len())];
            self.grow(part);
            match end {
                Some(end) => {
                    here += end as u64 + 1;
                    rest = &rest[end + 1..];
                    self.close();
                }
                None => return,
            }
        }
    }

    fn grow(&mut self, part: &str) {
        self.is_open = true;
        self.open_bytes += part.len() as u64;
        if self.line >= self.wanted.offset {
            // One byte more than is shown tells that the line was cut.
            let room = (LINE_BYTES_MAX + 4).saturating_sub(self.open.len());
            self.open.push_str(&part[..part.floor_char_boundary(room.min(part.len()))]);
        }
    }

    fn close(&mut self) {
        self.line += 1;
        if self.line > self.wanted.offset {
            let whole = self.open.strip_suffix('\r').unwrap_or(&self.open);
            let shown = &whole[..whole.floor_char_boundary(LINE_BYTES_MAX.min(whole.len()))];
            let out = &mut self.page.numbered;
            // Writing into a string cannot fail.
            let _ = write!(out, "{:>4} | {shown}", self.line);
            if self.open_bytes > LINE_BYTES_MAX as u64 {
                let _ = write!(out, "… [{} bytes more in this line]", self.open_bytes - shown.len() as u64);
            }
            out.push('\n');
            self.page.lines += 1;
            self.open.clear();
        }
        (self.open_bytes, self.is_open) = (0, false);
    }

    fn is_full(&self) -> bool {
        let Page { lines, numbered, .. } = &self.page;
        *lines >= self.wanted.limit || (*lines > 0 && numbered.len() >= self.wanted.budget_bytes)
    }
}

/// Reads a page of a file, or of a blob that is named as one.
pub(crate) fn read(context: &mut ToolContext<'_>, path: &str, wanted: Wanted) -> Result<Page, Failure> {
    let known = context.memory.before(&key(context, path), wanted.offset);
    match known {
        // The file may have changed since; then the place means nothing and the reading starts over.
        Some((version, mark)) if mark.1 > 0 => match read_from(context, path, wanted, mark, Some(version))? {
            Some(page) => Ok(page),
            None => start_over(context, path, wanted),
        },
        _ => start_over(context, path, wanted),
    }
}

/// A file that somebody writes to while it is read is read again, a few times; then as it comes.
fn start_over(context: &mut ToolContext<'_>, path: &str, wanted: Wanted) -> Result<Page, Failure> {
    for _ in 0..3 {
        if let Some(page) = read_from(context, path, wanted, (0, 0), None)? {
            return Ok(page);
        }
    }
    let why = format!("{path} changes while it is read; try again when it is at rest");
    Err(Failure::new("changed_since", why))
}

fn key(context: &ToolContext<'_>, path: &str) -> String {
    format!("{}\n{path}", context.session)
}

/// `None` when the file is another than it was at the start.
fn read_from(
    context: &mut ToolContext<'_>,
    path: &str,
    wanted: Wanted,
    (line, mut at): (u64, u64),
    mut version: Option<(u64, i64)>,
) -> Result<Option<Page>, Failure> {
    let mut reader = Reader {
        wanted,
        page: Page::default(),
        line,
        open: String::new(),
        open_bytes: 0,
        is_open: false,
        full_at: None,
    };
    let began = at;
    let last = loop {
        let receipt = piece(context, path, at)?;
        let seen = (receipt.number("size_bytes"), receipt.0["mtime_ns"].as_i64().unwrap_or(0));
        if *version.get_or_insert(seen) != seen {
            return Ok(None);
        }
        reader.take(&plain_text(&receipt.0["content"]), at);
        let next = receipt.0["next_offset_bytes"].as_u64().filter(|next| *next > at);
        match next {
            Some(_) if reader.full_at.is_some() || reader.is_full() => break receipt,
            None => break receipt,
            Some(next) if next - began > SEEK_BYTES_MAX => return Err(too_far(path, &reader)),
            Some(next) => at = next,
        }
    };
    let goes_on = last.0["next_offset_bytes"].is_u64();
    if reader.is_open && !goes_on && !reader.is_full() {
        reader.close();
    }
    let full_at = reader.full_at.or_else(|| last.0["next_offset_bytes"].as_u64().filter(|_| !reader.is_open));
    let mut page = reader.page;
    page.more = reader.full_at.is_some() || goes_on;
    page.start = reader.line - page.lines;
    if let (Some(version), Some(at), true) = (version, full_at, page.more) {
        context.memory.remember(key(context, path), version, (page.end(), at));
    }
    page.last = Some(last);
    Ok(Some(page))
}

fn too_far(path: &str, reader: &Reader) -> Failure {
    let why = format!(
        "{path}: line {} is more than {} MiB into the file, too far to count lines; use grep, or shell with `sed -n`",
        reader.wanted.offset + 1,
        SEEK_BYTES_MAX >> 20
    );
    Failure::new("file_too_large", why)
}

/// One piece. Where the session carries less inline, or only by name, the pieces get smaller or the reading ends.
fn piece(context: &mut ToolContext<'_>, path: &str, at: u64) -> Result<Receipt, Failure> {
    if let Some(blob) = blob_named(path) {
        let params = json!({ "session_id": context.session, "blob_ref": blob, "offset_bytes": at });
        return context.question("blob.read", &params);
    }
    let mut bytes = PIECE_BYTES;
    loop {
        let mut params = json!({ "session_id": context.session, "path": path, "max_bytes": bytes });
        if at > 0 {
            params["offset_bytes"] = json!(at);
        }
        let receipt = context.effect("host.fs.read_file", &params)?;
        let Some(blob) = receipt.0.pointer("/content/blob") else { return Ok(receipt) };
        if blob.get("preview_bytes").is_none() || bytes <= 64 {
            let name = blob["blob_ref"].as_str().unwrap_or_default();
            let why = format!("{path}: policy gives its content only by name: {name}");
            return Err(Failure::new("policy_denied", why));
        }
        bytes /= 4;
    }
}

/// The whole text of a file, for what must be compared to the letter.
pub(crate) fn whole(context: &mut ToolContext<'_>, path: &str, bytes_max: u64) -> Result<String, Failure> {
    let (mut text, mut at) = (String::new(), 0);
    loop {
        let receipt = piece(context, path, at)?;
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
