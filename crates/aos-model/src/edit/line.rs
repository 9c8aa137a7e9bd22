//! Lines of a text, where they stand in it, and what ends them.

use std::borrow::Cow;

/// One line: `body` is what stands before its line end, `end` is where the next one starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) start: usize,
    pub(super) body: &'a str,
    pub(super) end: usize,
}

/// The lines of a text in order. A byte-order mark belongs to none, so it does not hide the first.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let marked = text.len() - without_bom(text).len();
    let mut start = marked;
    text[marked..].split_inclusive('\n').map(move |whole| {
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

/// The numbers, from 1, of the lines in which the places stand; the places come in order.
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

/// What ends the lines of a text.
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

    /// The text with these line ends; as it is where they do not say which.
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
