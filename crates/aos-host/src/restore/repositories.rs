//! The git folders in which an undo may change protected names, because the session's own commands changed them.

use std::collections::BTreeSet;

use aos_model::policy::git::is_git_name;
use aos_model::records::{PathRecord, RecordedChange};

/// What the session's own commands changed in git folders: it was judged by content when it landed, or it is the
/// user's. Of a git folder with another name than `.git`, only one that was made or removed as a whole.
pub(super) fn own<'c>(changes: impl Iterator<Item = &'c RecordedChange> + Clone) -> BTreeSet<String> {
    let whole: BTreeSet<&str> = records(changes.clone())
        .filter(|record| record.before.is_none() != record.after.is_none())
        .map(|record| record.path.as_str())
        .collect();
    let is_git = |record: &&PathRecord| record.path.split('/').any(|name| is_git_name(name.as_bytes()));
    let named = records(changes).filter(is_git);
    let others =
        whole.iter().filter_map(|path| path.strip_suffix("/HEAD")).filter(|path| whole.contains(path));
    named.map(|record| record.path.clone()).chain(others.map(str::to_owned)).collect()
}

/// What the session's own changes removed. The paths below such a folder are only in its manifest.
pub(super) fn removed<'c>(changes: impl Iterator<Item = &'c RecordedChange>) -> BTreeSet<String> {
    let is_removed = |record: &&PathRecord| record.before.is_some() && record.after.is_none();
    records(changes).filter(is_removed).map(|record| record.path.clone()).collect()
}

/// The git folder, or the file in its place, that was removed with a folder above it, if `path` is there: that of a
/// worktree, for example.
pub(super) fn removed_with(removed: &BTreeSet<String>, path: &str) -> Option<String> {
    let ends = path.match_indices('/').map(|(slash, _)| slash).chain([path.len()]);
    let git = ends
        .map(|end| &path[..end])
        .find(|part| is_git_name(part.rsplit('/').next().unwrap_or_default().as_bytes()))?;
    git.rmatch_indices('/').any(|(slash, _)| removed.contains(&git[..slash])).then(|| git.to_owned())
}

fn records<'c>(changes: impl Iterator<Item = &'c RecordedChange>) -> impl Iterator<Item = &'c PathRecord> {
    changes.filter(|change| !change.explicit).flat_map(|change| &change.paths)
}
