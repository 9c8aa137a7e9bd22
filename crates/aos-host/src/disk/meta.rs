//! What is at a path, from one `statx`.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use aos_model::records::{Identity, Image, Kind};
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) kind: Kind,
    /// `st_mode & 07777`.
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    /// The time of the last change of the inode, which no process can set back.
    pub(crate) ctime_ns: i64,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mount: u64,
}

impl Meta {
    pub(crate) fn of(fd: impl AsFd) -> Result<Meta, Errno> {
        Meta::statx(fd, b"", AtFlags::EMPTY_PATH)
    }

    /// Of a plain name in a folder; a link is looked at, not through.
    pub(crate) fn at(dir: impl AsFd, name: &[u8]) -> Result<Option<Meta>, Errno> {
        match Meta::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(meta) => Ok(Some(meta)),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// As the journal records it, without content.
    pub(crate) fn image(&self) -> Image {
        Image {
            kind: self.kind,
            mode: self.mode,
            size_bytes: self.size,
            hash: None,
            preimage: None,
            identity: Some(Identity { dev: self.dev, ino: self.ino, mtime_ns: self.mtime_ns }),
            xattrs: None,
        }
    }

    fn statx(dir: impl AsFd, name: &[u8], flags: AtFlags) -> Result<Meta, Errno> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = rustix::fs::statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, wanted)?;
        Ok(Meta {
            kind: kind_of(&stat),
            mode: u32::from(stat.stx_mode) & 0o7777,
            size: stat.stx_size,
            mtime_ns: nanoseconds(stat.stx_mtime),
            ctime_ns: nanoseconds(stat.stx_ctime),
            dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            nlink: stat.stx_nlink,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            mount: stat.stx_mnt_id,
        })
    }

    /// Whether this is the same file with the same content as far as the file system tells.
    pub(crate) fn same_version(&self, other: &Meta) -> bool {
        (self.dev, self.ino, self.size, self.mtime_ns, self.kind)
            == (other.dev, other.ino, other.size, other.mtime_ns, other.kind)
    }
}

fn kind_of(stat: &Statx) -> Kind {
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    }
}

fn nanoseconds(time: StatxTimestamp) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.tv_nsec))
}

/// Device and inode of an open folder.
pub(crate) fn id_of(dir: impl AsFd) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(dir)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A folder and its last change. Each entry that is added, removed or renamed changes the ctime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirVersion {
    dev: u64,
    ino: u64,
    pub(crate) ctime_ns: i64,
}

pub(crate) fn version_of_dir(dir: &OwnedFd) -> Result<DirVersion, Errno> {
    let stat = rustix::fs::fstat(dir)?;
    let ctime_ns = stat.st_ctime.saturating_mul(1_000_000_000).saturating_add(stat.st_ctime_nsec as i64);
    Ok(DirVersion { dev: stat.st_dev, ino: stat.st_ino, ctime_ns })
}

/// Whether an open folder was removed.
pub(crate) fn is_unlinked(dir: impl AsFd) -> Result<bool, Errno> {
    Ok(rustix::fs::fstat(dir)?.st_nlink == 0)
}

/// The size of an open file; `None` when it is not a regular file.
pub(crate) fn file_size(file: &OwnedFd) -> Result<Option<u64>, Errno> {
    let stat = rustix::fs::fstat(file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Ok(is_file.then_some(stat.st_size as u64))
}

/// Kind and time of change of a listed name, and nothing else: a search asks this of every file that it finds.
pub(crate) fn kind_and_mtime(dir: &OwnedFd, name: &CStr) -> Result<(Kind, i64), Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(dir, name, flags, StatxFlags::TYPE | StatxFlags::MTIME)?;
    Ok((kind_of(&stat), nanoseconds(stat.stx_mtime)))
}

/// Whether an entry of an overlay's upper folder marks a removed file: a character device with the number 0.
pub(crate) fn is_whiteout(dir: impl AsFd, name: &[u8]) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode).is_char_device() && stat.st_rdev == 0)
}

/// Whether an absolute path leads to a file with an execute permission.
pub(crate) fn is_executable(path: &[u8]) -> bool {
    rustix::fs::stat(path)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_mode & 0o111 != 0)
}

/// Whether an absolute path leads to something; links are followed.
pub(crate) fn leads_somewhere(path: &[u8]) -> bool {
    rustix::fs::stat(path).is_ok()
}

/// Whether something is at an absolute path, a link that leads nowhere included.
pub(crate) fn exists(path: &[u8]) -> bool {
    rustix::fs::lstat(path).is_ok()
}
