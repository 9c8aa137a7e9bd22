//! Our own folders, by device and inode. Their paths are not enough: renaming a folder above them changes it, and a second
//! mount gives another.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::disk::{self, Meta};

/// The home of the daemon and the folders in it that existed at its start, two levels deep.
#[derive(Debug)]
pub(crate) struct OwnFolders {
    ids: Vec<(u64, u64)>,
}

/// No path has more names than this.
const LEVELS_MAX: usize = 4096;

impl OwnFolders {
    pub(crate) fn of(home: &OwnedFd) -> Result<OwnFolders, Errno> {
        let mut own = OwnFolders { ids: vec![disk::id_of(home)?] };
        own.add_folders_in(&disk::open_dir(home, b".")?, 2)?;
        Ok(own)
    }

    fn add_folders_in(&mut self, dir: &OwnedFd, levels: usize) -> Result<(), Errno> {
        for name in disk::names_in(dir)? {
            if let Ok(inner) = disk::open_dir(dir, &name) {
                self.ids.push(disk::id_of(&inner)?);
                if levels > 1 {
                    self.add_folders_in(&inner, levels - 1)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn has_id(&self, dev: u64, ino: u64) -> bool {
        self.ids.contains(&(dev, ino))
    }

    /// Whether one of ours has this inode number, on some device.
    pub(crate) fn may_be(&self, ino: u64) -> bool {
        self.ids.iter().any(|id| id.1 == ino)
    }

    pub(crate) fn is(&self, meta: &Meta) -> bool {
        self.has_id(meta.dev, meta.ino)
    }

    /// Whether a folder is ours or is below one of ours. Looks at the folders above it, up to `top`.
    pub(crate) fn contain(&self, dir: impl AsFd, top: (u64, u64)) -> Result<bool, Errno> {
        let mut id = disk::id_of(&dir)?;
        let mut above: Option<OwnedFd> = None;
        for _ in 0..LEVELS_MAX {
            if self.ids.contains(&id) {
                return Ok(true);
            }
            if id == top {
                return Ok(false);
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let next = match &above {
                Some(above) => rustix::fs::openat(above, "..", flags, Mode::empty()),
                None => rustix::fs::openat(&dir, "..", flags, Mode::empty()),
            };
            let next = match next {
                // Without the right to search a folder, what is above it cannot be seen from it.
                Err(Errno::ACCESS) => return Ok(false),
                outcome => outcome?,
            };
            let next_id = disk::id_of(&next)?;
            if next_id == id {
                return Ok(false);
            }
            id = next_id;
            above = Some(next);
        }
        Ok(false)
    }
}
