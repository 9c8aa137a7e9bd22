//! The edit ladder: finds `old` in a text and replaces it, never by guessing.
//!
//! An edit climbs down from the strictest way of looking to the loosest (`ladder`) and stops at the first that
//! finds anything. What it puts there is fitted to the place (`fit`): its line ends, its indentation. Where
//! nothing is found, the error says what stands at the nearest place (`miss`); that place is only ever named,
//! never edited, because a wrong edit is worse than a failed one.
//!
//! Nothing here knows of files, paths or limits: the caller reads, checks, writes and names the file.

mod fit;
mod fold;
mod ladder;
mod line;
mod miss;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use fit::Fit;
use ladder::Rung;

/// What an edit may make of a text; its last replacement may reach beyond.
const EDITED_BYTES_MAX: usize = crate::limits::READ_BYTES_MAX as usize;

/// How many places an ambiguous edit names.
const PLACES_MAX: usize = 20;

/// Replace `old` by `new`: at the one place where it stands, or at each.
#[derive(Debug, Clone, Copy)]
pub struct Edit<'a> {
    pub old: &'a str,
    pub new: &'a str,
    pub replace_all: bool,
}

/// How much had to be ignored to find `old`; the later, the weaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchKind {
    Exact,
    Whitespace,
    Punctuation,
}

impl MatchKind {
    /// The name in a receipt.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Whitespace => "whitespace",
            Self::Punctuation => "punctuation",
        }
    }
}

/// What a list of edits made of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    pub text: String,
    pub replacements: u64,
    /// The weakest of all edits.
    pub kind: MatchKind,
}

/// Why a list of edits changed nothing; `index` is the edit that failed, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error(
        "old_string of edit {} is empty, so it names no place: give the text to replace, or write the whole file.",
        .index + 1
    )]
    EmptyOld { index: usize },

    /// `already_applied` if `new` stands in the text exactly once.
    #[error("{message}")]
    NotFound { index: usize, message: String, already_applied: bool },

    #[error(
        "edit {} would make the text larger than {EDITED_BYTES_MAX} bytes, so it is not done: replace fewer places or put less.",
        .index + 1
    )]
    TooLarge { index: usize },

    /// `lines` counts from 1 and names the first 20 of `count` places.
    #[error("{}", miss::ambiguous(*.index, .lines, *.count))]
    Ambiguous { index: usize, lines: Vec<usize>, count: u64 },
}

/// Applies all edits in order, each to what the one before left, or none.
pub fn edit(text: &str, edits: &[Edit<'_>]) -> Result<Edited, EditError> {
    let mut text = Cow::Borrowed(text);
    let mut replacements = 0;
    let mut kind = MatchKind::Exact;
    for index in 0..edits.len() {
        let edited = apply(&text, edits, index)?;
        text = Cow::Owned(edited.text);
        replacements += edited.replacements;
        kind = kind.max(edited.kind);
    }
    Ok(Edited { text: text.into_owned(), replacements, kind })
}

fn apply(text: &str, edits: &[Edit<'_>], index: usize) -> Result<Edited, EditError> {
    let edit = edits[index];
    if edit.old.is_empty() {
        return Err(EditError::EmptyOld { index });
    }
    // Exact places are counted but never collected: there may be as many as the text has bytes.
    let exact = ladder::exact(text, edit.old);
    if exact.clone().next().is_some() {
        return replace(text, edit, index, Rung::Exact, exact);
    }
    match ladder::loose(text, edit.old) {
        Some((rung, spans)) => replace(text, edit, index, rung, spans.iter().cloned()),
        None => Err(miss::not_found(text, edits, index)),
    }
}

/// Puts `new` at every span, if there may be as many.
fn replace<S>(text: &str, edit: Edit<'_>, index: usize, rung: Rung, spans: S) -> Result<Edited, EditError>
where
    S: Iterator<Item = Range<usize>> + Clone,
{
    let (count, gone) =
        spans.clone().fold((0_usize, 0), |(count, gone), span| (count + 1, gone + span.len()));
    if count > 1 && !edit.replace_all {
        let lines = line::numbers(text, spans.map(|span| span.start).take(PLACES_MAX));
        return Err(EditError::Ambiguous { index, lines, count: count as u64 });
    }
    let fit = Fit::new(text, edit, rung);
    let size = (text.len() - gone).saturating_add(count.saturating_mul(edit.new.len()));
    let mut out = String::with_capacity(size.min(EDITED_BYTES_MAX));
    let mut kept = 0;
    for span in spans {
        // A few kilobytes put at each of millions of places would fill the memory.
        if out.len() > EDITED_BYTES_MAX {
            return Err(EditError::TooLarge { index });
        }
        out.push_str(&text[kept..span.start]);
        out.push_str(&fit.at(&span));
        kept = span.end;
    }
    out.push_str(&text[kept..]);
    Ok(Edited { text: out, replacements: count as u64, kind: rung.kind() })
}
