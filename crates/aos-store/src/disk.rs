//! The store's own files: opened relative to a folder descriptor, mode 0600 or 0700, never through a link (I11).

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RawMode};
use rustix::io::Errno;

use crate::fault::Fault;

pub(crate) const PRIVATE_FILE: Mode = Mode::from_raw_mode(0o600);
pub(crate) const PRIVATE_DIR: Mode = Mode::from_raw_mode(0o700);
const GROUP_AND_OTHERS: RawMode = 0o077;

/// Opens the folder `name` in `parent`, and creates it with mode 0700 when it is missing.
pub(crate) fn make_dir(parent: impl AsFd, name: &str) -> Result<OwnedFd, Fault> {
    open_dir(&parent, name).or_else(|_| make_new_dir(parent, name))
}

/// As [`make_dir`], for a folder that is usually missing: each of the two tries what will succeed first.
pub(crate) fn make_new_dir(parent: impl AsFd, name: &str) -> Result<OwnedFd, Fault> {
    match rustix::fs::mkdirat(&parent, name, PRIVATE_DIR) {
        Ok(()) | Err(Errno::EXIST) => open_dir(parent, name),
        Err(why) => Err(Fault::io(format!("cannot create {name}/"), why)),
    }
}

pub(crate) fn open_dir(parent: impl AsFd, name: &str) -> Result<OwnedFd, Fault> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
        .map_err(|why| Fault::io(format!("cannot open {name}/"), why))
}

/// Opens `path`, and creates it and its parents when they are missing. New folders get mode 0700; existing ones keep
/// their mode.
pub(crate) fn make_dirs(path: &Path) -> Result<OwnedFd, Fault> {
    let shown = path.display();
    let open = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty())
    };
    match open() {
        Ok(dir) => return Ok(dir),
        Err(Errno::NOENT) => {}
        Err(why) => return Err(Fault::io(format!("cannot open {shown}"), why)),
    }
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        make_dirs(parent)?;
    }
    match rustix::fs::mkdirat(rustix::fs::CWD, path, PRIVATE_DIR) {
        Ok(()) | Err(Errno::EXIST) => open().map_err(|why| Fault::io(format!("cannot open {shown}"), why)),
        Err(why) => Err(Fault::io(format!("cannot create {shown}"), why)),
    }
}

/// Refuses a state file that another user could have prepared: a link, a foreign owner, a mode that lets others in.
pub(crate) fn check_private(dir: impl AsFd, name: &str) -> Result<(), Fault> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(why) => return Err(Fault::io(format!("cannot stat {name}"), why)),
    };
    let owner = rustix::process::geteuid().as_raw();
    let refuse =
        |why: String, remedy: &str| Err(Fault::Refused(format!("refusing to use {name}: {why}; {remedy}")));
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return refuse("it is not a regular file".into(), "move it away and restore the real one");
    }
    if stat.st_uid != owner {
        return refuse(
            format!("it belongs to uid {}, not to {owner}", stat.st_uid),
            "change its owner if you trust it",
        );
    }
    if stat.st_mode & GROUP_AND_OTHERS != 0 {
        return refuse(
            format!("its mode {:04o} lets others in", stat.st_mode & 0o7777),
            "chmod 600 it if you trust it",
        );
    }
    Ok(())
}

/// Creates a file without a name in `dir`: it disappears with its last descriptor unless `linkat` names it. Not every
/// file system supports `O_TMPFILE`; see [`tmpfile_unsupported`].
pub(crate) fn open_tmpfile(dir: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, PRIVATE_FILE)
}

/// `EOPNOTSUPP` means that the file system lacks `O_TMPFILE`. A kernel that does not know the flag sees
/// `O_DIRECTORY|O_RDWR` and reports `EISDIR`; some file systems report `EINVAL`.
pub(crate) fn tmpfile_unsupported(why: Errno) -> bool {
    matches!(why, Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL)
}

pub(crate) fn write_all(file: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(&file, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}
