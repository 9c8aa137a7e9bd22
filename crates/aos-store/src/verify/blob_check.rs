//! Checks that blobs exist and hash to their names.

use std::collections::HashSet;
use std::path::Path;

use aos_model::request::hash_name;
use rustix::fs::{Mode, OFlags};

use super::report::{Finding, Report};
use crate::blobs::{Blobs, copy_hashing};
use crate::disk;
use crate::fault::Fault;

/// Reads each blob once, however many entries name it.
pub(super) struct BlobCheck {
    blobs: Option<Blobs>,
    seen: HashSet<String>,
}

impl BlobCheck {
    pub(super) fn new(home: &Path) -> BlobCheck {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let state = rustix::fs::open(home.join("state"), flags, Mode::empty());
        let blobs = state
            .ok()
            .and_then(|state| disk::open_dir(&state, "blobs").ok())
            .map(|dir| Blobs::new(dir, false));
        BlobCheck { blobs, seen: HashSet::new() }
    }

    pub(super) fn check(&mut self, blob_ref: &str, seq: u64, report: &mut Report) {
        if !self.seen.insert(blob_ref.to_owned()) {
            return;
        }
        report.blobs += 1;
        let named = format!("blob {}, which entry {seq} names,", aos_model::text::escape(blob_ref));
        let problem = match self.hash(blob_ref) {
            Ok(Some(found)) if found == blob_ref => return,
            Ok(Some(found)) => format!("{named} is damaged: hash mismatch, its content hashes to {found}"),
            Ok(None) => format!("{named} is missing"),
            Err(fault) => format!("{named} cannot be read: {fault}"),
        };
        report.add(Finding::Blob(problem));
    }

    /// The hash of the blob's content, or `None` when the blob is missing.
    pub(super) fn hash(&self, blob_ref: &str) -> Result<Option<String>, Fault> {
        let Some(blobs) = &self.blobs else { return Ok(None) };
        match blobs.open_blob(blob_ref)? {
            Some(file) => Ok(Some(hash_name(&copy_hashing(&file, |_| Ok(()))?))),
            None => Ok(None),
        }
    }
}
