//! WAL checkpoints: a thread copies pages from the write-ahead log into the database while writers continue.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use rusqlite::Connection;

use crate::fault::LOCK_POISONED;

/// How many bytes are written between two checkpoints.
const CHECKPOINT_BYTES: u64 = 4 << 20;

/// Counts the written bytes and wakes the checkpoint thread. A commit never runs a checkpoint itself.
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
    /// Starts the thread. `writer` is the lock that writers hold during a commit.
    pub(crate) fn start<W: Send + 'static>(
        self: Arc<Self>,
        connection: Connection,
        writer: Arc<Mutex<W>>,
    ) -> JoinHandle<()> {
        let thread = std::thread::Builder::new().name("checkpoint".into());
        thread.spawn(move || self.run(&connection, &writer)).expect("cannot start the checkpoint thread")
    }

    fn run<W>(&self, connection: &Connection, writer: &Mutex<W>) {
        loop {
            let mut due = self.lock();
            while due.bytes < CHECKPOINT_BYTES && !due.stop {
                due = self.wake.wait(due).expect(LOCK_POISONED);
            }
            if due.stop {
                return;
            }
            due.bytes = 0;
            drop(due);
            // SQLite restarts the WAL from its beginning only when every frame is checkpointed and no reader uses it.
            // With writers active a PASSIVE checkpoint never gets that far, and the WAL would grow without bound. So
            // the bulk is copied while writers continue, and the rest while the lock keeps them out.
            checkpoint(connection);
            let _no_writer = writer.lock().expect(LOCK_POISONED);
            checkpoint(connection);
        }
    }

    /// Adds to the bytes written since the last checkpoint.
    pub(crate) fn wrote(&self, bytes: u64) {
        let mut due = self.lock();
        due.bytes += bytes;
        if due.bytes >= CHECKPOINT_BYTES {
            self.wake.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Due> {
        self.due.lock().expect(LOCK_POISONED)
    }
}

/// A failure costs only space: the next checkpoint copies what this one left.
fn checkpoint(connection: &Connection) {
    if let Err(why) = connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE)") {
        tracing::warn!("a checkpoint of the write-ahead log failed: {why}");
    }
}
