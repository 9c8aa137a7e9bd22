//! How a command ends, and that everything it started ends with it.

use std::time::{Duration, Instant};

use aos_testkit::{check, expect};
use serde_json::{Value, json};

use super::room::{GRACE, Room, SECOND, in_time, ns};
use crate::Outcome;

/// Runs a command with a time limit; its receipt must arrive at most two seconds after the limit.
fn limited(room: &Room, argv: Value, limit: Duration) -> Result<Value, String> {
    let what = argv.to_string();
    in_time(&what, limit + GRACE, || room.exec(json!({ "argv": argv, "timeout_ns": ns(limit) })))
}

fn printed(room: &Room, receipt: &Value, text: &str) -> Outcome {
    check(room.stdout(receipt) == text, || format!("expected {text:?}: {receipt}"))
}

pub fn a_child_that_stays() -> Outcome {
    let room = Room::new();
    let params = json!({ "argv": ["sh", "-c", "sleep 300 & echo done"], "timeout_ns": ns(10 * SECOND) });
    let receipt = in_time("sleep 300 &", GRACE, || room.exec(params))?;
    expect("sleep 300 &", &receipt, &["ok"])?;
    check(receipt["exit_code"] == 0, || format!("{receipt}"))?;
    printed(&room, &receipt, "done\n")?;
    room.nothing_runs()?;
    room.finish()
}

pub fn a_child_of_another_session() -> Outcome {
    let room = Room::new();
    let receipt = in_time("setsid", GRACE, || room.sh("setsid sleep 301 & echo x"))?;
    expect("setsid", &receipt, &["ok"])?;
    printed(&room, &receipt, "x\n")?;
    expect("close", &room.signal(&room.session, "term"), &["signaled"])?;
    room.nothing_runs()?;
    room.finish()
}

/// Leaves its process group, session, terminal and streams, and ignores its signals.
const DAEMON: &str = "
import os, signal, time
for name in ('SIGHUP', 'SIGTERM', 'SIGINT'):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
if os.fork(): time.sleep(60)
os.setsid()
if os.fork(): os._exit(0)
for fd in range(256):
    try: os.close(fd)
    except OSError: pass
while True: time.sleep(1)
";

pub fn a_daemon() -> Outcome {
    let room = Room::new();
    room.world.write("daemon.py", DAEMON);
    let receipt = limited(&room, json!(["python3", "daemon.py"]), 2 * SECOND)?;
    expect("a daemon", &receipt, &["timeout"])?;
    room.nothing_runs()?;
    // A daemon whose parent exits at once is not waited for and does not survive.
    room.world.write("quick.py", DAEMON.replace("time.sleep(60)", "os._exit(0)"));
    let receipt = in_time("a daemon that leaves", GRACE + SECOND, || room.run(&["python3", "quick.py"]))?;
    expect("a daemon that leaves", &receipt, &["ok"])?;
    room.nothing_runs()?;
    room.finish()
}

pub fn past_its_time() -> Outcome {
    let room = Room::new();
    let begun = Instant::now();
    let receipt = limited(&room, json!(["sleep", "300"]), SECOND)?;
    expect("sleep 300", &receipt, &["timeout"])?;
    check(begun.elapsed() >= SECOND, || "it was cut short".into())?;
    let span = receipt["ended_at_ns"].as_u64().zip(receipt["started_at_ns"].as_u64());
    check(span.is_some_and(|(end, start)| end - start >= ns(SECOND)), || format!("{receipt}"))?;
    room.finish()
}

/// The original daemon took five seconds for this.
pub fn half_a_second() -> Outcome {
    let room = Room::new();
    let receipt = limited(&room, json!(["sleep", "300"]), SECOND / 2)?;
    expect("sleep 300", &receipt, &["timeout"])?;
    // The shortest limits: refused, or the command ends at once; never a hang.
    for timeout in [0, 1, 1_000_000] {
        let params = json!({ "argv": ["sleep", "300"], "timeout_ns": timeout });
        let receipt = in_time("no time at all", GRACE, || room.exec(params))?;
        expect("no time at all", &receipt, &["timeout", "error / invalid_params"])?;
    }
    // The longest limits: no overflow ends the command early.
    for timeout in [u64::MAX, i64::MAX as u64, ns(1_000 * SECOND)] {
        let receipt = room.exec(json!({ "argv": ["sleep", "0.2"], "timeout_ns": timeout }));
        expect("all the time there is", &receipt, &["ok"])?;
    }
    room.finish()
}

pub fn deaf_to_signals() -> Outcome {
    let room = Room::new();
    let deaf = json!(["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"]);
    let params = json!({ "argv": deaf, "timeout_ns": ns(SECOND) });
    let receipt = in_time("deaf", 4 * SECOND, || room.exec(params))?;
    expect("deaf", &receipt, &["timeout"])?;
    room.nothing_runs()?;
    room.finish()
}

pub fn process_substitution() -> Outcome {
    let room = Room::new();
    let receipt = in_time("tee", 5 * SECOND, || {
        room.exec(json!({ "argv": ["bash", "-c", "exec > >(tee -a f) 2>&1; echo hi"], "timeout_ns": ns(20 * SECOND) }))
    })?;
    expect("tee", &receipt, &["ok"])?;
    printed(&room, &receipt, "hi\n")?;
    check(room.world.read("f") == b"hi\n", || "tee wrote something else".into())?;
    room.finish()
}

pub fn a_writer_into_a_fifo() -> Outcome {
    let room = Room::new();
    let script = "mkfifo p; (while :; do echo c; sleep 1; done) > p & cat p";
    let receipt = limited(&room, json!(["bash", "-c", script]), 5 * SECOND)?;
    expect("cat p", &receipt, &["timeout"])?;
    check(room.stdout(&receipt).starts_with("c\nc\n"), || format!("what was read is lost: {receipt}"))?;
    room.nothing_runs()?;
    // A FIFO without a writer, and one without a reader.
    for script in ["mkfifo q; cat q", "mkfifo r; echo x > r", "mkfifo s; cat s & exec sleep 100 > s"] {
        let receipt = limited(&room, json!(["sh", "-c", script]), SECOND)?;
        expect(script, &receipt, &["timeout"])?;
    }
    room.finish()
}

pub fn stopped_by_itself() -> Outcome {
    let room = Room::new();
    let receipt = limited(&room, json!(["sh", "-c", "kill -STOP $$"]), 2 * SECOND)?;
    expect("kill -STOP $$", &receipt, &["timeout"])?;
    room.nothing_runs()?;
    for script in ["kill -TSTP 0; sleep 100", "sleep 100 & kill -STOP $! && wait"] {
        let receipt = limited(&room, json!(["sh", "-c", script]), SECOND)?;
        expect(script, &receipt, &["timeout", "ok", "signaled"])?;
    }
    room.finish()
}

pub fn how_it_ended() -> Outcome {
    let room = Room::new();
    for code in [0, 1, 2, 126, 127, 128, 137, 255] {
        let receipt = room.sh(&format!("exit {code}"));
        expect("exit", &receipt, &["ok"])?;
        check(receipt["exit_code"] == code, || format!("exit {code}: {receipt}"))?;
        check(receipt.get("signal").is_none(), || format!("exit {code}: {receipt}"))?;
    }
    for name in ["SEGV", "KILL", "TERM", "ABRT", "INT", "HUP", "PIPE", "USR1", "BUS", "FPE", "QUIT", "XCPU"] {
        let receipt = room.sh(&format!("kill -{name} $$; sleep 5"));
        expect(name, &receipt, &["signaled"])?;
        check(receipt["signal"] == format!("SIG{name}"), || format!("{name}: {receipt}"))?;
        check(receipt.get("exit_code").is_none(), || format!("{name}: {receipt}"))?;
    }
    // A real-time signal is reported by name or by number, without a panic.
    let receipt = room.sh("kill -40 $$; sleep 5");
    expect("a real-time signal", &receipt, &["signaled"])?;
    // The death of a child by a signal is not the command's own.
    let receipt = room.sh("sh -c 'kill -SEGV $$'; exit 3");
    check(receipt["exit_code"] == 3, || format!("{receipt}"))?;
    everything_it_sees(&room)?;
    let cores: Vec<String> = std::fs::read_dir(&room.world.root)
        .map_err(|why| why.to_string())?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("core"))
        .collect();
    check(cores.is_empty(), || format!("core files: {cores:?}"))?;
    room.finish()
}

/// A command can kill its whole group, or every process that it sees; the daemon and the test are never among them.
fn everything_it_sees(room: &Room) -> Outcome {
    let ours = std::fs::read_link("/proc/self/ns/pid").map_err(|why| why.to_string())?;
    let session = room.another(json!({ "policy": { "preset": "permissive" } }));
    for deed in ["kill -KILL 0", "kill -KILL -1", "kill -TERM -1; exit 7"] {
        // Unconfined, this would kill every process of the machine: check the namespace first.
        let script =
            format!("[ \"$(readlink /proc/self/ns/pid)\" != '{}' ] || exit 99; {deed}", ours.display());
        let receipt = room.exec_in(&session, json!({ "argv": ["sh", "-c", script] }));
        expect(deed, &receipt, &["signaled", "ok"])?;
        check(receipt["exit_code"] != 99, || "it shares our pid namespace".into())?;
    }
    Ok(())
}

/// A grandchild holds the pipe and writes into it without end.
pub fn an_orphan_that_prints() -> Outcome {
    let room = Room::new();
    for script in [
        "(while :; do echo spam; done) & echo first; exit 0",
        "setsid sh -c 'while :; do echo spam; sleep 0.01; done' & exit 0",
        "(sleep 0.3; echo late) & echo first",
    ] {
        let receipt = in_time(script, GRACE + SECOND, || room.sh(script))?;
        expect(script, &receipt, &["ok"])?;
        check(receipt["exit_code"] == 0, || format!("{script}: {receipt}"))?;
    }
    room.nothing_runs()?;
    room.finish()
}

pub fn streams_closed_early() -> Outcome {
    let room = Room::new();
    let begun = Instant::now();
    let receipt = room.sh("echo out; echo err >&2; exec >&- 2>&-; sleep 1; exit 3");
    check(receipt["exit_code"] == 3, || format!("its streams ended, it did not: {receipt}"))?;
    check(begun.elapsed() >= SECOND, || "it was not waited for".into())?;
    printed(&room, &receipt, "out\n")?;
    check(room.stderr(&receipt) == "err\n", || format!("{receipt}"))?;
    // The time limit holds although nothing is left to read.
    let receipt = limited(&room, json!(["sh", "-c", "exec >&- 2>&-; sleep 100"]), SECOND)?;
    expect("silent", &receipt, &["timeout"])?;
    room.finish()
}

/// Children that are never waited for, and orphans.
pub fn zombies() -> Outcome {
    let room = Room::new();
    let script =
        "import os, time\nfor _ in range(200):\n    if not os.fork(): os._exit(0)\ntime.sleep(0.3)\n";
    for _ in 0..3 {
        expect("zombies", &room.run(&["python3", "-c", script]), &["ok"])?;
    }
    // Orphans that end before their new parent waits for them.
    let orphans = "for i in 1 2 3 4 5 6 7 8; do (sh -c 'sleep 0.05 & exit 0' &) ; done; sleep 0.3; echo end";
    let receipt = room.sh(orphans);
    printed(&room, &receipt, "end\n")?;
    room.finish()
}

/// A shell that waits for its children learns of their end.
pub fn children_are_waited_for() -> Outcome {
    let room = Room::new();
    for shell in ["sh", "bash", "dash"] {
        let script = "true & sleep 0.1 & (sleep 0.2; true) & wait; echo end";
        let receipt = in_time(shell, 5 * SECOND, || {
            room.exec(json!({ "argv": [shell, "-c", script], "timeout_ns": ns(4 * SECOND) }))
        })?;
        check(room.stdout(&receipt) == "end\n", || format!("{shell}: it waits for ever: {receipt}"))?;
    }
    room.finish()
}

/// The receipt holds what a command printed before it was killed.
pub fn what_was_printed_is_kept() -> Outcome {
    let room = Room::new();
    let receipt = limited(&room, json!(["sh", "-c", "echo out; echo err >&2; sleep 100"]), SECOND)?;
    expect("cut off", &receipt, &["timeout"])?;
    printed(&room, &receipt, "out\n")?;
    check(room.stderr(&receipt) == "err\n", || format!("{receipt}"))?;
    check(receipt["stdout_bytes"] == 4 && receipt["stderr_bytes"] == 4, || format!("{receipt}"))?;
    let receipt = room.sh("echo out; kill -KILL $$");
    expect("killed", &receipt, &["signaled"])?;
    printed(&room, &receipt, "out\n")?;
    room.finish()
}
