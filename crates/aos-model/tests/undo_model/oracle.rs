//! The meaning of undo by brute force: whole trees, path by path, no moves, no laziness.

use std::collections::{BTreeMap, BTreeSet};

use aos_model::records::Kind;

use super::host::Host;
use super::world::{Files, Key, Obj, ancestors, below, is_dir, key_at, parent};

pub(crate) struct Wanted {
    pub(crate) files: Files,
    /// Paths that somebody else changed, after the changes or between them.
    pub(crate) conflicts: BTreeSet<String>,
}

/// What the changes did to a path: the first state before, and the last state after.
struct Chain<'h> {
    was: Option<&'h Obj>,
    /// The state after the first change.
    made: Option<&'h Obj>,
    left: Option<Key>,
    group: usize,
    has_gap: bool,
}

fn chains<'h>(host: &'h Host, groups: &[Vec<u64>]) -> BTreeMap<&'h String, Chain<'h>> {
    let mut chains: BTreeMap<&String, Chain<'_>> = BTreeMap::new();
    for (group, seqs) in groups.iter().enumerate() {
        for entry in seqs.iter().map(|seq| host.entry(*seq)) {
            let (before, after) = (&entry.tree_before, &entry.tree_after);
            for path in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
                let (was, left) = (key_at(before, path), key_at(after, path));
                if was == left {
                    continue;
                }
                let (first, made) = (before.get(path), after.get(path));
                let first = || Chain { was: first, made, left: was.clone(), group, has_gap: false };
                let chain = chains.entry(path).or_insert_with(first);
                chain.has_gap |= chain.group != group && chain.left != was;
                (chain.left, chain.group) = (left, group);
            }
        }
    }
    chains
}

/// The files after taking back the changes.
pub(crate) fn take_back(host: &Host, groups: &[Vec<u64>]) -> Wanted {
    let mut files = host.files.clone();
    let mut conflicts = BTreeSet::new();
    // The deepest first, so that a folder is known to be empty.
    for (path, chain) in chains(host, groups).into_iter().rev() {
        let (was, now) = (chain.was.map(Obj::key), key_at(&files, path));
        if chain.has_gap {
            conflicts.insert(path.clone());
        }
        let is_made = was.is_none() && chain.left.as_ref().is_some_and(|left| left.0 == Kind::Dir as u8);
        let keeps_others = is_made && is_dir(&files, path) && !below(&files, path).is_empty();
        if was == chain.left || now == was {
            continue;
        }
        if keeps_others {
            // It stays with the attributes with which it was made.
            let made = chain.made.filter(|made| made.kind == Kind::Dir && Some(made.key()) != chain.left);
            if let Some(made) = made {
                let is_as_left = now == chain.left || now == Some(made.key());
                files.insert(path.clone(), made.clone());
                conflicts.extend((!is_as_left).then(|| path.clone()));
            }
            continue;
        }
        if now != chain.left {
            conflicts.insert(path.clone());
        }
        match chain.was {
            Some(obj) => files.insert(path.clone(), obj.clone()),
            None => files.remove(path),
        };
    }
    // Folders above are made again.
    for path in files.keys().cloned().collect::<Vec<_>>() {
        for above in ancestors(&path) {
            files.entry(above.to_owned()).or_insert_with(|| Obj::new(Kind::Dir, 0, 0));
        }
    }
    let orphans = files.keys().filter(|path| !is_dir(&files, parent(path)));
    conflicts.extend(orphans.cloned());
    Wanted { files, conflicts }
}

/// The paths that the changes together leave as they found them.
pub(crate) fn unconcerned(host: &Host, groups: &[Vec<u64>]) -> BTreeSet<String> {
    let same = chains(host, groups).into_iter().filter(|(_, chain)| chain.was.map(Obj::key) == chain.left);
    same.map(|(path, _)| path.clone()).collect()
}

/// The paths that somebody else changed between the changes or after them.
pub(crate) fn foreign(host: &Host, groups: &[Vec<u64>]) -> BTreeSet<String> {
    let seqs = groups.concat();
    let last = seqs.last().map(|seq| difference(&host.entry(*seq).tree_after, &host.files));
    foreign_between(host, &seqs).into_iter().chain(last.into_iter().flatten()).collect()
}

pub(crate) fn foreign_between(host: &Host, seqs: &[u64]) -> BTreeSet<String> {
    let entries = seqs.windows(2).map(|pair| (host.entry(pair[0]), host.entry(pair[1])));
    entries.flat_map(|(one, next)| difference(&one.tree_after, &next.tree_before)).collect()
}

fn difference(one: &Files, other: &Files) -> BTreeSet<String> {
    let paths = one.keys().chain(other.keys());
    paths.filter(|path| key_at(one, path) != key_at(other, path)).cloned().collect()
}

/// The old and the new names of the folders that the changes moved.
pub(crate) fn moved_folders(host: &Host, groups: &[Vec<u64>]) -> BTreeSet<String> {
    let records = groups.iter().flatten().flat_map(|seq| &host.entry(*seq).change.paths);
    let folders = records.filter(|one| one.before.as_ref().is_some_and(|image| image.kind == Kind::Dir));
    let moves = folders.filter_map(|one| Some([one.path.clone(), one.moved_to.clone()?]));
    moves.flatten().collect()
}

/// How often each state exists.
pub(crate) fn states(files: &Files) -> BTreeMap<Key, usize> {
    let mut states = BTreeMap::new();
    files.values().for_each(|obj| *states.entry(obj.key()).or_default() += 1);
    states
}

/// An object that a person wrote, and that is not the same any more. Exactly what a change left is not theirs.
pub(crate) fn lost(before: &Files, after: &Files, as_left: impl Fn(&str, &Obj) -> bool) -> Option<String> {
    let mut written = before.iter().filter(|(_, obj)| obj.by_person);
    let is_kept = |obj: &Obj| after.values().any(|other| other.ino == obj.ino && other.key() == obj.key());
    written.find(|(path, obj)| !is_kept(obj) && !as_left(path, obj)).map(|(path, _)| path.clone())
}
