//! Clones this process, which has one thread, into new namespaces.

use std::os::fd::{FromRawFd as _, OwnedFd};

use rustix::io::Errno;

use crate::protocol::NamespaceFlags;

/// On which side of a clone we are.
pub(crate) enum Cloned {
    Child,
    Parent { pid: i64, pidfd: OwnedFd },
}

/// Clones this process into new namespaces. The mount namespace is created later, by init: it starts as a copy of the
/// machine's mounts, which must be those at the time of the launch.
#[expect(unsafe_code, reason = "no safe crate offers clone3")]
pub(crate) fn clone_into_namespaces(namespaces: NamespaceFlags) -> Result<Cloned, Errno> {
    let mut flags = libc::CLONE_PIDFD as u64;
    if namespaces.namespaces {
        flags |= (libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64;
    }
    if namespaces.user {
        flags |= libc::CLONE_NEWUSER as u64;
    }
    if namespaces.network {
        flags |= libc::CLONE_NEWNET as u64;
    }
    let mut pidfd: libc::c_int = -1;
    let arguments = libc::clone_args {
        flags,
        pidfd: std::ptr::from_mut(&mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        child_tid: 0,
        parent_tid: 0,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    // SAFETY: without CLONE_VM this is a fork: the child is a copy of a process with one thread, so no lock is held
    // in it. The arguments outlive the call, and the kernel writes the descriptor to `pidfd`.
    let outcome = unsafe {
        libc::syscall(libc::SYS_clone3, &raw const arguments, std::mem::size_of::<libc::clone_args>())
    };
    match outcome {
        0 => Ok(Cloned::Child),
        // SAFETY: the kernel has just opened this descriptor for us; nothing else owns it.
        pid @ 1.. => Ok(Cloned::Parent { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
        _ => Err(crate::last_error()),
    }
}
