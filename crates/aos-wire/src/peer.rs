//! Who may speak at the socket: the owner of the home and root, and no command of a session whoever it runs as.

use std::io::Read as _;
use std::os::unix::net::UnixStream;

use aos_host::Host;

pub(crate) fn may_speak(host: &Host, stream: &UnixStream) -> bool {
    let Ok(peer) = rustix::net::sockopt::socket_peercred(stream) else { return false };
    let is_owner = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    let pid = peer.pid.as_raw_nonzero().get();
    is_owner && !is_in_another_pid_namespace(pid) && !host.is_command_process(pid)
}

/// Commands live in pid namespaces of their own, below ours: /proc then tells more than one number for a process. The
/// socket is out of their sight; this holds where somebody mounted it in.
fn is_in_another_pid_namespace(pid: i32) -> bool {
    #[expect(clippy::disallowed_methods, reason = "what the kernel says of the peer")]
    let status = std::fs::File::open(format!("/proc/{pid}/status"));
    let mut text = String::new();
    // A peer that is gone already will not hear the answer either.
    if status.and_then(|mut file| file.read_to_string(&mut text)).is_err() {
        return false;
    }
    let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() > 1)
}
