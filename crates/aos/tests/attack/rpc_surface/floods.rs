//! Endless lines, floods, slow senders and long commands: other clients are still answered.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use aos_testkit::time::bound;
use aos_testkit::world::DESCRIPTORS_SLACK;
use aos_testkit::{Client, Findings, Fixture, World, check, expect, is_full, text, wait_for};
use serde_json::{Value, json};

use super::{ask, call, envelope_error, list_call, still_serves};
use crate::Outcome;

/// While a command runs, the connection that started it answers other requests. The command ends only after them.
pub(super) fn a_command_blocks_no_request() -> Outcome {
    let world = World::new();
    world.write("f", "x");
    let session = world.open(aos_testkit::uncaptured(json!({})));
    let mut client = world.client();
    let script = "while [ ! -e go ]; do sleep 0.05; done";
    let command = json!({ "session_id": session, "argv": ["sh", "-c", script], "capture": "none", "timeout_ns": 120_000_000_000_u64 });
    let read = json!({ "session_id": session, "path": "f" }).to_string();
    client.send(format!("{}\n", call("\"command\"", "host.exec", &command.to_string())).as_bytes()).unwrap();
    for (id, kind, params) in
        [("list", "host.session.list", "{}"), ("read", "host.fs.read_file", read.as_str())]
    {
        let answer = ask(&mut client, call(&format!("\"{id}\""), kind, params));
        check(answer["id"] == id && answer["result"]["status"] == "ok", || format!("{id}: {answer}"))?;
    }
    world.write("go", "");
    let answer: Value = serde_json::from_str(&client.line().unwrap_or_default()).unwrap_or_default();
    expect("the command", &answer["result"], &["ok"])?;
    world.finish()
}

pub(super) fn a_line_without_end() -> Outcome {
    let world = World::new();
    let mut other = world.patient_client();
    let mut client = world.patient_client();
    client.stream().set_write_timeout(Some(Duration::from_secs(30))).unwrap();
    let before = world.rss();
    let chunk = vec![b'x'; 1 << 20];
    let (mut sent, mut slowest) = (0, Duration::ZERO);
    while sent < 1_000 && client.send(&chunk).is_ok() {
        sent += 1;
        let asked = Instant::now();
        still_serves(&mut other, "a megabyte of another's line")?;
        slowest = slowest.max(asked.elapsed());
    }
    check(sent < 64, || format!("{sent} MiB were taken"))?;
    let answer: Value = serde_json::from_str(&client.line().unwrap_or_default()).unwrap_or_default();
    envelope_error("a line without end", &answer, &[-32600])?;
    check(client.line().is_none(), || "the connection is still open".into())?;
    check(slowest < bound(Duration::from_secs(1)), || format!("another waited {slowest:?}"))?;
    let grown = world.rss_peak().saturating_sub(before);
    check(grown < 64 << 20, || format!("memory grew by {grown} bytes"))?;
    at_the_frame_limit(&world)?;
    world.finish()
}

/// A line of exactly 16 MiB is accepted; one more byte is not.
fn at_the_frame_limit(world: &World) -> Outcome {
    const LIMIT: usize = 16 << 20;
    let padded = |bytes: usize| {
        let line = list_call("1");
        format!("{line}{}", " ".repeat(bytes - line.len()))
    };
    let mut client = world.patient_client();
    let answer = ask(&mut client, padded(LIMIT));
    check(answer["result"]["status"] == "ok", || format!("16 MiB: {answer}"))?;
    still_serves(&mut client, "16 MiB")?;
    let _ = client.send(format!("{}\n{}\n", padded(LIMIT + 1), list_call("2")).as_bytes());
    let answer: Value = serde_json::from_str(&client.line().unwrap_or_default()).unwrap_or_default();
    envelope_error("16 MiB and one", &answer, &[-32600])?;
    check(client.line().is_none(), || "what followed was answered".into())
}

/// Promise 10: a flood of half lines, each below the limit, stays below 200 MB; and the memory is freed.
pub(super) fn a_flood_of_half_lines() -> Outcome {
    let world = World::new();
    let mut clients: Vec<Client> = (0..30).map(|_| world.patient_client()).collect();
    for client in &mut clients {
        // As far as the daemon accepts it: it may refuse, or stop reading.
        client.stream().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let _ = client.send(&vec![b'x'; 12 << 20]);
    }
    let mut findings = Findings::default();
    findings.add(still_serves(&mut world.patient_client(), "thirty half lines"));
    let peak = world.rss_peak();
    findings.add(check(peak < 200 << 20, || format!("the daemon held {peak} bytes")));
    drop(clients);
    findings.add(wait_for("the memory to be given back", || world.rss() < 128 << 20));
    findings.add(world.finish());
    findings.outcome()
}

pub(super) fn slow_senders() -> Outcome {
    raise_descriptor_limit();
    let fixture = Fixture::new();
    fixture.world.write("f", "one\n");
    let descriptors = fixture.world.open_descriptors();
    let socket = fixture.world.home.join("run/aosd.sock");
    let mut slow = Vec::new();
    for _ in 0..500 {
        slow.push(UnixStream::connect(&socket).map_err(|why| why.to_string())?);
    }
    // One byte per second each, as the case requires; the channel ends the pauses early.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let sender = std::thread::spawn(move || {
        for byte in list_call("1").into_bytes() {
            slow.iter_mut().for_each(|stream| drop(stream.write_all(&[byte])));
            if stopped.recv_timeout(Duration::from_secs(1)) != Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                return;
            }
        }
    });
    let outcome = answers_fast(&fixture, Duration::from_secs(if is_full() { 20 } else { 3 }));
    drop(stop);
    sender.join().expect("the slow ones end");
    outcome?;
    wait_for("their descriptors to be closed", || {
        fixture.world.open_descriptors() <= descriptors + DESCRIPTORS_SLACK
    })?;
    fixture.finish()
}

/// Reads, writes and new connections for a while: 99 of 100 answers take less than 100 ms.
fn answers_fast(fixture: &Fixture, span: Duration) -> Outcome {
    let mut client = fixture.world.patient_client();
    let (begun, mut took, mut round) = (Instant::now(), Vec::new(), 0);
    while begun.elapsed() < span {
        round += 1;
        let asked = Instant::now();
        let receipt = match round % 3 {
            0 => fixture.world.patient_client().fs(&fixture.session, "stat", json!({ "path": "f" })),
            1 => client.fs(&fixture.session, "read_file", json!({ "path": "f" })),
            _ => client.fs(&fixture.session, "write_file", json!({ "path": "w", "content": text("x") })),
        };
        took.push(asked.elapsed());
        expect("beside slow senders", &receipt, &["ok"])?;
    }
    took.sort();
    let p99 = took[took.len() * 99 / 100];
    println!("RPC-04: {} calls, p99 {p99:?}, slowest {:?}", took.len(), took[took.len() - 1]);
    check(p99 < bound(Duration::from_millis(100)), || format!("p99 is {p99:?} of {} calls", took.len()))
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
