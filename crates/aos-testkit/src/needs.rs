//! What a case needs of the machine, and what is missing here.

use std::path::Path;

/// What a machine may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Root,
    Strace,
    Loop,
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').any(|dir| Path::new(dir).join(program).exists())
}

/// Why a need cannot be met here, if it cannot.
pub fn missing(need: Need) -> Option<&'static str> {
    let (is_met, why) = match need {
        Need::Root => (is_root(), "it must run as root"),
        Need::Strace => {
            (is_installed("strace"), "strace is not installed (`cargo xtask test` installs it as root)")
        }
        Need::Loop => (
            is_root() && is_installed("mkfs.ext4") && Path::new("/dev/loop-control").exists(),
            "it must run as root, with mkfs.ext4 installed and loop devices available",
        ),
    };
    (!is_met).then_some(why)
}

/// Prints why a case is skipped, on a line of its own.
pub fn report_skip(id: &str, why: &str) {
    println!("{id} skipped: {why}");
}
