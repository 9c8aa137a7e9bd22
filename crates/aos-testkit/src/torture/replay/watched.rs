//! The system calls that a replay may make: those that read its home, and those that start any program.

use std::path::Path;

/// The calls that strace reports.
pub const WATCH: &str = "trace=%file,%process,%network,ftruncate,fchmod,fallocate,pwrite64,sendfile";

/// The calls of a trace, each with its name and arguments, without the process id that strace writes before them.
pub fn calls(trace: &str) -> Vec<String> {
    let call = |line: &str| line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().to_owned();
    trace.lines().map(call).collect()
}

pub fn opens_to_write(call: &str) -> bool {
    call.starts_with("open")
        && ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| call.contains(flag))
}

/// Calls that change something or communicate, in any variant: `rename` includes `renameat2`, `chmod` includes
/// `fchmod`.
const CHANGES: [&str; 17] = [
    "connect",
    "socket",
    "bind",
    "sendto",
    "fork",
    "vfork",
    "rename",
    "unlink",
    "mkdir",
    "link",
    "symlink",
    "chmod",
    "truncate",
    "utimens",
    "mknod",
    "creat",
    "fallocate",
];

/// What the loader and the runtime read in any program.
const STARTING: [&str; 9] = [
    "/etc/ld.so.",
    "/lib/",
    "/lib64/",
    "/usr/lib/",
    "/proc/self/",
    "/sys/fs/cgroup/",
    "/dev/urandom",
    "/dev/null",
    "/sys/devices/system/cpu/",
];

/// Whether a call does more than read the home.
pub fn reaches_out(call: &str, home: &Path) -> bool {
    let name = call.split('(').next().unwrap_or_default();
    let rest = name.get(1..).unwrap_or_default();
    let changes = CHANGES.iter().any(|change| name.starts_with(change) || rest.starts_with(change));
    let starts_process = name.starts_with("clone") && !call.contains("CLONE_THREAD");
    changes || starts_process || opens_to_write(call) || names_a_path_outside(name, call, home)
}

fn names_a_path_outside(name: &str, call: &str, home: &Path) -> bool {
    // The `execve` of the program itself names its path. `Tally::watch` counts the `execve` calls.
    if name == "execve" {
        return false;
    }
    let Some(path) = call.split('"').nth(1) else { return false };
    if !path.starts_with('/') {
        // A path relative to a descriptor is inside; a path relative to the current folder is not.
        return call.contains("AT_FDCWD") && !path.is_empty();
    }
    let is_above = name.contains("stat") && home.starts_with(path);
    !Path::new(path).starts_with(home) && !is_above && !STARTING.iter().any(|known| path.starts_with(known))
}
