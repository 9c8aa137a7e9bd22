//! The folders of overlays: made per command, and removed on a background thread.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use aos_store::{Fault, SessionDirs, own_rights};

use crate::leftovers::log_leftover;

/// Makes the folders of overlays, and removes them on a background thread: no command waits for that.
#[derive(Debug)]
pub(crate) struct Sweeper {
    pub(crate) overlays: Arc<SessionDirs>,
    /// What is to be done; the thread is started when first needed and ends with the sweeper.
    due: Mutex<Option<Sender<Task>>>,
}

type Task = Box<dyn FnOnce() + Send>;

/// Before the names of folders that hold the baseline of a command.
pub(crate) const BASELINE_PREFIX: &str = "guard_";

impl Sweeper {
    pub(crate) fn new(overlays: SessionDirs) -> Sweeper {
        Sweeper { overlays: Arc::new(overlays), due: Mutex::new(None) }
    }

    /// Removes the uncommitted changes of an earlier daemon's commands. That may be a million files, so the start does
    /// not wait for it. What cannot be removed now (a dying process may still hold it) is removed at the next start.
    /// Returns how many there are.
    pub(crate) fn sweep_all(&self) -> Result<usize, Fault> {
        let mut left = self.overlays.sessions()?;
        left.retain(|name| !name.starts_with(BASELINE_PREFIX));
        left.iter().for_each(|change_id| self.sweep(change_id));
        Ok(left.len())
    }

    /// The folders of baselines that are there.
    pub(crate) fn baselines(&self) -> Result<Vec<String>, Fault> {
        let mut names = self.overlays.sessions()?;
        names.retain(|name| name.starts_with(BASELINE_PREFIX));
        Ok(names)
    }

    pub(crate) fn sweep(&self, change_id: &str) {
        let (overlays, change_id) = (self.overlays.clone(), change_id.to_owned());
        self.later(move || log_leftover("overlay", &change_id, overlays.drop_session(&change_id)));
    }

    /// Runs something on the background thread, after what it was given before.
    pub(crate) fn later(&self, task: impl FnOnce() + Send + 'static) {
        let mut due = self.due.lock().expect("BUG: lock poisoned");
        if due.is_none() {
            let (sender, receiver) = channel::<Task>();
            // A thread begins with the rights of the one that starts it.
            let _own = own_rights();
            let work = move || receiver.iter().for_each(|task| task());
            let started = std::thread::Builder::new().name("sweep".into()).spawn(work);
            *due = started.is_ok().then_some(sender);
        }
        let task: Task = Box::new(task);
        let left = match due.as_ref() {
            Some(due) => due.send(task).err().map(|unsent| unsent.0),
            None => Some(task),
        };
        drop(due);
        if let Some(task) = left {
            task();
        }
    }
}
