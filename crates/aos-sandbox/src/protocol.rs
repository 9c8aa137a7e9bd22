//! The messages between daemon, spawner and init.
//!
//! A launch message carries descriptors over the spawner's socket: a memfd with the [`LaunchSpec`], of any length, and
//! the command's own descriptors. One of these is the launch's *control socket*. Everything later about this launch
//! uses that socket: events to the daemon, requests to init. So events need no ids, and a peer that dies is noticed
//! because its end of the socket closes.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::spec::{LaunchError, LaunchSpec};

/// The descriptors of a launch.
#[derive(Debug)]
pub struct LaunchFds<Fd> {
    pub control: Fd,
    pub stdin: Fd,
    pub stdout: Fd,
    pub stderr: Fd,
    /// `cgroup.procs` of each cgroup that the command joins.
    pub cgroups: Vec<Fd>,
}

/// Descriptors that one message may carry.
const DESCRIPTORS_MAX: usize = 8;

/// The namespaces that init is cloned into: enough to clone it before its launch spec arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamespaceFlags {
    pub namespaces: bool,
    pub user: bool,
    pub network: bool,
}

impl NamespaceFlags {
    fn of(spec: &LaunchSpec) -> NamespaceFlags {
        let namespaces = spec.sandbox.namespaces.as_ref();
        NamespaceFlags {
            namespaces: namespaces.is_some(),
            user: namespaces.is_some_and(|own| own.user),
            network: namespaces.is_some_and(|own| own.network),
        }
    }

    fn to_byte(self) -> u8 {
        u8::from(self.namespaces) | u8::from(self.user) << 1 | u8::from(self.network) << 2
    }

    fn from_byte(byte: u8) -> NamespaceFlags {
        NamespaceFlags { namespaces: byte & 1 != 0, user: byte & 2 != 0, network: byte & 4 != 0 }
    }
}

/// A launch message that is not decoded yet: the memfd, the control socket, the streams, the cgroups.
#[derive(Debug)]
pub(crate) struct LaunchMessage {
    pub flags: NamespaceFlags,
    descriptors: Vec<OwnedFd>,
}

pub(crate) fn send_launch(
    socket: impl AsFd,
    spec: &LaunchSpec,
    fds: &LaunchFds<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let body = serde_json::to_vec(spec).expect("BUG: a launch spec is plain data");
    let file = rustix::fs::memfd_create("launch", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut rest = body.as_slice();
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    let mut descriptors = vec![file.as_fd(), fds.control, fds.stdin, fds.stdout, fds.stderr];
    descriptors.extend(&fds.cgroups);
    send_with_fds(socket, &[b'o', NamespaceFlags::of(spec).to_byte()], &descriptors)
}

/// The next launch message; `None` when the other end is closed.
pub(crate) fn receive_launch(socket: impl AsFd) -> Result<Option<LaunchMessage>, Errno> {
    let mut message = [0; 8];
    let (length, descriptors) = receive_with_fds(socket, &mut message)?;
    match message[..length] {
        [] => Ok(None),
        [b'o', flags] if descriptors.len() >= 5 => {
            Ok(Some(LaunchMessage { flags: NamespaceFlags::from_byte(flags), descriptors }))
        }
        _ => Err(Errno::BADMSG),
    }
}

impl LaunchMessage {
    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.descriptors[1].as_fd()
    }

    /// Sends it on unchanged.
    pub(crate) fn forward(&self, socket: impl AsFd) -> Result<(), Errno> {
        let descriptors: Vec<BorrowedFd<'_>> = self.descriptors.iter().map(OwnedFd::as_fd).collect();
        send_with_fds(socket, &[b'o', self.flags.to_byte()], &descriptors)
    }

    pub(crate) fn decode(self) -> Result<(LaunchSpec, LaunchFds<OwnedFd>), Errno> {
        let mut descriptors = self.descriptors.into_iter();
        let mut next = || descriptors.next().ok_or(Errno::BADMSG);
        let file = next()?;
        let (control, stdin, stdout, stderr) = (next()?, next()?, next()?, next()?);
        let fds = LaunchFds { control, stdin, stdout, stderr, cgroups: descriptors.collect() };
        let mut body = vec![0; rustix::fs::fstat(&file)?.st_size as usize];
        let mut filled = 0;
        while filled < body.len() {
            match rustix::io::pread(&file, &mut body[filled..], filled as u64)? {
                0 => return Err(Errno::BADMSG),
                n => filled += n,
            }
        }
        let spec = serde_json::from_slice(&body).map_err(|_| Errno::BADMSG)?;
        Ok((spec, fds))
    }
}

/// An event of one launch, received by the daemon on the control socket.
#[derive(Debug)]
pub enum LaunchEvent {
    /// From the spawner: init runs; its pidfd.
    InitStarted(OwnedFd),
    /// From init, or from its child before `execve`: the command will not run.
    Failed(LaunchError),
    /// From init: the command exited.
    Exited(ExitReport),
    /// The other end is closed.
    Closed,
}

/// How a command exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitReport {
    /// The wait status of the command.
    pub status: i32,
    /// None of its descendants is left, so init exits at once and need not be waited for.
    pub all_exited: bool,
}

pub(crate) fn send_init_started(control: impl AsFd, pidfd: BorrowedFd<'_>) -> Result<(), Errno> {
    send_with_fds(control, b"a", &[pidfd])
}

pub(crate) fn send_failed(control: impl AsFd, error: &LaunchError) {
    let mut message = b"f".to_vec();
    message.extend(serde_json::to_vec(error).expect("BUG: a launch error is plain data"));
    // If this fails the daemon still notices that the socket closes.
    let _ = send_with_fds(control, &message, &[]);
}

pub(crate) fn send_exited(control: impl AsFd, ExitReport { status, all_exited }: ExitReport) {
    let mut message = vec![b'e', u8::from(all_exited)];
    message.extend(status.to_le_bytes());
    let _ = send_with_fds(control, &message, &[]);
}

/// Receives the next event; `None` when there is none after all.
pub fn receive_event(control: impl AsFd) -> Option<LaunchEvent> {
    let mut message = [0; 4096];
    let (length, mut descriptors) = match receive_with_fds(control, &mut message) {
        Ok(received) => received,
        Err(Errno::INTR | Errno::AGAIN) => return None,
        Err(_) => return Some(LaunchEvent::Closed),
    };
    match (&message[..length], descriptors.pop()) {
        ([b'a'], Some(pidfd)) => Some(LaunchEvent::InitStarted(pidfd)),
        ([b'f', json @ ..], _) => serde_json::from_slice(json).ok().map(LaunchEvent::Failed),
        ([b'e', all_exited, status @ ..], _) => {
            let status = i32::from_le_bytes(status.try_into().ok()?);
            Some(LaunchEvent::Exited(ExitReport { status, all_exited: *all_exited != 0 }))
        }
        ([], _) => Some(LaunchEvent::Closed),
        _ => None,
    }
}

/// A request from the daemon to init.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitRequest {
    /// SIGINT to the command's process group.
    Interrupt = b'i' as isize,
    /// SIGTERM to all processes of the command.
    Terminate = b't' as isize,
    /// SIGKILL to all of them. Used without a pid namespace, which would end with init.
    Kill = b'k' as isize,
}

pub(crate) fn send_request(control: impl AsFd, request: InitRequest) {
    // An error means that init has exited, and its command with it.
    let _ = rustix::net::send(control, &[request as u8], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Passes one descriptor to another process of ours.
pub(crate) fn send_descriptor(socket: impl AsFd, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    send_with_fds(socket, b"d", &[descriptor])
}

/// The descriptor of [`send_descriptor`], if one was sent. The other end must be closed.
pub(crate) fn receive_descriptor(socket: impl AsFd) -> Option<OwnedFd> {
    receive_with_fds(socket, &mut [0; 1]).ok()?.1.pop()
}

fn send_with_fds(socket: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::NOBUFS);
    }
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            outcome => return outcome.map(drop),
        }
    }
}

fn receive_with_fds(socket: impl AsFd, message: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(message)];
    let received = rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}

/// A pair of connected sockets that preserve message boundaries (SOCK_SEQPACKET).
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
}
