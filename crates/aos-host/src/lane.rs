//! A lane runs the mutations of one session one at a time, in order of arrival (I9).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

/// The queue of one session.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    queue: Mutex<Queue>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    waiting: VecDeque<u64>,
}

/// A position in the queue. Dropping it, used or not, lets the next one pass.
#[derive(Debug)]
pub(crate) struct Ticket {
    lane: Arc<Lane>,
    number: u64,
}

impl Lane {
    pub(crate) fn enqueue(self: &Arc<Lane>) -> Ticket {
        let mut queue = self.queue.lock().expect("BUG: lock poisoned");
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push_back(number);
        Ticket { lane: self.clone(), number }
    }
}

impl Ticket {
    pub(crate) fn is_first(&self) -> bool {
        self.lane.queue.lock().expect("BUG: lock poisoned").waiting.front() == Some(&self.number)
    }

    pub(crate) fn wait(&self) {
        let mut queue = self.lane.queue.lock().expect("BUG: lock poisoned");
        while queue.waiting.front() != Some(&self.number) {
            queue = self.lane.moved.wait(queue).expect("BUG: lock poisoned");
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queue = self.lane.queue.lock().expect("BUG: lock poisoned");
        queue.waiting.retain(|number| *number != self.number);
        if !queue.waiting.is_empty() {
            self.lane.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_arrival_holds_and_a_dropped_ticket_does_not_block() {
        let lane = Arc::new(Lane::default());
        let first = lane.enqueue();
        let given_up = lane.enqueue();
        let third = lane.enqueue();
        assert!(first.is_first() && !third.is_first());
        drop(given_up);
        assert!(!third.is_first());
        drop(first);
        third.wait();
        assert!(third.is_first());
    }
}
