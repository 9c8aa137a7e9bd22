//! Signals to a session reach all of its commands, and no others.

use std::time::{Duration, Instant};

use aos_testkit::{Random, check, expect, full_figure, wait_for};
use serde_json::{Value, json};

use super::room::{GRACE, Room, SECOND, in_time, ns};
use crate::Outcome;

/// Reports that it runs, then waits.
const WAITING: &str = "echo up; touch ready; sleep 100 & wait";

fn joined(command: std::thread::JoinHandle<Value>) -> Result<Value, String> {
    command.join().map_err(|_| "the command's receipt is not of the contract".to_owned())
}

pub fn another_sessions_signal() -> Outcome {
    let room = Room::new();
    let other = room.another(json!({}));
    let command = room.start_ready(&room.session, WAITING)?;
    expect("int on B", &room.signal(&other, "int"), &["signaled"])?;
    let invalid: &[&str] = &["error / invalid_params"];
    for odd in [
        json!(0),
        json!(65),
        json!(-1),
        json!(9),
        json!("KILL;x"),
        json!("KILL"),
        json!("SIGKILL"),
        json!("9"),
        json!(""),
        json!("Int"),
        json!(" int"),
        json!(null),
        json!(["int"]),
        json!(true),
    ] {
        expect(&format!("signal {odd}"), &room.signal(&room.session, odd.clone()), invalid)?;
    }
    let params = json!({ "session_id": room.session, "signal": "int", "grace_timeout_ns": -1 });
    expect("a negative grace", &room.world.client().effect("host.session.signal", params), invalid)?;
    for nobody in ["hs_0", "", "../x", "*"] {
        expect("nobody", &room.signal(nobody, "kill"), &["not_found", "error / invalid_params"])?;
    }
    expect("term on B", &room.signal(&other, "term"), &["signaled"])?;
    // There is no event to wait for when something must not happen: wait a moment instead.
    std::thread::sleep(Duration::from_millis(300));
    check(!command.is_finished() && !room.survivors().is_empty(), || "A's command was hit".into())?;
    expect("int on A", &room.signal(&room.session, "int"), &["signaled"])?;
    let receipt = joined(command)?;
    expect("A's command", &receipt, &["signaled"])?;
    check(receipt["signal"] == "SIGINT", || format!("{receipt}"))?;
    room.finish()
}

pub fn int_leaves_the_session_open() -> Outcome {
    let room = Room::new();
    // Several at a time: a plain command, one that cleans up, and one that ignores the signal.
    let plain = room.start_ready(&room.session, WAITING)?;
    let tidy = room.start_ready(
        &room.session,
        "trap 'echo tidied; exit 5' INT; touch ready; while :; do sleep 0.1; done",
    )?;
    let deaf = room.start_ready(&room.session, "trap '' INT; touch ready; sleep 2; echo heard nothing")?;
    let receipt = in_time("int", GRACE, || room.signal(&room.session, "int"))?;
    expect("int", &receipt, &["signaled"])?;
    let receipt = joined(plain)?;
    check(receipt["signal"] == "SIGINT" && room.stdout(&receipt) == "up\n", || format!("plain: {receipt}"))?;
    let receipt = joined(tidy)?;
    check(receipt["exit_code"] == 5 && room.stdout(&receipt) == "tidied\n", || format!("tidy: {receipt}"))?;
    let receipt = joined(deaf)?;
    check(receipt["exit_code"] == 0 && room.stdout(&receipt) == "heard nothing\n", || {
        format!("deaf: {receipt}")
    })?;
    // The session is open, and the last signal does not hit the next command.
    expect("the next", &room.sh("sleep 0.3; exit 0"), &["ok"])?;
    expect("int on an idle session", &room.signal(&room.session, "int"), &["signaled"])?;
    expect("and the next", &room.sh("sleep 0.3; exit 0"), &["ok"])?;
    room.finish()
}

pub fn term_gives_time() -> Outcome {
    let room = Room::new();
    let tidy = room.start_ready(
        &room.session,
        "trap 'echo tidied; exit 6' TERM; touch ready; while :; do sleep 0.05; done",
    )?;
    let deaf = room.start_ready(&room.session, "trap '' TERM; touch ready; sleep 100; sleep 100")?;
    let params = json!({ "session_id": room.session, "signal": "term", "grace_timeout_ns": ns(SECOND) });
    let receipt =
        in_time("term", SECOND + GRACE, || room.world.client().effect("host.session.signal", params))?;
    expect("term", &receipt, &["signaled"])?;
    let receipt = joined(tidy)?;
    check(receipt["exit_code"] == 6 && room.stdout(&receipt) == "tidied\n", || format!("tidy: {receipt}"))?;
    let receipt = joined(deaf)?;
    check(receipt["signal"] == "SIGKILL", || format!("deaf: {receipt}"))?;
    room.nothing_runs()?;
    expect("afterwards", &room.run(&["true"]), &["error / session_closed"])?;
    expect("once more", &room.signal(&room.session, "term"), &["already_exited"])?;
    room.finish()
}

pub fn kill_ends_everything() -> Outcome {
    let room = Room::new();
    let scripts = [
        WAITING,
        "trap '' INT TERM HUP QUIT; touch ready; while :; do sleep 1; done",
        "setsid sh -c 'touch ready; sleep 100; sleep 100' & sleep 100; wait",
        "touch ready; kill -STOP $$",
        "(while :; do echo spam; done) & touch ready; wait",
    ];
    for script in scripts {
        let session = room.another(json!({}));
        let command = room.start_ready(&session, script)?;
        let began = Instant::now();
        expect(script, &room.signal(&session, "kill"), &["signaled"])?;
        let receipt = joined(command)?;
        aos_testkit::time::in_time(began, GRACE, script)?;
        expect(script, &receipt, &["signaled"])?;
        check(receipt["signal"] == "SIGKILL", || format!("{script}: {receipt}"))?;
        room.nothing_runs()?;
        expect(
            "afterwards",
            &room.exec_in(&session, json!({ "argv": ["true"] })),
            &["error / session_closed"],
        )?;
    }
    // A command that waits behind another in the session's lane never starts.
    let session = room.another(json!({}));
    let first = room.start_in(&session, json!({ "argv": ["sh", "-c", "touch ready; sleep 100"] }));
    let second = room.start_in(&session, json!({ "argv": ["touch", "second-ran"] }));
    wait_for("the first runs", || !room.survivors().is_empty())?;
    expect("kill", &room.signal(&session, "kill"), &["signaled"])?;
    expect("the first", &joined(first)?, &["signaled", "error / session_closed"])?;
    expect("the second", &joined(second)?, &["error / session_closed", "signaled", "ok"])?;
    room.finish()
}

/// Signals of all kinds while commands start and end; afterwards nothing runs.
pub fn a_storm() -> Outcome {
    let room = Room::new();
    let mut random = Random::for_case();
    for round in 0..full_figure(100, 8) {
        let session = room.another(json!({}));
        let scripts = ["sleep 100", "true", "sleep 100 & exit 0", "trap '' INT TERM; sleep 100", "yes"];
        let commands: Vec<_> = (0..6)
            .map(|_| {
                let script = random.pick(&scripts);
                let params =
                    json!({ "argv": ["sh", "-c", script], "capture": "none", "timeout_ns": ns(20 * SECOND) });
                room.start_in(&session, params)
            })
            .collect();
        for _ in 0..random.below(6) {
            std::thread::sleep(Duration::from_millis(random.below(60) as u64));
            expect("int", &room.signal(&session, "int"), &["signaled"])?;
        }
        let last = *random.pick(&["term", "kill"]);
        let ended = in_time("the end", 2 * GRACE, || room.signal(&session, last))?;
        expect(last, &ended, &["signaled"])?;
        for command in commands {
            let what = format!("seed {}, round {round}", random.seed);
            expect(&what, &joined(command)?, &["ok", "signaled", "error / session_closed"])?;
        }
        room.nothing_runs()?;
    }
    room.finish()
}

/// A session that expires ends its commands.
pub fn the_session_expires() -> Outcome {
    let room = Room::new();
    let session = room.another(json!({ "session_ttl_ns": ns(2 * SECOND) }));
    let command =
        room.start_in(&session, json!({ "argv": ["sh", "-c", "sleep 100"], "timeout_ns": ns(8 * SECOND) }));
    let receipt = joined(command)?;
    expect("at the end of its time", &receipt, &["signaled", "timeout"])?;
    expect("afterwards", &room.exec_in(&session, json!({ "argv": ["true"] })), &["error / session_expired"])?;
    room.nothing_runs()?;
    room.finish()
}
