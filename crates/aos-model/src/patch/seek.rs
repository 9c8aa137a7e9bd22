//! Finds a sequence of lines in a file, in linear time, with four degrees of leniency.
//!
//! The degrees and their order are those of Codex. A more lenient one is tried only if the stricter ones found nothing
//! in the whole file, so a lenient match never wins over a strict one. Each search is Knuth-Morris-Pratt over lines, so
//! a file of identical lines costs no more than any other. While nothing matches, a substring search skips to the next
//! line that may be the first one; on ordinary files this covers nearly the whole file.

use std::borrow::Cow;

use memchr::memmem::Finder;

use super::text::{Line, Text};

/// How two lines are compared. Later degrees ignore more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Leniency {
    Exact,
    /// Trailing white space is ignored.
    TrailingSpace,
    /// Surrounding white space is ignored.
    Indentation,
    /// Also, typographic dashes, quotes and spaces equal those of ASCII.
    Punctuation,
}

impl Leniency {
    const ALL: [Leniency; 4] =
        [Leniency::Exact, Leniency::TrailingSpace, Leniency::Indentation, Leniency::Punctuation];

    /// The part of a line that is compared; `None` if it is not UTF-8 and so equals nothing.
    fn normalise(self, line: &[u8]) -> Option<Cow<'_, [u8]>> {
        if self == Leniency::Exact {
            return Some(Cow::Borrowed(line));
        }
        let line = std::str::from_utf8(line).ok()?;
        Some(match self {
            Leniency::Exact | Leniency::TrailingSpace => Cow::Borrowed(line.trim_end().as_bytes()),
            Leniency::Indentation => Cow::Borrowed(line.trim().as_bytes()),
            Leniency::Punctuation if line.is_ascii() => Cow::Borrowed(line.trim().as_bytes()),
            Leniency::Punctuation => {
                Cow::Owned(line.trim().chars().map(plain).collect::<String>().into_bytes())
            }
        })
    }
}

fn plain(character: char) -> char {
    match character {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    }
}

/// Where the lines were found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) at: usize,
    pub(super) leniency: Leniency,
}

/// The place that matches the most leading lines, if no place matches all.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartialMatch {
    pub(super) at: usize,
    /// How many lines match there.
    pub(super) lines: usize,
}

/// The search cost of a patch so far, in bytes skipped. One search is linear, but a hostile patch needs many.
#[derive(Debug, Default)]
pub(super) struct SearchCost {
    bytes: u64,
}

impl SearchCost {
    /// Above this, hunks are no longer checked for a second match, which only serves a warning.
    const BYTES_WARNINGS_MAX: u64 = 1 << 30;
    /// Above this, after some seconds, the patch is refused. Forty misquoted hunks on a file of 64 MiB stay below.
    const BYTES_MAX: u64 = 8 << 30;
    /// Comparing a line takes about as long as skipping this many bytes.
    const BYTES_PER_LINE: u64 = 64;

    pub(super) fn skips_warnings(&self) -> bool {
        self.bytes >= Self::BYTES_WARNINGS_MAX
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.bytes >= Self::BYTES_MAX
    }

    #[cfg(test)]
    pub(super) fn exhausted() -> Self {
        SearchCost { bytes: Self::BYTES_MAX }
    }

    fn add(&mut self, bytes: usize, lines: u64) {
        self.bytes += bytes as u64 + lines * Self::BYTES_PER_LINE;
    }
}

/// The first place of `lines` at or after `from`, with the strictest degree that finds one, up to `loosest`. `lines` is
/// not empty.
pub(super) fn seek(
    text: Text<'_>,
    lines: &[&str],
    from: usize,
    loosest: Leniency,
    cost: &mut SearchCost,
) -> Result<Found, PartialMatch> {
    let mut partial = PartialMatch { at: from, lines: 0 };
    for leniency in Leniency::ALL.into_iter().take_while(|leniency| *leniency <= loosest) {
        match LinePattern::new(lines, leniency).find(text, from, cost) {
            Ok(at) => return Ok(Found { at, leniency }),
            Err(longest) => partial = longest,
        }
    }
    Err(partial)
}

/// Like [`seek`], but only where `lines` are the last of the file.
pub(super) fn seek_end(text: Text<'_>, lines: &[&str], from: usize, loosest: Leniency) -> Option<Found> {
    let above = text.lines(from).count().checked_sub(lines.len())?;
    let at = text.skip(from, above);
    let matches = |leniency: &Leniency| {
        text.lines(at).zip(lines).all(|(line, wanted)| {
            let (shown, wanted) =
                (leniency.normalise(text.show(line)), leniency.normalise(wanted.as_bytes()));
            shown.zip(wanted).is_some_and(|(shown, wanted)| same(&shown, &wanted))
        })
    };
    Leniency::ALL
        .into_iter()
        .take_while(|leniency| *leniency <= loosest)
        .find(matches)
        .map(|leniency| Found { at, leniency })
}

/// The searched lines, normalised for one degree of leniency.
struct LinePattern<'p> {
    leniency: Leniency,
    lines: Vec<Cow<'p, [u8]>>,
    /// The failure table of Knuth-Morris-Pratt: for each line, how many lines up to it equal the first lines.
    borders: Vec<usize>,
    /// Finds lines that may be the first one: they contain its text. Not for `Punctuation`, which changes the text.
    prefilter: Option<Finder<'p>>,
}

impl<'p> LinePattern<'p> {
    fn new(lines: &[&'p str], leniency: Leniency) -> Self {
        let first = lines[0].trim();
        let prefilter = (leniency < Leniency::Punctuation && !first.is_empty()).then(|| Finder::new(first));
        let lines: Vec<_> = lines.iter().filter_map(|line| leniency.normalise(line.as_bytes())).collect();
        let borders = borders(&lines);
        LinePattern { leniency, lines, borders, prefilter }
    }

    fn find(&self, text: Text<'_>, from: usize, cost: &mut SearchCost) -> Result<usize, PartialMatch> {
        let mut partial = PartialMatch { at: from, lines: 0 };
        // The last lines equal the first `matched` lines of the pattern; they begin at `start`.
        let (mut start, mut matched, mut at) = (from, 0, from);
        while let Some(line) = self.next(text, at, matched) {
            cost.add(line.next - at, 1);
            if matched == 0 {
                start = line.start;
            }
            let shown = self.leniency.normalise(text.show(line));
            let fits = |matched: usize| shown.as_ref().is_some_and(|shown| same(shown, &self.lines[matched]));
            while matched > 0 && !fits(matched) {
                let kept = self.borders[matched - 1];
                start = text.skip(start, matched - kept);
                matched = kept;
            }
            matched += usize::from(fits(matched));
            if matched == self.lines.len() {
                return Ok(start);
            }
            if matched > partial.lines {
                partial = PartialMatch { at: start, lines: matched };
            }
            at = line.next;
        }
        cost.add(text.bytes.len().saturating_sub(at), 0);
        Err(partial)
    }

    /// The line at `at`. While nothing matches, the next line that may be the first one.
    fn next(&self, text: Text<'_>, at: usize, matched: usize) -> Option<Line> {
        match &self.prefilter {
            Some(prefilter) if matched == 0 => {
                let hit = prefilter.find(text.bytes.get(at..)?)?;
                text.line(text.line_start(at, at + hit))
            }
            _ => text.line(at),
        }
    }
}

fn borders(lines: &[Cow<'_, [u8]>]) -> Vec<usize> {
    let mut borders = vec![0; lines.len()];
    let mut length = 0;
    for end in 1..lines.len() {
        while length > 0 && !same(&lines[length], &lines[end]) {
            length = borders[length - 1];
        }
        length += usize::from(same(&lines[length], &lines[end]));
        borders[end] = length;
    }
    borders
}

/// Compares bytes. Empty slices are handled first: their dangling pointer makes some vectorised `memcmp` fault
/// internally, which makes a file of empty lines ten times slower.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && (a.is_empty() || a == b)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(file: &str, lines: &[&str], from: usize) -> Option<(usize, Leniency)> {
        let text = Text::new(file.as_bytes(), &[]);
        let found =
            seek(text, lines, text.skip(0, from), Leniency::Punctuation, &mut SearchCost::default()).ok()?;
        Some((text.number(found.at) - 1, found.leniency))
    }

    /// The same by trying every place.
    fn found_naively(file: &str, lines: &[&str], from: usize) -> Option<(usize, Leniency)> {
        let all: Vec<&str> = file.lines().collect();
        Leniency::ALL.into_iter().find_map(|leniency| {
            let same =
                |(a, b): (&&str, &&str)| leniency.normalise(a.as_bytes()) == leniency.normalise(b.as_bytes());
            let fits = |at: &usize| all[*at..].iter().zip(lines).all(same);
            (from..=all.len().checked_sub(lines.len())?).find(fits).map(|at| (at, leniency))
        })
    }

    #[test]
    fn each_degree_ignores_more() {
        for (file, line, leniency) in [
            ("a b", "a b", Some(Leniency::Exact)),
            ("a b \t", "a b", Some(Leniency::TrailingSpace)),
            ("a b", "a b\u{a0}", Some(Leniency::TrailingSpace)),
            ("  a b", "\ta b ", Some(Leniency::Indentation)),
            ("a\u{a0}– “b” ‘c’ −1", "a - \"b\" 'c' -1", Some(Leniency::Punctuation)),
            ("a  b", "a b", None),
            ("A b", "a b", None),
        ] {
            assert_eq!(found(file, &[line], 0).map(|(_, leniency)| leniency), leniency, "{file:?} {line:?}");
        }
    }

    #[test]
    fn lines_that_are_not_utf8_equal_nothing() {
        let text = Text::new(b"\xff\n a\n", &[]);
        let found = seek(text, &["a"], 0, Leniency::Punctuation, &mut SearchCost::default());
        assert_eq!(found.map(|found| found.at).ok(), Some(2));
        assert!(seek(text, &["\u{fffd}"], 0, Leniency::Punctuation, &mut SearchCost::default()).is_err());
    }

    #[test]
    fn a_partial_match_has_the_most_lines() {
        let text = Text::new(b"a\nb\nx\na\nb\nc\nx\na\n", &[]);
        let partial = seek(text, &["a", "b", "c", "d"], 0, Leniency::Punctuation, &mut SearchCost::default());
        assert_eq!(partial.map_err(|partial| (partial.at, partial.lines)).err(), Some((6, 3)));
    }

    fn lines(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<&'static str>> {
        prop::collection::vec(
            prop::sample::select(vec!["a", "a", "b", " a", "a ", "", " ", "—", "-", "ba"]),
            count,
        )
    }

    proptest! {
        #[test]
        fn finds_the_same_as_trying_every_place(file in lines(0..30), run in lines(1..5), from in 0usize..4) {
            let file: String = file.iter().map(|line| format!("{line}\n")).collect();
            let from = from.min(file.lines().count());
            prop_assert_eq!(found(&file, &run, from), found_naively(&file, &run, from));
        }
    }
}
