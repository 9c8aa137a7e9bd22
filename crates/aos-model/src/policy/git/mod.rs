//! What a command may change in a git folder: nothing that makes the user's next `git status` run code.
//!
//! A git folder is a `.git`, a `worktrees/*` of another one, or any folder with the layout of one (`HEAD` beside
//! `objects` and `refs`, or beside `commondir`): git takes each of them for a repository. Names on a list may change,
//! configuration is judged by content, and files that lead to another folder only lead to one that leads back.
//!
//! The rules read two trees, before and after the command, and no disk: a caller with an overlay passes that, one
//! without passes its copies.

mod config;
mod names;

use std::collections::HashMap;

pub use config::{CONFIG_BYTES_MAX, gitmodules_problem, hooks_path, included_paths};
pub use names::is_git_name;

use names::Use;

/// What is at a path; a link itself, not what it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Other,
}

/// A state of the session's roots. Paths are absolute; nothing outside of the roots, and nothing behind a link, is found.
pub trait Tree {
    fn kind(&self, absolute: &[u8]) -> Option<Kind>;
    /// The content of a regular file, up to a byte more than [`CONFIG_BYTES_MAX`].
    fn read(&self, absolute: &[u8]) -> Option<Vec<u8>>;
}

/// What is to become of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitVerdict {
    /// Not in a git folder, or harmless there.
    Allowed,
    /// A hook of a repository that the command made: it does not land, the rest does.
    WithheldHook,
    Denied(String),
}

/// Judges the paths that a command changed.
pub struct GitJudge<'a> {
    before: &'a dyn Tree,
    after: &'a dyn Tree,
    /// What is known of each folder.
    folders: HashMap<Vec<u8>, Option<GitFolder>>,
}

#[derive(Debug, Clone)]
struct GitFolder {
    /// It was not a git folder before.
    is_new: bool,
    /// A `worktrees/*` of another git folder.
    is_worktree: bool,
    /// Why it must not become a git folder, when something that was there before would then be interpreted.
    problem: Option<String>,
}

impl std::fmt::Debug for GitJudge<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GitJudge").field("folders", &self.folders).finish_non_exhaustive()
    }
}

impl<'a> GitJudge<'a> {
    pub fn new(before: &'a dyn Tree, after: &'a dyn Tree) -> GitJudge<'a> {
        GitJudge { before, after, folders: HashMap::new() }
    }

    /// Judges one path in a root: against every git folder around it, and against the outer ones too.
    pub fn judge(&mut self, root: &[u8], absolute: &[u8]) -> GitVerdict {
        let mut verdict = GitVerdict::Allowed;
        let mut waits_for_inner = false;
        let slashes = (root.len()..absolute.len()).filter(|at| absolute[*at] == b'/');
        for slash in slashes {
            let folder = &absolute[..slash];
            let Some(found) = self.folder(root, folder) else { continue };
            if let Some(why) = found.problem {
                return GitVerdict::Denied(why);
            }
            let path = &absolute[slash + 1..];
            let within = names::use_of(path, found.is_worktree);
            waits_for_inner = within == Use::Inner;
            match self.in_folder(folder, path, within, &found) {
                GitVerdict::Allowed => {}
                GitVerdict::WithheldHook => verdict = GitVerdict::WithheldHook,
                denied @ GitVerdict::Denied(_) => return denied,
            }
        }
        if waits_for_inner && !matches!(self.after.kind(absolute), None | Some(Kind::Dir)) {
            return denied("git has no such file there");
        }
        if is_git_name(name_of(absolute)) {
            match self.after.kind(absolute) {
                Some(_) if name_of(absolute) != b".git" => {
                    return denied("git takes it for `.git` where case does not matter");
                }
                None | Some(Kind::Dir) => {}
                Some(Kind::File) if self.git_file_is_paired(root, absolute) => {}
                Some(Kind::File) => return denied("it leads to a folder that does not lead back"),
                Some(Kind::Symlink | Kind::Other) => return denied("a link leads git elsewhere"),
            }
        }
        verdict
    }

    /// What is known of a folder, if it is a git folder before or after.
    fn folder(&mut self, root: &[u8], folder: &[u8]) -> Option<GitFolder> {
        if let Some(known) = self.folders.get(folder) {
            return known.clone();
        }
        let is_worktree = self.common_of(root, folder).is_some();
        let is_named = is_worktree || is_git_name(name_of(folder));
        let is_git = |tree: &dyn Tree| match tree.kind(folder) {
            Some(Kind::Dir) => is_named || has_layout(tree, folder),
            _ => false,
        };
        let (was, is) = (is_git(self.before), is_git(self.after));
        let problem = (is && !was && self.before.kind(folder).is_some()).then(|| self.leftover(folder));
        let found = (was || is).then(|| GitFolder { is_new: !was, is_worktree, problem: problem.flatten() });
        self.folders.insert(folder.to_vec(), found.clone());
        found
    }

    /// The git folder whose `worktrees` holds this folder.
    fn common_of<'f>(&mut self, root: &[u8], folder: &'f [u8]) -> Option<&'f [u8]> {
        let worktrees = parent_of(folder).filter(|above| name_of(above) == b"worktrees")?;
        let common = parent_of(worktrees).filter(|common| common.len() >= root.len())?;
        self.folder(root, common).map(|_| common)
    }

    /// What was in a folder before it became a git folder, and would be interpreted now.
    fn leftover(&self, folder: &[u8]) -> Option<String> {
        let there = |name: &str| {
            let path = join(folder, name.as_bytes())?;
            self.before.kind(&path).and(self.after.kind(&path)).map(|_| path)
        };
        let other = ["commondir", "gitdir", "hooks", "info", "modules", "worktrees", "branches", "remotes"];
        if let Some(name) = other.into_iter().find(|name| there(name).is_some()) {
            return Some(format!("`{name}` was there before this became a git folder"));
        }
        let configs = ["config", "config.worktree"].into_iter().filter_map(there).collect::<Vec<_>>();
        configs.iter().find_map(|path| self.config_problem(folder, None, path))
    }

    fn in_folder(&self, folder: &[u8], path: &[u8], within: Use, found: &GitFolder) -> GitVerdict {
        let absolute = [folder, b"/", path].concat();
        let kind = self.after.kind(&absolute);
        let is_hook = matches!(within, Use::Hook | Use::SampleHook);
        if kind == Some(Kind::Symlink) && !is_opaque_data(path) && !is_hook {
            return denied("a link in a git folder leads git elsewhere");
        }
        let is_file = matches!(kind, None | Some(Kind::File));
        let is_folder = matches!(kind, None | Some(Kind::Dir));
        match within {
            Use::Data | Use::Inner => GitVerdict::Allowed,
            // It was not a git folder when that was written.
            _ if kind.is_none() && found.is_new => GitVerdict::Allowed,
            Use::State if is_file => GitVerdict::Allowed,
            Use::Folder if is_folder && (path != b"hooks" || found.is_new) => GitVerdict::Allowed,
            Use::SampleHook if is_file && found.is_new => GitVerdict::Allowed,
            Use::Hook | Use::SampleHook if kind.is_some() && found.is_new => GitVerdict::WithheldHook,
            Use::Config if is_file => {
                let was_at = [folder, b"/", path.strip_suffix(b".lock").unwrap_or(path)].concat();
                self.config_problem(folder, Some(&was_at), &absolute)
                    .map_or(GitVerdict::Allowed, GitVerdict::Denied)
            }
            Use::GitDir | Use::CommonDir if kind.is_none() => GitVerdict::Allowed,
            Use::GitDir if is_file && self.gitdir_is_paired(folder, &absolute) => GitVerdict::Allowed,
            Use::CommonDir if is_file && self.commondir_is_paired(folder, &absolute) => GitVerdict::Allowed,
            Use::GitDir | Use::CommonDir => denied("it leads to a folder that does not lead back"),
            Use::RebaseTodo if is_file => match content(self.after, &absolute) {
                Err(why) => denied(why),
                Ok(Some(todo)) if runs_commands(&todo) => denied("a line of it runs a command"),
                Ok(_) => GitVerdict::Allowed,
            },
            Use::State | Use::Folder | Use::Config | Use::RebaseTodo => {
                denied("git has something else there")
            }
            Use::Hook | Use::SampleHook => denied("git runs hooks"),
            Use::Other => denied("git does not write it in ordinary work, or what it says can run code"),
        }
    }

    /// Why the configuration that is at a path now, compared with what was there before, can run code.
    fn config_problem(&self, folder: &[u8], was_at: Option<&[u8]>, at: &[u8]) -> Option<String> {
        let before = was_at.map_or(Ok(None), |path| content(self.before, path));
        let (before, after) = match (before, content(self.after, at)) {
            (Ok(before), Ok(after)) => (before, after),
            (Err(why), _) | (_, Err(why)) => return Some(why.to_owned()),
        };
        match config::changed_worktree(before.as_deref(), after.as_deref()) {
            Err(why) => Some(why),
            Ok(None) => None,
            Ok(Some(worktree)) if self.worktree_is_paired(folder, &worktree) => None,
            Ok(Some(_)) => Some("`core.worktree` names a folder that does not lead back".into()),
        }
    }

    /// `core.worktree` of a git folder: the folder whose `.git` is this one, or a file that leads to it.
    fn worktree_is_paired(&self, folder: &[u8], value: &[u8]) -> bool {
        let Some(worktree) = join(folder, value) else { return false };
        let git = [worktree.as_slice(), b"/.git"].concat();
        self.after.kind(&worktree) == Some(Kind::Dir)
            && (git == folder || self.git_file_target(&git).is_some_and(|target| target == folder))
    }

    /// Where a `.git` file leads.
    fn git_file_target(&self, git: &[u8]) -> Option<Vec<u8>> {
        git_file_target(parent_of(git)?, &self.after.read(git)?)
    }

    fn git_file_is_paired(&mut self, root: &[u8], git: &[u8]) -> bool {
        let (Some(target), Some(worktree)) = (self.git_file_target(git), parent_of(git)) else {
            return false;
        };
        let Some(found) = self.root_folder(root, &target) else { return false };
        if found.is_worktree {
            let back = self.after.read(&[target.as_slice(), b"/gitdir"].concat());
            return back.is_some_and(|back| named_path(&target, &back).as_deref() == Some(git));
        }
        ["config", "config.worktree"].into_iter().any(|name| {
            let config = self.after.read(&[target.as_slice(), b"/", name.as_bytes()].concat());
            let named = config.and_then(|config| named_worktree(&target, &config));
            named.as_deref() == Some(worktree)
        })
    }

    /// What is known of a folder that may be in another root.
    fn root_folder(&mut self, root: &[u8], folder: &[u8]) -> Option<GitFolder> {
        let root = if crate::path::is_below(folder, root) { root } else { b"" };
        self.folder(root, folder)
    }

    fn gitdir_is_paired(&self, folder: &[u8], at: &[u8]) -> bool {
        let path = self.after.read(at).and_then(|content| named_path(folder, &content));
        path.is_some_and(|git| {
            is_git_name(name_of(&git)) && self.git_file_target(&git).is_some_and(|target| target == folder)
        })
    }

    fn commondir_is_paired(&self, folder: &[u8], at: &[u8]) -> bool {
        let common = self.after.read(at).and_then(|content| named_path(folder, &content));
        common.is_some() && common.as_deref() == parent_of(folder).and_then(parent_of)
    }
}

/// The content of a file that may be missing. What cannot be read is not harmless.
fn content(tree: &dyn Tree, path: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    match tree.read(path) {
        Some(bytes) if bytes.len() > CONFIG_BYTES_MAX => Err("it is too large to be judged"),
        None if tree.kind(path).is_some() => Err("it cannot be read"),
        bytes => Ok(bytes),
    }
}

/// The git folder that the `.git` file of a folder names.
pub fn git_file_target(worktree: &[u8], content: &[u8]) -> Option<Vec<u8>> {
    join(worktree, line_of(content.strip_prefix(b"gitdir: ")?)?)
}

/// The path that `gitdir` or `commondir` in a git folder names.
pub fn named_path(folder: &[u8], content: &[u8]) -> Option<Vec<u8>> {
    join(folder, line_of(content)?)
}

/// The folder that `core.worktree` in a git folder's configuration names.
pub fn named_worktree(folder: &[u8], config: &[u8]) -> Option<Vec<u8>> {
    join(folder, &config::last_value(&config::parse(config).ok()?, "core", "worktree")?)
}

fn denied(why: &str) -> GitVerdict {
    GitVerdict::Denied(why.to_owned())
}

/// The layout by which git recognises a repository.
pub fn has_layout(tree: &dyn Tree, folder: &[u8]) -> bool {
    let has = |name: &str| tree.kind(&[folder, b"/", name.as_bytes()].concat()).is_some();
    has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

/// The protected git name that a path (relative, `/`-separated) has, for effects that never write configuration.
pub fn protected_git_name(path: &[u8]) -> Option<&'static str> {
    let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
    let at = names.iter().position(|name| is_git_name(name))?;
    if names[at + 1..].is_empty() {
        return Some(".git");
    }
    let inner = protected_git_name(&names[at + 1..].join(&b'/'));
    inner.or(protected_in_git_folder(&names[at + 1..].join(&b'/')))
}

/// The same for a path relative to a git folder.
pub fn protected_in_git_folder(path: &[u8]) -> Option<&'static str> {
    match names::use_of(path, true) {
        Use::Data | Use::State => None,
        Use::Folder if path == b"hooks" => Some(".git/hooks/**"),
        Use::Folder => None,
        Use::Hook | Use::SampleHook => Some(".git/hooks/**"),
        Use::Config => Some(".git/config"),
        Use::GitDir | Use::CommonDir | Use::RebaseTodo | Use::Inner | Use::Other => Some(".git/**"),
    }
}

/// Where links may be: git only reads data there.
fn is_opaque_data(path: &[u8]) -> bool {
    path.starts_with(b"objects/") || path.starts_with(b"lfs/")
}

/// Whether a todo list of `git rebase -i` has an `exec` line.
fn runs_commands(todo: &[u8]) -> bool {
    todo.split(|b| *b == b'\n').any(|line| {
        let words = line.split(|b| matches!(b, b' ' | b'\t' | b'\r')).filter(|word| !word.is_empty());
        matches!(words.take(1).next(), Some(b"exec" | b"x"))
    })
}

/// The only line of a file.
fn line_of(content: &[u8]) -> Option<&[u8]> {
    let line = content.strip_suffix(b"\n").unwrap_or(content);
    (!line.is_empty() && !line.iter().any(|b| matches!(b, b'\n' | b'\r' | 0))).then_some(line)
}

fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}

fn parent_of(path: &[u8]) -> Option<&[u8]> {
    path.iter().rposition(|b| *b == b'/').map(|slash| &path[..slash])
}

/// A path relative to a folder, as text. `None` for one with `..` behind a name: with a link there, it leads elsewhere.
pub fn join(folder: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let mut joined = if path.starts_with(b"/") { Vec::new() } else { folder.to_vec() };
    let mut has_name = path.starts_with(b"/");
    for name in path.split(|b| *b == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        if name == b".." {
            let parent = parent_of(&joined).filter(|_| !has_name)?.len();
            joined.truncate(parent);
        } else {
            has_name = true;
            joined = [joined.as_slice(), b"/", name].concat();
        }
    }
    Some(joined)
}

#[cfg(test)]
mod tests;
