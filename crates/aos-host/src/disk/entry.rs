//! One system call on one entry of a folder, or on an open file.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

/// Makes a folder that only its owner may use.
pub(crate) fn make_dir(dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o700))
}

/// Removes an empty folder.
pub(crate) fn remove_dir(dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Makes a symbolic link.
pub(crate) fn make_link(target: &[u8], dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    rustix::fs::symlinkat(target, dir, name)
}

/// The target of a symbolic link.
pub(crate) fn read_link(dir: impl AsFd, name: &[u8]) -> Result<Vec<u8>, Errno> {
    rustix::fs::readlinkat(dir, name, Vec::new()).map(std::ffi::CString::into_bytes)
}

/// The path of an open file, as the kernel knows it now.
pub(crate) fn path_of(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    rustix::fs::readlink(proc_path(file), Vec::new()).map(std::ffi::CString::into_bytes)
}

/// Sets the mode of a file or a folder that is open for reading or writing.
pub(crate) fn set_mode(file: &OwnedFd, mode: u32) -> Result<(), Errno> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
}

/// Sets the mode of something that is held by an `O_PATH` descriptor, on which `fchmod` fails.
pub(crate) fn set_mode_of_held(held: &OwnedFd, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmod(proc_path(held), Mode::from_raw_mode(mode))
}

/// Sets the mode of an entry. Follows a symbolic link: only for folders that no other user can write.
pub(crate) fn set_mode_at(dir: impl AsFd, name: &[u8], mode: u32) -> Result<(), Errno> {
    rustix::fs::chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())
}

/// Sets the owner of an entry; of a symbolic link itself.
pub(crate) fn set_owner_at(dir: impl AsFd, name: &[u8], uid: u32, gid: u32) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

/// Sets both times of an open file to a time of change.
pub(crate) fn set_mtime(file: &OwnedFd, mtime_ns: i64) -> Result<(), Errno> {
    rustix::fs::futimens(file, &times_of(mtime_ns))
}

/// Sets both times of an entry to a time of change; of a symbolic link itself.
pub(crate) fn set_mtime_at(dir: impl AsFd, name: &[u8], mtime_ns: i64) -> Result<(), Errno> {
    rustix::fs::utimensat(dir, name, &times_of(mtime_ns), AtFlags::SYMLINK_NOFOLLOW)
}

fn times_of(mtime_ns: i64) -> rustix::fs::Timestamps {
    let time = rustix::fs::Timespec {
        tv_sec: mtime_ns.div_euclid(1_000_000_000),
        tv_nsec: mtime_ns.rem_euclid(1_000_000_000),
    };
    rustix::fs::Timestamps { last_access: time, last_modification: time }
}

/// Writes a file's content, or a folder's entries, through to the disk.
pub(crate) fn sync(file: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fsync(file)
}

/// Makes reads of a pipe return at once when it is empty.
pub(crate) fn set_nonblocking(pipe: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK)
}

fn proc_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
