//! Adapts `new` to the place of a match: its line ends and its indentation.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::Range;

use super::Edit;
use super::levels::Level;
use super::line::{LineEnds, lines, without_bom, without_line_end};

/// Adapts the `new` of one edit to the places where its `old` was found.
#[derive(Debug)]
pub(super) struct Fit<'a> {
    text: &'a str,
    old: &'a str,
    new: &'a str,
    level: Level,
    /// The line ends of the whole text. Computed only if a place has no line end.
    line_ends: OnceCell<LineEnds>,
}

impl<'a> Fit<'a> {
    pub(super) fn new(text: &'a str, edit: Edit<'a>, level: Level) -> Self {
        let (old, new) = match edit.old.strip_prefix('\u{feff}') {
            // The byte-order mark at the start of `old` was ignored, so the same mark in `new` is not inserted.
            Some(old) if level > Level::Exact => (old, without_bom(edit.new)),
            _ => (edit.old, edit.new),
        };
        Self { text, old, new, level, line_ends: OnceCell::new() }
    }

    pub(super) fn at(&self, span: &Range<usize>) -> Cow<'a, str> {
        let there = &self.text[span.clone()];
        let mut new = self.new;
        if self.old.ends_with('\n') && !there.ends_with('\n') {
            new = without_line_end(new); // the text has no final line end, and keeps none
        }
        let new = match self.shift(span.start, there) {
            Some(shift) => Cow::Owned(shift.apply(new)),
            None => Cow::Borrowed(new),
        };
        if !new.contains('\n') {
            return new;
        }
        match LineEnds::of(there) {
            LineEnds::None => self.line_ends.get_or_init(|| LineEnds::of(self.text)).write(new),
            ends => ends.write(new),
        }
    }

    /// How the lines of `new` are re-indented, if the match ignored indentation.
    fn shift(&self, start: usize, there: &'a str) -> Option<Shift<'a>> {
        if self.level < Level::Indent {
            return None;
        }
        let before = without_bom(&self.text[..start]);
        if !before.is_empty() && !before.ends_with('\n') {
            return None;
        }
        let shift = Shift::between(first_indent(self.old), first_indent(there));
        (!shift.from.is_empty() || !shift.to.is_empty()).then_some(shift)
    }
}

/// The indentation of the first line that is not blank.
fn first_indent(text: &str) -> &str {
    let first = lines(text).map(|line| line.body).find(|body| !body.trim().is_empty()).unwrap_or_default();
    &first[..first.len() - first.trim_start().len()]
}

/// Replaces the indentation `from` by `to` at the start of every line. `new` moves as a block to the indentation of the
/// place, so the relative indentation inside it stays.
#[derive(Debug)]
struct Shift<'a> {
    from: &'a str,
    to: &'a str,
}

impl<'a> Shift<'a> {
    /// The common end of both is the line's indentation inside its block, and stays.
    fn between(from: &'a str, to: &'a str) -> Self {
        let own = common_bytes(from.chars().rev(), to.chars().rev());
        Self { from: &from[..from.len() - own], to: &to[..to.len() - own] }
    }

    fn apply(&self, new: &str) -> String {
        let mut out = String::with_capacity(new.len());
        for line in new.split_inclusive('\n') {
            if line.trim().is_empty() {
                out.push_str(line);
                continue;
            }
            let had = common_bytes(self.from.chars(), line.chars());
            if had == self.from.len() {
                out.push_str(self.to);
            } else {
                // Indented less than the block: it gets as many characters of the new indentation as it had of the old.
                out.extend(self.to.chars().take(line[..had].chars().count()));
            }
            out.push_str(&line[had..]);
        }
        out
    }
}

fn common_bytes(a: impl Iterator<Item = char>, b: impl Iterator<Item = char>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}
