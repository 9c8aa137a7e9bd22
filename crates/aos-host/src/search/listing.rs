//! One folder: its names, less what the search passes over, in path order.

use std::cmp::Ordering;
use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use aos_model::policy::{Decision, Op};
use aos_model::receipt::Kind;
use ignore::Match;
use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use super::rules::{Marks, Rules};
use super::walk::{Visitor, Walk};
use crate::change::TEMPORARY_PREFIX;
use crate::jail::Meta;

/// A folder held open.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) fd: OwnedFd,
    /// Absolute, with a slash at the end.
    pub(super) path: Vec<u8>,
    /// The rules of the folders above it, and after listing its own.
    pub(super) rules: Option<Arc<Rules>>,
}

/// A folder and what is of interest in it.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) folder: Folder,
    /// All names one behind the other, each with a NUL.
    names: Vec<u8>,
    pub(super) entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    at: u32,
    len: u16,
    pub(super) kind: Kind,
}

/// One entry of a listing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) listing: &'a Listing,
    pub(super) entry: Entry,
}

impl<'a> Item<'a> {
    pub(super) fn folder(&self) -> &'a Folder {
        &self.listing.folder
    }

    pub(super) fn name(&self) -> &'a CStr {
        let (at, len) = (self.entry.at as usize, usize::from(self.entry.len));
        CStr::from_bytes_with_nul(&self.listing.names[at..=at + len]).expect("BUG: a name ends with its NUL")
    }

    /// Absolute; a folder's ends with a slash, so that paths compare as wholes.
    pub(super) fn path(&self) -> Vec<u8> {
        let slash: &[u8] = if self.entry.kind == Kind::Dir { b"/" } else { b"" };
        [&self.listing.folder.path, self.name().to_bytes(), slash].concat()
    }
}

/// What one hand needs for reading folders, used again for each.
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
    /// Reads a folder. Its ignore files are read first: they speak about its own names too.
    pub(super) fn read<V: Visitor>(
        walk: &Walk<'_>,
        visitor: &V,
        mut folder: Folder,
        scratch: &mut Scratch,
    ) -> Result<Listing, Errno> {
        let (names, mut entries, marks) = read_names(&folder, walk.options.links, scratch)?;
        if walk.options.ignored_too {
            folder.rules = None;
        } else {
            let parent = folder.rules.take();
            folder.rules = Rules::load(&folder.fd, folder.path.len(), marks, parent, walk.cross_mounts);
        }
        let filter = Filter { walk, visitor, folder: &folder };
        scratch.path.clear();
        scratch.path.extend_from_slice(&folder.path);
        entries.retain(|entry| filter.keeps(entry, name_of(&names, entry), &mut scratch.path));
        entries.sort_unstable_by(|a, b| in_path_order((a, name_of(&names, a)), (b, name_of(&names, b))));
        Ok(Listing { folder, names, entries })
    }
}

fn name_of<'a>(names: &'a [u8], entry: &Entry) -> &'a [u8] {
    &names[entry.at as usize..][..usize::from(entry.len)]
}

/// Whole paths byte by byte: a folder sorts as its name with the slash that follows it.
fn in_path_order(a: (&Entry, &[u8]), b: (&Entry, &[u8])) -> Ordering {
    let common = a.1.len().min(b.1.len());
    let rest = |(entry, name): (&Entry, &[u8])| {
        let slash = (entry.kind == Kind::Dir).then_some(b'/');
        name.get(common).copied().or(slash)
    };
    a.1[..common].cmp(&b.1[..common]).then_with(|| rest(a).cmp(&rest(b)))
}

type Names = (Vec<u8>, Vec<Entry>, Marks);

fn read_names(folder: &Folder, links: bool, scratch: &mut Scratch) -> Result<Names, Errno> {
    let (mut names, mut entries, mut marks) = (Vec::new(), Vec::new(), Marks::default());
    let mut dirents = RawDir::new(&folder.fd, scratch.dirents.spare_capacity_mut());
    while let Some(dirent) = dirents.next() {
        let dirent = match dirent {
            Ok(dirent) => dirent,
            Err(Errno::INTR) => continue,
            // The folder was removed while it was read.
            Err(Errno::NOENT) => break,
            Err(why) => return Err(why),
        };
        let name = dirent.file_name();
        let bytes = name.to_bytes();
        if bytes == b"." || bytes == b".." {
            continue;
        }
        let kind = match dirent.file_type() {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            FileType::Unknown => match Meta::at(&folder.fd, bytes) {
                Ok(Some(meta)) => meta.kind,
                Ok(None) | Err(_) => continue,
            },
            _ => Kind::Other,
        };
        if bytes[0] == b'.' {
            marks.see(bytes, kind);
        }
        if kind == Kind::Other || (kind == Kind::Symlink && !links) || bytes.starts_with(TEMPORARY_PREFIX) {
            continue;
        }
        // Four gigabytes of names in one folder are nobody's tree.
        let Ok(at) = u32::try_from(names.len()) else { break };
        entries.push(Entry { at, len: bytes.len() as u16, kind });
        names.extend_from_slice(name.to_bytes_with_nul());
    }
    Ok((names, entries, marks))
}

struct Filter<'a, V> {
    walk: &'a Walk<'a>,
    visitor: &'a V,
    folder: &'a Folder,
}

impl<V: Visitor> Filter<'_, V> {
    /// `path` holds the folder's path and is left that way.
    fn keeps(&self, entry: &Entry, name: &[u8], path: &mut Vec<u8>) -> bool {
        let options = &self.walk.options;
        let is_dir = entry.kind == Kind::Dir;
        let hidden = name[0] == b'.' && !options.hidden_too;
        if is_dir && options.never_git && name == b".git" {
            return false;
        }
        if hidden && options.overrides.is_none() && self.folder.rules.is_none() {
            return false;
        }
        path.truncate(self.folder.path.len());
        path.extend_from_slice(name);
        // The cheapest question first: most of what is there is not what is looked for.
        self.is_wanted(path, is_dir) && self.passes(path, is_dir, hidden) && self.is_allowed(path, is_dir)
    }

    fn is_wanted(&self, path: &[u8], is_dir: bool) -> bool {
        if is_dir {
            self.visitor.enters(path)
        } else {
            self.walk.files_max.is_some() || self.visitor.wants(path)
        }
    }

    /// The rules in ripgrep's order: what was asked for by name, then the ignore files, then hidden names.
    fn passes(&self, path: &[u8], is_dir: bool, hidden: bool) -> bool {
        if let Some(overrides) = self.walk.options.overrides {
            let spelled = Path::new(OsStr::from_bytes(self.walk.live.jail.relative(path)));
            match overrides.matched(spelled, is_dir) {
                Match::Whitelist(_) => return true,
                Match::Ignore(_) => return false,
                Match::None => {}
            }
        }
        match self.folder.rules.as_ref().map_or(Match::None, |rules| rules.matched(path, is_dir)) {
            Match::Whitelist(()) => true,
            Match::Ignore(()) => false,
            Match::None => !hidden,
        }
    }

    /// A walk passes over our own state, and over files that policy forbids to read or to search.
    fn is_allowed(&self, path: &[u8], is_dir: bool) -> bool {
        if self.walk.may_meet_hidden && self.walk.live.jail.is_hidden(path) {
            return false;
        }
        let policy = &self.walk.live.policy;
        if is_dir || policy.rules().is_empty() {
            return true;
        }
        let shown = self.walk.live.jail.shown(path);
        [Op::Search, Op::Read].iter().all(|op| policy.judge(*op, &shown, &shown).decision != Decision::Deny)
    }
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
        let key = |kind| Entry { at: 0, len: 0, kind };
        for (i, (name, kind)) in sorted.iter().enumerate() {
            for (other, other_kind) in &sorted[i + 1..] {
                let order =
                    in_path_order((&key(*kind), name.as_bytes()), (&key(*other_kind), other.as_bytes()));
                assert_eq!(order, Ordering::Less, "{name} and {other}");
            }
        }
    }
}
