//! The world failing, told in the contract's words.

use aos_model::refusal::{Code, Refusal};
use rustix::io::Errno;

/// What an errno means for a receipt. `subject` says what was tried on what.
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
    Refusal::new(code, format!("{subject}: {why}{remedy}"))
}
