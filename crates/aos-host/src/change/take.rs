//! Taking a finished file over from where a command left it: the file itself where it can be moved, else a copy.

use std::os::fd::{BorrowedFd, OwnedFd};

use aos_model::receipt::Warning;
use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::disk::Meta;
use crate::disk::{AttrsFrom, apply_metadata, remove_overlay_xattrs};
use crate::disk::{copy_content, times_of};
use crate::steps::{Moved, Put};

const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Brings the file to its temporary name, complete, with its own time of change.
pub(super) fn take(
    moved: &Moved,
    put: &Put,
    dir: BorrowedFd<'_>,
    temporary: &[u8],
    begun: &mut bool,
) -> Result<(OwnedFd, Meta, Option<Warning>), Errno> {
    let (parent, name) = moved.place()?;
    match rustix::fs::renameat_with(&parent, name, dir, temporary, RenameFlags::NOREPLACE) {
        Ok(()) => {
            *begun = true;
            let file = rustix::fs::openat(dir, temporary, READ, Mode::empty())?;
            remove_overlay_xattrs(&file)?;
            if Meta::of(&file)?.mode != put.mode {
                rustix::fs::fchmod(&file, Mode::from_raw_mode(put.mode))?;
            }
            let meta = Meta::of(&file)?;
            Ok((file, meta, None))
        }
        Err(Errno::XDEV) => {
            let from = rustix::fs::openat(&parent, name, READ, Mode::empty())?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(dir, temporary, flags, Mode::from_raw_mode(0o600))?;
            *begun = true;
            copy_content(&from, &file)?;
            let worn = put.attrs.as_ref().map_or(AttrsFrom::New, AttrsFrom::Given);
            let (_, lost) = apply_metadata(&file, &put.at.shown, put.mode, worn)?;
            rustix::fs::futimens(&file, &times_of(moved.mtime_ns))?;
            let meta = Meta::of(&file)?;
            Ok((file, meta, lost))
        }
        Err(why) => Err(why),
    }
}
