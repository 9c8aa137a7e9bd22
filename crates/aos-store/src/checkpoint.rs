//! Checkpoints of the write-ahead log: its pages move into the database beside the writers.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use rusqlite::Connection;

/// How much is written between two checkpoints of the write-ahead log.
const CHECKPOINT_BYTES: u64 = 4 << 20;

/// Moves the write-ahead log into the database beside the writers, never inside a commit.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    due: Mutex<Due>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Due {
    bytes: u64,
    stop: bool,
}

impl Checkpoints {
    /// `pen` is whatever writers hold while they write.
    pub(crate) fn start<P: Send + 'static>(
        self: Arc<Self>,
        connection: Connection,
        pen: Arc<Mutex<P>>,
    ) -> JoinHandle<()> {
        let name = std::thread::Builder::new().name("checkpoint".into());
        name.spawn(move || self.run(&connection, &pen)).expect("the system starts a thread")
    }

    fn run<P>(&self, connection: &Connection, pen: &Mutex<P>) {
        loop {
            let mut due = self.due.lock().expect("BUG: nobody panics counting");
            while due.bytes < CHECKPOINT_BYTES && !due.stop {
                due = self.wake.wait(due).expect("BUG: nobody panics counting");
            }
            if due.stop {
                return;
            }
            due.bytes = 0;
            drop(due);
            // The bulk is moved beside the writers. The few pages that came meanwhile are moved with the pen in hand:
            // a log that is moved whole is written again from its start, else it would grow for ever.
            move_log(connection);
            let _nobody_writes = pen.lock().expect("BUG: nobody panics with the pen");
            move_log(connection);
        }
    }

    pub(crate) fn wrote(&self, bytes: u64) {
        let mut due = self.due.lock().expect("BUG: nobody panics counting");
        due.bytes += bytes;
        if due.bytes >= CHECKPOINT_BYTES {
            self.wake.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        self.due.lock().expect("BUG: nobody panics counting").stop = true;
        self.wake.notify_one();
    }
}

/// A failure costs only space: the next checkpoint moves what this one left.
fn move_log(connection: &Connection) {
    if let Err(why) = connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE)") {
        tracing::warn!("a checkpoint of the write-ahead log failed: {why}");
    }
}
