//! The commands of a session that are running, and how others reach them: to interrupt, to end.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::order::{Ask, ask};

/// One command on its way, shared by the thread that watches it and by those that signal it.
#[derive(Debug)]
pub struct Running {
    /// The daemon's end of the command's line.
    pub line: OwnedFd,
    /// Init, once it lives.
    pub init: OnceLock<OwnedFd>,
    /// Wakes the watching thread.
    pub wake: OwnedFd,
    /// Whether init is the first of its own pid namespace.
    namespaced: bool,
    ending: Mutex<Ending>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Ending {
    /// When all that is left is killed.
    kill_at: Option<Instant>,
    kill_asked: bool,
}

impl Running {
    pub fn new(line: OwnedFd, namespaced: bool) -> Result<Running, Errno> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Running { line, init: OnceLock::new(), wake, namespaced, ending: Mutex::default() })
    }

    pub fn interrupt(&self) {
        ask(&self.line, Ask::Interrupt);
    }

    /// Asks all of its processes to end, and kills those that are left after `grace`.
    pub fn terminate(&self, grace: Duration) {
        ask(&self.line, Ask::Terminate);
        self.kill_by(Instant::now() + grace);
    }

    /// Kills all of its processes, now.
    pub fn kill(&self) {
        self.kill_by(Instant::now());
        self.kill_now();
    }

    fn kill_by(&self, when: Instant) {
        let mut ending = self.ending.lock().expect("BUG: nobody panics here");
        ending.kill_at = Some(ending.kill_at.map_or(when, |earlier| earlier.min(when)));
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub fn kill_at(&self) -> Option<Instant> {
        self.ending.lock().expect("BUG: nobody panics here").kill_at
    }

    pub fn was_killed(&self) -> bool {
        self.ending.lock().expect("BUG: nobody panics here").kill_asked
    }

    /// A namespace ends with its init. Elsewhere init ends the rest one by one, and itself at the end.
    pub fn kill_now(&self) {
        self.ending.lock().expect("BUG: nobody panics here").kill_asked = true;
        match self.init.get() {
            Some(init) if self.namespaced => {
                let _ = rustix::process::pidfd_send_signal(init, Signal::KILL);
            }
            _ => ask(&self.line, Ask::Kill),
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
    /// Each beside the tool call that it belongs to.
    running: Vec<(String, Arc<Running>)>,
    closed: bool,
}

/// Takes its command out of the set when dropped.
#[derive(Debug)]
pub struct Listed<'a> {
    set: &'a RunningSet,
    running: Arc<Running>,
}

impl RunningSet {
    /// Lists a command, unless the session is being closed: then nothing new starts.
    pub fn list(&self, tool_call_id: &str, running: &Arc<Running>) -> Option<Listed<'_>> {
        let mut all = self.all.lock().expect("BUG: nobody panics here");
        if all.closed {
            return None;
        }
        all.running.push((tool_call_id.to_owned(), running.clone()));
        Some(Listed { set: self, running: running.clone() })
    }

    pub fn interrupt(&self) {
        for running in self.current(false) {
            running.interrupt();
        }
    }

    /// Ends all commands and lets none start any more.
    pub fn close(&self, grace: Option<Duration>) {
        for running in self.current(true) {
            match grace {
                Some(grace) => running.terminate(grace),
                None => running.kill(),
            }
        }
    }

    fn current(&self, close: bool) -> Vec<Arc<Running>> {
        let mut all = self.all.lock().expect("BUG: nobody panics here");
        all.closed |= close;
        all.running.iter().map(|(_, running)| running.clone()).collect()
    }

    /// Whether a command of this tool call runs.
    pub fn has(&self, tool_call_id: &str) -> bool {
        let all = self.all.lock().expect("BUG: nobody panics here");
        all.running.iter().any(|(id, _)| id == tool_call_id)
    }

    /// Ends the commands of one tool call and says how many there were.
    pub fn cancel(&self, tool_call_id: &str, grace: Duration) -> usize {
        let all = self.all.lock().expect("BUG: nobody panics here").running.clone();
        let its = all.iter().filter(|(id, _)| id == tool_call_id);
        its.map(|(_, running)| running.terminate(grace)).count()
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut all = self.set.all.lock().expect("BUG: nobody panics here");
        all.running.retain(|(_, running)| !Arc::ptr_eq(running, &self.running));
    }
}
