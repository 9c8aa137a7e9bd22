//! Blobs: bytes named by their SHA-256.
//!
//! A blob is written under a temporary name and then renamed or linked to its final one, so a blob that can be opened
//! is always complete.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{RwLock, RwLockReadGuard};

use aos_model::request::hash_name;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::disk;
use crate::fault::{Fault, LOCK_POISONED};
use crate::rights::own_rights;

/// The folder of all blobs: `ab/cdef…`. The first two hex digits are a folder, so that no folder grows too large.
#[derive(Debug)]
pub struct Blobs {
    dir: OwnedFd,
    /// Whether a blob and its directory entry are fsynced before its name is returned (durability `power`).
    sync: bool,
    next_temporary: AtomicU64,
    /// Held shared while a blob is added or touched, and exclusively by the garbage collector, so that it never
    /// removes a blob that an entry is about to name.
    gc_lock: RwLock<()>,
}

/// The hex digits of a well-formed reference. Nothing else is ever used as a file name.
pub(crate) fn hex_digits(blob_ref: &str) -> Option<&str> {
    let digits = blob_ref.strip_prefix("sha256:")?;
    let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (digits.len() == 64 && digits.bytes().all(lower_hex)).then_some(digits)
}

/// The size of one read or write.
const BLOCK_BYTES: usize = 256 << 10;

impl Blobs {
    pub(crate) fn new(dir: OwnedFd, sync: bool) -> Blobs {
        Blobs { dir, sync, next_temporary: AtomicU64::new(0), gc_lock: RwLock::new(()) }
    }

    /// Stores bytes. Bytes that are stored already are not written again.
    pub fn put(&self, bytes: &[u8]) -> Result<String, Fault> {
        self.put_pieces(&[bytes])
    }

    /// Stores the concatenation of `pieces` as one blob.
    pub fn put_pieces(&self, pieces: &[&[u8]]) -> Result<String, Fault> {
        let _own = own_rights();
        let mut hash = Sha256::new();
        pieces.iter().for_each(|piece| hash.update(piece));
        let name = hash_name(&hash.finalize().into());
        if self.touch_existing(&name, pieces.iter().map(|piece| piece.len()).sum())? {
            return Ok(name);
        }
        let writer = self.writer()?;
        let write = |bytes: &[u8]| {
            disk::write_all(&writer.file, bytes).map_err(|why| Fault::io("cannot write a blob", why))
        };
        // Small pieces are collected into one large write.
        let mut block = Vec::new();
        for piece in pieces {
            if !block.is_empty() && block.len() + piece.len() > BLOCK_BYTES {
                write(&block)?;
                block.clear();
            }
            if piece.len() > BLOCK_BYTES || pieces.len() == 1 {
                write(piece)?;
            } else {
                block.extend_from_slice(piece);
            }
        }
        write(&block)?;
        writer.publish_as(name)
    }

    /// Touches the blob if it exists with this size. False when it does not.
    fn touch_existing(&self, name: &str, size: usize) -> Result<bool, Fault> {
        let _no_gc = self.lock_shared();
        let Some(file) = self.open_blob(name)? else { return Ok(false) };
        if self.size(&file, name)? != size as u64 {
            return Ok(false);
        }
        let (folder, file_name) = split_name(name);
        let folder = disk::open_dir(&self.dir, folder)?;
        touch(&folder, file_name, name)?;
        if self.sync {
            let synced = rustix::fs::fsync(&file).and_then(|()| rustix::fs::fsync(&folder));
            synced.map_err(|why| Fault::io(format!("cannot sync {name}"), why))?;
        }
        Ok(true)
    }

    /// Stores the content of an open file.
    pub fn copy(&self, file: impl AsFd) -> Result<String, Fault> {
        let _own = own_rights();
        let mut writer = self.writer()?;
        copy_hashing(file, |chunk| writer.write(chunk))?;
        writer.finish()
    }

    /// Renames a file of the store to the blob that its content was found to hash to.
    pub fn adopt_file(&self, dir: impl AsFd, name: &[u8], blob_ref: &str) -> Result<(), Fault> {
        let _own = own_rights();
        let fail = |why| Fault::io(format!("cannot store {blob_ref}"), why);
        let _no_gc = self.lock_shared();
        let (folder, file_name) = split_name(blob_ref);
        let folder = disk::make_dir(&self.dir, folder)?;
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&dir, name, &folder, file_name, flags) {
            Ok(()) => {
                // The garbage collector goes by mtime. The age of a blob counts from here, not from the original file.
                // Not before the rename: a pre-image is recognized by its time.
                rustix::fs::utimensat(&folder, file_name, &now(), AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
                if self.sync { rustix::fs::fsync(&folder).map_err(fail) } else { Ok(()) }
            }
            Err(Errno::EXIST) => rustix::fs::unlinkat(&dir, name, AtFlags::empty()).map_err(fail),
            Err(why) => Err(fail(why)),
        }
    }

    /// Starts a blob that is written in pieces.
    pub fn writer(&self) -> Result<BlobWriter<'_>, Fault> {
        let _own = own_rights();
        let guard = self.lock_shared();
        let temporary = self.temporary_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, temporary.as_str(), flags, disk::PRIVATE_FILE)
            .map_err(|why| Fault::io("cannot create a blob", why))?;
        Ok(BlobWriter { blobs: self, _guard: guard, file, temporary, hash: Sha256::new(), linked: false })
    }

    /// Opens a blob for reading; `None` when it does not exist. `O_NONBLOCK` keeps a FIFO that was put in its place from
    /// blocking the open.
    pub fn open_blob(&self, blob_ref: &str) -> Result<Option<OwnedFd>, Fault> {
        let _own = own_rights();
        let Some(digits) = hex_digits(blob_ref) else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = format!("{}/{}", &digits[..2], &digits[2..]);
        match rustix::fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => match rustix::fs::fstat(&file) {
                Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() => Ok(Some(file)),
                Ok(_) => Err(Fault::Refused(format!("{blob_ref} is not a regular file"))),
                Err(why) => Err(Fault::io(format!("cannot stat {blob_ref}"), why)),
            },
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(Fault::io(format!("cannot open {blob_ref}"), why)),
        }
    }

    /// Reads a blob of at most `bytes_max` and checks its hash. `None` when it is missing or larger.
    pub fn read(&self, blob_ref: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, Fault> {
        let _own = own_rights();
        let Some(file) = self.open_blob(blob_ref)? else { return Ok(None) };
        let size = self.size(&file, blob_ref)?;
        if size > bytes_max {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(size as usize);
        let hash = copy_hashing(&file, |chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        })?;
        let found = hash_name(&hash);
        if found != blob_ref {
            return Err(damaged(blob_ref, &found));
        }
        Ok(Some(bytes))
    }

    /// Opens a blob after checking that its content hashes to its name.
    pub fn open_checked(&self, blob_ref: &str) -> Result<Option<OwnedFd>, Fault> {
        let _own = own_rights();
        let Some(file) = self.open_blob(blob_ref)? else { return Ok(None) };
        let found = hash_name(&copy_hashing(&file, |_| Ok(()))?);
        if found != blob_ref {
            return Err(damaged(blob_ref, &found));
        }
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))
            .map_err(|why| Fault::io(format!("cannot read {blob_ref}"), why))?;
        Ok(Some(file))
    }

    /// A private copy of a blob, open for reading from its start, to be passed to a command.
    ///
    /// The blob itself is never passed on: the owner of an open descriptor can reopen the file for writing through
    /// /proc/self/fd.
    pub fn private_copy(&self, blob_ref: &str) -> Result<Option<OwnedFd>, Fault> {
        let _own = own_rights();
        use std::os::fd::AsRawFd as _;
        let Some(file) = self.open_blob(blob_ref)? else { return Ok(None) };
        let fail = |why| Fault::io(format!("cannot copy {blob_ref}"), why);
        let copy = self.open_unnamed().map_err(fail)?;
        let found = hash_name(&copy_hashing(&file, |piece| disk::write_all(&copy, piece).map_err(fail))?);
        if found != blob_ref {
            return Err(damaged(blob_ref, &found));
        }
        // A second open file description: read-only, with its own offset at 0.
        let reopened = format!("/proc/self/fd/{}", copy.as_raw_fd());
        rustix::fs::open(reopened, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(Some).map_err(fail)
    }

    pub fn size_of(&self, blob_ref: &str) -> Result<Option<u64>, Fault> {
        let _own = own_rights();
        match self.open_blob(blob_ref)? {
            Some(file) => self.size(&file, blob_ref).map(Some),
            None => Ok(None),
        }
    }

    fn size(&self, file: &OwnedFd, blob_ref: &str) -> Result<u64, Fault> {
        let stat =
            rustix::fs::fstat(file).map_err(|why| Fault::io(format!("cannot stat {blob_ref}"), why))?;
        Ok(stat.st_size as u64)
    }

    /// A file without a name: it can be published as a blob, or disappears when it is closed.
    pub fn open_unnamed(&self) -> Result<OwnedFd, Errno> {
        let _own = own_rights();
        match disk::open_tmpfile(&self.dir) {
            // Without `O_TMPFILE`, a file that is unlinked at once does the same.
            Err(why) if disk::tmpfile_unsupported(why) => {
                let temporary = self.temporary_name();
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&self.dir, temporary.as_str(), flags, disk::PRIVATE_FILE)?;
                rustix::fs::unlinkat(&self.dir, temporary.as_str(), AtFlags::empty())?;
                Ok(file)
            }
            outcome => outcome,
        }
    }

    /// Links a nameless file, whose content hashes to `hash`, as a blob.
    ///
    /// `linkat` with `AT_EMPTY_PATH` needs CAP_DAC_READ_SEARCH; through /proc/self/fd it does not. A file that was
    /// unlinked after its creation cannot be linked again (`ENOENT`), so every other error falls back to a copy.
    pub(crate) fn publish(&self, file: &OwnedFd, hash: [u8; 32]) -> Result<String, Fault> {
        let _own = own_rights();
        use std::os::fd::AsRawFd as _;
        let name = hash_name(&hash);
        let (folder, file_name) = split_name(&name);
        let guard = self.lock_shared();
        let folder = disk::make_dir(&self.dir, folder)?;
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let linked = rustix::fs::linkat(rustix::fs::CWD, own, &folder, file_name, AtFlags::SYMLINK_FOLLOW);
        match linked {
            Ok(()) => {}
            Err(Errno::EXIST) => touch(&folder, file_name, &name)?,
            Err(_) => {
                drop(guard);
                rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0))
                    .map_err(|why| Fault::io(format!("cannot store {name}"), why))?;
                let mut writer = self.writer()?;
                copy_hashing(file, |piece| writer.write(piece))?;
                return writer.finish();
            }
        }
        if self.sync {
            rustix::fs::fsync(file)
                .and_then(|()| rustix::fs::fsync(&folder))
                .and_then(|()| rustix::fs::fsync(&self.dir))
                .map_err(|why| Fault::io(format!("cannot sync {name}"), why))?;
        }
        Ok(name)
    }

    fn temporary_name(&self) -> String {
        let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        format!("tmp-{}-{number}", rustix::process::getpid().as_raw_nonzero())
    }

    pub(crate) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Runs `sweep` while no blob can be added or touched.
    pub(crate) fn with_exclusive<T>(&self, sweep: impl FnOnce() -> T) -> T {
        let _exclusive = self.gc_lock.write().expect(LOCK_POISONED);
        sweep()
    }

    fn lock_shared(&self) -> RwLockReadGuard<'_, ()> {
        self.gc_lock.read().expect(LOCK_POISONED)
    }
}

fn damaged(blob_ref: &str, found: &str) -> Fault {
    Fault::Refused(format!("{blob_ref} is damaged: its content hashes to {found}"))
}

/// The folder and the file name of a blob.
fn split_name(blob_ref: &str) -> (&str, &str) {
    hex_digits(blob_ref).expect("BUG: a blob name that is not `sha256:` and 64 hex digits").split_at(2)
}

fn now() -> rustix::fs::Timestamps {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    rustix::fs::Timestamps { last_access: now, last_modification: now }
}

/// Reads a file to its end and returns the hash of its content. `take` gets each piece.
pub(crate) fn copy_hashing(
    file: impl AsFd,
    mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<[u8; 32], Fault> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BLOCK_BYTES];
    loop {
        let n = match rustix::io::read(&file, buffer.as_mut_slice()) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(why) => return Err(Fault::io("cannot read a blob", why)),
        };
        hash.update(&buffer[..n]);
        take(&buffer[..n])?;
    }
}

/// A blob that is being written. Dropping it unfinished removes its temporary file.
#[derive(Debug)]
pub struct BlobWriter<'a> {
    blobs: &'a Blobs,
    _guard: RwLockReadGuard<'a, ()>,
    file: OwnedFd,
    temporary: String,
    hash: Sha256,
    linked: bool,
}

impl BlobWriter<'_> {
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.hash.update(bytes);
        disk::write_all(&self.file, bytes).map_err(|why| Fault::io("cannot write a blob", why))
    }

    /// Publishes the blob under its name. A blob that exists already is touched instead.
    pub fn finish(mut self) -> Result<String, Fault> {
        let name = hash_name(&std::mem::take(&mut self.hash).finalize().into());
        self.publish_as(name)
    }

    fn publish_as(mut self, name: String) -> Result<String, Fault> {
        let (folder, file_name) = split_name(&name);
        let folder = disk::make_dir(&self.blobs.dir, folder)?;
        let fail = |why| Fault::io(format!("cannot sync {name}"), why);
        // fsync before rename: else a power cut could leave the final name on a file without its content.
        if self.blobs.sync {
            rustix::fs::fsync(&self.file).map_err(fail)?;
        }
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&self.blobs.dir, self.temporary.as_str(), &folder, file_name, flags) {
            Ok(()) => self.linked = true,
            Err(Errno::EXIST) => touch(&folder, file_name, &name)?,
            Err(why) => return Err(Fault::io(format!("cannot store {name}"), why)),
        }
        // A rename is durable only after an fsync of the directory. The receipt that names the blob comes after this.
        if self.blobs.sync {
            rustix::fs::fsync(&folder).and_then(|()| rustix::fs::fsync(&self.blobs.dir)).map_err(fail)?;
        }
        Ok(name)
    }
}

/// Sets the mtime of an existing blob to now, so that the garbage collector keeps it for another day.
fn touch(folder: &OwnedFd, file: &str, name: &str) -> Result<(), Fault> {
    rustix::fs::utimensat(folder, file, &now(), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|why| Fault::io(format!("cannot touch {name}"), why))
}

impl Drop for BlobWriter<'_> {
    fn drop(&mut self) {
        if !self.linked {
            let removed = rustix::fs::unlinkat(&self.blobs.dir, self.temporary.as_str(), AtFlags::empty());
            if let Err(why) = removed {
                tracing::warn!("cannot remove the unfinished blob {}: {why}", self.temporary);
            }
        }
    }
}
