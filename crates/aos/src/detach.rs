//! Detaches the daemon from its caller: descriptors, terminal and working folder.

use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// Closes inherited descriptors above the standard three. Must be called first in `main`, before this process opens
/// any.
#[expect(unsafe_code, reason = "closing descriptors that this process never opened takes their numbers")]
pub(crate) fn close_inherited() {
    let Ok(listing) = rustix::fs::open(
        "/proc/self/fd",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) else {
        return;
    };
    use std::os::fd::AsRawFd as _;
    let own = listing.as_raw_fd();
    let Ok(dir) = rustix::fs::Dir::read_from(&listing) else { return };
    let numbers: Vec<i32> =
        dir.flatten().filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).collect();
    drop(listing);
    for number in numbers.into_iter().filter(|number| *number > 2 && *number != own) {
        if rustix::io::fcntl_getfd(unsafe { std::os::fd::BorrowedFd::borrow_raw(number) }).is_ok() {
            // SAFETY: called before this process opens anything, so nothing owns this number.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}

/// Leaves the caller's session and folder.
pub(crate) fn leave_session() {
    // Fails only for a process group leader, which a shell's foreground job may be: it stays in its session.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
}

/// Replaces the standard streams with /dev/null, so that the caller's pipe closes.
pub(crate) fn close_streams() {
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(null.as_fd());
        let _ = rustix::stdio::dup2_stdout(null.as_fd());
        let _ = rustix::stdio::dup2_stderr(null.as_fd());
    }
}
