//! What an effect did to files that it had no reason to write.

use crate::copy::{Kind, Thing, Tree};

/// Folders that were replaced by another folder, even one with the same attributes.
pub(super) fn replaced(one: &Tree, other: &Tree) -> Vec<String> {
    let both = one.iter().filter_map(|(path, was)| Some((path, was, other.get(path)?)));
    let is_other = |was: &Thing, is: &Thing| was.is_folder() && is.is_folder() && was.ino != is.ino;
    both.filter(|(_, was, is)| is_other(was, is)).map(|(path, ..)| path.clone()).collect()
}

/// Files that are the same before and after, and links that no request named, with a different modification time.
pub(super) fn touched(before: &Tree, after: &Tree) -> Vec<String> {
    let kept = before.iter().filter_map(|(path, was)| Some((path, was, after.get(path)?)));
    // Many links are equal, and so are files with several hard links: one of them may have replaced another.
    let alike = |tree: &Tree, kind: &Kind| tree.values().filter(|thing| thing.kind == *kind).count();
    let is_only_one = |kind: &Kind| alike(before, kind) == 1 && alike(after, kind) == 1;
    let is_known = |path: &str, thing: &Thing| match thing.kind {
        Kind::File { .. } => path.starts_with("keep/") || is_only_one(&thing.kind),
        Kind::Link { .. } => path.starts_with("keep/"),
        Kind::Folder | Kind::Other => false,
    };
    // Another folder may have replaced this one, with another file of the same content in it.
    let same_folder = |path: &str| {
        let mut above = path.match_indices('/').map(|(slash, _)| &path[..slash]);
        above.all(|above| before.get(above).map(|thing| thing.ino) == after.get(above).map(|thing| thing.ino))
    };
    kept.filter(|(path, was, is)| was.is_like(is) && is_known(path, is) && was.mtime_ns != is.mtime_ns)
        .filter(|(path, ..)| same_folder(path))
        .map(|(path, ..)| path.clone())
        .collect()
}
