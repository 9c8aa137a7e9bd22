//! What a replay may ask of the system: to read its home, and what starts any program. Nothing else.

use std::path::Path;

/// The calls of which strace tells.
pub const WATCH: &str = "trace=%file,%process,%network,ftruncate,fchmod,fallocate,pwrite64,sendfile";

/// The calls of a trace, each by its name and arguments; strace puts the number of the process before them.
pub fn calls(trace: &str) -> Vec<String> {
    let call = |line: &str| line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().to_owned();
    trace.lines().map(call).collect()
}

pub fn opens_to_write(call: &str) -> bool {
    call.starts_with("open")
        && ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| call.contains(flag))
}

/// Calls that change something or speak with others, in whatever variant: `rename` is also `renameat2`, `chmod` also
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

/// Whether a call goes beyond reading the home.
pub fn reaches_out(call: &str, home: &Path) -> bool {
    let name = call.split('(').next().unwrap_or_default();
    let rest = name.get(1..).unwrap_or_default();
    let changes = CHANGES.iter().any(|change| name.starts_with(change) || rest.starts_with(change));
    let starts_process = name.starts_with("clone") && !call.contains("CLONE_THREAD");
    changes || starts_process || opens_to_write(call) || names_a_path_outside(name, call, home)
}

fn names_a_path_outside(name: &str, call: &str, home: &Path) -> bool {
    // The one that starts the program itself names it; how many there are is counted elsewhere.
    if name == "execve" {
        return false;
    }
    let Some(path) = call.split('"').nth(1) else { return false };
    if !path.starts_with('/') {
        // Below a descriptor it is inside; below the current folder it is not.
        return call.contains("AT_FDCWD") && !path.is_empty();
    }
    let is_above = name.contains("stat") && home.starts_with(path);
    !Path::new(path).starts_with(home) && !is_above && !STARTING.iter().any(|known| path.starts_with(known))
}
