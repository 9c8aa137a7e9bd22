//! The reserve: disk space and inodes that are held back for a full disk.
//!
//! When the disk is full, the reserve is given up, so that the journal can still record reads, the end of sessions and garbage
//! collection, and a daemon can start. New changes are refused until the reserve is back.

use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::disk;
use crate::fault::{Fault, LOCK_POISONED};

/// At most this much, and at most 5 % of the file system.
const BYTES_MAX: u64 = 32 << 20;
const PERCENT: u64 = 5;

/// The files besides the large one: each holds an inode.
const FILES: usize = 16;

/// Below this the journal could fail to open.
const LOW_BYTES: u64 = 1 << 20;
const LOW_FILES: u64 = 8;

const FOLDER: &str = "reserve";
const LARGE: &str = "space";
/// The large file while its space is being allocated: a daemon that is killed then leaves no reserve that is not one.
const UNFINISHED: &str = "space.new";

#[derive(Debug)]
pub struct Reserve {
    state: OwnedFd,
    given_up: Mutex<bool>,
}

/// The room on the file system of a folder, for an ordinary user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Zero where the file system does not count them.
    pub total_files: u64,
    pub free_files: u64,
}

impl Space {
    pub fn of(dir: &OwnedFd) -> Result<Space, Errno> {
        let stat = rustix::fs::fstatvfs(dir)?;
        Ok(Space {
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            total_files: stat.f_files,
            free_files: stat.f_favail,
        })
    }

    fn is_low(&self) -> bool {
        let files_low = self.total_files > 0 && self.free_files < LOW_FILES;
        self.free_bytes < LOW_BYTES.min(self.reserve_bytes()) || files_low
    }

    fn reserve_bytes(&self) -> u64 {
        BYTES_MAX.min(self.total_bytes / 100 * PERCENT)
    }

    /// Whether the reserve can be taken, and twice as much is left.
    fn is_plenty(&self) -> bool {
        let files = self.total_files == 0 || self.free_files > 4 * FILES as u64;
        self.free_bytes > 3 * self.reserve_bytes() && files
    }
}

/// Whether the disk of a home is full, as far as it shows from outside: hardly any room, or a reserve that was given up
/// and cannot be taken back. `None` if there is no home.
pub fn is_disk_full(home: &std::path::Path) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let state = rustix::fs::open(home.join("state"), flags, Mode::empty()).ok()?;
    let space = Space::of(&state).ok()?;
    Some(space.is_low() || (was_given_up(&state) && !space.is_plenty()))
}

/// The folder stays when the reserve is given up, so that the next daemon knows.
fn was_given_up(state: &OwnedFd) -> bool {
    exists(state, FOLDER) && !is_held(state)
}

fn is_held(state: &OwnedFd) -> bool {
    exists(state, &format!("{FOLDER}/{LARGE}"))
}

fn exists(state: &OwnedFd, name: &str) -> bool {
    rustix::fs::statat(state, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

impl Reserve {
    /// Takes the reserve if there is room, and gives it up if there is hardly any.
    pub(crate) fn open(state: &OwnedFd) -> Result<Reserve, Fault> {
        let fail = |why| Fault::io("cannot look at the disk of AOS_HOME", why);
        let state = rustix::io::fcntl_dupfd_cloexec(state, 3).map_err(fail)?;
        let reserve = Reserve { state, given_up: Mutex::new(false) };
        let space = Space::of(&reserve.state).map_err(fail)?;
        if space.is_plenty() && !is_held(&reserve.state) {
            *reserve.given_up.lock().expect(LOCK_POISONED) = !reserve.take(space);
        } else if space.is_low() || was_given_up(&reserve.state) {
            reserve.give_up();
        }
        Ok(reserve)
    }

    /// Whether the disk is full. If there is room again, the reserve is taken back first.
    pub fn is_given_up(&self) -> bool {
        let mut given_up = self.given_up.lock().expect(LOCK_POISONED);
        if *given_up
            && let Ok(space) = Space::of(&self.state)
            && space.is_plenty()
            && self.take(space)
        {
            *given_up = false;
            tracing::info!("the disk of AOS_HOME has room again; changes are accepted");
        }
        *given_up
    }

    /// Whether the disk is full: the reserve was given up, or there is hardly any room beside it. A change that fails for
    /// lack of room in the roots, or of inodes, does not touch the reserve.
    pub fn is_disk_full(&self) -> bool {
        self.is_given_up() || Space::of(&self.state).is_ok_and(|space| space.is_low())
    }

    /// The room on the disk, without what was given up: that is for reads, closing and garbage collection.
    pub fn space(&self) -> Result<Space, Errno> {
        let given_up = self.given_up.lock().expect(LOCK_POISONED);
        let space = Space::of(&self.state)?;
        let kept = if *given_up { space.reserve_bytes() } else { 0 };
        Ok(Space { free_bytes: space.free_bytes.saturating_sub(kept), ..space })
    }

    /// Refuses a change while the disk is full.
    pub fn check(&self) -> Result<(), Fault> {
        if self.is_given_up() {
            return Err(Fault::io("the disk of AOS_HOME is full", Errno::NOSPC));
        }
        Ok(())
    }

    /// Whether more than half of the reserve is left, for refusals and new sessions. The rest is for reads, closing and garbage
    /// collection: whoever tries again and again must not use it up.
    pub fn has_spare(&self) -> bool {
        let half_left = |space: Space| space.free_bytes > space.reserve_bytes() / 2;
        !self.is_given_up() || Space::of(&self.state).is_ok_and(half_left)
    }

    /// Gives the space back to the disk. False if that was done before.
    pub(crate) fn give_up(&self) -> bool {
        let mut given_up = self.given_up.lock().expect(LOCK_POISONED);
        if *given_up {
            return false;
        }
        *given_up = true;
        tracing::error!("the disk of AOS_HOME is full; changes are refused until there is room");
        self.remove();
        true
    }

    fn remove(&self) {
        let Ok(dir) = disk::open_dir(&self.state, FOLDER) else { return };
        for name in (0..FILES).map(|number| number.to_string()).chain([LARGE, UNFINISHED].map(str::to_owned))
        {
            let _ = rustix::fs::unlinkat(&dir, name.as_str(), AtFlags::empty());
        }
    }

    /// False if the disk is full again before the reserve is complete: without one, the next time even reads would fail. A
    /// file system that cannot hold one is no reason to refuse work.
    fn take(&self, space: Space) -> bool {
        let take = || -> Result<(), Errno> {
            let failed = |fault: Fault| if fault.is_full() { Errno::NOSPC } else { Errno::IO };
            let dir = disk::make_dir(&self.state, FOLDER).map_err(failed)?;
            let create = |name: &str| {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(0o600))
            };
            for number in 0..FILES {
                create(&number.to_string())?;
            }
            let large = create(UNFINISHED)?;
            rustix::fs::fallocate(&large, FallocateFlags::empty(), 0, space.reserve_bytes())?;
            rustix::fs::renameat(&dir, UNFINISHED, &dir, LARGE)
        };
        let Err(error) = take() else { return true };
        tracing::warn!(%error, "cannot hold disk space in reserve");
        self.remove();
        !matches!(error, Errno::NOSPC | Errno::DQUOT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_taken_and_given_up_once() {
        let dir = tempfile::tempdir().unwrap();
        let state = rustix::fs::open(dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let reserve = Reserve::open(&state).unwrap();
        let large = dir.path().join(FOLDER).join(LARGE);
        assert_eq!(large.metadata().unwrap().len(), BYTES_MAX);
        assert!(!reserve.is_given_up());
        assert!(reserve.give_up() && !reserve.give_up());
        assert!(!large.exists());
        assert!(!reserve.is_given_up(), "there is room, so it is taken back");
        assert!(large.exists());
    }

    #[test]
    fn what_was_given_up_is_not_room() {
        let dir = tempfile::tempdir().unwrap();
        let state = rustix::fs::open(dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let reserve = Reserve::open(&state).unwrap();
        let before = reserve.space().unwrap();
        reserve.give_up();
        let after = reserve.space().unwrap();
        let freed = Space::of(&state).unwrap().free_bytes.saturating_sub(after.free_bytes);
        assert!(freed >= before.reserve_bytes(), "{before:?} {after:?}");
    }

    #[test]
    fn a_reserve_that_a_kill_left_unfinished_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        let state = rustix::fs::open(dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let reserve = disk::make_dir(&state, FOLDER).unwrap();
        let flags = OFlags::WRONLY | OFlags::CREATE;
        rustix::fs::openat(&reserve, UNFINISHED, flags, Mode::from_raw_mode(0o600)).unwrap();
        Reserve::open(&state).unwrap();
        let folder = dir.path().join(FOLDER);
        assert_eq!(folder.join(LARGE).metadata().unwrap().len(), BYTES_MAX);
        assert!(!folder.join(UNFINISHED).exists());
    }

    #[test]
    fn a_small_file_system_has_a_small_reserve() {
        let space = Space { free_bytes: 50 << 20, total_bytes: 100 << 20, total_files: 0, free_files: 0 };
        assert_eq!(space.reserve_bytes(), 5 << 20);
        assert!(space.is_plenty() && !space.is_low());
        assert!(Space { free_bytes: 1 << 10, ..space }.is_low());
        assert!(Space { total_files: 100, free_files: 3, ..space }.is_low());
    }
}
