//! Proof that no process has a file open for writing: a read lease, taken and released.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Once;

static IGNORE_BREAKS: Once = Once::new();

/// True when no process has `file` (open read-only here) open for writing at this moment. False without proof: on a
/// file system without leases, or for a file of another owner.
#[expect(unsafe_code, reason = "rustix has no F_SETLEASE; both calls take integers and an open descriptor")]
pub(crate) fn has_no_writer(file: &OwnedFd) -> bool {
    // Whoever opens the file while we hold the lease makes the kernel send us SIGIO, whose default action is to terminate.
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
