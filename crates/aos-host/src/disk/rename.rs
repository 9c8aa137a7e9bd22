//! Renaming: to a free name, in exchange, and of folders that their own owner may not write.

use std::os::fd::AsFd;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::{Meta, hold_dir, set_mode_of_held};

/// Renames to a name that must be free.
pub(crate) fn rename_noreplace(
    dir: impl AsFd,
    name: &[u8],
    to: impl AsFd,
    to_name: &[u8],
) -> Result<(), Errno> {
    rustix::fs::renameat_with(dir, name, to, to_name, RenameFlags::NOREPLACE)
}

/// Exchanges two entries; both must exist.
pub(crate) fn exchange(dir: impl AsFd, name: &[u8], to: impl AsFd, to_name: &[u8]) -> Result<(), Errno> {
    rustix::fs::renameat_with(dir, name, to, to_name, RenameFlags::EXCHANGE)
}

/// As [`rename_noreplace`], also for a folder that its owner may not write.
pub(crate) fn move_noreplace(
    dir: impl AsFd,
    name: &[u8],
    to: impl AsFd,
    to_name: &[u8],
) -> Result<(), Errno> {
    with_write_permission(&dir, name, || rename_noreplace(&dir, name, &to, to_name))
}

/// As [`exchange`], also for a folder that its owner may not write.
pub(crate) fn move_exchange(dir: impl AsFd, name: &[u8], to: impl AsFd, to_name: &[u8]) -> Result<(), Errno> {
    with_write_permission(&dir, name, || exchange(&dir, name, &to, to_name))
}

/// Moving a folder to another one rewrites its `..`, so the kernel wants write permission on the folder itself: one that
/// even its owner may not write gets it for the moment.
fn with_write_permission(
    dir: impl AsFd,
    name: &[u8],
    try_rename: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let folder = match try_rename() {
        Err(Errno::ACCESS) => hold_dir(&dir, name).map_err(|_| Errno::ACCESS)?,
        outcome => return outcome,
    };
    let mode = Meta::of(&folder)?.mode;
    if mode & OWNER_WRITES != 0 {
        return Err(Errno::ACCESS);
    }
    set_mode_of_held(&folder, mode | OWNER_WRITES)?;
    let moved = try_rename();
    set_mode_of_held(&folder, mode).and(moved)
}

/// The permission that a move grants for the moment. If the daemon dies meanwhile, recovery takes it back.
pub(crate) const OWNER_WRITES: u32 = 0o200;
