//! Runs one command in a sandbox, as a [`LaunchSpec`] says. It knows neither sessions nor policy.
//!
//! ```text
//! daemon ──LaunchSpec──▶ spawner ──clone3──▶ init: mounts, privileges ──vfork──▶ the command: Landlock, seccomp, execve
//!    ◀──────LaunchEvent (started, failed, exited)──────┘
//! ```
//!
//! The kernel enforces the sandbox. The file system that the command sees is a [`View`]: plain data that the caller
//! computes and init mounts.

mod abilities;
mod cgroup;
mod clone;
mod closed;
mod confine;
mod credentials;
mod filter;
mod identity;
mod init;
mod links;
mod mount_calls;
mod mounts;
mod nobody;
mod origin;
mod processes;
mod protocol;
mod running;
mod spawner;
mod spec;
mod toolchains;
mod view;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

pub use abilities::{Abilities, Applied, abilities, probe};
pub use cgroup::Cgroups;
pub use confine::has_landlock;
pub use origin::Origin;
pub use processes::has_orphans;
pub use protocol::{ExitReport, LaunchEvent, LaunchFds, receive_event, socket_pair};
pub use running::{Registration, Running, RunningSet};
pub use spawner::{Spawner, serve_as_spawner_if_asked};
pub use spec::{
    BindMount, LandlockPaths, LaunchError, LaunchSpec, LaunchStage, Limits, Mask, MaskKind, Namespaces,
    Overlay, PinnedPath, SYSTEM_DIRS, Sandbox, User, View,
};
pub use view::{HomeMount, ViewSpec, build_view};

/// The PATH of commands whose environment has none.
pub const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Reads a whole file of /proc.
fn read_proc_file(path: &str) -> Option<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = Vec::new();
    let mut piece = vec![0; 16 << 10];
    loop {
        match rustix::io::read(&file, &mut piece) {
            Ok(0) => return String::from_utf8(text).ok(),
            Ok(n) => text.extend_from_slice(&piece[..n]),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
