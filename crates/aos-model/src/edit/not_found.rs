//! Error messages of failed edits, with enough detail to send the right edit next.
//!
//! The closest place is found by similarity. It is only shown, never edited.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;

use super::fold;
use super::levels;
use super::line::{self, LineEnds, lines};
use super::{Edit, EditError};

/// In a larger text the closest place is not searched.
const NEAREST_TEXT_BYTES_MAX: usize = 16 << 20;

/// How much of a line is shown.
const SHOWN_CHARS_MAX: usize = 200;

/// How much of the common start of two long lines is shown before the first difference.
const SHOWN_COMMON_CHARS: usize = 60;

/// The message of [`EditError::Ambiguous`].
pub(super) fn ambiguous(index: usize, places: &[usize], count: u64) -> String {
    let mut distinct = places.to_vec();
    distinct.dedup();
    let more = if count > places.len() as u64 { ", and more" } else { "" };
    format!(
        "old_string of edit {} occurs at {count} places ({}{more}{}): add the lines around the one to replace, or set \
         replace_all to replace them all.",
        index + 1,
        listed(&distinct),
        counted_after(index),
    )
}

/// The error for `edits[index]`, whose `old` does not occur in the text.
pub(super) fn error(text: &str, edits: &[Edit<'_>], index: usize) -> EditError {
    let Edit { old, new, .. } = edits[index];
    let mut message = match edits.len() {
        1 => "old_string was not found".to_owned(),
        count => format!("old_string of edit {} of {count} was not found", index + 1),
    };
    message.push_str(&nearest(text, old, index));
    let applied = applied_line(text, new);
    if let Some(line) = applied {
        let after = counted_after(index);
        let _ = write!(
            message,
            " new_string already occurs once in the text, at line {line}{after}: if this edit was made before, nothing \
             is left to do.",
        );
    }
    EditError::NotFound { index, message, already_applied: applied.is_some() }
}

/// The line of `new`, if it occurs exactly once.
fn applied_line(text: &str, new: &str) -> Option<usize> {
    if new.is_empty() {
        return None;
    }
    let new = if new.contains('\n') { LineEnds::of(text).write(new.into()) } else { new.into() };
    let mut places = levels::exact(text, &new);
    let place = places.next()?;
    if places.next().is_some() {
        return None;
    }
    line::numbers(text, std::iter::once(place.start)).pop()
}

/// The rest of the sentence: what is at the closest place, and what to do.
fn nearest(text: &str, old: &str, index: usize) -> String {
    if text.is_empty() {
        return ": the text is empty. Write the whole file instead.".to_owned();
    }
    if old.trim().is_empty() {
        return ": it is only white space, which must match exactly. Add the lines around it.".to_owned();
    }
    if text.len() > NEAREST_TEXT_BYTES_MAX {
        return ", and the text is too large to find a similar place. Search for one of its lines and copy old_string \
                from there."
            .to_owned();
    }
    let difference = nearest_by_lines(text, old)
        .or_else(|| nearest_by_words(text, old))
        .and_then(|start| Difference::at(text, old, start));
    match difference {
        Some(difference) => difference.sentence(index),
        None => {
            ", and the text has nothing similar. Read the file again and copy old_string from it.".to_owned()
        }
    }
}

/// The start line at which most of `old` (by length) equals the text line by line.
fn nearest_by_lines(text: &str, old: &str) -> Option<usize> {
    let mut buffer = String::new();
    let mut in_old = HashMap::new();
    for (number, line) in lines(old).enumerate() {
        let key = fold::read_into(&mut buffer, line.body, fold::punctuation);
        // Lines of only braces or dashes occur everywhere, so they do not count.
        if key.contains(char::is_alphanumeric) {
            in_old.entry(key.to_owned()).or_insert(number);
        }
    }
    // Each line votes at most once, so a text of equal lines costs no more than another.
    let mut votes = Vec::new();
    for (number, line) in lines(text).enumerate() {
        let key = fold::read_into(&mut buffer, line.body, fold::punctuation);
        if let Some(ahead) = in_old.get(key) {
            votes.resize(number + 1, 0);
            votes[number.saturating_sub(*ahead)] += key.len();
        }
    }
    let (start, weight) =
        votes.into_iter().enumerate().max_by_key(|&(start, weight)| (weight, Reverse(start)))?;
    (weight > 0).then_some(start)
}

/// The start line if the longest line of `old` is placed at the line with most of its words (by length); `None` if that
/// is less than half of them.
fn nearest_by_words(text: &str, old: &str) -> Option<usize> {
    let weight = |line: &str| words(line).map(str::len).sum::<usize>();
    let (ahead, anchor) = lines(old)
        .map(|line| line.body)
        .enumerate()
        .max_by_key(|&(number, body)| (weight(body), Reverse(number)))?;
    // The last line that counted each word: a line counts a word once.
    let mut counted: HashMap<&str, usize> = words(anchor).map(|word| (word, usize::MAX)).collect();
    let all: usize = counted.keys().map(|word| word.len()).sum();
    let mut best = (0, Reverse(0), Reverse(0));
    for (number, line) in lines(text).enumerate() {
        let shared = words(line.body)
            .filter(|word| {
                counted.get_mut(word).is_some_and(|last| std::mem::replace(last, number) != number)
            })
            .map(str::len)
            .sum();
        best = best.max((shared, Reverse(line.body.len()), Reverse(number)));
    }
    let (shared, _, Reverse(number)) = best;
    (shared > 0 && shared * 2 >= all).then(|| number.saturating_sub(ahead))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The difference between `old` and the lines of a text at one place; lines count from 1.
#[derive(Debug)]
struct Difference<'a> {
    first_line: usize,
    last_line: usize,
    /// The first line that differs, in `old` and in the text. `there` is `None` after the last line of the text.
    line: usize,
    old: &'a str,
    there: Option<&'a str>,
    /// How many lines `old` has, and how many of them differ.
    lines: usize,
    differing: usize,
}

impl<'a> Difference<'a> {
    fn at(text: &'a str, old: &'a str, start: usize) -> Option<Self> {
        let mut text_lines = lines(text).skip(start).map(|line| line.body);
        let (mut buffer_old, mut buffer_there) = (String::new(), String::new());
        let (mut lines_old, mut lines_there, mut differing) = (0, 0, 0);
        let mut first = None;
        for old in lines(old).map(|line| line.body) {
            let there = text_lines.next();
            lines_old += 1;
            lines_there += usize::from(there.is_some());
            let key_old = fold::read_into(&mut buffer_old, old, fold::punctuation);
            let key_there = there.map(|there| fold::read_into(&mut buffer_there, there, fold::punctuation));
            if key_there != Some(key_old) {
                differing += 1;
                first.get_or_insert((start + lines_old, old, there));
            }
        }
        let (line, old, there) = first?;
        let (first_line, last_line) = (start + 1, start + lines_there);
        Some(Self { first_line, last_line, line, old, there, lines: lines_old, differing })
    }

    fn sentence(&self, index: usize) -> String {
        let place = match self.last_line - self.first_line {
            0 => format!("line {}", self.first_line),
            _ => format!("lines {} to {}", self.first_line, self.last_line),
        };
        let is_long = |line: &str| line.chars().nth(SHOWN_CHARS_MAX).is_some();
        let cut = is_long(self.old) || self.there.is_some_and(is_long);
        let common =
            self.old.chars().zip(self.there.unwrap_or_default().chars()).take_while(|(a, b)| a == b).count();
        let skipped = if cut { common.saturating_sub(SHOWN_COMMON_CHARS) } else { 0 };
        let there = match self.there {
            Some(there) => format!("the text has `{}`", shown(there, skipped)),
            None => format!("the text ends with line {}", self.last_line),
        };
        let remedy = if self.differing == 1 && self.there.is_some() && !cut {
            "Copy that line exactly.".to_owned()
        } else {
            format!(
                "{} of {} lines differ: read {place} and copy old_string from there.",
                self.differing, self.lines
            )
        };
        format!(
            ". The closest place is {place}{}; the first line that differs is line {}: old_string has `{}`, but {there}. \
             {remedy}",
            counted_after(index),
            self.line,
            shown(self.old, skipped),
        )
    }
}

/// Line numbers count in the text after the earlier edits. Those were discarded, so the file may have other numbers.
fn counted_after(index: usize) -> String {
    match index {
        0 => String::new(),
        1 => " as counted after edit 1".to_owned(),
        _ => format!(" as counted after edits 1 to {index}"),
    }
}

fn listed(lines: &[usize]) -> String {
    let numbers: Vec<_> = lines.iter().map(ToString::to_string).collect();
    match numbers.as_slice() {
        [] => String::new(),
        [line] => format!("line {line}"),
        [first @ .., last] => format!("lines {} and {last}", first.join(", ")),
    }
}

/// A piece of a line, with invisible characters and terminal controls escaped.
fn shown(line: &str, skipped: usize) -> String {
    let mut rest = line.chars().skip(skipped);
    let mut out = String::from(if skipped > 0 { "…" } else { "" });
    for c in rest.by_ref().take(SHOWN_CHARS_MAX) {
        if is_invisible(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if rest.next().is_some() {
        out.push('…');
    }
    out
}

/// Control characters, white space other than a space, and zero-width or bidi characters.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}
