//! Group commit: whoever finds the pen free writes, for itself and for all that queued meanwhile.
//!
//! Alone, that costs no thread switch; in a crowd, many writes share a commit. Each one that waits hears what became
//! of its own write.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::Fault;

/// The line of those who want to write.
#[derive(Debug)]
pub(crate) struct Group<W> {
    queue: Mutex<Queue<W>>,
}

#[derive(Debug)]
struct Queue<W> {
    waiting: Vec<(W, Arc<Slot>)>,
    /// Somebody writes, or was called on to.
    busy: bool,
}

/// Where one that waits hears what became of its write.
#[derive(Debug, Default)]
struct Slot {
    turn: Mutex<Option<Turn>>,
    wake: Condvar,
}

#[derive(Debug)]
enum Turn {
    Write,
    Done(Result<u64, Fault>),
}

impl<W> Default for Group<W> {
    fn default() -> Group<W> {
        Group { queue: Mutex::new(Queue { waiting: Vec::new(), busy: false }) }
    }
}

impl<W> Group<W> {
    /// Writes at once when nobody else does; else queues, and is either answered or called on to write for all.
    /// `commit` answers a number for each write.
    pub(crate) fn write<P>(
        &self,
        write: W,
        take_pen: impl Fn() -> P,
        commit: impl Fn(&mut P, &[W]) -> Result<Vec<u64>, Fault>,
    ) -> Result<u64, Fault> {
        let mut queue = self.lock();
        if !queue.busy {
            queue.busy = true;
            drop(queue);
            let outcome = commit(&mut take_pen(), std::slice::from_ref(&write));
            self.call_next();
            return outcome.map(|numbers| numbers[0]);
        }
        let slot = Arc::new(Slot::default());
        queue.waiting.push((write, slot.clone()));
        drop(queue);
        if let Some(answer) = slot.wait() {
            return answer;
        }
        // The pen first: who comes while it is waited for is written too.
        let mut pen = take_pen();
        let (writes, slots): (Vec<W>, Vec<_>) = std::mem::take(&mut self.lock().waiting).into_iter().unzip();
        let outcome = commit(&mut pen, &writes);
        drop(pen);
        self.call_next();
        for (i, slot) in slots.into_iter().enumerate() {
            slot.set(Turn::Done(outcome.as_ref().map(|numbers| numbers[i]).map_err(Fault::clone)));
        }
        slot.wait().expect("BUG: whoever is called answers all that wait, itself too")
    }

    /// The first that waits writes next, for all that wait by then.
    fn call_next(&self) {
        let mut queue = self.lock();
        match queue.waiting.first() {
            Some((_, slot)) => slot.set(Turn::Write),
            None => queue.busy = false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue<W>> {
        self.queue.lock().expect("BUG: nobody panics in the queue")
    }
}

impl Slot {
    fn set(&self, turn: Turn) {
        *self.turn.lock().expect("BUG: turns are only set") = Some(turn);
        self.wake.notify_one();
    }

    /// `None`: it is this one's turn to write.
    fn wait(&self) -> Option<Result<u64, Fault>> {
        let mut turn = self.turn.lock().expect("BUG: turns are only set");
        loop {
            match turn.take() {
                Some(Turn::Done(answer)) => return Some(answer),
                Some(Turn::Write) => return None,
                None => turn = self.wake.wait(turn).expect("BUG: turns are only set"),
            }
        }
    }
}
