//! A file as lines, addressed by byte offsets, so that a search copies nothing and needs no table of lines.

use memchr::{memchr, memchr2, memrchr, memrchr2};

use super::{Hunk, HunkLine};

const BOM: char = '\u{feff}';

/// The bytes of a file and its line ends.
///
/// A BOM and a lone CR are not part of a line, unless the patch contains that character: then it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    /// The BOM before the first line, or empty.
    pub(super) prefix: &'a [u8],
    pub(super) bytes: &'a [u8],
    /// The end of the first line. Added lines get the same.
    pub(super) line_end: &'a [u8],
    lone_cr: bool,
}

/// The offsets of a line: its text is `start..end`, the next line begins at `next`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) next: usize,
}

impl<'a> Text<'a> {
    pub(super) fn new(file: &'a [u8], hunks: &[Hunk]) -> Self {
        let bom = if starts_with(file, BOM) && !mentions(hunks, BOM) { BOM.len_utf8() } else { 0 };
        let (prefix, bytes) = file.split_at(bom);
        let lone_cr = memchr(b'\r', bytes).is_some() && !mentions(hunks, '\r');
        let mut text = Text { prefix, bytes, line_end: b"\n", lone_cr };
        if let Some(first) = text.line(0).filter(|line| line.end < line.next) {
            text.line_end = &bytes[first.end..first.next];
        }
        text
    }

    /// The line that starts at `start`; `None` at the end of the file.
    pub(super) fn line(&self, start: usize) -> Option<Line> {
        let rest = self.bytes.get(start..).filter(|rest| !rest.is_empty())?;
        let stop = if self.lone_cr { memchr2(b'\n', b'\r', rest) } else { memchr(b'\n', rest) };
        let Some(stop) = stop.map(|stop| start + stop) else {
            return Some(Line { start, end: self.bytes.len(), next: self.bytes.len() });
        };
        if self.bytes[stop] == b'\r' {
            let crlf = self.bytes.get(stop + 1) == Some(&b'\n');
            return Some(Line { start, end: stop, next: stop + 1 + usize::from(crlf) });
        }
        let crlf = self.bytes[start..stop].ends_with(b"\r");
        Some(Line { start, end: stop - usize::from(crlf), next: stop + 1 })
    }

    pub(super) fn show(&self, line: Line) -> &'a [u8] {
        &self.bytes[line.start..line.end]
    }

    pub(super) fn lines(self, from: usize) -> impl Iterator<Item = Line> {
        std::iter::successors(self.line(from), move |line| self.line(line.next))
    }

    /// The start of the line `count` lines after the one at `start`, or the end of the file.
    pub(super) fn skip(&self, start: usize, count: usize) -> usize {
        (0..count).fold(start, |at, _| self.line(at).map_or(at, |line| line.next))
    }

    /// The start of the line that contains `inside`, given that a line starts at `floor`.
    pub(super) fn line_start(&self, floor: usize, inside: usize) -> usize {
        let before = &self.bytes[floor..inside];
        let stop = if self.lone_cr { memrchr2(b'\n', b'\r', before) } else { memrchr(b'\n', before) };
        stop.map_or(floor, |stop| floor + stop + 1)
    }

    /// The number, from 1, of the line at `start`. Linear in the file, so for messages only.
    pub(super) fn number(&self, start: usize) -> usize {
        1 + self.lines(0).take_while(|line| line.start < start).count()
    }

    /// Whether `written` ends with a line end.
    pub(super) fn is_ended(&self, written: &[u8]) -> bool {
        match written.last() {
            None | Some(b'\n') => true,
            Some(b'\r') => self.lone_cr,
            Some(_) => false,
        }
    }
}

fn starts_with(bytes: &[u8], character: char) -> bool {
    bytes.starts_with(character.encode_utf8(&mut [0; 4]).as_bytes())
}

fn mentions(hunks: &[Hunk], character: char) -> bool {
    let lines = hunks.iter().flat_map(|hunk| hunk.lines.iter().map(HunkLine::text));
    let hints = hunks.iter().flat_map(|hunk| hunk.hints.iter().map(String::as_str));
    lines.chain(hints).any(|text| text.contains(character))
}
