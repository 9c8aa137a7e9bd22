//! Checks the snapshots: each manifest against its checksum, and each body that it names against its hash.
//!
//! The daemon may be running at the same time. A body that is not a blob yet is still a file in the pre-image folder of
//! its session. A manifest that was dropped or written again meanwhile is right on a second look, so it is not reported.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::path::Path;

use aos_model::limits::FOLDERS_DEEP_MAX;
use aos_model::request::hash_name;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::blob_check::BlobCheck;
use super::report::{Finding, Report};
use crate::blobs::copy_hashing;
use crate::disk;
use crate::fault::Fault;
use crate::manifest::{Manifest, Manifests};
use crate::session_dirs::names_in_store;

pub(super) fn check(home: &Path, report: &mut Report) -> Result<(), Fault> {
    let open = |path: &Path| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(Fault::io(format!("cannot open {}", path.display()), why)),
        }
    };
    let Some(dir) = open(&home.join("state/snapshots"))? else { return Ok(()) };
    let preimages = open(&home.join("state/preimages"))?;
    let manifests = Manifests::new(dir, false);
    let mut bodies = Bodies { blobs: BlobCheck::new(home), preimages, known: BTreeSet::new() };
    for session_id in manifests.sessions()? {
        for snapshot_id in manifests.snapshots(&session_id)? {
            let mut look = || match manifests.read(&session_id, &snapshot_id) {
                Ok(Some(manifest)) => bodies.problem(&session_id, &manifest),
                Ok(None) => Ok(None),
                Err(fault) => Ok(Some(fault.to_string())),
            };
            if look()?.is_some()
                && let Some(problem) = look()?
            {
                report.add(Finding::Snapshot(format!("snapshot {snapshot_id} of {session_id}: {problem}")));
            }
        }
    }
    Ok(())
}

/// Reads each body once, however many manifests name it.
struct Bodies {
    blobs: BlobCheck,
    preimages: Option<OwnedFd>,
    /// The bodies that exist and hash to their names.
    known: BTreeSet<String>,
}

impl Bodies {
    fn problem(&mut self, session_id: &str, manifest: &Manifest) -> Result<Option<String>, Fault> {
        for body in manifest.bodies() {
            if self.known.contains(body) {
                continue;
            }
            if !self.is_whole(session_id, body)? {
                let body = aos_model::text::escape(body);
                return Ok(Some(format!("the body {body} is missing or damaged")));
            }
            self.known.insert(body.to_owned());
        }
        Ok(None)
    }

    fn is_whole(&self, session_id: &str, body: &str) -> Result<bool, Fault> {
        let stored = || self.blobs.hash(body).ok().flatten().is_some_and(|found| found == body);
        // Looked up twice: a body may move from the pre-image folder to the blobs between the two lookups.
        Ok(stored() || self.not_yet_stored(session_id)?.contains(body) || stored())
    }

    /// The hashes of all files in the session's pre-image folder.
    fn not_yet_stored(&self, session_id: &str) -> Result<HashSet<String>, Fault> {
        let mut found = HashSet::new();
        if let Some(preimages) = &self.preimages
            && let Ok(session) = disk::open_dir(preimages, session_id)
        {
            hash_below(&session, FOLDERS_DEEP_MAX, &mut found)?;
        }
        Ok(found)
    }
}

/// Hashes the files at most `levels` folders deep. No snapshot takes a deeper folder.
fn hash_below(dir: &OwnedFd, levels: usize, found: &mut HashSet<String>) -> Result<(), Fault> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    for name in names_in_store(dir)? {
        let Some(levels) = levels.checked_sub(1) else { continue };
        // An entry that is gone, is a link or cannot be opened cannot be checked.
        let Ok(file) = rustix::fs::openat(dir, name.as_slice(), flags, Mode::empty()) else { continue };
        let kind = rustix::fs::fstat(&file).map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(rustix::fs::FileType::Directory) => hash_below(&file, levels, found)?,
            Ok(rustix::fs::FileType::RegularFile) => {
                found.insert(hash_name(&copy_hashing(&file, |_| Ok(()))?));
            }
            _ => {}
        }
    }
    Ok(())
}
