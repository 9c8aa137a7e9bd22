//! Taking a finished file over from where a command left it: the file itself where it can be moved, else a copy.

use std::os::fd::{BorrowedFd, OwnedFd};

use aos_model::receipt::Warning;
use rustix::io::Errno;

use crate::disk::{self, AttrsFrom, Meta, apply_metadata, copy_content, remove_overlay_xattrs};
use crate::steps::{Moved, Put};

/// Brings the file to its temporary name, complete, with its own time of change.
pub(super) fn take(
    moved: &Moved,
    put: &Put,
    dir: BorrowedFd<'_>,
    temporary: &[u8],
    begun: &mut bool,
) -> Result<(OwnedFd, Meta, Option<Warning>), Errno> {
    let (parent, name) = moved.place()?;
    match disk::rename_noreplace(&parent, name, dir, temporary) {
        Ok(()) => {
            *begun = true;
            let file = disk::open_file(dir, temporary)?;
            remove_overlay_xattrs(&file)?;
            if Meta::of(&file)?.mode != put.mode {
                disk::set_mode(&file, put.mode)?;
            }
            let meta = Meta::of(&file)?;
            Ok((file, meta, None))
        }
        Err(Errno::XDEV) => {
            let from = disk::open_file(&parent, name)?;
            let file = disk::create_new_readable(dir, temporary)?;
            *begun = true;
            copy_content(&from, &file)?;
            let worn = put.attrs.as_ref().map_or(AttrsFrom::New, AttrsFrom::Given);
            let (_, lost) = apply_metadata(&file, &put.at.shown, put.mode, worn)?;
            disk::set_mtime(&file, moved.mtime_ns)?;
            let meta = Meta::of(&file)?;
            Ok((file, meta, lost))
        }
        Err(why) => Err(why),
    }
}
