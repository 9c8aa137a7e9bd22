//! Blobs: bytes named by their SHA-256, written under a temporary name and linked in whole.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{RwLock, RwLockReadGuard};

use aos_model::request::hash_name;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::{Fault, disk};

/// The folder of all blobs: `ab/cdef…`, the first two digits apart so that no folder grows too large.
#[derive(Debug)]
pub struct Blobs {
    dir: OwnedFd,
    /// Whether blobs and their names reach the disk before they are named.
    sync: bool,
    next_temporary: AtomicU64,
    /// Readers put blobs in; the sweeper holds it alone, so that it never takes a blob that is being named again.
    sweeping: RwLock<()>,
}

/// The digits of a well-formed reference. Anything else names no file.
pub(crate) fn digits(blob_ref: &str) -> Option<&str> {
    let digits = blob_ref.strip_prefix("sha256:")?;
    let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (digits.len() == 64 && digits.bytes().all(lower_hex)).then_some(digits)
}

const BLOCK_BYTES: usize = 256 << 10;

impl Blobs {
    pub(crate) fn open(dir: OwnedFd, sync: bool) -> Result<Blobs, Fault> {
        Ok(Blobs { dir, sync, next_temporary: AtomicU64::new(0), sweeping: RwLock::new(()) })
    }

    /// Stores bytes that are at hand; those that are stored already are not written again.
    pub fn put(&self, bytes: &[u8]) -> Result<String, Fault> {
        self.put_pieces(&[bytes])
    }

    /// The same of bytes that lie in many pieces.
    pub fn put_pieces(&self, pieces: &[&[u8]]) -> Result<String, Fault> {
        let mut hash = Sha256::new();
        pieces.iter().for_each(|piece| hash.update(piece));
        let name = hash_name(&hash.finalize().into());
        if self.renew(&name, pieces.iter().map(|piece| piece.len()).sum())? {
            return Ok(name);
        }
        let writer = self.writer()?;
        let write = |bytes: &[u8]| {
            disk::write_all(&writer.file, bytes).map_err(|why| Fault::io("cannot write a blob", why))
        };
        // Many small pieces are one large write.
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

    /// Makes a blob young again that is there already, whole as far as its size tells.
    fn renew(&self, name: &str, size: usize) -> Result<bool, Fault> {
        let _nobody_sweeps = self.sweeping.read().expect("BUG: nobody panics while sweeping");
        let Some(file) = self.open_blob(name)? else { return Ok(false) };
        if self.size(&file, name)? != size as u64 {
            return Ok(false);
        }
        let digits = digits(name).expect("BUG: a hash names a blob");
        let folder = disk::open_dir(&self.dir, &digits[..2])?;
        touch(&folder, &digits[2..], name)?;
        if self.sync {
            let synced = rustix::fs::fsync(&file).and_then(|()| rustix::fs::fsync(&folder));
            synced.map_err(|why| Fault::io(format!("cannot sync {name}"), why))?;
        }
        Ok(true)
    }

    /// Stores what an open file holds.
    pub fn copy(&self, file: impl AsFd) -> Result<String, Fault> {
        let mut writer = self.writer()?;
        copy_hashing(file, |chunk| writer.write(chunk))?;
        writer.finish()
    }

    /// Takes a file of the store over as the blob it was found to be.
    pub fn adopt(&self, dir: impl AsFd, name: &[u8], blob_ref: &str) -> Result<(), Fault> {
        let fail = |why| Fault::io(format!("cannot store {blob_ref}"), why);
        let _nobody_sweeps = self.sweeping.read().expect("BUG: nobody panics while sweeping");
        let digits = digits(blob_ref).expect("BUG: a hash names a blob");
        let folder = disk::make_dir(&self.dir, &digits[..2])?;
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        // The sweeper goes by age, and a blob is as old as its naming, not as the file that it was.
        rustix::fs::utimensat(&dir, name, &now(), AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
        match rustix::fs::renameat_with(&dir, name, &folder, &digits[2..], flags) {
            Ok(()) if self.sync => rustix::fs::fsync(&folder).map_err(fail),
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => rustix::fs::unlinkat(&dir, name, AtFlags::empty()).map_err(fail),
            Err(why) => Err(fail(why)),
        }
    }

    /// Starts a blob whose bytes come piece by piece.
    pub fn writer(&self) -> Result<BlobWriter<'_>, Fault> {
        let guard = self.sweeping.read().expect("BUG: nobody panics while sweeping");
        let temporary = self.temporary_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, temporary.as_str(), flags, disk::PRIVATE_FILE)
            .map_err(|why| Fault::io("cannot make a blob", why))?;
        Ok(BlobWriter { blobs: self, _guard: guard, file, temporary, hash: Sha256::new(), linked: false })
    }

    /// Opens a blob for reading; `None` when there is none of that name.
    pub fn open_blob(&self, blob_ref: &str) -> Result<Option<OwnedFd>, Fault> {
        let Some(digits) = digits(blob_ref) else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = format!("{}/{}", &digits[..2], &digits[2..]);
        match rustix::fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => match rustix::fs::fstat(&file) {
                Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() => Ok(Some(file)),
                Ok(_) => Err(Fault::Refused(format!("{blob_ref} is no regular file"))),
                Err(why) => Err(Fault::io(format!("cannot look at {blob_ref}"), why)),
            },
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(Fault::io(format!("cannot open {blob_ref}"), why)),
        }
    }

    /// The whole of a blob of at most `bytes_max`, its hash checked. `None` when it is missing or larger.
    pub fn read(&self, blob_ref: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, Fault> {
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
        if hash_name(&hash) != blob_ref {
            return Err(Fault::Refused(format!(
                "{blob_ref} is damaged: its content hashes to {}",
                hash_name(&hash)
            )));
        }
        Ok(Some(bytes))
    }

    /// Opens a blob whose content was found to be what its name says.
    pub fn open_checked(&self, blob_ref: &str) -> Result<Option<OwnedFd>, Fault> {
        let Some(file) = self.open_blob(blob_ref)? else { return Ok(None) };
        let found = hash_name(&copy_hashing(&file, |_| Ok(()))?);
        if found != blob_ref {
            return Err(Fault::Refused(format!("{blob_ref} is damaged: its content hashes to {found}")));
        }
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))
            .map_err(|why| Fault::io(format!("cannot read {blob_ref}"), why))?;
        Ok(Some(file))
    }

    /// A copy of a blob for somebody who may do with it as he likes, open for reading from its start. What is handed
    /// out is never the blob itself: who has its file open could open it for writing.
    pub fn private_copy(&self, blob_ref: &str) -> Result<Option<OwnedFd>, Fault> {
        use std::os::fd::AsRawFd as _;
        let Some(file) = self.open_blob(blob_ref)? else { return Ok(None) };
        let fail = |why| Fault::io(format!("cannot copy {blob_ref}"), why);
        let copy = self.nameless().map_err(fail)?;
        let found = hash_name(&copy_hashing(&file, |mut piece| {
            while !piece.is_empty() {
                piece = &piece[rustix::io::write(&copy, piece).map_err(fail)?..];
            }
            Ok(())
        })?);
        if found != blob_ref {
            return Err(Fault::Refused(format!("{blob_ref} is damaged: its content hashes to {found}")));
        }
        let own = format!("/proc/self/fd/{}", copy.as_raw_fd());
        rustix::fs::open(own, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(Some).map_err(fail)
    }

    pub fn size_of(&self, blob_ref: &str) -> Result<Option<u64>, Fault> {
        match self.open_blob(blob_ref)? {
            Some(file) => self.size(&file, blob_ref).map(Some),
            None => Ok(None),
        }
    }

    fn size(&self, file: &OwnedFd, blob_ref: &str) -> Result<u64, Fault> {
        let stat =
            rustix::fs::fstat(file).map_err(|why| Fault::io(format!("cannot look at {blob_ref}"), why))?;
        Ok(stat.st_size as u64)
    }

    /// A file without a name that may become a blob, or be thrown away by closing it.
    pub fn nameless(&self) -> Result<OwnedFd, Errno> {
        match crate::spool::nameless(&self.dir) {
            // Not every file system has such files: one whose name is taken away does the same.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let temporary = self.temporary_name();
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&self.dir, temporary.as_str(), flags, disk::PRIVATE_FILE)?;
                rustix::fs::unlinkat(&self.dir, temporary.as_str(), AtFlags::empty())?;
                Ok(file)
            }
            outcome => outcome,
        }
    }

    /// Gives a nameless file, whose content hashes to `hash`, its name as a blob.
    pub(crate) fn publish(&self, file: &OwnedFd, hash: [u8; 32]) -> Result<String, Fault> {
        use std::os::fd::AsRawFd as _;
        let name = hash_name(&hash);
        let digits = digits(&name).expect("BUG: a hash names a blob");
        let guard = self.sweeping.read().expect("BUG: nobody panics while sweeping");
        let folder = disk::make_dir(&self.dir, &digits[..2])?;
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let linked = rustix::fs::linkat(rustix::fs::CWD, own, &folder, &digits[2..], AtFlags::SYMLINK_FOLLOW);
        match linked {
            Ok(()) => {}
            Err(Errno::EXIST) => touch(&folder, &digits[2..], &name)?,
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

    /// Keeps new blobs out while `sweep` takes old ones away.
    pub(crate) fn alone<T>(&self, sweep: impl FnOnce() -> T) -> T {
        let _alone = self.sweeping.write().expect("BUG: nobody panics while sweeping");
        sweep()
    }
}

fn now() -> rustix::fs::Timestamps {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    rustix::fs::Timestamps { last_access: now, last_modification: now }
}

/// Reads to the end, hashing; each piece goes to `take` first.
pub(crate) fn copy_hashing(
    file: impl AsFd,
    mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<[u8; 32], Fault> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
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

/// A blob being written. Dropped unfinished, it leaves nothing.
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

    /// Publishes the blob under its name. One that is there already is made young again, for the sweeper's sake.
    pub fn finish(mut self) -> Result<String, Fault> {
        let name = hash_name(&std::mem::take(&mut self.hash).finalize().into());
        self.publish_as(name)
    }

    fn publish_as(mut self, name: String) -> Result<String, Fault> {
        let digits = digits(&name).expect("BUG: a hash names a blob");
        let folder = disk::make_dir(&self.blobs.dir, &digits[..2])?;
        let fail = |why| Fault::io(format!("cannot sync {name}"), why);
        if self.blobs.sync {
            rustix::fs::fsync(&self.file).map_err(fail)?;
        }
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(
            &self.blobs.dir,
            self.temporary.as_str(),
            &folder,
            &digits[2..],
            flags,
        ) {
            Ok(()) => self.linked = true,
            Err(Errno::EXIST) => touch(&folder, &digits[2..], &name)?,
            Err(why) => return Err(Fault::io(format!("cannot store {name}"), why)),
        }
        // At `power` the name must last as long as the receipt that carries it.
        if self.blobs.sync {
            rustix::fs::fsync(&folder).and_then(|()| rustix::fs::fsync(&self.blobs.dir)).map_err(fail)?;
        }
        Ok(name)
    }
}

/// A blob that is there already is made young again, for the sweeper's sake.
fn touch(folder: &OwnedFd, file: &str, name: &str) -> Result<(), Fault> {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let now = rustix::fs::Timestamps { last_access: now, last_modification: now };
    rustix::fs::utimensat(folder, file, &now, AtFlags::SYMLINK_NOFOLLOW)
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
