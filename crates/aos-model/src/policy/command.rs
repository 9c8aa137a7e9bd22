//! Commands: finds the paths that their words name. The result is advice; the sandbox is the boundary.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::{fmt, slice};

use super::lexical::{is_within, lexical_join};
use super::shell::{self, Script};
use super::tools;
use super::words::{self, Candidate};

/// How deep shell texts may nest (`sh -c "sh -c …"`). Deeper ones are split into words only.
const DEPTH_MAX: usize = 8;

/// A command and its context. `cwd`, `workspaces` and `command_cwd` are absolute and canonical.
#[derive(Clone, Copy)]
pub struct CommandQuery<'a> {
    pub argv: &'a [String],
    pub cwd: &'a str,
    /// A path inside any of them is inside. Without any, no path is outside.
    pub workspaces: &'a [&'a str],
    /// The working directory of the command, with links resolved by the host.
    pub command_cwd: &'a str,
    pub home: Option<&'a str>,
    /// Resolves the links of an absolute path on the host. The path may contain `.` and `..`, because only the host
    /// resolves them as the kernel does: after a link, `..` is the parent of the link's target.
    pub resolve: &'a dyn Fn(&str) -> String,
}

/// A path that a command names, in both spellings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Absolute, `.` and `..` resolved as text.
    pub literal: String,
    /// Absolute, links resolved by the host.
    pub resolved: String,
}

impl fmt::Debug for CommandQuery<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CommandQuery")
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("workspaces", &self.workspaces)
            .field("command_cwd", &self.command_cwd)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

/// The paths that a command names, each once, in the order of its words.
pub(super) fn references(query: &CommandQuery<'_>) -> Vec<Reference> {
    let mut finder = Finder { query, found: Vec::new(), seen: HashSet::new(), texts: VecDeque::new() };
    finder.read_command(query.argv, 0, 0);
    while let Some(text) = finder.texts.pop_front() {
        finder.read_text(&text);
    }
    finder.found
}

/// Shell text inside a command that is not read yet.
struct Text {
    text: String,
    /// A here-document: the shell runs only its substitutions.
    is_data: bool,
    depth: usize,
}

struct Finder<'q> {
    query: &'q CommandQuery<'q>,
    found: Vec<Reference>,
    seen: HashSet<Reference>,
    texts: VecDeque<Text>,
}

impl Finder<'_> {
    fn read_text(&mut self, text: &Text) {
        if text.depth > DEPTH_MAX {
            return self.read_words(&shell::pieces(&text.text), None);
        }
        let script =
            if text.is_data { shell::read_here_document(&text.text) } else { shell::read_script(&text.text) };
        for command in &script.commands {
            self.read_command(&command.words, shell::program_index(&command.words), text.depth);
            for target in &command.redirects {
                self.add(&Candidate { path: target.as_str().into(), unlikely: false });
                self.read_words(slice::from_ref(target), None);
            }
        }
        self.read_words(&script.pieces, None);
        self.read_inputs(script, text.depth);
    }

    /// The input of a shell is a script; the input of another command is data.
    fn read_inputs(&mut self, script: Script, depth: usize) {
        if script.inputs.is_empty() {
            return;
        }
        let shells = script.commands.iter().filter(|command| tools::runs_shell(&command.words));
        let shell_lines: HashSet<usize> = shells.map(|command| command.line).collect();
        for input in script.inputs {
            let is_data = !shell_lines.contains(&input.line);
            if !is_data || input.expands {
                self.texts.push_back(Text { text: input.text, is_data, depth: depth + 1 });
            }
        }
    }

    fn read_command(&mut self, words: &[String], program: usize, depth: usize) {
        let reading = tools::read(words, program);
        let name = tools::program_name(words, program);
        for (number, word) in words.iter().enumerate() {
            let is_exempt = reading.is_script(number) || (number == program && is_system_program(word));
            if !is_exempt {
                self.read_words(slice::from_ref(word), name);
            }
        }
        let texts = reading.shell_texts.into_iter();
        self.texts.extend(texts.map(|text| Text { text, is_data: false, depth: depth + 1 }));
    }

    fn read_words(&mut self, words: &[String], program: Option<&str>) {
        for candidate in words.iter().flat_map(|word| words::candidates(word, program)) {
            self.add(&candidate);
        }
    }

    fn add(&mut self, candidate: &Candidate<'_>) {
        let Some(reference) = self.locate(&candidate.path) else { return };
        if candidate.unlikely && !self.leaves(&reference) {
            return;
        }
        if self.seen.insert(reference.clone()) {
            self.found.push(reference);
        }
    }

    /// Both spellings of a path; `None` for common devices such as /dev/null.
    fn locate(&self, path: &str) -> Option<Reference> {
        let Some(path) = self.expand(path) else {
            // `~user`: unknown here, and outside every root.
            return Some(Reference { literal: path.to_owned(), resolved: path.to_owned() });
        };
        let cwd = self.query.command_cwd;
        let literal = lexical_join(cwd, &path);
        if is_common_device(&literal) {
            return None;
        }
        // Not normalised: the host resolves the `..`.
        let joined = if path.starts_with('/') { path } else { format!("{cwd}/{path}").into() };
        let resolved = (self.query.resolve)(&joined);
        let resolved = if resolved.starts_with('/') { lexical_join("/", &resolved) } else { resolved };
        Some(Reference { literal, resolved })
    }

    /// Expands `~`, `$HOME` and `$PWD`; `None` for the home of another user.
    fn expand<'p>(&self, path: &'p str) -> Option<Cow<'p, str>> {
        // The original heuristic (`HostAccessPolicy` of pydantic-acp) reads `./~/x` as `~/x`. This must not be weaker.
        let (base, rest) = if let Some(rest) = skip_dots(path).strip_prefix('~') {
            (self.query.home.filter(|_| rest.is_empty() || rest.starts_with('/'))?, rest)
        } else {
            match words::split_variable(path) {
                Some(("HOME", rest)) => (self.query.home?, rest),
                Some((_, rest)) => (self.query.command_cwd, rest),
                None => return Some(Cow::Borrowed(path)),
            }
        };
        Some(Cow::Owned(format!("{base}{rest}")))
    }

    fn leaves(&self, reference: &Reference) -> bool {
        [&reference.literal, &reference.resolved].into_iter().any(|path| {
            let is_in = |root: &&str| is_within("", path, root);
            !is_in(&self.query.cwd)
                || !(self.query.workspaces.is_empty() || self.query.workspaces.iter().any(is_in))
        })
    }
}

/// The path without any leading `./`.
fn skip_dots(path: &str) -> &str {
    let mut rest = path;
    while let Some(next) = rest.strip_prefix("./") {
        rest = next.trim_start_matches('/');
    }
    rest
}

/// Whether a word is the path of a program in a system folder.
fn is_system_program(word: &str) -> bool {
    ["/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/"].into_iter().any(|folder| {
        let name = word.strip_prefix(folder).unwrap_or("");
        !name.is_empty() && name.split('/').all(|component| !matches!(component, "" | "." | ".."))
    })
}

fn is_common_device(path: &str) -> bool {
    let Some(name) = path.strip_prefix("/dev/") else { return false };
    let names = ["null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr"];
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    names.contains(&name) || name.strip_prefix("fd/").is_some_and(is_number)
}

#[cfg(test)]
mod tests;
