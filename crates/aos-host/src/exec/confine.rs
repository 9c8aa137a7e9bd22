//! Confinement: privileges given up, limits, and the walls that a process puts around itself before it becomes the
//! command: no new privileges, Landlock on the final mounts, and a filter of system calls.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;

use aos_model::limits::COMMAND_FILES;
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use super::order::{Ground, Limits, User, Walls};

/// Becomes `user` when there is one, and nobody that can do more than a plain process.
pub(super) fn drop_privileges(user: Option<User>) -> Result<(), Errno> {
    let all = rustix::thread::capabilities(None)?;
    let privileged = all.permitted.contains(CapabilitySet::SETPCAP);
    if privileged {
        // Also for uid 0: neither a program of root's nor a file's capabilities bring anything back.
        for number in 0..=63_u32 {
            let one = CapabilitySet::from_bits_retain(1 << number);
            match rustix::thread::remove_capability_from_bounding_set(one) {
                // Past the last one that this kernel knows.
                Err(Errno::INVAL) => break,
                outcome => outcome?,
            }
        }
        let bits = CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
        rustix::thread::set_capabilities_secure_bits(bits)?;
    }
    if let Some(User { uid, gid }) = user {
        let (uid, gid) = (rustix::process::Uid::from_raw(uid), rustix::process::Gid::from_raw(gid));
        let is_already = (rustix::process::getuid(), rustix::process::getgid()) == (uid, gid);
        match rustix::thread::set_thread_groups(&[]) {
            // Root in a container may be nobody special: then it cannot leave its groups, and has nobody to become.
            Err(Errno::PERM) if is_already => {}
            outcome => outcome?,
        }
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    let _ = rustix::thread::clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )
}

/// The limits of every command; set while they may still be raised.
pub(super) fn limit_all() -> Result<(), Errno> {
    set_limit(Resource::Core, 0, 0)?;
    let (soft, hard) = COMMAND_FILES;
    let wanted = Rlimit { current: Some(soft), maximum: Some(hard) };
    setrlimit(Resource::Nofile, wanted).or_else(|_| set_limit(Resource::Nofile, soft, hard))
}

/// What the session's commands may use up, where no control group sees to it. In a user namespace of its own the kernel
/// counts a command's processes apart; elsewhere all of the user's count, so those that are there are added.
pub(super) fn limit(limits: &Limits, walls: &Walls) -> Result<(), Errno> {
    if let Some(processes) = limits.processes {
        let others = match &walls.namespaces {
            // Init counts too.
            Some(namespaces) if namespaces.user => Some(1),
            // The pid namespace sees to it.
            Some(_) => None,
            None => Some(threads_of(rustix::process::getuid().as_raw())),
        };
        if let Some(others) = others {
            let most = processes.saturating_add(others);
            set_limit(Resource::Nproc, most, most)?;
        }
    }
    if let Some(bytes) = limits.memory_bytes {
        set_limit(Resource::As, bytes, bytes)?;
    }
    Ok(())
}

/// How many threads a user has.
fn threads_of(uid: u32) -> u64 {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let Ok(proc) = rustix::fs::open("/proc", flags, rustix::fs::Mode::empty()) else { return 0 };
    let Ok(listing) = rustix::fs::Dir::read_from(&proc) else { return 0 };
    let threads = |name: &std::ffi::CStr| -> Option<u64> {
        let pid: u32 = name.to_str().ok()?.parse().ok()?;
        let status = super::read_small(&format!("/proc/{pid}/status"))?;
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        if field("Uid:")?.parse() != Ok(uid) {
            return None;
        }
        field("Threads:")?.parse().ok()
    };
    listing.flatten().filter_map(|entry| threads(entry.file_name())).sum()
}

fn set_limit(resource: Resource, soft: u64, hard: u64) -> Result<(), Errno> {
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(hard);
    setrlimit(resource, Rlimit { current: Some(soft.min(most)), maximum: Some(most) })
}

/// The last walls. Nothing after this but the program itself.
pub(super) fn wall_in(walls: &Walls, filters: &Filters) -> Result<(), (&'static str, Errno)> {
    rustix::thread::set_no_new_privs(true).map_err(|why| ("cannot forbid new privileges", why))?;
    if let Some(ground) = &walls.landlock {
        stand_on(ground).map_err(|_| ("cannot apply Landlock", Errno::PERM))?;
    }
    // Descriptors of init: none of them reaches the program.
    close_from(3).map_err(|why| ("cannot close descriptors", why))?;
    let own = walls.namespaces.is_some();
    let filter = if own { &filters.own_processes } else { &filters.shared_processes };
    if walls.seccomp {
        seccompiler::apply_filter(filter).map_err(|_| ("cannot filter system calls", Errno::PERM))?;
    }
    Ok(())
}

#[expect(unsafe_code, reason = "no safe crate has close_range")]
fn close_from(first: u32) -> Result<(), Errno> {
    // SAFETY: marks descriptors to be closed when the program is executed; those that are in use stay usable.
    let outcome = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if outcome == 0 { Ok(()) } else { Err(super::spawner::last_error()) }
}

/// The newest version whose file rights we use. Ioctls on devices are left alone: only a handful are in sight.
const LANDLOCK: ABI = ABI::V4;

/// The version of Landlock that this kernel has; 0 for none.
#[expect(unsafe_code, reason = "the crate hides the version on purpose; here it is shown to people")]
pub(super) fn landlock_version() -> u32 {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with no attributes and this flag the call only returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

pub(super) fn has_landlock() -> bool {
    landlock_version() >= LANDLOCK_VERSION_MIN
}

/// The first version made every rename between folders fail, which git and cargo cannot bear.
pub(super) const LANDLOCK_VERSION_MIN: u32 = 2;

fn stand_on(ground: &Ground) -> Result<(), RulesetError> {
    let read = AccessFs::from_read(LANDLOCK);
    let all = AccessFs::from_all(LANDLOCK);
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    if !ground.readable.is_empty() {
        rules = rules.handle_access(all)?;
    }
    if ground.scoped {
        rules = rules.scope(Scope::Signal)?.scope(Scope::AbstractUnixSocket)?;
    }
    let mut rules = rules.create()?.set_compatibility(CompatLevel::BestEffort);
    let paths = [(&ground.readable, read), (&ground.writable, all)];
    for (path, access) in paths.into_iter().flat_map(|(paths, access)| paths.iter().map(move |p| (p, access)))
    {
        let path = if path.is_empty() { b"/" } else { path.as_slice() };
        // What is not in sight needs no rule.
        let Ok(fd) = PathFd::new(std::ffi::OsStr::from_bytes(path)) else { continue };
        rules = rules.add_rule(PathBeneath::new(fd, access))?;
    }
    rules.restrict_self().map(drop)
}

/// Whether the kernel filters system calls, with answers instead of kills.
#[expect(unsafe_code, reason = "no safe crate asks what the kernel's filters can do")]
pub(super) fn has_seccomp() -> bool {
    let answer: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads one number.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const answer) == 0 }
}

/// The filters of system calls, compiled once.
#[derive(Debug)]
pub(super) struct Filters {
    /// For commands with a pid namespace of their own: who debugs there debugs only itself.
    own_processes: BpfProgram,
    shared_processes: BpfProgram,
}

impl Filters {
    pub(super) fn build() -> Filters {
        let others = [denied(), rules(OTHERS)].into_iter().flatten().collect();
        Filters { own_processes: program(denied()), shared_processes: program(others) }
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that look as if the kernel did not have them. `clone3` hides its flags from filters; without it the C
/// library uses `clone`.
const ABSENT: &[i64] =
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_clone3];

/// Reaching into other processes, where others are in sight.
const OTHERS: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
];

/// Calls that no command needs: mounts, keys, kernel modules, tracing, the clock, handles that bypass paths.
const DENIED: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Sockets that a command may have: of this machine, of the internet, and those that ask about interfaces.
const FAMILIES: &[libc::c_int] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Every kind of namespace: inside one a process would have capabilities again.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    | CLONE_NEWTIME;
const CLONE_NEWTIME: libc::c_int = 0x80;

/// Calls that put words into a terminal that others read.
const TERMINAL_TRICKS: [u64; 2] = [TIOCSTI, TIOCLINUX];
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541C;

fn rules(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn denied() -> Rules {
    let word = |argument: u8, operator: SeccompCmpOp, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
            .expect("BUG: the arguments of a call are numbered 0 to 5")
    };
    let rule = |conditions: Vec<SeccompCondition>| {
        SeccompRule::new(conditions).expect("BUG: a rule has at least one condition")
    };
    let flag = |argument: u8, flag: u64| rule(vec![word(argument, SeccompCmpOp::MaskedEq(flag), flag)]);
    let bits = (0..32).map(|bit| 1_u64 << bit).filter(|bit| NAMESPACES as u64 & bit != 0);
    let each_flag: Vec<SeccompRule> = bits.map(|bit| flag(0, bit)).collect();
    // Of `clone`, the low byte of the flags is the signal at the end, so the time namespace cannot be asked for there.
    let clone_flags =
        (8..32).map(|bit| 1_u64 << bit).filter(|bit| NAMESPACES as u64 & bit != 0).map(|bit| flag(0, bit));
    let other_families =
        FAMILIES.iter().map(|family| word(0, SeccompCmpOp::Ne, *family as u64)).collect::<Vec<_>>();
    let mut denied = rules(DENIED);
    denied.insert(libc::SYS_clone, clone_flags.collect());
    denied.insert(libc::SYS_unshare, each_flag);
    denied.insert(libc::SYS_socket, vec![rule(other_families)]);
    denied.insert(
        libc::SYS_ioctl,
        TERMINAL_TRICKS.iter().map(|trick| rule(vec![word(1, SeccompCmpOp::Eq, *trick)])).collect(),
    );
    denied
}

/// A filter that answers EPERM to what the rules name, and lets the rest pass.
fn program(rules: Rules) -> BpfProgram {
    let arch = std::env::consts::ARCH.try_into().expect("BUG: built for an architecture that filters know");
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)
        .expect("BUG: to pass and to refuse are different");
    let compiled: BpfProgram = filter.try_into().expect("BUG: the rules are few enough for a filter");
    [before_all(), compiled].concat()
}

/// Calls by another machine's numbers (32-bit, x32) are refused before the rest, which would kill for them; and those
/// that look absent have an answer of their own.
fn before_all() -> BpfProgram {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const NUMBER_AT: u32 = 0;
    const ARCH_AT: u32 = 4;
    const X32: u32 = 0x4000_0000;
    #[cfg(target_arch = "x86_64")]
    const NATIVE: u32 = 0xC000_003E;
    #[cfg(target_arch = "aarch64")]
    const NATIVE: u32 = 0xC000_00B7;
    let line = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let answer = |errno: i32| line(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32);
    let mut lines = vec![
        line(LOAD, 0, 0, ARCH_AT),
        line(EQUAL, 1, 0, NATIVE),
        answer(libc::EPERM),
        line(LOAD, 0, 0, NUMBER_AT),
        line(AT_LEAST, 0, 1, X32),
        answer(libc::EPERM),
    ];
    for call in ABSENT {
        lines.extend([line(EQUAL, 0, 1, *call as u32), answer(libc::ENOSYS)]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile_and_fit_the_kernel() {
        let filters = Filters::build();
        for program in [filters.own_processes, filters.shared_processes] {
            assert!(program.len() < 4096, "{} instructions", program.len());
        }
    }
}
