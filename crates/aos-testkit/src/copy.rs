//! A full copy of a tree, made without the daemon: what undo must restore, and what it must not change.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aos_model::limits::RECEIPT_PATHS_MAX;
use aos_model::path::{RequestPath, show};
use aos_model::request::content_hash;
use rustix::fs::XattrFlags;
use serde_json::Value;

use crate::check::{Outcome, check};

/// What is at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    pub kind: Kind,
    mode: u32,
    xattrs: BTreeMap<String, Vec<u8>>,
    pub mtime_ns: i64,
    pub ino: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The hash of the content, and the first line.
    File {
        hash: String,
        first_line: String,
    },
    Link {
        target: Vec<u8>,
    },
    Folder,
    Other,
}

/// Which attributes of a thing somebody changed. The content always counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    mode: bool,
    xattrs: bool,
}

impl Part {
    pub const ALL: Part = Part { mode: true, xattrs: true };

    pub fn and(self, other: Part) -> Part {
        Part { mode: self.mode || other.mode, xattrs: self.xattrs || other.xattrs }
    }
}

impl Thing {
    /// Whether two things are equal in everything that undo restores, which is everything except the time.
    pub fn is_like(&self, other: &Thing) -> bool {
        (&self.kind, self.mode, &self.xattrs) == (&other.kind, other.mode, &other.xattrs)
    }

    /// What of this was changed to become `other`.
    pub fn changed_part(&self, other: &Thing) -> Part {
        let is_other = self.kind != other.kind;
        Part { mode: is_other || self.mode != other.mode, xattrs: is_other || self.xattrs != other.xattrs }
    }

    /// Whether another thing has the content of this one, and the rest of a part of it.
    pub fn has_part(&self, other: &Thing, part: Part) -> bool {
        self.kind == other.kind
            && (!part.mode || self.mode == other.mode)
            && (!part.xattrs || self.xattrs == other.xattrs)
    }

    pub fn is_folder(&self) -> bool {
        self.kind == Kind::Folder
    }

    pub fn is_link(&self) -> bool {
        matches!(self.kind, Kind::Link { .. })
    }

    /// The hash of a file's content.
    pub fn hash(&self) -> Option<&str> {
        match &self.kind {
            Kind::File { hash, .. } => Some(hash),
            Kind::Link { .. } | Kind::Folder | Kind::Other => None,
        }
    }

    fn describe(&self) -> String {
        let what = match &self.kind {
            Kind::File { first_line, .. } => format!("a file `{first_line}`"),
            Kind::Link { target } => format!("a link to {}", show(target)),
            Kind::Folder => "a folder".to_owned(),
            Kind::Other => "a special file".to_owned(),
        };
        let names: Vec<&String> = self.xattrs.keys().collect();
        format!("{what} {:o} {names:?}", self.mode)
    }
}

/// Things by their path below the root, spelled as in requests and receipts.
pub type Tree = BTreeMap<String, Thing>;

pub fn same(one: Option<&Thing>, other: Option<&Thing>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is_like(other),
        _ => false,
    }
}

/// The paths at which two trees differ.
pub fn differing(one: &Tree, other: &Tree) -> Vec<String> {
    let paths: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    paths.into_iter().filter(|path| !same(one.get(*path), other.get(*path))).cloned().collect()
}

/// The paths at which two trees are not the same things, unchanged: another time or another inode is a difference too.
pub fn touched_at_all(before: &Tree, after: &Tree) -> Vec<String> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    paths.into_iter().filter(|path| before.get(*path) != after.get(*path)).cloned().collect()
}

/// The first differences, as text.
pub fn explain(expected: &Tree, found: &Tree) -> String {
    let show = |thing: Option<&Thing>| thing.map_or("nothing".to_owned(), Thing::describe);
    let lines = differing(expected, found).into_iter().take(6).map(|path| {
        format!("{path}: expected {}, found {}", show(expected.get(&path)), show(found.get(&path)))
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// Fails unless two trees are equal in everything that undo restores.
pub fn equal(expected: &Tree, found: &Tree, when: &str) -> Outcome {
    check(differing(expected, found).is_empty(), || format!("{when}: {}", explain(expected, found)))
}

/// Checks that the lists of an undo are exactly the difference of the trees before and after it.
pub fn lists_are_the_difference(receipt: &Value, before: &Tree, after: &Tree) -> Outcome {
    let (restored, deleted): (Vec<String>, Vec<String>) =
        differing(before, after).into_iter().partition(|path| after.contains_key(path));
    for (list, expected) in [("restored_paths", restored), ("deleted_paths", deleted)] {
        let count = format!("{list}_count");
        let listed: Vec<&str> =
            receipt[list].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let shown: BTreeSet<&str> = listed.iter().copied().collect();
        let wanted: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
        let is_exact = shown.len() == listed.len() && listed.len() == expected.len().min(RECEIPT_PATHS_MAX);
        let fits = is_exact && shown.is_subset(&wanted) && receipt[&count] == expected.len();
        check(fits, || {
            let (too_many, missing): (Vec<_>, Vec<_>) =
                (shown.difference(&wanted).collect(), wanted.difference(&shown).take(20).collect());
            let (found, expected) = (&receipt[&count], expected.len());
            format!(
                "{list} is not the difference of the trees: {too_many:?} too many, {missing:?} missing; {count} {found}, not {expected}"
            )
        })?;
    }
    Ok(())
}

/// Everything below `root`. It includes the daemon's temporary names, which no tree expects.
pub fn copy_of(root: &Path) -> Tree {
    let mut tree = Tree::new();
    collect(root, b"", &mut tree);
    tree
}

fn collect(folder: &Path, below: &[u8], tree: &mut Tree) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = [below, entry.file_name().as_bytes()].concat();
        let Ok(meta) = path.symlink_metadata() else { continue };
        let kind = if meta.is_dir() {
            collect(&path, &[name.as_slice(), b"/"].concat(), tree);
            Kind::Folder
        } else if meta.is_symlink() {
            let target = std::fs::read_link(&path).unwrap_or_default();
            Kind::Link { target: target.as_os_str().as_bytes().to_vec() }
        } else if meta.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let first_line = String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().to_owned();
            Kind::File { hash: content_hash(&bytes), first_line }
        } else {
            Kind::Other
        };
        let mode = if meta.is_symlink() { 0 } else { meta.mode() & 0o7777 };
        let xattrs = if meta.is_symlink() { BTreeMap::new() } else { attributes(&path) };
        let mtime_ns = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        tree.insert(show(&name), Thing { kind, mode, xattrs, mtime_ns, ino: meta.ino() });
    }
}

fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0_u8; 4096];
    let size = rustix::fs::listxattr(path, names.as_mut_slice()).unwrap_or(0);
    let mut found = BTreeMap::new();
    for name in names[..size].split(|b| *b == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0_u8; 4096];
        let size = rustix::fs::getxattr(path, name, value.as_mut_slice()).unwrap_or(0);
        value.truncate(size);
        found.insert(String::from_utf8_lossy(name).into_owned(), value);
    }
    found
}

/// The path on the disk of a path as spelled in requests.
pub fn on_disk(root: &Path, spelled: &str) -> PathBuf {
    let bytes = RequestPath::parse(spelled).map(|spelled| spelled.as_bytes().to_vec()).unwrap_or_default();
    root.join(OsStr::from_bytes(&bytes))
}

/// Sets an attribute; false if the file system does not support it.
pub fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).is_ok()
}

/// Removes an attribute; false if it was not there.
pub fn remove_xattr(path: &Path, name: &str) -> bool {
    rustix::fs::removexattr(path, name).is_ok()
}

/// Sets an ACL that lets another user read; false if the file system does not support ACLs.
pub fn set_acl(path: &Path, name: &str) -> bool {
    let entry = |tag: u16, perm: u16, id: u32| {
        [tag.to_le_bytes().as_slice(), &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let nobody = u32::MAX;
    let acl = [
        2_u32.to_le_bytes().to_vec(),
        entry(0x01, 7, nobody),
        entry(0x02, 4, 1234),
        entry(0x04, 4, nobody),
        entry(0x10, 5, nobody),
        entry(0x20, 0, nobody),
    ];
    set_xattr(path, name, &acl.concat())
}
