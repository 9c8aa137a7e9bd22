//! What is on the disk below a root: read whole, compared, and written again.

use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, chmodat};

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Dir { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
    Link { target: Vec<u8> },
    Other,
}

impl Node {
    pub(super) fn file(bytes: impl Into<Vec<u8>>) -> Node {
        Node::File { mode: 0o644, bytes: bytes.into() }
    }

    /// What a reader finds in it: content, or where a link leads.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Node::File { bytes, .. } => bytes,
            Node::Link { target } => target,
            Node::Dir { .. } | Node::Other => &[],
        }
    }
}

/// Entries by their path relative to the root, spelled as receipts show it.
pub(super) type Tree = BTreeMap<String, Node>;

/// Adds an entry and the folders above it.
pub(super) fn put(tree: &mut Tree, path: &str, node: Node) {
    for (at, _) in path.match_indices('/') {
        tree.entry(path[..at].to_owned()).or_insert(Node::Dir { mode: 0o755 });
    }
    tree.insert(path.to_owned(), node);
}

/// A name as receipts show it: bytes that are not UTF-8 and control characters are `\xNN`.
pub(super) fn shown(name: &[u8]) -> String {
    let mut out = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                let mut buffer = [0; 4];
                c.encode_utf8(&mut buffer).bytes().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
            } else {
                out.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

/// The bytes of a path that is spelled as receipts show it.
pub(super) fn bytes_of(shown: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), shown.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        let hex = rest.strip_prefix(b"\\x").and_then(|hex| hex.get(..2));
        let byte = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &rest[4..] } else { tail };
    }
    out
}

/// Where an entry is on the disk.
pub(super) fn on_disk(root: &Path, shown: &str) -> PathBuf {
    root.join(std::ffi::OsString::from_vec(bytes_of(shown)))
}

/// Reads everything below a root. Folders that are too deep for a path are left out with what is in them.
pub(super) fn read(root: &Path) -> std::io::Result<Tree> {
    let mut tree = Tree::new();
    read_folder(root, "", &mut tree)?;
    Ok(tree)
}

fn read_folder(folder: &Path, above: &str, tree: &mut Tree) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), shown(entry.file_name().as_bytes()));
        let below = if above.is_empty() { name } else { format!("{above}/{name}") };
        let Ok(meta) = path.symlink_metadata() else { continue };
        let mode = meta.permissions().mode() & 0o7777;
        let node = if meta.is_dir() {
            // A folder that no path reaches holds nothing that a name could match.
            let _ = read_folder(&path, &below, tree);
            Node::Dir { mode }
        } else if meta.is_file() {
            Node::File { mode, bytes: std::fs::read(&path)? }
        } else if meta.is_symlink() {
            Node::Link { target: std::fs::read_link(&path)?.into_os_string().into_vec() }
        } else {
            Node::Other
        };
        tree.insert(below, node);
    }
    Ok(())
}

/// Removes everything below a root.
pub(super) fn clear(root: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes a tree into an empty root, for this owner.
pub(super) fn write(root: &Path, tree: &Tree, owner: Option<u32>) -> std::io::Result<()> {
    for (path, node) in tree {
        let at = on_disk(root, path);
        match node {
            Node::Dir { .. } => std::fs::create_dir(&at)?,
            Node::File { mode, bytes } => {
                std::fs::write(&at, bytes)?;
                set_mode(&at, *mode)?;
            }
            Node::Link { target } => symlink(std::ffi::OsStr::from_bytes(target), &at)?,
            Node::Other => {}
        }
        if owner.is_some() {
            lchown(&at, owner, owner)?;
        }
    }
    // Folders last: one may be closed.
    for (path, node) in tree.iter().rev() {
        if let Node::Dir { mode } = node {
            set_mode(&on_disk(root, path), *mode)?;
        }
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    Ok(chmodat(CWD, path, Mode::from_raw_mode(mode), rustix::fs::AtFlags::empty())?)
}

/// Gives a root to its owner, and opens it.
pub(super) fn open_root(root: &Path, owner: Option<u32>) -> std::io::Result<()> {
    let owner = owner.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    lchown(root, Some(owner), Some(owner))?;
    set_mode(root, 0o755)
}
