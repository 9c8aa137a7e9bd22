//! Lines of a text: their offsets and their line ends.

use std::borrow::Cow;

/// One line: `body` is its text without the line end, `end` is the offset of the next line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) start: usize,
    pub(super) body: &'a str,
    pub(super) end: usize,
}

/// The lines of a text in order. A byte-order mark is not part of the first line.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let bom_bytes = text.len() - without_bom(text).len();
    let mut start = bom_bytes;
    text[bom_bytes..].split_inclusive('\n').map(move |whole| {
        let line = Line { start, body: without_line_end(whole), end: start + whole.len() };
        start = line.end;
        line
    })
}

pub(super) fn without_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

pub(super) fn without_line_end(text: &str) -> &str {
    text.strip_suffix('\n').map_or(text, |body| body.strip_suffix('\r').unwrap_or(body))
}

/// The line numbers, from 1, of `places`, which are in ascending order.
pub(super) fn numbers(text: &str, places: impl Iterator<Item = usize>) -> Vec<usize> {
    let (mut number, mut counted) = (1, 0);
    places
        .map(|place| {
            number += memchr::memchr_iter(b'\n', &text.as_bytes()[counted..place]).count();
            counted = place;
            number
        })
        .collect()
}

/// The line ends of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnds {
    None,
    Lf,
    Crlf,
    Mixed,
}

impl LineEnds {
    pub(super) fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut found = Self::None;
        for at in memchr::memchr_iter(b'\n', bytes) {
            let this = if bytes[..at].ends_with(b"\r") { Self::Crlf } else { Self::Lf };
            if found == Self::None {
                found = this;
            } else if found != this {
                return Self::Mixed;
            }
        }
        found
    }

    /// The text with these line ends; unchanged for `None` and `Mixed`.
    pub(super) fn write(self, text: Cow<'_, str>) -> Cow<'_, str> {
        match (self, Self::of(&text)) {
            (Self::Lf, Self::Crlf | Self::Mixed) => Cow::Owned(to_lf(&text).into_owned()),
            (Self::Crlf, Self::Lf | Self::Mixed) => Cow::Owned(to_lf(&text).replace('\n', "\r\n")),
            _ => text,
        }
    }
}

pub(super) fn to_lf(text: &str) -> Cow<'_, str> {
    match memchr::memmem::find(text.as_bytes(), b"\r\n") {
        Some(_) => Cow::Owned(text.replace("\r\n", "\n")),
        None => Cow::Borrowed(text),
    }
}
