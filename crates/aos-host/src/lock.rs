//! Locks on paths: two changes of one path never overlap, whichever sessions they come from (I9).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Mutations of one path by different sessions take turns: between them, an exchange could lose an update. The
/// folders above are held too, but shared: they must not be moved away meanwhile.
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
    /// In the order of the stripes, so that two plans never wait for each other.
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
            // A panic while one was held poisons nothing: the intent it left is what tells.
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
