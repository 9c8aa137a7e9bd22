//! The output format of grep: `path:line:text`, context as `path-line-text`, `--` where lines are left out.

use std::io;

use aos_model::limits::{GREP_LINE_BYTES_MAX, SEARCH_OUTPUT_BYTES_MAX};
use grep_searcher::{Searcher, Sink, SinkContext, SinkContextKind, SinkMatch};

/// The format options.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// Stop after this many matches in a file: one more than can be returned shows that there are more.
    pub(super) matches_max: u64,
    pub(super) files_only: bool,
    pub(super) context: bool,
}

/// The output of one file.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) text: Vec<u8>,
    /// The end offset of each match in the text, including the context after it.
    pub(super) ends: Vec<usize>,
    /// Whether a line was cut.
    pub(super) line_cut: bool,
}

/// Formats the rows of one file in line order.
pub(super) struct Lines<'a> {
    style: Style,
    shown: &'a dyn Fn() -> String,
    path: Option<String>,
    last_line: u64,
    pub(super) found: Found,
}

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    Match,
    Before,
    After,
}

impl<'a> Lines<'a> {
    /// `shown` returns the path; it is called only for files with matches.
    pub(super) fn new(style: Style, shown: &'a dyn Fn() -> String) -> Lines<'a> {
        Lines { style, shown, path: None, last_line: 0, found: Found::default() }
    }

    /// Drops the rows: the file is searched again by another method.
    pub(super) fn restart(&mut self) {
        self.found = Found::default();
        self.last_line = 0;
    }

    /// Adds a row without its newline. Returns false when no more rows are needed.
    pub(super) fn row(&mut self, row: Row, number: u64, text: &[u8]) -> bool {
        let path = self.path.get_or_insert_with(self.shown);
        let out = &mut self.found.text;
        if self.style.files_only {
            out.extend_from_slice(path.as_bytes());
            out.push(b'\n');
            self.found.ends.push(out.len());
            return false;
        }
        if self.style.context && self.last_line > 0 && number > self.last_line + 1 {
            out.extend_from_slice(b"--\n");
        }
        self.last_line = number;
        let mark = if row == Row::Match { b':' } else { b'-' };
        out.extend_from_slice(path.as_bytes());
        out.push(mark);
        push_number(out, number);
        out.push(mark);
        self.found.line_cut |= push_text(out, text);
        out.push(b'\n');
        match row {
            Row::Match => self.found.ends.push(out.len()),
            Row::After => {
                *self.found.ends.last_mut().expect("BUG: context after a match follows one") = out.len();
            }
            Row::Before => {}
        }
        (self.found.ends.len() as u64) < self.style.matches_max && out.len() <= SEARCH_OUTPUT_BYTES_MAX
    }
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends the text of a line; invalid UTF-8 becomes U+FFFD. Returns true if the line was cut, at a character.
fn push_text(out: &mut Vec<u8>, text: &[u8]) -> bool {
    let cut = text.len() > GREP_LINE_BYTES_MAX;
    let mut text = text;
    if cut {
        let is_inside = |at: &usize| text[*at] & 0b1100_0000 == 0b1000_0000;
        let end = (GREP_LINE_BYTES_MAX - 3..=GREP_LINE_BYTES_MAX).rev().find(|at| !is_inside(at));
        text = &text[..end.unwrap_or(GREP_LINE_BYTES_MAX)];
    }
    match std::str::from_utf8(text) {
        Ok(_) => out.extend_from_slice(text),
        Err(_) => out.extend_from_slice(String::from_utf8_lossy(text).as_bytes()),
    }
    cut
}

/// A line without its newline. A carriage return before it is kept.
pub(super) fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        Ok(self.row(Row::Match, found.line_number().unwrap_or(0), without_end(found.bytes())))
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        let row = if *context.kind() == SinkContextKind::After { Row::After } else { Row::Before };
        Ok(self.row(row, context.line_number().unwrap_or(0), without_end(context.bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_at_a_character() {
        let mut long = vec![b'x'; GREP_LINE_BYTES_MAX - 1];
        long.extend_from_slice("é and more".as_bytes());
        let mut out = Vec::new();
        assert!(push_text(&mut out, &long));
        assert_eq!(out.len(), GREP_LINE_BYTES_MAX - 1);
        out.clear();
        assert!(!push_text(&mut out, b"caf\xe9 \xff"));
        assert_eq!(out, "caf\u{fffd} \u{fffd}".as_bytes());
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 4_294_967_296, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}
