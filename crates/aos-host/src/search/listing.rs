//! Lists one folder: the names that the search visits, in path order.

use std::cmp::Ordering;
use std::ffi::CStr;
use std::sync::Arc;

use aos_model::records::Kind;
use aos_model::vfs::Node;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::merged::{MergedDir, kind_of, spelled};
use super::rules::{Marks, Rules};
use super::skipped::SkippedPaths;
use crate::disk::{self, Meta, TEMPORARY_PREFIX};

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) merged: MergedDir,
    /// Absolute, with a trailing slash.
    pub(super) path: Vec<u8>,
    /// The ignore rules of the folders above it; after listing also its own.
    pub(super) rules: Option<Arc<Rules>>,
}

/// A folder and its entries that pass the filters.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) folder: Folder,
    /// All names, each with a trailing NUL.
    names: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    /// The layer's nodes of the entries.
    own: Vec<Arc<Node>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    at: u32,
    len: u16,
    pub(super) kind: Kind,
    /// The index into `own`, or `ON_DISK`.
    own: u32,
}

const ON_DISK: u32 = u32::MAX;

/// One entry of a listing.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListedEntry<'a> {
    pub(super) listing: &'a Listing,
    pub(super) entry: Entry,
}

impl<'a> ListedEntry<'a> {
    pub(super) fn folder(&self) -> &'a Folder {
        &self.listing.folder
    }

    pub(super) fn name(&self) -> &'a CStr {
        let (at, len) = (self.entry.at as usize, usize::from(self.entry.len));
        CStr::from_bytes_with_nul(&self.listing.names[at..=at + len]).expect("BUG: each name has a NUL")
    }

    pub(super) fn own(&self) -> Option<&'a Arc<Node>> {
        self.listing.own.get(self.entry.own as usize)
    }

    /// Absolute; a folder's path ends with a slash, so that comparing bytes gives path order.
    pub(super) fn path(&self) -> Vec<u8> {
        let slash: &[u8] = if self.entry.kind == Kind::Dir { b"/" } else { b"" };
        [&self.listing.folder.path, self.name().to_bytes(), slash].concat()
    }
}

/// The buffers of one thread for reading folders.
#[derive(Debug)]
pub(super) struct Scratch {
    dirents: Vec<u8>,
    path: Vec<u8>,
}

const DIRENTS_BYTES: usize = 64 << 10;

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch { dirents: Vec::with_capacity(DIRENTS_BYTES), path: Vec::new() }
    }
}

impl Listing {
    /// Reads a folder. Its ignore files are read first, because they apply to its own names.
    pub(super) fn read(
        mut folder: Folder,
        (links, ignored_too): (bool, bool),
        skipped: &SkippedPaths,
        scratch: &mut Scratch,
        keeps: impl Fn(&Folder, Kind, &[u8], &mut Vec<u8>) -> bool,
    ) -> Result<Listing, Errno> {
        let Names { names, mut entries, marks, own } = read_names(&folder, links, scratch)?;
        if ignored_too {
            folder.rules = None;
        } else {
            let parent = folder.rules.take();
            folder.rules = Rules::load(&folder.merged, &folder.path, marks, parent, skipped);
        }
        scratch.path.clear();
        scratch.path.extend_from_slice(&folder.path);
        entries.retain(|entry| keeps(&folder, entry.kind, name_of(&names, entry), &mut scratch.path));
        entries.sort_unstable_by(|a, b| in_path_order((a, name_of(&names, a)), (b, name_of(&names, b))));
        Ok(Listing { folder, names, entries, own })
    }
}

fn name_of<'a>(names: &'a [u8], entry: &Entry) -> &'a [u8] {
    &names[entry.at as usize..][..usize::from(entry.len)]
}

/// Compares whole paths by bytes: a folder sorts as its name with a trailing slash.
fn in_path_order(a: (&Entry, &[u8]), b: (&Entry, &[u8])) -> Ordering {
    let common = a.1.len().min(b.1.len());
    let rest = |(entry, name): (&Entry, &[u8])| {
        let slash = (entry.kind == Kind::Dir).then_some(b'/');
        name.get(common).copied().or(slash)
    };
    a.1[..common].cmp(&b.1[..common]).then_with(|| rest(a).cmp(&rest(b)))
}

/// All names of a folder.
#[derive(Default)]
struct Names {
    names: Vec<u8>,
    entries: Vec<Entry>,
    marks: Marks,
    own: Vec<Arc<Node>>,
}

impl Names {
    fn add(&mut self, name: &[u8], kind: Kind, own: Option<&Arc<Node>>, links: bool) {
        if name[0] == b'.' {
            self.marks.note(name, kind);
        }
        if kind == Kind::Other || (kind == Kind::Symlink && !links) || name.starts_with(TEMPORARY_PREFIX) {
            return;
        }
        // Offsets are 32 bits wide; names beyond 4 GiB are dropped.
        let Ok(at) = u32::try_from(self.names.len()) else { return };
        let node = own.map_or(ON_DISK, |_| self.own.len() as u32);
        self.own.extend(own.cloned());
        self.entries.push(Entry { at, len: name.len() as u16, kind, own: node });
        self.names.extend_from_slice(name);
        self.names.push(0);
    }
}

/// The names of the layer, and those of the disk that the layer has no node for.
fn read_names(folder: &Folder, links: bool, scratch: &mut Scratch) -> Result<Names, Errno> {
    let mut all = Names::default();
    if !folder.merged.has_tree() {
        read_disk(folder, &mut all, |_| false, links, scratch)?;
        return Ok(all);
    }
    let mut known = std::collections::HashSet::new();
    for (name, node) in folder.merged.own() {
        let Some(name) = spelled(name) else { continue };
        if let Some(kind) = kind_of(node) {
            all.add(&name, kind, Some(node), links);
        }
        if folder.merged.fd.is_some() {
            known.insert(name.into_owned());
        }
    }
    read_disk(folder, &mut all, |name| known.contains(name), links, scratch)?;
    Ok(all)
}

fn read_disk(
    folder: &Folder,
    all: &mut Names,
    is_known: impl Fn(&[u8]) -> bool,
    links: bool,
    scratch: &mut Scratch,
) -> Result<(), Errno> {
    let Some(fd) = &folder.merged.fd else { return Ok(()) };
    let mut dirents = disk::read_dir_raw(fd, scratch.dirents.spare_capacity_mut());
    while let Some(dirent) = dirents.next() {
        let dirent = match dirent {
            Ok(dirent) => dirent,
            Err(Errno::INTR) => continue,
            // The folder was removed while it was being read.
            Err(Errno::NOENT) => break,
            Err(why) => return Err(why),
        };
        let name = dirent.file_name().to_bytes();
        if name == b"." || name == b".." || is_known(name) {
            continue;
        }
        let kind = match dirent.file_type() {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            FileType::Unknown => match Meta::at(fd, name) {
                Ok(Some(meta)) => meta.kind,
                Ok(None) | Err(_) => continue,
            },
            _ => Kind::Other,
        };
        all.add(name, kind, None, links);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_sorts_as_its_name_with_a_slash() {
        let sorted = [
            ("a", Kind::File),
            ("a-b", Kind::File),
            ("a.txt", Kind::File),
            ("a", Kind::Dir),
            ("a0", Kind::File),
        ];
        let key = |kind| Entry { at: 0, len: 0, kind, own: ON_DISK };
        for (i, (name, kind)) in sorted.iter().enumerate() {
            for (other, other_kind) in &sorted[i + 1..] {
                let order =
                    in_path_order((&key(*kind), name.as_bytes()), (&key(*other_kind), other.as_bytes()));
                assert_eq!(order, Ordering::Less, "{name} and {other}");
            }
        }
    }
}
