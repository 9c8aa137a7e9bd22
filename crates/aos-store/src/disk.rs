//! The store's own files: opened by folder handle, private to their owner, never through a link.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RawMode};
use rustix::io::Errno;

use crate::Fault;

pub(crate) const PRIVATE_FILE: Mode = Mode::from_raw_mode(0o600);
pub(crate) const PRIVATE_DIR: Mode = Mode::from_raw_mode(0o700);
const GROUP_AND_OTHERS: RawMode = 0o077;

/// Opens `name` below `parent`, made with mode 0700 when it is missing.
pub(crate) fn make_dir(parent: impl AsFd, name: &str) -> Result<OwnedFd, Fault> {
    match rustix::fs::mkdirat(&parent, name, PRIVATE_DIR) {
        Ok(()) | Err(Errno::EXIST) => open_dir(parent, name),
        Err(why) => Err(Fault::io(format!("cannot make {name}/"), why)),
    }
}

pub(crate) fn open_dir(parent: impl AsFd, name: &str) -> Result<OwnedFd, Fault> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
        .map_err(|why| Fault::io(format!("cannot open {name}/"), why))
}

/// Makes `path` and its parents. Only what is made here gets mode 0700; what stood there keeps its own.
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
        Err(why) => Err(Fault::io(format!("cannot make {shown}"), why)),
    }
}

/// Refuses a state file that somebody else could have prepared: a link, a foreign owner, an open mode.
pub(crate) fn check_private(dir: impl AsFd, name: &str) -> Result<(), Fault> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(why) => return Err(Fault::io(format!("cannot look at {name}"), why)),
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
