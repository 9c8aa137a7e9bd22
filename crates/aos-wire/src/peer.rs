//! Which processes may use the socket: those of the home's owner and of root, but no command of a session.

use std::io::Read as _;
use std::os::unix::net::UnixStream;

use aos_host::Host;
use rustix::io::Errno;

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
}

pub(crate) fn check_peer(host: &Host, stream: &UnixStream) -> Result<(), PeerError> {
    let peer = rustix::net::sockopt::socket_peercred(stream).map_err(PeerError::NoCredentials)?;
    let pid = peer.pid.as_raw_nonzero().get();
    if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        return Err(PeerError::NotOwner { uid: peer.uid.as_raw(), pid });
    }
    if is_in_another_pid_namespace(pid) {
        return Err(PeerError::OtherPidNamespace { pid });
    }
    if host.is_command_process(pid) {
        return Err(PeerError::CommandOfSession { pid });
    }
    Ok(())
}

/// Commands run in pid namespaces below ours: then `NSpid` in /proc has more than one number. The socket is not in
/// their view; this check is for a socket that was mounted there.
fn is_in_another_pid_namespace(pid: i32) -> bool {
    #[expect(clippy::disallowed_methods, reason = "reads what the kernel reports about the peer")]
    let status = std::fs::File::open(format!("/proc/{pid}/status"));
    let mut text = String::new();
    // The peer has exited: it cannot read an answer.
    if status.and_then(|mut file| file.read_to_string(&mut text)).is_err() {
        return false;
    }
    let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() > 1)
}
