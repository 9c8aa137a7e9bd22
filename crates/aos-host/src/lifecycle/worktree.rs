//! A root that is a linked worktree or a submodule: its git folder is elsewhere and becomes a root too.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use aos_model::policy::git::{git_file_target, named_path, named_worktree};

use crate::disk::open_dir_at_path;
use crate::git::read_file;
use crate::jail::Root;

/// The git folder that the `.git` file of a root names, and the folder that it shares with other worktrees. Both must
/// belong to the root's owner and lead back: a file in a workspace opens nothing that does not name the workspace.
pub(super) fn git_roots(root: &Root) -> Vec<Root> {
    linked(root).unwrap_or_default()
}

fn linked(root: &Root) -> Option<Vec<Root>> {
    let target = git_file_target(&root.path, &read(&root.path, b".git")?)?;
    let git = pin(&target, root)?;
    let Some(back) = read(&git.path, b"gitdir") else {
        // A submodule has no worktrees of its own: its configuration names the folder.
        let worktree = named_worktree(&git.path, &read(&git.path, b"config")?)?;
        return (worktree == root.path).then(|| vec![git]);
    };
    let is_back = named_path(&git.path, &back)? == [root.path.as_slice(), b"/.git"].concat();
    let common = named_path(&git.path, &read(&git.path, b"commondir")?)?;
    let below = git.path.strip_prefix([common.as_slice(), b"/worktrees/"].concat().as_slice())?;
    if !is_back || below.contains(&b'/') {
        return None;
    }
    let common = pin(&common, root)?;
    Some(vec![common, git])
}

/// A folder of the root's owner, if its path has no links.
fn pin(path: &[u8], root: &Root) -> Option<Root> {
    let folder = Root::pin(Path::new(OsStr::from_bytes(path))).ok()?;
    (folder.path == path && folder.meta.uid == root.meta.uid).then_some(folder)
}

fn read(folder: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    read_file(&open_dir_at_path(folder).ok()?, name)
}
