//! Failures of the system that the store runs on: I/O errors, SQLite errors, damaged files.

use std::sync::Arc;

use aos_model::refusal::{Code, Refusal};
use rustix::io::Errno;

/// The message of every `expect` on a lock: a lock is poisoned only when a thread panicked while it held it.
pub(crate) const LOCK_POISONED: &str = "BUG: lock poisoned";

/// What failed, with its subject. A fault becomes an `error` receipt. It says nothing about whether the request was
/// allowed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Fault {
    /// The errno is part of the message and not a `source`: a printed chain would show it twice.
    #[error("{subject}: {errno}")]
    Io { subject: String, errno: Errno },
    /// Shared, because one failed commit is the result of every write in it.
    #[error("the journal: {0}")]
    Journal(Arc<rusqlite::Error>),
    /// A file is damaged, or was not written by aos. Nothing is written to it.
    #[error("{0}")]
    Refused(String),
}

impl Fault {
    pub fn io(subject: impl Into<String>, errno: Errno) -> Fault {
        Fault::Io { subject: subject.into(), errno }
    }

    /// What the system said; EIO where it did not say anything.
    pub fn errno(&self) -> Errno {
        match self {
            Fault::Io { errno, .. } => *errno,
            Fault::Journal(_) | Fault::Refused(_) => Errno::IO,
        }
    }

    /// Whether another program holds a lock of the journal.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Fault::Journal(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy),
            Fault::Io { .. } | Fault::Refused(_) => false,
        }
    }

    /// Whether a disk has no room.
    pub fn is_full(&self) -> bool {
        match self {
            Fault::Io { errno, .. } => matches!(*errno, Errno::NOSPC | Errno::DQUOT),
            Fault::Journal(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            Fault::Refused(_) => false,
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Journal(Arc::new(error))
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        if fault.is_full() {
            // Not a line for each: the log may be on the full disk. That it is full was logged.
            tracing::debug!("the store failed: {fault}");
            return Refusal::new(
                Code::NoSpace,
                format!("{fault}; free some space on the disk of AOS_HOME and try again"),
            );
        }
        // Here a fault becomes an answer and is forgotten. Failed commits are logged where they fail.
        if let Fault::Io { .. } = &fault {
            tracing::warn!("the store failed: {fault}");
        }
        let code = match &fault {
            Fault::Io { errno: Errno::ACCESS | Errno::PERM, .. } => Code::PermissionDenied,
            Fault::Io { .. } | Fault::Journal(_) | Fault::Refused(_) => Code::IoError,
        };
        Refusal::new(code, fault.to_string())
    }
}
