//! What the tests need on the machine: said, installed where it is missing, or counted as missing.

use std::process::{Command, Stdio};

/// A program, and the Debian package that brings it.
struct Need {
    program: &'static str,
    package: &'static str,
    what_for: &'static str,
}

const NEEDS: &[Need] = &[
    Need { program: "cc", package: "gcc", what_for: "the bundled SQLite" },
    Need { program: "strace", package: "strace", what_for: "failing and killing at chosen system calls" },
    Need { program: "mkfs.ext4", package: "e2fsprogs", what_for: "power cuts on a file system of our own" },
    Need { program: "setfattr", package: "attr", what_for: "extended attributes" },
    Need { program: "setfacl", package: "acl", what_for: "access control lists" },
    Need { program: "bwrap", package: "bubblewrap", what_for: "a contender of the bench" },
    Need { program: "chattr", package: "e2fsprogs", what_for: "immutable files" },
];

fn is_there(program: &str) -> bool {
    let dirs = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    dirs.split(':').any(|dir| std::path::Path::new(dir).join(program).exists())
}

/// Installs what is missing, saying so first. Returns what is still missing; its tests skip themselves.
pub(crate) fn prepare(leave_alone: bool) -> Vec<&'static str> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !is_there(need.program)).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    for need in &missing {
        println!(
            "setup: `{}` is missing (Debian package {}, for {})",
            need.program, need.package, need.what_for
        );
    }
    if leave_alone {
        println!(
            "setup: left as it is (--no-setup); tests that need these say so and are counted as skipped"
        );
    } else {
        install(&missing);
    }
    missing.iter().filter(|need| !is_there(need.program)).map(|need| need.program).collect()
}

fn install(missing: &[&Need]) {
    let mut packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let sudo: &[&str] = if is_root() { &[] } else { &["sudo", "-n"] };
    println!("setup: installing {} with apt-get", packages.join(", "));
    let apt = |arguments: &[&str]| {
        let words: Vec<&str> =
            sudo.iter().chain(&["apt-get", "-q", "-y"]).chain(arguments).copied().collect();
        Command::new(words[0])
            .args(&words[1..])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    let install: Vec<&str> = ["install", "--no-install-recommends"].into_iter().chain(packages).collect();
    if !apt(&["update"]) || !apt(&install) {
        println!("setup: apt-get did not succeed; going on with what is there");
    }
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n")
}
