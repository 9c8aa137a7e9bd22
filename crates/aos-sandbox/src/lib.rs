//! Runs one command in a sandbox. Knows neither sessions nor policy: it gets an [`Order`] and carries it out.
//!
//! ```text
//! daemon ──order──▶ spawner ──clone──▶ init: mounts, privileges ──fork──▶ the command: Landlock, seccomp, execve
//!    ◀──────────line (alive, failed, ended)──────────┘
//! ```
//!
//! The kernel is the boundary of a command. What the command sees is a [`View`]: plain data that the caller computes
//! and init mounts.

mod abilities;
mod cgroup;
mod confine;
mod filter;
mod init;
mod mounts;
mod order;
mod running;
mod spawner;
mod view;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

pub use abilities::{Abilities, Applied, abilities, probe};
pub use cgroup::Groups;
pub use confine::has_landlock;
pub use order::{
    BindMount, Ended, Handed, LandlockPaths, Limits, Namespaces, Order, Overlay, Pinned, Sandbox, Stage,
    Trouble, User, View, Word, hear, socket_pair,
};
pub use running::{Listed, Running, RunningSet};
pub use spawner::{Spawner, serve_as_spawner_if_asked};
pub use view::{HomeShown, SYSTEM, Wanted, may_be_shown, view};

/// Where programs are looked for when the environment has no PATH.
pub const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A file of /proc, whole.
fn read_small(path: &str) -> Option<String> {
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
