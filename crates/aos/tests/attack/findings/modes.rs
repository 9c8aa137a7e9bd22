//! What is denied stays denied in every isolation and capture mode.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use aos_testkit::{Findings, Start, World, check, expect, new_seed, tree, uncaptured};
use serde_json::json;

use crate::exec::isolation::no_namespaces;
use crate::exec::room::{Room, ordinary};
use crate::{Case, Outcome, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![
        plain("S1", a_command_without_capture_needs_the_capability),
        plain("S3", the_reduced_isolation_is_asked_for_and_reaches_no_other_process),
        plain("OWN-S3-READ-ONLY", what_may_not_be_written_keeps_its_attributes),
        plain("OWN-S2-READ-ONLY", without_a_sandbox_a_session_that_may_not_write_runs_nothing),
        plain("S12", the_machines_abstract_sockets_are_out_of_reach),
    ]
}

/// Only whoever opens the session decides that commands may run without capture.
fn a_command_without_capture_needs_the_capability() -> Outcome {
    let world = World::new();
    let session = world.open(json!({}));
    let run = |session: &str, capture: &str| {
        let argv = json!(["sh", "-c", "echo x > made"]);
        let params = json!({ "session_id": session, "argv": argv, "capture": capture });
        world.client().effect("host.exec", params)
    };
    expect("not given", &run(&session, "none"), &["forbidden / exec_not_allowed"])?;
    check(!world.root.join("made").exists(), || "it ran".into())?;
    expect("captured", &run(&session, "auto"), &["ok"])?;
    let receipt = world.open_receipt(json!({ "capability": { "exec": {} } }));
    check(receipt["capability"]["exec"].get("uncaptured").is_none(), || format!("{receipt}"))?;
    let (code, shown, err) = world.aos(&["exec", "-s", &session, "--no-capture", "--", "true"]);
    check(code != 0 && err.contains("--uncaptured"), || format!("{code} {shown} {err}"))?;
    let given = world.open(uncaptured(json!({})));
    expect("given", &run(&given, "none"), &["ok"])?;
    let root = world.root.display().to_string();
    let (_, opened, err) = world.aos(&["session", "open", "--uncaptured", &root]);
    expect(&err, &run(opened.trim(), "none"), &["ok"])?;
    world.finish()
}

/// Calls that reach beyond the command, and what each must answer. `D` is the daemon's pid.
const BEYOND: &str = r#"
import ctypes, os, resource, signal, socket, subprocess, sys
D = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    if libc.syscall(number, *args) < 0: raise OSError(ctypes.get_errno(), 'call')
mask = (ctypes.c_ulong * 1)(1)
beyond = {
    'a socket in a folder': lambda: socket.socket(socket.AF_UNIX),
    'a datagram socket': lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
    'prlimit of the daemon': lambda: resource.prlimit(D, resource.RLIMIT_NOFILE, (16, 16)),
    'prlimit of the parent': lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE),
    'a signal to the daemon': lambda: os.kill(D, 0),
    'a signal by pidfd': lambda: signal.pidfd_send_signal(os.pidfd_open(D), signal.SIGTERM),
    'priority of the daemon': lambda: os.setpriority(os.PRIO_PROCESS, D, 19),
    'priority of its group': lambda: os.setpriority(os.PRIO_PGRP, D, 19),
    'priority of the user': lambda: os.setpriority(os.PRIO_USER, 0, 19),
    'affinity of the daemon': lambda: os.sched_setaffinity(D, {0}),
    'scheduler of the daemon': lambda: os.sched_setscheduler(D, os.SCHED_IDLE, os.sched_param(0)),
    'io priority of the daemon': lambda: call(251, 1, D, 3 << 13),
    'io priority of the user': lambda: call(251, 3, os.getuid(), 3 << 13),
    'memory of the daemon': lambda: open(f'/proc/{D}/mem', 'rb').read(1),
    'environment of the daemon': lambda: open(f'/proc/{D}/environ', 'rb').read(1),
    'the daemon first when memory is short': lambda: open(f'/proc/{D}/oom_score_adj', 'w').write('1000'),
    'ptrace': lambda: call(101, 16, D, 0, 0),
}
for name, go in beyond.items():
    try: go()
    except OSError: continue
    print('REACHED', name)
# Python reaps a child that nothing refers to, and its pid is gone.
kept = subprocess.Popen(['sleep', '100'])
within = {
    'a pair of sockets': lambda: [socket.socketpair()],
    'its own limits': lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    'its own limits by prlimit': lambda: resource.prlimit(0, resource.RLIMIT_CORE, (0, 0)),
    'its own priority': lambda: os.nice(1),
    'its own affinity': lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    'a child': lambda: subprocess.run(['true'], check=True),
    'a signal to a child': lambda: kept.kill(),
    'a pidfd of a child': lambda: os.pidfd_open(kept.pid),
    'the loopback': lambda: socket.socket().bind(('127.0.0.1', 0)),
}
for name, go in within.items():
    try: go()
    except OSError as why: print('REFUSED', name, why)
print('tried')
"#;

fn the_reduced_isolation_is_asked_for_and_reaches_no_other_process() -> Outcome {
    let world = World::with(no_namespaces());
    world.write("beyond.py", BEYOND);
    let session = world.open(json!({ "policy": { "preset": "permissive" } }));
    let written = world.quiet_agent(&session).write("f", "file effects work");
    expect("a write", &written, &["ok"])?;
    let run = json!({ "session_id": session, "argv": ["touch", "ran"] });
    let receipt = world.client().effect("host.exec", run);
    expect("a command", &receipt, &["error / isolation_unavailable"])?;
    let message = receipt["error_message"].to_string();
    check(message.contains("user.max_user_namespaces") && message.contains("--allow-reduced"), || message)?;
    check(!world.root.join("ran").exists(), || "it ran".into())?;
    let (_, doctor, _) = world.aos(&["doctor"]);
    check(!doctor.is_empty(), || doctor.clone())?;
    let room = Room::of(world, json!({ "policy": { "preset": "permissive" }, "allow_reduced": true }));
    let daemon = room.world.daemon_pid().to_string();
    let receipt = room.run(&["python3", "beyond.py", &daemon]);
    check(receipt["isolation_applied"] == "reduced", || format!("{receipt}"))?;
    let said = room.stdout(&receipt);
    check(said == "tried\n", || format!("{said} {receipt}"))?;
    let shared = room.sh("echo x > /dev/shm/aos-attack-reduced && rm /dev/shm/aos-attack-reduced");
    check(shared["exit_code"] != 0, || format!("/dev/shm is the machine's: {shared}"))?;
    room.world_finish()
}

/// Ways to change what Landlock does not cover, each on its own file.
const ATTRIBUTES: &str = r#"
import ctypes, fcntl, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    if libc.syscall(number, *args) < 0: raise OSError(ctypes.get_errno(), 'call')
def opened(path): return os.open(path, os.O_RDONLY)
xattr = ctypes.create_string_buffer(struct.pack('QII', ctypes.addressof(ctypes.create_string_buffer(b'x')), 1, 0))
tries = {
    'chmod': lambda: os.chmod('d', 0),
    'fchmod': lambda: os.fchmod(opened('f'), 0o777),
    'fchmodat': lambda: os.chmod('f', 0, dir_fd=opened('.')),
    'fchmodat2': lambda: call(452, -100, b'f', 0o777, 0x100),
    'by descriptor': lambda: os.chmod(f'/proc/self/fd/{opened("f")}', 0o4777),
    'chown': lambda: os.chown('f', -1, os.getgid()),
    'fchown': lambda: os.fchown(opened('f'), os.getuid(), -1),
    'setxattr': lambda: os.setxattr('f', 'user.x', b'x'),
    'fsetxattr': lambda: os.setxattr(opened('f'), 'user.x', b'x'),
    'setxattrat': lambda: call(463, -100, b'f', 0, b'user.x', xattr, 16),
    'removexattr': lambda: os.removexattr('f', 'user.kept'),
    'flags': lambda: fcntl.ioctl(opened('f'), 0x40086602, struct.pack('l', 0x40)),
    'content': lambda: open('f', 'a').write('x'),
    'a new file': lambda: open('new', 'w'),
    'removal': lambda: os.unlink('f'),
}
for name, go in tries.items():
    try: go()
    except OSError: continue
    print('CHANGED', name)
print(open('f').read())
"#;

/// In the reduced isolation roots are not mounted read-only: Landlock keeps the content, the filter the rest.
fn what_may_not_be_written_keeps_its_attributes() -> Outcome {
    let world = World::with(no_namespaces());
    world.write("attributes.py", ATTRIBUTES);
    world.write("f", "content\n");
    world.write("d/inner", "content\n");
    check(set_user_xattr(&world.root.join("f")), || "no user attributes here".into())?;
    let before = tree(&world.root);
    let policy = json!({ "preset": "permissive" });
    let reads = json!({ "allowed_fs_ops": ["read"] });
    let room = Room::of(world, json!({ "policy": policy, "allow_reduced": true, "capability": reads }));
    let receipt = room.run(&["python3", "attributes.py"]);
    check(receipt["isolation_applied"] == "reduced", || format!("{receipt}"))?;
    let said = room.stdout(&receipt);
    check(said == "content\n\n", || format!("{said} {receipt}"))?;
    check(tree(&room.world.root) == before, || "the tree has changed".into())?;
    room.world_finish()
}

fn set_user_xattr(path: &std::path::Path) -> bool {
    rustix::fs::setxattr(path, "user.kept", b"x", rustix::fs::XattrFlags::empty()).is_ok()
}

fn without_a_sandbox_a_session_that_may_not_write_runs_nothing() -> Outcome {
    let world = World::new();
    world.write("f", "content\n");
    for capability in [json!({ "allowed_fs_ops": ["read", "list"] }), json!({ "allowed_fs_ops": [] })] {
        let session = world.open(uncaptured(json!({ "isolation": "none", "capability": capability })));
        for (capture, script) in [("auto", "echo x > made"), ("none", "chmod 0 f"), ("auto", "rm f")] {
            let argv = json!(["sh", "-c", script]);
            let params = json!({ "session_id": session, "argv": argv, "capture": capture });
            let receipt = world.client().effect("host.exec", params);
            expect(script, &receipt, &["error / isolation_unavailable"])?;
        }
    }
    let session = world.open(json!({ "isolation": "none", "capability": { "allowed_fs_ops": ["write"] } }));
    let params = json!({ "session_id": session, "argv": ["true"] });
    expect("one that may write", &world.client().effect("host.exec", params), &["ok"])?;
    check(world.read("f") == b"content\n" && !world.root.join("made").exists(), || "it was changed".into())?;
    world.finish()
}

/// With the machine's network, for both kinds of daemon, by every kind of socket.
fn the_machines_abstract_sockets_are_out_of_reach() -> Outcome {
    let mut findings = Findings::default();
    for start in [Start::default(), ordinary()] {
        let name = format!("aos-attack-{:016x}", new_seed());
        let address = SocketAddr::from_abstract_name(&name).map_err(|why| why.to_string())?;
        let listener = UnixListener::bind_addr(&address).map_err(|why| why.to_string())?;
        listener.set_nonblocking(true).map_err(|why| why.to_string())?;
        let local = json!({ "network_mode": "full" });
        let room =
            Room::of(World::with(start), json!({ "local": local, "policy": { "preset": "permissive" } }));
        let connect = format!(
            "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0{name}'); print('connected')"
        );
        let own = "import socket; a = socket.socket(socket.AF_UNIX); a.bind('\\0own'); a.listen(); \
                   b = socket.socket(socket.AF_UNIX); b.connect('\\0own'); print('connected')";
        let receipt = room.run(&["python3", "-c", &connect]);
        findings.add(check(room.stdout(&receipt) != "connected\n", || format!("the machine's: {receipt}")));
        findings.add(check(listener.accept().is_err(), || "somebody connected".into()));
        let receipt = room.run(&["python3", "-c", own]);
        findings.add(check(room.stdout(&receipt) == "connected\n", || format!("its own: {receipt}")));
        room.finish()?;
    }
    findings.outcome()
}
