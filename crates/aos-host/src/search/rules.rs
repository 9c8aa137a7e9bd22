//! Ignore files, with ripgrep's precedence.
//!
//! The nearest file of a kind wins. `.rgignore` overrides `.ignore`, which overrides `.gitignore`, which overrides
//! `.git/info/exclude`. Git's files apply only inside a repository, and never from above it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use aos_model::records::Kind;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::merged::MergedDir;
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
    /// Loads the rules of a folder whose absolute path, slash included, is `prefix` bytes long.
    pub(super) fn load(
        merged: &MergedDir,
        prefix: usize,
        marks: Marks,
        parent: Option<Arc<Rules>>,
    ) -> Option<Arc<Rules>> {
        if !marks.any() {
            return parent;
        }
        let has_git = marks.git || marks.jj;
        let in_git = has_git || parent.as_ref().is_some_and(|parent| parent.in_git);
        let read = |wanted: bool, name: &str| {
            if wanted { read_rules(merged, name) } else { Gitignore::empty() }
        };
        Some(Arc::new(Rules {
            prefix,
            rgignore: read(marks.rgignore, ".rgignore"),
            ignore: read(marks.ignore, ".ignore"),
            gitignore: read(marks.gitignore && in_git, ".gitignore"),
            exclude: read(marks.git_is_folder, ".git/info/exclude"),
            has_git,
            in_git,
            parent,
        }))
    }

    /// The rules of the folders above `base`, up to its root. Folders above the root are outside the jail.
    pub(super) fn above(jail: &Jail, base: &Place) -> Option<Arc<Rules>> {
        let path = &base.absolute;
        let inside = jail.roots.iter().filter(|root| is_below(path, &root.path)).map(|root| root.path.len());
        // A virtual tree has no root on the disk; it starts at `/`.
        let start = inside.max().or(base.leaf.as_ref().map(|_| 0))?;
        let mut rules = None;
        for end in (start..path.len()).filter(|at| path[*at] == b'/') {
            let Some(merged) = MergedDir::above(jail, base, &path[..end]) else { continue };
            rules = Rules::load(&merged, end + 1, Marks::lookup(&merged), rules);
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

/// Reads one ignore file. As in ripgrep, an invalid line is skipped, and invalid UTF-8 ends the file.
fn read_rules(merged: &MergedDir, name: &str) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    let bytes = merged.read_small(name).unwrap_or_default();
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    for line in bytes.split(|b| *b == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { break };
        let _ = builder.add_line(None, line.strip_suffix('\r').unwrap_or(line));
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
