//! Storing pre-images: moves what was displaced into the session's folder of pre-images, or copies it when it must.

use std::os::fd::{BorrowedFd, OwnedFd};

use aos_model::records::Kind;
use rustix::io::Errno;

use crate::disk::{self, Meta};

/// Something that a step displaced, under its temporary name.
pub(super) struct Object<'a> {
    pub(super) dir: BorrowedFd<'a>,
    pub(super) name: &'a [u8],
    pub(super) meta: Meta,
    /// The same file opened for reading, where it is open already.
    pub(super) open: Option<OwnedFd>,
}

/// Stores an object as a pre-image: itself where no other process can change it, else a copy. True if it is a copy: the
/// object is then still under its temporary name, for [`drop_copied`].
pub(super) fn store_preimage(
    object: Object<'_>,
    preimages: &OwnedFd,
    preimage_name: &str,
    sync: bool,
) -> Result<bool, Errno> {
    let Object { dir, name, meta, open } = object;
    if is_ours_alone(dir, name, &meta, open) {
        match disk::move_noreplace(dir, name, preimages, preimage_name.as_bytes()) {
            Ok(()) => return Ok(false),
            Err(Errno::XDEV) => {}
            Err(why) => return Err(why),
        }
    }
    disk::copy(dir, name, &meta, preimages, preimage_name.as_bytes(), sync)?;
    Ok(true)
}

/// Removes an object of which a copy is among the pre-images.
pub(super) fn drop_copied(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let meta = Meta::at(dir, name)?.ok_or(Errno::NOENT)?;
    // Under another name first: half a folder under the temporary name would be taken for the whole.
    let leaving = [name, b".part"].concat();
    disk::rename_noreplace(dir, name, dir, &leaving)?;
    disk::remove(dir, &leaving, &meta)
}

/// The same where an earlier try may have begun it.
pub(super) fn drop_left(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    if Meta::at(dir, name)?.is_some() {
        drop_copied(dir, name)?;
    }
    disk::remove_any(dir, &[name, b".part"].concat())
}

/// Stores whatever is at the name as a pre-image, and removes it.
pub(super) fn store_preimage_at(
    dir: BorrowedFd<'_>,
    name: &[u8],
    preimages: &OwnedFd,
    preimage_name: &str,
    sync: bool,
) -> Result<(), Errno> {
    let meta = Meta::at(dir, name)?.ok_or(Errno::NOENT)?;
    if !store_preimage(Object { dir, name, meta, open: None }, preimages, preimage_name, sync)? {
        return Ok(());
    }
    if sync {
        // The two may be on different disks: the copy's name must be synced before the object is removed.
        disk::sync(preimages)?;
    }
    drop_copied(dir, name)
}

/// A file with another name, or open for writing somewhere, would change among the pre-images.
fn is_ours_alone(dir: BorrowedFd<'_>, name: &[u8], meta: &Meta, open: Option<OwnedFd>) -> bool {
    match meta.kind {
        Kind::File if meta.nlink > 1 => false,
        Kind::File => {
            // What was opened before the exchange is only proof if it is the file that came out.
            let same = open
                .filter(|file| Meta::of(file).is_ok_and(|now| (now.dev, now.ino) == (meta.dev, meta.ino)));
            match same.map_or_else(|| disk::open_file(dir, name), Ok) {
                Ok(file) => disk::has_no_writer(&file),
                // Unreadable to us: it cannot be copied, so it is moved.
                Err(_) => true,
            }
        }
        // A folder is moved whole; walking it for open files would cost what the tree costs.
        Kind::Dir | Kind::Symlink | Kind::Other => true,
    }
}
