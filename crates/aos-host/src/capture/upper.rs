//! Reading an overlay: what a command changed, path by path, as proposed paths and steps.
//!
//! ```text
//! in the upper folder                              in the plan
//! character device 0:0                             remove
//! folder over no folder                            remove what was there, make it, continue inside
//! folder over a folder                             set its mode and attributes if they differ, continue inside
//! the same, and it says that it is opaque          also remove what is only in the folder below it
//! file or link                                     put, unless it is unchanged
//! ```
//!
//! Nothing writes there any more: all processes of the command have ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use aos_model::limits::CHANGED_PATHS_MAX;
use aos_model::path::show;
use aos_model::policy::Op;
use aos_model::policy::git::GitVerdict;
use aos_model::receipt::Warning;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::noticed::Noticed;
use super::trees::judge_git;
use crate::disk::{
    self, FileAttrs, Meta, SET_ID_BITS, TEMPORARY_PREFIX, hash_of, names_in, open_beneath, open_dir,
    read_xattrs,
};
use crate::fault;
use crate::jail::{Dir, KnownDir, Root};
use crate::overlay::Overlay;
use crate::proposed::{ProposedPath, Touched};
use crate::session::OpenSession;
use crate::steps::{Content, DirAt, Moved, Put, Step, StepTarget, too_many_paths};
use crate::subtree::{Below, Subtree};
use crate::target;

/// What the overlay holds, path by path.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) paths: Vec<ProposedPath>,
    pub(super) steps: Vec<Step>,
    pub(super) files: u64,
    pub(super) touched: Vec<Touched>,
    pub(super) notes: Vec<Warning>,
}

/// Reads everything that a command changed.
pub(super) fn read(
    session: &Arc<OpenSession>,
    overlay: &Overlay,
    started_at_ns: u64,
) -> Result<Read, Refusal> {
    let mut reader = Reader {
        session,
        started_at_ns: started_at_ns as i64,
        out: Read::default(),
        noticed: Noticed::default(),
        mount: 0,
        in_user_namespace: overlay.in_user_namespace,
    };
    for part in &overlay.parts {
        let root = &session.jail.roots[part.root];
        reader.mount = root.meta.mount;
        let site = Site {
            upper_root: &part.upper,
            upper: part.upper.as_fd(),
            below: Vec::new(),
            lower: Lower::There(Dir::Root(root.clone()), DirAt::Pinned(Dir::Root(root.clone()))),
            hidden: Vec::new(),
            root,
            absolute: root.path.clone(),
        };
        reader.folder(&site)?;
        reader.compare_root(&part.upper, session, part.root);
    }
    reader.out.notes.extend(reader.noticed.warnings());
    judge_git(session, overlay, &mut reader.out.paths);
    Ok(reader.out)
}

/// A folder of the overlay, and the folder that it is merged into.
struct Site<'a> {
    root: &'a Arc<Root>,
    upper_root: &'a Arc<OwnedFd>,
    upper: BorrowedFd<'a>,
    /// Its path in the upper folder.
    below: Vec<u8>,
    lower: Lower,
    /// What the folder below it holds, if it hides that: a command removed the folder and made it again. Only the
    /// difference is proposed, so that a change that cancels out is none.
    hidden: Vec<Vec<u8>>,
    absolute: Vec<u8>,
}

enum Lower {
    There(Dir, DirAt),
    /// The step of this index makes it.
    Made(usize),
}

struct Reader<'a> {
    session: &'a Arc<OpenSession>,
    started_at_ns: i64,
    out: Read,
    noticed: Noticed,
    /// The root's mount: what is on another is outside.
    mount: u64,
    in_user_namespace: bool,
}

/// One name in a folder of the overlay.
struct Entry<'s> {
    site: &'s Site<'s>,
    name: &'s [u8],
    absolute: Vec<u8>,
    shown: String,
    upper: Meta,
    /// What is in the root.
    lower: Option<Meta>,
}

impl Entry<'_> {
    fn target(&self) -> StepTarget {
        StepTarget {
            dir: match &self.site.lower {
                Lower::There(_, at) => at.clone(),
                Lower::Made(step) => DirAt::Made(*step),
            },
            name: self.name.to_vec(),
            absolute: self.absolute.clone(),
            shown: self.shown.clone(),
        }
    }

    fn lower_dir(&self) -> Option<&Dir> {
        match &self.site.lower {
            Lower::There(dir, _) => Some(dir),
            Lower::Made(_) => None,
        }
    }

    fn below(&self) -> Vec<u8> {
        if self.site.below.is_empty() {
            self.name.to_vec()
        } else {
            [self.site.below.as_slice(), b"/", self.name].concat()
        }
    }

    fn fail(&self, why: Errno) -> Refusal {
        fault::refusal(&format!("cannot read the new state of {}", self.shown), why)
    }
}

impl Reader<'_> {
    fn folder(&mut self, site: &Site<'_>) -> Result<(), Refusal> {
        let fail = |why| {
            let shown = self.session.jail.display(&site.absolute);
            fault::refusal(&format!("cannot read what changed in {shown}"), why)
        };
        let mut names = names_in(&open_dir(site.upper, b".").map_err(fail)?).map_err(fail)?;
        names.sort_unstable();
        for name in &names {
            let absolute = [site.absolute.as_slice(), b"/", name].concat();
            if name.starts_with(TEMPORARY_PREFIX) {
                self.noticed.reserved.push(self.session.jail.display(&absolute));
                continue;
            }
            target::check_depth(self.session, &absolute)?;
            let Some(upper) = Meta::at(site.upper, name).map_err(fail)? else { continue };
            let lower = match &site.lower {
                Lower::There(dir, _) => Meta::at(dir, name).map_err(fail)?,
                Lower::Made(_) => None,
            };
            let is_own = lower.is_some_and(|lower| self.session.jail.own.is(&lower));
            if is_own || self.session.jail.is_hidden(&absolute) {
                continue;
            }
            let shown = self.session.jail.display(&absolute);
            self.entry(&Entry { site, name, absolute, shown, upper, lower })?;
        }
        site.hidden
            .iter()
            .filter(|name| names.binary_search(name).is_err())
            .try_for_each(|name| self.gone(site, name))
    }

    /// Proposes to remove what an opaque folder hides and does not have.
    fn gone(&mut self, site: &Site<'_>, name: &[u8]) -> Result<(), Refusal> {
        let Lower::There(dir, _) = &site.lower else { return Ok(()) };
        let absolute = [site.absolute.as_slice(), b"/", name].concat();
        let shown = self.session.jail.display(&absolute);
        let found = Meta::at(dir, name);
        let found = found.map_err(|why| fault::refusal(&format!("cannot look at {shown}"), why))?;
        let Some(lower) = found.filter(|lower| !self.session.jail.hides(&absolute, lower)) else {
            return Ok(());
        };
        let entry = Entry { site, name, absolute, shown, upper: lower, lower: Some(lower) };
        self.check_mount(&entry)?;
        self.remove(&entry, lower)
    }

    fn check_mount(&self, entry: &Entry<'_>) -> Result<(), Refusal> {
        match entry.lower {
            Some(lower) if lower.mount != self.mount => {
                let why = format!("{} is a mount of its own, which is outside the roots", entry.shown);
                Err(Refusal::new(Code::PathOutsideRoots, why))
            }
            _ => Ok(()),
        }
    }

    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Refusal> {
        self.check_mount(entry)?;
        match entry.upper.kind {
            Kind::Dir => self.enter(entry),
            Kind::File => self.file(entry),
            Kind::Symlink => self.link(entry),
            Kind::Other => {
                let is_whiteout =
                    disk::is_whiteout(entry.site.upper, entry.name).map_err(|why| entry.fail(why))?;
                if !is_whiteout {
                    self.noticed.special.push(entry.shown.clone());
                }
                entry.lower.map_or(Ok(()), |lower| self.remove(entry, lower))
            }
        }
    }

    /// Proposes one path.
    fn propose(&mut self, entry: &Entry<'_>, op: Op, bytes: u64) -> Result<(), Refusal> {
        if entry.lower.is_some_and(|lower| lower.mtime_ns >= self.started_at_ns && lower.kind != Kind::Dir) {
            self.noticed.concurrent.push(entry.shown.clone());
        }
        self.push(ProposedPath {
            op,
            absolute: entry.absolute.clone(),
            shown: entry.shown.clone(),
            bytes,
            git: GitVerdict::Allowed,
            is_listed: true,
        })
    }

    fn push(&mut self, path: ProposedPath) -> Result<(), Refusal> {
        self.out.paths.push(path);
        if self.out.paths.len() > CHANGED_PATHS_MAX { Err(too_many_paths()) } else { Ok(()) }
    }

    /// Proposes to remove an entry, with everything below it.
    fn remove(&mut self, entry: &Entry<'_>, lower: Meta) -> Result<(), Refusal> {
        self.propose(entry, Op::Remove, 0)?;
        let mut bytes = lower.size;
        if let Some(dir) = entry.lower_dir().filter(|_| lower.kind == Kind::Dir) {
            let mut below = Vec::new();
            let mut collect = |path: Below<'_>| {
                let (absolute, shown) = (path.absolute.to_vec(), path.shown.to_owned());
                below.push(ProposedPath {
                    op: Op::Remove,
                    absolute,
                    shown,
                    bytes: 0,
                    git: GitVerdict::Allowed,
                    is_listed: true,
                });
                Ok(())
            };
            let mut walk = Subtree::new(self.session, lower.mount, CHANGED_PATHS_MAX, &mut collect);
            walk.folder(dir, entry.name, &entry.absolute)?;
            bytes = walk.bytes;
            self.out.files += walk.files;
            below.into_iter().try_for_each(|path| self.push(path))?;
        } else {
            self.out.files += 1;
        }
        self.out.steps.push(Step::Remove { at: entry.target(), before: lower, bytes });
        Ok(())
    }

    fn enter(&mut self, entry: &Entry<'_>) -> Result<(), Refusal> {
        let fail = |why| entry.fail(why);
        let upper = open_own_dir(entry).map_err(fail)?;
        let worn = read_xattrs(&upper).map_err(fail)?;
        let is_opaque = disk::is_opaque(&upper, self.in_user_namespace).map_err(fail)?;
        let hidden = hidden_by(entry, is_opaque).map_err(fail)?;
        let merged = match (entry.lower, entry.lower_dir(), hidden) {
            (Some(lower), Some(dir), Some(hidden)) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                let below = open_beneath(dir, entry.name, flags, false).map_err(fail)?;
                let was = match open_dir(&below, b".").and_then(|folder| read_xattrs(&folder)) {
                    // One that even its owner may not read: whoever changed its attributes could not see them either.
                    Err(Errno::ACCESS) => worn.clone(),
                    outcome => outcome.map_err(fail)?,
                };
                // Steps hold no descriptor of it: a command may work in more folders than files can be open.
                let opened = Meta::of(&below).map_err(fail)?;
                let at = DirAt::Known(KnownDir::new(entry.site.root, &opened, false));
                Some((lower, was, Lower::There(Dir::Opened(Arc::new(below)), at), hidden))
            }
            _ => None,
        };
        let (lower, changed, hidden) = match merged {
            Some((lower, was, below, hidden)) => {
                let is_same = lower.mode == entry.upper.mode && was == worn;
                (below, (!is_same).then(|| (lower, (was != worn).then_some((was, worn)))), hidden)
            }
            None => {
                if let Some(lower) = entry.lower {
                    self.remove(entry, lower)?;
                }
                self.propose(entry, Op::Write, 0)?;
                let attrs = Some(FileAttrs { owner: Some((entry.upper.uid, entry.upper.gid)), xattrs: worn });
                self.out.steps.push(Step::MakeDir { at: entry.target(), mode: entry.upper.mode, attrs });
                (Lower::Made(self.out.steps.len() - 1), None, Vec::new())
            }
        };
        if changed.is_some() {
            self.propose(entry, Op::Write, 0)?;
        }
        let mode = entry.upper.mode;
        let step = changed.map(|(before, xattrs)| Step::SetMode { at: entry.target(), before, mode, xattrs });
        // A folder that is opened is opened before something is put into it; one that is closed, after.
        let opens = entry.upper.mode & 0o300 == 0o300;
        let (first, last) = if opens { (step, None) } else { (None, step) };
        self.out.steps.extend(first);
        let site = Site {
            root: entry.site.root,
            upper_root: entry.site.upper_root,
            upper: upper.as_fd(),
            below: entry.below(),
            lower,
            hidden,
            absolute: entry.absolute.clone(),
        };
        self.folder(&site)?;
        self.out.steps.extend(last);
        Ok(())
    }

    fn file(&mut self, entry: &Entry<'_>) -> Result<(), Refusal> {
        let fail = |why| entry.fail(why);
        let file = open_own_file(entry).map_err(fail)?;
        let hash = hash_of(entry.site.upper, entry.name, Kind::File).map_err(fail)?;
        if let (Some(lower), Some(dir)) = (entry.lower, entry.lower_dir())
            && is_same(&file, &entry.upper, &hash, dir, entry.name, &lower).map_err(fail)?
        {
            if lower.mtime_ns != entry.upper.mtime_ns {
                self.propose(entry, Op::Write, 0)?;
                self.out.paths.last_mut().expect("BUG: proposed above").is_listed = false;
                self.out.touched.push(Touched { at: entry.target(), mtime_ns: entry.upper.mtime_ns });
            }
            return Ok(());
        }
        let upper = self.without_privileges(entry, &file);
        if let (Some(lower), Some(dir)) = (entry.lower, entry.lower_dir())
            && upper.mode != entry.upper.mode
            && is_same(&file, &upper, &hash, dir, entry.name, &lower).map_err(fail)?
        {
            return Ok(());
        }
        let before = self.replace(entry, entry.upper.size)?;
        let moved = Moved {
            from: entry.site.upper_root.clone(),
            path: entry.below(),
            size: entry.upper.size,
            hash,
            mtime_ns: entry.upper.mtime_ns,
        };
        let put = Put::moved(entry.target(), moved, &file, &upper, before).map_err(fail)?;
        self.out.steps.push(Step::Put(put));
        Ok(())
    }

    /// What a changed file lands as: without set-id bits. Its capabilities are removed when it is taken over.
    fn without_privileges(&mut self, entry: &Entry<'_>, file: &OwnedFd) -> Meta {
        let upper = entry.upper;
        if upper.mode & SET_ID_BITS != 0 || disk::has_file_capabilities(file) {
            self.noticed.privileged.push(entry.shown.clone());
        }
        Meta { mode: upper.mode & !SET_ID_BITS, ..upper }
    }

    fn link(&mut self, entry: &Entry<'_>) -> Result<(), Refusal> {
        let target = |dir: BorrowedFd<'_>| disk::read_link(dir, entry.name).map_err(|why| entry.fail(why));
        let to = target(entry.site.upper)?;
        if let (Some(lower), Some(dir)) = (entry.lower, entry.lower_dir())
            && lower.kind == Kind::Symlink
            && target(dir.as_fd())? == to
        {
            return Ok(());
        }
        let before = self.replace(entry, 0)?;
        let put = Put {
            at: entry.target(),
            content: Content::Link(to),
            mode: entry.upper.mode,
            before,
            attrs: Some(FileAttrs {
                owner: Some((entry.upper.uid, entry.upper.gid)),
                ..FileAttrs::default()
            }),
            built_on_before: false,
        };
        self.out.steps.push(Step::Put(put));
        Ok(())
    }

    /// Proposes a put. A folder or a special file at its path is removed first; anything else there is replaced.
    fn replace(&mut self, entry: &Entry<'_>, bytes: u64) -> Result<Option<Meta>, Refusal> {
        let before = match entry.lower {
            Some(lower) if matches!(lower.kind, Kind::Dir | Kind::Other) => {
                self.remove(entry, lower)?;
                None
            }
            lower => lower,
        };
        self.propose(entry, Op::Write, bytes)?;
        self.out.files += 1;
        Ok(before)
    }

    fn compare_root(&mut self, upper: &OwnedFd, session: &OpenSession, root: usize) {
        if let (Ok(now), Ok(was)) = (Meta::of(upper), Meta::of(session.jail.roots[root].fd.as_fd()))
            && now.mode != was.mode
        {
            let shown = show(&session.jail.roots[root].path);
            let message = format!("the mode of {shown} itself is not changed: it is a root of the session");
            self.out.notes.push(Warning::new("root_mode_not_kept", message));
        }
    }
}

/// The names in the folder below an opaque one; none if that is merged with it. `None`: it replaces what is below.
fn hidden_by(entry: &Entry<'_>, is_opaque: bool) -> Result<Option<Vec<Vec<u8>>>, Errno> {
    let (Some(lower), Some(dir)) = (entry.lower, entry.lower_dir()) else { return Ok(None) };
    if lower.kind != Kind::Dir {
        return Ok(None);
    }
    if !is_opaque {
        return Ok(Some(Vec::new()));
    }
    match open_dir(dir, entry.name).and_then(|folder| names_in(&folder)) {
        Ok(names) => Ok(Some(names)),
        // It cannot be compared, so it is replaced as a whole.
        Err(Errno::ACCESS) => Ok(None),
        Err(why) => Err(why),
    }
}

/// Whether a file is the same as the one in the root: its bytes and its metadata.
fn is_same(
    file: &OwnedFd,
    upper: &Meta,
    hash: &str,
    dir: &Dir,
    name: &[u8],
    lower: &Meta,
) -> Result<bool, Errno> {
    let looks = |meta: &Meta| (meta.kind, meta.size, meta.mode, meta.uid, meta.gid);
    if looks(upper) != looks(lower) {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let old = match open_beneath(dir, name, flags, false) {
        Ok(old) => old,
        Err(Errno::ACCESS | Errno::NOENT) => return Ok(false),
        Err(why) => return Err(why),
    };
    Ok(read_xattrs(file)? == read_xattrs(&old)? && hash_of(dir, name, Kind::File)? == hash)
}

/// Grants the owner a permission that the command took away: the entry is ours now, and its mode is known.
fn grant_owner(entry: &Entry<'_>, needed: u32) -> Result<(), Errno> {
    if entry.upper.mode & needed == needed || disk::limited_to_uid().is_none() {
        return Ok(());
    }
    disk::set_mode_at(entry.site.upper, entry.name, entry.upper.mode | needed)
}

/// Files are moved out of it, so it is opened for that too.
fn open_own_dir(entry: &Entry<'_>) -> Result<OwnedFd, Errno> {
    grant_owner(entry, 0o700)?;
    open_dir(entry.site.upper, entry.name)
}

fn open_own_file(entry: &Entry<'_>) -> Result<OwnedFd, Errno> {
    grant_owner(entry, 0o400)?;
    disk::open_file(entry.site.upper, entry.name)
}
