//! Proof that nobody has a file open for writing: a read lease, taken and given back.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Once;

static IGNORE_BREAKS: Once = Once::new();

/// True when no process holds `file` (open read-only here) for writing at this moment. A file system without leases,
/// or a file that is not ours, gives no proof.
#[expect(unsafe_code, reason = "rustix has no F_SETLEASE; both calls take integers and an open descriptor")]
pub(super) fn nobody_writes(file: &OwnedFd) -> bool {
    // Somebody who opens the file while we hold the lease has us told by SIGIO, which would end the process.
    IGNORE_BREAKS.call_once(|| {
        // SAFETY: SIG_IGN is a valid disposition and touches no memory of ours.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    });
    // SAFETY: the descriptor is open for the whole call and F_SETLEASE takes an int.
    let taken = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) } == 0;
    if taken {
        // SAFETY: as above.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
    taken
}
