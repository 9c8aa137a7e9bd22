//! Parses the text of a V4A patch into sections and hunks, exactly as leniently as Codex does.
//!
//! It accepts white space around the patch and after markers, a heredoc wrapper that no shell removed, CRLF line ends,
//! and an empty line in place of an empty context line.

use thiserror::Error;

use super::{FileOp, Hunk, HunkLine, Patch};

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";
const END_OF_FILE: &str = "*** End of File";
const HEREDOCS: [&str; 3] = ["<<EOF", "<<'EOF'", "<<\"EOF\""];

/// Why a text is not a patch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Nothing, or only white space.
    #[error("the patch is empty")]
    Empty,
    #[error("line {line} of the patch: {message}")]
    Malformed { line: usize, message: String },
}

/// Parses a patch.
///
/// ```
/// let text = "*** Begin Patch\n*** Add File: hello.txt\n+Hello\n*** End Patch\n";
/// let patch = aos_model::patch::parse(text).unwrap();
/// assert_eq!(patch.targets().next().unwrap().path, "hello.txt");
/// ```
pub fn parse(text: &str) -> Result<Patch, ParseError> {
    let Envelope { first_line, inner } = Envelope::open(text)?;
    let mut parser = Parser { files: Vec::new(), header_line: first_line, ended: false };
    let mut number = first_line;
    for line in inner.into_iter().flat_map(|inner| inner.split('\n')) {
        parser.line(number, line.trim_end_matches('\r'))?;
        number += 1;
    }
    parser.close()?;
    if parser.files.is_empty() {
        return malformed(
            number,
            "the patch names no file; write an Add, Delete or Update File section".into(),
        );
    }
    Ok(Patch { files: parser.files })
}

/// The text between Begin and End Patch.
struct Envelope<'a> {
    /// The number of the first line inside.
    first_line: usize,
    inner: Option<&'a str>,
}

impl<'a> Envelope<'a> {
    fn open(text: &'a str) -> Result<Self, ParseError> {
        let body = text.trim_start();
        if body.is_empty() {
            return Err(ParseError::Empty);
        }
        let mut number = 1 + text[..text.len() - body.len()].matches('\n').count();
        let mut body = body.trim_end();
        if let Some(inside) = unwrap_heredoc(body) {
            (body, number) = (inside, number + 1);
        }
        let (begin, rest) = body.split_once('\n').unwrap_or((body, ""));
        if begin.trim() != BEGIN {
            return malformed(number, format!("expected `{BEGIN}`, found {}", quote(begin)));
        }
        let (inner, end) = rest.rsplit_once('\n').map_or((None, rest), |(inner, end)| (Some(inner), end));
        if end.trim() != END {
            let last = number + body.matches('\n').count();
            return malformed(last, format!("the last line must be `{END}`, found {}", quote(end)));
        }
        Ok(Envelope { first_line: number + 1, inner })
    }
}

/// The text inside `<<'EOF'` … `EOF`. Models write a heredoc even where no shell removes it.
fn unwrap_heredoc(body: &str) -> Option<&str> {
    let (open, rest) = body.split_once('\n')?;
    let (inside, close) = rest.rsplit_once('\n')?;
    (HEREDOCS.contains(&open.trim_end_matches('\r')) && close.ends_with("EOF")).then_some(inside)
}

struct Parser {
    files: Vec<FileOp>,
    /// The line at which the current section starts.
    header_line: usize,
    /// Whether End Patch was read. The envelope ends in one; a second one just above it is accepted.
    ended: bool,
}

impl Parser {
    fn line(&mut self, number: usize, line: &str) -> Result<(), ParseError> {
        // In an Update a leading blank marks a context line, so an indented header there is content.
        let in_update = matches!(self.files.last(), Some(FileOp::Update { .. }));
        let marker = if in_update { line.trim_end() } else { line.trim() };
        if self.ended && !marker.is_empty() {
            return malformed(number, format!("{} comes after `{END}`", quote(line)));
        }
        if self.ended || marker == END {
            self.ended = true;
            return Ok(());
        }
        if let Some(section) = header(marker, number)? {
            self.close()?;
            self.files.push(section);
            self.header_line = number;
            return Ok(());
        }
        match self.files.last_mut() {
            Some(FileOp::Update { move_to, hunks, .. }) => update_line(move_to, hunks, number, line),
            Some(FileOp::Add { content, .. }) => match line.strip_prefix('+') {
                Some(added) => {
                    content.push_str(added);
                    content.push('\n');
                    Ok(())
                }
                None => malformed(
                    number,
                    format!(
                        "{} neither starts with `+`, as every line of an Add File does, nor is a file header",
                        quote(line)
                    ),
                ),
            },
            Some(FileOp::Delete { .. }) | None => malformed(
                number,
                format!(
                    "{} is not a file header: `{ADD}path`, `{DELETE}path` or `{UPDATE}path`",
                    quote(line)
                ),
            ),
        }
    }

    /// Checks the section that ends here. An Update without hunks is valid only if it moves the file.
    fn close(&self) -> Result<(), ParseError> {
        let Some(FileOp::Update { path, move_to, hunks }) = self.files.last() else { return Ok(()) };
        match hunks.last() {
            None if move_to.is_none() => {
                malformed(self.header_line, format!("the Update of {} has no hunks", quote(path)))
            }
            Some(hunk) if hunk.lines.is_empty() => {
                malformed(hunk.line_number, "this hunk has no lines".into())
            }
            _ => Ok(()),
        }
    }
}

/// The section that a line opens, if it is a file header.
fn header(marker: &str, number: usize) -> Result<Option<FileOp>, ParseError> {
    if !marker.starts_with("*** ") {
        return Ok(None);
    }
    Ok(if let Some(path) = path_after(ADD, marker, number)? {
        Some(FileOp::Add { path, content: String::new() })
    } else if let Some(path) = path_after(DELETE, marker, number)? {
        Some(FileOp::Delete { path })
    } else {
        path_after(UPDATE, marker, number)?.map(|path| FileOp::Update {
            path,
            move_to: None,
            hunks: Vec::new(),
        })
    })
}

fn path_after(header: &str, marker: &str, number: usize) -> Result<Option<String>, ParseError> {
    // The marker is trimmed, so a header without a path has lost its final blank too.
    if marker == header.trim_end() {
        return malformed(number, format!("`{marker}` has no path"));
    }
    Ok(marker.strip_prefix(header).map(str::to_owned))
}

fn update_line(
    move_to: &mut Option<String>,
    hunks: &mut Vec<Hunk>,
    number: usize,
    line: &str,
) -> Result<(), ParseError> {
    let marker = line.trim_end();
    let ended = hunks.last().is_some_and(|hunk| hunk.end_of_file);
    if ended && marker.is_empty() {
        return Ok(());
    }
    if hunks.is_empty() && move_to.is_none() {
        *move_to = path_after(MOVE, marker, number)?;
        if move_to.is_some() {
            return Ok(());
        }
    }
    if marker == "@@" || marker.starts_with("@@ ") {
        open_hunk(hunks, number).hints.extend(marker.strip_prefix("@@ ").map(str::to_owned));
        return Ok(());
    }
    if ended {
        return malformed(
            number,
            format!("after `{END_OF_FILE}` a hunk opens with `@@`, found {}", quote(line)),
        );
    }
    if marker == END_OF_FILE {
        return end_of_file(hunks, number);
    }
    let Some(line) = hunk_line(line) else {
        return malformed(
            number,
            format!("{} starts with none of ` ` (context), `-` (removed), `+` (added) and `@@`", quote(line)),
        );
    };
    let hunk =
        if hunks.is_empty() { open_hunk(hunks, number) } else { hunks.last_mut().expect("BUG: no hunk") };
    hunk.lines.push(line);
    Ok(())
}

/// The hunk that an `@@` line opens. Consecutive `@@` lines narrow the same hunk.
fn open_hunk(hunks: &mut Vec<Hunk>, number: usize) -> &mut Hunk {
    if hunks.last().is_none_or(|hunk| !hunk.lines.is_empty()) {
        hunks.push(Hunk { hints: Vec::new(), lines: Vec::new(), end_of_file: false, line_number: number });
    }
    hunks.last_mut().expect("BUG: no hunk")
}

fn end_of_file(hunks: &mut [Hunk], number: usize) -> Result<(), ParseError> {
    match hunks.last_mut() {
        Some(hunk) if hunk.lines.is_empty() => malformed(number, "this hunk has no lines".into()),
        Some(hunk) => {
            hunk.end_of_file = true;
            Ok(())
        }
        // Before the first hunk it has no meaning; Codex ignores it too.
        None => Ok(()),
    }
}

fn hunk_line(line: &str) -> Option<HunkLine> {
    let mut rest = line.chars();
    match rest.next() {
        // Editors and models strip the blank of an empty context line.
        None => Some(HunkLine::Keep(String::new())),
        Some(' ') => Some(HunkLine::Keep(rest.as_str().to_owned())),
        Some('-') => Some(HunkLine::Remove(rest.as_str().to_owned())),
        Some('+') => Some(HunkLine::Insert(rest.as_str().to_owned())),
        Some(_) => None,
    }
}

fn malformed<T>(line: usize, message: String) -> Result<T, ParseError> {
    Err(ParseError::Malformed { line, message })
}

/// A line as an error message shows it: in backquotes, and cut if it is long.
pub(super) fn quote(line: &str) -> String {
    const CHARS_MAX: usize = 120;
    match line.char_indices().nth(CHARS_MAX) {
        Some((cut, _)) => format!("`{}…`", &line[..cut]),
        None => format!("`{line}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(body: &str) -> Result<Patch, ParseError> {
        parse(&format!("*** Begin Patch\n{body}\n*** End Patch"))
    }

    fn hunk(hints: &[&str], lines: Vec<HunkLine>, end_of_file: bool, line_number: usize) -> Hunk {
        Hunk { hints: hints.iter().map(ToString::to_string).collect(), lines, end_of_file, line_number }
    }

    #[test]
    fn a_patch_becomes_sections_and_hunks() {
        let body = "*** Add File: a\n+one\n+\n*** Delete File: b c\n\
                    *** Update File: d\n*** Move to: e\n@@ class A\n@@\n@@ \tdef f\n\
                    \x20k\n-r\n+i\n\n*** End of File\n  \n@@\n+last\r";
        let (keep, remove, insert) = (HunkLine::Keep, HunkLine::Remove, HunkLine::Insert);
        let lines = vec![keep("k".into()), remove("r".into()), insert("i".into()), keep(String::new())];
        let hunks = vec![
            hunk(&["class A", "\tdef f"], lines, true, 8),
            hunk(&[], vec![insert("last".into())], false, 17),
        ];
        let files = vec![
            FileOp::Add { path: "a".into(), content: "one\n\n".into() },
            FileOp::Delete { path: "b c".into() },
            FileOp::Update { path: "d".into(), move_to: Some("e".into()), hunks },
        ];
        assert_eq!(inside(body), Ok(Patch { files }));
    }

    #[test]
    fn paths_keep_inner_and_leading_blanks_but_not_trailing_ones() {
        for (header, path) in
            [("a", "a"), (" a", " a"), ("a ", "a"), ("-rf", "-rf"), ("a\tb", "a\tb"), ("./a//b", "./a//b")]
        {
            let files = vec![FileOp::Delete { path: path.into() }];
            assert_eq!(inside(&format!("*** Delete File: {header}")), Ok(Patch { files }), "{header:?}");
        }
    }

    #[test]
    fn errors_have_their_line() {
        for (body, line, message) in [
            ("", 2, "is not a file header"),
            ("*** Add File:", 2, "has no path"),
            ("*** Update File: ", 2, "has no path"),
            ("*** Update File: a\n*** Move to:", 3, "has no path"),
            ("*** Add File: a\n\n", 3, "neither starts with `+`"),
            ("*** Add File: a\nx", 3, "neither starts with `+`"),
            ("*** Delete File: a\n+x", 3, "is not a file header"),
            ("*** Rename File: a", 2, "is not a file header"),
            ("*** Update File: a", 2, "has no hunks"),
            ("*** Update File: a\n*** Delete File: b", 2, "has no hunks"),
            ("*** Update File: a\n@@", 3, "has no lines"),
            ("*** Update File: a\n@@\n*** End of File", 4, "has no lines"),
            ("*** Update File: a\n@@ x\n*** Delete File: b", 3, "has no lines"),
            ("*** Update File: a\n-x\n*** End of File\n-y", 5, "opens with `@@`"),
            ("*** Update File: a\n-x\n*** Move to: b", 4, "starts with none of"),
            ("*** Update File: a\n@@x\n-x", 3, "starts with none of"),
            ("*** Update File: a\n\tx", 3, "starts with none of"),
            ("*** End Patch\n*** Delete File: a", 3, "comes after"),
        ] {
            match inside(body) {
                Err(ParseError::Malformed { line: at, message: found }) => {
                    assert!(at == line && found.contains(message), "{body:?}: line {at}: {found}");
                }
                other => panic!("{body:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_envelope_may_be_padded_or_in_a_heredoc() {
        let patch = "*** Begin Patch\n*** Delete File: a\n*** End Patch";
        for (before, after, fine) in [
            ("", "", true),
            ("\n \n\t", "\n\n", true),
            ("<<EOF\n", "\nEOF", true),
            ("<<'EOF'\n", "\nEOF\n", true),
            ("\n<<\"EOF\"\r\n", "\r\nEOF\r\n", true),
            ("<<\"EOF'\n", "\nEOF", false),
            ("<<EOF\n", "", false),
            ("", "\nEOF", false),
            ("please apply:\n", "", false),
        ] {
            assert_eq!(parse(&format!("{before}{patch}{after}")).is_ok(), fine, "{before:?} {after:?}");
        }
        assert_eq!(parse(" \n\t"), Err(ParseError::Empty));
    }

    #[test]
    fn targets_and_their_mapping_go_in_order() {
        let body = "*** Update File: a\n*** Move to: b\n*** Add File: c\n*** Delete File: a";
        let patch = inside(body).expect("a patch");
        let mut seen = Vec::new();
        let mapped = patch.clone().map_paths(|path, role| {
            seen.push((path.to_owned(), role));
            if path == "c" { Err("no c") } else { Ok(format!("/{path}")) }
        });
        assert_eq!(mapped, Err("no c"));
        assert_eq!(
            seen,
            patch.targets().take(3).map(|target| (target.path.to_owned(), target.role)).collect::<Vec<_>>()
        );
        let mapped = patch.map_paths(|path, _| Ok::<_, ()>(format!("/{path}"))).expect("mapped");
        assert_eq!(mapped.targets().map(|target| target.path).collect::<Vec<_>>(), ["/a", "/b", "/c", "/a"]);
    }
}
