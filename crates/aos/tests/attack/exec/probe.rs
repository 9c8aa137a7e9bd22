//! The part of this program that runs as the command: it makes system calls and prints the kernel's answers.

#![allow(unsafe_code, reason = "the calls that a command must not make are made here as they are")]

use std::ffi::{CString, c_long};
use std::io::Write as _;
use std::process::ExitCode;

/// The variable that names the question; where it is set, this program is only a probe.
pub const QUESTION: &str = "AOS_ATTACK_PROBE";

/// Answers the question in the environment, if there is one.
pub fn main() -> Option<ExitCode> {
    let question = std::env::var(QUESTION).ok()?;
    match question.as_str() {
        "calls" => calls(),
        "needed" => needed(),
        "descriptors" => descriptors(),
        "terminal" => terminal(),
        "abstract" => abstract_socket(),
        other => println!("no question is called {other}"),
    }
    Some(ExitCode::SUCCESS)
}

/// A raw system call by number.
fn raw(number: c_long, arguments: [usize; 6]) -> Result<c_long, i32> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: every pointer passed here is null or of a value that outlives the call.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if answer == -1 { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(answer) }
}

fn name(errno: i32) -> String {
    let known = [
        (libc::EPERM, "EPERM"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::EACCES, "EACCES"),
        (libc::EINVAL, "EINVAL"),
        (libc::EBADF, "EBADF"),
        (libc::ESRCH, "ESRCH"),
        (libc::EFAULT, "EFAULT"),
        (libc::ENOENT, "ENOENT"),
        (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
        (libc::ENODEV, "ENODEV"),
        (libc::EIO, "EIO"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ENXIO, "ENXIO"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::EROFS, "EROFS"),
    ];
    let found = known.iter().find(|(number, _)| *number == errno);
    found.map_or_else(|| format!("errno-{errno}"), |(_, name)| (*name).to_owned())
}

/// None of these calls does harm where it is allowed: the arguments are invalid or change nothing.
fn calls() {
    let zeros = [0_u8; 256];
    let (null, buffer) = (0, zeros.as_ptr() as usize);
    let text = |text: &str| CString::new(text).expect("no NUL in it").into_raw() as usize;
    let nowhere = text("/nowhere-at-all");
    let here = text(".");
    let namespace =
        rustix::fs::open("/proc/self/ns/mnt", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
    let namespace = namespace.map_or(usize::MAX, |fd| std::os::fd::IntoRawFd::into_raw_fd(fd) as usize);
    let cwd = libc::AT_FDCWD as usize;
    let device = libc::makedev(1, 5) as usize;
    let tries: &[(&str, c_long, [usize; 6])] = &[
        ("io_uring_setup", libc::SYS_io_uring_setup, [8, buffer, 0, 0, 0, 0]),
        ("io_uring_enter", libc::SYS_io_uring_enter, [usize::MAX, 0, 0, 0, 0, 0]),
        ("io_uring_register", libc::SYS_io_uring_register, [usize::MAX, 0, 0, 0, 0, 0]),
        ("add_key", libc::SYS_add_key, [text("user"), text("aos"), buffer, 1, -5_isize as usize, 0]),
        ("keyctl", libc::SYS_keyctl, [0, -5_isize as usize, 0, 0, 0, 0]),
        ("request_key", libc::SYS_request_key, [text("user"), text("aos"), null, 0, 0, 0]),
        ("mount", libc::SYS_mount, [text("none"), nowhere, text("tmpfs"), 0, null, 0]),
        ("umount2", libc::SYS_umount2, [nowhere, 0, 0, 0, 0, 0]),
        ("pivot_root", libc::SYS_pivot_root, [nowhere, nowhere, 0, 0, 0, 0]),
        ("fsopen", libc::SYS_fsopen, [text("tmpfs"), 0, 0, 0, 0, 0]),
        ("open_tree", libc::SYS_open_tree, [cwd, here, 1, 0, 0, 0]),
        ("move_mount", libc::SYS_move_mount, [usize::MAX, nowhere, usize::MAX, nowhere, 0, 0]),
        ("fsmount", libc::SYS_fsmount, [usize::MAX, 0, 0, 0, 0, 0]),
        ("mount_setattr", libc::SYS_mount_setattr, [cwd, nowhere, 0, buffer, 32, 0]),
        ("unshare", libc::SYS_unshare, [libc::CLONE_NEWNS as usize, 0, 0, 0, 0, 0]),
        ("setns", libc::SYS_setns, [namespace, 0, 0, 0, 0, 0]),
        ("chroot", libc::SYS_chroot, [text("/"), 0, 0, 0, 0, 0]),
        ("mknod", libc::SYS_mknodat, [cwd, text("device"), (libc::S_IFCHR | 0o666) as usize, device, 0, 0]),
        ("bpf", libc::SYS_bpf, [5, buffer, 120, 0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [0; 6]),
        ("kexec_load", libc::SYS_kexec_load, [0, 0, null, 0, 0, 0]),
        ("init_module", libc::SYS_init_module, [buffer, 0, buffer, 0, 0, 0]),
        ("delete_module", libc::SYS_delete_module, [text("nothing_at_all"), 0, 0, 0, 0, 0]),
        ("reboot", libc::SYS_reboot, [0; 6]),
        ("swapon", libc::SYS_swapon, [nowhere, 0, 0, 0, 0, 0]),
        ("swapoff", libc::SYS_swapoff, [nowhere, 0, 0, 0, 0, 0]),
        ("settimeofday", libc::SYS_settimeofday, [null, null, 0, 0, 0, 0]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, [cwd, buffer, 0, 0, 0, 0]),
        ("vsock", libc::SYS_socket, [libc::AF_VSOCK as usize, libc::SOCK_STREAM as usize, 0, 0, 0, 0]),
        ("packet", libc::SYS_socket, [libc::AF_PACKET as usize, libc::SOCK_RAW as usize, 0, 0, 0, 0]),
        ("ptrace_of_the_first", libc::SYS_ptrace, [libc::PTRACE_SEIZE as usize, 1, 0, 0, 0, 0]),
        ("setuid", libc::SYS_setresuid, [31_337, 31_337, 31_337, 0, 0, 0]),
        ("setgroups", libc::SYS_setgroups, [1, buffer, 0, 0, 0, 0]),
    ];
    for (what, number, arguments) in tries {
        match raw(*number, *arguments) {
            Ok(_) => println!("{what} ok"),
            Err(errno) => println!("{what} {}", name(errno)),
        }
    }
}

/// What compilers, runtimes and test suites use all the time.
fn needed() {
    let tell = |what: &str, works: bool| println!("{what} {}", if works { "ok" } else { "fails" });
    tell("socketpair", std::os::unix::net::UnixStream::pair().is_ok());
    let listener = std::os::unix::net::UnixListener::bind("/tmp/probe.sock");
    tell(
        "unix socket",
        listener.is_ok() && std::os::unix::net::UnixStream::connect("/tmp/probe.sock").is_ok(),
    );
    tell("thread", std::thread::spawn(|| 1).join().is_ok_and(|one| one == 1));
    let child = std::process::Command::new("true").status();
    tell("child", child.is_ok_and(|status| status.success()));
    tell("memfd", raw(libc::SYS_memfd_create, [c"m".as_ptr() as usize, 0, 0, 0, 0, 0]).is_ok());
    tell("eventfd", raw(libc::SYS_eventfd2, [0; 6]).is_ok());
    tell("epoll", raw(libc::SYS_epoll_create1, [0; 6]).is_ok());
    tell("inotify", raw(libc::SYS_inotify_init1, [0; 6]).is_ok());
    tell("timerfd", raw(libc::SYS_timerfd_create, [0; 6]).is_ok());
    tell("pidfd", raw(libc::SYS_pidfd_open, [std::process::id() as usize, 0, 0, 0, 0, 0]).is_ok());
    let executable = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as usize;
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    tell("executable memory", raw(libc::SYS_mmap, [0, 4096, executable, private, usize::MAX, 0]).is_ok());
    tell("rename", std::fs::write("needed", "x").and_then(|()| std::fs::rename("needed", "needed2")).is_ok());
    tell("hard link", std::fs::hard_link("needed2", "needed3").is_ok());
    tell(
        "across folders",
        std::fs::create_dir("sub").and_then(|()| std::fs::rename("needed3", "sub/n")).is_ok(),
    );
    tell("link across folders", std::fs::hard_link("needed2", "sub/m").is_ok());
    tell("symlink", std::os::unix::fs::symlink("needed2", "needed4").is_ok());
    let file = std::fs::File::open("needed2");
    tell(
        "lock",
        file.is_ok_and(|file| rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).is_ok()),
    );
    tell("shared memory", std::fs::write("/dev/shm/probe", "x").is_ok());
    tell("priority", raw(libc::SYS_setpriority, [0, 0, 5, 0, 0, 0]).is_ok());
    tell("affinity", std::thread::available_parallelism().is_ok());
    tell("personality", raw(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]).is_ok());
    tell("loopback", std::net::TcpListener::bind("127.0.0.1:0").is_ok());
    let _ = std::io::stdout().flush();
}

fn descriptors() {
    for entry in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        println!("{} {}", entry.file_name().to_string_lossy(), target.display());
    }
}

/// Whether there is a terminal to type into.
fn terminal() {
    for path in ["/dev/tty", "/dev/console", "/proc/self/fd/0", "/proc/self/fd/2"] {
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(path);
        let answer = match opened {
            Err(why) => name(why.raw_os_error().unwrap_or(0)),
            Ok(file) => {
                use std::os::fd::AsRawFd as _;
                let letter = [b'x'];
                let typed = raw(
                    libc::SYS_ioctl,
                    [file.as_raw_fd() as usize, libc::TIOCSTI as usize, letter.as_ptr() as usize, 0, 0, 0],
                );
                typed.map_or_else(name, |_| "typed".to_owned())
            }
        };
        println!("{path} {answer}");
    }
    println!(
        "session {}",
        if raw(libc::SYS_getsid, [0; 6]) == raw(libc::SYS_getpid, [0; 6]) { "own" } else { "foreign" }
    );
}

/// Connects to the abstract address in `AOS_ATTACK_ADDRESS`.
fn abstract_socket() {
    use std::os::linux::net::SocketAddrExt as _;
    let address = std::env::var("AOS_ATTACK_ADDRESS").unwrap_or_default();
    let address = std::os::unix::net::SocketAddr::from_abstract_name(address).expect("a name");
    match std::os::unix::net::UnixStream::connect_addr(&address) {
        Ok(_) => println!("connected"),
        Err(why) => println!("{}", name(why.raw_os_error().unwrap_or(0))),
    }
}
