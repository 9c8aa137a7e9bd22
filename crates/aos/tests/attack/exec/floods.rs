//! Too many processes, too much output, too many commands at a time: bounded, and the daemon keeps answering.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aos_testkit::time::bound;
use aos_testkit::{Findings, World, check, expect, is_full};
use serde_json::{Value, json};

use super::room::{GRACE, Room, SECOND, in_time, ns};
use crate::Outcome;

const MIB: u64 = 1 << 20;
const OUTPUT_BYTES_MAX: u64 = 256 * MIB;

/// Pings the daemon every 100 ms while `run` runs; returns the longest time that an answer took.
pub fn pinged<T>(world: &World, run: impl FnOnce() -> T) -> (T, Duration) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pinger = scope.spawn(|| {
            let (mut client, mut longest) = (world.client(), Duration::ZERO);
            while !stop.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let _ = client.effect("host.session.list", json!({}));
                longest = longest.max(asked.elapsed());
                std::thread::sleep(Duration::from_millis(100));
            }
            longest
        });
        let outcome = run();
        stop.store(true, Ordering::Relaxed);
        (outcome, pinger.join().expect("the daemon answers"))
    })
}

fn answered_in_time(longest: Duration) -> Outcome {
    check(longest < bound(SECOND), || format!("the daemon took {longest:?} to answer"))
}

pub fn a_fork_bomb() -> Outcome {
    let room = Room::open(json!({ "capability": { "exec": { "max_processes": 200 } } }));
    for shell in ["bash", "sh"] {
        let bomb = if shell == "bash" { ":(){ :|:& };:" } else { "f(){ f|f& }; f; sleep 100" };
        let params = json!({ "argv": [shell, "-c", bomb], "timeout_ns": ns(5 * SECOND) });
        let begun = Instant::now();
        let (receipt, longest) = pinged(&room.world, || room.exec(params));
        aos_testkit::time::in_time(begun, 5 * SECOND + GRACE, bomb)?;
        expect(bomb, &receipt, &["timeout", "signaled", "ok"])?;
        answered_in_time(longest)?;
        room.nothing_runs()?;
    }
    // Afterwards the session can start processes again.
    expect("the next", &room.run(&["true"]), &["ok"])?;
    room.finish()
}

pub fn yes() -> Outcome {
    let room = Room::new();
    let before = room.world.rss();
    let params = json!({ "argv": ["yes"], "timeout_ns": ns(5 * SECOND) });
    let (receipt, longest) = pinged(&room.world, || in_time("yes", 5 * SECOND + GRACE, || room.exec(params)));
    let receipt = receipt?;
    answered_in_time(longest)?;
    expect("yes", &receipt, &["timeout"])?;
    check(receipt["truncated"] == true, || format!("it was not cut: {receipt}"))?;
    let size = receipt["stdout"]["blob"]["size_bytes"].as_u64().unwrap_or(u64::MAX);
    check(size <= OUTPUT_BYTES_MAX + 4_096, || format!("the blob has {size} bytes"))?;
    let written = receipt["stdout_bytes"].as_u64().unwrap_or(0);
    check(written > size, || format!("{written} were written, {size} are kept, and yet it was cut"))?;
    let grown = room.world.rss_peak().saturating_sub(before);
    check(grown < 64 * MIB, || format!("the daemon grew by {grown} bytes"))?;
    room.finish()
}

pub fn both_streams() -> Outcome {
    let cap = 4 * MIB;
    let room = Room::open(json!({ "capability": { "exec": { "max_output_bytes": cap } } }));
    let before = room.world.rss();
    let mut findings = Findings::default();
    for (argv, stream) in
        [(json!(["sh", "-c", "yes >&2"]), "stderr"), (json!(["cat", "/dev/zero"]), "stdout")]
    {
        let params = json!({ "argv": argv, "timeout_ns": ns(2 * SECOND) });
        let receipt = in_time("a flood", 2 * SECOND + GRACE, || room.exec(params))?;
        expect("a flood", &receipt, &["timeout"])?;
        findings.add(capped(&receipt, stream, cap));
    }
    let alternating =
        "import os\nfor _ in range(1600):\n    os.write(1, b'o' * 65536)\n    os.write(2, b'e' * 65536)\n";
    for argv in [
        json!(["python3", "-c", alternating]),
        json!(["sh", "-c", "head -c 104857600 /dev/zero & head -c 104857600 /dev/zero >&2; wait"]),
    ] {
        let receipt = in_time("both", 60 * SECOND, || room.exec(json!({ "argv": argv })))?;
        expect("both", &receipt, &["ok"])?;
        for stream in ["stdout", "stderr"] {
            check(receipt[format!("{stream}_bytes")] == 104_857_600, || format!("{stream}: {receipt}"))?;
            findings.add(capped(&receipt, stream, cap));
        }
    }
    let grown = room.world.rss_peak().saturating_sub(before);
    findings.add(check(grown < 64 * MIB, || format!("the daemon grew by {grown} bytes")));
    findings.add(room.finish());
    findings.outcome()
}

fn capped(receipt: &Value, stream: &str, cap: u64) -> Outcome {
    let size = receipt[stream]["blob"]["size_bytes"].as_u64().unwrap_or(u64::MAX);
    check(receipt["truncated"] == true && size <= cap + 4_096, || {
        format!("{stream} keeps {size} bytes, truncated {}", receipt["truncated"])
    })
}

/// The daemon stays below 200 MB, whatever the commands print.
pub fn memory_is_bounded() -> Outcome {
    let room = Room::new();
    let line = if is_full() { 1_000_000_000_u64 } else { 300_000_000 };
    let flood = |argv: Value| {
        let params = json!({ "argv": argv, "timeout_ns": ns(4 * SECOND) });
        let _ = room.exec(params);
    };
    flood(json!(["yes"]));
    flood(json!(["cat", "/dev/zero"]));
    let one_line = format!("head -c {line} /dev/zero | tr '\\0' x");
    let receipt = room.exec(json!({ "argv": ["sh", "-c", one_line], "timeout_ns": ns(120 * SECOND) }));
    expect("one line", &receipt, &["ok"])?;
    check(receipt["stdout_bytes"] == line, || format!("{receipt}"))?;
    // Several floods at a time, each with its own receipt.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| flood(json!(["sh", "-c", "yes & yes >&2"])));
        }
    });
    let peak = room.world.rss_peak();
    check(peak < 200 * MIB, || format!("the daemon held {peak} bytes"))?;
    room.finish()
}

/// Many short commands in one session, and in twenty.
pub fn two_hundred_at_once() -> Outcome {
    let mut room = Room::new();
    let params = json!({ "argv": ["sleep", "0.1"], "capture": "none" });
    let many = vec![room.session.clone(); 200];
    for _ in 0..if is_full() { 50 } else { 2 } {
        all_return(&room, &many, &params)?;
    }
    room.nothing_runs()?;
    room.back_to_baseline()?;
    let sessions: Vec<String> = (0..20).map(|_| room.another(json!({}))).collect();
    for session in &sessions {
        expect("the first", &room.exec_in(session, json!({ "argv": ["true"] })), &["ok"])?;
    }
    room.settle();
    let many: Vec<String> = sessions.iter().cycle().take(200).cloned().collect();
    let params = json!({ "argv": ["sleep", "0.1"], "capture": "auto" });
    for _ in 0..if is_full() { 5 } else { 1 } {
        all_return(&room, &many, &params)?;
    }
    room.finish()
}

fn all_return(room: &Room, sessions: &[String], params: &Value) -> Outcome {
    let running: Vec<_> = sessions.iter().map(|session| room.start_in(session, params.clone())).collect();
    for command in running {
        let receipt = command.join().map_err(|_| "a command did not return well".to_owned())?;
        expect("sleep 0.1", &receipt, &["ok"])?;
        check(receipt["exit_code"] == 0, || format!("{receipt}"))?;
    }
    Ok(())
}
