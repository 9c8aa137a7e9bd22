//! The spawner: a small process of one thread that launches commands for the daemon.
//!
//! Forking from one thread with little memory is cheap and safe. None of the daemon's descriptors can leak into a
//! command. No sibling's fork holds a program open for writing that was just written (ETXTBSY). And the parent death
//! signal follows a thread, so the parent must be a thread that lives as long as the process. The spawner exits when
//! the daemon's end of its socket closes, and its children are killed with it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};

use crate::clone::{Cloned, clone_into_namespaces};
use crate::filter::Filters;
use crate::init::{self, Tools};
use crate::nobody;
use crate::origin::{self, Origin};
use crate::processes;
use crate::protocol::{
    LaunchFds, LaunchMessage, NamespaceFlags, receive_launch, send_failed, send_init_started, send_launch,
    socket_pair,
};
use crate::spec::{LaunchError, LaunchSpec, LaunchStage};

/// The argument that makes one of our programs act as the spawner.
const SPAWNER_ARGUMENT: &str = "--serve-as-spawner";

/// The daemon's handle to its spawner process, which is started when first needed and again if it died.
#[derive(Debug)]
pub struct Spawner {
    program: PathBuf,
    current: Mutex<Option<Started>>,
}

#[derive(Debug)]
struct Started {
    pid: u32,
    socket: Arc<OwnedFd>,
    /// Receives a message when the process has exited.
    exited: Receiver<()>,
}

impl Spawner {
    pub fn new(program: &Path) -> Spawner {
        Spawner { program: program.to_owned(), current: Mutex::new(None) }
    }

    /// Launches a command. A spawner that died meanwhile is replaced once.
    pub fn launch(&self, spec: &LaunchSpec, fds: &LaunchFds<BorrowedFd<'_>>) -> Result<(), Errno> {
        let socket = self.socket(None)?;
        match send_launch(&*socket, spec, fds) {
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                send_launch(&*self.socket(Some(socket))?, spec, fds)
            }
            outcome => outcome,
        }
    }

    /// The socket of the current spawner. A new one is started if there is none, or if its socket is `dead`.
    fn socket(&self, dead: Option<Arc<OwnedFd>>) -> Result<Arc<OwnedFd>, Errno> {
        let mut current = self.current.lock().expect("BUG: lock poisoned");
        match &*current {
            Some(Started { socket, .. }) if dead.is_none_or(|dead| !Arc::ptr_eq(socket, &dead)) => {
                Ok(socket.clone())
            }
            _ => Ok(current.insert(start(&self.program)?).socket.clone()),
        }
    }

    /// Where a process comes from: every command descends from the spawner, and so from this process.
    pub fn origin_of(&self, pid: i32, pidfd: BorrowedFd<'_>) -> Origin {
        let spawner = self.current.lock().expect("BUG: lock poisoned").as_ref().map(|now| now.pid);
        let pids = [Some(std::process::id()), spawner].into_iter().flatten();
        let starters: Vec<i32> = pids.filter_map(|pid| i32::try_from(pid).ok()).collect();
        origin::judge(pid, pidfd, &starters)
    }

    /// Stops the spawner and all commands it started, and waits until it has exited.
    pub fn retire(&self) {
        let taken = self.current.lock().expect("BUG: lock poisoned").take();
        if let Some(Started { pid, socket, exited }) = taken {
            drop(socket);
            if exited.recv_timeout(RETIRE_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                tracing::warn!(pid, "the spawner did not exit in time");
            }
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.retire();
    }
}

/// How long to wait for the spawner to exit.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts a spawner from a thread that waits for it. The thread outlives the process, as its parent death signal needs,
/// and reaps it.
fn start(program: &Path) -> Result<Started, Errno> {
    let (ours, theirs) = socket_pair()?;
    let (started_sender, started_receiver) = channel();
    let (exit_sender, exited) = channel();
    let program = program.to_owned();
    let wait_for_spawner = move || {
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
                let pid = child.id();
                let _ = started_sender.send(Ok(pid));
                match child.wait() {
                    Ok(status) if status.success() => {}
                    // Commands that were running have been killed with it.
                    Ok(status) => tracing::warn!(pid, %status, "the spawner exited unexpectedly"),
                    Err(error) => tracing::warn!(pid, %error, "cannot wait for the spawner"),
                }
                let _ = exit_sender.send(());
            }
            Err(error) => {
                tracing::warn!(%error, "cannot start the spawner");
                let _ = started_sender.send(Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)));
            }
        }
    };
    std::thread::Builder::new().name("spawner".into()).spawn(wait_for_spawner).map_err(|_| Errno::AGAIN)?;
    let pid = started_receiver.recv().unwrap_or(Err(Errno::IO))?;
    Ok(Started { pid, socket: Arc::new(ours), exited })
}

/// Acts as the spawner if the arguments say so. A program that is passed to [`Spawner::new`] must call this first in
/// `main`.
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
    let _ = rustix::thread::set_name(processes::SPAWNER_NAME);
    processes::ignore_children()?;
    // What an init leaves behind, because a command killed it, still descends from us and is known as a command.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // A Ctrl-C in the daemon's terminal must reach the daemon only, which decides about its commands.
    let _ = rustix::process::setsid();
    let tools = Tools { filters: Filters::build(), nobody: nobody::namespace() };
    let socket = rustix::stdio::stdin();
    let mut idle: Option<IdleInit> = None;
    let mut last: Option<(NamespaceFlags, OwnedFd)> = None;
    loop {
        if let Some((flags, running)) = last.take_if(|(_, running)| should_clone_ahead(socket, running)) {
            drop(running);
            idle = IdleInit::start(flags, &tools).ok();
        }
        match receive_launch(socket) {
            Ok(None) => return Ok(()),
            Ok(Some(message)) => {
                last = launch(&message, idle.take(), &tools).map(|init| (message.flags, init));
            }
            // A message that cannot be read is dropped, and its control socket closes: the daemon notices that.
            Err(Errno::INTR | Errno::BADMSG | Errno::MFILE | Errno::NFILE) => {}
            Err(why) => return Err(why),
        }
    }
}

/// Whether to clone an init for the next launch now: the last command has exited or has run for 20 ms, and no message
/// is waiting. Earlier, it would compete for the processor with the command that was just launched.
fn should_clone_ahead(socket: BorrowedFd<'_>, running: &OwnedFd) -> bool {
    let mut set = [PollFd::from_borrowed_fd(socket, PollFlags::IN), PollFd::new(running, PollFlags::IN)];
    let timeout = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let _ = rustix::event::poll(&mut set, Some(&timeout));
    set[0].revents().is_empty()
}

/// Forwards a launch message to an init and returns its pidfd. Init and the daemon need no spawner from then on.
fn launch(message: &LaunchMessage, idle: Option<IdleInit>, tools: &Tools) -> Option<OwnedFd> {
    let forward = |init: IdleInit| message.forward(&init.socket).map(|()| init);
    let fitting = idle.filter(|init| init.flags == message.flags);
    let launched = match fitting.map(forward) {
        Some(Ok(init)) => Ok(init),
        Some(Err(_)) | None => IdleInit::start(message.flags, tools).and_then(forward),
    };
    match launched {
        Ok(IdleInit { pidfd, .. }) => {
            let _ = send_init_started(message.control(), pidfd.as_fd());
            Some(pidfd)
        }
        Err(why) => {
            let error = LaunchError::new(LaunchStage::Sandbox, "cannot start a process", why);
            send_failed(message.control(), &error);
            None
        }
    }
}

/// An init that waits for its launch message. It exits if this is dropped before.
struct IdleInit {
    flags: NamespaceFlags,
    socket: OwnedFd,
    pidfd: OwnedFd,
}

impl IdleInit {
    fn start(flags: NamespaceFlags, tools: &Tools) -> Result<IdleInit, Errno> {
        let (socket, theirs) = socket_pair()?;
        // Read before the clone: in a new user namespace they read as the overflow ids until they are mapped.
        let ids = (rustix::process::geteuid(), rustix::process::getegid());
        match clone_into_namespaces(flags)? {
            Cloned::Child => {
                drop(socket);
                init::serve(flags, ids, theirs, tools)
            }
            Cloned::Parent { pidfd, .. } => Ok(IdleInit { flags, socket, pidfd }),
        }
    }
}
