//! Everything in some folders of the roots, to be compared before and after a command.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use aos_model::records::Kind;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::disk::{Meta, TEMPORARY_PREFIX, names_in, open_beneath, open_dir};
use crate::git::root_of;
use crate::session::OpenSession;
use crate::target::is_too_deep;

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

/// Lists what is below folders of the roots; `each` sees every entry with its folder.
pub(super) fn list(
    session: &OpenSession,
    folders: &[Vec<u8>],
    max: usize,
    each: &mut dyn FnMut(Entry<'_>) -> Result<(), Errno>,
) -> Result<Paths, Unlisted> {
    let mut walk = Walk { session, max, paths: Paths::new(), each };
    for folder in folders {
        let io = |why| Unlisted::Io(folder.clone(), why);
        let Some(root) = root_of(session, folder) else { continue };
        let below = folder[root.path.len()..].strip_prefix(b"/").unwrap_or(b".");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = match open_beneath(&root.fd, below, flags, session.jail.cross_mounts) {
            Err(Errno::NOENT | Errno::NOTDIR) if below != b"." => continue,
            opened => opened.map_err(io)?,
        };
        let mount = Meta::of(&dir).map_err(io)?.mount;
        walk.folder(&dir, folder, mount)?;
    }
    Ok(walk.paths)
}

struct Walk<'a> {
    session: &'a OpenSession,
    max: usize,
    paths: Paths,
    each: &'a mut dyn FnMut(Entry<'_>) -> Result<(), Errno>,
}

impl Walk<'_> {
    fn folder(&mut self, dir: &OwnedFd, absolute: &[u8], mount: u64) -> Result<(), Unlisted> {
        for name in names_in(dir).map_err(|why| Unlisted::Io(absolute.to_vec(), why))? {
            let below = [absolute, b"/", &name].concat();
            let Ok(Some(meta)) = Meta::at(dir, &name) else { continue };
            let is_other_mount = meta.mount != mount && !self.session.jail.cross_mounts;
            // Unfinished writes of other sessions come and go.
            if self.session.jail.hides(&below, &meta) || is_other_mount || name.starts_with(TEMPORARY_PREFIX)
            {
                continue;
            }
            if is_too_deep(&below) {
                return Err(Unlisted::TooDeep);
            }
            let entry = Entry { dir, name: &name, path: &below, meta: &meta };
            (self.each)(entry).map_err(|why| Unlisted::Io(below.clone(), why))?;
            if meta.kind == Kind::Dir
                && let Ok(inner) = open_dir(dir, &name)
            {
                self.folder(&inner, &below, meta.mount)?;
            }
            self.paths.insert(below, meta);
            if self.paths.len() > self.max {
                return Err(Unlisted::TooMany);
            }
        }
        Ok(())
    }
}

/// Whether a path is the same as before, as far as the file system tells. A folder changes when an entry in it does; that
/// entry is compared itself.
pub(super) fn is_same(was: &Meta, now: &Meta) -> bool {
    looks(was) == looks(now) && (was.kind == Kind::Dir || was.same_version(now))
}

/// Kind, mode and owner.
pub(super) fn looks(meta: &Meta) -> (Kind, u32, u32, u32) {
    (meta.kind, meta.mode, meta.uid, meta.gid)
}
