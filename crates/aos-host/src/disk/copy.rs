//! Copying and removing files, links and whole trees by descriptor.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aos_model::path::show;
use aos_model::records::Kind;
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
    let xattrs_lost = Cell::new(None);
    let copying =
        Copying { dir: dir.as_fd(), name, meta, to, to_name: &partial, sync, xattrs_lost: &xattrs_lost };
    let copied = copying.run().and_then(|()| rename_noreplace(to, &partial, to, to_name));
    if copied.is_err() {
        remove_leftover(to, &partial);
    } else if let Some(error) = xattrs_lost.get() {
        let name = show(to_name);
        tracing::warn!(name, %error, "a copy lacks extended attributes or ACLs of its original");
    }
    copied
}

/// A copy being made of one name.
struct Copying<'a> {
    dir: BorrowedFd<'a>,
    name: &'a [u8],
    meta: &'a Meta,
    to: &'a OwnedFd,
    to_name: &'a [u8],
    sync: bool,
    /// The last error of copying extended attributes: a copy without them is better than none.
    xattrs_lost: &'a Cell<Option<Errno>>,
}

impl Copying<'_> {
    fn run(&self) -> Result<(), Errno> {
        match self.meta.kind {
            Kind::File => self.file(),
            Kind::Symlink => {
                make_link(&read_link(self.dir, self.name)?, self.to, self.to_name)?;
                set_mtime_at(self.to, self.to_name, self.meta.mtime_ns)
            }
            Kind::Dir => self.folder(),
            // A FIFO, a socket or a device has no content to keep.
            Kind::Other => Err(Errno::OPNOTSUPP),
        }
    }

    fn file(&self) -> Result<(), Errno> {
        let from = open_file(self.dir, self.name)?;
        let copy = create_new(self.to, self.to_name)?;
        copy_content(&from, &copy)?;
        self.finish(&from, &copy)?;
        if self.sync { super::sync(&copy) } else { Ok(()) }
    }

    fn folder(&self) -> Result<(), Errno> {
        let from = open_dir(self.dir, self.name)?;
        make_dir(self.to, self.to_name)?;
        let copy = open_dir(self.to, self.to_name)?;
        for name in names_in(&from)? {
            let Some(meta) = Meta::at(&from, &name)? else { continue };
            let inner =
                Copying { dir: from.as_fd(), name: &name, meta: &meta, to: &copy, to_name: &name, ..*self };
            inner.run()?;
        }
        self.finish(&from, &copy)
    }

    /// A copy keeps the time of change: by that it is known again.
    fn finish(&self, from: &OwnedFd, copy: &OwnedFd) -> Result<(), Errno> {
        if let Err(why) = copy_xattrs(from, copy) {
            self.xattrs_lost.set(Some(why));
        }
        set_mode(copy, self.meta.mode)?;
        set_mtime(copy, self.meta.mtime_ns)
    }
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

/// Removes everything in a folder but `kept`, as far as that is possible.
pub(crate) fn empty(dir: &OwnedFd, kept: &[u8]) {
    for name in super::names_in(dir).unwrap_or_default() {
        if name == kept {
            continue;
        }
        if let Err(error) = remove_any(dir, &name) {
            tracing::warn!(%error, "cannot remove a file of a session");
        }
    }
}

/// How deep a count goes: it holds one descriptor per level.
const COUNTED_LEVELS_MAX: usize = 200;

/// The disk space of everything below a folder, by handles. An error is a folder that cannot be read or is too deep.
pub(crate) fn allocated_bytes(dir: &OwnedFd) -> Result<u64, Errno> {
    fn count(dir: &OwnedFd, levels: usize) -> Result<u64, Errno> {
        let mut sum = 0;
        for name in super::names_in(dir)? {
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW | rustix::fs::AtFlags::NO_AUTOMOUNT;
            let stat = match rustix::fs::statat(dir, name.as_slice(), flags) {
                Err(Errno::NOENT) => continue,
                outcome => outcome?,
            };
            // A file with several names counts once per name: nothing is kept about each of them.
            sum += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
            if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
                if levels == 0 {
                    return Err(Errno::NAMETOOLONG);
                }
                match super::open_dir(dir, &name) {
                    Ok(inner) => sum += count(&inner, levels - 1)?,
                    Err(Errno::NOENT) => {}
                    Err(why) => return Err(why),
                }
            }
        }
        Ok(sum)
    }
    count(dir, COUNTED_LEVELS_MAX)
}
