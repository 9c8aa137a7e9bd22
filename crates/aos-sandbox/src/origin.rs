//! Where a process comes from: whether it belongs to a command, judged so that doubt counts against it.
//!
//! A process is judged by three facts that it cannot change: its pid namespace, its cgroup and its ancestors. Its pid
//! could be reused while /proc is read, so the caller holds a pidfd, and nothing counts that was read of a process
//! which had exited by the end.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::cgroup;
use crate::processes::{Ancestor, open_proc};

/// What is known of a process that calls the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// No command started it.
    Outside,
    OtherPidNamespace,
    /// A command started it, or it runs in a command's cgroup.
    Command,
    /// It exited before it could be judged.
    Exited,
    /// Its ancestors changed each time they were read, or /proc cannot be read.
    Unknown,
}

/// How often changing ancestors are read again.
const TRIES: usize = 20;

/// Bounds the walk: a chain of ancestors that changes while it is read could form a loop.
const ANCESTORS_MAX: usize = 10_000;

/// Judges the process with this pid, to which `pidfd` refers. Commands descend from one of `starters`.
pub(crate) fn judge(pid: i32, pidfd: BorrowedFd<'_>, starters: &[i32]) -> Origin {
    let Ok(proc) = open_proc() else { return Origin::Unknown };
    let mut origin = Origin::Unknown;
    for _ in 0..TRIES {
        origin = look(&proc, pid, starters).unwrap_or(Origin::Unknown);
        if has_exited(pidfd) {
            return Origin::Exited;
        }
        if origin != Origin::Unknown {
            break;
        }
    }
    origin
}

/// One look at the process; `None` if something could not be read, or changed meanwhile.
fn look(proc: &OwnedFd, pid: i32, starters: &[i32]) -> Option<Origin> {
    if namespaces_of(pid)? > 1 {
        return Some(Origin::OtherPidNamespace);
    }
    let ancestors = stable_ancestors(proc, pid)?;
    let is_command =
        cgroup::is_of_command(pid)? || ancestors.iter().skip(1).any(|ancestor| starters.contains(ancestor));
    Some(if is_command { Origin::Command } else { Origin::Outside })
}

/// A pidfd is readable from the moment in which its process has exited.
fn has_exited(pidfd: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(rustix::event::poll(&mut set, Some(&now)), Ok(0))
}

/// In how many pid namespaces, from ours downwards, the process has a number.
fn namespaces_of(pid: i32) -> Option<usize> {
    let status = crate::read_proc_file(&format!("/proc/{pid}/status"))?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(numbers.split_whitespace().count())
}

/// The process and its ancestors, if reading them twice gives the same.
fn stable_ancestors(proc: &OwnedFd, pid: i32) -> Option<Vec<i32>> {
    let first = ancestors(proc, pid)?;
    (ancestors(proc, pid)? == first).then(|| first.iter().map(|ancestor| ancestor.pid).collect())
}

/// The process and its ancestors, up to the first one of the namespace; `None` if one of them exited meanwhile.
fn ancestors(proc: &OwnedFd, pid: i32) -> Option<Vec<Ancestor>> {
    let mut found: Vec<Ancestor> = Vec::new();
    let mut next = pid;
    while next > 0 && found.len() < ANCESTORS_MAX {
        let Some(ancestor) = Ancestor::read(proc, next) else {
            // /proc may hide the processes of other users (`hidepid`). A command's processes all have one user, so
            // none of them is above a process of another one.
            return (next != pid && is_of_another_user(next)).then_some(found);
        };
        next = ancestor.parent;
        found.push(ancestor);
    }
    (next <= 0).then_some(found)
}

fn is_of_another_user(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(Errno::PERM))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(pid: u32, starters: &[i32]) -> Origin {
        let pid = i32::try_from(pid).unwrap();
        let flags = rustix::process::PidfdFlags::empty();
        let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid).unwrap(), flags).unwrap();
        judge(pid, std::os::fd::AsFd::as_fd(&pidfd), starters)
    }

    #[test]
    fn a_child_of_a_starter_is_a_command_and_others_are_not() {
        let own = i32::try_from(std::process::id()).unwrap();
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        assert_eq!(judged(std::process::id(), &[]), Origin::Outside);
        assert_eq!(
            judged(std::process::id(), &[own]),
            Origin::Outside,
            "the daemon itself is none of its commands"
        );
        assert_eq!(judged(std::process::id(), &[parent]), Origin::Command);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a real process that exits")]
    fn a_process_that_has_exited_is_not_judged() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let flags = rustix::process::PidfdFlags::empty();
        let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid).unwrap(), flags).unwrap();
        assert_eq!(judge(pid, std::os::fd::AsFd::as_fd(&pidfd), &[]), Origin::Outside);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(judge(pid, std::os::fd::AsFd::as_fd(&pidfd), &[]), Origin::Exited);
    }
}
