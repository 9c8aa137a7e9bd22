//! The journal as the host uses it. SQLite implements it today; another store can implement the same trait.

use aos_model::state::FoldInput;

use crate::fault::Fault;

/// One finished effect, to be appended.
#[derive(Debug)]
pub struct Append {
    /// The bytes of the entry, exactly as they are stored.
    pub body: Vec<u8>,
    /// The part of the entry that the state is folded from, so that the body is not parsed again.
    pub effects: FoldInput,
    /// The intent that this receipt closes.
    pub closes: Option<u64>,
}

/// An intent that no receipt has closed. Recovery rolls it back at the next start (I4).
#[derive(Debug)]
pub struct OpenIntent {
    pub id: u64,
    pub body: Vec<u8>,
}

/// The ordered, durable record. When a call returns, its write is durable at the daemon's durability level.
pub trait Journal: Send + Sync + std::fmt::Debug {
    /// Records what is about to be done, before anything moves (I4). Returns the intent's id.
    fn begin_intent(&self, body: Vec<u8>) -> Result<u64, Fault>;

    /// Replaces the body of an open intent, atomically.
    fn replace_intent(&self, intent: u64, body: Vec<u8>) -> Result<(), Fault>;

    /// Appends an entry and folds it into the state, atomically. Returns its sequence number.
    fn append(&self, append: Append) -> Result<u64, Fault>;

    /// Deletes an intent whose steps were rolled back and whose receipt could not be written. The next commit deletes
    /// it, so it is gone before any later change is acknowledged that recovery could undo by mistake.
    fn abandon(&self, intent: u64);

    /// The bytes of one entry.
    fn entry(&self, seq: u64) -> Result<Option<Vec<u8>>, Fault>;

    fn open_intents(&self) -> Result<Vec<OpenIntent>, Fault>;

    /// One value of the state.
    fn state(&self, key: &str) -> Result<Option<Vec<u8>>, Fault>;

    /// All keys of the state with a prefix and their values, in key order.
    fn state_below(&self, prefix: &str, each: &mut dyn FnMut(&str, &[u8])) -> Result<(), Fault>;

    /// The sequence number of the newest entry; 0 when there is none.
    fn head(&self) -> u64;

    /// Writes the checkpoint of the state up to the newest entry, when a daemon stops: the next one notices if entries
    /// that the checkpoint includes are missing. A failure is logged.
    fn fold_now(&self);
}
