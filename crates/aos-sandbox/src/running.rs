//! The running commands of a session, and how other threads interrupt or end them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::protocol::{InitRequest, send_request};

/// One running command, shared by the thread that waits for it and by those that signal it.
#[derive(Debug)]
pub struct Running {
    /// The daemon's end of the control socket.
    pub control: OwnedFd,
    /// Init's pidfd, once it has started.
    pub init: OnceLock<OwnedFd>,
    /// An eventfd that wakes the waiting thread.
    pub wake: OwnedFd,
    /// Whether init is process 1 of its own pid namespace.
    has_pid_namespace: bool,
    ending: Mutex<Ending>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Ending {
    /// When the processes that are left are killed.
    kill_at: Option<Instant>,
    kill_requested: bool,
}

impl Running {
    pub fn new(control: OwnedFd, has_pid_namespace: bool) -> Result<Running, Errno> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Running { control, init: OnceLock::new(), wake, has_pid_namespace, ending: Mutex::default() })
    }

    pub fn interrupt(&self) {
        send_request(&self.control, InitRequest::Interrupt);
    }

    /// Sends SIGTERM to all of its processes, and SIGKILL to those that are left after `grace`.
    pub fn terminate(&self, grace: Duration) {
        send_request(&self.control, InitRequest::Terminate);
        self.kill_by(Instant::now() + grace);
    }

    /// Kills all of its processes, now.
    pub fn kill(&self) {
        self.kill_by(Instant::now());
        self.kill_now();
    }

    fn kill_by(&self, when: Instant) {
        let mut ending = self.ending.lock().expect("BUG: lock poisoned");
        ending.kill_at = Some(ending.kill_at.map_or(when, |earlier| earlier.min(when)));
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub fn kill_at(&self) -> Option<Instant> {
        self.ending.lock().expect("BUG: lock poisoned").kill_at
    }

    pub fn was_killed(&self) -> bool {
        self.ending.lock().expect("BUG: lock poisoned").kill_requested
    }

    /// A pid namespace ends with its init. Without one, init kills the descendants one by one and then exits.
    pub fn kill_now(&self) {
        self.ending.lock().expect("BUG: lock poisoned").kill_requested = true;
        match self.init.get() {
            Some(init) if self.has_pid_namespace => {
                let _ = rustix::process::pidfd_send_signal(init, Signal::KILL);
            }
            _ => send_request(&self.control, InitRequest::Kill),
        }
    }
}

/// All commands of one session that are running.
#[derive(Debug, Default)]
pub struct RunningSet {
    all: Mutex<Set>,
}

#[derive(Debug, Default)]
struct Set {
    /// Tool call id and command.
    running: Vec<(String, Arc<Running>)>,
    closed: bool,
}

/// Removes its command from the set when dropped.
#[derive(Debug)]
pub struct Registration<'a> {
    set: &'a RunningSet,
    running: Arc<Running>,
}

impl RunningSet {
    /// Adds a command; `None` when the session is being closed, so that nothing new starts.
    pub fn register(&self, tool_call_id: &str, running: &Arc<Running>) -> Option<Registration<'_>> {
        let mut all = self.all.lock().expect("BUG: lock poisoned");
        if all.closed {
            return None;
        }
        all.running.push((tool_call_id.to_owned(), running.clone()));
        Some(Registration { set: self, running: running.clone() })
    }

    pub fn interrupt(&self) {
        for running in self.current(false) {
            running.interrupt();
        }
    }

    /// Ends all commands and accepts no new ones.
    pub fn close(&self, grace: Option<Duration>) {
        for running in self.current(true) {
            match grace {
                Some(grace) => running.terminate(grace),
                None => running.kill(),
            }
        }
    }

    fn current(&self, close: bool) -> Vec<Arc<Running>> {
        let mut all = self.all.lock().expect("BUG: lock poisoned");
        all.closed |= close;
        all.running.iter().map(|(_, running)| running.clone()).collect()
    }

    /// Whether a command of this tool call runs.
    pub fn has(&self, tool_call_id: &str) -> bool {
        let all = self.all.lock().expect("BUG: lock poisoned");
        all.running.iter().any(|(id, _)| id == tool_call_id)
    }

    /// Ends the commands of one tool call and returns their number.
    pub fn cancel(&self, tool_call_id: &str, grace: Duration) -> usize {
        let all = self.all.lock().expect("BUG: lock poisoned").running.clone();
        let its = all.iter().filter(|(id, _)| id == tool_call_id);
        its.map(|(_, running)| running.terminate(grace)).count()
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let mut all = self.set.all.lock().expect("BUG: lock poisoned");
        all.running.retain(|(_, running)| !Arc::ptr_eq(running, &self.running));
    }
}
