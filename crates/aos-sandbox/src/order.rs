//! The order by which the spawner launches one command, and the words that rollback_to between daemon, spawner and init.
//!
//! An order is a memory file of any length, sent with the descriptors of the command over the spawner's socket. All
//! that is said about one launch afterwards goes over a socket of its own, the *line*, which is among those
//! descriptors: so answers need no matching, and whoever dies is noticed by its end of the line closing.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::{Deserialize, Serialize};

/// What is to be run, and inside which sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// Without any this is a probe: the sandbox are put up, and that is all.
    pub argv: Vec<String>,
    /// `NAME=value`, complete.
    pub env: Vec<String>,
    /// Where the program is when its place was finalized before; else it is looked up on the command's own PATH.
    pub program: Option<Vec<u8>>,
    pub cwd: Pinned,
    /// Whom to become; nobody else when left out.
    pub user: Option<User>,
    pub sandbox: Sandbox,
    pub limits: Limits,
}

/// A path, and the object that must be found there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    pub path: Vec<u8>,
    pub dev: u64,
    pub ino: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// What stands between the command and the machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sandbox {
    pub namespaces: Option<Namespaces>,
    pub landlock: Option<LandlockPaths>,
    pub seccomp: bool,
}

/// Own namespaces for mounts, processes, ipc and host name, and what else.
#[derive(Debug, Serialize, Deserialize)]
pub struct Namespaces {
    /// Also an own user namespace: what lets an ordinary user have the others.
    pub user: bool,
    pub network: bool,
    pub view: View,
}

/// What a command sees, in the order in which it is mounted.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct View {
    /// The machine's own `/` when a session has that as a root; else an empty folder to mount in.
    pub slash: Option<BindMount>,
    pub links: Vec<Link>,
    pub binds: Vec<BindMount>,
    /// Emptied where they are to be seen at all: folders become empty, files read as nothing.
    pub covers: Vec<Vec<u8>>,
    /// The command keeps uid 0: without capabilities it would still own the kernel's switches in /proc.
    pub guard_proc: bool,
}

/// A symbolic link of the machine's own root, `/bin` say.
#[derive(Debug, Serialize, Deserialize)]
pub struct Link {
    pub at: Vec<u8>,
    pub to: Vec<u8>,
}

/// One folder or file of the machine, to be seen at a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BindMount {
    /// Absolute, without a slash at the end.
    pub at: Vec<u8>,
    pub from: Vec<u8>,
    /// The object that `from` must lead to, without links, where that matters.
    pub pin: Option<(u64, u64)>,
    pub writable: bool,
    /// Whether what is mounted below comes along.
    pub submounts: bool,
    /// Whether the command may run when this cannot be had.
    pub required: bool,
    /// Where what is written goes instead.
    pub overlay: Option<Overlay>,
}

/// Two folders of ours, absolute: what the command changes, and what the kernel needs for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    pub upper: Vec<u8>,
    pub work: Vec<u8>,
}

/// The paths of the second wall, which are opened once the first stands. Without any, files are not its business.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LandlockPaths {
    pub readable: Vec<Vec<u8>>,
    pub writable: Vec<Vec<u8>>,
    /// Signals and abstract sockets stay inside too: for where no namespace sees to it.
    pub scoped: bool,
}

/// Limits that no control group keeps.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Limits {
    pub processes: Option<u64>,
    pub memory_bytes: Option<u64>,
}

/// The descriptors of a launch.
#[derive(Debug)]
pub struct Handed<Fd> {
    pub line: Fd,
    pub stdin: Fd,
    pub stdout: Fd,
    pub stderr: Fd,
    /// `cgroup.procs` of each group that the command is to session in.
    pub cgroups: Vec<Fd>,
}

/// Descriptors that one message may carry.
const DESCRIPTORS_MAX: usize = 8;

/// In which namespaces an init lives: all that must be known to have one ready before there is an order for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub namespaces: bool,
    pub user: bool,
    pub network: bool,
}

impl Cell {
    fn of(order: &Order) -> Cell {
        let namespaces = order.sandbox.namespaces.as_ref();
        Cell {
            namespaces: namespaces.is_some(),
            user: namespaces.is_some_and(|own| own.user),
            network: namespaces.is_some_and(|own| own.network),
        }
    }

    fn to_byte(self) -> u8 {
        u8::from(self.namespaces) | u8::from(self.user) << 1 | u8::from(self.network) << 2
    }

    fn from_byte(byte: u8) -> Cell {
        Cell { namespaces: byte & 1 != 0, user: byte & 2 != 0, network: byte & 4 != 0 }
    }
}

/// An order on its way, not opened: the memory file, the line, the streams, the groups.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub cell: Cell,
    descriptors: Vec<OwnedFd>,
}

pub(crate) fn send_order(
    socket: impl AsFd,
    order: &Order,
    handed: &Handed<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let body = serde_json::to_vec(order).expect("BUG: an order is plain data");
    let file = rustix::fs::memfd_create("order", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut rest = body.as_slice();
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    let mut descriptors = vec![file.as_fd(), handed.line, handed.stdin, handed.stdout, handed.stderr];
    descriptors.extend(&handed.cgroups);
    send_with(socket, &[b'o', Cell::of(order).to_byte()], &descriptors)
}

/// The next order; `None` when nobody is there any more to give one.
pub(crate) fn receive_parcel(socket: impl AsFd) -> Result<Option<Parcel>, Errno> {
    let mut word = [0; 8];
    let (length, descriptors) = receive_with(socket, &mut word)?;
    match word[..length] {
        [] => Ok(None),
        [b'o', cell] if descriptors.len() >= 5 => {
            Ok(Some(Parcel { cell: Cell::from_byte(cell), descriptors }))
        }
        _ => Err(Errno::BADMSG),
    }
}

impl Parcel {
    pub(crate) fn line(&self) -> BorrowedFd<'_> {
        self.descriptors[1].as_fd()
    }

    /// Hands it on as it came.
    pub(crate) fn pass_on(&self, socket: impl AsFd) -> Result<(), Errno> {
        let descriptors: Vec<BorrowedFd<'_>> = self.descriptors.iter().map(OwnedFd::as_fd).collect();
        send_with(socket, &[b'o', self.cell.to_byte()], &descriptors)
    }

    pub(crate) fn open(self) -> Result<(Order, Handed<OwnedFd>), Errno> {
        let mut descriptors = self.descriptors.into_iter();
        let mut next = || descriptors.next().ok_or(Errno::BADMSG);
        let file = next()?;
        let (line, stdin, stdout, stderr) = (next()?, next()?, next()?, next()?);
        let handed = Handed { line, stdin, stdout, stderr, cgroups: descriptors.collect() };
        let mut body = vec![0; rustix::fs::fstat(&file)?.st_size as usize];
        let mut filled = 0;
        while filled < body.len() {
            match rustix::io::pread(&file, &mut body[filled..], filled as u64)? {
                0 => return Err(Errno::BADMSG),
                n => filled += n,
            }
        }
        let order = serde_json::from_slice(&body).map_err(|_| Errno::BADMSG)?;
        Ok((order, handed))
    }
}

/// Why a command was not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    pub stage: Stage,
    pub subject: String,
    pub errno: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The sandbox could not be put up.
    Sandbox,
    /// No overlay could be laid over a root.
    Overlay,
    /// The folder to run in is not there.
    Cwd,
    /// The program is not there or cannot be run.
    Program,
}

impl Trouble {
    pub fn new(stage: Stage, subject: impl Into<String>, why: Errno) -> Trouble {
        Trouble { stage, subject: subject.into(), errno: why.raw_os_error() }
    }

    pub fn errno(&self) -> Errno {
        Errno::from_raw_os_error(self.errno)
    }
}

/// What the daemon hears on a line.
#[derive(Debug)]
pub enum Word {
    /// From the spawner: init lives, and this is how to end it.
    Alive(OwnedFd),
    /// From init or from the command on its way: it will not run.
    Failed(Trouble),
    /// From init: the command ended, and whether it has left anything running.
    Ended(Ended),
    /// Nobody is at the other end any more.
    Closed,
}

/// The wait status of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub status: i32,
    /// No process of it is left: nobody need wait for its init.
    pub is_all: bool,
}

pub(crate) fn say_alive(line: impl AsFd, pidfd: BorrowedFd<'_>) -> Result<(), Errno> {
    send_with(line, b"a", &[pidfd])
}

pub(crate) fn say_failed(line: impl AsFd, trouble: &Trouble) {
    let mut word = b"f".to_vec();
    word.extend(serde_json::to_vec(trouble).expect("BUG: trouble is plain data"));
    // The daemon that does not hear it hears the line close.
    let _ = send_with(line, &word, &[]);
}

pub(crate) fn say_ended(line: impl AsFd, Ended { status, is_all }: Ended) {
    let mut word = vec![b'e', u8::from(is_all)];
    word.extend(status.to_le_bytes());
    let _ = send_with(line, &word, &[]);
}

/// The next word on a line that has one; `None` when it has none after all.
pub fn hear(line: impl AsFd) -> Option<Word> {
    let mut word = [0; 4096];
    let (length, mut descriptors) = match receive_with(line, &mut word) {
        Ok(received) => received,
        Err(Errno::INTR | Errno::AGAIN) => return None,
        Err(_) => return Some(Word::Closed),
    };
    match (&word[..length], descriptors.pop()) {
        ([b'a'], Some(pidfd)) => Some(Word::Alive(pidfd)),
        ([b'f', json @ ..], _) => serde_json::from_slice(json).ok().map(Word::Failed),
        ([b'e', is_all, status @ ..], _) => {
            let status = i32::from_le_bytes(status.try_into().ok()?);
            Some(Word::Ended(Ended { status, is_all: *is_all != 0 }))
        }
        ([], _) => Some(Word::Closed),
        _ => None,
    }
}

/// What the daemon asks of init.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// SIGINT for the command's foreground.
    Interrupt = b'i' as isize,
    /// SIGTERM for all.
    Terminate = b't' as isize,
    /// SIGKILL for all, where there is no namespace to end.
    Kill = b'k' as isize,
}

pub(crate) fn ask(line: impl AsFd, what: Ask) {
    // Whoever is gone needs no asking.
    let _ = rustix::net::send(line, &[what as u8], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

fn send_with(socket: impl AsFd, word: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::NOBUFS);
    }
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(word)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            outcome => return outcome.map(drop),
        }
    }
}

fn receive_with(socket: impl AsFd, word: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(word)];
    let received = rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}

/// A pair of ends on which whole words rollback_to.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
}
