//! Edits: finds `old` in a text and replaces it by `new`, never by similarity.
//!
//! An edit tries match levels from the strictest to the loosest (`levels`) and stops at the first that finds anything.
//! The replacement takes the line ends and the indentation of the place (`fit`). If nothing is found, the error shows
//! the most similar place (`not_found`). That place is never edited, because a wrong edit is worse than a failed one.
//!
//! Nothing here knows files, paths or capabilities: the caller reads, checks and writes the file.

mod fit;
mod fold;
mod levels;
mod line;
mod not_found;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use fit::Fit;
use levels::Level;

/// The size of an edited text; the last replacement may exceed it.
const EDITED_BYTES_MAX: usize = crate::limits::READ_BYTES_MAX as usize;

/// How many places the error of an ambiguous edit lists.
const PLACES_MAX: usize = 20;

/// Replaces `old` by `new`: at the one place where it occurs, or at every place.
#[derive(Debug, Clone, Copy)]
pub struct Edit<'a> {
    pub old: &'a str,
    pub new: &'a str,
    pub replace_all: bool,
}

/// What was ignored to find `old`; later kinds ignore more.
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

/// The result of a list of edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    pub text: String,
    pub replacements: u64,
    /// The loosest kind of all edits.
    pub kind: MatchKind,
}

/// Why a list of edits failed and changed nothing; `index` is the edit that failed, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error(
        "old_string of edit {} is empty: give the text to replace, or write the whole file.",
        .index + 1
    )]
    EmptyOld { index: usize },

    /// `already_applied` if `new` occurs exactly once in the text.
    #[error("{message}")]
    NotFound { index: usize, message: String, already_applied: bool },

    #[error(
        "edit {} would make the text larger than {EDITED_BYTES_MAX} bytes; nothing was changed. Replace fewer places or use a shorter new_string.",
        .index + 1
    )]
    TooLarge { index: usize },

    /// `lines` counts from 1 and has the first 20 of `count` places.
    #[error("{}", not_found::ambiguous(*.index, .lines, *.count))]
    Ambiguous { index: usize, lines: Vec<usize>, count: u64 },
}

/// Applies all edits in order, each to the result of the one before, or none of them.
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
    // Exact places are never collected: there may be as many as the text has bytes.
    let exact = levels::exact(text, edit.old);
    if exact.clone().next().is_some() {
        return replace(text, edit, index, Level::Exact, exact);
    }
    match levels::loose(text, edit.old) {
        Some((level, spans)) => replace(text, edit, index, level, spans.iter().cloned()),
        None => Err(not_found::error(text, edits, index)),
    }
}

/// Replaces every span by `new`, unless there are several and only one is allowed.
fn replace<S>(text: &str, edit: Edit<'_>, index: usize, level: Level, spans: S) -> Result<Edited, EditError>
where
    S: Iterator<Item = Range<usize>> + Clone,
{
    let (count, removed) =
        spans.clone().fold((0_usize, 0), |(count, removed), span| (count + 1, removed + span.len()));
    if count > 1 && !edit.replace_all {
        let lines = line::numbers(text, spans.map(|span| span.start).take(PLACES_MAX));
        return Err(EditError::Ambiguous { index, lines, count: count as u64 });
    }
    let fit = Fit::new(text, edit, level);
    let size = (text.len() - removed).saturating_add(count.saturating_mul(edit.new.len()));
    let mut out = String::with_capacity(size.min(EDITED_BYTES_MAX));
    let mut kept = 0;
    for span in spans {
        // A few kilobytes at each of millions of places would exhaust memory.
        if out.len() > EDITED_BYTES_MAX {
            return Err(EditError::TooLarge { index });
        }
        out.push_str(&text[kept..span.start]);
        out.push_str(&fit.at(&span));
        kept = span.end;
    }
    out.push_str(&text[kept..]);
    Ok(Edited { text: out, replacements: count as u64, kind: level.kind() })
}
