//! The names in a git folder that git may write without running code later.

use super::super::lexical::fold_case;

/// Folders whose whole content may change.
const FOLDERS: &[&str] = &[
    "objects",
    "refs",
    "reftable",
    "logs",
    "lfs",
    "rr-cache",
    "rebase-*",
    "sequencer",
    "lost-found",
    "NOTES_MERGE_WORKTREE",
];

const FILES: &[&str] = &[
    "index*",
    "sharedindex.*",
    "next-index-*",
    "HEAD",
    "*_HEAD",
    "AUTO_MERGE",
    "MERGE_*",
    "NOTES_MERGE_*",
    "SQUASH_MSG",
    "BISECT_*",
    "*_EDITMSG",
    "packed-refs*",
    "shallow*",
    "gc.pid",
    "gc.log",
    "description",
    "info/exclude",
    "info/sparse-checkout",
    "info/refs",
];

/// Folders that git makes and that are empty or hold what other rules judge.
const PLAIN_FOLDERS: &[&str] = &["info", "modules", "worktrees", "branches", "hooks"];

/// What a name in a git folder is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Inert, in a folder whose content is not interpreted.
    Data,
    /// A file that is inert.
    State,
    Folder,
    Config,
    GitDir,
    CommonDir,
    RebaseTodo,
    Hook,
    SampleHook,
    /// Below `modules` or `worktrees`: the git folder there decides.
    Inner,
    Other,
}

/// What `path`, relative to a git folder, is for. `.lock` files are judged as what they become.
pub(super) fn use_of(path: &[u8], is_worktree: bool) -> Use {
    let names: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
    let (first, last) = (names[0], names[names.len() - 1]);
    if names.len() > 1 {
        return match first {
            b"modules" | b"worktrees" => Use::Inner,
            b"hooks" if names.len() == 2 && last.ends_with(b".sample") => Use::SampleHook,
            b"hooks" => Use::Hook,
            _ if first.starts_with(b"rebase-") && last.starts_with(b"git-rebase-todo") => Use::RebaseTodo,
            _ if FOLDERS.iter().any(|wanted| matches(first, wanted)) => Use::Data,
            _ if is_listed(path) => Use::State,
            _ => Use::Other,
        };
    }
    match last.strip_suffix(b".lock").unwrap_or(last) {
        b"config" | b"config.worktree" => Use::Config,
        b"gitdir" if is_worktree => Use::GitDir,
        b"commondir" if is_worktree => Use::CommonDir,
        // `git worktree lock`: the reason, as text.
        b"locked" if is_worktree => Use::State,
        name if PLAIN_FOLDERS.iter().any(|folder| folder.as_bytes() == name) => Use::Folder,
        name if FOLDERS.iter().any(|folder| matches(name, folder)) => Use::Folder,
        _ if is_listed(path) => Use::State,
        _ => Use::Other,
    }
}

fn is_listed(path: &[u8]) -> bool {
    let path = path.strip_suffix(b".lock").unwrap_or(path);
    FILES.iter().any(|wanted| matches(path, wanted))
}

/// `*` stands for any characters of one name, at one end of the pattern.
fn matches(path: &[u8], wanted: &str) -> bool {
    match wanted.split_once('*') {
        None => path == wanted.as_bytes(),
        Some((head, tail)) => {
            path.len() >= head.len() + tail.len()
                && path.starts_with(head.as_bytes())
                && path.ends_with(tail.as_bytes())
                && !path.contains(&b'/')
        }
    }
}

/// Whether a name is that of a repository's git folder, or of the file in its place.
pub fn is_git_name(name: &[u8]) -> bool {
    fold_case(name) == b".git"
}
