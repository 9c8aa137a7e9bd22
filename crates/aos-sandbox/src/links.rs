//! Hard links on an overlay in a user namespace: init is asked about each, and git's fail with EXDEV.
//!
//! A file that is linked is copied up first. In a user namespace overlayfs cannot decode the handle of the file that it
//! was copied from (that needs CAP_DAC_READ_SEARCH of the first user namespace), so the new name shows another inode
//! number than the old one did. `git clone` of a local folder compares the two and ends ("hardlink different from
//! source"); when a link fails, it copies. No mount option changes either.
//!
//! The answer is advice for git, not a boundary: a process may call itself `git` and get no links, or not and get them.

use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

use crate::last_error;
use crate::protocol::{receive_descriptor, send_descriptor};
use crate::spec::Sandbox;

/// Whether commands of this sandbox need it.
pub(crate) fn is_needed(sandbox: &Sandbox) -> bool {
    let on_overlay = |view: &crate::View| view.binds.iter().any(|bind| bind.overlay.is_some());
    sandbox.seccomp && sandbox.namespaces.as_ref().is_some_and(|own| own.user && on_overlay(&own.view))
}

/// Runs in the command's process: from now on each link waits for init's answer. Where the kernel has no such filter, or
/// one around this daemon has a listener already, links are as overlayfs makes them.
pub(crate) fn ask_init(socket: impl AsFd) {
    if let Ok(listener) = install() {
        let _ = send_descriptor(socket, listener.as_fd());
    }
}

/// The end of the filter that init reads, if the command's process sent one.
pub(crate) fn receive(socket: impl AsFd) -> Option<Listener> {
    receive_descriptor(socket).map(Listener)
}

#[expect(unsafe_code, reason = "seccompiler cannot ask for a listener")]
fn install() -> Result<OwnedFd, Errno> {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // Other ABIs need no check here: the first filter refuses them, and its errno wins.
    let mut program = [
        instruction(LOAD_NUMBER, 0, 0, 0),
        instruction(EQUAL, 2, 0, LINK as u32),
        instruction(EQUAL, 1, 0, libc::SYS_linkat as u32),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
    ];
    let program = libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
    // SAFETY: the program is valid for the call, which copies it; the result is a new descriptor that nothing else owns.
    unsafe {
        let listener = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        );
        if listener < 0 { Err(last_error()) } else { Ok(OwnedFd::from_raw_fd(listener as i32)) }
    }
}

#[cfg(target_arch = "x86_64")]
const LINK: libc::c_long = libc::SYS_link;
/// There is only `linkat`.
#[cfg(not(target_arch = "x86_64"))]
const LINK: libc::c_long = libc::SYS_linkat;

/// Init's end: readable when a process waits for an answer.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

impl AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    /// Answers one process that waits. One that was killed meanwhile needs no answer.
    #[expect(unsafe_code, reason = "no safe crate has these ioctls")]
    pub(crate) fn answer(&self) {
        // SAFETY: plain numbers, all zero, as the kernel demands; it fills them.
        let mut notice: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: a structure of the size in the request's number.
        if unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notice) } != 0 {
            return;
        }
        let is_git = crate::read_proc_file(&format!("/proc/{}/comm", notice.pid))
            .is_some_and(|name| name.trim_end() == "git");
        let (error, flags) = match is_git {
            true => (-libc::EXDEV, 0),
            // The kernel carries the call out.
            false => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        };
        let mut answer = libc::seccomp_notif_resp { id: notice.id, val: 0, error, flags };
        // SAFETY: a structure of the size in the request's number, which the kernel reads.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    }
}
