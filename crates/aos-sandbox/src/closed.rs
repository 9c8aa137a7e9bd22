//! What others may not read in the folders of the system. A command that keeps uid 0 owns most of it, so for such a
//! command these paths are masked, as far as root's ids are not mapped to nobody's there.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

/// Small folders that administrators change: read for every command.
const READ_EACH_TIME: [&str; 2] = ["/etc", "/opt"];

/// A large folder that packages change: what was found is kept while its upper folders stay as they are.
const KEPT: &str = "/usr";
const KEPT_AT_MOST: Duration = Duration::from_secs(60);

struct Found {
    at: Instant,
    stamps: Vec<(u64, i64, u64)>,
    paths: Vec<Vec<u8>>,
}

/// What is left to mask where root owns nothing: folders that others may enter and not list, if they are quickly found.
pub(crate) fn closed_folders() -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    for folder in READ_EACH_TIME {
        collect(folder.as_bytes(), &mut paths, true);
    }
    paths
}

/// The files without `o+r` and the folders without `o+rx`, by their paths.
pub(crate) fn closed_paths() -> Vec<Vec<u8>> {
    static USR: Mutex<Option<Found>> = Mutex::new(None);
    let mut paths = Vec::new();
    for folder in READ_EACH_TIME {
        collect(folder.as_bytes(), &mut paths, false);
    }
    let mut usr = USR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let stamps = stamps();
    match &*usr {
        Some(found) if found.at.elapsed() < KEPT_AT_MOST && found.stamps == stamps => {
            paths.extend_from_slice(&found.paths);
        }
        _ => {
            let at = Instant::now();
            let mut found = Vec::new();
            collect(KEPT.as_bytes(), &mut found, false);
            paths.extend_from_slice(&found);
            *usr = Some(Found { at, stamps, paths: found });
        }
    }
    paths
}

/// Inode and time of the last change of the kept folder and of the folders in it.
fn stamps() -> Vec<(u64, i64, u64)> {
    let stamp = |path: &[u8]| {
        let stat = rustix::fs::lstat(path).ok()?;
        Some((stat.st_ino, stat.st_ctime, stat.st_ctime_nsec))
    };
    let names = open(KEPT.as_bytes()).map(|dir| names(&dir, false)).unwrap_or_default();
    let inside = names.iter().map(|name| [KEPT.as_bytes(), b"/", name].concat());
    inside.chain([KEPT.as_bytes().to_vec()]).filter_map(|path| stamp(&path)).collect()
}

fn collect(path: &[u8], found: &mut Vec<Vec<u8>>, only_folders: bool) {
    let mut folders = vec![path.to_vec()];
    while let Some(path) = folders.pop() {
        let Some(dir) = open(&path) else { continue };
        for name in names(&dir, only_folders) {
            let Ok(stat) = rustix::fs::statat(&dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let kind = FileType::from_raw_mode(stat.st_mode);
            let needs = if kind.is_dir() { 0o005 } else { 0o004 };
            let below = || [path.as_slice(), b"/", &name].concat();
            if kind.is_symlink() || (only_folders && !kind.is_dir()) {
                continue;
            } else if stat.st_mode & needs != needs {
                found.push(below());
            } else if kind.is_dir() {
                folders.push(below());
            }
        }
    }
}

fn open(path: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

fn names(dir: &OwnedFd, only_folders: bool) -> Vec<Vec<u8>> {
    let Ok(listing) = Dir::read_from(dir) else { return Vec::new() };
    // A file system may leave the type open.
    let wanted = |kind: FileType| !only_folders || matches!(kind, FileType::Directory | FileType::Unknown);
    let entries = listing.flatten().filter(|entry| wanted(entry.file_type()));
    let names = entries.map(|entry| entry.file_name().to_bytes().to_vec());
    names.filter(|name| name != b"." && name != b"..").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_that_others_may_not_read_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().to_str().unwrap();
        for (name, mode) in [("open", 0o755), ("shut", 0o750), ("listed", 0o754), ("entered", 0o711)] {
            rustix::fs::mkdir(format!("{top}/{name}"), 0o755.into()).unwrap();
            for (file, mode) in [("all", 0o644), ("some", 0o640)] {
                let path = format!("{top}/{name}/{file}");
                rustix::fs::open(path.as_str(), OFlags::CREATE | OFlags::WRONLY, 0o600.into()).unwrap();
                rustix::fs::chmod(path.as_str(), mode.into()).unwrap();
            }
            rustix::fs::chmod(format!("{top}/{name}"), mode.into()).unwrap();
        }
        rustix::fs::symlink("open/some", format!("{top}/link")).unwrap();
        let mut found = Vec::new();
        collect(top.as_bytes(), &mut found, false);
        found.sort();
        let expected =
            ["entered", "listed", "open/some", "shut"].map(|name| format!("{top}/{name}").into_bytes());
        assert_eq!(found, expected);
        let mut folders = Vec::new();
        collect(top.as_bytes(), &mut folders, true);
        folders.sort();
        assert_eq!(folders, ["entered", "listed", "shut"].map(|name| format!("{top}/{name}").into_bytes()));
    }
}
