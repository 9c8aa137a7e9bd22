//! The record of `aos`: the journal, the state folded from it, blobs, snapshot manifests and pre-images.
//!
//! The store keeps bytes and finds them again. It knows nothing about running sessions, policy or the user's files.

mod blobs;
mod chain;
mod checkpoint;
mod disk;
mod fault;
mod file;
mod gc;
mod group;
mod home;
mod journal;
mod log_files;
mod manifest;
mod own_files;
mod read_only;
mod reader;
mod reserve;
mod rights;
mod session_dirs;
mod slots;
mod spool;
mod sqlite;
mod state_table;
mod stop;
mod verify;
mod wal;

pub use blobs::{BlobWriter, Blobs};
pub use fault::Fault;
pub use gc::GcReport;
pub use home::{Home, StateLock};
pub use journal::{Append, Journal, OpenIntent};
pub use log_files::{LogDir, LogLimits, LogPart, LogWriter};
pub use manifest::{EntryKind, Manifest, ManifestEntry, Manifests};
pub use reader::{Reader, Row};
pub use reserve::{Reserve, Space, is_disk_full};
pub use rights::{ActsFor, Rights, act_for, acting_for, own_rights};
pub use session_dirs::{SessionDirs, is_preimage_name, names_in, remove_tree};
pub use spool::Spool;
pub use sqlite::SqliteJournal;
pub use verify::{Finding, Report, replay, verify};
