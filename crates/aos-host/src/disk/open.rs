//! Opening beneath a folder, with links forbidden.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
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
