//! Splits a shell script into simple commands and their words, as far as advice needs it.
//!
//! It handles quotes, comments, separators, redirections, here-documents, `$(…)`, backticks and `case`. The output of a
//! substitution is unknown and becomes a placeholder. It expands no variables and runs nothing. It works in one pass,
//! without recursion and without a limit on the number of commands. If it cannot parse the script (an unclosed quote,
//! nesting beyond the limit), it also returns every piece between blanks as a word: too many words are better than too
//! few.

mod reader;

/// A parsed script, with the commands of its substitutions.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) commands: Vec<Simple>,
    /// Here-documents and here-strings.
    pub(super) inputs: Vec<Input>,
    /// Other possible words: here-strings, and all pieces of a script that could not be parsed.
    pub(super) pieces: Vec<String>,
}

/// One simple command, its quotes removed.
#[derive(Debug, Default)]
pub(super) struct Simple {
    pub(super) words: Vec<String>,
    /// The files of its redirections.
    pub(super) redirects: Vec<String>,
    /// The line of the script. It relates an input to its commands.
    pub(super) line: usize,
}

/// A here-document or here-string: the standard input of a command.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) text: String,
    pub(super) line: usize,
    /// Whether the shell runs the substitutions inside.
    pub(super) expands: bool,
}

/// Parses a script.
pub(super) fn read_script(text: &str) -> Script {
    reader::read(text, false)
}

/// Parses a here-document, in which the shell runs only the substitutions.
pub(super) fn read_here_document(text: &str) -> Script {
    reader::read(text, true)
}

/// Everything in a text that could be a word, ignoring quotes.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let is_boundary = |c: char| c.is_whitespace() || "\"'`;|&()<>".contains(c);
    text.split(is_boundary).filter(|piece| !piece.is_empty()).map(str::to_owned).collect()
}

/// The index of the program among the words of a simple command, after keywords and assignments.
pub(super) fn program_index(words: &[String]) -> usize {
    words.iter().position(|word| !is_keyword(word) && !is_assignment(word)).unwrap_or(0)
}

/// Keywords that a command may follow directly.
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
