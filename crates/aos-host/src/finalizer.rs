//! The queue of sessions whose new pre-images wait to be finalized.

use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use crate::session::OpenSession;

/// Finalizing costs about as much disk work as a change, so it waits for a pause of this length,
const PAUSE: Duration = Duration::from_millis(10);
/// or until this many changes are waiting.
const CHANGES_WAITING_MAX: u64 = 1024;

#[derive(Debug, Default)]
pub(crate) struct Finalizer {
    due: Mutex<Due>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Due {
    sessions: Vec<Weak<OpenSession>>,
    /// The number of changes since the last run.
    changes: u64,
    stop: bool,
}

impl Finalizer {
    pub(crate) fn wake(&self, session: &Arc<OpenSession>) {
        let mut due = self.due.lock().expect("BUG: lock poisoned");
        due.changes += 1;
        if !due.sessions.iter().any(|known| known.as_ptr() == Arc::as_ptr(session)) {
            due.sessions.push(Arc::downgrade(session));
            self.wake.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        self.due.lock().expect("BUG: lock poisoned").stop = true;
        self.wake.notify_all();
    }

    /// The sessions with something to finalize; `None` after [`Finalizer::stop`].
    pub(crate) fn wait_for_work(&self) -> Option<Vec<Weak<OpenSession>>> {
        let due = self.due.lock().expect("BUG: lock poisoned");
        let is_idle = |due: &mut Due| due.sessions.is_empty() && !due.stop;
        let mut due = self.wake.wait_while(due, is_idle).expect("BUG: lock poisoned");
        let mut seen = 0;
        while !due.stop && due.changes != seen && due.changes < CHANGES_WAITING_MAX {
            seen = due.changes;
            due = self.wake.wait_timeout(due, PAUSE).expect("BUG: lock poisoned").0;
        }
        if due.stop {
            return None;
        }
        due.changes = 0;
        Some(std::mem::take(&mut due.sessions))
    }
}
