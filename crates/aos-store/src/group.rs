//! Group commit: one thread, the leader, commits its own write and all writes that queued up meanwhile.
//!
//! A single writer pays no thread switch. Under load many writes share one commit, and each caller gets the result of
//! its own write.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::fault::{Fault, LOCK_POISONED};

/// The queue of writes that wait for a commit.
#[derive(Debug)]
pub(crate) struct Group<W> {
    queue: Mutex<Queue<W>>,
}

#[derive(Debug)]
struct Queue<W> {
    waiting: Vec<(W, Arc<Slot>)>,
    /// There is a leader: a thread commits, or was woken to commit.
    busy: bool,
}

/// Where a waiting thread gets the result of its write.
#[derive(Debug, Default)]
struct Slot {
    signal: Mutex<Option<Signal>>,
    wake: Condvar,
}

#[derive(Debug)]
enum Signal {
    /// Become the leader.
    Lead,
    Done(Result<u64, Fault>),
}

impl<W> Default for Group<W> {
    fn default() -> Group<W> {
        Group { queue: Mutex::new(Queue { waiting: Vec::new(), busy: false }) }
    }
}

impl<W> Group<W> {
    /// Commits at once when there is no leader. Else queues the write and waits for its result, or until this thread
    /// becomes the leader and commits the whole queue. `commit` returns one number per write.
    pub(crate) fn write<G>(
        &self,
        write: W,
        lock_writer: impl Fn() -> G,
        commit: impl Fn(&mut G, &[W]) -> Result<Vec<u64>, Fault>,
    ) -> Result<u64, Fault> {
        let mut queue = self.lock();
        if !queue.busy {
            queue.busy = true;
            drop(queue);
            let outcome = commit(&mut lock_writer(), std::slice::from_ref(&write));
            self.wake_next_leader();
            return outcome.map(|numbers| numbers[0]);
        }
        let slot = Arc::new(Slot::default());
        queue.waiting.push((write, slot.clone()));
        drop(queue);
        if let Some(answer) = slot.wait() {
            return answer;
        }
        // Lock before taking the queue: writes that arrive while this thread waits for the lock join this commit.
        let mut writer = lock_writer();
        let (writes, slots): (Vec<W>, Vec<_>) = std::mem::take(&mut self.lock().waiting).into_iter().unzip();
        let outcome = commit(&mut writer, &writes);
        drop(writer);
        self.wake_next_leader();
        for (i, slot) in slots.into_iter().enumerate() {
            slot.send(Signal::Done(outcome.as_ref().map(|numbers| numbers[i]).map_err(Fault::clone)));
        }
        slot.wait().expect("BUG: the leader did not answer its own write")
    }

    /// Makes the first waiting thread the leader.
    fn wake_next_leader(&self) {
        let mut queue = self.lock();
        match queue.waiting.first() {
            Some((_, slot)) => slot.send(Signal::Lead),
            None => queue.busy = false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue<W>> {
        self.queue.lock().expect(LOCK_POISONED)
    }
}

impl Slot {
    fn send(&self, signal: Signal) {
        *self.signal.lock().expect(LOCK_POISONED) = Some(signal);
        self.wake.notify_one();
    }

    /// The result of the write, or `None` when this thread is to lead the next commit.
    fn wait(&self) -> Option<Result<u64, Fault>> {
        let mut signal = self.signal.lock().expect(LOCK_POISONED);
        loop {
            match signal.take() {
                Some(Signal::Done(answer)) => return Some(answer),
                Some(Signal::Lead) => return None,
                None => signal = self.wake.wait(signal).expect(LOCK_POISONED),
            }
        }
    }
}
