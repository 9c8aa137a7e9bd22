//! Copying and removing files, links and whole trees by descriptor.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};

use aos_model::path::show;
use aos_model::receipt::Kind;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::attrs::copy_xattrs;
use super::{
    Meta, create_new, make_dir, make_link, names_in, open_dir, open_file, read_link, rename_noreplace,
    set_mode, set_mtime, set_mtime_at, write_all,
};

/// Copies a file, a link or a tree, with modes and times of files. The copy appears whole or not at all.
pub(crate) fn copy(
    dir: impl AsFd,
    name: &[u8],
    meta: &Meta,
    to: &OwnedFd,
    to_name: &[u8],
    sync: bool,
) -> Result<(), Errno> {
    let partial = [to_name, b".part"].concat();
    remove_leftover(to, &partial);
    let copying = Copying { sync, xattrs_lost: Cell::new(None) };
    let copied = copy_any(&dir, name, meta, to, &partial, &copying)
        .and_then(|()| rename_noreplace(to, &partial, to, to_name));
    if copied.is_err() {
        remove_leftover(to, &partial);
    } else if let Some(error) = copying.xattrs_lost.get() {
        let name = show(to_name);
        tracing::warn!(name, %error, "a copy lacks extended attributes or ACLs of its original");
    }
    copied
}

/// What the copies of one tree share.
struct Copying {
    sync: bool,
    /// The last error of copying extended attributes: a copy without them is better than none.
    xattrs_lost: Cell<Option<Errno>>,
}

impl Copying {
    fn copy_xattrs(&self, from: &OwnedFd, to: &OwnedFd) {
        if let Err(why) = copy_xattrs(from, to) {
            self.xattrs_lost.set(Some(why));
        }
    }
}

fn copy_any(
    dir: impl AsFd,
    name: &[u8],
    meta: &Meta,
    to: &OwnedFd,
    to_name: &[u8],
    copying: &Copying,
) -> Result<(), Errno> {
    match meta.kind {
        Kind::File => copy_file(dir, name, meta, to, to_name, copying),
        Kind::Symlink => {
            let target = read_link(&dir, name)?;
            make_link(&target, to, to_name)?;
            set_mtime_at(to, to_name, meta.mtime_ns)
        }
        Kind::Dir => copy_dir(dir, name, meta, to, to_name, copying),
        // A FIFO, a socket or a device has no content to keep.
        Kind::Other => Err(Errno::OPNOTSUPP),
    }
}

fn copy_file(
    dir: impl AsFd,
    name: &[u8],
    meta: &Meta,
    to: &OwnedFd,
    to_name: &[u8],
    copying: &Copying,
) -> Result<(), Errno> {
    let from = open_file(dir, name)?;
    let copy = create_new(to, to_name)?;
    copy_content(&from, &copy)?;
    copying.copy_xattrs(&from, &copy);
    set_mode(&copy, meta.mode)?;
    // A copy keeps the time of change: by that it is known again.
    set_mtime(&copy, meta.mtime_ns)?;
    if copying.sync { super::sync(&copy) } else { Ok(()) }
}

/// Shares the blocks where the file system can, else copies them.
pub(crate) fn copy_content(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    if rustix::fs::ioctl_ficlone(to, from).is_ok() { Ok(()) } else { copy_bytes(from, to) }
}

fn copy_bytes(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match rustix::fs::copy_file_range(from, None, to, None, 64 << 20) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => break,
            Err(why) => return Err(why),
        }
    }
    loop {
        match rustix::io::read(from, buffer.as_mut_slice()) {
            Ok(0) => return Ok(()),
            Ok(n) => write_all(to, &buffer[..n])?,
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
}

fn copy_dir(
    dir: impl AsFd,
    name: &[u8],
    meta: &Meta,
    to: &OwnedFd,
    to_name: &[u8],
    copying: &Copying,
) -> Result<(), Errno> {
    let from = open_dir(&dir, name)?;
    make_dir(to, to_name)?;
    let copy = open_dir(to, to_name)?;
    for inner in names_in(&from)? {
        let Some(inner_meta) = Meta::at(&from, &inner)? else { continue };
        copy_any(&from, &inner, &inner_meta, &copy, &inner, copying)?;
    }
    copying.copy_xattrs(&from, &copy);
    set_mode(&copy, meta.mode)?;
    // A copy keeps the time of change: by that it is known again.
    set_mtime(&copy, meta.mtime_ns)
}

pub(crate) fn remove(dir: impl AsFd, name: &[u8], meta: &Meta) -> Result<(), Errno> {
    if meta.kind != Kind::Dir {
        return rustix::fs::unlinkat(dir, name, AtFlags::empty());
    }
    aos_store::remove_tree(dir, name)
}

pub(crate) fn remove_any(dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    match Meta::at(&dir, name)? {
        Some(meta) => remove(dir, name, &meta),
        None => Ok(()),
    }
}

/// As [`remove_any`], for what is no longer needed: a failure is only logged.
pub(crate) fn remove_leftover(dir: impl AsFd, name: &[u8]) {
    if let Err(error) = remove_any(dir, name) {
        tracing::debug!(name = show(name), %error, "cannot remove a leftover");
    }
}
