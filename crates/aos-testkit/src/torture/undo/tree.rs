//! A full copy of a tree: what undo must restore, and what it must not change.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use aos_model::path::{RequestPath, show};
use aos_model::request::content_hash;

use crate::random::Random;

/// What is at one path.
#[derive(Debug, Clone)]
pub(super) struct Thing {
    pub kind: Kind,
    mode: u32,
    xattrs: BTreeMap<String, Vec<u8>>,
    pub mtime_ns: i64,
    ino: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// The hash of the content, and the first line.
    File {
        hash: String,
        first_line: String,
    },
    Link {
        target: Vec<u8>,
    },
    Folder,
}

impl Thing {
    /// Whether two things are equal in everything that undo restores, which is everything except the time.
    pub(super) fn is_like(&self, other: &Thing) -> bool {
        (&self.kind, self.mode, &self.xattrs) == (&other.kind, other.mode, &other.xattrs)
    }

    pub(super) fn is_folder(&self) -> bool {
        self.kind == Kind::Folder
    }

    fn describe(&self) -> String {
        let what = match &self.kind {
            Kind::File { first_line, .. } => format!("a file `{first_line}`"),
            Kind::Link { target } => format!("a link to {}", show(target)),
            Kind::Folder => "a folder".to_owned(),
        };
        let worn: Vec<&String> = self.xattrs.keys().collect();
        format!("{what} {:o} {worn:?}", self.mode)
    }
}

/// Things by their path below the root, spelled as in requests and receipts.
pub(super) type Tree = BTreeMap<String, Thing>;

pub(super) fn same(one: Option<&Thing>, other: Option<&Thing>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is_like(other),
        _ => false,
    }
}

/// The paths at which two trees differ.
pub(super) fn differing(one: &Tree, other: &Tree) -> Vec<String> {
    let mut paths: Vec<&String> = one.keys().chain(other.keys()).collect();
    paths.sort();
    paths.dedup();
    paths.into_iter().filter(|path| !same(one.get(*path), other.get(*path))).cloned().collect()
}

/// Folders that were replaced by another folder, even one with the same attributes.
pub(super) fn replaced(one: &Tree, other: &Tree) -> Vec<String> {
    let both = one.iter().filter_map(|(path, was)| Some((path, was, other.get(path)?)));
    let is_other = |was: &Thing, is: &Thing| was.is_folder() && is.is_folder() && was.ino != is.ino;
    both.filter(|(_, was, is)| is_other(was, is)).map(|(path, ..)| path.clone()).collect()
}

/// The first differences, as text.
pub(super) fn explain(expected: &Tree, found: &Tree) -> String {
    let show = |thing: Option<&Thing>| thing.map_or("nothing".to_owned(), Thing::describe);
    let lines = differing(expected, found).into_iter().take(6).map(|path| {
        format!("{path}: expected {}, found {}", show(expected.get(&path)), show(found.get(&path)))
    });
    lines.collect::<Vec<_>>().join("; ")
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
        Kind::Folder => false,
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

/// Everything below `root`. It includes the daemon's temporary names, which no tree expects.
pub(super) fn copy_of(root: &Path) -> Tree {
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
        } else {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let first_line = String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().to_owned();
            Kind::File { hash: content_hash(&bytes), first_line }
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
pub(super) fn on_disk(root: &Path, spelled: &str) -> PathBuf {
    let bytes = RequestPath::parse(spelled).map(|spelled| spelled.as_bytes().to_vec()).unwrap_or_default();
    root.join(OsStr::from_bytes(&bytes))
}

/// Sets an ACL that lets another user read; false if the file system does not support ACLs.
fn set_acl(path: &Path, name: &str) -> bool {
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
    rustix::fs::setxattr(path, name, &acl.concat(), rustix::fs::XattrFlags::empty()).is_ok()
}

/// Creates the tree before the history begins: files of many modes, attributes, links, names with odd bytes, a file
/// with two hard links, and a folder that no request touches.
pub(super) fn plant(root: &Path, random: &mut Random) -> std::io::Result<()> {
    let folders = ["a", "a/b", "a/b/c", "d", "d/e", "keep", "keep/deep"];
    for folder in folders {
        std::fs::create_dir_all(root.join(folder))?;
    }
    let files =
        ["f", "g", "a/f", "a/g", "a/b/f", "a/b/c/f", "d/f", "d/e/f", "d/e/g", "keep/x", "keep/deep/y"];
    for (number, file) in files.iter().enumerate() {
        let path = root.join(file);
        std::fs::write(&path, format!("planted {number} {:x}\nsecond line\n", random.number()))?;
        let modes = [0o644, 0o600, 0o755, 0o444, 0o640, 0o711];
        std::fs::set_permissions(&path, PermissionsExt::from_mode(modes[random.below(modes.len())]))?;
    }
    let odd = root.join(OsStr::from_bytes(b"odd\xff\n"));
    std::fs::create_dir(&odd)?;
    std::fs::write(odd.join(OsStr::from_bytes(b"\xfe name")), "odd\nsecond line\n")?;
    std::fs::hard_link(root.join("g"), root.join("keep/other-name-of-g"))?;
    for (target, link) in
        [("f", "l"), ("../a/f", "d/l"), ("nowhere", "a/dangling"), ("a", "to-folder"), ("x", "keep/l")]
    {
        std::os::unix::fs::symlink(target, root.join(link))?;
    }
    for path in ["f", "a/f", "a/b/c/f", "d", "d/e"] {
        let value = random.number().to_le_bytes();
        let flags = rustix::fs::XattrFlags::empty();
        let _ = rustix::fs::setxattr(root.join(path), "user.color", &value, flags);
    }
    for path in ["a/g", "d/e/f", "a/b/c"] {
        set_acl(&root.join(path), "system.posix_acl_access");
    }
    for (folder, mode) in [("a/b", 0o750), ("d", 0o700), ("d/e", 0o1777)] {
        std::fs::set_permissions(root.join(folder), PermissionsExt::from_mode(mode))?;
    }
    Ok(())
}
