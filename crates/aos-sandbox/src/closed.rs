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
    stamps: Vec<Stamp>,
    paths: Vec<Vec<u8>>,
}

/// Inode and time of the last change, seconds and nanoseconds.
type Stamp = (u64, i64, u64);

/// What is left to mask where root owns nothing: folders that others may enter and not list, if they are quickly found.
/// They are looked for again when one of the folders in which they were changed since, or might have.
pub(crate) fn closed_folders() -> Vec<Vec<u8>> {
    static KNOWN: Mutex<Option<ClosedFolders>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match &*known {
        Some(known) if known.holds() => known.closed.clone(),
        _ => known.insert(ClosedFolders::find(&READ_EACH_TIME)).closed.clone(),
    }
}

/// Folders that were listed, and those that others may not list. A folder that comes or goes changes the stamp of the one
/// around it, and another mode its own.
struct ClosedFolders {
    closed: Vec<Vec<u8>>,
    stamps: Vec<(Vec<u8>, Stamp)>,
}

impl ClosedFolders {
    fn find(folders: &[&str]) -> ClosedFolders {
        // Two changes within a tick of the kernel's clock leave one time: what changed just now is looked at again.
        let recent = now_seconds() - 2;
        let (mut closed, mut open) = (Vec::new(), Vec::new());
        folders.iter().for_each(|folder| collect(folder.as_bytes(), &mut closed, Some(&mut open)));
        let stamp_of = |path: &Vec<u8>| {
            let found = stamp(path).filter(|(_, seconds, _)| *seconds < recent);
            (path.clone(), found.unwrap_or_default())
        };
        let stamps = closed.iter().chain(&open).map(stamp_of).collect();
        ClosedFolders { closed, stamps }
    }

    fn holds(&self) -> bool {
        self.stamps.iter().all(|(path, then)| stamp(path).is_some_and(|now| now == *then))
    }
}

fn now_seconds() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}

fn stamp(path: &[u8]) -> Option<Stamp> {
    let stat = rustix::fs::lstat(path).ok()?;
    Some((stat.st_ino, stat.st_ctime, stat.st_ctime_nsec))
}

/// The files without `o+r` and the folders without `o+rx`, by their paths.
pub(crate) fn closed_paths() -> Vec<Vec<u8>> {
    static USR: Mutex<Option<Found>> = Mutex::new(None);
    let mut paths = Vec::new();
    for folder in READ_EACH_TIME {
        collect(folder.as_bytes(), &mut paths, None);
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
            collect(KEPT.as_bytes(), &mut found, None);
            paths.extend_from_slice(&found);
            *usr = Some(Found { at, stamps, paths: found });
        }
    }
    paths
}

/// The kept folder and the folders in it.
fn stamps() -> Vec<Stamp> {
    let names = open(KEPT.as_bytes()).map(|dir| names(&dir, false)).unwrap_or_default();
    let inside = names.iter().map(|name| [KEPT.as_bytes(), b"/", name].concat());
    inside.chain([KEPT.as_bytes().to_vec()]).filter_map(|path| stamp(&path)).collect()
}

/// What others may not read below a folder. With `listed` only folders are looked for, and it gets those that were listed.
fn collect(path: &[u8], found: &mut Vec<Vec<u8>>, mut listed: Option<&mut Vec<Vec<u8>>>) {
    let only_folders = listed.is_some();
    let mut folders = vec![path.to_vec()];
    while let Some(path) = folders.pop() {
        let Some(dir) = open(&path) else { continue };
        if let Some(listed) = &mut listed {
            listed.push(path.clone());
        }
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
        collect(top.as_bytes(), &mut found, None);
        found.sort();
        let expected =
            ["entered", "listed", "open/some", "shut"].map(|name| format!("{top}/{name}").into_bytes());
        assert_eq!(found, expected);
        let mut folders = ClosedFolders::find(&[top]).closed;
        folders.sort();
        assert_eq!(folders, ["entered", "listed", "shut"].map(|name| format!("{top}/{name}").into_bytes()));
    }

    #[test]
    fn closed_folders_are_looked_for_again_after_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().to_str().unwrap();
        rustix::fs::mkdir(format!("{top}/inner"), 0o755.into()).unwrap();
        let fresh = ClosedFolders::find(&[top]);
        assert!(!fresh.holds(), "its folders changed just now, so a later change could have the same time");
        let settled = || {
            // Longer than a tick of the kernel's clock: the next change has another time.
            std::thread::sleep(Duration::from_millis(20));
            let mut found = ClosedFolders::find(&[top]);
            for (path, then) in &mut found.stamps {
                *then = stamp(path).unwrap();
            }
            found
        };
        assert!(settled().holds());
        let before = settled();
        rustix::fs::chmod(format!("{top}/inner"), 0o700.into()).unwrap();
        assert!(!before.holds() && settled().closed.len() == 1);
        let before = settled();
        rustix::fs::chmod(format!("{top}/inner"), 0o755.into()).unwrap();
        assert!(!before.holds() && settled().closed.is_empty());
        let before = settled();
        rustix::fs::mkdir(format!("{top}/inner/other"), 0o755.into()).unwrap();
        assert!(!before.holds());
    }
}
