//! Locks on paths: changes of one path never overlap, even between sessions (I9).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Striped locks by path. Without them, two exchanges of one path by different sessions could lose an update. The
/// folders above are locked shared, so that they are not moved meanwhile.
#[derive(Debug)]
pub(crate) struct PathLocks {
    stripes: Vec<RwLock<()>>,
}

const STRIPES: usize = 4096;

impl Default for PathLocks {
    fn default() -> Self {
        PathLocks { stripes: (0..STRIPES).map(|_| RwLock::new(())).collect() }
    }
}

/// Held from before the old content is read until the receipt is written.
#[derive(Debug, Default)]
pub(crate) struct Locked<'a> {
    _alone: Vec<RwLockWriteGuard<'a, ()>>,
    _shared: Vec<RwLockReadGuard<'a, ()>>,
}

impl PathLocks {
    /// Locks in the order of the stripes, so that two plans cannot deadlock.
    pub(crate) fn hold<'p>(&self, paths: impl Iterator<Item = &'p [u8]>) -> Locked<'_> {
        let stripe = |path: &[u8]| {
            let mut hasher = DefaultHasher::new();
            path.hash(&mut hasher);
            hasher.finish() as usize % STRIPES
        };
        let mut wanted: BTreeMap<usize, bool> = BTreeMap::new();
        for path in paths {
            let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
            for above in slashes {
                wanted.entry(stripe(&path[..above])).or_insert(false);
            }
            wanted.insert(stripe(path), true);
        }
        let mut locked = Locked { _alone: Vec::new(), _shared: Vec::new() };
        for (index, alone) in wanted {
            // A poisoned lock is safe to use: the guard protects no data, and recovery uses the open intent.
            let stripe = &self.stripes[index];
            if alone {
                locked._alone.push(stripe.write().unwrap_or_else(PoisonError::into_inner));
            } else {
                locked._shared.push(stripe.read().unwrap_or_else(PoisonError::into_inner));
            }
        }
        locked
    }
}
