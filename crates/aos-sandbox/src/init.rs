//! Init: the first process of a command. It sets up the sandbox, starts the command in it, reports how it exited, and
//! reaps its descendants.
//!
//! In a pid namespace it is process 1: the kernel kills the others when it exits. Without one it is the subreaper of
//! all descendants (PR_SET_CHILD_SUBREAPER) and kills them one by one. It is a child of the spawner and has one thread.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Pid, Signal, Uid, WaitOptions};

use crate::confine;
use crate::filter::Filters;
use crate::last_error;
use crate::links::{self, Listener};
use crate::mounts::{self, Parts};
use crate::processes::{descendants, reset_signals, sigchld_fd, signal_namespace, unblock_signals};
use crate::protocol::{
    ExitReport, InitRequest, LaunchFds, NamespaceFlags, receive_launch, send_exited, send_failed, socket_pair,
};
use crate::spec::{LaunchError, LaunchSpec, LaunchStage, PinnedPath};

/// What the spawner makes once, and every init needs.
pub(crate) struct Tools {
    pub(crate) filters: Filters,
    /// A user namespace that maps root's ids to nobody's, if we are root.
    pub(crate) nobody: Option<OwnedFd>,
}

/// Waits for a launch message, runs the command, and exits.
pub(crate) fn serve(flags: NamespaceFlags, ids: (Uid, Gid), socket: OwnedFd, tools: &Tools) -> ! {
    let prepared = prepare(flags, ids);
    // In a user namespace nothing can be mounted before the mount namespace, which is as the machine's is at the launch.
    let parts = if flags.namespaces && !flags.user { Parts::make().ok() } else { None };
    let message = loop {
        match receive_launch(&socket) {
            Ok(Some(message)) => break message,
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => exit(0),
        }
    };
    drop(socket);
    if let Ok((spec, fds)) = message.decode() {
        let control = fds.control.as_fd().try_clone_to_owned();
        if let (Err(error), Ok(control)) = (prepared.and_then(|()| run(&spec, fds, tools, parts)), control) {
            send_failed(&control, &error);
        }
    }
    exit(0)
}

fn run(
    spec: &LaunchSpec,
    fds: LaunchFds<OwnedFd>,
    tools: &Tools,
    parts: Option<Parts>,
) -> Result<(), LaunchError> {
    let LaunchFds { control, stdin, stdout, stderr, cgroups } = fds;
    set_up_sandbox(spec, &cgroups, parts, tools.nobody.as_ref())?;
    drop(cgroups);
    let exec_args = ExecArgs::new(spec)?;
    let child_signals = sigchld_fd().map_err(sandbox("cannot watch for children"))?;
    let streams = [stdin, stdout, stderr];
    let links = if links::is_needed(&spec.sandbox) { socket_pair().ok() } else { None };
    let command = start(&|| {
        let ask = links.as_ref().map(|(_, ours)| ours);
        let error = become_command(spec, &streams, &exec_args, &tools.filters, ask);
        send_failed(&control, &error);
    })
    .map_err(sandbox("cannot start a process"))?;
    // Only the command holds them now, so the daemon reads end of file when the command closes them.
    drop(streams);
    // The command has started, so its process has sent what it sends.
    let links = links.and_then(|(receiver, sender)| {
        drop(sender);
        links::receive(receiver)
    });
    let has_pid_namespace = spec.sandbox.namespaces.is_some();
    Supervisor { command, control, child_signals, links, has_pid_namespace }.supervise();
    Ok(())
}

fn sandbox(subject: &'static str) -> impl Fn(Errno) -> LaunchError {
    move |why| LaunchError::new(LaunchStage::Sandbox, subject, why)
}

/// The steps that need no launch spec.
fn prepare(flags: NamespaceFlags, ids: (Uid, Gid)) -> Result<(), LaunchError> {
    reset_signals().map_err(sandbox("cannot reset signals"))?;
    close_spawner_socket().map_err(sandbox("cannot close the spawner's socket"))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let _ = rustix::process::setpriority_process(None, 0);
    if flags.user {
        map_ids(ids).map_err(sandbox("cannot map the user into its namespace"))?;
    }
    if flags.network {
        bring_up_loopback();
    }
    if !flags.namespaces {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(sandbox("cannot become a subreaper"))?;
    }
    confine::limit_all().map_err(sandbox("cannot set limits"))?;
    confine::empty_bounding_set().map_err(sandbox("cannot empty the bounding set"))?;
    die_with_spawner(flags.namespaces)
}

/// Has the kernel kill this process when the spawner exits, which exits with the daemon. Without a pid namespace that would
/// leave the command's descendants behind: init reads the end of its socket instead, and kills them first.
fn die_with_spawner(has_pid_namespace: bool) -> Result<(), LaunchError> {
    let signal = has_pid_namespace.then_some(Signal::KILL);
    rustix::process::set_parent_process_death_signal(signal)
        .map_err(sandbox("cannot set the parent death signal"))
}

/// Everything but Landlock and seccomp, which the command's own process applies: cgroups, mounts, user, capabilities.
fn set_up_sandbox(
    spec: &LaunchSpec,
    cgroups: &[OwnedFd],
    parts: Option<Parts>,
    nobody: Option<&OwnedFd>,
) -> Result<(), LaunchError> {
    for group in cgroups {
        rustix::io::write(group, b"0").map_err(sandbox("cannot enter a cgroup"))?;
    }
    if let Some(namespaces) = &spec.sandbox.namespaces {
        if let Some(processes) = spec.limits.processes.filter(|_| !namespaces.user) {
            limit_pids(processes);
        }
        unshare_mounts().map_err(sandbox("cannot create a mount namespace"))?;
        if namespaces.view.is_in_overlay(&spec.cwd.path) {
            // overlayfs reports its own device and inode numbers, so the lower folder is checked before it is mounted.
            check_cwd(&spec.cwd)?;
        }
        mounts::build(&namespaces.view, parts, namespaces.user, spec.user, nobody)?;
    }
    confine::drop_privileges(spec.user).map_err(sandbox("cannot drop privileges"))?;
    // setresuid clears the parent death signal.
    die_with_spawner(spec.sandbox.namespaces.is_some())?;
    // The command may run with our uid; without this it could ptrace us.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(sandbox("cannot clear the dumpable flag"))
}

#[expect(
    unsafe_code,
    reason = "unshare is unsafe where threads share what it unshares; this process has one thread"
)]
fn unshare_mounts() -> Result<(), Errno> {
    // SAFETY: this process has one thread, which shares nothing with others but its mounts.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
}

/// The arguments of execve, allocated before the fork: the child must not allocate.
struct ExecArgs {
    argv: Vec<CString>,
    env: Vec<CString>,
    /// Paths of the program to try, in this order.
    programs: Vec<CString>,
}

impl ExecArgs {
    fn new(spec: &LaunchSpec) -> Result<ExecArgs, LaunchError> {
        let has_nul =
            |_| LaunchError::new(LaunchStage::Program, "an argument contains a NUL byte", Errno::INVAL);
        let all = |texts: &[String]| texts.iter().map(|text| CString::new(text.as_str())).collect();
        let argv: Result<Vec<CString>, _> = all(&spec.argv);
        let env: Result<Vec<CString>, _> = all(&spec.env);
        let programs = match &spec.program {
            Some(program) => vec![program.clone()],
            None => spec.argv.first().map_or_else(Vec::new, |program| candidates(program, &spec.env)),
        };
        let programs: Result<Vec<CString>, _> = programs.into_iter().map(CString::new).collect();
        Ok(ExecArgs {
            argv: argv.map_err(has_nul)?,
            env: env.map_err(has_nul)?,
            programs: programs.map_err(has_nul)?,
        })
    }
}

/// A bare name is searched on the command's own PATH; a name with a slash is used as a path.
fn candidates(program: &str, env: &[String]) -> Vec<Vec<u8>> {
    if program.is_empty() || program.contains('/') {
        return vec![program.as_bytes().to_vec()];
    }
    let path = env.iter().find_map(|pair| pair.strip_prefix("PATH=")).unwrap_or(crate::PATH_DEFAULT);
    let in_folder = |folder: &str| {
        let folder = if folder.is_empty() { "." } else { folder };
        format!("{folder}/{program}").into_bytes()
    };
    path.split(':').map(in_folder).collect()
}

/// Runs in the child: executes the program, or returns why it could not.
fn become_command(
    spec: &LaunchSpec,
    streams: &[OwnedFd; 3],
    exec_args: &ExecArgs,
    filters: &Filters,
    ask_about_links: Option<&OwnedFd>,
) -> LaunchError {
    let sandbox = |subject: &str, why| LaunchError::new(LaunchStage::Sandbox, subject, why);
    // Init blocks SIGCHLD and reads it from a signalfd; the command must not inherit that mask.
    if let Err(why) = unblock_signals() {
        return sandbox("cannot unblock signals", why);
    }
    let _ = rustix::process::setsid();
    if spec.sandbox.namespaces.is_none() {
        // Without a pid namespace the command would outlive an init that was killed.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    }
    let [stdin, stdout, stderr] = streams;
    let placed = rustix::stdio::dup2_stdin(stdin)
        .and_then(|()| rustix::stdio::dup2_stdout(stdout))
        .and_then(|()| rustix::stdio::dup2_stderr(stderr));
    if let Err(why) = placed {
        return sandbox("cannot set up standard input and output", why);
    }
    if !exec_args.argv.is_empty()
        && let Err(error) = enter_cwd(spec)
    {
        return error;
    }
    if let Err(why) = confine::limit(&spec.limits, &spec.sandbox) {
        return sandbox("cannot set limits", why);
    }
    if let Err((subject, why)) = confine::restrict_self(&spec.sandbox, filters) {
        return sandbox(subject, why);
    }
    ask_about_links.into_iter().for_each(links::ask_init);
    if exec_args.argv.is_empty() { exit(0) } else { execute(exec_args) }
}

/// Changes to the working directory and checks that it is the one that the policy was checked for.
fn enter_cwd(spec: &LaunchSpec) -> Result<(), LaunchError> {
    let cwd = &spec.cwd;
    let failed = |why| LaunchError::new(LaunchStage::Cwd, aos_model::path::show(&cwd.path), why);
    let path: &[u8] = if cwd.path.is_empty() { b"/" } else { &cwd.path };
    let namespaces = spec.sandbox.namespaces.as_ref();
    if namespaces.is_some_and(|namespaces| namespaces.view.is_in_overlay(&cwd.path)) {
        let folder = open_without_links(path).map_err(failed)?;
        return rustix::process::fchdir(folder).map_err(failed);
    }
    rustix::process::chdir(path).map_err(failed)?;
    check_inode(rustix::fs::stat(".").map_err(failed)?, cwd)
}

/// Checks that the path still leads to the pinned folder.
fn check_cwd(cwd: &PinnedPath) -> Result<(), LaunchError> {
    let failed = |why| LaunchError::new(LaunchStage::Cwd, aos_model::path::show(&cwd.path), why);
    let folder = open_without_links(&cwd.path).map_err(failed)?;
    check_inode(rustix::fs::fstat(folder).map_err(failed)?, cwd)
}

fn check_inode(found: rustix::fs::Stat, cwd: &PinnedPath) -> Result<(), LaunchError> {
    if (found.st_dev, found.st_ino) != (cwd.dev, cwd.ino) {
        return Err(LaunchError::new(LaunchStage::Cwd, aos_model::path::show(&cwd.path), Errno::STALE));
    }
    Ok(())
}

/// Opens a folder; a symbolic link on the path is an error.
fn open_without_links(path: &[u8]) -> Result<OwnedFd, Errno> {
    use rustix::fs::{OFlags, ResolveFlags};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(rustix::fs::CWD, path, flags, rustix::fs::Mode::empty(), resolve)
}

/// Tries each path in turn, as execvp does; returns only when none could be executed.
#[expect(unsafe_code, reason = "no safe crate calls execve with arguments allocated beforehand")]
fn execute(exec_args: &ExecArgs) -> LaunchError {
    let pointers = |list: &[CString]| {
        let mut pointers: Vec<*const libc::c_char> = list.iter().map(|text| text.as_ptr()).collect();
        pointers.push(std::ptr::null());
        pointers
    };
    let (argv, env) = (pointers(&exec_args.argv), pointers(&exec_args.env));
    let mut worst = Errno::NOENT;
    for program in &exec_args.programs {
        // SAFETY: all three are strings that end in NUL and lists that end in null, and they outlive the call.
        unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
        match last_error() {
            Errno::NOENT | Errno::NOTDIR => {}
            why @ (Errno::ACCESS | Errno::PERM) => worst = why,
            why => {
                worst = why;
                break;
            }
        }
    }
    let shown: String = exec_args.argv[0].to_string_lossy().chars().take(200).collect();
    LaunchError::new(LaunchStage::Program, aos_model::text::escape(&shown), worst)
}

/// Init's work while the command runs.
struct Supervisor {
    command: Pid,
    control: OwnedFd,
    /// A signalfd for SIGCHLD.
    child_signals: OwnedFd,
    /// Where hard links ask first.
    links: Option<Listener>,
    /// Without one, the descendants to signal are found in /proc.
    has_pid_namespace: bool,
}

impl Supervisor {
    /// Returns when no child is left, or when exiting ends the pid namespace.
    fn supervise(mut self) {
        let mut killing = false;
        while self.reap() {
            let mut ready = vec![
                PollFd::new(&self.control, PollFlags::IN),
                PollFd::new(&self.child_signals, PollFlags::IN),
            ];
            ready.extend(self.links.as_ref().map(|links| PollFd::new(links, PollFlags::IN)));
            // While killing, look again soon: a process may have forked since /proc was read.
            let soon = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            let _ = rustix::event::poll(&mut ready, killing.then_some(&soon));
            let (request, child) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
            let link = ready.get(2).map_or(PollFlags::empty(), PollFd::revents);
            if link.contains(PollFlags::IN) {
                self.links.iter().for_each(Listener::answer);
            } else if !link.is_empty() {
                // Every process that could ask has exited.
                self.links = None;
            }
            if child {
                let _ = rustix::io::read(&self.child_signals, &mut [0_u8; 1024]);
            }
            if request && !killing {
                match self.receive_request() {
                    Some(InitRequest::Interrupt) => {
                        let _ = rustix::process::kill_process_group(self.command, Signal::INT);
                    }
                    Some(InitRequest::Terminate) => {
                        self.signal_all(Signal::TERM);
                        self.signal_all(Signal::CONT);
                    }
                    // `None`: the daemon is gone. Exiting as process 1 kills the whole namespace.
                    Some(InitRequest::Kill) | None if self.has_pid_namespace => return,
                    Some(InitRequest::Kill) | None => killing = true,
                }
            }
            if killing {
                self.signal_all(Signal::KILL);
            }
        }
    }

    fn receive_request(&self) -> Option<InitRequest> {
        let mut byte = [0; 1];
        match rustix::net::recv(&self.control, &mut byte, rustix::net::RecvFlags::empty()) {
            Ok((1, _)) if byte[0] == InitRequest::Interrupt as u8 => Some(InitRequest::Interrupt),
            Ok((1, _)) if byte[0] == InitRequest::Terminate as u8 => Some(InitRequest::Terminate),
            Ok((1, _)) => Some(InitRequest::Kill),
            _ => None,
        }
    }

    /// Reaps dead children and reports the command's exit. False when no child is left.
    fn reap(&mut self) -> bool {
        let mut ended = None;
        let left = loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.command => ended = Some(status.as_raw()),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        if let Some(status) = ended {
            send_exited(&self.control, ExitReport { status, all_exited: !left });
        }
        left
    }

    fn signal_all(&self, signal: Signal) {
        if self.has_pid_namespace {
            let _ = signal_namespace(signal);
            return;
        }
        for pid in descendants() {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: `_exit` only ends this process; it runs no exit handlers.
    #[expect(unsafe_code, reason = "std's exit runs the handlers of the process that was cloned")]
    unsafe {
        libc::_exit(code)
    }
}

/// The stack of the child between clone and execve, with room to spare.
const STACK_BYTES: usize = 256 << 10;

/// Starts a child that runs `go`, which executes a program or returns on failure. Until then this process is suspended
/// and the child uses its memory (vfork): that saves copying page tables which execve would discard.
#[expect(unsafe_code, reason = "no safe crate has clone")]
fn start(go: &dyn Fn()) -> Result<Pid, Errno> {
    extern "C" fn child(go: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the parent made this pointer from a reference that is valid while it is suspended.
        let go = unsafe { &*go.cast::<&dyn Fn()>() };
        go();
        exit(0)
    }
    let mut stack = vec![0_u8; STACK_BYTES];
    let top = stack.as_mut_ptr_range().end.map_addr(|end| end & !15);
    let argument = std::ptr::from_ref(&go).cast_mut().cast();
    // SAFETY: the stack is the child's alone and large enough; CLONE_VFORK keeps this thread, the only one, from running
    // until the child has executed a program or exited, so no other thread touches the shared memory.
    let pid = unsafe {
        libc::clone(child, top.cast(), libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, argument)
    };
    Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(last_error)
}

/// Standard input is the spawner's socket; /dev/null replaces it.
fn close_spawner_socket() -> Result<(), Errno> {
    rustix::stdio::dup2_stdin(rustix::stdio::stdout())
}

/// Maps uid and gid to themselves. Until then, a process in a new user namespace has the overflow ids (65534).
fn map_ids((uid, gid): (Uid, Gid)) -> Result<(), Errno> {
    let (uid, gid) = (uid.as_raw(), gid.as_raw());
    // The /proc entries of a process that is not dumpable belong to root.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    write_to("/proc/self/setgroups", "deny")?;
    write_to("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
    write_to("/proc/self/gid_map", &format!("{gid} {gid} 1"))
}

fn write_to(path: &str, text: &str) -> Result<(), Errno> {
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    rustix::io::write(file, text.as_bytes()).map(drop)
}

/// Test suites use 127.0.0.1 even where there is no other network.
#[expect(unsafe_code, reason = "no safe crate has this ioctl")]
fn bring_up_loopback() {
    let Ok(socket) =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
    else {
        return;
    };
    // SAFETY: a request of the size the kernel expects, whose name ends in NUL; both calls only read and write it.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request);
    }
}

/// Limits the pids of the namespace. The kernel accepts no less than 301. The setting is per pid
/// namespace since Linux 6.14.
fn limit_pids(processes: u64) {
    let _ = write_to("/proc/sys/kernel/pid_max", &processes.saturating_add(2).max(301).to_string());
}
