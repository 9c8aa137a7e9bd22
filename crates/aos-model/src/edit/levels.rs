//! Finds `old` in a text at six match levels, each looser than the one before. None works by similarity.
//!
//! Every level is linear in the text and in `old`: bytes are searched with `memmem`, lines with Knuth-Morris-Pratt.

use std::ops::Range;

use memchr::memmem;

use super::MatchKind;
use super::fold;
use super::line::{lines, to_lf, without_bom};

/// The match levels, strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Byte for byte.
    Exact,
    /// `\r\n` equals `\n`, a byte-order mark is ignored, and the last line counts as terminated.
    LineEnds,
    /// Whole lines; trailing white space is ignored.
    Trailing,
    /// Whole lines, all shifted by the same indentation.
    Indent,
    /// Whole lines or a piece of one line; any run of blanks equals one space, and the edges of a line are blank.
    Blanks,
    /// Like `Blanks`, and all quotes, dashes and spaces of a kind are equal.
    Punctuation,
}

impl Level {
    pub(super) fn kind(self) -> MatchKind {
        match self {
            Self::Exact => MatchKind::Exact,
            Self::LineEnds | Self::Trailing | Self::Indent | Self::Blanks => MatchKind::Whitespace,
            Self::Punctuation => MatchKind::Punctuation,
        }
    }

    /// The part of a line that is compared at this level. `buffer` holds a key that is not a slice of the line.
    fn key<'k>(self, line: &'k str, buffer: &'k mut String) -> &'k str {
        match self {
            Self::Exact | Self::LineEnds => line,
            Self::Trailing => line.trim_ascii_end(),
            Self::Indent => line.trim_ascii(),
            Self::Blanks => fold::read_into(buffer, line, fold::blank),
            Self::Punctuation => fold::read_into(buffer, line, fold::punctuation),
        }
    }

    /// The places of `old` at this level. `old` does not start with a byte-order mark.
    pub(super) fn find(self, text: &str, old: &str) -> Vec<Range<usize>> {
        let one_line = !old.contains('\n');
        match self {
            Self::Exact => exact(text, old).collect(),
            Self::LineEnds => line_ends(text, old),
            Self::Blanks if one_line => in_lines(text, old, fold::blank),
            Self::Punctuation if one_line => in_lines(text, old, fold::punctuation),
            Self::Trailing | Self::Indent | Self::Blanks | Self::Punctuation => whole_lines(text, old, self),
        }
    }
}

/// The exact places of `old`. None starts or ends between `\r` and `\n`: replacing half a line end would leave the other
/// half.
pub(super) fn exact(text: &str, old: &str) -> impl Iterator<Item = Range<usize>> + Clone {
    let bytes = text.as_bytes();
    let whole = move |at: usize| !bytes[at..].starts_with(b"\n") || !bytes[..at].ends_with(b"\r");
    memmem::find_iter(bytes, old)
        .map(move |at| at..at + old.len())
        .filter(move |span| whole(span.start) && whole(span.end))
}

/// The places of `old` at the first level after `Exact` that finds any.
pub(super) fn loose(text: &str, old: &str) -> Option<(Level, Vec<Range<usize>>)> {
    let old = old.trim_start_matches('\u{feff}');
    if old.is_empty() {
        return None;
    }
    let find = |level: Level| Some((level, level.find(text, old))).filter(|(_, spans)| !spans.is_empty());
    if let Some(found) = find(Level::LineEnds) {
        return Some(found);
    }
    if old.trim().is_empty() {
        return None; // `old` is only white space, so white space cannot be ignored
    }
    // If the loosest level finds nothing, no other does, and mostly nothing else has to be tried.
    let loosest = find(Level::Punctuation)?;
    [Level::Trailing, Level::Indent, Level::Blanks].into_iter().find_map(find).or(Some(loosest))
}

/// Searches like `exact` in the text with `\n` for every line end, and maps the places back.
fn line_ends(text: &str, old: &str) -> Vec<Range<usize>> {
    let body = without_bom(text);
    let mut flat = to_lf(body);
    if old.ends_with('\n') && !flat.ends_with('\n') {
        flat.to_mut().push('\n');
    }
    let mut returns = memmem::find_iter(body.as_bytes(), b"\r\n").peekable();
    let mut removed = 0;
    let mut place = |at: usize| {
        while returns.next_if(|cr| cr - removed < at).is_some() {
            removed += 1;
        }
        (text.len() - body.len() + at + removed).min(text.len())
    };
    let old = to_lf(old);
    memmem::find_iter(flat.as_bytes(), old.as_bytes())
        .map(|at| place(at)..place(at + old.len()))
        .filter(|span| !span.is_empty()) // only the line end that was added above
        .collect()
}

/// Searches for `old`, which has no line end, inside the lines of the text.
fn in_lines(text: &str, old: &str, fold: impl Fn(char) -> char + Copy) -> Vec<Range<usize>> {
    let old = fold::piece(old, fold);
    let finder = memmem::Finder::new(&old);
    let mut buffer = String::new();
    let mut spans = Vec::new();
    for line in lines(text) {
        // Folding adds at most two edge blanks.
        if line.body.len() + 2 < old.len() {
            continue;
        }
        let key = fold::read_into(&mut buffer, line.body, fold);
        let mut again = fold::read(line.body, fold);
        let (mut key_at, mut at) = (0, line.start);
        let mut place = |in_key: usize| {
            while key_at < in_key
                && let Some((c, end)) = again.next()
            {
                key_at += c.len_utf8();
                at = line.start + end;
            }
            at
        };
        spans.extend(finder.find_iter(key.as_bytes()).map(|found| place(found)..place(found + old.len())));
    }
    spans
}

/// Searches for the lines of `old` among the lines of the text.
fn whole_lines(text: &str, old: &str, level: Level) -> Vec<Range<usize>> {
    let pattern = Pattern::new(old, level);
    let mut starts = lines(text).map(|line| line.start).enumerate();
    let mut spans = Vec::new();
    let mut matched = 0;
    let mut buffer = String::new();
    let mut indent = "";
    for (number, line) in lines(text).enumerate() {
        let step = step(level, &mut indent, line.body);
        matched = pattern.advance(matched, level.key(line.body, &mut buffer), step);
        if matched < pattern.lines.len() {
            continue;
        }
        matched = 0; // matches do not overlap
        let end = if old.ends_with('\n') { line.end } else { line.start + line.body.len() };
        let first = number + 1 - pattern.lines.len();
        let start =
            starts.find(|(number, _)| *number == first).expect("BUG: a match ends before it starts").1;
        spans.push(start..end);
    }
    spans
}

/// How the indentation changes from one non-blank line to the next: what is removed, and what is added. It is the same
/// wherever a whole block is shifted to. A blank line has none.
type Step<'a> = Option<(&'a str, &'a str)>;

/// The step to a line from the one indented by `before`. Only the level `Indent` compares indentation.
fn step<'a>(level: Level, before: &mut &'a str, line: &'a str) -> Step<'a> {
    let content = line.trim_ascii_start();
    if level != Level::Indent || content.is_empty() {
        return None;
    }
    let indent = &line[..line.len() - content.len()];
    let before = std::mem::replace(before, indent);
    let same = before.bytes().zip(indent.bytes()).take_while(|(a, b)| a == b).count();
    Some((&before[same..], &indent[same..]))
}

/// The lines of `old` with the failure table of Knuth-Morris-Pratt. A comparison costs at most the length of the line
/// plus that of earlier lines that matched, so the search is linear in bytes and not only in lines.
#[derive(Debug)]
struct Pattern<'a> {
    lines: Vec<(String, Step<'a>)>,
    /// The first line that is not blank. The step that leads to it is outside of `old`.
    head: usize,
    /// The failure table: for each line, how many lines up to it equal the first lines of the pattern.
    borders: Vec<usize>,
}

impl<'a> Pattern<'a> {
    fn new(old: &'a str, level: Level) -> Self {
        let mut buffer = String::new();
        let mut indent = "";
        let lines: Vec<_> = lines(old)
            .map(|line| (level.key(line.body, &mut buffer).to_owned(), step(level, &mut indent, line.body)))
            .collect();
        let head = lines.iter().position(|(key, _)| !key.is_empty()).unwrap_or(0);
        let mut pattern = Self { borders: vec![0; lines.len()], lines, head };
        for at in 1..pattern.lines.len() {
            let (key, step) = &pattern.lines[at];
            pattern.borders[at] = pattern.advance(pattern.borders[at - 1], key, *step);
        }
        pattern
    }

    /// How many lines match after this line, when `matched` did before it.
    fn advance(&self, mut matched: usize, key: &str, step: Step<'_>) -> usize {
        let fits = |at: usize| self.lines[at].0 == key && (at == self.head || self.lines[at].1 == step);
        while !fits(matched) {
            if matched == 0 {
                return 0;
            }
            matched = self.borders[matched - 1];
        }
        matched + 1
    }
}
