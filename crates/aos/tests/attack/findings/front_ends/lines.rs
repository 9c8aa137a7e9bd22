//! S29: batches, and lines that do not end.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aos_testkit::client::effect_line;
use aos_testkit::{Client, Findings, World, check, text};
use serde_json::{Value, json};

use crate::Outcome;

/// One effect as an element of a batch.
fn element(id: usize, kind: &str, params: &Value) -> String {
    effect_line(id, &json!({ "kind": kind, "params": params })).trim_end().to_owned()
}

fn batch(elements: &[String]) -> String {
    format!("[{}]", elements.join(","))
}

/// 100 requests are answered; 101 and many more are one error, and none of them is done.
pub(super) fn a_batch_is_bounded() -> Outcome {
    let world = World::new();
    world.write("f", "x".repeat(12_000));
    let session = world.open(json!({}));
    let read = json!({ "session_id": session, "path": "f" });
    let reads = |count: usize| -> Vec<String> {
        (0..count).map(|id| element(id, "host.fs.read_file", &read)).collect()
    };
    let mut client = world.patient_client();
    let answer = client.raw(&batch(&reads(100))).unwrap_or_default();
    let ids: Vec<_> = answer.as_array().into_iter().flatten().map(|answer| answer["id"].as_u64()).collect();
    check(ids == (0..100).map(Some).collect::<Vec<_>>(), || format!("100: {:.300}", answer.to_string()))?;
    let write = json!({ "session_id": session, "path": "made", "content": text("x") });
    let with_write = [vec![element(1_000, "host.fs.write_file", &write)], reads(100)].concat();
    let before = world.rss();
    for (what, line) in [
        ("101", batch(&with_write)),
        ("30,000", batch(&reads(30_000))),
        ("8 million", format!("[{}1]", "1,".repeat(8_000_000))),
        ("lists", format!("[{}[]]", "[],".repeat(5_000_000))),
    ] {
        let answer = client.raw(&line).unwrap_or_default();
        check(answer["error"]["code"] == -32600 && answer["id"].is_null(), || {
            format!("{what}: {:.300}", answer.to_string())
        })?;
        let told = answer["error"]["message"].as_str().unwrap_or_default();
        check(told.contains("at most 100"), || format!("{what}: {told}"))?;
    }
    check(!world.root.join("made").exists(), || "a refused batch was done".into())?;
    let grown = world.rss_peak().saturating_sub(before);
    check(grown < 96 << 20, || format!("memory grew by {grown} bytes"))?;
    check(client.rpc("daemon.status", json!({}))["result"].is_object(), || "the connection is gone".into())?;
    world.finish()
}

/// 100 large answers are sent one after the other, as one array: they are never in memory together.
pub(super) fn answers_of_a_batch_are_not_collected() -> Outcome {
    const FILE_BYTES: usize = 4 << 20;
    let world = World::new();
    world.write("f", "x".repeat(FILE_BYTES));
    let session = world.open(json!({ "capability": { "max_inline_bytes": 16 << 20 } }));
    let read = json!({ "session_id": session, "path": "f", "output_mode": "require_inline" });
    let requests: Vec<String> = (0..100).map(|id| element(id, "host.fs.read_file", &read)).collect();
    let mut stream = UnixStream::connect(world.home.join("run/aosd.sock")).map_err(|why| why.to_string())?;
    stream.write_all((batch(&requests) + "\n").as_bytes()).map_err(|why| why.to_string())?;
    let (mut bytes, mut buffer, mut first) = (0, vec![0; 1 << 20], 0);
    while buffer.get(..first).is_none_or(|read| !read.ends_with(b"\n")) {
        first = stream.read(&mut buffer).map_err(|why| why.to_string())?;
        check(first > 0, || format!("the answer ends after {bytes} bytes"))?;
        bytes += first;
    }
    check(bytes > 100 * FILE_BYTES, || {
        format!("only {bytes} bytes: {}", String::from_utf8_lossy(&buffer[..first.min(300)]))
    })?;
    let peak = world.rss_peak();
    check(peak < 200 << 20, || format!("the daemon held {peak} bytes"))?;
    world.finish()
}

/// A batch whose array has begun waits for a session that an earlier request of the connection holds. Both are answered, each
/// on a line of its own.
pub(super) fn a_batch_beside_other_requests() -> Outcome {
    let world = World::new();
    let session = world.open(json!({}));
    let mut client = world.patient_client();
    let command = json!({ "session_id": session, "argv": ["sh", "-c", "echo out; sleep 1; echo out"] });
    client.send_effect("command", &json!({ "kind": "host.exec", "params": command }))?;
    let write = json!({ "session_id": session, "path": "f", "content": text("x") });
    let elements = [
        element(1, "host.session.list", &json!({})),
        element(2, "host.fs.write_file", &write),
        element(3, "host.exec", &json!({ "session_id": session, "argv": ["echo", "in a batch"] })),
    ];
    client.send((batch(&elements) + "\n").as_bytes()).map_err(|why| why.to_string())?;
    let (mut arrays, mut answers) = (0, 0);
    while arrays + answers < 2 {
        let line = client.line().ok_or("the daemon does not answer")?;
        let message: Value = serde_json::from_str(&line).map_err(|why| format!("{why}: {line}"))?;
        if let Some(array) = message.as_array() {
            arrays += 1;
            let well = array.len() == 3 && array.iter().all(|answer| answer["result"]["status"] == "ok");
            check(well, || format!("the batch: {message}"))?;
        } else if message["id"] == "command" {
            answers += 1;
            check(message["result"]["status"] == "ok", || format!("the command: {message}"))?;
        }
    }
    check((arrays, answers) == (1, 1), || format!("{arrays} arrays, {answers} answers"))?;
    world.finish()
}

/// A request of `bytes` bytes.
fn long_request(bytes: usize) -> String {
    let line = element(1, "host.session.list", &json!({}));
    format!("{line}{}\n", " ".repeat(bytes - line.len()))
}

/// A connection with `bytes` bytes of a line that has no end, as many as the daemon takes.
fn unfinished(world: &World, bytes: usize) -> Client {
    let mut client = world.patient_client();
    client.stream().set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    let line = long_request(bytes + 1);
    let _ = client.send(&line.as_bytes()[..bytes]);
    client
}

fn answers_long_requests(world: &World) -> Outcome {
    for megabytes in [1, 8, 15] {
        let answer = world.patient_client().raw(long_request(megabytes << 20).trim_end_matches('\n'));
        check(answer.as_ref().is_some_and(|answer| answer["result"]["status"] == "ok"), || {
            format!("{megabytes} MiB beside unfinished lines: {answer:?}")
        })?;
    }
    Ok(())
}

/// Long lines whose senders have stopped make room for others, the largest first; a smaller one can still be finished.
pub(super) fn unfinished_lines_make_room() -> Outcome {
    let world = World::new();
    let mut small = unfinished(&world, 1 << 20);
    let mut idle: Vec<Client> = (0..12).map(|_| unfinished(&world, 12 << 20)).collect();
    let mut findings = Findings::default();
    findings.add(answers_long_requests(&world));
    let answer = small.raw("").unwrap_or_default();
    findings.add(check(answer["result"]["status"] == "ok", || format!("the small one: {answer}")));
    // Those that were closed were told why.
    let told = idle[0].answer().unwrap_or_default();
    let message = told["error"]["message"].as_str().unwrap_or_default();
    findings
        .add(check(told["error"]["code"] == -32600 && message.contains("not finished"), || told.to_string()));
    findings.add(check(idle[0].line().is_none(), || "the connection is still open".into()));
    let peak = world.rss_peak();
    findings.add(check(peak < 200 << 20, || format!("the daemon held {peak} bytes")));
    drop(idle);
    findings.add(world.finish());
    findings.outcome()
}

/// A sender that sends a byte now and then is not idle, and makes room all the same.
pub(super) fn lines_that_grow_slowly_make_room() -> Outcome {
    let world = World::new();
    let mut slow: Vec<Client> = (0..6).map(|_| unfinished(&world, 12 << 20)).collect();
    let stop = AtomicBool::new(false);
    let mut findings = Findings::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                slow.iter_mut().for_each(|client| drop(client.send(b" ")));
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        findings.add(answers_long_requests(&world));
        stop.store(true, Ordering::Relaxed);
    });
    findings.add(world.finish());
    findings.outcome()
}
