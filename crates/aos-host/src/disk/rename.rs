//! Moving something to another folder, even a folder that its own owner may not write.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::Meta;

/// Renames `name`, also into another folder. Moving a folder rewrites its `..`, so the kernel wants write permission on
/// the folder itself: one that even its owner may not write gets it for the moment.
pub(crate) fn rename(
    dir: impl AsFd,
    name: &[u8],
    to: impl AsFd,
    to_name: &[u8],
    flags: RenameFlags,
) -> Result<(), Errno> {
    let try_rename = || rustix::fs::renameat_with(&dir, name, &to, to_name, flags);
    let folder = match try_rename() {
        Err(Errno::ACCESS) => {
            let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&dir, name, path, Mode::empty()).map_err(|_| Errno::ACCESS)?
        }
        outcome => return outcome,
    };
    let mode = Meta::of(&folder)?.mode;
    if mode & OWNER_WRITES != 0 {
        return Err(Errno::ACCESS);
    }
    set_mode(&folder, mode | OWNER_WRITES)?;
    let moved = try_rename();
    set_mode(&folder, mode).and(moved)
}

/// The permission that [`rename`] grants for the moment. If the daemon dies meanwhile, recovery takes it back.
pub(crate) const OWNER_WRITES: u32 = 0o200;

/// Sets the mode of something that is held by an `O_PATH` descriptor, on which `fchmod` fails.
pub(crate) fn set_mode(held: &OwnedFd, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), Mode::from_raw_mode(mode))
}
