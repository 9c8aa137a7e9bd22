//! What is at a path, from one `statx`.

use std::os::fd::AsFd;

use aos_model::receipt::Kind;
use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) kind: Kind,
    /// `st_mode & 07777`.
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
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

    fn statx(dir: impl AsFd, name: &[u8], flags: AtFlags) -> Result<Meta, Errno> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = rustix::fs::statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, wanted)?;
        let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            _ => Kind::Other,
        };
        Ok(Meta {
            kind,
            mode: u32::from(stat.stx_mode) & 0o7777,
            size: stat.stx_size,
            mtime_ns: stat
                .stx_mtime
                .tv_sec
                .saturating_mul(1_000_000_000)
                .saturating_add(i64::from(stat.stx_mtime.tv_nsec)),
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
