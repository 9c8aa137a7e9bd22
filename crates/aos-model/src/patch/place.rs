//! Finds the place of a hunk in a file, says whether there is another one, and explains why there is none.

use std::borrow::Cow;

use super::parse::quote;
use super::seek::{Effort, Found, Near, Rung, seek, seek_end};
use super::text::Text;
use super::{Hunk, HunkLine};

/// Where a hunk goes.
#[derive(Debug)]
pub(super) struct Place<'h> {
    /// The offset of its first line, or where its lines are to be inserted.
    pub(super) at: usize,
    /// The offset below its `@@` lines, above which the next hunk cannot be.
    pub(super) floor: usize,
    /// The loosest rung that was needed.
    pub(super) rung: Rung,
    /// The lines of the hunk, as far as the file has them.
    pub(super) lines: Cow<'h, [HunkLine]>,
    /// The offset of the first line that was sought: an `@@` line or a line of the hunk.
    first: Option<usize>,
}

/// What was sought in vain, and below which offset.
#[derive(Debug)]
pub(super) enum Miss<'h> {
    Hint { hint: &'h str, from: usize },
    Lines { near: Near, from: usize },
}

/// Searches one file for the places of hunks.
#[derive(Debug)]
pub(super) struct Places<'t, 'e> {
    pub(super) text: Text<'t>,
    pub(super) effort: &'e mut Effort,
}

impl Places<'_, '_> {
    /// The first place for `hunk` at or below `from`.
    pub(super) fn find<'h>(&mut self, hunk: &'h Hunk, from: usize) -> Result<Place<'h>, Miss<'h>> {
        self.find_within(hunk, from, Rung::Punctuation)
    }

    /// The offset of a second place that fits `hunk` as well as `place` does, if it matters.
    pub(super) fn twin(&mut self, hunk: &Hunk, place: &Place<'_>) -> Option<usize> {
        let changes = place.lines.iter().any(|line| !matches!(line, HunkLine::Keep(_)));
        if hunk.end_of_file || !changes || !self.effort.is_careful() {
            return None;
        }
        let below = self.text.skip(place.first?, 1);
        let twin = self.find_within(hunk, below, place.rung).ok()?;
        (twin.at != place.at && twin.lines.len() == place.lines.len()).then_some(twin.at)
    }

    fn find_within<'h>(&mut self, hunk: &'h Hunk, from: usize, loosest: Rung) -> Result<Place<'h>, Miss<'h>> {
        let lines = Cow::Borrowed(hunk.lines.as_slice());
        let mut place = Place { at: from, floor: from, rung: Rung::Exact, lines, first: None };
        for hint in &hunk.hints {
            let found = seek(self.text, &[hint], place.floor, loosest, self.effort)
                .map_err(|_| Miss::Hint { hint, from: place.floor })?;
            place.saw(found);
            place.floor = self.text.skip(found.at, 1);
        }
        if old_lines(&hunk.lines).is_empty() {
            let at_end = hunk.hints.is_empty() || hunk.end_of_file;
            place.at = if at_end { self.text.bytes.len() } else { place.floor };
            return Ok(place);
        }
        let near = match self.find_lines(hunk, &hunk.lines, place.floor, loosest) {
            Ok(found) => {
                place.saw(found);
                return Ok(place);
            }
            Err(near) => near,
        };
        // An empty last line often only stands for the end of the line above it.
        let miss = Miss::Lines { near, from: place.floor };
        let Some(lines) = without_final_blank(&hunk.lines) else { return Err(miss) };
        if old_lines(&lines).is_empty() {
            place.at = place.floor;
        } else {
            let found = self.find_lines(hunk, &lines, place.floor, loosest).map_err(|_| miss)?;
            place.saw(found);
        }
        place.lines = Cow::Owned(lines);
        Ok(place)
    }

    fn find_lines(
        &mut self,
        hunk: &Hunk,
        lines: &[HunkLine],
        from: usize,
        loosest: Rung,
    ) -> Result<Found, Near> {
        let old = old_lines(lines);
        if hunk.end_of_file {
            return seek_end(self.text, &old, from, loosest).ok_or(Near { at: from, lines: 0 });
        }
        seek(self.text, &old, from, loosest, self.effort)
    }

    /// Why `hunk` has no place, as the middle of a sentence.
    pub(super) fn explain(&mut self, hunk: &Hunk, miss: &Miss<'_>) -> String {
        match *miss {
            Miss::Hint { hint, from } => {
                let sought = format!(
                    "its line {} is not in the file{}",
                    quote(&format!("@@ {hint}")),
                    self.below(from)
                );
                match self.seek_above(&[hint], from) {
                    Some(number) => format!("{sought}, only at line {number}"),
                    None => sought,
                }
            }
            Miss::Lines { near, from } => {
                let old = old_lines(&hunk.lines);
                if hunk.end_of_file {
                    self.explain_end(&old, from)
                } else {
                    self.explain_lines(&old, near, from)
                }
            }
        }
    }

    fn explain_end(&mut self, old: &[&str], from: usize) -> String {
        match self.seek_all(old, from) {
            Ok(found) => {
                let number = self.text.number(found.at);
                format!(
                    "its lines stand at line {number}, which is not where the file ends, \
                     as `*** End of File` says"
                )
            }
            Err(near) => self.explain_lines(old, near, from),
        }
    }

    fn explain_lines(&mut self, old: &[&str], near: Near, from: usize) -> String {
        if let Some(number) = self.seek_above(old, from) {
            return format!(
                "its lines stand at line {number}, but are sought{}, \
                 where the `@@` line or hunk before them ends",
                self.below(from)
            );
        }
        let missing = quote(old[near.lines]);
        if near.lines == 0 {
            return format!("there is no line {missing}{}", self.below(from));
        }
        let number = self.text.number(near.at) + near.lines;
        let there = match self.text.line(self.text.skip(near.at, near.lines)) {
            Some(line) => format!("{} stands", quote(&String::from_utf8_lossy(self.text.show(line)))),
            None => "the file ends".into(),
        };
        format!("it expects {missing} at line {number}, where {there}")
    }

    /// The number of the line above `from` where `lines` stand.
    fn seek_above(&mut self, lines: &[&str], from: usize) -> Option<usize> {
        if from == 0 {
            return None;
        }
        self.seek_all(lines, 0).ok().map(|found| self.text.number(found.at))
    }

    fn seek_all(&mut self, lines: &[&str], from: usize) -> Result<Found, Near> {
        seek(self.text, lines, from, Rung::Punctuation, self.effort)
    }

    fn below(&self, from: usize) -> String {
        if from == 0 { String::new() } else { format!(" below line {}", self.text.number(from) - 1) }
    }
}

impl Place<'_> {
    fn saw(&mut self, found: Found) {
        self.first.get_or_insert(found.at);
        self.at = found.at;
        self.rung = self.rung.max(found.rung);
    }
}

fn old_lines(lines: &[HunkLine]) -> Vec<&str> {
    lines.iter().filter_map(HunkLine::old).collect()
}

/// The hunk without an empty last line on its old side, and on its new side if that ends in one it brings.
fn without_final_blank(lines: &[HunkLine]) -> Option<Vec<HunkLine>> {
    let last = lines.iter().rposition(|line| line.old().is_some())?;
    if !lines[last].text().is_empty() {
        return None;
    }
    let mut lines = lines.to_vec();
    match lines[last] {
        // The file does not have it, so what comes after it needs it brought.
        HunkLine::Keep(_) => lines[last] = HunkLine::Insert(String::new()),
        HunkLine::Remove(_) | HunkLine::Insert(_) => drop(lines.remove(last)),
    }
    let last_new = lines.iter().rposition(|line| !matches!(line, HunkLine::Remove(_)));
    if let Some(last) = last_new.filter(|last| lines[*last] == HunkLine::Insert(String::new())) {
        lines.remove(last);
    }
    Some(lines)
}
