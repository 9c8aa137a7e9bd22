//! Finds the place of a hunk in a file, checks for a second one, and explains why there is none.

use std::borrow::Cow;

use super::parse::quote;
use super::seek::{Found, Leniency, PartialMatch, SearchCost, seek, seek_end};
use super::text::Text;
use super::{Hunk, HunkLine};

/// Where a hunk applies.
#[derive(Debug)]
pub(super) struct Place<'h> {
    /// The offset of its first line, or at which its lines are inserted.
    pub(super) at: usize,
    /// The offset after its `@@` lines. The next hunk cannot be above it.
    pub(super) floor: usize,
    /// The leniency that was needed.
    pub(super) leniency: Leniency,
    /// The lines of the hunk, as far as the file has them.
    pub(super) lines: Cow<'h, [HunkLine]>,
    /// The offset of the first line that was searched: an `@@` line or a line of the hunk.
    first: Option<usize>,
}

/// What was not found at or below the offset `from`.
#[derive(Debug)]
pub(super) enum NotFound<'h> {
    Hint { hint: &'h str, from: usize },
    Lines { partial: PartialMatch, from: usize },
}

/// Searches one file for the places of hunks.
#[derive(Debug)]
pub(super) struct Places<'t, 'e> {
    pub(super) text: Text<'t>,
    pub(super) cost: &'e mut SearchCost,
}

impl Places<'_, '_> {
    /// The first place for `hunk` at or below `from`.
    pub(super) fn find<'h>(&mut self, hunk: &'h Hunk, from: usize) -> Result<Place<'h>, NotFound<'h>> {
        self.find_within(hunk, from, Leniency::Punctuation)
    }

    /// The offset of a second place that matches `hunk` as well as `place` does. `None` also if the hunk changes
    /// nothing, or if the search would cost too much.
    pub(super) fn second_match(&mut self, hunk: &Hunk, place: &Place<'_>) -> Option<usize> {
        let changes = place.lines.iter().any(|line| !matches!(line, HunkLine::Keep(_)));
        if hunk.end_of_file || !changes || self.cost.skips_warnings() {
            return None;
        }
        let below = self.text.skip(place.first?, 1);
        let second = self.find_within(hunk, below, place.leniency).ok()?;
        (second.at != place.at && second.lines.len() == place.lines.len()).then_some(second.at)
    }

    fn find_within<'h>(
        &mut self,
        hunk: &'h Hunk,
        from: usize,
        loosest: Leniency,
    ) -> Result<Place<'h>, NotFound<'h>> {
        let lines = Cow::Borrowed(hunk.lines.as_slice());
        let mut place = Place { at: from, floor: from, leniency: Leniency::Exact, lines, first: None };
        for hint in &hunk.hints {
            let found = seek(self.text, &[hint], place.floor, loosest, self.cost)
                .map_err(|_| NotFound::Hint { hint, from: place.floor })?;
            place.add(found);
            place.floor = self.text.skip(found.at, 1);
        }
        if old_lines(&hunk.lines).is_empty() {
            let at_end = hunk.hints.is_empty() || hunk.end_of_file;
            place.at = if at_end { self.text.bytes.len() } else { place.floor };
            return Ok(place);
        }
        let partial = match self.find_lines(hunk, &hunk.lines, place.floor, loosest) {
            Ok(found) => {
                place.add(found);
                return Ok(place);
            }
            Err(partial) => partial,
        };
        // Models often write an empty last line that only stands for the line end above it.
        let not_found = NotFound::Lines { partial, from: place.floor };
        let Some(lines) = without_final_blank(&hunk.lines) else { return Err(not_found) };
        if old_lines(&lines).is_empty() {
            place.at = place.floor;
        } else {
            let found = self.find_lines(hunk, &lines, place.floor, loosest).map_err(|_| not_found)?;
            place.add(found);
        }
        place.lines = Cow::Owned(lines);
        Ok(place)
    }

    fn find_lines(
        &mut self,
        hunk: &Hunk,
        lines: &[HunkLine],
        from: usize,
        loosest: Leniency,
    ) -> Result<Found, PartialMatch> {
        let old = old_lines(lines);
        if hunk.end_of_file {
            return seek_end(self.text, &old, from, loosest).ok_or(PartialMatch { at: from, lines: 0 });
        }
        seek(self.text, &old, from, loosest, self.cost)
    }

    /// Why `hunk` was not found, as the middle of a sentence.
    pub(super) fn explain(&mut self, hunk: &Hunk, not_found: &NotFound<'_>) -> String {
        match *not_found {
            NotFound::Hint { hint, from } => {
                let missing = format!(
                    "its line {} is not in the file{}",
                    quote(&format!("@@ {hint}")),
                    self.below(from)
                );
                match self.seek_above(&[hint], from) {
                    Some(number) => format!("{missing}, only at line {number}"),
                    None => missing,
                }
            }
            NotFound::Lines { partial, from } => {
                let old = old_lines(&hunk.lines);
                if hunk.end_of_file {
                    self.explain_end(&old, from)
                } else {
                    self.explain_lines(&old, partial, from)
                }
            }
        }
    }

    fn explain_end(&mut self, old: &[&str], from: usize) -> String {
        match self.seek_all(old, from) {
            Ok(found) => {
                let number = self.text.number(found.at);
                format!(
                    "its lines are at line {number}, but `*** End of File` requires them \
                     at the end of the file"
                )
            }
            Err(partial) => self.explain_lines(old, partial, from),
        }
    }

    fn explain_lines(&mut self, old: &[&str], partial: PartialMatch, from: usize) -> String {
        if let Some(number) = self.seek_above(old, from) {
            return format!(
                "its lines are at line {number}, but they are searched{}, \
                 after the `@@` line or hunk before them",
                self.below(from)
            );
        }
        let missing = quote(old[partial.lines]);
        if partial.lines == 0 {
            return format!("there is no line {missing}{}", self.below(from));
        }
        let number = self.text.number(partial.at) + partial.lines;
        let there = match self.text.line(self.text.skip(partial.at, partial.lines)) {
            Some(line) => format!("the file has {}", quote(&String::from_utf8_lossy(self.text.show(line)))),
            None => "the file ends".into(),
        };
        format!("it expects {missing} at line {number}, where {there}")
    }

    /// The number of the line above `from` at which `lines` are.
    fn seek_above(&mut self, lines: &[&str], from: usize) -> Option<usize> {
        if from == 0 {
            return None;
        }
        self.seek_all(lines, 0).ok().map(|found| self.text.number(found.at))
    }

    fn seek_all(&mut self, lines: &[&str], from: usize) -> Result<Found, PartialMatch> {
        seek(self.text, lines, from, Leniency::Punctuation, self.cost)
    }

    fn below(&self, from: usize) -> String {
        if from == 0 { String::new() } else { format!(" below line {}", self.text.number(from) - 1) }
    }
}

impl Place<'_> {
    fn add(&mut self, found: Found) {
        self.first.get_or_insert(found.at);
        self.at = found.at;
        self.leniency = self.leniency.max(found.leniency);
    }
}

fn old_lines(lines: &[HunkLine]) -> Vec<&str> {
    lines.iter().filter_map(HunkLine::old).collect()
}

/// The hunk without an empty last line on its old side, and on its new side if that ends in an inserted empty line.
fn without_final_blank(lines: &[HunkLine]) -> Option<Vec<HunkLine>> {
    let last = lines.iter().rposition(|line| line.old().is_some())?;
    if !lines[last].text().is_empty() {
        return None;
    }
    let mut lines = lines.to_vec();
    match lines[last] {
        // The file lacks this line, so it is inserted for the lines that follow it.
        HunkLine::Keep(_) => lines[last] = HunkLine::Insert(String::new()),
        HunkLine::Remove(_) | HunkLine::Insert(_) => drop(lines.remove(last)),
    }
    let last_new = lines.iter().rposition(|line| !matches!(line, HunkLine::Remove(_)));
    if let Some(last) = last_new.filter(|last| lines[*last] == HunkLine::Insert(String::new())) {
        lines.remove(last);
    }
    Some(lines)
}
