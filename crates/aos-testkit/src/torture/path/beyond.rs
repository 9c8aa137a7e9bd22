//! The folder beside the root that no request may reach: what is in it, and how a breach is detected.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aos_model::request::content_hash;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use serde_json::Value;

/// The modification time of everything in the folder. An answer that contains it has leaked metadata from there.
const MARKED_SECONDS: i64 = 1_111_111_111;
const MARKED_NS: &str = "1111111111111111111";

#[derive(Debug)]
pub(super) struct Beyond {
    pub folder: PathBuf,
    canary: String,
    before: BTreeMap<PathBuf, String>,
}

impl Beyond {
    /// Fills `folder`: the canary is in every file and in a name; `only-here` exists nowhere else.
    pub(super) fn new(folder: PathBuf, number: u64) -> std::io::Result<Beyond> {
        let canary = format!("CANARY-{number:016x}");
        for below in ["", "sub", "d", "d/sub"] {
            let here = folder.join(below);
            std::fs::create_dir_all(&here)?;
            for name in ["secret", "only-here", "f", "g", &canary] {
                std::fs::write(here.join(name), format!("OLD\n{canary}\n"))?;
            }
        }
        std::os::unix::fs::symlink("secret", folder.join("in"))?;
        std::os::unix::fs::symlink("../ws0/d", folder.join("out"))?;
        let mut paths: Vec<PathBuf> = fingerprint(&folder).into_keys().collect();
        // Changes inside a folder change its time, so the deepest paths come first.
        paths.reverse();
        for path in paths {
            mark(&path)?;
        }
        let before = fingerprint(&folder);
        Ok(Beyond { folder, canary, before })
    }

    /// The paths that were added, removed or changed.
    pub(super) fn changes(&self) -> Vec<PathBuf> {
        let now = fingerprint(&self.folder);
        let paths = self.before.keys().chain(now.keys().filter(|path| !self.before.contains_key(*path)));
        paths.filter(|path| self.before.get(*path) != now.get(*path)).cloned().collect()
    }

    /// Whether an answer leaks something about the folder.
    pub(super) fn is_told(&self, line: &str, path: &str, receipt: &Value) -> bool {
        line.contains(&self.canary)
            || line.contains(MARKED_NS)
            || (path.ends_with("only-here") && receipt["exists"] == true)
    }
}

fn mark(path: &Path) -> std::io::Result<()> {
    let time = Timespec { tv_sec: MARKED_SECONDS, tv_nsec: 111_111_111 };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Content, mode and times of everything below `path`. The ctime is included: a file that was created and removed
/// changes the ctime of its folder.
fn fingerprint(path: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let Ok(meta) = path.symlink_metadata() else { return found };
    let content = if meta.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|entry| found.extend(fingerprint(&entry.path())));
        "folder".to_owned()
    } else if meta.is_symlink() {
        format!("{:?}", std::fs::read_link(path).ok())
    } else {
        content_hash(&std::fs::read(path).unwrap_or_default())
    };
    let changed = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
    found.insert(path.to_owned(), format!("{content} {} {:o} {changed:?}", meta.ino(), meta.mode()));
    found
}
