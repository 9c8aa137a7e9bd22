//! Maps the errors of system calls to the contract's codes.

use aos_model::refusal::{Code, Refusal};
use rustix::io::Errno;

/// The refusal for an errno. `subject` says which action failed on what.
pub(crate) fn refusal(subject: &str, why: Errno) -> Refusal {
    let (code, remedy) = match why {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            (Code::PermissionDenied, "; check the owner and the mode")
        }
        Errno::NOSPC | Errno::DQUOT => (Code::NoSpace, "; free some space and try again"),
        Errno::NAMETOOLONG | Errno::LOOP => (Code::InvalidPath, ""),
        Errno::NOENT => (Code::PathNotFound, ""),
        Errno::ISDIR => (Code::IsDirectory, ""),
        Errno::NOTDIR => (Code::NotDirectory, ""),
        Errno::NOTEMPTY => (Code::DirectoryNotEmpty, ""),
        _ => (Code::IoError, ""),
    };
    let whose = match aos_store::acting_for() {
        Some(user) if code == Code::PermissionDenied => format!(" for uid {}", user.uid),
        _ => String::new(),
    };
    Refusal::new(code, format!("{subject}: {why}{whose}{remedy}"))
}
