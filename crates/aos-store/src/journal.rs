//! What the host asks of a journal. SQLite keeps it today; a fleet can put another keeper behind the same words.

use aos_model::state::Effects;

use crate::Fault;

/// One finished effect on its way into the record.
#[derive(Debug)]
pub struct Append {
    /// The frozen bytes of the entry.
    pub body: Vec<u8>,
    /// What of it the state is folded from, so that the body need not be read again.
    pub effects: Effects,
    /// The intent that this receipt closes.
    pub closes: Option<u64>,
}

/// An intent that no receipt has closed: found at start after a crash.
#[derive(Debug)]
pub struct OpenIntent {
    pub id: u64,
    pub body: Vec<u8>,
}

/// The ordered, durable record. When a call returns, what it wrote is durable at the daemon's level.
pub trait Journal: Send + Sync + std::fmt::Debug {
    /// Says on disk what is about to be done. Returns the intent's id.
    fn intend(&self, body: Vec<u8>) -> Result<u64, Fault>;

    /// Says it anew: an intent that is still open gets another body, as one.
    fn intend_instead(&self, intent: u64, body: Vec<u8>) -> Result<(), Fault>;

    /// Appends an entry and folds it into the state, as one. Returns its sequence number.
    fn append(&self, append: Append) -> Result<u64, Fault>;

    /// Forgets an intent whose receipt could not be written and whose steps were taken back: with the next commit it
    /// is gone, before anything is acknowledged that it could undo.
    fn abandon(&self, intent: u64);

    /// The bytes of one entry.
    fn entry(&self, seq: u64) -> Result<Option<Vec<u8>>, Fault>;

    fn open_intents(&self) -> Result<Vec<OpenIntent>, Fault>;

    /// One value of the state.
    fn state(&self, key: &str) -> Result<Option<Vec<u8>>, Fault>;

    /// All values of the state below a prefix, in key order.
    fn state_below(&self, prefix: &str, each: &mut dyn FnMut(&str, &[u8])) -> Result<(), Fault>;

    /// The sequence number of the newest entry; 0 when there is none.
    fn head(&self) -> u64;
}
