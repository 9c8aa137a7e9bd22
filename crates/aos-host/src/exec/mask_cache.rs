//! What the folders of a session contain that rules forbid to read, as far as they have not changed since.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::disk::DirVersion;

#[derive(Debug, Default)]
pub(crate) struct MaskCache {
    folders: Mutex<HashMap<Vec<u8>, Kept>>,
}

type Kept = (DirVersion, Arc<ListedFolder>);

/// A folder as it was listed.
#[derive(Debug, Default)]
pub(crate) struct ListedFolder {
    /// Names that a rule forbids to read.
    pub(crate) denied: Vec<Vec<u8>>,
    /// Folders that are entered.
    pub(crate) folders: Vec<Vec<u8>>,
    pub(crate) entries: usize,
}

impl MaskCache {
    /// What the folder at `path` contains, if it was listed in this version.
    pub(crate) fn get(&self, path: &[u8], version: DirVersion) -> Option<Arc<ListedFolder>> {
        let folders = self.folders.lock().expect("BUG: lock poisoned");
        folders.get(path).filter(|(kept, _)| *kept == version).map(|(_, listed)| listed.clone())
    }

    pub(crate) fn put(&self, path: &[u8], version: DirVersion, listed: &Arc<ListedFolder>) {
        let mut folders = self.folders.lock().expect("BUG: lock poisoned");
        // Folders that were removed stay in it: start anew before it grows without bound.
        if folders.len() >= FOLDERS_MAX {
            folders.clear();
        }
        folders.insert(path.to_vec(), (version, listed.clone()));
    }
}

const FOLDERS_MAX: usize = 200_000;
