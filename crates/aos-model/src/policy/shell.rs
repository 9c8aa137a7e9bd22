//! A reader of shell text: it splits a script into simple commands and their words, as far as advice needs it.
//!
//! It knows quotes, comments, separators, redirections, here-documents, `$(…)`, backticks and `case`, and keeps what
//! it cannot know (the output of a substitution) as a placeholder. It expands no variables and runs nothing. One
//! pass, no recursion, no cap on the number of commands. Where it loses its way (a quote that never closes, nesting
//! beyond the limit) it also gives every blank-separated piece as a word: too many words are better than too few.

mod reader;

/// A script taken apart, its substitutions included.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) commands: Vec<Simple>,
    /// Here-documents and here-strings.
    pub(super) inputs: Vec<Input>,
    /// What else could be words: here-strings, and everything when the reader lost its way.
    pub(super) pieces: Vec<String>,
}

/// One simple command, its quotes removed.
#[derive(Debug, Default)]
pub(super) struct Simple {
    pub(super) words: Vec<String>,
    /// The files it is redirected to or from.
    pub(super) redirects: Vec<String>,
    /// The line of the script, to find the commands that an input belongs to.
    pub(super) line: usize,
}

/// Text that a command is given to read.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) text: String,
    pub(super) line: usize,
    /// Whether the shell runs the substitutions inside.
    pub(super) expands: bool,
}

/// Takes a script apart.
pub(super) fn read_script(text: &str) -> Script {
    reader::read(text, false)
}

/// Takes apart what the shell runs inside a here-document: its substitutions.
pub(super) fn read_here_document(text: &str) -> Script {
    reader::read(text, true)
}

/// Everything in a text that could be a word, whatever the quotes say.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let is_boundary = |c: char| c.is_whitespace() || "\"'`;|&()<>".contains(c);
    text.split(is_boundary).filter(|piece| !piece.is_empty()).map(str::to_owned).collect()
}

/// The place of the program among the words of a simple command: behind keywords and assignments.
pub(super) fn program_index(words: &[String]) -> usize {
    words.iter().position(|word| !is_keyword(word) && !is_assignment(word)).unwrap_or(0)
}

/// Words that a command may follow at once.
fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "if" | "then" | "elif" | "else" | "while" | "until" | "do" | "!" | "{" | "}" | "time" | "coproc"
    )
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name.strip_suffix('+').unwrap_or(name));
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests;
