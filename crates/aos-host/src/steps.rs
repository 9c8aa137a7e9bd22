//! The steps of a change: plain data, computed in full before anything moves.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};

use aos_model::entry::Fact;
use aos_model::limits::CHANGED_PATHS_MAX;
use aos_model::receipt::{Body, Warning};
use aos_model::records::{Attributes, Kind};
use aos_model::refusal::{Code, Refusal};
use aos_model::request::content_hash;
use aos_store::{Blobs, Fault};
use rustix::io::Errno;

use crate::disk::{self, FileAttrs, Meta, read_xattrs};
use crate::jail::{Dir, DirFd, Found, KnownDir, Place, PlaceDir};

/// What is to be done, computed in full before anything moves.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) completion: Completion,
}

/// How a plan ends, whether it succeeds or not.
pub(crate) struct Completion {
    pub(crate) warnings: Vec<Warning>,
    /// Makes the receipt's fields from what is at each step's target afterwards.
    pub(crate) finish: Finish,
    /// The code of this effect when another writer interfered; not every effect has a `conflict`.
    pub(crate) raced: Code,
    /// What else the journal is to remember.
    pub(crate) facts: Vec<Fact>,
    /// It is captured by itself, whatever its session and its tool call capture.
    pub(crate) own_snapshot: bool,
}

type Finish = Box<dyn FnOnce(&Outcome<'_>) -> Body + Send>;

/// The result of a plan that succeeded.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    /// What is at each step's target afterwards.
    pub(crate) after: &'a [Option<Meta>],
    pub(crate) snapshot_id: &'a str,
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completion")
            .field("warnings", &self.warnings)
            .field("raced", &self.raced)
            .finish_non_exhaustive()
    }
}

/// One change of one path.
#[derive(Debug)]
pub(crate) enum Step {
    /// A file or a link, new or in place of something else.
    Put(Put),
    /// Removes a file, a link or a whole folder. `bytes` is the size of everything in it.
    Remove { at: StepTarget, before: Meta, bytes: u64 },
    MakeDir {
        at: StepTarget,
        mode: u32,
        /// Owner, ACL and attributes, where it had some.
        attrs: Option<FileAttrs>,
    },
    /// A folder with another mode and, where given, other attributes: those of before and those it gets.
    SetMode { at: StepTarget, before: Meta, mode: u32, xattrs: Option<(Attributes, Attributes)> },
    /// Moves something to another name. What was there is displaced.
    Rename { from: StepTarget, before: Meta, to: StepTarget, replaced: Option<Meta> },
}

impl Step {
    /// Where it acts; for a move, where to.
    pub(crate) fn at(&self) -> &StepTarget {
        match self {
            Step::Put(Put { at, .. })
            | Step::Remove { at, .. }
            | Step::MakeDir { at, .. }
            | Step::SetMode { at, .. }
            | Step::Rename { to: at, .. } => at,
        }
    }

    pub(crate) fn at_mut(&mut self) -> &mut StepTarget {
        match self {
            Step::Put(Put { at, .. })
            | Step::Remove { at, .. }
            | Step::MakeDir { at, .. }
            | Step::SetMode { at, .. }
            | Step::Rename { to: at, .. } => at,
        }
    }

    /// The places that it names: for a move, both.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &StepTarget> {
        let from = if let Step::Rename { from, .. } = self { Some(from) } else { None };
        from.into_iter().chain([self.at()])
    }

    pub(crate) fn targets_mut(&mut self) -> impl Iterator<Item = &mut StepTarget> {
        let (from, at) = match self {
            Step::Rename { from, to, .. } => (Some(from), to),
            other => (None, other.at_mut()),
        };
        from.into_iter().chain([at])
    }

    /// Whether it displaces something, or may: that goes to the pre-images.
    pub(crate) fn displaces(&self) -> bool {
        matches!(self, Step::Put(_) | Step::Remove { .. } | Step::Rename { .. })
    }

    /// Whether it displaces or moves a folder, with all that is in it.
    pub(crate) fn takes_folder(&self) -> bool {
        let is_folder = |meta: &Meta| meta.kind == Kind::Dir;
        match self {
            Step::Put(Put { before, .. }) => before.as_ref().is_some_and(is_folder),
            Step::Remove { before, .. } => is_folder(before),
            Step::Rename { before, replaced, .. } => {
                is_folder(before) || replaced.as_ref().is_some_and(is_folder)
            }
            Step::MakeDir { .. } | Step::SetMode { .. } => false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) at: StepTarget,
    pub(crate) content: Content,
    pub(crate) mode: u32,
    /// What is replaced.
    pub(crate) before: Option<Meta>,
    /// Owner, ACL and attributes; `None` keeps those of the file that is replaced.
    pub(crate) attrs: Option<FileAttrs>,
    /// The new bytes were made from the old: if those changed meanwhile, nothing is put.
    pub(crate) built_on_before: bool,
}

/// What is put.
#[derive(Debug)]
pub(crate) enum Content {
    Bytes(Fresh),
    /// A blob. It is opened when it is put: there may be more of them than files can be open at a time.
    Blob(Blob),
    /// A link that leads there.
    Link(Vec<u8>),
    /// A file that is finished elsewhere, with its metadata and its time of change. It is moved where possible.
    Moved(Moved),
}

/// Bytes that were made for this change. They are hashed once, on first use.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) bytes: Vec<u8>,
    hash: OnceLock<String>,
}

impl From<Vec<u8>> for Fresh {
    fn from(bytes: Vec<u8>) -> Fresh {
        Fresh { bytes, hash: OnceLock::new() }
    }
}

#[derive(Debug)]
pub(crate) struct Blob {
    blobs: Arc<Blobs>,
    size: u64,
    hash: String,
}

impl Blob {
    /// A blob that exists and whose content matches its name; `None` when there is none.
    pub(crate) fn checked(blobs: &Arc<Blobs>, hash: &str, size: u64) -> Result<Option<Blob>, Fault> {
        let found = blobs.open_checked(hash)?;
        Ok(found.map(|_| Blob { blobs: blobs.clone(), size, hash: hash.to_owned() }))
    }

    pub(crate) fn open(&self) -> Result<OwnedFd, Errno> {
        match self.blobs.open_blob(&self.hash) {
            Ok(Some(file)) => Ok(file),
            Ok(None) => Err(Errno::NOENT),
            Err(fault) => Err(fault.errno()),
        }
    }

    pub(crate) fn into_hash_and_size(self) -> (String, u64) {
        (self.hash, self.size)
    }
}

#[derive(Debug)]
pub(crate) struct Moved {
    /// A folder of ours, and the file's path in it.
    pub(crate) from: Arc<OwnedFd>,
    pub(crate) path: Vec<u8>,
    pub(crate) size: u64,
    pub(crate) hash: String,
    pub(crate) mtime_ns: i64,
}

impl Content {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Content::Bytes(_) | Content::Blob(_) | Content::Moved(_) => Kind::File,
            Content::Link(_) => Kind::Symlink,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            Content::Bytes(Fresh { bytes, .. }) | Content::Link(bytes) => bytes.len() as u64,
            Content::Blob(Blob { size, .. }) | Content::Moved(Moved { size, .. }) => *size,
        }
    }

    pub(crate) fn hash(&self) -> String {
        match self {
            Content::Bytes(fresh) => fresh.hash.get_or_init(|| content_hash(&fresh.bytes)).clone(),
            Content::Link(target) => content_hash(target),
            Content::Blob(Blob { hash, .. }) | Content::Moved(Moved { hash, .. }) => hash.clone(),
        }
    }
}

/// Where a step acts: a folder and a name in it. The folder may be one that an earlier step makes.
#[derive(Debug, Clone)]
pub(crate) struct StepTarget {
    pub(crate) dir: DirAt,
    pub(crate) name: Vec<u8>,
    pub(crate) absolute: Vec<u8>,
    pub(crate) shown: String,
}

#[derive(Debug, Clone)]
pub(crate) enum DirAt {
    Pinned(Dir),
    /// Opened for each step that acts in it.
    Known(KnownDir),
    /// Made by the step of this index.
    Made(usize),
}

impl From<PlaceDir> for DirAt {
    fn from(dir: PlaceDir) -> DirAt {
        match dir {
            PlaceDir::Held(dir) => DirAt::Pinned(dir),
            PlaceDir::Known(known) => DirAt::Known(known),
        }
    }
}

impl StepTarget {
    pub(crate) fn of(place: &Place) -> StepTarget {
        StepTarget {
            dir: place.dir.clone().into(),
            name: place.name.clone(),
            absolute: place.absolute.clone(),
            shown: place.shown.clone(),
        }
    }

    /// The folder; `None` where a step makes it.
    pub(crate) fn folder(&self) -> Result<Option<DirFd<'_>>, Errno> {
        match &self.dir {
            DirAt::Pinned(dir) => Ok(Some(DirFd::Held(dir.as_fd()))),
            DirAt::Known(known) => known.open(self.parent_absolute()).map(DirFd::Opened).map(Some),
            DirAt::Made(_) => Ok(None),
        }
    }

    pub(crate) fn parent_absolute(&self) -> &[u8] {
        &self.absolute[..self.absolute.len() - self.name.len() - 1]
    }
}

/// The missing folders that a plan makes, each once.
#[derive(Debug, Default)]
pub(crate) struct Parents {
    /// The step that makes each, by its path.
    made: HashMap<Vec<u8>, usize>,
}

impl Parents {
    /// The target of `found`; missing folders become steps first.
    pub(crate) fn target(
        &mut self,
        found: &Found,
        steps: &mut Vec<Step>,
        mode: u32,
        jail: &crate::jail::Jail,
    ) -> StepTarget {
        let (base, missing) = match found {
            Found::Resolved(place) => return StepTarget::of(place),
            Found::ParentMissing { base, missing, .. } => (base, missing),
            Found::Unresolvable { .. } => unreachable!("BUG: the operation checks whether it can be made"),
        };
        let mut dir: DirAt = base.dir.clone().into();
        let mut absolute = base.absolute.clone();
        let (last, folders) = missing.split_last().expect("BUG: something is missing");
        for name in folders {
            absolute = [absolute.as_slice(), b"/", name].concat();
            let step = *self.made.entry(absolute.clone()).or_insert_with(|| {
                let at = StepTarget {
                    dir: dir.clone(),
                    name: name.clone(),
                    shown: jail.display(&absolute),
                    absolute: absolute.clone(),
                };
                steps.push(Step::MakeDir { at, mode, attrs: None });
                steps.len() - 1
            });
            dir = DirAt::Made(step);
        }
        StepTarget {
            dir,
            name: last.clone(),
            absolute: found.absolute().to_vec(),
            shown: found.display().to_owned(),
        }
    }
}

impl Moved {
    /// The folder that holds the file, and its name there.
    pub(crate) fn place(&self) -> Result<(OwnedFd, &[u8]), Errno> {
        let slash = self.path.iter().rposition(|b| *b == b'/');
        let (parent, name) = match slash {
            Some(slash) => (&self.path[..slash], &self.path[slash + 1..]),
            None => (b".".as_slice(), self.path.as_slice()),
        };
        Ok((disk::hold_dir_beneath(self.from.as_fd(), parent)?, name))
    }

    /// Opens the file for reading, where it is now.
    pub(crate) fn open(&self) -> Result<OwnedFd, Errno> {
        let (dir, name) = self.place()?;
        disk::open_file(dir, name)
    }
}

impl Put {
    /// A finished file in place of whatever is there, opened here as `file`. It keeps its metadata.
    pub(crate) fn moved(
        at: StepTarget,
        moved: Moved,
        file: &OwnedFd,
        meta: &Meta,
        before: Option<Meta>,
    ) -> Result<Put, Errno> {
        let attrs = FileAttrs { owner: Some((meta.uid, meta.gid)), xattrs: read_xattrs(file)? };
        Ok(Put {
            at,
            content: Content::Moved(moved),
            mode: meta.mode,
            before,
            attrs: Some(attrs),
            built_on_before: false,
        })
    }
}

pub(crate) fn too_many_paths() -> Refusal {
    Refusal::new(
        Code::LimitExceeded,
        format!(
            "more than {CHANGED_PATHS_MAX} paths would change; nothing was changed. Split the work, or have the operator open the session with `capture_exclude` for folders of that size"
        ),
    )
}
