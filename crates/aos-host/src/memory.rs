//! Returns free memory to the kernel after work on very many paths.

use std::sync::atomic::{AtomicBool, Ordering};

/// From this many paths on, freed memory is too fragmented for glibc to return it by itself.
const PATHS_MANY: usize = 4_096;

/// Whether a request used large memory since the last trim.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    large: AtomicBool,
}

impl Memory {
    /// Notes that a request works on this many paths at once.
    pub(crate) fn note_paths(&self, paths: usize) {
        if paths > PATHS_MANY {
            self.large.store(true, Ordering::Relaxed);
        }
    }

    /// Trims the heap if it is worth it: a trim takes some milliseconds.
    pub(crate) fn trim_if_large(&self) {
        if self.large.load(Ordering::Relaxed) && self.large.swap(false, Ordering::Relaxed) {
            trim();
        }
    }
}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "`malloc_trim` has no safe wrapper")]
fn trim() {
    // SAFETY: `malloc_trim` releases free memory only.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}
