//! What a case needs of the machine, and what is missing here.

use std::path::Path;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::check::Outcome;

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

/// One test of a test program. If the machine lacks something, the test counts as skipped, and a line says why.
pub fn trial(
    arguments: &Arguments,
    name: &str,
    missing: Option<&str>,
    run: impl FnOnce() -> Outcome + Send + 'static,
) -> Trial {
    let is_chosen = arguments.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    if let Some(why) = missing.filter(|_| is_chosen && !arguments.list) {
        println!("{name} skipped: {why}");
    }
    Trial::test(name, move || run().map_err(Failed::from)).with_ignored_flag(missing.is_some())
}
