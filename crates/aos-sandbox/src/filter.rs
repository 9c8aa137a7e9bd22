//! The seccomp filter. Calls that no command needs fail with EPERM, calls that could bypass the filter fail with ENOSYS,
//! and no process is killed for a call.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use crate::spec::Sandbox;

/// The seccomp programs, compiled once.
#[derive(Debug)]
pub(crate) struct Filters {
    /// For commands with their own pid namespace: a debugger there reaches only the command's processes.
    own_processes: BpfProgram,
    shared_processes: BpfProgram,
    /// Without namespaces, but with Landlock: other processes and the machine's sockets stay out of reach.
    reduced: BpfProgram,
    /// The same for a session that may not write.
    reduced_read_only: BpfProgram,
}

impl Filters {
    pub(crate) fn build() -> Filters {
        let others: Rules = [denied(), rules(OTHER_PROCESSES)].into_iter().flatten().collect();
        let reduced: Rules = [others.clone(), reduced()].into_iter().flatten().collect();
        Filters {
            own_processes: program(denied()),
            shared_processes: program(others),
            reduced_read_only: program(keeping_attributes(reduced.clone())),
            reduced: program(reduced),
        }
    }

    pub(crate) fn of(&self, sandbox: &Sandbox) -> &BpfProgram {
        match sandbox.namespaces {
            Some(_) => &self.own_processes,
            None if sandbox.is_reduced() && sandbox.keeps_attributes => &self.reduced_read_only,
            None if sandbox.is_reduced() => &self.reduced,
            None => &self.shared_processes,
        }
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that fail with ENOSYS, as on a kernel without them. io_uring runs operations that the filter does not see.
/// `clone3` has its flags in memory, which filters cannot read; the C library falls back to `clone`.
const ABSENT: &[i64] =
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_clone3];

/// Access to other processes; denied where processes outside the sandbox are visible.
const OTHER_PROCESSES: &[i64] = &[
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

/// Address families that a command may use. Netlink lists interfaces.
const FAMILIES: &[libc::c_int] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Every kind of namespace: in a new user namespace a process has all capabilities again.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    | CLONE_NEWTIME;
const CLONE_NEWTIME: libc::c_int = 0x80;

/// Ioctls that inject input into a terminal.
const TERMINAL_INJECTION: [u64; 2] = [TIOCSTI, TIOCLINUX];
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541C;

fn rules(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn denied() -> Rules {
    let flag = |argument: u8, flag: u64| rule(vec![condition(argument, SeccompCmpOp::MaskedEq(flag), flag)]);
    let bits = (0..32).map(|bit| 1_u64 << bit).filter(|bit| NAMESPACES as u64 & bit != 0);
    let each_flag: Vec<SeccompRule> = bits.map(|bit| flag(0, bit)).collect();
    // The low byte of `clone`'s flags is the exit signal, so CLONE_NEWTIME cannot be passed there.
    let clone_flags =
        (8..32).map(|bit| 1_u64 << bit).filter(|bit| NAMESPACES as u64 & bit != 0).map(|bit| flag(0, bit));
    let mut denied = rules(DENIED);
    denied.insert(libc::SYS_clone, clone_flags.collect());
    denied.insert(libc::SYS_unshare, each_flag);
    denied.insert(libc::SYS_socket, vec![any_family_but(FAMILIES)]);
    denied.insert(
        libc::SYS_ioctl,
        TERMINAL_INJECTION.iter().map(|call| rule(vec![condition(1, SeccompCmpOp::Eq, *call)])).collect(),
    );
    denied
}

/// What is denied besides where a command shares the machine's processes and its network, and Landlock does not cover
/// it: connecting to a socket in a folder (D-Bus, ssh-agent, docker), and the settings of other processes. Landlock's
/// scope covers signals, by pidfd too.
fn reduced() -> Rules {
    let other_than_zero = |argument: u8| rule(vec![condition(argument, SeccompCmpOp::Ne, 0)]);
    let mut denied: Rules =
        SETTINGS_OF_PROCESSES.iter().map(|call| (*call, vec![other_than_zero(0)])).collect();
    for (call, user) in PRIORITIES {
        // Of the process itself or of its group, by the number 0; never of a user.
        let of_a_user = rule(vec![condition(0, SeccompCmpOp::Eq, *user)]);
        denied.insert(*call, vec![other_than_zero(1), of_a_user]);
    }
    let families: Vec<libc::c_int> = FAMILIES.iter().copied().filter(|one| *one != libc::AF_UNIX).collect();
    denied.insert(libc::SYS_socket, vec![any_family_but(&families)]);
    denied
}

/// Calls whose first argument is the process that they change; 0 is the caller.
const SETTINGS_OF_PROCESSES: &[i64] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// Calls that take a kind (process, group, user) and then a number, with the value that means a user.
const PRIORITIES: &[(i64, u64)] =
    &[(libc::SYS_setpriority, libc::PRIO_USER as u64), (libc::SYS_ioprio_set, IOPRIO_WHO_USER)];
const IOPRIO_WHO_USER: u64 = 3;

/// Calls that change a mode, an owner or an attribute. Times may change: they are no change of a file.
const ATTRIBUTES: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
];
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;

/// FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR: attributes such as `immutable` and `nodump`.
const SETTING_ATTRIBUTES: [u64; 3] = [0x4008_6602, 0x4004_6602, 0x401C_5820];

/// The rules, and no call that changes attributes of files.
fn keeping_attributes(mut denied: Rules) -> Rules {
    denied.extend(rules(ATTRIBUTES));
    let ioctls = SETTING_ATTRIBUTES.iter().map(|call| rule(vec![condition(1, SeccompCmpOp::Eq, *call)]));
    denied.entry(libc::SYS_ioctl).or_default().extend(ioctls);
    denied
}

fn any_family_but(families: &[libc::c_int]) -> SeccompRule {
    rule(families.iter().map(|family| condition(0, SeccompCmpOp::Ne, *family as u64)).collect())
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
        .expect("BUG: the arguments of a call are numbered 0 to 5")
}

fn rule(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("BUG: a rule has at least one condition")
}

/// A program that answers EPERM to the calls in `rules` and allows the rest.
fn program(rules: Rules) -> BpfProgram {
    let arch = std::env::consts::ARCH
        .try_into()
        .expect("BUG: seccompiler knows the architectures that we build for");
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let numbers: Vec<u32> = rules.keys().map(|call| *call as u32).collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)
        .expect("BUG: the match action and the default action differ");
    let compiled: BpfProgram = filter.try_into().expect("BUG: the rules are few enough for a filter");
    [prologue(), allow_all_but(&numbers), compiled].concat()
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Refuses calls of other ABIs (32-bit, x32), for which seccompiler's program would kill the process, and answers
/// ENOSYS to [`ABSENT`]. The number of the call stays loaded.
fn prologue() -> BpfProgram {
    const NUMBER_AT: u32 = 0;
    const ARCH_AT: u32 = 4;
    const X32: u32 = 0x4000_0000;
    #[cfg(target_arch = "x86_64")]
    const NATIVE: u32 = 0xC000_003E;
    #[cfg(target_arch = "aarch64")]
    const NATIVE: u32 = 0xC000_00B7;
    let answer = |errno: i32| instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32);
    let mut program = vec![
        instruction(LOAD, 0, 0, ARCH_AT),
        instruction(EQUAL, 1, 0, NATIVE),
        answer(libc::EPERM),
        instruction(LOAD, 0, 0, NUMBER_AT),
        instruction(AT_LEAST, 0, 1, X32),
        answer(libc::EPERM),
    ];
    for call in ABSENT {
        program.extend([instruction(EQUAL, 0, 1, *call as u32), answer(libc::ENOSYS)]);
    }
    program
}

/// Allows calls outside `numbers` (sorted) after a binary search; the others continue after this program. When a filter
/// is installed, the kernel runs it for every call number to fill its bitmap of allowed calls, so most calls must take
/// few steps.
fn allow_all_but(numbers: &[u32]) -> BpfProgram {
    let mut program = search(numbers);
    let end = program.len();
    for (at, jump) in program.iter_mut().enumerate().filter(|(_, instruction)| instruction.code == JUMP) {
        jump.k = (end - at - 1) as u32;
    }
    program
}

fn search(numbers: &[u32]) -> BpfProgram {
    if numbers.len() <= 3 {
        let found = |number: &u32| [instruction(EQUAL, 0, 1, *number), instruction(JUMP, 0, 0, 0)];
        let mut program: BpfProgram = numbers.iter().flat_map(found).collect();
        program.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
        return program;
    }
    let (low, high) = numbers.split_at(numbers.len() / 2);
    let (below, above) = (search(low), search(high));
    let skip = u8::try_from(below.len()).expect("BUG: the rules are few enough for a short jump");
    [vec![instruction(AT_LEAST, skip, 0, high[0])], below, above].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program's result for a native call whose arguments are all zero.
    fn answer(program: &BpfProgram, number: u32) -> u32 {
        let arch = program[1].k;
        let (mut at, mut loaded) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at].clone();
            at += 1;
            let jump = |is: bool| usize::from(if is { jt } else { jf });
            match code {
                LOAD => loaded = [number, arch].get(k as usize / 4).copied().unwrap_or(0),
                JUMP => at += k as usize,
                EQUAL => at += jump(loaded == k),
                AT_LEAST => at += jump(loaded >= k),
                RETURN => return k,
                // A mask of an argument, which is zero.
                _ if code & 7 == libc::BPF_ALU as u16 => loaded = 0,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn each_call_gets_its_answer_and_most_pass() {
        let Filters { own_processes, shared_processes, reduced, reduced_read_only } = Filters::build();
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        for program in [&own_processes, &shared_processes, &reduced] {
            assert!(program.len() < 4096, "{} instructions", program.len());
            for call in DENIED {
                assert_eq!(answer(program, *call as u32), refused, "call {call}");
            }
            for call in ABSENT {
                assert_eq!(answer(program, *call as u32), libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
            }
            let named: Vec<i64> = [DENIED, ABSENT, OTHER_PROCESSES].concat();
            // SYS_socket with family 0 is refused; calls about process 0 are about the caller.
            for call in (0..500).filter(|call| !named.contains(call) && *call != libc::SYS_socket) {
                assert_eq!(answer(program, call as u32), libc::SECCOMP_RET_ALLOW, "call {call}");
            }
            assert_eq!(answer(program, 0x4000_0000), refused, "x32");
        }
        for call in OTHER_PROCESSES {
            assert_eq!(answer(&own_processes, *call as u32), libc::SECCOMP_RET_ALLOW);
            assert_eq!(answer(&shared_processes, *call as u32), refused);
            assert_eq!(answer(&reduced, *call as u32), refused);
        }
        for call in ATTRIBUTES {
            assert_eq!(answer(&reduced, *call as u32), libc::SECCOMP_RET_ALLOW, "call {call}");
            assert_eq!(answer(&reduced_read_only, *call as u32), refused, "call {call}");
        }
    }
}
