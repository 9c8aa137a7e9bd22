//! Ignore files, with ripgrep's precedence.
//!
//! The nearest file of a kind wins. `.rgignore` overrides `.ignore`, which overrides `.gitignore`, which overrides
//! `.git/info/exclude`. Git's files apply only inside a repository, and never from above it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use aos_model::limits::{IGNORE_COMPILED_BYTES_MAX, IGNORE_FILE_BYTES_MAX, IGNORE_PATTERNS_MAX};
use aos_model::records::Kind;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::merged::MergedDir;
use super::skipped::SkippedPaths;
use crate::jail::{Jail, Place};
use aos_model::path::is_below;

/// The rules of one folder. Folders without ignore files share their parent's.
#[derive(Debug)]
pub(super) struct Rules {
    parent: Option<Arc<Rules>>,
    /// The length of the folder's absolute path, including the slash.
    prefix: usize,
    rgignore: Gitignore,
    ignore: Gitignore,
    gitignore: Gitignore,
    exclude: Gitignore,
    /// Whether a repository starts in this folder.
    has_git: bool,
    /// Whether this folder is inside a repository.
    in_git: bool,
    /// What the folders below may add.
    left: Budget,
}

/// How many rules may be added. The files of a repository are not trusted, and each rule takes memory and time.
#[derive(Debug, Clone, Copy)]
struct Budget {
    patterns: usize,
    compiled_bytes: usize,
}

/// What the matcher of one file takes once a rule in it is a regular expression, whatever the rule.
const REGEX_BYTES: usize = 128 << 10;

impl Budget {
    const WHOLE: Budget = Budget { patterns: IGNORE_PATTERNS_MAX, compiled_bytes: IGNORE_COMPILED_BYTES_MAX };

    /// Takes what a rule costs. Returns false, and leaves nothing, when it is too much.
    fn take(&mut self, pattern: &str, has_regex: &mut bool) -> bool {
        // `name`, `/path/name` and `*.end` are looked up, not matched.
        let end = pattern.strip_prefix("**/").unwrap_or(pattern);
        let is_regex = end.strip_prefix('*').unwrap_or(end).contains(['*', '?', '[', '{', '\\']);
        let first = if is_regex && !*has_regex { REGEX_BYTES } else { 0 };
        *has_regex |= is_regex;
        let cost = first + pattern.len() * if is_regex { 64 } else { 2 };
        if self.patterns == 0 || cost > self.compiled_bytes {
            *self = Budget { patterns: 0, compiled_bytes: 0 };
            return false;
        }
        self.patterns -= 1;
        self.compiled_bytes -= cost;
        true
    }
}

/// The names in a folder that matter to the rules.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Marks {
    pub(super) rgignore: bool,
    pub(super) ignore: bool,
    pub(super) gitignore: bool,
    /// `.git`, a folder or the file of a worktree.
    pub(super) git: bool,
    pub(super) git_is_folder: bool,
    /// `.jj`, which ripgrep also treats as a repository.
    pub(super) jj: bool,
}

impl Marks {
    pub(super) fn note(&mut self, name: &[u8], kind: Kind) {
        match name {
            b".rgignore" => self.rgignore = true,
            b".ignore" => self.ignore = true,
            b".gitignore" => self.gitignore = true,
            b".jj" => self.jj = true,
            b".git" if matches!(kind, Kind::Dir | Kind::File) => {
                self.git = true;
                self.git_is_folder = kind == Kind::Dir;
            }
            _ => {}
        }
    }

    fn any(self) -> bool {
        self.rgignore || self.ignore || self.gitignore || self.git || self.jj
    }

    /// Looks up each name, for a folder that is not listed.
    fn lookup(merged: &MergedDir) -> Marks {
        let mut marks = Marks::default();
        for name in [".rgignore", ".ignore", ".gitignore", ".git", ".jj"] {
            if let Some(kind) = merged.kind_of(name) {
                marks.note(name.as_bytes(), kind);
            }
        }
        marks
    }
}

impl Rules {
    /// Loads the rules of a folder, whose path is absolute and ends with a slash.
    pub(super) fn load(
        merged: &MergedDir,
        path: &[u8],
        marks: Marks,
        parent: Option<Arc<Rules>>,
        skipped: &SkippedPaths,
    ) -> Option<Arc<Rules>> {
        if !marks.any() {
            return parent;
        }
        let has_git = marks.git || marks.jj;
        let in_git = has_git || parent.as_ref().is_some_and(|parent| parent.in_git);
        let mut left = parent.as_ref().map_or(Budget::WHOLE, |parent| parent.left);
        let mut read = |wanted: bool, name: &str| {
            if !wanted {
                return Gitignore::empty();
            }
            let (rules, is_whole) = read_rules(merged, name, &mut left);
            if !is_whole {
                skipped.add_ignore_file(&[path, name.as_bytes()].concat());
            }
            rules
        };
        Some(Arc::new(Rules {
            prefix: path.len(),
            rgignore: read(marks.rgignore, ".rgignore"),
            ignore: read(marks.ignore, ".ignore"),
            gitignore: read(marks.gitignore && in_git, ".gitignore"),
            exclude: read(marks.git_is_folder, ".git/info/exclude"),
            has_git,
            in_git,
            left,
            parent,
        }))
    }

    /// The rules of the folders above `base`, up to its root. Folders above the root are outside the jail.
    pub(super) fn above(jail: &Jail, base: &Place, skipped: &SkippedPaths) -> Option<Arc<Rules>> {
        let path = &base.absolute;
        let inside = jail.roots.iter().filter(|root| is_below(path, &root.path)).map(|root| root.path.len());
        // A virtual tree has no root on the disk; it starts at `/`.
        let start = inside.max().or(base.leaf.as_ref().map(|_| 0))?;
        let mut rules = None;
        for end in (start..path.len()).filter(|at| path[*at] == b'/') {
            let Some(merged) = MergedDir::above(jail, base, &path[..end]) else { continue };
            rules = Rules::load(&merged, &path[..=end], Marks::lookup(&merged), rules, skipped);
        }
        rules
    }

    /// The result of the rules for an absolute path below them.
    pub(super) fn matched(&self, path: &[u8], is_dir: bool) -> Match<()> {
        let mut results = [Match::None, Match::None, Match::None, Match::None];
        let mut git_applies = self.in_git;
        let mut next = Some(self);
        while let Some(rules) = next {
            let below = Path::new(OsStr::from_bytes(&path[rules.prefix..]));
            let git = [&rules.gitignore, &rules.exclude].map(|git| git_applies.then_some(git));
            let here = [Some(&rules.rgignore), Some(&rules.ignore), git[0], git[1]];
            for (result, matcher) in results.iter_mut().zip(here) {
                if let Some(matcher) = matcher.filter(|matcher| result.is_none() && !matcher.is_empty()) {
                    *result = matcher.matched(below, is_dir).map(drop);
                }
            }
            git_applies &= !rules.has_git;
            next = rules.parent.as_deref();
        }
        let [rgignore, ignore, gitignore, exclude] = results;
        rgignore.or(ignore).or(gitignore).or(exclude)
    }
}

/// Reads one ignore file, and whether all of it counts. As in ripgrep, an invalid line is skipped, and invalid UTF-8 ends
/// the file.
fn read_rules(merged: &MergedDir, name: &str, left: &mut Budget) -> (Gitignore, bool) {
    let mut builder = GitignoreBuilder::new("");
    let bytes = merged.read_small(name).unwrap_or_default();
    let mut is_whole = bytes.len() <= IGNORE_FILE_BYTES_MAX;
    let read = if is_whole { bytes.as_slice() } else { whole_lines(&bytes[..IGNORE_FILE_BYTES_MAX]) };
    let mut has_regex = false;
    for line in read.strip_prefix(b"\xef\xbb\xbf").unwrap_or(read).split(|b| *b == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { break };
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if !left.take(line, &mut has_regex) {
            is_whole = false;
            break;
        }
        let _ = builder.add_line(None, line);
    }
    (builder.build().unwrap_or_else(|_| Gitignore::empty()), is_whole)
}

/// Without the last line, which may be cut.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|b| *b == b'\n').unwrap_or(0)]
}
