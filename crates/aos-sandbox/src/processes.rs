//! Signals and the process tree, as the spawner and init need them.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{FromRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::last_error;

/// Signals every process of the pid namespace but this one.
#[expect(unsafe_code, reason = "no safe crate has the pid -1 of kill")]
pub(crate) fn signal_namespace(signal: Signal) -> Result<(), Errno> {
    // SAFETY: plain numbers. In a namespace of its own, -1 reaches only the command's processes.
    if unsafe { libc::kill(-1, signal.as_raw()) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// All descendants of this process, found by the parent pids in /proc.
pub(crate) fn descendants() -> Vec<Pid> {
    let mut parents: Vec<(i32, i32)> = Vec::new();
    let Ok(proc) = open_proc() else { return Vec::new() };
    let Ok(listing) = rustix::fs::Dir::read_from(&proc) else { return Vec::new() };
    for entry in listing.flatten() {
        let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) else { continue };
        if let Some(process) = Ancestor::read(&proc, pid) {
            parents.push((pid, process.parent));
        }
    }
    let mut found = vec![rustix::process::getpid().as_raw_nonzero().get()];
    let mut looked = 0;
    while looked < found.len() {
        let of = found[looked];
        found.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        looked += 1;
    }
    found[1..].iter().filter_map(|pid| Pid::from_raw(*pid)).collect()
}

/// Whether a process that serves a spawner or a command is left without its daemon: it is about to end.
pub fn has_orphans() -> bool {
    let Ok(proc) = open_proc() else { return false };
    let Ok(listing) = rustix::fs::Dir::read_from(&proc) else { return false };
    let numbers = listing.flatten().filter_map(|entry| entry.file_name().to_str().ok()?.parse::<i32>().ok());
    let mut names: HashMap<i32, String> = HashMap::new();
    let mut parents = Vec::new();
    for pid in numbers {
        let Some(text) = stat_of(&proc, pid) else { continue };
        let Some((head, rest)) = text.rsplit_once(") ") else { continue };
        let name = head.split_once('(').map_or("", |(_, name)| name);
        let mut fields = rest.split(' ');
        let (state, parent) = (fields.next(), fields.next().and_then(|parent| parent.parse::<i32>().ok()));
        if name.as_bytes() == SPAWNER_NAME.to_bytes() && !matches!(state, Some("Z" | "X")) {
            parents.extend(parent);
        }
        names.insert(pid, name.to_owned());
    }
    let serves = |name: &String| name == "aosd" || name.as_bytes() == SPAWNER_NAME.to_bytes();
    let is_served = |parent: &i32| names.get(parent).is_some_and(serves);
    !parents.iter().all(is_served)
}

/// The name of the spawner's process, and of the inits that it clones.
pub(crate) const SPAWNER_NAME: &CStr = c"aos-spawner";

pub(crate) fn open_proc() -> Result<OwnedFd, Errno> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open("/proc", flags, rustix::fs::Mode::empty())
}

fn stat_of(proc: &OwnedFd, pid: i32) -> Option<String> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::openat(proc, format!("{pid}/stat"), flags, rustix::fs::Mode::empty()).ok()?;
    let mut text = [0_u8; 1024];
    let length = rustix::io::read(file, &mut text).ok()?;
    Some(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// A process in a chain of ancestors. Its start time tells it from a later process with the same pid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ancestor {
    pub pid: i32,
    pub parent: i32,
    start_time: u64,
}

impl Ancestor {
    /// Reads `/proc/PID/stat`, whose fields are counted after the name, which ends with the last parenthesis.
    pub(crate) fn read(proc: &OwnedFd, pid: i32) -> Option<Ancestor> {
        const PARENT: usize = 1;
        const START_TIME: usize = 19;
        let text = stat_of(proc, pid)?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let parent = fields.get(PARENT)?.parse().ok()?;
        let start_time = fields.get(START_TIME)?.parse().ok()?;
        Some(Ancestor { pid, parent, start_time })
    }
}

/// Has the kernel reap the spawner's children (SIGCHLD ignored).
#[expect(unsafe_code, reason = "no safe crate ignores a signal")]
pub(crate) fn ignore_children() -> Result<(), Errno> {
    // SAFETY: ignoring a signal runs no code of ours.
    if unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) } == libc::SIG_ERR {
        Err(last_error())
    } else {
        Ok(())
    }
}

/// Restores the default action of every signal and unblocks all.
#[expect(unsafe_code, reason = "no safe crate resets signals")]
pub(crate) fn reset_signals() -> Result<(), Errno> {
    for signal in 1..=64 {
        // SIGKILL, SIGSTOP and the C library's two signals cannot be changed; they keep their default.
        // SAFETY: the default action runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    unblock_signals()
}

#[expect(unsafe_code, reason = "no safe crate sets the signal mask")]
pub(crate) fn unblock_signals() -> Result<(), Errno> {
    // SAFETY: the set is filled by the call before it is used.
    let outcome = unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
    };
    if outcome == 0 { Ok(()) } else { Err(last_error()) }
}

/// A signalfd that is readable when a child has died.
#[expect(unsafe_code, reason = "no safe crate has signalfd")]
pub(crate) fn sigchld_fd() -> Result<OwnedFd, Errno> {
    // SAFETY: the set is filled before it is used; the descriptor is new and ours.
    unsafe {
        let mut children = std::mem::zeroed();
        libc::sigemptyset(&raw mut children);
        libc::sigaddset(&raw mut children, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const children, std::ptr::null_mut()) != 0 {
            return Err(last_error());
        }
        match libc::signalfd(-1, &raw const children, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(last_error()),
        }
    }
}
