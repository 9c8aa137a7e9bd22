//! Copying and removing files, links and whole trees by descriptor.

use std::os::fd::{AsFd, OwnedFd};

use aos_model::receipt::Kind;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::attrs::copy_xattrs;
use super::{Meta, names_in, open_dir, write_all};

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
    let _ = remove_any(to, &partial);
    let copied = copy_any(&dir, name, meta, to, &partial, sync).and_then(|()| {
        rustix::fs::renameat_with(to, partial.as_slice(), to, to_name, RenameFlags::NOREPLACE)
    });
    if copied.is_err() {
        let _ = remove_any(to, &partial);
    }
    copied
}

fn copy_any(
    dir: impl AsFd,
    name: &[u8],
    meta: &Meta,
    to: &OwnedFd,
    to_name: &[u8],
    sync: bool,
) -> Result<(), Errno> {
    match meta.kind {
        Kind::File => copy_file(dir, name, meta, to, to_name, sync),
        Kind::Symlink => {
            let target = rustix::fs::readlinkat(&dir, name, Vec::new())?;
            rustix::fs::symlinkat(target, to, to_name)?;
            rustix::fs::utimensat(to, to_name, &times(meta), AtFlags::SYMLINK_NOFOLLOW)
        }
        Kind::Dir => copy_dir(dir, name, meta, to, to_name, sync),
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
    sync: bool,
) -> Result<(), Errno> {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let from = rustix::fs::openat(dir, name, read, Mode::empty())?;
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let copy = rustix::fs::openat(to, to_name, write, Mode::from_raw_mode(0o600))?;
    copy_content(&from, &copy)?;
    copy_xattrs(&from, &copy).ok();
    rustix::fs::fchmod(&copy, Mode::from_raw_mode(meta.mode))?;
    set_mtime(&copy, meta)?;
    if sync { rustix::fs::fsync(&copy) } else { Ok(()) }
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
    sync: bool,
) -> Result<(), Errno> {
    let from = open_dir(&dir, name)?;
    rustix::fs::mkdirat(to, to_name, Mode::from_raw_mode(0o700))?;
    let copy = open_dir(to, to_name)?;
    for inner in names_in(&from)? {
        let Some(inner_meta) = Meta::at(&from, &inner)? else { continue };
        copy_any(&from, &inner, &inner_meta, &copy, &inner, sync)?;
    }
    copy_xattrs(&from, &copy).ok();
    rustix::fs::fchmod(&copy, Mode::from_raw_mode(meta.mode))?;
    set_mtime(&copy, meta)
}

fn set_mtime(file: &OwnedFd, meta: &Meta) -> Result<(), Errno> {
    rustix::fs::futimens(file, &times(meta))
}

/// A copy keeps the time of change: by that it is known again.
fn times(meta: &Meta) -> rustix::fs::Timestamps {
    times_of(meta.mtime_ns)
}

pub(crate) fn times_of(mtime_ns: i64) -> rustix::fs::Timestamps {
    let time = rustix::fs::Timespec {
        tv_sec: mtime_ns.div_euclid(1_000_000_000),
        tv_nsec: mtime_ns.rem_euclid(1_000_000_000),
    };
    rustix::fs::Timestamps { last_access: time, last_modification: time }
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
