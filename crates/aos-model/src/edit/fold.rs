//! Which characters count as the same when blanks, or punctuation as well, are not told apart.

/// White space as programs write it is a space; everything else is itself.
pub(super) fn blank(c: char) -> char {
    if c.is_ascii_whitespace() { ' ' } else { c }
}

/// As [`blank`], and the typographic quotes, dashes and spaces are those of ASCII.
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

/// Reads a line with each run of blanks as one space. The edges of a line count as blank, whether or not white
/// space stands there, so a line reads ` like this `. With each character comes where in the line it ends.
pub(super) fn read(line: &str, fold: impl Fn(char) -> char + Copy) -> impl Iterator<Item = (char, usize)> {
    let mut at = 0;
    let mut last = None;
    std::iter::from_fn(move || {
        let rest = &line[at..];
        let next = rest.chars().next();
        let c = match (last, next.map_or(' ', fold)) {
            (None, _) => ' ',
            (Some(' '), ' ') => return None, // a run is read whole, so this is the edge after it
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

/// A line as [`read`] gives it, in a buffer to be used again.
pub(super) fn read_into<'b>(
    buffer: &'b mut String,
    line: &str,
    fold: impl Fn(char) -> char + Copy,
) -> &'b str {
    buffer.clear();
    buffer.extend(read(line, fold).map(|(c, _)| c));
    buffer
}

/// A piece of a line as [`read`] gives it, where only what stands in the piece is blank.
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
