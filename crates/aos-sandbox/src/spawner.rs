//! The spawner: a small process of one thread that launches commands for the daemon.
//!
//! Forking from it is cheap and safe, none of the daemon's descriptors can leak into a command, a program that was
//! just written is not held open for writing by a sibling's fork, and "die with your parent" means a thread that lives
//! as long as the process. It ends when the daemon's end of its socket closes, and its children end with it.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};

use crate::filter::Filters;
use crate::init;
use crate::order::{
    Cell, Handed, Order, Parcel, Stage, Trouble, receive_parcel, say_alive, say_failed, send_order,
    socket_pair,
};

/// The argument by which a program of ours is asked to be the spawner.
const SPAWNER_ARGUMENT: &str = "--serve-as-spawner";

/// The daemon's hold on its spawner. The process is started when first needed, and again should it have died.
#[derive(Debug)]
pub struct Spawner {
    program: PathBuf,
    current: Mutex<Option<Started>>,
}

#[derive(Debug)]
struct Started {
    pid: u32,
    socket: Arc<OwnedFd>,
    /// Says when the process is gone.
    gone: Receiver<()>,
}

impl Spawner {
    pub fn new(program: &Path) -> Spawner {
        Spawner { program: program.to_owned(), current: Mutex::new(None) }
    }

    /// Hands an order over. A spawner that died meanwhile is replaced once.
    pub fn launch(&self, order: &Order, handed: &Handed<BorrowedFd<'_>>) -> Result<(), Errno> {
        let socket = self.socket(None)?;
        match send_order(&*socket, order, handed) {
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                send_order(&*self.socket(Some(socket))?, order, handed)
            }
            outcome => outcome,
        }
    }

    /// The socket of a living spawner, one other than `dead`.
    fn socket(&self, dead: Option<Arc<OwnedFd>>) -> Result<Arc<OwnedFd>, Errno> {
        let mut current = self.current.lock().expect("BUG: nobody panics starting");
        match &*current {
            Some(Started { socket, .. }) if dead.is_none_or(|dead| !Arc::ptr_eq(socket, &dead)) => {
                Ok(socket.clone())
            }
            _ => Ok(current.insert(start(&self.program)?).socket.clone()),
        }
    }

    /// Whether a process comes from a command: whoever it was started by, in the end that was the spawner.
    pub fn is_ancestor_of(&self, pid: i32) -> bool {
        let started = self.current.lock().expect("BUG: nobody panics starting").as_ref().map(|now| now.pid);
        let Some(spawner) = started.and_then(|pid| i32::try_from(pid).ok()) else { return false };
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let Ok(proc) = rustix::fs::open("/proc", flags, rustix::fs::Mode::empty()) else { return false };
        std::iter::successors(Some(pid), |pid| init::parent_of(&proc, *pid).filter(|parent| *parent > 1))
            .take(ANCESTORS_MAX)
            .any(|pid| pid == spawner)
    }

    /// Lets the spawner end, and all that it started with it, and sees it go.
    pub fn retire(&self) {
        let taken = self.current.lock().expect("BUG: nobody panics starting").take();
        if let Some(Started { socket, gone, .. }) = taken {
            drop(socket);
            let _ = gone.recv_timeout(RETIRE_PATIENCE);
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.retire();
    }
}

/// A chain of parents is not longer than this; one that is would be a loop in a torn reading.
const ANCESTORS_MAX: usize = 100_000;

/// How long the end of the spawner is awaited.
const RETIRE_PATIENCE: Duration = Duration::from_secs(1);

/// Starts a spawner from a thread that waits for it: so the thread lives longer than it, and it leaves no zombie.
fn start(program: &Path) -> Result<Started, Errno> {
    let (ours, theirs) = socket_pair()?;
    let (tell, told) = channel();
    let (going, gone) = channel();
    let program = program.to_owned();
    let keeper = move || {
        #[expect(clippy::disallowed_methods, reason = "the one process that the host starts itself")]
        let started = Command::new(program)
            .arg(SPAWNER_ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match started {
            Ok(mut child) => {
                let _ = tell.send(Ok(child.id()));
                let _ = child.wait();
                let _ = going.send(());
            }
            Err(why) => {
                let _ = tell.send(Err(Errno::from_io_error(&why).unwrap_or(Errno::IO)));
            }
        }
    };
    std::thread::Builder::new().name("spawner".into()).spawn(keeper).map_err(|_| Errno::AGAIN)?;
    let pid = told.recv().unwrap_or(Err(Errno::IO))?;
    Ok(Started { pid, socket: Arc::new(ours), gone })
}

/// Is the spawner, when the arguments ask for it: to be called first thing in `main` of a program that
/// [`crate::Machine`] names as the spawner.
pub fn serve_as_spawner_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    if arguments.nth(1).is_none_or(|argument| argument != SPAWNER_ARGUMENT) || arguments.next().is_some() {
        return None;
    }
    let served = serve();
    Some(if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn serve() -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let _ = rustix::thread::set_name(c"aos-spawner");
    init::ignore_children()?;
    // A Ctrl-C for the daemon in front of a terminal is for the daemon, which decides about its commands.
    let _ = rustix::process::setsid();
    let filters = Filters::build();
    let socket = rustix::stdio::stdin();
    let mut ready: Option<Ready> = None;
    let mut last: Option<(Cell, OwnedFd)> = None;
    loop {
        if let Some((cell, running)) = last.take_if(|(_, running)| is_time(socket, running)) {
            drop(running);
            ready = Ready::make(cell, &filters).ok();
        }
        match receive_parcel(socket) {
            Ok(None) => return Ok(()),
            Ok(Some(parcel)) => {
                last = launch(&parcel, ready.take(), &filters).map(|init| (parcel.cell, init));
            }
            // An order that cannot be read is dropped, and its line with it: the daemon sees that.
            Err(Errno::INTR | Errno::BADMSG | Errno::MFILE | Errno::NFILE) => {}
            Err(why) => return Err(why),
        }
    }
}

/// Whether to make an init for the next order now: when the last command has ended or runs on for a while, and nobody
/// waits. Sooner it would take the processor from the command that was just launched.
fn is_time(socket: BorrowedFd<'_>, running: &OwnedFd) -> bool {
    let mut set = [PollFd::from_borrowed_fd(socket, PollFlags::IN), PollFd::new(running, PollFlags::IN)];
    let patience = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let _ = rustix::event::poll(&mut set, Some(&patience));
    set[0].revents().is_empty()
}

/// Gives an order to an init, and returns it. What happens then is between the two and the daemon.
fn launch(parcel: &Parcel, ready: Option<Ready>, filters: &Filters) -> Option<OwnedFd> {
    let given = |ready: Ready| parcel.pass_on(&ready.socket).map(|()| ready);
    let waiting = ready.filter(|ready| ready.cell == parcel.cell);
    let took_it = match waiting.map(given) {
        Some(Ok(ready)) => Ok(ready),
        Some(Err(_)) | None => Ready::make(parcel.cell, filters).and_then(given),
    };
    match took_it {
        Ok(Ready { pidfd, .. }) => {
            let _ = say_alive(parcel.line(), pidfd.as_fd());
            Some(pidfd)
        }
        Err(why) => {
            say_failed(parcel.line(), &Trouble::new(Stage::Sandbox, "cannot make a process", why));
            None
        }
    }
}

/// An init that waits for its order. It ends when this is dropped before it got one.
struct Ready {
    cell: Cell,
    socket: OwnedFd,
    pidfd: OwnedFd,
}

impl Ready {
    fn make(cell: Cell, filters: &Filters) -> Result<Ready, Errno> {
        let (socket, theirs) = socket_pair()?;
        // Asked before: in a user namespace of its own it is nobody at first.
        let ids = (rustix::process::geteuid(), rustix::process::getegid());
        match clone_into(cell)? {
            Cloned::Child => {
                drop(socket);
                init::serve(cell, ids, theirs, filters)
            }
            Cloned::Parent(pidfd) => Ok(Ready { cell, socket, pidfd }),
        }
    }
}

enum Cloned {
    Child,
    Parent(OwnedFd),
}

/// A child of this process in namespaces of its own. The one for mounts comes with the order: it starts as a copy of the
/// machine's mounts, which must be those of that moment.
#[expect(unsafe_code, reason = "no safe crate offers clone3")]
fn clone_into(cell: Cell) -> Result<Cloned, Errno> {
    let mut flags = libc::CLONE_PIDFD as u64;
    if cell.namespaces {
        flags |= (libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64;
    }
    if cell.user {
        flags |= libc::CLONE_NEWUSER as u64;
    }
    if cell.network {
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
    // SAFETY: without CLONE_VM this is a fork: the child has its own copy of a process of one thread, so every lock
    // is free in it. The arguments outlive the call, and `pidfd` is where the kernel puts the number.
    let outcome = unsafe {
        libc::syscall(libc::SYS_clone3, &raw const arguments, std::mem::size_of::<libc::clone_args>())
    };
    match outcome {
        0 => Ok(Cloned::Child),
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
        1.. => Ok(Cloned::Parent(unsafe { OwnedFd::from_raw_fd(pidfd) })),
        _ => Err(crate::last_error()),
    }
}
