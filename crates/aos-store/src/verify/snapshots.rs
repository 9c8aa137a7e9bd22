//! Proving the snapshots whole: each manifest as it was written, and each body that it names.
//!
//! The daemon may be at work beside us. A body that is not among the blobs yet waits in the bank; a manifest that is
//! gone when we look again was dropped.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::Path;

use aos_model::limits::FOLDERS_DEEP_MAX;
use aos_model::request::hash_name;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::bank::names_in;
use crate::blobs::copy_hashing;
use crate::verify::{BlobCheck, Finding, Report};
use crate::{Fault, Manifest, Manifests, disk};

pub(crate) fn check(home: &Path, report: &mut Report) -> Result<(), Fault> {
    let open = |path: &Path| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(Fault::io(format!("cannot open {}", path.display()), why)),
        }
    };
    let Some(dir) = open(&home.join("state/snapshots"))? else { return Ok(()) };
    let bank = open(&home.join("state/preimages"))?;
    let manifests = Manifests::new(dir, false);
    let mut bodies = Bodies { blobs: BlobCheck::new(home), bank, known: BTreeMap::new() };
    for session_id in manifests.sessions()? {
        for snapshot_id in manifests.snapshots(&session_id)? {
            let complaint = match manifests.read(&session_id, &snapshot_id) {
                Ok(Some(manifest)) => bodies.complaint(&session_id, &manifest)?,
                Ok(None) => None,
                Err(fault) => Some(fault.to_string()),
            };
            let still_there = || !matches!(manifests.read(&session_id, &snapshot_id), Ok(None));
            if let Some(complaint) = complaint.filter(|_| still_there()) {
                report.add(Finding::Snapshot(format!("snapshot {snapshot_id} of {session_id}: {complaint}")));
            }
        }
    }
    Ok(())
}

/// Each body is read once, however many manifests name it.
struct Bodies {
    blobs: BlobCheck,
    bank: Option<OwnedFd>,
    /// Whether a body was found to be whole.
    known: BTreeMap<String, bool>,
}

impl Bodies {
    fn complaint(&mut self, session_id: &str, manifest: &Manifest) -> Result<Option<String>, Fault> {
        for body in manifest.bodies() {
            let whole = match self.known.get(body) {
                Some(whole) => *whole,
                None => self.is_whole(session_id, body)?,
            };
            self.known.insert(body.to_owned(), whole);
            if !whole {
                let body = aos_model::text::escape(body);
                return Ok(Some(format!("the body {body} is missing or damaged")));
            }
        }
        Ok(None)
    }

    fn is_whole(&self, session_id: &str, body: &str) -> Result<bool, Fault> {
        let stored = || self.blobs.hash(body).ok().flatten().is_some_and(|found| found == body);
        // In this order: a body that left the bank while we looked is a blob by now.
        Ok(stored() || self.waiting(session_id)?.contains(body) || stored())
    }

    /// What a session's folder of the bank holds.
    fn waiting(&self, session_id: &str) -> Result<HashSet<String>, Fault> {
        let mut found = HashSet::new();
        if let Some(bank) = &self.bank
            && let Ok(session) = disk::open_dir(bank, session_id)
        {
            hash_below(&session, FOLDERS_DEEP_MAX, &mut found)?;
        }
        Ok(found)
    }
}

/// `levels`: how deep it may still go. What is deeper no snapshot took.
fn hash_below(dir: &OwnedFd, levels: usize, found: &mut HashSet<String>) -> Result<(), Fault> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    for name in names_in(dir)? {
        let Some(levels) = levels.checked_sub(1) else { continue };
        // What is gone, a link, or closed to us is no body that we could vouch for.
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
