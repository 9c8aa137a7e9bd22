//! What a process does to itself before it executes the command: it drops privileges, sets limits, and applies
//! no_new_privs, Landlock and the seccomp filter.

use std::os::unix::ffi::OsStrExt as _;

use aos_model::limits::COMMAND_FILES;
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::filter::Filters;
use crate::spec::{LandlockPaths, Limits, Sandbox, User};

fn may_set_privileges() -> Result<bool, Errno> {
    Ok(rustix::thread::capabilities(None)?.permitted.contains(CapabilitySet::SETPCAP))
}

/// Empties the bounding set: with an empty one, neither uid 0 nor file capabilities restore any capability at execve.
pub(crate) fn empty_bounding_set() -> Result<(), Errno> {
    if !may_set_privileges()? {
        return Ok(());
    }
    for number in 0..=63_u32 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(one) {
            // Past the last capability that this kernel knows.
            Err(Errno::INVAL) => break,
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Changes to `user` if there is one, and drops all capabilities.
pub(crate) fn drop_privileges(user: Option<User>) -> Result<(), Errno> {
    if may_set_privileges()? {
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
        let is_current = (rustix::process::getuid(), rustix::process::getgid()) == (uid, gid);
        match rustix::thread::set_thread_groups(&[]) {
            // Root of a container may lack CAP_SETGID: it cannot drop its groups, but need not change its ids either.
            Err(Errno::PERM) if is_current => {}
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

/// Sets the limits of every command. Runs while raising them is still permitted.
pub(crate) fn limit_all() -> Result<(), Errno> {
    set_limit(Resource::Core, 0, 0)?;
    let (soft, hard) = COMMAND_FILES;
    let wanted = Rlimit { current: Some(soft), maximum: Some(hard) };
    setrlimit(Resource::Nofile, wanted).or_else(|_| set_limit(Resource::Nofile, soft, hard))
}

/// Sets the session's limits that no cgroup enforces. RLIMIT_NPROC counts per user namespace: in a new one only the
/// command's processes count; elsewhere all of the user's do, so the existing ones are added to the limit.
pub(crate) fn limit(limits: &Limits, sandbox: &Sandbox) -> Result<(), Errno> {
    if let Some(processes) = limits.processes {
        let others = match &sandbox.namespaces {
            // Init counts too.
            Some(namespaces) if namespaces.user => Some(1),
            // `pid_max` of the pid namespace limits it.
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
        let status = crate::read_proc_file(&format!("/proc/{pid}/status"))?;
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

/// Applies the restrictions that must come last: only execve follows.
pub(crate) fn restrict_self(sandbox: &Sandbox, filters: &Filters) -> Result<(), (&'static str, Errno)> {
    rustix::thread::set_no_new_privs(true).map_err(|why| ("cannot forbid new privileges", why))?;
    if let Some(landlock_paths) = &sandbox.landlock {
        apply_landlock(landlock_paths).map_err(|_| ("cannot apply Landlock", Errno::PERM))?;
    }
    // None of init's descriptors may reach the program.
    close_from(3).map_err(|why| ("cannot close descriptors", why))?;
    if sandbox.seccomp {
        let filter = filters.of(sandbox);
        seccompiler::apply_filter(filter).map_err(|_| ("cannot apply the seccomp filter", Errno::PERM))?;
    }
    Ok(())
}

#[expect(unsafe_code, reason = "no safe crate has close_range")]
fn close_from(first: u32) -> Result<(), Errno> {
    // SAFETY: sets close-on-exec; the descriptors stay usable until then.
    let outcome = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if outcome == 0 { Ok(()) } else { Err(crate::last_error()) }
}

/// The newest version whose file rights we use. V5 restricts ioctls on devices, of which the view has only a few.
const LANDLOCK: ABI = ABI::V4;

/// The version of Landlock that this kernel has; 0 for none.
#[expect(unsafe_code, reason = "the crate hides the version on purpose; `aos doctor` shows it")]
pub(crate) fn landlock_version() -> u32 {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with no attributes and this flag the call only returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

pub fn has_landlock() -> bool {
    landlock_version() >= LANDLOCK_VERSION_MIN
}

/// Version 1 refuses every rename between folders, which git and cargo need.
pub(crate) const LANDLOCK_VERSION_MIN: u32 = 2;

/// Restricts signals and abstract sockets to the sandbox.
pub(crate) const LANDLOCK_SCOPES: u32 = 6;

fn apply_landlock(landlock_paths: &LandlockPaths) -> Result<(), RulesetError> {
    let read = AccessFs::from_read(LANDLOCK);
    let all = AccessFs::from_all(LANDLOCK);
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    if !landlock_paths.readable.is_empty() {
        rules = rules.handle_access(all)?;
    }
    // Always: a command that shares the machine's network or processes must not reach its abstract sockets and processes.
    rules = rules.scope(Scope::Signal)?.scope(Scope::AbstractUnixSocket)?;
    let mut rules = rules.create()?.set_compatibility(CompatLevel::BestEffort);
    let paths = [(&landlock_paths.readable, read), (&landlock_paths.writable, all)];
    for (path, access) in paths.into_iter().flat_map(|(paths, access)| paths.iter().map(move |p| (p, access)))
    {
        let path = if path.is_empty() { b"/" } else { path.as_slice() };
        // A path that does not exist in the view needs no rule.
        let Ok(fd) = PathFd::new(std::ffi::OsStr::from_bytes(path)) else { continue };
        rules = rules.add_rule(PathBeneath::new(fd, access))?;
    }
    rules.restrict_self().map(drop)
}

/// Whether seccomp filters can answer a call with an errno.
#[expect(unsafe_code, reason = "no safe crate has SECCOMP_GET_ACTION_AVAIL")]
pub(crate) fn has_seccomp() -> bool {
    let answer: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads one number.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const answer) == 0 }
}
