//! Baselines: what running commands must leave as it was where no overlay holds them back.
//!
//! A command that begins beside another one must not take what that one changed for how it was before. So whoever takes
//! a baseline learns which others held meanwhile, those included that have ended since.

mod saved;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use aos_model::path::is_below;
use rustix::io::Errno;

use crate::disk::{self, Meta};
use crate::exec::{BASELINE_PREFIX, Sweeper};
use crate::session::OpenSession;

/// What was in some folders before a command.
#[derive(Debug)]
pub(crate) struct Baseline {
    pub(crate) session: Arc<OpenSession>,
    pub(crate) tool_call_id: String,
    pub(crate) folders: Vec<Vec<u8>>,
    pub(crate) listed_at_ns: i64,
    pub(crate) paths: BTreeMap<Vec<u8>, Meta>,
    /// Names of unfinished writes.
    pub(crate) reserved: BTreeSet<Vec<u8>>,
    /// The number of the copy of each guarded file and link, and guarded folders.
    pub(crate) guarded: BTreeMap<Vec<u8>, Option<u64>>,
    pub(crate) copies: Copies,
}

impl Baseline {
    /// Whether a path is in one of the folders.
    pub(crate) fn holds(&self, absolute: &[u8]) -> bool {
        self.folders.iter().any(|folder| is_below(absolute, folder))
    }
}

/// A baseline that an earlier daemon saved. `None` if it did not, or its session is not open.
pub(crate) fn load(
    name: &str,
    sweeper: &Arc<Sweeper>,
    find: impl Fn(&str) -> Option<Arc<OpenSession>>,
) -> Option<Baseline> {
    saved::load(name, sweeper.overlays.session(name).ok()?, sweeper, find)
}

/// The folder of a command's copies, which most commands do not need.
#[derive(Debug)]
pub(crate) struct Copies {
    name: String,
    sweeper: Arc<Sweeper>,
    made: OnceLock<OwnedFd>,
    count: AtomicU64,
}

impl Copies {
    pub(crate) fn new(sweeper: &Arc<Sweeper>, random: u64) -> Copies {
        let name = format!("{BASELINE_PREFIX}{random:016x}");
        Copies { name, sweeper: sweeper.clone(), made: OnceLock::new(), count: AtomicU64::new(0) }
    }

    /// Those that an earlier daemon made.
    fn found(name: &str, dir: OwnedFd, sweeper: &Arc<Sweeper>) -> Copies {
        let made = OnceLock::from(dir);
        Copies { name: name.to_owned(), sweeper: sweeper.clone(), made, count: AtomicU64::new(0) }
    }

    /// The folder, which is made when first asked for.
    pub(crate) fn dir(&self) -> Result<&OwnedFd, Errno> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = self.sweeper.overlays.session(&self.name).map_err(|fault| fault.errno())?;
        Ok(self.made.get_or_init(|| made))
    }

    /// Copies an entry of a folder, and returns the number of the copy.
    pub(crate) fn add(&self, dir: impl AsFd, name: &[u8], meta: &Meta) -> Result<u64, Errno> {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        disk::copy(dir, name, meta, self.dir()?, number.to_string().as_bytes(), false)?;
        Ok(number)
    }

    /// Copies what others have copied.
    pub(crate) fn add_from(&self, others: &Copies, number: u64) -> Result<u64, Errno> {
        let (dir, name) = (others.dir()?, number.to_string().into_bytes());
        let meta = Meta::at(dir, &name)?.ok_or(Errno::NOENT)?;
        self.add(dir, &name, &meta)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if self.made.get().is_some() {
            self.sweeper.sweep(&self.name);
        }
    }
}

/// The baselines of all commands that run.
#[derive(Debug, Default)]
pub(crate) struct Baselines {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: Vec<Arc<Baseline>>,
    /// How many are being taken now.
    taking: usize,
    /// Those that ended while one was being taken.
    ended: Vec<Arc<Baseline>>,
}

impl Baselines {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("BUG: lock poisoned")
    }

    /// Before a baseline is taken.
    pub(crate) fn take(self: &Arc<Self>) -> Taking {
        self.state().taking += 1;
        Taking(self.clone())
    }

    pub(crate) fn running(&self) -> Vec<Arc<Baseline>> {
        self.state().running.clone()
    }
}

/// A baseline is being taken.
pub(crate) struct Taking(Arc<Baselines>);

impl Taking {
    /// The baselines that hold now, or held at some time meanwhile.
    pub(crate) fn beside(&self) -> Vec<Arc<Baseline>> {
        let state = self.0.state();
        state.ended.iter().chain(&state.running).cloned().collect()
    }

    /// The baseline holds from now on. It is saved while the command starts, which does not wait for that.
    pub(crate) fn hold(self, baseline: Baseline) -> Held {
        let baseline = Arc::new(baseline);
        let saved = baseline.clone();
        baseline.copies.sweeper.later(move || {
            if let Err(error) = saved.save() {
                tracing::warn!(%error, "cannot save what a command must leave as it was");
            }
        });
        self.0.state().running.push(baseline.clone());
        Held { baselines: self.0.clone(), baseline }
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.taking -= 1;
        if state.taking == 0 {
            state.ended.clear();
        }
    }
}

/// A baseline that holds until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    baselines: Arc<Baselines>,
    pub(crate) baseline: Arc<Baseline>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.baselines.state();
        state.running.retain(|running| !Arc::ptr_eq(running, &self.baseline));
        if state.taking > 0 {
            state.ended.push(self.baseline.clone());
        }
    }
}
