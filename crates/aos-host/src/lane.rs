//! A lane: mutations of one session pass one at a time, in the order in which they arrived.

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

/// A place in the queue. Dropping it, used or not, lets the next one pass.
#[derive(Debug)]
pub(crate) struct Ticket {
    lane: Arc<Lane>,
    number: u64,
}

impl Lane {
    pub(crate) fn draw(self: &Arc<Lane>) -> Ticket {
        let mut queue = self.queue.lock().expect("BUG: nobody panics in the queue");
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push_back(number);
        Ticket { lane: self.clone(), number }
    }
}

impl Ticket {
    pub(crate) fn is_first(&self) -> bool {
        self.lane.queue.lock().expect("BUG: nobody panics in the queue").waiting.front() == Some(&self.number)
    }

    pub(crate) fn wait(&self) {
        let mut queue = self.lane.queue.lock().expect("BUG: nobody panics in the queue");
        while queue.waiting.front() != Some(&self.number) {
            queue = self.lane.moved.wait(queue).expect("BUG: nobody panics in the queue");
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queue = self.lane.queue.lock().expect("BUG: nobody panics in the queue");
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
    fn the_order_of_arrival_holds_and_a_dropped_ticket_blocks_nobody() {
        let lane = Arc::new(Lane::default());
        let first = lane.draw();
        let given_up = lane.draw();
        let third = lane.draw();
        assert!(first.is_first() && !third.is_first());
        drop(given_up);
        assert!(!third.is_first());
        drop(first);
        third.wait();
        assert!(third.is_first());
    }
}
