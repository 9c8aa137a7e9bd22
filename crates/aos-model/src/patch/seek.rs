//! Finds a run of lines in a file, in four rungs from exact to forgiving, in linear time.
//!
//! A rung is tried on the whole file only when those above it found nothing, so that a forgiving match never
//! wins over a strict one. Each is a Knuth-Morris-Pratt search whose letters are lines: a file of identical lines
//! costs no more than any other. While nothing has matched yet, a substring search leaps to the next line that
//! may be the first; on ordinary files that is nearly all of the way.

use std::borrow::Cow;

use memchr::memmem::Finder;

use super::text::{Line, Text};

/// How two lines are compared. Later ones forgive more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rung {
    Exact,
    /// Trailing white space is ignored.
    TrailingSpace,
    /// Surrounding white space is ignored.
    Indentation,
    /// And typographic dashes, quotes and spaces equal the plain ones.
    Punctuation,
}

impl Rung {
    const ALL: [Rung; 4] = [Rung::Exact, Rung::TrailingSpace, Rung::Indentation, Rung::Punctuation];

    /// What is left of a line to compare; `None` if it is no text, and so equal to nothing.
    fn normalise(self, line: &[u8]) -> Option<Cow<'_, [u8]>> {
        if self == Rung::Exact {
            return Some(Cow::Borrowed(line));
        }
        let line = std::str::from_utf8(line).ok()?;
        Some(match self {
            Rung::Exact | Rung::TrailingSpace => Cow::Borrowed(line.trim_end().as_bytes()),
            Rung::Indentation => Cow::Borrowed(line.trim().as_bytes()),
            Rung::Punctuation if line.is_ascii() => Cow::Borrowed(line.trim().as_bytes()),
            Rung::Punctuation => Cow::Owned(line.trim().chars().map(plain).collect::<String>().into_bytes()),
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

/// Where a run of lines stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) at: usize,
    pub(super) rung: Rung,
}

/// The place where the longest head of a run stands, when the whole stands nowhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Near {
    pub(super) at: usize,
    /// How many lines of the run stand there.
    pub(super) lines: usize,
}

/// How much a patch has searched, in bytes leapt over. One search is linear, but a hostile patch brings many.
#[derive(Debug, Default)]
pub(super) struct Effort {
    bytes: u64,
}

impl Effort {
    /// Past this, places are no longer checked for a twin, which serves a warning only.
    const BYTES_CAREFUL_MAX: u64 = 1 << 30;
    /// Past this, the patch is refused: some seconds. Forty misquoted hunks on a file of 64 MiB stay below.
    const BYTES_MAX: u64 = 8 << 30;
    /// A line that is looked at takes about as long as this many bytes that are leapt over.
    const BYTES_PER_LINE: u64 = 64;

    pub(super) fn is_careful(&self) -> bool {
        self.bytes < Self::BYTES_CAREFUL_MAX
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.bytes >= Self::BYTES_MAX
    }

    #[cfg(test)]
    pub(super) fn spent() -> Self {
        Effort { bytes: Self::BYTES_MAX }
    }

    fn add(&mut self, bytes: usize, lines: u64) {
        self.bytes += bytes as u64 + lines * Self::BYTES_PER_LINE;
    }
}

/// The first place at or after `from` where `lines` stand, by the strictest rung that has one, none looser
/// than `loosest`. `lines` is not empty.
pub(super) fn seek(
    text: Text<'_>,
    lines: &[&str],
    from: usize,
    loosest: Rung,
    effort: &mut Effort,
) -> Result<Found, Near> {
    let mut near = Near { at: from, lines: 0 };
    for rung in Rung::ALL.into_iter().take_while(|rung| *rung <= loosest) {
        match Run::new(lines, rung).find(text, from, effort) {
            Ok(at) => return Ok(Found { at, rung }),
            Err(nearest) => near = nearest,
        }
    }
    Err(near)
}

/// As [`seek`], but only where `lines` are the last of the file.
pub(super) fn seek_end(text: Text<'_>, lines: &[&str], from: usize, loosest: Rung) -> Option<Found> {
    let above = text.lines(from).count().checked_sub(lines.len())?;
    let at = text.skip(from, above);
    let stands = |rung: &Rung| {
        text.lines(at).zip(lines).all(|(line, wanted)| {
            let (shown, wanted) = (rung.normalise(text.show(line)), rung.normalise(wanted.as_bytes()));
            shown.zip(wanted).is_some_and(|(shown, wanted)| same(&shown, &wanted))
        })
    };
    Rung::ALL.into_iter().take_while(|rung| *rung <= loosest).find(stands).map(|rung| Found { at, rung })
}

/// The lines sought, as one rung sees them.
struct Run<'p> {
    rung: Rung,
    lines: Vec<Cow<'p, [u8]>>,
    /// For each line, how many lines at the start of the run are also the last ones up to and with it.
    borders: Vec<usize>,
    /// Finds lines that may be the first: they hold its text. Folding changes text, so not on the last rung.
    leap: Option<Finder<'p>>,
}

impl<'p> Run<'p> {
    fn new(lines: &[&'p str], rung: Rung) -> Self {
        let first = lines[0].trim();
        let leap = (rung < Rung::Punctuation && !first.is_empty()).then(|| Finder::new(first));
        let lines: Vec<_> = lines.iter().filter_map(|line| rung.normalise(line.as_bytes())).collect();
        let borders = borders(&lines);
        Run { rung, lines, borders, leap }
    }

    fn find(&self, text: Text<'_>, from: usize, effort: &mut Effort) -> Result<usize, Near> {
        let mut near = Near { at: from, lines: 0 };
        // The lines seen last equal the first `matched` ones of the run; they begin at `start`.
        let (mut start, mut matched, mut at) = (from, 0, from);
        while let Some(line) = self.next(text, at, matched) {
            effort.add(line.next - at, 1);
            if matched == 0 {
                start = line.start;
            }
            let shown = self.rung.normalise(text.show(line));
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
            if matched > near.lines {
                near = Near { at: start, lines: matched };
            }
            at = line.next;
        }
        effort.add(text.bytes.len().saturating_sub(at), 0);
        Err(near)
    }

    /// The line at `at`, or, where any line may begin the run, the next one that looks like its first.
    fn next(&self, text: Text<'_>, at: usize, matched: usize) -> Option<Line> {
        match &self.leap {
            Some(leap) if matched == 0 => {
                let hit = leap.find(text.bytes.get(at..)?)?;
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

/// Equality of bytes. Empty ones are seen to first: they may point nowhere, and some vectorised comparisons fault
/// on that before they notice, which makes a file of empty lines ten times slower.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && (a.is_empty() || a == b)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sought(file: &str, lines: &[&str], from: usize) -> Option<(usize, Rung)> {
        let text = Text::new(file.as_bytes(), &[]);
        let found = seek(text, lines, text.skip(0, from), Rung::Punctuation, &mut Effort::default()).ok()?;
        Some((text.number(found.at) - 1, found.rung))
    }

    /// The same by trying every place.
    fn tried(file: &str, lines: &[&str], from: usize) -> Option<(usize, Rung)> {
        let all: Vec<&str> = file.lines().collect();
        Rung::ALL.into_iter().find_map(|rung| {
            let same = |(a, b): (&&str, &&str)| rung.normalise(a.as_bytes()) == rung.normalise(b.as_bytes());
            let fits = |at: &usize| all[*at..].iter().zip(lines).all(same);
            (from..=all.len().checked_sub(lines.len())?).find(fits).map(|at| (at, rung))
        })
    }

    #[test]
    fn each_rung_forgives_more() {
        for (file, line, rung) in [
            ("a b", "a b", Some(Rung::Exact)),
            ("a b \t", "a b", Some(Rung::TrailingSpace)),
            ("a b", "a b\u{a0}", Some(Rung::TrailingSpace)),
            ("  a b", "\ta b ", Some(Rung::Indentation)),
            ("a\u{a0}– “b” ‘c’ −1", "a - \"b\" 'c' -1", Some(Rung::Punctuation)),
            ("a  b", "a b", None),
            ("A b", "a b", None),
        ] {
            assert_eq!(sought(file, &[line], 0).map(|(_, rung)| rung), rung, "{file:?} {line:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_equal_nothing() {
        let text = Text::new(b"\xff\n a\n", &[]);
        let found = seek(text, &["a"], 0, Rung::Punctuation, &mut Effort::default());
        assert_eq!(found.map(|found| found.at).ok(), Some(2));
        assert!(seek(text, &["\u{fffd}"], 0, Rung::Punctuation, &mut Effort::default()).is_err());
    }

    #[test]
    fn the_nearest_place_is_where_most_lines_stand() {
        let text = Text::new(b"a\nb\nx\na\nb\nc\nx\na\n", &[]);
        let near = seek(text, &["a", "b", "c", "d"], 0, Rung::Punctuation, &mut Effort::default());
        assert_eq!(near.map_err(|near| (near.at, near.lines)).err(), Some((6, 3)));
    }

    fn lines(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<&'static str>> {
        prop::collection::vec(
            prop::sample::select(vec!["a", "a", "b", " a", "a ", "", " ", "—", "-", "ba"]),
            count,
        )
    }

    proptest! {
        #[test]
        fn finds_what_trying_every_place_finds(file in lines(0..30), run in lines(1..5), from in 0usize..4) {
            let file: String = file.iter().map(|line| format!("{line}\n")).collect();
            let from = from.min(file.lines().count());
            prop_assert_eq!(sought(&file, &run, from), tried(&file, &run, from));
        }
    }
}
