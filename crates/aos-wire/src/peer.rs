//! Which processes may use the socket: those of the home's owner and of root, but no command of a session.
//!
//! A connection is judged once, when it is accepted, and refused in doubt. The kernel's pidfd of the process that
//! connected tells it from a later one with the same pid.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use aos_host::{Host, Origin};
use nix::sys::socket::{getsockopt, sockopt};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

/// Why a connection is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("the credentials of the peer cannot be read: {0}")]
    NoCredentials(Errno),
    #[error("uid {uid} of process {pid} does not own the home")]
    NotOwner { uid: u32, pid: i32 },
    #[error("process {pid} is in another pid namespace")]
    OtherPidNamespace { pid: i32 },
    #[error("process {pid} belongs to a command of a session")]
    CommandOfSession { pid: i32 },
    #[error("process {pid} exited after it connected, so it cannot be known where it came from")]
    Exited { pid: i32 },
    #[error("the ancestors of process {pid} cannot be read")]
    UnknownOrigin { pid: i32 },
}

pub(crate) fn check_peer(host: &Host, stream: &UnixStream) -> Result<(), PeerError> {
    let peer = rustix::net::sockopt::socket_peercred(stream).map_err(PeerError::NoCredentials)?;
    let pid = peer.pid.as_raw_nonzero().get();
    if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        return Err(PeerError::NotOwner { uid: peer.uid.as_raw(), pid });
    }
    let pidfd = pidfd_of(stream, peer.pid).map_err(|_| PeerError::Exited { pid })?;
    match host.origin_of(pid, pidfd.as_fd()) {
        Origin::Outside => Ok(()),
        Origin::OtherPidNamespace => Err(PeerError::OtherPidNamespace { pid }),
        Origin::Command => Err(PeerError::CommandOfSession { pid }),
        Origin::Exited => Err(PeerError::Exited { pid }),
        Origin::Unknown => Err(PeerError::UnknownOrigin { pid }),
    }
}

/// The pidfd of the process that connected. Before Linux 6.5 only its pid is known, which may have been reused since.
fn pidfd_of(stream: &UnixStream, pid: Pid) -> Result<OwnedFd, Errno> {
    match getsockopt(stream, sockopt::PeerPidfd) {
        Ok(pidfd) => Ok(pidfd),
        Err(nix::errno::Errno::ENOPROTOOPT) => rustix::process::pidfd_open(pid, PidfdFlags::empty()),
        Err(error) => Err(Errno::from_raw_os_error(error as i32)),
    }
}
