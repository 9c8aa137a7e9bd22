//! Folding: which characters count as equal when white space, or also punctuation, is ignored.

/// ASCII white space becomes a space; everything else stays.
pub(super) fn blank(c: char) -> char {
    if c.is_ascii_whitespace() { ' ' } else { c }
}

/// Like [`blank`], and typographic quotes, dashes and spaces become those of ASCII.
pub(super) fn punctuation(c: char) -> char {
    match c {
        c if c.is_ascii() => blank(c),
        '\u{2018}'..='\u{201b}' | '‹' | '›' => '\'',
        '\u{201c}'..='\u{201f}' | '«' | '»' => '"',
        // Hyphen to horizontal bar, minus, and the small and full-width forms.
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => '-',
        c if c.is_whitespace() => ' ',
        c => c,
    }
}

/// Reads a line with each run of blanks as one space. The edges of a line count as blank, with or without white space
/// there, so a line reads ` like this `. Each character comes with the offset in the line at which it ends.
pub(super) fn read(line: &str, fold: impl Fn(char) -> char + Copy) -> impl Iterator<Item = (char, usize)> {
    let mut at = 0;
    let mut last = None;
    std::iter::from_fn(move || {
        let rest = &line[at..];
        let next = rest.chars().next();
        let c = match (last, next.map_or(' ', fold)) {
            (None, _) => ' ',
            (Some(' '), ' ') => return None, // runs are read whole, so this is the edge after one
            (Some(_), c) => c,
        };
        at += match (c, next) {
            (' ', _) => rest.find(|c| fold(c) != ' ').unwrap_or(rest.len()),
            (_, next) => next.map_or(0, char::len_utf8),
        };
        last = Some(c);
        Some((c, at))
    })
}

/// A line as [`read`] returns it, in a reused buffer.
pub(super) fn read_into<'b>(
    buffer: &'b mut String,
    line: &str,
    fold: impl Fn(char) -> char + Copy,
) -> &'b str {
    buffer.clear();
    buffer.extend(read(line, fold).map(|(c, _)| c));
    buffer
}

/// A piece of a line as [`read`] returns it, but without blanks at edges where the piece has none.
pub(super) fn piece(piece: &str, fold: impl Fn(char) -> char + Copy) -> String {
    let mut key: String = read(piece, fold).map(|(c, _)| c).collect();
    if !piece.ends_with(|c| fold(c) == ' ') {
        key.pop();
    }
    if !piece.starts_with(|c| fold(c) == ' ') {
        key.remove(0);
    }
    key
}
