//! The Unix socket `run/aosd.sock`, addressed through a descriptor of its folder so that AOS_HOME can have any length.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{AtFlags, Mode};

const NAME: &str = "aosd.sock";

/// `sun_path` has 108 bytes; this path is short whatever the folder's is.
fn short_path(run: impl AsFd) -> String {
    format!("/proc/self/fd/{}/{NAME}", run.as_fd().as_raw_fd())
}

/// Binds the socket. The caller holds the home's lock, so an existing socket is left over from a daemon that died.
pub fn bind(run: impl AsFd) -> io::Result<UnixListener> {
    unlink(&run)?;
    let listener = UnixListener::bind(short_path(&run))?;
    // umask and folder have denied access to others from the start; this makes the mode exact.
    rustix::fs::chmodat(&run, NAME, Mode::from_raw_mode(0o600), AtFlags::empty())?;
    Ok(listener)
}

/// Removes the socket. The caller holds the home's lock; without it the socket could be that of the next daemon.
pub fn unlink(run: impl AsFd) -> io::Result<()> {
    match rustix::fs::unlinkat(&run, NAME, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

pub fn connect(run: impl AsFd) -> io::Result<UnixStream> {
    UnixStream::connect(short_path(&run))
}
