//! The folders of overlays: made per command, and removed on a background thread.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use aos_store::{Fault, SessionDirs, own_rights};

use crate::leftovers::log_leftover;

/// Makes the folders of overlays, and removes them on a background thread: no command waits for that.
#[derive(Debug)]
pub(crate) struct Sweeper {
    pub(crate) overlays: Arc<SessionDirs>,
    /// What is to be removed; the thread is started when first needed and ends with the sweeper.
    due: Mutex<Option<Sender<String>>>,
}

impl Sweeper {
    pub(crate) fn new(overlays: SessionDirs) -> Sweeper {
        Sweeper { overlays: Arc::new(overlays), due: Mutex::new(None) }
    }

    /// Removes the uncommitted changes of an earlier daemon's commands. That may be a million files, so the start does
    /// not wait for it. What cannot be removed now (a dying process may still hold it) is removed at the next start.
    /// Returns how many there are.
    pub(crate) fn sweep_all(&self) -> Result<usize, Fault> {
        let left = self.overlays.sessions()?;
        left.iter().for_each(|change_id| self.sweep(change_id));
        Ok(left.len())
    }

    pub(crate) fn sweep(&self, change_id: &str) {
        let mut due = self.due.lock().expect("BUG: lock poisoned");
        if due.is_none() {
            let (sender, receiver) = channel::<String>();
            let overlays = self.overlays.clone();
            let work = move || {
                let remove = |change_id: String| {
                    log_leftover("overlay", &change_id, overlays.drop_session(&change_id));
                };
                receiver.iter().for_each(remove);
            };
            // A thread begins with the rights of the one that starts it.
            let _own = own_rights();
            let started = std::thread::Builder::new().name("sweep".into()).spawn(work);
            *due = started.is_ok().then_some(sender);
        }
        let left = due.as_ref().is_none_or(|due| due.send(change_id.to_owned()).is_err());
        if left {
            log_leftover("overlay", change_id, self.overlays.drop_session(change_id));
        }
    }
}
