//! Banking: moves what was displaced into the session's folder of pre-images, or copies it when it must.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use aos_model::receipt::Kind;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::lease;
use crate::jail::Meta;

/// Something that a step displaced, under its temporary name.
pub(super) struct Object<'a> {
    pub(super) dir: BorrowedFd<'a>,
    pub(super) name: &'a [u8],
    pub(super) meta: Meta,
    /// The same file opened for reading, where somebody has it open already.
    pub(super) open: Option<OwnedFd>,
}

/// Takes an object into the bank: itself where nobody else can change it, else a copy.
pub(super) fn store_preimage(
    object: Object<'_>,
    bank: &OwnedFd,
    bank_name: &str,
    sync: bool,
) -> Result<(), Errno> {
    let Object { dir, name, meta, open } = object;
    if is_ours_alone(dir, name, &meta, open) {
        match shift(dir, name, bank, bank_name.as_bytes(), RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            Err(Errno::XDEV) => {}
            Err(why) => return Err(why),
        }
    }
    copy(dir, name, &meta, bank, bank_name.as_bytes(), sync)?;
    if sync {
        // The two may be on different disks: the copy's name must last before the object goes.
        rustix::fs::fsync(bank)?;
    }
    // Under another name first: half a folder under the temporary name would be taken for the whole.
    let leaving = [name, b".part"].concat();
    rustix::fs::renameat_with(dir, name, dir, leaving.as_slice(), RenameFlags::NOREPLACE)?;
    remove(dir, &leaving, &meta)
}

/// Moves an object to another folder. The mode of a folder that is moved says who may do that: one that is closed
/// even to us, its owner, is opened for the moment.
pub(super) fn shift(
    dir: impl AsFd,
    name: &[u8],
    to: impl AsFd,
    to_name: &[u8],
    flags: RenameFlags,
) -> Result<(), Errno> {
    let rename = || rustix::fs::renameat_with(&dir, name, &to, to_name, flags);
    let folder = match rename() {
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
    let moved = rename();
    set_mode(&folder, mode).and(moved)
}

/// What [`shift`] gives a folder for a moment. A daemon that dies in it leaves it to recovery.
pub(super) const OWNER_WRITES: u32 = 0o200;

/// Of something that is only held, not opened.
pub(super) fn set_mode(held: &OwnedFd, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), Mode::from_raw_mode(mode))
}

/// As [`store_preimage`], for whatever stands at the name.
pub(super) fn store_preimage_at(
    dir: BorrowedFd<'_>,
    name: &[u8],
    bank: &OwnedFd,
    bank_name: &str,
    sync: bool,
) -> Result<(), Errno> {
    let meta = Meta::at(dir, name)?.ok_or(Errno::NOENT)?;
    store_preimage(Object { dir, name, meta, open: None }, bank, bank_name, sync)
}

/// A file with another name, or open for writing somewhere, would change in the bank.
fn is_ours_alone(dir: BorrowedFd<'_>, name: &[u8], meta: &Meta, open: Option<OwnedFd>) -> bool {
    match meta.kind {
        Kind::File if meta.nlink > 1 => false,
        Kind::File => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            // What was opened before the exchange is only proof if it is the file that came out.
            let same = open
                .filter(|file| Meta::of(file).is_ok_and(|now| (now.dev, now.ino) == (meta.dev, meta.ino)));
            match same.map_or_else(|| rustix::fs::openat(dir, name, flags, Mode::empty()), Ok) {
                Ok(file) => lease::nobody_writes(&file),
                // Unreadable to us: it cannot be copied, so it is moved.
                Err(_) => true,
            }
        }
        // A folder is moved whole; walking it for open files would cost what the tree costs.
        Kind::Dir | Kind::Symlink | Kind::Other => true,
    }
}

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
    super::dress::copy_attributes(&from, &copy).ok();
    rustix::fs::fchmod(&copy, Mode::from_raw_mode(meta.mode))?;
    set_mtime(&copy, meta)?;
    if sync { rustix::fs::fsync(&copy) } else { Ok(()) }
}

/// Shares the blocks where the file system can, else copies them.
pub(super) fn copy_content(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
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
            Ok(n) => super::dress::write_all(to, &buffer[..n])?,
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
    super::dress::copy_attributes(&from, &copy).ok();
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

pub(crate) fn open_dir(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// The names in an open folder, as bytes, in no order.
pub(crate) fn names_in(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

pub(super) fn remove(dir: impl AsFd, name: &[u8], meta: &Meta) -> Result<(), Errno> {
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
