//! A place: a pinned folder and one plain name in it. All file access goes through one of these.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{Jail, Leaf, Root};
use crate::content::Source;
use crate::disk::{Meta, open_beneath};
use crate::fault;

/// A folder held open: the session's own root, or one opened beneath it.
#[derive(Debug, Clone)]
pub(crate) enum Dir {
    Root(Arc<Root>),
    Opened(Arc<OwnedFd>),
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Dir::Root(root) => root.fd.as_fd(),
            Dir::Opened(fd) => fd.as_fd(),
        }
    }
}

/// A folder of a root that is opened when it is needed, because a change may work in more folders than files can be
/// open. Anything else at its path is not it.
#[derive(Debug, Clone)]
pub(crate) struct KnownDir {
    root: Arc<Root>,
    id: (u64, u64),
    cross_mounts: bool,
}

impl KnownDir {
    /// `meta` is what the folder is now.
    pub(crate) fn new(root: &Arc<Root>, meta: &Meta, cross_mounts: bool) -> KnownDir {
        KnownDir { root: root.clone(), id: (meta.dev, meta.ino), cross_mounts }
    }

    /// Opens the folder at its path, which a step before may have changed.
    pub(crate) fn open(&self, absolute: &[u8]) -> Result<OwnedFd, Errno> {
        let dir = open_folder(&self.root, absolute, self.cross_mounts)?;
        if crate::disk::id_of(&dir)? == self.id { Ok(dir) } else { Err(Errno::STALE) }
    }
}

fn open_folder(root: &Root, absolute: &[u8], cross_mounts: bool) -> Result<OwnedFd, Errno> {
    let below = absolute.strip_prefix(root.path.as_slice()).ok_or(Errno::XDEV)?;
    let below = below.strip_prefix(b"/").filter(|below| !below.is_empty()).unwrap_or(b".");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    open_beneath(&root.fd, below, flags, cross_mounts)
}

impl Jail {
    /// The folder at a link-free path, by `O_PATH`.
    pub(crate) fn open_folder(&self, absolute: &[u8]) -> Result<OwnedFd, Errno> {
        let root = self.root_of(absolute).ok_or(Errno::XDEV)?;
        open_folder(&self.roots[root], absolute, self.cross_mounts)
    }
}

/// The folder of a place.
#[derive(Debug, Clone)]
pub(crate) enum PlaceDir {
    Held(Dir),
    /// Opened for each use.
    Known(KnownDir),
}

impl From<Dir> for PlaceDir {
    fn from(dir: Dir) -> PlaceDir {
        PlaceDir::Held(dir)
    }
}

/// A folder that is held open, or was opened just now.
#[derive(Debug)]
pub(crate) enum DirFd<'a> {
    Held(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for DirFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            DirFd::Held(dir) => *dir,
            DirFd::Opened(dir) => dir.as_fd(),
        }
    }
}

/// Where a path leads, pinned.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) dir: PlaceDir,
    /// Plain: no slash, not `.` or `..`. Empty when the place is the root folder itself.
    pub(crate) name: Vec<u8>,
    /// Link-free and absolute: what policy checks and what the record names.
    pub(crate) absolute: Vec<u8>,
    /// As receipts show it.
    pub(crate) shown: String,
    /// What was there when it was looked up.
    pub(crate) meta: Option<Meta>,
    pub(crate) cross_mounts: bool,
    /// In a session with a layer: what it is there.
    pub(crate) leaf: Option<Leaf>,
}

/// The outcome of a look-up.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    /// The folder exists; the name in it may or may not.
    Resolved(Place),
    /// Folders are missing on the way: the deepest one that exists, and the names below it, the last one included.
    ParentMissing { base: Place, missing: Vec<Vec<u8>>, absolute: Vec<u8>, shown: String },
    /// A missing name is followed by `..`: nothing can exist there or be made there.
    Unresolvable { absolute: Vec<u8>, shown: String },
}

impl Found {
    pub(crate) fn absolute(&self) -> &[u8] {
        match self {
            Found::Resolved(place) => &place.absolute,
            Found::ParentMissing { absolute, .. } | Found::Unresolvable { absolute, .. } => absolute,
        }
    }

    pub(crate) fn display(&self) -> &str {
        match self {
            Found::Resolved(place) => &place.shown,
            Found::ParentMissing { shown, .. } | Found::Unresolvable { shown, .. } => shown,
        }
    }

    /// The absolute paths of the missing folders above it.
    pub(crate) fn missing_folders(&self) -> Vec<Vec<u8>> {
        let Found::ParentMissing { base, missing, .. } = self else { return Vec::new() };
        let names = missing.split_last().map(|(_, folders)| folders).unwrap_or_default();
        let mut absolute = base.absolute.clone();
        let below = names.iter().map(|name| {
            absolute = [absolute.as_slice(), b"/", name].concat();
            absolute.clone()
        });
        below.collect()
    }

    /// The place and what is there, or `path_not_found`.
    pub(crate) fn existing(&self) -> Result<(&Place, Meta), Refusal> {
        match self {
            Found::Resolved(place) => match place.meta {
                Some(meta) => Ok((place, meta)),
                None => Err(self.missing()),
            },
            Found::ParentMissing { .. } | Found::Unresolvable { .. } => Err(self.missing()),
        }
    }

    pub(crate) fn missing(&self) -> Refusal {
        Refusal::new(
            Code::PathNotFound,
            format!("{}: nothing is there; check the spelling or list the folder", self.display()),
        )
    }

    /// The place whose folder exists, or `parent_not_found`.
    pub(crate) fn with_parent(&self) -> Result<&Place, Refusal> {
        let why = match self {
            Found::Resolved(place) => return Ok(place),
            Found::ParentMissing { shown, missing, base, .. } => {
                format!(
                    "{shown}: `{}` is not a folder in {}; make it first or ask for the parents to be made",
                    aos_model::path::show(&missing[0]),
                    base.shown
                )
            }
            Found::Unresolvable { shown, .. } => {
                format!("{shown}: a `..` follows a name that does not exist; leave both out")
            }
        };
        Err(Refusal::new(Code::ParentNotFound, why))
    }

    /// Whether something can be made there, its parents included. A file cannot be a parent.
    pub(crate) fn makeable(&self) -> Result<(), Refusal> {
        match self {
            Found::Resolved(_) => Ok(()),
            Found::ParentMissing { base, .. } if base.meta.is_none() => Ok(()),
            Found::ParentMissing { .. } | Found::Unresolvable { .. } => self.with_parent().map(drop),
        }
    }
}

/// The folders that the paths of one request lead to, each held open once, and only some of them: a request may name
/// more paths, and an undo more folders, than files can be open.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    looked_up: usize,
    opened: HashMap<(u64, u64, u64), Dir>,
}

/// This many paths may each hold a folder; that is cheaper than checking whether they share one.
const FOLDERS_UNSHARED_MAX: usize = 16;

/// This many folders are held open. The others are opened when they are needed.
const FOLDERS_HELD_MAX: usize = 32;

impl Folders {
    /// Replaces the folder of what was found by one that is already open, if both are the same folder.
    pub(crate) fn share(&mut self, jail: &Jail, found: &mut Found) -> Result<(), Refusal> {
        self.looked_up += 1;
        let (Found::Resolved(place) | Found::ParentMissing { base: place, .. }) = found else {
            return Ok(());
        };
        if self.looked_up > FOLDERS_UNSHARED_MAX
            && let PlaceDir::Held(Dir::Opened(dir)) = &place.dir
        {
            let meta = Meta::of(dir).map_err(|why| place.refusal("look at the folder of", why))?;
            let id = (meta.dev, meta.ino, meta.mount);
            // A node of a layer has no folder on the disk.
            let root = jail.root_of(&place.absolute).filter(|_| place.leaf.is_none());
            if let Some(held) = self.opened.get(&id) {
                place.dir = held.clone().into();
            } else if let Some(root) = root.filter(|_| self.opened.len() >= FOLDERS_HELD_MAX) {
                place.dir = PlaceDir::Known(KnownDir::new(&jail.roots[root], &meta, place.cross_mounts));
            } else {
                self.opened.insert(id, Dir::Opened(dir.clone()));
            }
        }
        Ok(())
    }
}

impl Place {
    /// The folder that the name is in; the place itself if it has no name.
    pub(crate) fn folder(&self) -> Result<DirFd<'_>, Errno> {
        match &self.dir {
            PlaceDir::Held(dir) => Ok(DirFd::Held(dir.as_fd())),
            PlaceDir::Known(known) => {
                let tail = if self.name.is_empty() { 0 } else { self.name.len() + 1 };
                known.open(&self.absolute[..self.absolute.len() - tail]).map(DirFd::Opened)
            }
        }
    }

    /// Opens the file for reading. Only a regular one: a FIFO or a device is refused and never opened.
    pub(crate) fn open_file(&self) -> Result<(Source, Meta), Refusal> {
        let here = self.meta.ok_or_else(|| self.gone())?;
        self.must_be_file(&here)?;
        if let Some(source) = self.leaf.as_ref().and_then(|leaf| leaf.open(&self.shown)) {
            return Ok((source?, here));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        let fd = self
            .folder()
            .and_then(|dir| open_beneath(dir, &self.name, flags, self.cross_mounts))
            .map_err(|why| self.refusal("open", why))?;
        let meta = Meta::of(&fd).map_err(|why| self.refusal("look at", why))?;
        // It may have been exchanged since; what was opened counts.
        self.must_be_file(&meta)?;
        Ok((Source::disk(fd), meta))
    }

    pub(crate) fn open_dir(&self) -> Result<OwnedFd, Errno> {
        let name: &[u8] = if self.name.is_empty() { b"." } else { &self.name };
        open_beneath(
            self.folder()?,
            name,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW,
            self.cross_mounts,
        )
    }

    pub(crate) fn must_be_file(&self, meta: &Meta) -> Result<(), Refusal> {
        match meta.kind {
            Kind::File => Ok(()),
            Kind::Dir => {
                Err(Refusal::new(Code::IsDirectory, format!("{} is a folder; name a file in it", self.shown)))
            }
            Kind::Symlink | Kind::Other => Err(Refusal::new(
                Code::NotRegularFile,
                format!("{} is not a regular file; only regular files are read and written", self.shown),
            )),
        }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.name.is_empty()
    }

    fn gone(&self) -> Refusal {
        Refusal::new(Code::PathNotFound, format!("{}: nothing is there", self.shown))
    }

    pub(crate) fn refusal(&self, verb: &str, why: Errno) -> Refusal {
        match why {
            Errno::NOENT => self.gone(),
            // Another process put a link or a mount there after we looked.
            Errno::LOOP => Refusal::new(
                Code::SymlinkNotAllowed,
                format!("{}: a link appeared there while it was opened", self.shown),
            ),
            Errno::XDEV => Refusal::new(
                Code::PathOutsideRoots,
                format!("{} is on another mount, which is outside the roots", self.shown),
            ),
            why => fault::refusal(&format!("cannot {verb} {}", self.shown), why),
        }
    }
}
