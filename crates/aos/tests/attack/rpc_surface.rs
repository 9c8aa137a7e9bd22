//! The socket: whatever is sent, the daemon answers by the book, serves the others, and stays as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use aos_store::{Append, Journal as _};
use serde_json::{Value, json};

use crate::world::{
    AOS, AOSD, Bench, Client, DESCRIPTORS_SLACK, Findings, LATER_EXEC, LATER_RESTORE, Start, World, check,
    expect, is_full, patch_params, rand, run_bounded, signal, text, tree, verdict, wait_for,
};
use crate::{Case, Need, Outcome};

mod mcp;

pub fn cases() -> Vec<Case> {
    let plain = |id, run| Case { id, needs: &[], run };
    let mut cases = mcp::cases();
    cases.extend([
        plain("RPC-01", malformed_lines),
        plain("RPC-02", deep_and_wide),
        plain("RPC-03", a_line_without_end),
        plain("OWN-RPC-FLOOD", a_flood_of_half_lines),
        plain("OWN-RPC-BESIDE", a_command_holds_up_nobody),
        plain("RPC-04", slow_senders),
        plain("RPC-06", ids_and_batches),
        plain("RPC-07", text_that_is_none),
        plain("RPC-08", unknown_fields),
        plain("RPC-09", wrong_types),
        Case { id: "RPC-10", needs: &[Need::Root], run: nobody_else_connects },
        plain("RPC-12", gone_in_mid_request),
        plain("RPC-18", hostile_texts),
        plain("RPC-19", sessions_without_end),
        plain("RPC-21", a_hostile_home),
    ]);
    cases
}

/// While a command runs, others are answered on the very connection that asked for it. It ends only after they were.
fn a_command_holds_up_nobody() -> Outcome {
    let world = World::new();
    world.write("f", "x");
    let session = world.open(json!({}));
    let mut client = world.client();
    let script = "while [ ! -e go ]; do sleep 0.05; done";
    let command = json!({ "session_id": session, "argv": ["sh", "-c", script], "capture": "none", "timeout_ns": 20_000_000_000_u64 });
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

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Sends one line and takes one answer.
fn ask(client: &mut Client, line: impl AsRef<[u8]>) -> Value {
    let sent = client.send(line.as_ref()).and_then(|()| client.send(b"\n"));
    match (sent, client.line()) {
        (Ok(()), Some(answer)) => serde_json::from_str(&answer).unwrap_or(Value::String(answer)),
        _ => Value::Null,
    }
}

fn call(id: &str, kind: &str, params: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"effect.call\",\"params\":{{\"kind\":\"{kind}\",\"params\":{params}}}}}"
    )
}

fn list_call(id: &str) -> String {
    call(id, "host.session.list", "{}")
}

/// The connection still serves.
fn still_serves(client: &mut Client, after: &str) -> Outcome {
    let answer = ask(client, list_call("\"still\""));
    check(answer["id"] == "still" && answer["result"]["status"] == "ok", || {
        format!("after {after}: {answer}")
    })
}

/// An error of the envelope: a code of the four, no result, and an id that is null or given.
fn envelope_error(what: &str, answer: &Value, codes: &[i64]) -> Outcome {
    let code = answer["error"]["code"].as_i64();
    check(code.is_some_and(|code| codes.contains(&code)), || {
        format!("{what}: wanted {codes:?}, got {answer}")
    })?;
    check(answer["jsonrpc"] == "2.0" && answer.get("result").is_none(), || format!("{what}: {answer}"))?;
    check(answer["error"]["message"].is_string() && answer.get("id").is_some(), || {
        format!("{what}: {answer}")
    })
}

const MALFORMED: &[&str] = &[
    "{",
    "nope",
    "{\"a\":}",
    "[1,",
    "\"unterminated",
    "{} {}",
    "{\"jsonrpc\":1,",
    "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"x\"",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"effect.call\",",
    "{'jsonrpc':'2.0'}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",}",
    "NaN",
    "undefined",
    "{\"id\":01}",
    "{\"id\":+1}",
    "{\"id\":.5}",
    "{\"a\":\"tab\tinside\"}",
    "// comment",
    "}{",
    "\u{0}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"effect.call\",\"params\":{\"kind\":\"host.session.list\",\"params\":{}}",
];

fn malformed_lines() -> Outcome {
    let world = World::new();
    let mut client = world.patient_client();
    let mut findings = Findings::default();
    for line in MALFORMED {
        let answer = ask(&mut client, line);
        findings.add(envelope_error(line, &answer, &[-32700]));
        findings.add(check(answer["id"].is_null(), || format!("{line}: the id is null: {answer}")));
        findings.add(still_serves(&mut client, line));
    }
    // Without waiting in between: each its own answer, in order.
    let both = format!("{{\n{}\n", list_call("7"));
    client.send(both.as_bytes()).map_err(|why| why.to_string())?;
    let (first, second) = (client.line().unwrap_or_default(), client.line().unwrap_or_default());
    findings
        .add(check(first.contains("-32700") && second.contains("\"id\":7"), || format!("{first}{second}")));
    // Whole JSON that is no request.
    for line in
        ["42", "\"x\"", "null", "true", "{}", "[]", "{\"jsonrpc\":\"2.0\"}", "{\"id\":1,\"method\":\"x\"}"]
    {
        findings.add(envelope_error(line, &ask(&mut client, line), &[-32600]));
        findings.add(still_serves(&mut client, line));
    }
    findings.add(world.finish());
    findings.outcome()
}

fn deep_and_wide() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    let session = world.open(json!({}));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_object = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let keys: Vec<String> = (0..10_000).map(|n| format!("\"k{n}\":\"v\"")).collect();
    let wide = format!("{{{}}}", keys.join(","));
    let target = json!({ "local": { "workdir": world.root } });
    let mut findings = Findings::default();
    for value in [&deep, &deep_object, &wide, &"[".repeat(100_000), &"{\"a\":".repeat(100_000)] {
        for line in [
            value.clone(),
            format!("[{value}]"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{value},\"method\":\"x\"}}"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":{value}}}"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"effect.call\",\"params\":{value}}}"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"policy.evaluate\",\"params\":{value}}}"),
            call("1", "host.session.list", value),
            call("1", "host.fs.read_file", &format!("{{\"session_id\":\"{session}\",\"path\":{value}}}")),
            call(
                "1",
                "host.fs.read_file",
                &format!("{{\"session_id\":\"{session}\",\"path\":\"f\",\"x\":{value}}}"),
            ),
            call("1", "host.session.open", &format!("{{\"target\":{target},\"capability\":{value}}}")),
            call("1", "host.session.open", &format!("{{\"target\":{target},\"policy\":{value}}}")),
            call("1", "host.session.open", &format!("{{\"target\":{target},\"labels\":{value}}}")),
            call("1", "host.session.open", &format!("{{\"target\":{{\"vfs\":{value}}}}}")),
            call("1", "host.session.open", &format!("{{\"target\":{{\"staged\":{value}}}}}")),
        ] {
            findings.add(is_refused(&world, &line));
        }
    }
    findings.add(record_is_readable(&world));
    findings.add(world.finish());
    findings.outcome()
}

/// An error in the envelope or in the receipt; any answer but a success.
fn is_refused(world: &World, line: &str) -> Outcome {
    let answer = ask(&mut world.patient_client(), line);
    let answer = answer.get(0).cloned().unwrap_or(answer);
    let refused = answer["error"]["code"].is_number() || answer["result"]["status"] == "error";
    check(refused, || format!("{:.200}: {:.300}", line, answer.to_string()))
}

/// What was refused is in the record, and the record can still be read.
fn record_is_readable(world: &World) -> Outcome {
    let mut findings = Findings::default();
    for words in [
        &["log"][..],
        &["log", "--json"],
        &["session", "list", "--all"],
        &["show", "2"],
        &["verify"],
        &["replay", "--verify"],
    ] {
        let (code, _, err) = world.aos(words);
        findings.add(check(code == 0, || format!("aos {words:?}: exit {code}: {err:.300}")));
    }
    let head = world.client().rpc("daemon.status", json!({}))["result"]["seq"].as_u64().unwrap_or(0);
    for seq in 1..=head {
        let (code, _, err) = world.aos(&["show", &seq.to_string()]);
        findings.add(check(code == 0, || format!("aos show {seq}: exit {code}: {err:.300}")));
    }
    findings.outcome()
}

fn a_line_without_end() -> Outcome {
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
    check(slowest < Duration::from_secs(1), || format!("another waited {slowest:?}"))?;
    let grown = world.rss_peak().saturating_sub(before);
    check(grown < 64 << 20, || format!("memory grew by {grown} bytes"))?;
    at_the_frame_limit(&world)?;
    world.finish()
}

/// A line of exactly 16 MiB is one; a byte more is none.
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

/// Promise 10: a flood of half lines, each below the limit, stays below 200 MB; and the memory comes back.
fn a_flood_of_half_lines() -> Outcome {
    let world = World::new();
    let mut clients: Vec<Client> = (0..30).map(|_| world.patient_client()).collect();
    for client in &mut clients {
        // Taken as far as the daemon takes it: it may well refuse, or read no further.
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

fn slow_senders() -> Outcome {
    raise_descriptor_limit();
    let bench = Bench::new();
    bench.world.write("f", "one\n");
    let descriptors = bench.world.open_descriptors();
    let socket = bench.world.home.join("run/aosd.sock");
    let mut slow = Vec::new();
    for _ in 0..500 {
        slow.push(UnixStream::connect(&socket).map_err(|why| why.to_string())?);
    }
    // One byte a second each, which is what the case asks for; the channel ends the pauses early.
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
    let outcome = answers_fast(&bench, Duration::from_secs(if is_full() { 20 } else { 3 }));
    drop(stop);
    sender.join().expect("the slow ones end");
    outcome?;
    wait_for("their descriptors to be closed", || {
        bench.world.open_descriptors() <= descriptors + DESCRIPTORS_SLACK
    })?;
    bench.finish()
}

/// Reads, writes and new connections for a while: 99 of 100 take less than 100 ms.
fn answers_fast(bench: &Bench, span: Duration) -> Outcome {
    let mut client = bench.world.patient_client();
    let (begun, mut took, mut round) = (Instant::now(), Vec::new(), 0);
    while begun.elapsed() < span {
        round += 1;
        let asked = Instant::now();
        let receipt = match round % 3 {
            0 => bench.world.patient_client().fs(&bench.session, "stat", json!({ "path": "f" })),
            1 => client.fs(&bench.session, "read_file", json!({ "path": "f" })),
            _ => client.fs(&bench.session, "write_file", json!({ "path": "w", "content": text("x") })),
        };
        took.push(asked.elapsed());
        expect("beside slow senders", &receipt, &["ok"])?;
    }
    took.sort();
    let p99 = took[took.len() * 99 / 100];
    println!("RPC-04: {} calls, p99 {p99:?}, slowest {:?}", took.len(), took[took.len() - 1]);
    check(p99 < Duration::from_millis(100), || format!("p99 is {p99:?} of {} calls", took.len()))
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

fn ids_and_batches() -> Outcome {
    let bench = Bench::new();
    let mut findings = Findings::default();
    findings.add(ids_come_back(&bench.world));
    findings.add(ids_that_are_none(&bench.world));
    findings.add(two_with_one_id(&bench));
    findings.add(notifications(&bench));
    findings.add(requests_that_are_none(&bench.world));
    findings.add(odd_batches(&bench.world));
    findings.add(a_large_batch(&bench));
    findings.add(bench.finish());
    findings.outcome()
}

fn ids_come_back(world: &World) -> Outcome {
    let mut findings = Findings::default();
    let long = format!("\"{}\"", "x".repeat(10_000));
    for id in [
        "null",
        "1.5",
        "1180591620717411303424",
        "\"\"",
        "0",
        "-7",
        "1e3",
        "1.0",
        "\"1\"",
        "\"\\u0041\"",
        "18446744073709551616",
        "0.1000000000000000055511151231257827",
        "\"a\\n\\\"b\"",
        &long,
    ] {
        let mut client = world.patient_client();
        let sent = client.send(format!("{}\n", list_call(id)).as_bytes());
        let answer = client.line().unwrap_or_default();
        // As it came, or in another spelling of the same value.
        let value = |text: &str| serde_json::from_str::<Value>(text).ok();
        let given = value(&answer).map(|answer| answer["id"].clone());
        let same = answer.contains(&format!("\"id\":{id},")) || (given.is_some() && given == value(id));
        findings.add(check(same && sent.is_ok(), || format!("id {id:.40}: {answer:.200}")));
        findings.add(check(answer.contains("\"result\""), || format!("id {id:.40}: {answer:.200}")));
        findings.add(still_serves(&mut client, id));
    }
    findings.outcome()
}

fn ids_that_are_none(world: &World) -> Outcome {
    let mut findings = Findings::default();
    for id in ["{}", "[]", "[1]", "true", "false", "{\"a\":1}"] {
        let mut client = world.patient_client();
        findings.add(envelope_error(&format!("id {id}"), &ask(&mut client, list_call(id)), &[-32600]));
        findings.add(still_serves(&mut client, id));
    }
    findings.outcome()
}

/// Two requests under way with one id get two answers; who sends them so must know them apart himself.
fn two_with_one_id(bench: &Bench) -> Outcome {
    let mut client = bench.world.patient_client();
    let write = |name: &str| {
        let params = json!({ "session_id": bench.session, "path": name, "content": text("x") });
        call("5", "host.fs.write_file", &params.to_string())
    };
    client.send(format!("{}\n{}\n", write("a"), write("b")).as_bytes()).map_err(|why| why.to_string())?;
    for _ in 0..2 {
        let answer: Value = serde_json::from_str(&client.line().unwrap_or_default()).unwrap_or_default();
        check(answer["id"] == 5 && answer["result"]["status"] == "ok", || format!("one id twice: {answer}"))?;
    }
    still_serves(&mut client, "one id twice")?;
    check(bench.world.read("a") == b"x" && bench.world.read("b") == b"x", || "not both were done".into())
}

/// Without an id nothing is answered, not even an error; what was asked is done all the same.
fn notifications(bench: &Bench) -> Outcome {
    let mut client = bench.world.patient_client();
    let params = json!({ "session_id": bench.session, "path": "noted", "content": text("x") });
    let effect = call("1", "host.fs.write_file", &params.to_string()).replace("\"id\":1,", "");
    let (unknown, invalid) = (
        "{\"jsonrpc\":\"2.0\",\"method\":\"nope\"}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"effect.call\",\"params\":{}}",
    );
    let lines = [effect.as_str(), unknown, invalid, &format!("[{unknown},{effect},{invalid}]")].join("\n");
    client.send(format!("{lines}\n").as_bytes()).map_err(|why| why.to_string())?;
    // The very next answer must be the one to this.
    still_serves(&mut client, "notifications")?;
    check(bench.world.read("noted") == b"x", || "the notification was not done".into())
}

fn requests_that_are_none(world: &World) -> Outcome {
    let mut findings = Findings::default();
    let mut client = world.patient_client();
    for (line, codes) in [
        (r#"{"jsonrpc":"1.0","id":1,"method":"effect.call"}"#, &[-32600][..]),
        (r#"{"jsonrpc":2.0,"id":1,"method":"effect.call"}"#, &[-32600]),
        (r#"{"id":1,"method":"effect.call"}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"method":1,"params":"bar"}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"effect.call"}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"nope"}"#, &[-32601]),
        (r#"{"jsonrpc":"2.0","id":1,"method":""}"#, &[-32601]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"EFFECT.CALL"}"#, &[-32601]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call"}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":{}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":"x"}"#, &[-32600, -32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":7}"#, &[-32600, -32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":null}"#, &[-32600, -32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":{"kind":7}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":{"kind":"a","extra":1}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":{"kind":"a","kind":"b"}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":{"kind":"a","turn_id":1}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"policy.evaluate","params":{"pth":"x"}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"policy.evaluate","params":[]}"#, &[-32602]),
    ] {
        let answer = ask(&mut client, line);
        findings.add(envelope_error(line, &answer, codes));
        let code = answer["error"]["code"].as_i64();
        // Where the request could be read, its id comes back; where it could not, the id is null.
        let wanted = if code == Some(-32600) {
            answer["id"].is_null() || answer["id"] == 1
        } else {
            answer["id"] == 1
        };
        findings.add(check(wanted, || format!("{line}: the id: {answer}")));
    }
    findings.add(still_serves(&mut client, "requests that are none"));
    findings.outcome()
}

fn odd_batches(world: &World) -> Outcome {
    let mut findings = Findings::default();
    let mut client = world.patient_client();
    findings.add(envelope_error("[]", &ask(&mut client, "[]"), &[-32600]));
    let good = list_call("1");
    for (line, count) in [
        ("[1]", 1),
        ("[1,2,3]", 3),
        ("[[]]", 1),
        ("[[1,2],{},null,\"x\"]", 4),
        // A list is no request, whatever stands in it.
        ("[[\"2.0\",1,\"daemon.status\"]]", 1),
        ("[[\"2.0\",1,\"effect.call\",{\"kind\":\"host.session.list\"}]]", 1),
    ] {
        let answer = ask(&mut client, line);
        let errors = answer.as_array().cloned().unwrap_or_default();
        findings.add(check(errors.len() == count, || format!("{line}: {answer}")));
        for error in errors {
            findings.add(envelope_error(line, &error, &[-32600]));
            findings.add(check(error["id"].is_null(), || format!("{line}: the id is null: {error}")));
        }
    }
    findings.add(envelope_error("a broken batch", &ask(&mut client, format!("[{good},{{]")), &[-32700]));
    let mixed = format!("[{good},1,{{\"jsonrpc\":\"2.0\",\"method\":\"nope\"}},{}]", list_call("\"z\""));
    let answer = ask(&mut client, &mixed);
    let ids: Vec<Value> =
        answer.as_array().into_iter().flatten().map(|answer| answer["id"].clone()).collect();
    findings.add(check(ids.len() == 3 && ids.contains(&json!(1)) && ids.contains(&json!("z")), || {
        format!("{answer}")
    }));
    findings.add(still_serves(&mut client, "odd batches"));
    findings.outcome()
}

fn a_large_batch(bench: &Bench) -> Outcome {
    let ground = json!({ "session_id": bench.session, "path": "f" });
    let requests: Vec<String> = (0..10_000)
        .map(|id| match id % 5 {
            0 => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"nope\"}}"),
            1 => call(&id.to_string(), "host.fs.exists", &ground.to_string()),
            _ => format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"policy.evaluate\",\"params\":{ground}}}"
            ),
        })
        .collect();
    let mut client = bench.world.patient_client();
    let answer = ask(&mut client, format!("[{}]", requests.join(",")));
    let answers = answer.as_array().cloned().unwrap_or_default();
    check(answers.len() == 10_000, || {
        format!("{} answers to 10,000: {:.200}", answers.len(), answer.to_string())
    })?;
    let mut seen = BTreeSet::new();
    for answer in &answers {
        let id = answer["id"].as_u64().ok_or_else(|| format!("no id: {answer}"))?;
        check(seen.insert(id), || format!("id {id} was answered twice"))?;
        let fits = match id % 5 {
            0 => answer["error"]["code"] == -32601,
            1 => answer["result"]["exists"] == false,
            _ => answer["result"]["disposition"] == "allow",
        };
        check(fits, || format!("the answer to {id} is another's: {answer}"))?;
    }
    still_serves(&mut client, "a batch of 10,000")
}

fn text_that_is_none() -> Outcome {
    let bench = Bench::new();
    bench.world.write("f", "one\n");
    let mut findings = Findings::default();
    let path = |path: &str| {
        call(
            "1",
            "host.fs.read_file",
            &format!("{{\"session_id\":\"{}\",\"path\":\"{path}\"}}", bench.session),
        )
    };
    for escape in ["\\ud800", "\\udfff", "\\ud800\\ud800", "a\\udc00b", "\\uD83D\\u0041", "\\ud83d"] {
        for line in [
            path(escape),
            path("f").replace("host.fs.read_file", escape),
            path("f").replace("effect.call", escape),
            path("f").replace("\"kind\"", &format!("\"tool_call_id\":\"{escape}\",\"kind\"")),
            path("f").replace("\"path\"", &format!("\"{escape}\":1,\"path\"")),
        ] {
            let mut client = bench.world.patient_client();
            findings.add(envelope_error(&line, &ask(&mut client, &line), &[-32700, -32600, -32601, -32602]));
            findings.add(still_serves(&mut client, &line));
        }
    }
    // Below in the request it may be the receipt that says no; never a success.
    let target = json!({ "local": { "workdir": bench.world.root } });
    for field in [
        "\"labels\":{\"a\":\"\\ud800\"}",
        "\"capability\":{\"fs_roots\":[\"\\ud800\"]}",
        "\"policy\":{\"preset\":\"\\ud800\"}",
    ] {
        findings.add(is_refused(
            &bench.world,
            &call("1", "host.session.open", &format!("{{\"target\":{target},{field}}}")),
        ));
    }
    findings.add(bytes_that_are_no_text(&bench, &path("f")));
    let paired = ask(&mut bench.world.patient_client(), path("\\ud83d\\ude00"));
    findings.add(check(verdict(&paired["result"]) == "not_found / path_not_found", || {
        format!("a pair: {paired}")
    }));
    findings.add(bench.finish());
    findings.outcome()
}

/// Bytes that no UTF-8 has, a BOM, and UTF-16 of both orders.
fn bytes_that_are_no_text(bench: &Bench, good: &str) -> Outcome {
    let utf16 = |big: bool, bom: bool| -> Vec<u8> {
        let text = if bom { format!("\u{feff}{good}") } else { good.to_owned() };
        text.encode_utf16()
            .flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() })
            .collect()
    };
    let inside = |bytes: &[u8]| [&good.as_bytes()[..good.len() - 4], bytes, b"\"}}}"].concat();
    let mut findings = Findings::default();
    for line in [
        vec![0xff],
        inside(&[0xff]),
        inside(&[0xc0, 0x80]),
        inside(&[0xed, 0xa0, 0x80]),
        inside(&[0xf4, 0x90, 0x80, 0x80]),
        inside(&[0xe2, 0x82]),
        [b"\xef\xbb\xbf", good.as_bytes()].concat(),
        [good.as_bytes(), b"\xff"].concat(),
        utf16(false, true),
        utf16(true, true),
        utf16(false, false),
        utf16(true, false),
    ] {
        let mut client = bench.world.patient_client();
        let what = format!("{:?}", line.escape_ascii().to_string().get(..24));
        findings.add(envelope_error(&what, &ask(&mut client, &line), &[-32700, -32602]));
        findings.add(still_serves(&mut client, &what));
    }
    findings.outcome()
}

/// Every effect with params that fit it, as far as this build serves them.
fn every_effect(session: &str, root: &Path) -> Vec<(&'static str, Value)> {
    let inside = |mut params: Value| {
        params["session_id"] = json!(session);
        params
    };
    vec![
        ("host.session.open", json!({ "target": { "local": { "workdir": root } } })),
        ("host.session.list", json!({})),
        ("host.session.signal", inside(json!({ "signal": "int" }))),
        ("host.fs.read_file", inside(json!({ "path": "f" }))),
        ("host.fs.write_file", inside(json!({ "path": "w", "content": text("x") }))),
        ("host.fs.edit_file", inside(json!({ "path": "f", "old_string": "one", "new_string": "one" }))),
        ("host.fs.apply_patch", inside(patch_params("*** Update File: f\n@@\n one\n"))),
        ("host.fs.stat", inside(json!({ "path": "f" }))),
        ("host.fs.exists", inside(json!({ "path": "f" }))),
        ("host.fs.list_dir", inside(json!({ "path": "." }))),
        ("host.fs.make_dir", inside(json!({ "path": "made" }))),
        ("host.fs.move", inside(json!({ "from": "w", "to": "m" }))),
        ("host.fs.remove", inside(json!({ "path": "m" }))),
    ]
}

/// `error / invalid_params` whose sentence names the field.
fn names_field(what: &str, receipt: &Value, field: &str) -> Outcome {
    expect(what, receipt, &["error / invalid_params"])?;
    let message = receipt["error_message"].as_str().unwrap_or_default();
    check(message.contains(field), || format!("{what}: {field} is not named: {receipt}"))
}

fn unknown_fields() -> Outcome {
    let bench = Bench::new();
    bench.world.write("f", "one\n");
    let mut client = bench.world.patient_client();
    let mut findings = Findings::default();
    for (kind, good) in every_effect(&bench.session, &bench.world.root) {
        let mut refused = |params: Value, field: &str| {
            names_field(&format!("{kind} {params}"), &client.effect(kind, params), field)
        };
        for extra in ["extra_field", "Path", "sessionId", "session_id ", "__proto__", "output-mode", ""] {
            let mut params = good.clone();
            params[extra] = json!("x");
            findings.add(refused(params, extra));
        }
        // Each field in turn misspelt: it is unknown then, or missing.
        for field in good.as_object().unwrap().keys() {
            let mut params = good.clone();
            let value = params.as_object_mut().unwrap().remove(field).unwrap();
            params[format!("{}x", &field[..field.len() - 1])] = value;
            findings.add(refused(params, &field[..field.len() - 1]));
        }
    }
    findings.add(nested_fields(&bench));
    findings.add(doubled_fields(&bench));
    let (code, out, _) =
        bench.world.aos(&["call", "host.fs.read_file", "{\"sesion_id\":\"x\",\"path\":\"f\"}"]);
    findings.add(check(code == 1 && out.contains("sesion_id"), || format!("aos call: {code}: {out}")));
    findings.add(bench.finish());
    findings.outcome()
}

/// Unknown fields one level down.
fn nested_fields(bench: &Bench) -> Outcome {
    let mut findings = Findings::default();
    let mut client = bench.world.patient_client();
    let local = |extra: Value| {
        let mut local = json!({ "workdir": bench.world.root });
        local.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap_or_default());
        json!({ "target": { "local": local } })
    };
    let session = &bench.session;
    for (kind, params, field) in [
        ("open", local(json!({ "wrkdir": "x" })), "wrkdir"),
        ("open", local(json!({ "mounts": [{ "host_path": "/", "mode": "ro", "mod": 1 }] })), "mod"),
        ("open", json!({ "target": { "remote": {} } }), "remote"),
        ("open", json!({ "target": { "local": { "workdir": bench.world.root }, "vfs": {} } }), "target"),
        (
            "write_file",
            json!({ "path": "w", "content": { "inline_text": { "text": "x", "txt": 1 } } }),
            "txt",
        ),
        ("write_file", json!({ "path": "w", "content": { "inline": { "text": "x" } } }), "inline"),
        ("write_file", json!({ "path": "w", "content": { "text": "x" } }), "content"),
        (
            "write_file",
            json!({ "path": "w", "content": { "inline_text": { "text": "x" }, "more": {} } }),
            "content",
        ),
        (
            "edit_file",
            json!({ "path": "f", "edits": [{ "old_string": "one", "new_string": "x", "al": true }] }),
            "al",
        ),
        ("apply_patch", json!({ "patch": { "inline_text": { "text": "x" }, "blob_ref": {} } }), "patch"),
        ("apply_patch", json!({ "patch": { "blob_ref": { "ref": "x" } } }), "ref"),
    ] {
        let what = format!("{kind} {params}");
        let receipt = match kind {
            "open" => client.effect("host.session.open", params),
            _ => client.fs(session, kind, params),
        };
        findings.add(names_field(&what, &receipt, field));
    }
    for (given, field, code) in [
        (
            json!({ "capability": { "follow_symlink": "deny" } }),
            "follow_symlink",
            "error / invalid_capability",
        ),
        (json!({ "capability": { "exec": { "alowed": false } } }), "alowed", "error / invalid_capability"),
        (json!({ "policy": { "rule": [] } }), "rule", "error / invalid_policy"),
        (
            json!({ "policy": { "host_access": { "absolute": "deny" } } }),
            "absolute",
            "error / invalid_policy",
        ),
    ] {
        let receipt = bench.world.open_receipt(given);
        findings.add(expect(field, &receipt, &[code]));
        let named = receipt["error_message"].as_str().is_some_and(|message| message.contains(field));
        findings.add(check(named, || format!("{field} is not named: {receipt}")));
    }
    findings.outcome()
}

/// A key that stands twice: which one would count?
fn doubled_fields(bench: &Bench) -> Outcome {
    let mut findings = Findings::default();
    let mut client = bench.world.patient_client();
    let (session, root) = (&bench.session, json!(bench.world.root));
    for (kind, params, field) in [
        (
            "host.fs.read_file",
            format!(r#"{{"session_id":"{session}","path":"f","path":"../outside/secret"}}"#),
            "path",
        ),
        (
            "host.fs.stat",
            format!(r#"{{"session_id":"{session}","session_id":"x","path":"f"}}"#),
            "session_id",
        ),
        (
            "host.fs.write_file",
            format!(
                r#"{{"session_id":"{session}","path":"w","content":{{"inline_text":{{"text":"a","text":"b"}}}}}}"#
            ),
            "text",
        ),
        (
            "host.session.open",
            format!(r#"{{"target":{{"local":{{"workdir":{root},"workdir":"/"}}}}}}"#),
            "workdir",
        ),
        (
            "host.session.open",
            format!(r#"{{"target":{{"local":{{"workdir":{root}}}}},"labels":{{"a":"1","a":"2"}}}}"#),
            "a",
        ),
        (
            "host.session.open",
            format!(r#"{{"target":{{"local":{{"workdir":{root},"env":{{"A":"1","A":"2"}}}}}}}}"#),
            "A",
        ),
    ] {
        findings.add(names_field(&params, &client.raw_effect(kind, &params), field));
    }
    findings.outcome()
}

fn wrong_types() -> Outcome {
    let bench = Bench::new();
    bench.world.write("f", "one\n");
    let mut client = bench.world.patient_client();
    let mut findings = Findings::default();
    for (kind, good) in every_effect(&bench.session, &bench.world.root) {
        for field in good.as_object().unwrap().keys() {
            for wrong in
                [json!(["f"]), json!(7), json!(null), json!({ "a": "f" }), json!(true), json!(1.5), json!([])]
            {
                let mut params = good.clone();
                params[field] = wrong;
                let what = format!("{kind} {params}");
                findings.add(names_field(&what, &client.effect(kind, params), field));
            }
        }
        for whole in ["[]", "null", "7", "\"x\"", "true", "[{}]"] {
            let receipt = client.raw_effect(kind, whole);
            findings.add(expect(&format!("{kind} {whole}"), &receipt, &["error / invalid_params"]));
        }
    }
    findings.add(wrong_options(&bench));
    findings.add(lists_for_objects(&bench));
    findings.add(odd_numbers(&bench));
    findings.add(bench.finish());
    findings.outcome()
}

/// Every optional field of the effects with values of every wrong type.
const OPTIONS: &str = "read_file offset_bytes number
read_file max_bytes number
read_file encoding word
read_file with_hash flag
read_file output_mode word
write_file create_parents flag
write_file mode word
write_file executable flag
write_file expected_hash text
write_file with_diff flag
edit_file replace_all flag
edit_file expected_hash text
edit_file with_diff flag
apply_patch patch_format text
apply_patch dry_run flag
apply_patch with_diff flag
stat no_follow flag
list_dir max_results number
list_dir output_mode word
remove recursive flag
move overwrite flag
make_dir parents flag";

fn wrong_options(bench: &Bench) -> Outcome {
    let mut findings = Findings::default();
    let mut client = bench.world.patient_client();
    let effects: BTreeMap<_, _> = every_effect(&bench.session, &bench.world.root).into_iter().collect();
    for line in OPTIONS.lines() {
        let [kind, field, sort] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let kind = format!("host.fs.{kind}");
        let mut wrong = vec!["null", "[]", "{}", "[true]", "{\"auto\":null}"];
        wrong.extend(match sort {
            "number" => &["\"1\"", "true", "-1", "1.5", "1e30", "18446744073709551616"][..],
            "flag" => &["\"true\"", "1", "0"],
            "word" => &["\"nope\"", "\"\"", "\"AUTO\"", "1", "true"],
            _ => &["1", "true"],
        });
        for value in wrong {
            let mut params = effects[kind.as_str()].clone();
            params[field] = json!("@@");
            let params = params.to_string().replace("\"@@\"", value);
            findings.add(names_field(&format!("{kind} {params}"), &client.raw_effect(&kind, &params), field));
        }
    }
    findings.outcome()
}

/// A list where an object belongs is not read field by field, and a word is a word.
fn lists_for_objects(bench: &Bench) -> Outcome {
    let mut findings = Findings::default();
    let mut client = bench.world.patient_client();
    let (session, root) = (json!(bench.session), json!(bench.world.root));
    let inside = |rest: &str| format!("{{\"session_id\":{session},{rest}}}");
    for (kind, params) in [
        ("host.session.open", format!("{{\"target\":{{\"local\":[{root}]}}}}")),
        ("host.session.open", format!("{{\"target\":[\"local\",{{\"workdir\":{root}}}]}}")),
        (
            "host.session.open",
            format!("{{\"target\":{{\"local\":{{\"workdir\":{root},\"mounts\":[[\"/\",null,\"ro\"]]}}}}}}"),
        ),
        (
            "host.session.open",
            format!("{{\"target\":{{\"local\":{{\"workdir\":{root}}}}},\"isolation\":{{\"none\":null}}}}"),
        ),
        ("host.session.signal", inside("\"signal\":{\"int\":null}")),
        ("host.session.signal", inside("\"signal\":[\"int\"]")),
        ("host.fs.write_file", inside("\"path\":\"l\",\"content\":{\"inline_text\":[\"x\"]}")),
        ("host.fs.write_file", inside("\"path\":\"l\",\"content\":[\"inline_text\",{\"text\":\"x\"}]")),
        ("host.fs.write_file", inside("\"path\":\"l\",\"content\":{\"inline_bytes\":[\"eA==\"]}")),
        (
            "host.fs.write_file",
            inside(
                "\"path\":\"l\",\"content\":{\"inline_text\":{\"text\":\"x\"}},\"mode\":{\"append\":null}",
            ),
        ),
        ("host.fs.edit_file", inside("\"path\":\"f\",\"edits\":[[\"one\",\"one\"]]")),
        (
            "host.fs.edit_file",
            inside("\"path\":\"f\",\"edits\":{\"old_string\":\"one\",\"new_string\":\"one\"}"),
        ),
        (
            "host.fs.apply_patch",
            inside(
                "\"patch\":{\"inline_text\":[\"*** Begin Patch\\n*** Add File: l\\n+x\\n*** End Patch\\n\"]}",
            ),
        ),
        ("host.fs.read_file", inside("\"path\":\"f\",\"encoding\":{\"bytes\":null}")),
    ] {
        let receipt = client.raw_effect(kind, &params);
        findings.add(expect(&format!("{kind} {params}"), &receipt, &["error / invalid_params"]));
    }
    findings.add(check(!bench.world.root.join("l").exists(), || "a list wrote a file".into()));
    findings.outcome()
}

fn odd_numbers(bench: &Bench) -> Outcome {
    let mut findings = Findings::default();
    let mut client = bench.world.patient_client();
    let mut read = |field: &str, value: &str| {
        let params = format!("{{\"session_id\":\"{}\",\"path\":\"f\",\"{field}\":{value}}}", bench.session);
        client.raw_effect("host.fs.read_file", &params)
    };
    for value in ["9223372036854775808", "9223372036854775807", "18446744073709551615", "4", "5"] {
        let receipt = read("offset_bytes", value);
        let empty =
            receipt["status"] == "ok" && receipt["content"] == text("") && receipt["truncated"] == false;
        findings.add(check(empty || verdict(&receipt) == "error / invalid_params", || {
            format!("offset {value}: {receipt}")
        }));
    }
    let none = read("max_bytes", "0");
    let empty = none["status"] == "ok" && none["content"] == text("");
    findings
        .add(check(empty || verdict(&none) == "error / invalid_params", || format!("max_bytes 0: {none}")));
    let all = read("max_bytes", "18446744073709551615");
    findings.add(check(all["content"] == text("one\n"), || format!("max_bytes 2^64-1: {all}")));
    // Times: the largest there is must not wrap around into the past.
    for ttl in ["18446744073709551615", "9223372036854775807"] {
        let target = json!({ "local": { "workdir": bench.world.root } });
        let receipt = client
            .raw_effect("host.session.open", &format!("{{\"target\":{target},\"session_ttl_ns\":{ttl}}}"));
        let later = receipt["expires_at_ns"].as_u64() > receipt["started_at_ns"].as_u64();
        findings.add(check(verdict(&receipt) == "error / invalid_params" || later, || {
            format!("ttl {ttl}: {receipt}")
        }));
        let Some(session) = receipt["session_id"].as_str() else { continue };
        findings.add(client.must(session, "stat", json!({ "path": "f" }), &["ok"]));
    }
    findings.outcome()
}

// ------------------------------------------------------------------------------------------------ another uid

const OTHER_UID: u32 = 65_534;
const CONNECTED: u8 = 7;
const ANSWERED: u8 = 8;
const TURNED_AWAY: u8 = 9;

/// This program again, under another uid: tries a socket for ever, or speaks to it once.
pub fn other_uid() -> Option<ExitCode> {
    if let Some(socket) = std::env::var_os("AOS_ATTACK_KNOCK") {
        println!("knocking");
        loop {
            if UnixStream::connect(&socket).is_ok() {
                return Some(CONNECTED.into());
            }
        }
    }
    let socket = std::env::var_os("AOS_ATTACK_SPEAK")?;
    let Ok(mut stream) = UnixStream::connect(&socket) else { return Some(ExitCode::FAILURE) };
    let _ = stream.write_all(format!("{}\n", list_call("1")).as_bytes());
    let mut answer = [0; 1];
    let answered = stream.read(&mut answer).is_ok_and(|bytes| bytes > 0);
    Some(if answered { ANSWERED.into() } else { TURNED_AWAY.into() })
}

struct Stranger {
    child: Child,
}

impl Stranger {
    fn start(program: &Path, variable: &str, socket: &Path) -> Stranger {
        let mut command = Command::new(program);
        command.env_clear().env(variable, socket).uid(OTHER_UID).gid(OTHER_UID);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the other uid may run the copy");
        if variable == "AOS_ATTACK_KNOCK" {
            // Only once it is under way does the race begin.
            let mut said = [0; 8];
            let _ = child.stdout.as_mut().expect("asked for above").read_exact(&mut said);
        }
        Stranger { child }
    }

    /// The exit code, if it has ended.
    fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }

    fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn nobody_else_connects() -> Outcome {
    let umask = ["sh", "-c", "umask 000; exec \"$@\"", "sh"].map(str::to_owned);
    let mut world = World::asleep(Start { wrapper: umask.into(), ..Start::default() });
    let program = world.parent.join("stranger");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    knocking_has_teeth(&world, &program)?;
    let socket = world.home.join("run/aosd.sock");
    for round in 0..if is_full() { 100 } else { 8 } {
        std::fs::remove_dir_all(&world.home).unwrap();
        std::fs::create_dir(&world.home).unwrap();
        // Every other time the folders stand already, wide open.
        for folder in ["", "run", "state"].into_iter().take(if round % 2 == 0 { 0 } else { 3 }) {
            let _ = std::fs::create_dir(world.home.join(folder));
            std::fs::set_permissions(world.home.join(folder), std::fs::Permissions::from_mode(0o777))
                .unwrap();
        }
        let mut stranger = Stranger::start(&program, "AOS_ATTACK_KNOCK", &socket);
        world.start_daemon();
        modes_are_tight(&world)?;
        check(stranger.ended().is_none(), || format!("round {round}: another uid connected"))?;
        drop(stranger);
        if round == 0 {
            strangers_are_turned_away(&world, &program)?;
        }
        world.kill9();
    }
    std::fs::remove_dir_all(&world.home).unwrap();
    world.finish()
}

/// The knocking finds a door that is open; else its silence would prove nothing.
fn knocking_has_teeth(world: &World, program: &Path) -> Outcome {
    let open = world.parent.join("open.sock");
    let _listener = UnixListener::bind(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o666)).unwrap();
    let code = Stranger::start(program, "AOS_ATTACK_KNOCK", &open).end();
    check(code == Some(CONNECTED.into()), || format!("the stranger cannot even knock: {code:?}"))
}

/// Closed to everybody else from the first moment; exact a moment later, when the daemon has gone over it.
fn modes_are_tight(world: &World) -> Outcome {
    for entry in walk(&world.home) {
        let mode = entry.symlink_metadata().map_or(0, |meta| meta.mode());
        check(mode & 0o077 == 0, || format!("{} is open: {mode:o}", shown(&entry)))?;
    }
    let mode = |path: &str| world.home.join(path).symlink_metadata().map_or(0, |meta| meta.mode() & 0o7777);
    for (path, wanted) in [("", 0o700), ("run", 0o700), ("state", 0o700), ("run/aosd.sock", 0o600)] {
        wait_for(&format!("{path:?} to have mode {wanted:o}"), || mode(path) == wanted)?;
    }
    Ok(())
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    tree(dir).into_keys().collect()
}

/// Even where the folders were opened by hand, the daemon looks at who speaks.
fn strangers_are_turned_away(world: &World, program: &Path) -> Outcome {
    let socket = world.home.join("run/aosd.sock");
    for (path, mode) in
        [(world.home.clone(), 0o755), (world.home.join("run"), 0o755), (socket.clone(), 0o666)]
    {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let code = Stranger::start(program, "AOS_ATTACK_SPEAK", &socket).end();
    check(code == Some(TURNED_AWAY.into()), || format!("a stranger was not turned away: {code:?}"))
}

fn gone_in_mid_request() -> Outcome {
    let mut bench = Bench::new();
    let descriptors = bench.world.open_descriptors();
    let mut findings = Findings::default();
    for round in 0..if is_full() { 50 } else { 5 } {
        findings.add(gone_after_a_patch(&bench, round));
    }
    findings.add(gone_before_the_end(&bench));
    findings.add(half_closed(&bench));
    if LATER_EXEC {
        // The command ends or dies with its client, and its receipt stands in the journal.
        let params = json!({ "session_id": bench.session, "argv": ["sleep", "1"] });
        let entry = gone_after(&bench, "host.exec", params, "tc_exec")?;
        findings.add(expect("exec", &entry["receipt"], &["ok", "signaled", "error"]));
    }
    if LATER_RESTORE {
        let params = json!({ "session_id": bench.session, "scope_id": "tc_gone0" });
        let entry = gone_after(&bench, "host.fs.restore", params, "tc_restore")?;
        findings.add(expect("restore", &entry["receipt"], &["ok", "conflict", "error"]));
    }
    bench.client = bench.world.client();
    findings.add(wait_for("the descriptors to be closed", || {
        bench.world.open_descriptors() <= descriptors + DESCRIPTORS_SLACK
    }));
    findings.add(bench.finish());
    findings.outcome()
}

/// Sends an effect, hangs up, and waits for its one entry in the journal.
fn gone_after(bench: &Bench, kind: &str, params: Value, tool_call: &str) -> Result<Value, String> {
    let call = json!({ "kind": kind, "params": params, "tool_call_id": tool_call });
    let line = json!({ "jsonrpc": "2.0", "id": 1, "method": "effect.call", "params": call }).to_string();
    let mut client = bench.world.client();
    client.send(format!("{line}\n").as_bytes()).map_err(|why| why.to_string())?;
    drop(client);
    let mut entries = Vec::new();
    wait_for("the receipt", || {
        entries = bench.world.entries_of(&bench.session, tool_call);
        !entries.is_empty()
    })?;
    check(entries.len() == 1, || format!("{tool_call}: {} receipts", entries.len()))?;
    Ok(entries.remove(0))
}

fn gone_after_a_patch(bench: &Bench, round: usize) -> Outcome {
    let files: String = (0..50).map(|n| format!("*** Add File: r{round}/f{n}\n+x\n")).collect();
    let mut params = patch_params(&files);
    params["session_id"] = json!(bench.session);
    let entry = gone_after(bench, "host.fs.apply_patch", params, &format!("tc_gone{round}"))?;
    let there = tree(&bench.world.root.join(format!("r{round}"))).len();
    let wanted = if entry["receipt"]["status"] == "ok" { 50 } else { 0 };
    check(there == wanted, || format!("round {round}: {there} files, and {}", entry["receipt"]))
}

/// What has no line end is no request, however much of it was sent.
fn gone_before_the_end(bench: &Bench) -> Outcome {
    let params = json!({ "session_id": bench.session, "path": "half", "content": text("x".repeat(1 << 20)) });
    let line = call("1", "host.fs.write_file", &params.to_string());
    for part in [1, line.len() / 2, line.len()] {
        let mut client = bench.world.client();
        client.send(&line.as_bytes()[..part]).map_err(|why| why.to_string())?;
        drop(client);
    }
    still_serves(&mut bench.world.patient_client(), "half requests")?;
    check(!bench.world.root.join("half").exists(), || "half a request was carried out".into())
}

/// Who only stops sending still gets the answer.
fn half_closed(bench: &Bench) -> Outcome {
    let mut client = bench.world.patient_client();
    let params = json!({ "session_id": bench.session, "path": "whole", "content": text("x") });
    let line = call("1", "host.fs.write_file", &params.to_string());
    client.send(format!("{line}\n").as_bytes()).map_err(|why| why.to_string())?;
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    let answer: Value = serde_json::from_str(&client.line().unwrap_or_default()).unwrap_or_default();
    check(answer["result"]["status"] == "ok", || format!("half closed: {answer}"))?;
    check(client.line().is_none(), || "the connection stays open".into())
}

// ------------------------------------------------------------------------------------------------------ texts

/// A line end, a cursor, a title, a C1 control and a reordering: each would rewrite what a person reads.
const HOSTILE: &str = "a\nb\r\u{1b}[31m\u{1b}]0;x\u{7}\u{9b}2J\u{202e}c\u{2028}d";

fn hostile_texts() -> Outcome {
    let mut bench = Bench::new();
    let mut findings = Findings::default();
    findings.add(hostile_ids(&mut bench));
    let workdir = bench.world.root.join(format!("dir{HOSTILE}"));
    std::fs::create_dir(&workdir).unwrap();
    let local = json!({ "workdir": shown_path(&workdir), "env": { HOSTILE: HOSTILE } });
    let opened =
        bench.world.open_receipt(json!({ "target": { "local": local }, "labels": { HOSTILE: HOSTILE } }));
    findings.add(expect("hostile labels and names", &opened, &["ready", "error / invalid_params"]));
    let labeled = bench.world.open_receipt(json!({ "labels": { HOSTILE: HOSTILE } }));
    findings.add(expect("hostile labels", &labeled, &["ready", "error / invalid_params"]));
    for (kind, params) in [
        ("write_file", json!({ "path": HOSTILE, "content": text("x") })),
        ("read_file", json!({ "path": HOSTILE })),
        ("move", json!({ "from": HOSTILE, "to": format!("m{HOSTILE}") })),
        ("apply_patch", patch_params(&format!("*** Add File: {}\n+x\n", HOSTILE.replace(['\n', '\r'], "")))),
        ("read_file", json!({ "path": format!("missing{HOSTILE}") })),
        ("list_dir", json!({})),
    ] {
        let _ = bench.fs(kind, params);
    }
    let _ = bench.client.effect(HOSTILE, json!({}));
    let _ = bench.client.effect("host.session.signal", json!({ "session_id": HOSTILE, "signal": "int" }));
    findings.add(tables_are_clean(&bench.world));
    findings.add(complaints_are_clean(&bench.world));
    let pid = bench.world.terminate();
    findings.add(check(pid < Duration::from_secs(5), || "the daemon stops slowly".into()));
    let log = std::fs::read_to_string(bench.world.home.join("run/aosd.log")).unwrap_or_default();
    findings.add(is_clean("aosd.log", &log));
    findings.add(bench.finish());
    findings.outcome()
}

/// The spelling of a path in a request: control characters as `\xNN`.
fn shown_path(path: &Path) -> String {
    aos_model::path::show(path.as_os_str().as_encoded_bytes())
}

fn hostile_ids(bench: &mut Bench) -> Outcome {
    let mut findings = Findings::default();
    let long = "x".repeat(129);
    for id in [HOSTILE, "a\nb", "\u{1b}", "a b", "", ".", "../x", "a/b", "-a", "caf\u{e9}", "a\0", &long] {
        for field in ["tool_call_id", "turn_id"] {
            let params = json!({ "session_id": bench.session, "path": "idw", "content": text("x") });
            let mut call = json!({ "kind": "host.fs.write_file", "params": params });
            call[field] = json!(id);
            let receipt = bench.client.rpc("effect.call", call)["result"].clone();
            findings.add(names_field(&format!("{field} {id:?}"), &receipt, field));
        }
    }
    findings.add(check(!bench.world.root.join("idw").exists(), || "a bad id was carried out".into()));
    findings.outcome()
}

fn is_hostile(c: char) -> bool {
    c.is_control() && c != '\n'
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

fn is_clean(what: &str, text: &str) -> Outcome {
    let found = text.chars().find(|c| is_hostile(*c));
    check(found.is_none(), || {
        let line = text.lines().find(|line| line.chars().any(is_hostile)).unwrap_or_default();
        format!("{what} shows {found:?} raw: {:.300}", line.escape_debug().to_string())
    })
}

/// One line a record, and nothing in it that a terminal would obey.
fn tables_are_clean(world: &World) -> Outcome {
    let mut findings = Findings::default();
    let head = world.client().rpc("daemon.status", json!({}))["result"]["seq"].as_u64().unwrap_or(0);
    for (words, json) in [(&["log"][..], false), (&["log", "--json"], true)] {
        let (code, out, err) = world.aos(words);
        findings.add(check(code == 0, || format!("aos {words:?}: {code}: {err}")));
        findings.add(is_clean(&format!("aos {words:?}"), &out));
        findings.add(check(out.lines().count() as u64 == head, || {
            format!("aos {words:?}: {} lines for {head} entries", out.lines().count())
        }));
        let parsed = out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok());
        findings.add(check(!json || parsed, || format!("aos {words:?} is no JSON")));
    }
    let sessions =
        world.client().effect("host.session.list", json!({}))["sessions"].as_array().map_or(0, Vec::len);
    for words in [&["session", "list"][..], &["session", "list", "--json"], &["session", "list", "--all"]] {
        let (_, out, _) = world.aos(words);
        findings.add(is_clean(&format!("aos {words:?}"), &out));
        findings.add(check(out.lines().count() == sessions, || {
            format!("aos {words:?}: {} lines for {sessions} sessions", out.lines().count())
        }));
    }
    for seq in 1..=head {
        let (_, out, _) = world.aos(&["show", &seq.to_string()]);
        findings.add(is_clean(&format!("aos show {seq}"), &out));
    }
    findings.outcome()
}

/// What the client itself complains about is escaped as well.
fn complaints_are_clean(world: &World) -> Outcome {
    let mut findings = Findings::default();
    for words in [
        &["session", "close", HOSTILE][..],
        &["session", "open", HOSTILE],
        &["session", "open", "--label", HOSTILE],
        &["session", "open", "--policy", HOSTILE],
        &["blob", "get", HOSTILE],
        &["blob", "put", HOSTILE],
        &["policy", "path", HOSTILE, "--cwd", "/"],
        &["policy", "path", "x", "--cwd", "/", "--policy", HOSTILE],
        &["call", HOSTILE],
        &["call", "host.session.list", HOSTILE],
        &["call", "host.session.list", "{}", "--tool-call", HOSTILE],
        &["log", "--session", HOSTILE],
        &["status"],
    ] {
        let (code, out, err) = world.aos(words);
        findings
            .add(check((0..=125).contains(&code) && code != 101, || format!("aos {words:?}: exit {code}")));
        findings.add(is_clean(&format!("aos {words:?}"), &out));
        findings.add(is_clean(&format!("aos {words:?} on stderr"), &err));
    }
    findings.outcome()
}

// --------------------------------------------------------------------------------------------------- sessions

fn sessions_without_end() -> Outcome {
    let bench = Bench::new();
    bench.world.write("f", "one\n");
    let before = bench.world.rss();
    let wanted = if is_full() { 10_000 } else { 700 };
    let begun = Instant::now();
    let opened = open_many(&bench.world, wanted)?;
    println!("RPC-19: {opened} of {wanted} sessions opened in {:?}", begun.elapsed());
    let grown = bench.world.rss_peak().saturating_sub(before);
    check(grown < 200 << 20, || format!("memory grew by {grown} bytes"))?;
    let (limit, held) = (descriptor_limit(&bench.world), bench.world.open_descriptors());
    check(held < limit, || format!("{held} descriptors of {limit} are held"))?;
    // The others are served, old and new connections alike, and within the second.
    let asked = Instant::now();
    bench.world.patient_client().must(&bench.session, "read_file", json!({ "path": "f" }), &["ok"])?;
    check(asked.elapsed() < Duration::from_secs(1), || format!("another waited {:?}", asked.elapsed()))?;
    bench.finish()?;
    the_limit()?;
    the_expiry()
}

/// Opens sessions and never closes one. All are ready, or refused for being too many.
fn open_many(world: &World, count: usize) -> Result<usize, String> {
    let mut client = world.patient_client();
    let params = json!({ "target": { "local": { "workdir": world.root } } });
    let mut opened = 0;
    for _ in 0..count {
        let receipt = client.effect("host.session.open", params.clone());
        expect("one more session", &receipt, &["ready", "error / too_many_sessions"])?;
        opened += usize::from(receipt["status"] == "ready");
    }
    Ok(opened)
}

fn descriptor_limit(world: &World) -> usize {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", world.daemon_pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

/// With few descriptors the limit comes early, and leaves enough to serve with.
fn the_limit() -> Outcome {
    let few = ["sh", "-c", "ulimit -n 1024; exec \"$@\"", "sh"].map(str::to_owned);
    let bench = Bench::of(World::with(Start { wrapper: few.into(), ..Start::default() }), json!({}));
    bench.world.write("f", "one\n");
    let opened = open_many(&bench.world, 1_500)?;
    check(opened < 1_024, || format!("{opened} sessions on 1,024 descriptors"))?;
    let clients: Vec<Client> = (0..50).map(|_| bench.world.patient_client()).collect();
    for mut client in clients {
        client.must(&bench.session, "write_file", json!({ "path": "f", "content": text("x") }), &["ok"])?;
    }
    // Who closes one may open one.
    let kill = json!({ "session_id": bench.session, "signal": "kill" });
    expect("close", &bench.world.client().effect("host.session.signal", kill), &["signaled"])?;
    check(open_many(&bench.world, 2)? == 1, || "not exactly one more could be opened".into())?;
    bench.finish()
}

/// Sessions whose time is over hold nothing any more.
fn the_expiry() -> Outcome {
    let bench = Bench::new();
    let descriptors = bench.world.open_descriptors();
    let mut client = bench.world.patient_client();
    let mut params = json!({ "target": { "local": { "workdir": bench.world.root } } });
    params["session_ttl_ns"] = json!(1_000_000);
    let mut last = String::new();
    for _ in 0..200 {
        let receipt = client.effect("host.session.open", params.clone());
        expect("a short session", &receipt, &["ready"])?;
        last = receipt["session_id"].as_str().unwrap().to_owned();
    }
    wait_for("the sessions to expire", || {
        let listed = client.effect("host.session.list", json!({}));
        listed["sessions"]
            .as_array()
            .is_some_and(|all| all.iter().filter(|one| one["state"] == "open").count() == 1)
    })?;
    client.must(&last, "list_dir", json!({}), &["error / session_expired"])?;
    wait_for("the descriptors to be closed", || {
        bench.world.open_descriptors() <= descriptors + DESCRIPTORS_SLACK
    })?;
    bench.finish()
}

// ----------------------------------------------------------------------------------------------- hostile homes

/// A home made by an attacker, a folder that it aims at, and a folder that its sessions may name.
struct Evil {
    home: PathBuf,
    victim: PathBuf,
    root: PathBuf,
    before: (BTreeMap<PathBuf, String>, BTreeMap<PathBuf, String>),
}

/// How long anything may take on such a home.
const PATIENCE: Duration = Duration::from_secs(8);

impl Evil {
    fn new(world: &World, name: &str) -> Evil {
        let dir = world.parent.join(name);
        let (home, victim, root) = (dir.join("home"), dir.join("victim"), dir.join("root"));
        for folder in [&victim, &root] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("keep"), "kept\n").unwrap();
            // Named as a blob would be and old enough to be swept, should a sweeper come by.
            std::fs::write(folder.join("0".repeat(62)), "old\n").unwrap();
            let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
            std::fs::File::open(folder.join("0".repeat(62))).unwrap().set_modified(old).unwrap();
        }
        std::fs::create_dir(&home).unwrap();
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
        let before = (tree(&victim), tree(&root));
        Evil { home, victim, root, before }
    }

    /// From `state/…` of the home to the victim, as text.
    fn to_victim(&self, depth: usize) -> String {
        format!("{}victim", "../".repeat(depth + 2))
    }

    fn journal(&self) -> aos_store::SqliteJournal {
        let home = aos_store::Home::open(&self.home).expect("a home");
        let journal = aos_store::SqliteJournal::open(&home, aos_model::receipt::Durability::Process);
        // The daemon makes these under its own umask; the tests' own is wider.
        for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
            let private = std::fs::Permissions::from_mode(0o600);
            let _ = std::fs::set_permissions(self.home.join("state").join(name), private);
        }
        journal.expect("a journal")
    }

    /// Entries with the right chain: whoever can write a home can do that too.
    fn append(&self, entries: &[Value]) {
        let journal = self.journal();
        for entry in entries {
            let body = entry.to_string().into_bytes();
            let effects =
                serde_json::from_slice::<aos_model::entry::Entry<'_>>(&body).expect("an entry").into();
            journal.append(Append { body, effects, closes: None }).expect("the journal takes it");
        }
    }

    fn intend(&self, intents: &[Value]) {
        let journal = self.journal();
        for intent in intents {
            journal.intend(intent.to_string().into_bytes()).expect("the journal takes it");
        }
    }

    /// Everything that reads such a home, with the time and the victim watched.
    fn survives(&self, what: &str) -> Outcome {
        let mut findings = Findings::default();
        for words in [
            &["verify"][..],
            &["replay", "--verify"],
            &["log"],
            &["log", "--json"],
            &["show", "1"],
            &["policy", "explain", "1"],
        ] {
            findings.add(self.bounded(what, &[&[AOS], words].concat()));
        }
        findings.add(self.serves(what));
        findings
            .add(check(tree(&self.victim) == self.before.0, || format!("{what}: the victim was changed")));
        findings.add(check(tree(&self.root) == self.before.1, || format!("{what}: the root was changed")));
        findings.outcome()
    }

    /// Ends in time, by itself, and without a panic.
    fn bounded(&self, what: &str, words: &[&str]) -> Outcome {
        let ran = run_bounded(&self.home, words, PATIENCE);
        check(ran.code.is_some() && ran.code != Some(101) && !ran.said.contains("panicked"), || {
            format!("{what}: {:?}: {:?} {:.400}", &words[1..], ran.code, ran.said)
        })
    }

    /// A daemon on this home refuses to start with a sentence, or serves; then gc and the end of every session.
    fn serves(&self, what: &str) -> Outcome {
        let said = self.home.with_extension("said");
        let child = Command::new(AOSD)
            .env("AOS_HOME", &self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let mut daemon = Stranger { child };
        let socket = self.home.join("run/aosd.sock");
        let _ = wait_for("the daemon", || UnixStream::connect(&socket).is_ok() || daemon.ended().is_some());
        let mut findings = Findings::default();
        if daemon.ended().is_none() {
            for words in [&["gc"][..], &["session", "list", "--all"], &["status"]] {
                findings.add(self.bounded(what, &[&[AOS], words].concat()));
            }
            findings.add(self.ends_sessions(what));
            signal(daemon.child.id() as i32, rustix::process::Signal::TERM);
            let _ = wait_for("the daemon to stop", || daemon.ended().is_some());
        }
        let text = std::fs::read_to_string(&said).unwrap_or_default();
        let code = daemon.ended();
        findings.add(check(
            code.is_some_and(|code| code != 101 && code >= 0) && !text.contains("panicked"),
            || format!("{what}: aosd: exit {code:?}: {text:.400}"),
        ));
        findings.outcome()
    }

    fn ends_sessions(&self, what: &str) -> Outcome {
        let ran = run_bounded(&self.home, &[AOS, "call", "host.session.list"], PATIENCE);
        let receipt: Value =
            serde_json::from_str(ran.said.lines().last().unwrap_or_default()).unwrap_or_default();
        let mut findings = Findings::default();
        for session in
            receipt["sessions"].as_array().into_iter().flatten().filter(|one| one["state"] == "open")
        {
            let id = session["session_id"].as_str().unwrap_or_default();
            for (kind, params) in [
                (
                    "host.fs.write_file",
                    json!({ "session_id": id, "path": "keep", "content": text("kept\n") }),
                ),
                ("host.fs.restore", json!({ "session_id": id, "scope_id": "tc_x" })),
                ("host.session.signal", json!({ "session_id": id, "signal": "term" })),
            ] {
                if kind == "host.fs.restore" && !LATER_RESTORE {
                    continue;
                }
                findings.add(self.bounded(what, &[AOS, "call", kind, &params.to_string()]));
            }
        }
        findings.outcome()
    }

    fn entry(kind: &str, more: Value) -> Value {
        let mut entry = json!({ "at_ns": 1, "kind": kind, "params": {}, "receipt": { "status": "ok" } });
        entry.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        entry
    }

    /// An open session that the attacker invented, on the folder `root`.
    fn session(&self, id: &str, root: &Path) -> Value {
        let meta = root.metadata().unwrap();
        let pinned = json!({ "path": root, "dev": meta.dev(), "ino": meta.ino() });
        json!({ "session_opened": {
            "session_id": id, "state": "open", "started_at_ns": 1, "target": { "local": { "workdir": root } },
            "workdir": pinned, "roots": [pinned], "capability": { "fs_roots": [root] }, "policy": {},
            "isolation": "auto", "auto_snapshot": true, "snapshot_bytes_max": 1, "on_failure": "keep",
        }})
    }

    /// An intent that was never closed, with one mark.
    fn intent(session: &str, mark: Value) -> Value {
        json!({
            "at_ns": 1, "kind": "host.fs.write_file", "session_id": session, "tool_call_id": "tc_x",
            "turn_id": "turn_x", "snapshot_id": "snap_x", "params": {}, "marks": [mark],
        })
    }
}

const GOOD_ID: &str = "hs_00000000000000010000000000000001";

fn a_hostile_home() -> Outcome {
    let world = World::new();
    let mut findings = Findings::default();
    for (name, craft) in HOSTILE_HOMES {
        let evil = Evil::new(&world, name);
        craft(&evil);
        findings.add(evil.survives(name));
    }
    findings.add(world.finish());
    findings.outcome()
}

type Craft = fn(&Evil);

const HOSTILE_HOMES: &[(&str, Craft)] = &[
    ("blob names", blob_names),
    ("session names", session_names),
    ("snapshot names", snapshot_names),
    ("an intent of nobody", intent_of_nobody),
    ("an intent outside its roots", intent_outside_its_roots),
    ("an intent with a path for a temporary name", intent_with_a_path),
    ("an intent with a path for a bank name", intent_with_a_bank_path),
    ("an intent of a hostile session", intent_of_a_hostile_session),
    ("an intent that is no intent", intent_that_is_none),
    ("links for folders", links_for_folders),
    ("links for files", links_for_files),
    ("a blob that is a FIFO", blob_that_is_a_fifo),
    ("a blob that is a folder", blob_that_is_a_folder),
    ("links in a circle", links_in_a_circle),
    ("a huge journal", huge_journal),
    ("no journal at all", no_journal),
    ("a huge log", huge_log),
    ("deep and long entries", deep_and_long_entries),
];

fn blob_names(evil: &Evil) {
    let names = [
        format!("sha256:{}/keep", evil.to_victim(2)),
        "sha256:../../../../victim/keep".into(),
        format!("sha256:{}", "0".repeat(64)),
        format!("sha256:{}", "A".repeat(64)),
        format!("sha256:00/{}", "0".repeat(61)),
        "sha256:".into(),
        shown(&evil.victim.join("keep")),
        format!("sha256:{}", "0".repeat(1 << 20)),
    ];
    let facts: Vec<Value> = names.iter().map(|name| json!({ "blob_put": { "blob_ref": name } })).collect();
    evil.append(&[Evil::entry("host.fs.read_file", json!({ "blobs": names, "facts": facts }))]);
}

fn session_names(evil: &Evil) {
    let names = [
        evil.to_victim(1),
        shown(&evil.victim),
        "..".into(),
        ".".into(),
        "a/b".into(),
        String::new(),
        "x\ny".into(),
    ];
    let entries: Vec<Value> = names
        .iter()
        .map(|name| {
            Evil::entry(
                "host.session.open",
                json!({ "session_id": name, "facts": [evil.session(name, &evil.root)] }),
            )
        })
        .collect();
    evil.append(&entries);
}

fn snapshot_names(evil: &Evil) {
    let hostile = evil.to_victim(2);
    let image = json!({ "kind": "file", "mode": 420, "size_bytes": 5, "bank": format!("{hostile}/keep") });
    let paths = json!([
        { "path": "keep", "before": image },
        { "path": format!("{}/keep", evil.to_victim(0)), "before": image },
        { "path": shown(&evil.victim.join("keep")), "before": image, "moved_to": "keep" },
    ]);
    let captured = json!({ "captured": {
        "snapshot_id": hostile, "paths": paths,
    }});
    let facts = json!([evil.session(GOOD_ID, &evil.root), captured]);
    evil.append(&[Evil::entry("host.session.open", json!({ "session_id": GOOD_ID, "facts": facts }))]);
}

/// Says that the victim's file is one we had just put there, to be taken away again.
fn put_at(dir: &Path, name: &str, temporary: &str, bank: &str) -> Value {
    let hash = aos_model::request::content_hash(b"kept\n");
    json!({
        "do": "put", "at": { "dir": dir, "name": name, "shown": name }, "temporary": temporary, "bank": bank,
        "before": null, "after": { "hash": hash, "size": 5, "mode": 420 },
    })
}

fn intent_of_nobody(evil: &Evil) {
    evil.intend(&[Evil::intent(GOOD_ID, put_at(&evil.victim, "keep", ".aos-tmp-x-0", "snap_x.0"))]);
}

fn with_session(evil: &Evil, mark: Value) {
    let facts = json!([evil.session(GOOD_ID, &evil.root)]);
    evil.append(&[Evil::entry("host.session.open", json!({ "session_id": GOOD_ID, "facts": facts }))]);
    evil.intend(&[Evil::intent(GOOD_ID, mark)]);
}

fn intent_outside_its_roots(evil: &Evil) {
    with_session(evil, put_at(&evil.victim, "keep", ".aos-tmp-x-0", "snap_x.0"));
}

fn intent_with_a_path(evil: &Evil) {
    with_session(evil, put_at(&evil.root, "never", "../victim/keep", "snap_x.0"));
}

fn intent_with_a_bank_path(evil: &Evil) {
    let seen = json!({ "kind": "file", "mode": 420, "dev": 1, "ino": 1, "size": 5, "mtime_ns": 0 });
    with_session(
        evil,
        json!({
            "do": "remove", "at": { "dir": evil.root, "name": "gone", "shown": "gone" }, "temporary": ".aos-tmp-x-0",
            "bank": format!("{}/keep", evil.to_victim(2)), "before": seen,
        }),
    );
}

fn intent_of_a_hostile_session(evil: &Evil) {
    evil.intend(&[Evil::intent(&evil.to_victim(1), put_at(&evil.root, "never", ".aos-tmp-x-0", "snap_x.0"))]);
}

fn intent_that_is_none(evil: &Evil) {
    evil.journal().intend(b"{\"marks\":".repeat(1_000)).unwrap();
}

fn links_for_folders(evil: &Evil) {
    drop(evil.journal());
    let state = evil.home.join("state");
    for name in ["blobs", "preimages", "snapshots"] {
        let _ = std::fs::remove_dir_all(state.join(name));
    }
    std::fs::create_dir(state.join("blobs")).unwrap();
    std::fs::create_dir(state.join("preimages")).unwrap();
    for name in ["blobs/00", "blobs/ab", "preimages/hs_1", "preimages/victim", "snapshots"] {
        std::os::unix::fs::symlink(&evil.victim, state.join(name)).unwrap();
    }
}

fn links_for_files(evil: &Evil) {
    std::fs::create_dir_all(evil.home.join("run")).unwrap();
    std::fs::create_dir_all(evil.home.join("state")).unwrap();
    for name in [
        "run/aosd.log",
        "run/aosd.log.old",
        "run/aosd.lock",
        "run/aosd.sock",
        "state/journal.db",
        "state/journal.db-wal",
    ] {
        std::os::unix::fs::symlink(evil.victim.join("keep"), evil.home.join(name)).unwrap();
    }
}

/// Where a blob of this name would lie.
fn blob_place(evil: &Evil) -> (String, PathBuf) {
    let name = aos_model::request::content_hash(b"anything");
    let digits = name.strip_prefix("sha256:").unwrap();
    let place = evil.home.join("state/blobs").join(&digits[..2]).join(&digits[2..]);
    evil.append(&[Evil::entry("host.fs.read_file", json!({ "blobs": [name] }))]);
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    (name, place)
}

fn blob_that_is_a_fifo(evil: &Evil) {
    let (_, place) = blob_place(evil);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

fn blob_that_is_a_folder(evil: &Evil) {
    let (_, place) = blob_place(evil);
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("inner"), "x").unwrap();
}

fn links_in_a_circle(evil: &Evil) {
    let (_, place) = blob_place(evil);
    std::os::unix::fs::symlink(&place, &place).unwrap();
    std::os::unix::fs::symlink(".", evil.home.join("state/blobs/cd")).unwrap();
    std::os::unix::fs::symlink("..", evil.home.join("state/blobs/ef")).unwrap();
}

fn huge_journal(evil: &Evil) {
    drop(evil.journal());
    for name in ["state/journal.db", "state/journal.db-wal"] {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(evil.home.join(name)).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        file.set_len(1 << 40).unwrap();
    }
}

fn no_journal(evil: &Evil) {
    std::fs::create_dir_all(evil.home.join("state")).unwrap();
    let path = evil.home.join("state/journal.db");
    std::fs::write(&path, format!("SQLite format 3\0{}", rand()).repeat(4096)).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(64 << 10).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn huge_log(evil: &Evil) {
    drop(evil.journal());
    std::fs::File::create(evil.home.join("run/aosd.log")).unwrap().set_len(1 << 40).unwrap();
}

fn deep_and_long_entries(evil: &Evil) {
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let journal = evil.journal();
    for params in [deep.clone(), format!("{{\"path\":{deep}}}"), format!("\"{}\"", "x".repeat(32 << 20))] {
        for (kind, at_ns) in [("host.fs.stat", "18446744073709551615"), (&*"k".repeat(1 << 20), "0")] {
            let body = format!(
                "{{\"at_ns\":{at_ns},\"kind\":\"{kind}\",\"session_id\":\"{GOOD_ID}\",\"params\":{params},\"receipt\":{{\"status\":\"ok\",\"x\":{params}}}}}"
            );
            journal
                .append(Append { body: body.into_bytes(), effects: Default::default(), closes: None })
                .unwrap();
        }
    }
}
