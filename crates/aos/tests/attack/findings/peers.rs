//! No command is taken for a client of the daemon.

use aos_testkit::{Start, World, check, full_figure};
use serde_json::{Value, json};

use crate::exec::room::{Room, ordinary};
use crate::{Case, Outcome, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![plain("S26", no_command_is_taken_for_the_operator)]
}

/// Ways to hand a connected socket to a process that asks on it, while the process that connected vanishes or changes.
/// `s` is a socket that is not connected; `ask` sends a request and prints an answer.
const WAYS: &[(&str, &str)] = &[
    ("itself", "connect(s)"),
    ("a child that is reaped", "spawn(lambda: connect(s)); os.wait()"),
    ("a child that stays a zombie", "spawn(lambda: connect(s)); time.sleep(0.01)"),
    ("an orphan that exits", "spawn(lambda: spawn(lambda: connect(s))); os.wait(); time.sleep(0.005)"),
    (
        "an orphan that lives",
        "spawn(lambda: spawn(lambda: (connect(s), ask(s), time.sleep(0.05)))); os.wait(); time.sleep(0.02)",
    ),
    (
        "a session leader",
        "spawn(lambda: (os.setsid(), spawn(lambda: connect(s)))); os.wait(); time.sleep(0.005)",
    ),
    ("a chain of parents that exit", "chain(8, lambda: connect(s)); time.sleep(0.01)"),
    (
        "a child that executes a program",
        "spawn(lambda: (connect(s), os.execvp('true', ['true']))); os.wait()",
    ),
    ("a thread of a child", "spawn(lambda: thread(lambda: connect(s))); os.wait()"),
    ("a burst", "[spawn(lambda: connect(s)) for _ in range(3)]; [os.wait() for _ in range(3)]"),
];

const KNOCK: &str = r#"
import os, socket, sys, threading, time
PATH, ROUNDS, WAY = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def connect(s):
    try: s.connect(PATH)
    except OSError: pass
def spawn(then):
    if os.fork() == 0:
        try: then()
        finally: os._exit(0)
def chain(depth, then):
    spawn(then if depth == 0 else lambda: chain(depth - 1, then))
    if depth == 8: os.wait()
def thread(then):
    t = threading.Thread(target=then); t.start(); t.join()
def ask(s):
    try:
        s.settimeout(20)
        s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"daemon.status"}\n')
        got = s.recv(65536)
    except OSError: got = b''
    if got: print('ANSWERED', got[:200], flush=True)
for _ in range(ROUNDS):
    try: s = socket.socket(socket.AF_UNIX)
    except PermissionError: break
    exec(WAY)
    ask(s)
    s.close()
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0): pass
    except ChildProcessError: pass
print('tried')
"#;

fn no_command_is_taken_for_the_operator() -> Outcome {
    for start in [Start::default(), ordinary()] {
        knock(Room::of(World::with(start), without_walls()))?;
    }
    Ok(())
}

fn knock(room: Room) -> Outcome {
    room.world.write("knock.py", KNOCK);
    let socket = room.world.home.join("run/aosd.sock").display().to_string();
    check(std::path::Path::new(&socket).exists(), || format!("{socket} is not there"))?;
    let rounds = full_figure(100, 10).to_string();
    for (who, way) in WAYS {
        let receipt = room.exec(json!({ "argv": ["python3", "knock.py", socket, rounds, way] }));
        let said = room.stdout(&receipt);
        check(said == "tried\n", || format!("{who}: {said} {receipt}"))?;
    }
    let answer = room.world.client().rpc("daemon.status", json!({}));
    check(answer["result"].is_object(), || format!("clients are served: {answer}"))?;
    room.finish()
}

fn without_walls() -> Value {
    json!({ "isolation": "none", "policy": { "preset": "permissive" } })
}
