//! Everything in some folders of the roots, to be compared before and after a command.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use aos_model::limits::{GUARDED_PATHS_MAX, PRIVILEGE_SCAN_PATHS_MAX, SCANNED_PATHS_MAX};
use aos_model::records::Kind;
use rustix::io::Errno;

use crate::disk::{Meta, TEMPORARY_PREFIX, hold_dir, hold_dir_beneath, names_in, open_dir, set_mode_of_held};
use crate::git::root_of;
use crate::jail::Root;
use crate::session::OpenSession;
use crate::target::is_too_deep;

/// The kernel stamps inodes with a clock that is a few milliseconds behind.
pub(super) const CLOCK_LAG_NS: i64 = 50_000_000;

/// What is below some folders, by absolute path.
pub(super) type Paths = BTreeMap<Vec<u8>, Meta>;

/// An entry of a folder, with its absolute path.
pub(super) struct Entry<'a> {
    pub(super) dir: &'a OwnedFd,
    pub(super) name: &'a [u8],
    pub(super) path: &'a [u8],
    pub(super) meta: &'a Meta,
}

/// Why it cannot be listed.
#[derive(Debug)]
pub(super) enum Unlisted {
    TooMany,
    TooDeep,
    Io(Vec<u8>, Errno),
}

/// What a list is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To report what changed; folders that are closed to their owner are left out.
    Scan,
    /// To copy what is guarded, before a command.
    Guard,
    /// To put it back, after the command: everything that can be listed is.
    PutBack,
    /// To look for files with privileges, after a command.
    Privileges,
}

impl Purpose {
    fn paths_max(self) -> usize {
        match self {
            Purpose::Scan => SCANNED_PATHS_MAX,
            Purpose::Guard => GUARDED_PATHS_MAX,
            Purpose::PutBack => usize::MAX,
            Purpose::Privileges => PRIVILEGE_SCAN_PATHS_MAX,
        }
    }
}

/// What was listed.
pub(super) struct Listed {
    pub(super) paths: Paths,
    /// Nested too deep, after the command: not listed.
    pub(super) too_deep: Option<Vec<u8>>,
    pub(super) opened: Opened,
    /// Names of unfinished writes, which come and go. What is in them is not listed.
    pub(super) reserved: BTreeSet<Vec<u8>>,
}

/// Folders that their owner cannot list, opened to be listed. A command can do that too, so what is in them counts.
/// Dropping it closes them.
#[derive(Debug, Default)]
pub(super) struct Opened(Vec<(OwnedFd, u32)>);

/// What the owner of a folder needs in order to change what is in it, and to list it.
const OWNER: u32 = 0o700;
const LISTS: u32 = 0o500;

impl Opened {
    /// Opens a folder for its owner. That of another user stays as it is, for the command too.
    fn open(&mut self, held: OwnedFd, mode: u32) {
        if set_mode_of_held(&held, mode | OWNER).is_ok() {
            self.0.push((held, mode));
        }
    }

    /// Opens a folder for changes, whatever its mode.
    pub(super) fn open_dir(&mut self, dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
        let held = hold_dir(dir, name)?;
        let mode = Meta::of(&held)?.mode;
        if mode & OWNER != OWNER {
            self.open(held, mode);
        }
        open_dir(dir, name)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // What is above another folder was opened first. One whose mode was put back stays as it is now.
        for (held, mode) in self.0.drain(..).rev() {
            let is_ours = Meta::of(&held).is_ok_and(|now| now.mode == mode | OWNER);
            if is_ours && let Err(error) = set_mode_of_held(&held, mode) {
                tracing::warn!(%error, "cannot close a folder again");
            }
        }
    }
}

/// Lists roots without, and folders below them with their own entry; `each` sees every entry with its folder.
pub(super) fn list(
    session: &OpenSession,
    folders: &[Vec<u8>],
    purpose: Purpose,
    each: &mut dyn FnMut(Entry<'_>) -> Result<(), Errno>,
) -> Result<Listed, Unlisted> {
    let (paths, opened, reserved) = (Paths::new(), Opened::default(), BTreeSet::new());
    let listed = Listed { paths, too_deep: None, opened, reserved };
    let mut walk = Walk { session, purpose, listed, each };
    for folder in folders {
        let io = |why| Unlisted::Io(folder.clone(), why);
        let Some(root) = root_of(session, folder) else { continue };
        walk.open_root(root).map_err(io)?;
        let Some(below) = folder[root.path.len()..].strip_prefix(b"/") else {
            let dir = open_dir(&root.fd, b".").map_err(io)?;
            let mount = Meta::of(&dir).map_err(io)?.mount;
            walk.folder(&dir, folder, mount)?;
            continue;
        };
        let (above, name) = match below.iter().rposition(|b| *b == b'/') {
            Some(slash) => (&below[..slash], &below[slash + 1..]),
            None => (b".".as_slice(), below),
        };
        let dir = match hold_dir_beneath(&root.fd, above) {
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            held => held.map_err(io)?,
        };
        let at = &folder[..folder.len() - name.len() - 1];
        walk.entry(&dir, at, name, None)?;
    }
    Ok(walk.listed)
}

struct Walk<'a> {
    session: &'a OpenSession,
    purpose: Purpose,
    listed: Listed,
    each: &'a mut dyn FnMut(Entry<'_>) -> Result<(), Errno>,
}

impl Walk<'_> {
    /// Makes a root's own permissions sufficient: they count for every name in it.
    fn open_root(&mut self, root: &Root) -> Result<(), Errno> {
        let needed = match self.purpose {
            Purpose::Scan => return Ok(()),
            Purpose::Guard | Purpose::Privileges => LISTS,
            Purpose::PutBack => OWNER,
        };
        let mode = Meta::of(&root.fd)?.mode;
        if mode & needed != needed {
            self.listed.opened.open(root.fd.try_clone().map_err(|_| Errno::MFILE)?, mode);
        }
        Ok(())
    }

    fn folder(&mut self, dir: &OwnedFd, absolute: &[u8], mount: u64) -> Result<(), Unlisted> {
        let names = names_in(dir).map_err(|why| Unlisted::Io(absolute.to_vec(), why))?;
        names.iter().try_for_each(|name| self.entry(dir, absolute, name, Some(mount)))
    }

    /// An entry of a folder, and what is below it. `mount` is that of the folder, where no other may be entered.
    fn entry(
        &mut self,
        dir: &OwnedFd,
        absolute: &[u8],
        name: &[u8],
        mount: Option<u64>,
    ) -> Result<(), Unlisted> {
        let below = [absolute, b"/", name].concat();
        let Ok(Some(meta)) = Meta::at(dir, name) else { return Ok(()) };
        let is_other_mount =
            mount.is_some_and(|mount| meta.mount != mount) && !self.session.jail.cross_mounts;
        if self.session.jail.hides(&below, &meta) || is_other_mount {
            return Ok(());
        }
        if name.starts_with(TEMPORARY_PREFIX) && self.purpose != Purpose::Privileges {
            self.listed.reserved.insert(below);
            return Ok(());
        }
        if is_too_deep(&below) {
            if matches!(self.purpose, Purpose::Scan | Purpose::Guard) {
                return Err(Unlisted::TooDeep);
            }
            self.listed.too_deep.get_or_insert(below);
            return Ok(());
        }
        let entry = Entry { dir, name, path: &below, meta: &meta };
        (self.each)(entry).map_err(|why| Unlisted::Io(below.clone(), why))?;
        if meta.kind == Kind::Dir
            && let Ok(inner) = self.enter(dir, name, &meta)
        {
            self.folder(&inner, &below, meta.mount)?;
        }
        self.listed.paths.insert(below, meta);
        if self.listed.paths.len() > self.purpose.paths_max() {
            return Err(Unlisted::TooMany);
        }
        Ok(())
    }

    fn enter(&mut self, dir: &OwnedFd, name: &[u8], meta: &Meta) -> Result<OwnedFd, Errno> {
        if meta.mode & LISTS != LISTS && self.purpose != Purpose::Scan {
            self.listed.opened.open(hold_dir(dir, name)?, meta.mode);
        }
        open_dir(dir, name)
    }
}

/// Whether a path is the same as before, as far as the file system tells. A folder changes when an entry in it does; that
/// entry is compared itself. A command can set the mtime of what it changed back, not the ctime.
pub(super) fn is_same(was: &Meta, now: &Meta) -> bool {
    looks(was) == looks(now)
        && (was.kind == Kind::Dir || was.same_version(now) && was.ctime_ns == now.ctime_ns)
}

/// Kind, mode and owner.
pub(super) fn looks(meta: &Meta) -> (Kind, u32, u32, u32) {
    (meta.kind, meta.mode, meta.uid, meta.gid)
}
