//! The socket in `run/`, reached through a handle on its folder, so that a home may have a path of any length.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{AtFlags, Mode};

const NAME: &str = "aosd.sock";

/// `sun_path` holds 108 bytes; this name is short whatever the folder's is.
fn short_path(run: impl AsFd) -> String {
    format!("/proc/self/fd/{}/{NAME}", run.as_fd().as_raw_fd())
}

/// Binds the socket. The caller holds the home's lock, so what stands there is left over from a dead daemon.
pub fn bind(run: impl AsFd) -> io::Result<UnixListener> {
    match rustix::fs::unlinkat(&run, NAME, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(why) => return Err(why.into()),
    }
    let listener = UnixListener::bind(short_path(&run))?;
    // The umask and the folder have kept others out from the first moment; this makes the mode exact.
    rustix::fs::chmodat(&run, NAME, Mode::from_raw_mode(0o600), AtFlags::empty())?;
    Ok(listener)
}

pub fn connect(run: impl AsFd) -> io::Result<UnixStream> {
    UnixStream::connect(short_path(&run))
}
