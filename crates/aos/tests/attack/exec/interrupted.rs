//! The daemon or the caller goes away while a command runs: the command ends, and the journal says what happened.

use std::time::Instant;

use aos_testkit::time::{in_time, wait_at_most};
use aos_testkit::{Client, Start, check, expect, full_figure, signal, wait_for};
use serde_json::{Value, json};

use super::room::{GRACE, Room, SECOND, marked, ns};
use crate::Outcome;

/// Sends a command and does not wait for its end.
fn sent(room: &Room, script: &str, tool_call: &str) -> Result<Client, String> {
    let _ = std::fs::remove_file(room.world.root.join("ready"));
    let params = json!({ "session_id": room.session, "argv": ["sh", "-c", script], "capture": "none" });
    let call = json!({ "kind": "host.exec", "params": params, "tool_call_id": tool_call });
    let mut client = room.world.client();
    client.send_effect(1, &call)?;
    wait_for("the command to run", || room.world.root.join("ready").exists())?;
    Ok(client)
}

fn gone(mark: &str) -> Outcome {
    wait_at_most(GRACE, "the command and all that it started end", || marked(mark).is_empty())
        .map_err(|why| format!("{why}: {:?}", marked(mark)))
}

/// The only receipt of a tool call.
fn receipt_of(room: &Room, tool_call: &str) -> Result<Value, String> {
    let mut entries = room.world.entries_of(&room.session, tool_call);
    entries.retain(|entry| !entry["receipt"].is_null());
    check(entries.len() == 1, || format!("{tool_call}: {entries:?}"))?;
    Ok(entries.remove(0)["receipt"].clone())
}

const SCRIPTS: &[&str] = &[
    "touch ready; sleep 100",
    "setsid sh -c 'touch ready; sleep 100; sleep 100' & sleep 100",
    "trap '' INT TERM HUP; (setsid sleep 100 &); touch ready; while :; do sleep 1; done",
    "touch ready; yes",
    "touch ready; kill -STOP $$",
];

pub fn killed() -> Outcome {
    killed_in(json!({}))?;
    // Without a pid namespace, which the kernel ends as a whole.
    killed_in(json!({ "isolation": "none" }))
}

fn killed_in(extra: Value) -> Outcome {
    let mut room = Room::open(extra);
    for round in 0..full_figure(20, 1) {
        for (number, script) in SCRIPTS.iter().enumerate() {
            let tool_call = format!("tc_{round}_{number}");
            let client = sent(&room, script, &tool_call)?;
            room.world.kill9();
            drop(client);
            gone(&room.mark).map_err(|why| format!("{script}: {why}"))?;
            room.world.restart(Start::default());
            expect(script, &receipt_of(&room, &tool_call)?, &["error / interrupted"])?;
            // The session and the daemon still answer.
            expect("the next", &room.run(&["true"]), &["ok"])?;
        }
    }
    room.world_finish()
}

pub fn asked_to_stop() -> Outcome {
    let mut room = Room::new();
    for (number, script) in SCRIPTS.iter().enumerate() {
        let tool_call = format!("tc_{number}");
        let mut client = sent(&room, script, &tool_call)?;
        let pid = room.world.daemon_pid();
        let asked = Instant::now();
        for _ in 0..1 + number % 2 {
            signal(pid, rustix::process::Signal::TERM);
        }
        room.world.reap();
        in_time(asked, 5 * SECOND, script)?;
        gone(&room.mark).map_err(|why| format!("{script}: {why}"))?;
        // Answered or not, the caller does not wait forever.
        while let Some(line) = client.line() {
            check(!line.contains("\"status\":\"ok\""), || format!("{script}: {line}"))?;
        }
        room.world.start_daemon();
        let receipt = receipt_of(&room, &tool_call)?;
        expect(script, &receipt, &["signaled", "error / interrupted"])?;
        expect("the next", &room.run(&["true"]), &["ok"])?;
    }
    room.world_finish()
}

/// The command ends by itself or with its caller; its receipt is in the journal either way.
pub fn the_caller_hangs_up() -> Outcome {
    let room = Room::new();
    let client = sent(&room, "touch ready; sleep 1; echo end; touch reached", "tc_gone")?;
    drop(client);
    let mut entries = Vec::new();
    wait_for("the receipt", || {
        entries = room.world.entries_of(&room.session, "tc_gone");
        entries.iter().any(|entry| !entry["receipt"].is_null())
    })?;
    expect("without its caller", &receipt_of(&room, "tc_gone")?, &["ok", "signaled", "error"])?;
    // A caller that never reads delays neither its command nor other callers.
    let params = json!({ "session_id": room.session, "argv": ["yes"], "capture": "none", "timeout_ns": ns(2 * SECOND) });
    let call = json!({ "kind": "host.exec", "params": params, "tool_call_id": "tc_deaf" });
    let mut deaf = room.world.client();
    deaf.send_effect(1, &call)?;
    let begun = Instant::now();
    while begun.elapsed() < 3 * SECOND {
        let asked = Instant::now();
        expect("beside it", &room.run(&["true"]), &["ok"])?;
        in_time(asked, SECOND, "a command beside it")?;
    }
    wait_for("the receipt of the deaf one", || !room.world.entries_of(&room.session, "tc_deaf").is_empty())?;
    drop(deaf);
    room.finish()
}
