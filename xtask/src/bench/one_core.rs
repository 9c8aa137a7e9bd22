//! Binds the bench and the contenders that it starts to one core.
//!
//! A call that takes longer than the host keeps an idle core awake (about 50 µs here) pays for waking it, a shorter one
//! does not: with two cores the ratio of two contenders near that limit doubles by chance. On one core it repeats.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// While it exists, this thread and what it starts run on one core.
pub(super) struct OneCore(CpuSet);

impl OneCore {
    pub(super) fn bind() -> anyhow::Result<OneCore> {
        let before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        // The last: interrupts prefer the first.
        let last = (0..CpuSet::MAX_CPU).rev().find(|core| before.is_set(*core));
        one.set(last.expect("BUG: a thread runs on some core"));
        sched_setaffinity(None, &one)?;
        Ok(OneCore(before))
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}
