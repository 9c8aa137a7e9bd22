//! The output of a command is streamed while it runs: on the socket, and by `aos exec`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use aos_testkit::time::{in_time, wait_at_most};
use aos_testkit::{Findings, Programs, check, expect, signal, wait_for};
use base64::Engine as _;
use serde_json::{Value, json};

use super::room::{Room, SECOND};
use crate::Outcome;

pub fn streamed_while_it_runs() -> Outcome {
    let room = Room::new();
    // It waits until its first line was received: a daemon that reports output only at the end never answers.
    let script = "echo out 0; echo err 0 >&2; while [ ! -e go ]; do sleep 0.05; done
        for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; sleep 0.1; done";
    let params = json!({ "session_id": room.session, "argv": ["sh", "-c", script], "capture": "none" });
    let call = json!({ "kind": "host.exec", "params": params, "tool_call_id": "tc_progress" });
    let mut client = room.world.patient_client();
    let sent = Instant::now();
    client.send_effect(7, &call)?;
    let mut heard = [Vec::new(), Vec::new()];
    let receipt = loop {
        let line = client.line().ok_or("the daemon hung up")?;
        let message: Value = serde_json::from_str(&line).map_err(|why| format!("{why}: {line}"))?;
        if message["id"] == 7 {
            break message["result"].clone();
        }
        if !room.world.root.join("go").exists() {
            in_time(sent, SECOND, "the first line")?;
            room.world.write("go", "");
        }
        one_notification(&room, &message, &mut heard)?;
    };
    expect("the command", &receipt, &["ok"])?;
    check(heard[0] == room.bytes(&receipt["stdout"]) && heard[1] == room.bytes(&receipt["stderr"]), || {
        "what was told differs from what the receipt holds".into()
    })?;
    // Other connections do not get these notifications.
    room.finish()
}

fn one_notification(room: &Room, message: &Value, heard: &mut [Vec<u8>; 2]) -> Outcome {
    check(message["method"] == "exec.progress" && message.get("id").is_none(), || format!("{message}"))?;
    let params = &message["params"];
    check(params["session_id"] == room.session && params["tool_call_id"] == "tc_progress", || {
        format!("{params}")
    })?;
    let stream = match params["stream"].as_str() {
        Some("stdout") => &mut heard[0],
        Some("stderr") => &mut heard[1],
        _ => return Err(format!("{params}")),
    };
    check(params["offset_bytes"] == stream.len(), || format!("out of order: {params}"))?;
    let bytes = params["bytes"].as_str().ok_or(format!("no bytes: {params}"))?;
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(bytes).map_err(|why| format!("{why}: {params}"))?;
    stream.extend(bytes);
    Ok(())
}

fn aos_exec(room: &Room, session: &str, words: &[&str]) -> Command {
    let mut command = Command::new(&Programs::built().aos);
    command.args(["exec", "-s", session]).args(words);
    command.env("AOS_HOME", &room.world.home).current_dir(&room.world.root).stdin(Stdio::null());
    command
}

pub fn the_client() -> Outcome {
    let room = Room::new();
    let mut findings = Findings::default();
    let limited = room.another(json!({ "capability": { "exec": { "max_timeout_ns": 500_000_000 } } }));
    let strict = room.another(json!({ "policy": { "preset": "strict" } }));
    for (session, words, code, out, err) in [
        (&room.session, vec!["--", "sh", "-c", "echo out; echo err >&2; exit 7"], 7, "out\n", "err\n"),
        (&room.session, vec!["--", "true"], 0, "", ""),
        (&room.session, vec!["--", "sh", "-c", "kill -TERM $$"], 143, "", ""),
        (&room.session, vec!["--", "sh", "-c", "kill -KILL $$"], 137, "", ""),
        (&room.session, vec!["--", "printf", "\\033[2J\\377"], 0, "\x1b[2J\u{fffd}", ""),
        (&limited, vec!["--", "sleep", "100"], 66, "", "?"),
        (&strict, vec!["--", "cat", "/etc/passwd"], 1, "", "?"),
        (&room.session, vec!["--", "no-such-program"], 1, "", "?"),
        (&room.session, vec!["--", "pwd", "-P"], 0, &format!("{}\n", room.world.root.display()), ""),
    ] {
        let output = aos_exec(&room, session, &words).output().map_err(|why| why.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        findings.add(check(output.status.code() == Some(code) && text(&output.stdout) == out, || {
            format!("{words:?}: {output:?}")
        }));
        if err == "?" {
            findings.add(check(!output.stderr.is_empty(), || format!("{words:?}: no word why")));
        } else if code < 128 {
            findings.add(check(text(&output.stderr) == err, || format!("{words:?}: {output:?}")));
        }
    }
    findings.add(a_flood_through_the_client(&room));
    findings.add(room.finish());
    findings.outcome()
}

/// The output arrives complete, in order, and not all of it at the end.
fn a_flood_through_the_client(room: &Room) -> Outcome {
    let words = ["--", "sh", "-c", "echo first; sleep 1; seq 1 200000"];
    let mut child = aos_exec(room, &room.session, &words).stdout(Stdio::piped()).spawn().expect("aos starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it was piped"));
    let (mut first, mut rest) = (String::new(), String::new());
    let read = lines.read_line(&mut first).and_then(|_| {
        let live = child.try_wait()?.is_none();
        lines.read_to_string(&mut rest).map(|_| live)
    });
    let status = child.wait();
    check(read.is_ok_and(|live| live) && first == "first\n", || format!("not live: {first}"))?;
    let all: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    check(rest == all, || format!("{} of {} bytes came through", rest.len(), all.len()))?;
    check(status.is_ok_and(|status| status.success()), || "it did not end well".into())
}

/// Ctrl-C reaches the command, and its exit code is passed on.
pub fn the_client_is_interrupted() -> Outcome {
    let room = Room::new();
    for (script, code) in [
        ("touch ready; while :; do sleep 0.05; done", 130),
        ("trap 'exit 9' INT; touch ready; while :; do sleep 0.05; done", 9),
    ] {
        let _ = std::fs::remove_file(room.world.root.join("ready"));
        let mut child = aos_exec(&room, &room.session, &["--no-capture", "--", "sh", "-c", script])
            .spawn()
            .map_err(|why| why.to_string())?;
        wait_for("the command", || room.world.root.join("ready").exists())?;
        // The client subscribes to the signal before it asks for the command. Many short sleeps: a shell that is
        // interrupted just before it starts a child waits for that child first.
        signal(child.id() as i32, rustix::process::Signal::INT);
        let mut ended = None;
        let waited = wait_at_most(5 * SECOND, "aos exec ends", || {
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        let _ = child.kill();
        let _ = child.wait();
        waited?;
        let ended = ended.and_then(|status| status.code());
        check(ended == Some(code), || format!("{script}: aos exec ended with {ended:?}"))?;
        room.nothing_runs()?;
        expect("the session", &room.run(&["true"]), &["ok"])?;
    }
    room.finish()
}
