//! A user namespace that maps root's ids to nobody's: in a mount whose ids it maps, root owns nothing.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::clone::{Cloned, clone_into_namespaces};
use crate::protocol::NamespaceFlags;

/// Other ids stay as they are. What belongs to nobody belongs to an id that has no name.
const MAP: &str = "0 65534 1\n1 1 65533\n65535 65535 4294901760\n";

/// `None` if this process may not map ids, or may not make user namespaces.
pub(crate) fn namespace() -> Option<OwnedFd> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    match clone_into_namespaces(NamespaceFlags { namespaces: false, user: true, network: false }).ok()? {
        Cloned::Child => wait_for_the_end(),
        Cloned::Parent { pid, pidfd } => {
            let namespace = map_and_open(pid);
            // The descriptor keeps the namespace.
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            namespace.ok()
        }
    }
}

fn map_and_open(pid: i64) -> Result<OwnedFd, Errno> {
    let open = |name: &str, access: OFlags| {
        rustix::fs::open(format!("/proc/{pid}/{name}"), access | OFlags::CLOEXEC, Mode::empty())
    };
    for name in ["uid_map", "gid_map"] {
        rustix::io::write(open(name, OFlags::WRONLY)?, MAP.as_bytes())?;
    }
    open("ns/user", OFlags::RDONLY)
}

/// Not for ever: the spawner could die before it ends us.
fn wait_for_the_end() -> ! {
    let time = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
    let _ = rustix::event::poll(&mut [], Some(&time));
    crate::init::exit(0)
}
