//! Taking a finished file over from where a command left it: the file itself where it can be moved and nobody can write
//! to it any more, else a copy.

use std::os::fd::{BorrowedFd, OwnedFd};

use aos_model::receipt::Warning;
use aos_model::records::Kind;
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
    let from = disk::open_file(&parent, name)?;
    // A process that got a descriptor of the file from the command could write to it after the receipt.
    let renamed = if disk::has_no_writer(&from) {
        disk::rename_noreplace(&parent, name, dir, temporary)
    } else {
        Err(Errno::XDEV)
    };
    match renamed {
        Ok(()) => {
            *begun = true;
            let file = disk::open_file(dir, temporary)?;
            remove_overlay_xattrs(&file)?;
            disk::remove_file_capabilities(&file)?;
            if Meta::of(&file)?.mode != put.mode {
                disk::set_mode(&file, put.mode)?;
            }
            let meta = Meta::of(&file)?;
            Ok((file, meta, None))
        }
        Err(Errno::XDEV) => {
            let file = disk::create_new_readable(dir, temporary)?;
            *begun = true;
            copy_content(&from, &file)?;
            // It was judged and is recorded by its hash.
            if disk::hash_of(dir, temporary, Kind::File)? != moved.hash {
                return Err(Errno::BUSY);
            }
            let worn = put.attrs.as_ref().map_or(AttrsFrom::New, AttrsFrom::Given);
            let (_, lost) = apply_metadata(&file, &put.at.shown, put.mode, worn)?;
            disk::set_mtime(&file, moved.mtime_ns)?;
            let meta = Meta::of(&file)?;
            Ok((file, meta, lost))
        }
        Err(why) => Err(why),
    }
}
