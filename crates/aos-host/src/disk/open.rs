//! Opening files and folders, by descriptor wherever one is at hand.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Dir, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

/// How often a lookup is tried again while another process renames or swaps links.
pub(crate) const RACE_TRIES: usize = 64;

/// `openat2` beneath `dir` with links forbidden, retried while the kernel says that a rename got in the way.
pub(crate) fn open_beneath(
    dir: impl AsFd,
    rel: impl rustix::path::Arg + Copy,
    flags: OFlags,
    cross_mounts: bool,
) -> Result<OwnedFd, Errno> {
    open_as(dir, rel, flags, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS, cross_mounts)
}

/// The same for a name from a folder's listing. It has no slash and is not `..`, so `RESOLVE_BENEATH` adds nothing; leaving
/// it out saves a tenth of the call.
pub(crate) fn open_listed(
    dir: impl AsFd,
    name: &CStr,
    flags: OFlags,
    cross_mounts: bool,
) -> Result<OwnedFd, Errno> {
    open_as(dir, name, flags, ResolveFlags::empty(), cross_mounts)
}

fn open_as(
    dir: impl AsFd,
    rel: impl rustix::path::Arg + Copy,
    flags: OFlags,
    mut resolve: ResolveFlags,
    cross_mounts: bool,
) -> Result<OwnedFd, Errno> {
    resolve |= ResolveFlags::NO_SYMLINKS;
    if !cross_mounts {
        resolve |= ResolveFlags::NO_XDEV;
    }
    for _ in 0..RACE_TRIES {
        match rustix::fs::openat2(&dir, rel, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            outcome => return outcome,
        }
    }
    Err(Errno::AGAIN)
}

pub(crate) fn open_dir(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// A folder by `O_PATH`, which needs no permission on the folder itself.
pub(crate) fn hold_dir(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Whatever has a name in a folder, a link itself, by `O_PATH`.
pub(crate) fn hold_any(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// A file or a folder for reading. `O_NONBLOCK`: a FIFO in its place does not make us wait.
pub(crate) fn open_file(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Makes a file that only its owner may read, and opens it for writing. Fails where something has the name.
pub(crate) fn create_new(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    create(dir, name, OFlags::WRONLY)
}

/// As [`create_new`], for writing and reading.
pub(crate) fn create_new_readable(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    create(dir, name, OFlags::RDWR)
}

/// Opens a file of ours for reading and for appending.
pub(crate) fn open_to_append(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

fn create(dir: impl AsFd, name: &[u8], access: OFlags) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))
}

const NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);

/// A folder by its absolute path, with links forbidden.
pub(crate) fn open_dir_at_path(path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), NO_LINKS)
}

/// As [`open_dir_at_path`], by `O_PATH`.
pub(crate) fn hold_dir_at_path(path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), NO_LINKS)
}

/// A folder below `dir` by `O_PATH`, with links forbidden. It may be on another mount.
pub(crate) fn hold_dir_beneath(dir: impl AsFd, rel: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(dir, rel, flags, Mode::empty(), NO_LINKS | ResolveFlags::BENEATH)
}

/// Whatever an absolute path leads to, by `O_PATH`; links are followed.
pub(crate) fn hold_path(path: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// `/dev/null` for reading.
pub(crate) fn open_null() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The entries of an open folder, with their types as far as the file system tells.
pub(crate) fn read_dir(dir: &OwnedFd) -> Result<Dir, Errno> {
    Dir::read_from(dir)
}

/// The same without allocation: the kernel's records as they come, in the caller's buffer.
pub(crate) fn read_dir_raw<Fd: AsFd>(dir: Fd, buffer: &mut [MaybeUninit<u8>]) -> RawDir<'_, Fd> {
    RawDir::new(dir, buffer)
}
