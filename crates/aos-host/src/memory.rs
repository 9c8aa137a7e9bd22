//! Memory that was needed once: given back to the machine after work on very many paths.

use std::sync::atomic::{AtomicBool, Ordering};

/// Work on so many paths leaves memory in pieces that the C library would keep.
const PATHS_MANY: usize = 4_096;

/// Whether somebody needed much since it was last given back.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    much: AtomicBool,
}

impl Memory {
    /// Somebody works on so many paths at once.
    pub(crate) fn needed_for(&self, paths: usize) {
        if paths > PATHS_MANY {
            self.much.store(true, Ordering::Relaxed);
        }
    }

    /// Gives back what is free. It takes some milliseconds, so only where it is worth it.
    pub(crate) fn give_back(&self) {
        if self.much.load(Ordering::Relaxed) && self.much.swap(false, Ordering::Relaxed) {
            trim();
        }
    }
}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the C library is told by its own function")]
fn trim() {
    // SAFETY: touches nothing but what is free.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}
