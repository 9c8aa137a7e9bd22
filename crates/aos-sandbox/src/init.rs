//! Init: the first process of a command. It puts up the sandbox, starts the command in them, tells how it ended, and
//! reaps what the command leaves behind.
//!
//! In a pid namespace it is process 1: when it goes, all go. Without one it is the subreaper of all that the command
//! starts, and ends them one by one. It runs in a child of the spawner, which has one thread.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Pid, Signal, Uid, WaitOptions};

use crate::confine;
use crate::filter::Filters;
use crate::last_error;
use crate::mounts;
use crate::order::{
    Ask, Cell, Ended, Handed, Order, Pinned, Stage, Trouble, receive_parcel, say_ended, say_failed,
};

/// Waits for an order, runs it, and never comes back.
pub(crate) fn serve(cell: Cell, ids: (Uid, Gid), socket: OwnedFd, filters: &Filters) -> ! {
    let ready = get_ready(cell, ids);
    let parcel = loop {
        match receive_parcel(&socket) {
            Ok(Some(parcel)) => break parcel,
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => exit(0),
        }
    };
    drop(socket);
    if let Ok((order, handed)) = parcel.open() {
        let line = handed.line.as_fd().try_clone_to_owned();
        if let (Err(trouble), Ok(line)) = (ready.and_then(|()| run(&order, handed, filters)), line) {
            say_failed(&line, &trouble);
        }
    }
    exit(0)
}

fn run(order: &Order, handed: Handed<OwnedFd>, filters: &Filters) -> Result<(), Trouble> {
    let Handed { line, stdin, stdout, stderr, cgroups } = handed;
    put_up_walls(order, &cgroups)?;
    drop(cgroups);
    let words = Words::of(order)?;
    let signals = children_as_descriptor().map_err(sandbox("cannot watch for children"))?;
    let streams = [stdin, stdout, stderr];
    let command = start(&|| {
        let trouble = become_command(order, &streams, &words, filters);
        say_failed(&line, &trouble);
    })
    .map_err(sandbox("cannot make a process"))?;
    // Held by the command alone from here on: when it lets go, the daemon sees the end of its output.
    drop(streams);
    Tending { command, line, signals, alone: order.sandbox.namespaces.is_none() }.tend();
    Ok(())
}

fn sandbox(subject: &'static str) -> impl Fn(Errno) -> Trouble {
    move |why| Trouble::new(Stage::Sandbox, subject, why)
}

/// What can be done before there is an order.
fn get_ready(cell: Cell, ids: (Uid, Gid)) -> Result<(), Trouble> {
    reset_signals().map_err(sandbox("cannot reset signals"))?;
    forget_spawner_socket().map_err(sandbox("cannot let go of the spawner's socket"))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let _ = rustix::process::setpriority_process(None, 0);
    if cell.user {
        map_ids(ids).map_err(sandbox("cannot map the user into its namespace"))?;
    }
    if cell.network {
        raise_loopback();
    }
    if !cell.namespaces {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(sandbox("cannot become the reaper of the command's children"))?;
    }
    confine::limit_all().map_err(sandbox("cannot set limits"))?;
    follow_spawner()
}

/// Dies with the spawner, which dies with the daemon.
fn follow_spawner() -> Result<(), Trouble> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(sandbox("cannot follow the spawner"))
}

/// All that is done once, before there is a command: view, user, capabilities.
fn put_up_walls(order: &Order, cgroups: &[OwnedFd]) -> Result<(), Trouble> {
    for group in cgroups {
        rustix::io::write(group, b"0").map_err(sandbox("cannot enter a cgroup"))?;
    }
    if let Some(namespaces) = &order.sandbox.namespaces {
        if let Some(processes) = order.limits.processes.filter(|_| !namespaces.user) {
            limit_pids(processes);
        }
        own_mounts().map_err(sandbox("cannot have own mounts"))?;
        if namespaces.view.is_over(&order.cwd.path) {
            // Over an overlay it is another folder to look at; below it, it must be the one that was judged.
            compare(&order.cwd)?;
        }
        mounts::build(&namespaces.view, namespaces.user)?;
    }
    confine::drop_privileges(order.user).map_err(sandbox("cannot give up privileges"))?;
    // The change of user has cleared it.
    follow_spawner()?;
    // The command has our uid and must not become us.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(sandbox("cannot become undumpable"))
}

#[expect(unsafe_code, reason = "leaving what is shared is unsafe where there are threads; here is one")]
fn own_mounts() -> Result<(), Errno> {
    // SAFETY: this process has one thread, which shares nothing with others but its mounts.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
}

/// The command's own words, made before the fork: nothing can fail between it and the program.
struct Words {
    argv: Vec<CString>,
    env: Vec<CString>,
    /// Where the program may be, in the order of trying.
    programs: Vec<CString>,
}

impl Words {
    fn of(order: &Order) -> Result<Words, Trouble> {
        let broken = |_| Trouble::new(Stage::Program, "a word holds a NUL byte", Errno::INVAL);
        let all = |words: &[String]| words.iter().map(|word| CString::new(word.as_str())).collect();
        let argv: Result<Vec<CString>, _> = all(&order.argv);
        let env: Result<Vec<CString>, _> = all(&order.env);
        let programs = match &order.program {
            Some(program) => vec![program.clone()],
            None => order.argv.first().map_or_else(Vec::new, |program| candidates(program, &order.env)),
        };
        let programs: Result<Vec<CString>, _> = programs.into_iter().map(CString::new).collect();
        Ok(Words {
            argv: argv.map_err(broken)?,
            env: env.map_err(broken)?,
            programs: programs.map_err(broken)?,
        })
    }
}

/// A bare name is looked up on the command's own PATH; one with a slash is what it says.
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

/// In the child: becomes the command, or says why not.
fn become_command(order: &Order, streams: &[OwnedFd; 3], words: &Words, filters: &Filters) -> Trouble {
    let sandbox = |subject: &str, why| Trouble::new(Stage::Sandbox, subject, why);
    // Init waits for its children by a descriptor and holds their signal back; the command must not inherit that.
    if let Err(why) = reset_signals() {
        return sandbox("cannot reset signals", why);
    }
    let _ = rustix::process::setsid();
    if order.sandbox.namespaces.is_none() {
        // Should init be killed after all, the command does not outlive it.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    }
    let [stdin, stdout, stderr] = streams;
    let placed = rustix::stdio::dup2_stdin(stdin)
        .and_then(|()| rustix::stdio::dup2_stdout(stdout))
        .and_then(|()| rustix::stdio::dup2_stderr(stderr));
    if let Err(why) = placed {
        return sandbox("cannot give the command its streams", why);
    }
    if !words.argv.is_empty()
        && let Err(trouble) = enter(order)
    {
        return trouble;
    }
    if let Err(why) = confine::limit(&order.limits, &order.sandbox) {
        return sandbox("cannot set limits", why);
    }
    if let Err((subject, why)) = confine::enter_sandbox(&order.sandbox, filters) {
        return sandbox(subject, why);
    }
    if words.argv.is_empty() { exit(0) } else { execute(words) }
}

/// Goes to the folder and makes sure that it is the one that was judged.
fn enter(order: &Order) -> Result<(), Trouble> {
    let cwd = &order.cwd;
    let trouble = |why| Trouble::new(Stage::Cwd, aos_model::path::show(&cwd.path), why);
    let path: &[u8] = if cwd.path.is_empty() { b"/" } else { &cwd.path };
    let over = order.sandbox.namespaces.as_ref().is_some_and(|namespaces| namespaces.view.is_over(&cwd.path));
    if over {
        let folder = open_plainly(path).map_err(trouble)?;
        return rustix::process::fchdir(folder).map_err(trouble);
    }
    rustix::process::chdir(path).map_err(trouble)?;
    is_judged(rustix::fs::stat(".").map_err(trouble)?, cwd)
}

/// Whether the folder at the path is still the one that was judged.
fn compare(cwd: &Pinned) -> Result<(), Trouble> {
    let trouble = |why| Trouble::new(Stage::Cwd, aos_model::path::show(&cwd.path), why);
    let folder = open_plainly(&cwd.path).map_err(trouble)?;
    is_judged(rustix::fs::fstat(folder).map_err(trouble)?, cwd)
}

fn is_judged(here: rustix::fs::Stat, cwd: &Pinned) -> Result<(), Trouble> {
    if (here.st_dev, here.st_ino) != (cwd.dev, cwd.ino) {
        return Err(Trouble::new(Stage::Cwd, aos_model::path::show(&cwd.path), Errno::STALE));
    }
    Ok(())
}

/// A folder, with no link on the way to it.
fn open_plainly(path: &[u8]) -> Result<OwnedFd, Errno> {
    use rustix::fs::{OFlags, ResolveFlags};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(rustix::fs::CWD, path, flags, rustix::fs::Mode::empty(), resolve)
}

/// Tries each place in turn, as shells do; returns only when none could be run.
#[expect(unsafe_code, reason = "no safe crate replaces a process with words made beforehand")]
fn execute(words: &Words) -> Trouble {
    let pointers = |list: &[CString]| {
        let mut pointers: Vec<*const libc::c_char> = list.iter().map(|word| word.as_ptr()).collect();
        pointers.push(std::ptr::null());
        pointers
    };
    let (argv, env) = (pointers(&words.argv), pointers(&words.env));
    let mut worst = Errno::NOENT;
    for program in &words.programs {
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
    let shown: String = words.argv[0].to_string_lossy().chars().take(200).collect();
    Trouble::new(Stage::Program, aos_model::text::escape(&shown), worst)
}

/// Init's work while the command runs.
struct Tending {
    command: Pid,
    line: OwnedFd,
    signals: OwnedFd,
    /// No pid namespace: ending all takes finding them.
    alone: bool,
}

impl Tending {
    fn tend(mut self) {
        let mut killing = false;
        // Nobody is left: then init is not needed either.
        while self.reap() {
            let mut ready =
                [PollFd::new(&self.line, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
            // Who kills looks again soon: what is being killed may be forking.
            let soon = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            let _ = rustix::event::poll(&mut ready, killing.then_some(&soon));
            let (asked, child) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
            if child {
                let _ = rustix::io::read(&self.signals, &mut [0_u8; 1024]);
            }
            if asked && !killing {
                match self.asked() {
                    Some(Ask::Interrupt) => {
                        let _ = rustix::process::kill_process_group(self.command, Signal::INT);
                    }
                    Some(Ask::Terminate) => {
                        self.signal_all(Signal::TERM);
                        self.signal_all(Signal::CONT);
                    }
                    Some(Ask::Kill) if self.alone => killing = true,
                    // The daemon is gone, or wants all to go.
                    Some(Ask::Kill) | None if !self.alone => return,
                    Some(Ask::Kill) | None => killing = true,
                }
            }
            if killing {
                self.signal_all(Signal::KILL);
            }
        }
    }

    fn asked(&self) -> Option<Ask> {
        let mut word = [0; 1];
        match rustix::net::recv(&self.line, &mut word, rustix::net::RecvFlags::empty()) {
            Ok((1, _)) if word[0] == Ask::Interrupt as u8 => Some(Ask::Interrupt),
            Ok((1, _)) if word[0] == Ask::Terminate as u8 => Some(Ask::Terminate),
            Ok((1, _)) => Some(Ask::Kill),
            _ => None,
        }
    }

    /// Reaps who is dead, and tells when the command was among them. False when no child is left.
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
            say_ended(&self.line, Ended { status, is_all: !left });
        }
        left
    }

    fn signal_all(&self, signal: Signal) {
        if !self.alone {
            let _ = signal_everyone(signal);
            return;
        }
        for pid in descendants() {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Everyone in the pid namespace but this process.
#[expect(unsafe_code, reason = "no safe crate has the pid -1 of kill")]
fn signal_everyone(signal: Signal) -> Result<(), Errno> {
    // SAFETY: plain numbers. In a namespace of its own, -1 reaches only the command's processes.
    if unsafe { libc::kill(-1, signal.as_raw()) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// All processes below this one, by what /proc says of their parents.
fn descendants() -> Vec<Pid> {
    let mut parents: Vec<(i32, i32)> = Vec::new();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let Ok(proc) = rustix::fs::open("/proc", flags, rustix::fs::Mode::empty()) else { return Vec::new() };
    let Ok(listing) = rustix::fs::Dir::read_from(&proc) else { return Vec::new() };
    for entry in listing.flatten() {
        let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent_of(&proc, pid) {
            parents.push((pid, parent));
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

/// The parent in `/proc/PID/stat`: the second word after the name, which ends with the last bracket.
pub(crate) fn parent_of(proc: &OwnedFd, pid: i32) -> Option<i32> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::openat(proc, format!("{pid}/stat"), flags, rustix::fs::Mode::empty()).ok()?;
    let mut text = [0_u8; 512];
    let length = rustix::io::read(file, &mut text).ok()?;
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this process without running what its parent registered for its own end.
    #[expect(unsafe_code, reason = "std's exit runs the handlers of the process that was cloned")]
    unsafe {
        libc::_exit(code)
    }
}

/// How much of a stack the way from init to the program needs, with room to spare.
const STACK_BYTES: usize = 256 << 10;

/// Starts a child that runs `go`, which ends in another program or comes back to end here. Until then this process
/// stands still and the child uses its memory: that saves a copy which would be thrown away at once.
#[expect(unsafe_code, reason = "no safe crate has clone")]
fn start(go: &dyn Fn()) -> Result<Pid, Errno> {
    extern "C" fn child(go: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the parent made this pointer from a reference that lives as long as it stands still.
        let go = unsafe { &*go.cast::<&dyn Fn()>() };
        go();
        exit(0)
    }
    let mut stack = vec![0_u8; STACK_BYTES];
    let top = stack.as_mut_ptr_range().end.map_addr(|end| end & !15);
    let argument = std::ptr::from_ref(&go).cast_mut().cast();
    // SAFETY: the stack is the child's alone and large enough; CLONE_VFORK keeps this thread, the only one, from running
    // until the child has another program or is gone, so nobody else touches what they share.
    let pid = unsafe {
        libc::clone(child, top.cast(), libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, argument)
    };
    Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(last_error)
}

/// Lets children of the spawner go without a trace.
#[expect(unsafe_code, reason = "no safe crate ignores a signal")]
pub(crate) fn ignore_children() -> Result<(), Errno> {
    // SAFETY: ignoring a signal runs no code of ours.
    if unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) } == libc::SIG_ERR {
        Err(last_error())
    } else {
        Ok(())
    }
}

/// Every signal does what it does in a fresh process, and none is blocked.
#[expect(unsafe_code, reason = "no safe crate resets signals")]
fn reset_signals() -> Result<(), Errno> {
    // SAFETY: the default action runs no code of ours; the set is filled by the call before it is used.
    unsafe {
        for signal in 1..=64 {
            // Two cannot be changed and two belong to the C library; they refuse, and keep their default.
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        if libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) != 0 {
            return Err(last_error());
        }
    }
    Ok(())
}

/// A descriptor that is ready when a child has died.
#[expect(unsafe_code, reason = "no safe crate has signalfd")]
fn children_as_descriptor() -> Result<OwnedFd, Errno> {
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

/// Its standard input is the spawner's socket; what stays instead is nothing.
fn forget_spawner_socket() -> Result<(), Errno> {
    rustix::stdio::dup2_stdin(rustix::stdio::stdout())
}

/// In a user namespace of its own a process is nobody until its ids are mapped, each to itself.
fn map_ids((uid, gid): (Uid, Gid)) -> Result<(), Errno> {
    let (uid, gid) = (uid.as_raw(), gid.as_raw());
    // Its /proc entries are root's while it is not dumpable.
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

/// Test suites talk to themselves over 127.0.0.1, also where there is no other network.
#[expect(unsafe_code, reason = "no safe crate has this ioctl")]
fn raise_loopback() {
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

/// The kernel numbers at least 301 processes in a namespace; older ones number as many as the machine.
fn limit_pids(processes: u64) {
    let _ = write_to("/proc/sys/kernel/pid_max", &processes.saturating_add(2).max(301).to_string());
}
