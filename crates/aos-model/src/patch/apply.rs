//! Applies the hunks of one Update to the bytes of one file.
//!
//! What the hunks do not change stays byte for byte: kept lines, line ends, a BOM, a missing final line end.

use super::place::{Place, Places};
use super::seek::{Leniency, SearchCost};
use super::text::Text;
use super::{Hunk, HunkLine};

/// The result of an Update.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) bytes: Vec<u8>,
    /// One sentence for each hunk that matched at a second place too.
    pub(super) ambiguous: Vec<String>,
}

/// Why an Update cannot be applied.
#[derive(Debug)]
pub(super) enum HunkError {
    /// A hunk matches nowhere; the message.
    Context(String),
    /// The search cost of the patch is over its limit.
    Exhausted,
}

/// How many more warnings and errors are reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReportLimits {
    pub(super) warnings: usize,
    pub(super) errors: usize,
}

/// Replaces the bytes `start..end` by whole lines.
struct Edit {
    start: usize,
    end: usize,
    lines: Vec<u8>,
}

/// Applies `hunks`, each below the one before it, or returns an error for each that does not apply.
pub(super) fn apply(
    path: &str,
    file: &[u8],
    hunks: &[Hunk],
    limits: ReportLimits,
    cost: &mut SearchCost,
) -> Result<Applied, Vec<HunkError>> {
    let text = Text::new(file, hunks);
    let mut places = Places { text, cost };
    let (mut edits, mut ambiguous, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut from = 0;
    for (index, hunk) in hunks.iter().enumerate() {
        if errors.len() >= limits.errors {
            break;
        }
        if places.cost.is_exhausted() {
            errors.push(HunkError::Exhausted);
            break;
        }
        let name = || format!("{path}: hunk {} (line {} of the patch)", index + 1, hunk.line_number);
        match places.find(hunk, from) {
            Ok(place) => {
                if ambiguous.len() < limits.warnings
                    && let Some(second) = places.second_match(hunk, &place)
                {
                    ambiguous.push(two_places(&name(), text, place.at, second));
                }
                from = edit(text, &place, &mut edits);
            }
            Err(not_found) => {
                let why = places.explain(hunk, &not_found);
                errors.push(HunkError::Context(format!(
                    "{} does not apply: {why}. Read the file again and copy the context lines from it.",
                    name()
                )));
            }
        }
    }
    if errors.is_empty() { Ok(Applied { bytes: assemble(text, edits), ambiguous }) } else { Err(errors) }
}

fn two_places(name: &str, text: Text<'_>, first: usize, second: usize) -> String {
    format!(
        "{name} matches at lines {} and {}; the first was used. \
         Add context lines or an `@@` line to distinguish them.",
        text.number(first),
        text.number(second)
    )
}

/// Turns a hunk at its place into edits, and returns the offset at which the next hunk may begin.
fn edit(text: Text<'_>, place: &Place<'_>, edits: &mut Vec<Edit>) -> usize {
    let shift = Shift::of(text, place);
    let mut at = place.at;
    let mut open = Edit { start: at, end: at, lines: Vec::new() };
    for line in &*place.lines {
        match line {
            HunkLine::Keep(_) => {
                at = text.skip(at, 1);
                close(edits, std::mem::replace(&mut open, Edit { start: at, end: at, lines: Vec::new() }));
            }
            HunkLine::Remove(_) => {
                at = text.skip(at, 1);
                open.end = at;
            }
            HunkLine::Insert(added) => {
                shift.write(added, &mut open.lines);
                open.lines.extend_from_slice(text.line_end);
            }
        }
    }
    close(edits, open);
    // A hunk that only adds lines at the end of the file does not move the start of later hunks.
    if place.lines.iter().all(|line| line.old().is_none()) { place.floor } else { at }
}

fn close(edits: &mut Vec<Edit>, edit: Edit) {
    if edit.start < edit.end || !edit.lines.is_empty() {
        edits.push(edit);
    }
}

fn assemble(text: Text<'_>, mut edits: Vec<Edit>) -> Vec<u8> {
    // Only additions at the end can be out of order. The sort is stable, so those keep their order.
    edits.sort_by_key(|edit| edit.start);
    let added: usize = edits.iter().map(|edit| edit.lines.len()).sum();
    let mut out = Vec::with_capacity(text.prefix.len() + text.bytes.len() + added + 2);
    out.extend_from_slice(text.prefix);
    let mut at = 0;
    for edit in edits {
        out.extend_from_slice(&text.bytes[at..edit.start]);
        if !edit.lines.is_empty() && !text.is_ended(&out[text.prefix.len()..]) {
            out.extend_from_slice(text.line_end);
        }
        out.extend_from_slice(&edit.lines);
        at = edit.end;
    }
    out.extend_from_slice(&text.bytes[at..]);
    out
}

/// How the indentation of the file differs from that of the hunk: a line that begins with `hunk` in the patch begins with
/// `file` in the file. The default changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Shift<'a> {
    hunk: &'a str,
    file: &'a str,
}

impl<'a> Shift<'a> {
    /// The shift that all lines of a hunk share. If they share none, inserted lines stay as written.
    fn of(text: Text<'a>, place: &'a Place<'_>) -> Self {
        if place.leniency < Leniency::Indentation {
            return Shift::default();
        }
        let wanted = place.lines.iter().filter_map(HunkLine::old);
        let mut shifts = text
            .lines(place.at)
            .zip(wanted)
            .filter_map(|(line, wanted)| Some((wanted, std::str::from_utf8(text.show(line)).ok()?)))
            .filter(|(wanted, _)| !wanted.trim().is_empty())
            .map(|(wanted, found)| Shift::between(indentation(wanted), indentation(found)));
        let Some(first) = shifts.next() else { return Shift::default() };
        if shifts.all(|shift| shift == first) { first } else { Shift::default() }
    }

    /// What differs before the common end of both.
    fn between(hunk: &'a str, file: &'a str) -> Self {
        let ends = hunk.chars().rev().zip(file.chars().rev());
        let shared: usize = ends.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
        Shift { hunk: &hunk[..hunk.len() - shared], file: &file[..file.len() - shared] }
    }

    fn write(self, line: &str, out: &mut Vec<u8>) {
        match line.strip_prefix(self.hunk) {
            Some(rest) if !line.trim().is_empty() => {
                out.extend_from_slice(self.file.as_bytes());
                out.extend_from_slice(rest.as_bytes());
            }
            _ => out.extend_from_slice(line.as_bytes()),
        }
    }
}

fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_is_the_difference_before_the_common_end() {
        for (hunk, file, line, written) in [
            ("", "", "x", "x"),
            ("", "  ", "  x", "    x"),
            ("  ", "    ", "    x", "      x"),
            ("    ", "  ", "      x", "    x"),
            ("    ", "  ", " x", " x"),
            ("    ", "\t", "    x", "\tx"),
            ("  ", "\t  ", "x", "\tx"),
            ("", "  ", "", ""),
            ("", "  ", " \t", " \t"),
            ("\u{2003}", "\u{3000}", "\u{2003}é", "\u{3000}é"),
        ] {
            let mut out = Vec::new();
            Shift::between(hunk, file).write(line, &mut out);
            assert_eq!(String::from_utf8(out).as_deref(), Ok(written), "{hunk:?} {file:?} {line:?}");
        }
    }

    #[test]
    fn a_patch_over_its_search_cost_is_refused() {
        let hunk = Hunk {
            hints: Vec::new(),
            lines: vec![HunkLine::Remove("a".into())],
            end_of_file: false,
            line_number: 1,
        };
        let limits = ReportLimits { warnings: 1, errors: 1 };
        let errors = apply("a", b"a", &[hunk], limits, &mut SearchCost::exhausted()).expect_err("refused");
        assert!(matches!(errors[..], [HunkError::Exhausted]));
    }
}
