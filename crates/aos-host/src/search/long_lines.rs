//! Searches files whose lines may be too long for memory: line by line, in windows.
//!
//! The fast path in `grep` holds whole lines. This one is used where that fails, and for the file in which the byte limit of
//! the scan is reached. A window overlaps the one before it, so a match is found unless it needs more than the overlap. A
//! match at the end of a window counts only if it does not depend on the bytes that follow.

use std::collections::VecDeque;
use std::io::{self, Read};

use aos_model::limits::{GREP_LINE_BYTES_MAX, GREP_WINDOW_BYTES, SEARCH_OUTPUT_BYTES_MAX};
use grep_matcher::Matcher;
use grep_regex::RegexMatcher;

use super::lines::{Lines, Row};

const OVERLAP_BYTES: usize = 64 << 10;
const BLOCK_BYTES: usize = 64 << 10;
/// The longest UTF-8 character: look-behind may need that much before a window.
const CHARACTER_BYTES: usize = 4;

/// The parameters of one search.
pub(super) struct LongLineSearch<'a, 'b> {
    pub(super) matcher: &'a RegexMatcher,
    pub(super) lines: &'a mut Lines<'b>,
    pub(super) context: u64,
    /// A NUL ends the search, as it does for ripgrep.
    pub(super) stop_at_nul: bool,
    /// The readable part ends before the file does: an incomplete last line is ignored.
    pub(super) cut_at_end: bool,
}

/// The line that is being read.
#[derive(Default)]
struct Line {
    number: u64,
    window: Vec<u8>,
    /// The first bytes of a line that is longer than the window.
    head: Option<Vec<u8>>,
    matches: bool,
}

/// Context lines before a possible match.
#[derive(Default)]
struct LinesBefore {
    lines: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
}

impl LongLineSearch<'_, '_> {
    pub(super) fn search(mut self, reader: &mut dyn Read) -> io::Result<()> {
        let mut block = vec![0; BLOCK_BYTES];
        let mut line = Line { number: 1, ..Line::default() };
        let (mut before, mut after_left) = (LinesBefore::default(), 0);
        loop {
            let read = match reader.read(&mut block) {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            };
            if read == 0 {
                break;
            }
            let mut rest = &block[..read];
            if self.stop_at_nul && memchr::memchr(0, rest).is_some() {
                return Ok(());
            }
            while let Some(end) = memchr::memchr(b'\n', rest) {
                line.window.extend_from_slice(&rest[..end]);
                rest = &rest[end + 1..];
                if !self.end_line(&mut line, &mut before, &mut after_left)? {
                    return Ok(());
                }
            }
            line.window.extend_from_slice(rest);
            if line.window.len() > GREP_WINDOW_BYTES {
                self.slide_window(&mut line)?;
            }
        }
        let unfinished = !line.window.is_empty();
        if unfinished && !self.cut_at_end {
            self.end_line(&mut line, &mut before, &mut after_left)?;
        }
        Ok(())
    }

    /// Searches a full window and keeps its end.
    fn slide_window(&self, line: &mut Line) -> io::Result<()> {
        line.matches = line.matches || self.matches_in(&mut line.window, line.head.is_some(), false)?;
        if line.head.is_none() {
            line.head = Some(line.window[..=GREP_LINE_BYTES_MAX].to_vec());
        }
        line.window.drain(..line.window.len() - OVERLAP_BYTES);
        Ok(())
    }

    /// Whether a window matches. A match at the end of the window is tried again with two different following bytes.
    fn matches_in(&self, window: &mut Vec<u8>, has_previous: bool, at_end: bool) -> io::Result<bool> {
        let start = if has_previous { CHARACTER_BYTES.min(window.len()) } else { 0 };
        let find = |text: &[u8]| self.matcher.find_at(text, start).map_err(io::Error::other);
        let Some(found) = find(window)? else { return Ok(false) };
        if at_end || found.end() < window.len() {
            return Ok(true);
        }
        let real_end = window.len();
        for follower in [b'\0', b'a'] {
            window.push(follower);
            let found = find(window);
            window.truncate(real_end);
            if found?.is_none_or(|found| found.end() > real_end) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Handles a complete line. Returns false when no more lines are needed.
    fn end_line(
        &mut self,
        line: &mut Line,
        before: &mut LinesBefore,
        after_left: &mut u64,
    ) -> io::Result<bool> {
        let matches = line.matches || self.matches_in(&mut line.window, line.head.is_some(), true)?;
        let (number, text) = (line.number, line.head.as_ref().unwrap_or(&line.window));
        let mut wants_more = true;
        if matches {
            for (number, text) in before.lines.drain(..) {
                wants_more = wants_more && self.lines.row(Row::Before, number, &text);
            }
            before.bytes = 0;
            wants_more = wants_more && self.lines.row(Row::Match, number, text);
            *after_left = self.context;
        } else if *after_left > 0 {
            *after_left -= 1;
            wants_more = self.lines.row(Row::After, number, text);
        } else if self.context > 0 {
            before.keep(number, text, self.context);
        }
        line.window.clear();
        line.head = None;
        line.matches = false;
        line.number += 1;
        Ok(wants_more)
    }
}

impl LinesBefore {
    fn keep(&mut self, number: u64, text: &[u8], lines_max: u64) {
        let shown = &text[..text.len().min(GREP_LINE_BYTES_MAX + 1)];
        self.bytes += shown.len();
        self.lines.push_back((number, shown.to_vec()));
        while self.lines.len() as u64 > lines_max || self.bytes > SEARCH_OUTPUT_BYTES_MAX / 2 {
            let Some((_, gone)) = self.lines.pop_front() else { break };
            self.bytes -= gone.len();
        }
    }
}
