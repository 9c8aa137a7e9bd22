//! The world failing under the store.

use std::sync::Arc;

use aos_model::refusal::{Code, Refusal};
use rustix::io::Errno;

/// What went wrong, with its subject. A fault becomes an `error` receipt; it is never a verdict about the request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Fault {
    #[error("{subject}: {source}")]
    Io { subject: String, source: Errno },
    /// Shared, because one failed commit is the answer to all that were in it.
    #[error("the journal: {0}")]
    Journal(Arc<rusqlite::Error>),
    /// Found damaged, or not ours: never written to.
    #[error("{0}")]
    Refused(String),
}

impl Fault {
    pub fn io(subject: impl Into<String>, source: Errno) -> Fault {
        Fault::Io { subject: subject.into(), source }
    }

    fn is_full(&self) -> bool {
        match self {
            Fault::Io { source, .. } => matches!(*source, Errno::NOSPC | Errno::DQUOT),
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
        // Here a fault becomes an answer and is forgotten. Failed commits are logged where they fail.
        if let Fault::Io { .. } = &fault {
            tracing::warn!("the store failed: {fault}");
        }
        if fault.is_full() {
            return Refusal::new(
                Code::NoSpace,
                format!("{fault}; free some space where AOS_HOME lies and try again"),
            );
        }
        let code = match &fault {
            Fault::Io { source: Errno::ACCESS | Errno::PERM, .. } => Code::PermissionDenied,
            Fault::Io { .. } | Fault::Journal(_) | Fault::Refused(_) => Code::IoError,
        };
        Refusal::new(code, fault.to_string())
    }
}
