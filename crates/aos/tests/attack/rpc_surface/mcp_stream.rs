//! MCP over standard streams: each call is answered once, whatever happens to its bytes or to the daemon.

use std::io::Write as _;

use serde_json::json;

use crate::{Case, Outcome, plain};
use aos_testkit::mcp::{McpClient, said};
use aos_testkit::{World, check, wait_for};

pub fn cases() -> Vec<Case> {
    vec![
        plain("OWN-MCP-PIECES", lines_come_in_pieces_and_heaps),
        plain("OWN-MCP-WAITS", a_change_behind_a_command),
        plain("OWN-MCP-BESIDE", a_change_behind_the_command_of_another),
        plain("OWN-MCP-RESTART", the_daemon_stops_between_calls),
        plain("OWN-MCP-LONG", a_call_that_is_too_long_is_answered),
    ]
}

/// A call that is longer than the daemon accepts is refused, not dropped, and the next one is answered.
fn a_call_that_is_too_long_is_answered() -> Outcome {
    let world = World::new();
    let mut client = McpClient::greeted(&world, &[], json!({}));
    for bytes in [15 << 20, 17 << 20, 40 << 20] {
        let result = client.call("write_file", json!({ "path": "f", "content": "x".repeat(bytes) }));
        let fits = bytes < 16 << 20;
        check(result["isError"] == !fits, || format!("{bytes}: {:.300}", said(&result)))?;
        check(fits || said(&result).contains("at most 16777216"), || format!("{:.300}", said(&result)))?;
    }
    let result = client.call("write_file", json!({ "path": "f", "content": "short" }));
    check(result["isError"] == false, || format!("{result}"))?;
    client.close(&world);
    world.finish()
}

/// Lines arrive in pieces, two at a time, and by the hundred while the client does not read the answers.
fn lines_come_in_pieces_and_heaps() -> Outcome {
    let world = World::new();
    world.write("a.txt", "a line of some length\n".repeat(40));
    let mut client = McpClient::greeted(&world, &[], json!({}));
    let line = |id: usize| {
        let params = json!({ "name": "read_file", "arguments": { "path": "a.txt" } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string() + "\n"
    };
    let send = |client: &mut McpClient, bytes: &[u8]| {
        client.to.as_mut().expect("the client is open").write_all(bytes).expect("aos mcp reads");
    };
    let mut expected = Vec::new();
    let cut = line(1000);
    for at in [1, cut.len() / 2, cut.len() - 1] {
        send(&mut client, &cut.as_bytes()[..at]);
        // The first piece is read by itself.
        wait_for("the piece to be read", || is_read(&client))?;
        send(&mut client, &cut.as_bytes()[at..]);
        let answer = client.answer(1000);
        check(said(&answer["result"]).contains("40 | a line"), || format!("cut at {at}: {answer}"))?;
    }
    send(&mut client, (line(2000) + &line(2001)).as_bytes());
    expected.extend([2000, 2001]);
    // The answers do not fit into their pipe, and are read only after everything was sent.
    let mut to = client.to.take().expect("the client is open");
    let sender = std::thread::spawn(move || {
        for id in 3000..3300 {
            to.write_all(line(id).as_bytes()).expect("aos mcp reads on");
        }
        to
    });
    client.to = Some(sender.join().expect("all was sent"));
    expected.extend(3000..3300);
    let mut heard: Vec<u64> = (0..expected.len()).filter_map(|_| client.hear()["id"].as_u64()).collect();
    heard.sort_unstable();
    check(heard == expected, || format!("answered: {heard:?}"))?;
    client.close(&world);
    world.finish()
}

/// A command holds the session: pings and reads are answered meanwhile, and the change is applied once, after it.
fn a_change_behind_a_command() -> Outcome {
    let world = World::new();
    let mut client = McpClient::greeted(&world, &[], json!({}));
    let meta = json!({ "progressToken": "p" });
    let arguments = json!({ "command": "echo begun; sleep 1000" });
    let command = client.ask("tools/call", json!({ "name": "shell", "arguments": arguments, "_meta": meta }));
    while client.hear()["params"]["progressToken"] != "p" {}
    let arguments = json!({ "path": "log", "content": "change\n", "mode": "append" });
    let change = client.ask("tools/call", json!({ "name": "write_file", "arguments": arguments }));
    let (ping, read) = (
        client.ask("ping", json!({})),
        client.ask("tools/call", json!({ "name": "list_dir", "arguments": { "path": "." } })),
    );
    let mut answered = Vec::new();
    while !(answered.contains(&ping) && answered.contains(&read)) {
        let message = client.hear();
        answered.extend(message["id"].as_u64().filter(|_| message.get("method").is_none()));
    }
    check(!answered.contains(&change), || "the change did not wait for the command".into())?;
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": command } })
            .to_string(),
    );
    let changed = client.answer(change)["result"].take();
    check(said(&changed).contains("Created log"), || format!("{changed}"))?;
    let log = world.read("log");
    check(log == b"change\n", || format!("log: {}", String::from_utf8_lossy(&log)))?;
    client.close(&world);
    world.finish()
}

/// Whether everything that was sent has been read.
fn is_read(client: &McpClient) -> bool {
    rustix::io::ioctl_fionread(client.to.as_ref().expect("the client is open")).is_ok_and(|left| left == 0)
}

/// A change that waits for a command of another client does not delay a ping.
fn a_change_behind_the_command_of_another() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    let mut client = McpClient::greeted(&world, &["--structured"], json!({}));
    let stat = client.call("stat", json!({ "path": "f" }));
    let session = &stat["structuredContent"]["session"];
    let mut other = world.client();
    // The command ends by itself, so that a front end that blocks fails the test instead of hanging it.
    let params = json!({ "session_id": session, "argv": ["sh", "-c", "echo begun; sleep 20"] });
    let call = json!({ "kind": "host.exec", "params": params, "tool_call_id": "tc_long" });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "effect.call", "params": call });
    other.send(format!("{request}\n").as_bytes()).map_err(|why| why.to_string())?;
    check(other.line().is_some_and(|line| line.contains("exec.progress")), || "no progress".into())?;
    let append = json!({ "path": "f", "content": "two\n", "mode": "append" });
    let change = client.ask("tools/call", json!({ "name": "write_file", "arguments": append }));
    let ping = client.ask("ping", json!({}));
    let first = client.hear();
    check(first["id"] == ping, || format!("the change {change} did not wait: {first}"))?;
    let ended =
        world.client().rpc("exec.cancel", json!({ "session_id": session, "tool_call_id": "tc_long" }));
    check(ended["result"]["ended"] == 1, || format!("{ended}"))?;
    let changed = client.answer(change)["result"].take();
    check(said(&changed).contains("Appended to f"), || format!("{changed}"))?;
    let now = world.read("f");
    check(now == b"one\ntwo\n", || format!("f: {}", String::from_utf8_lossy(&now)))?;
    client.close(&world);
    world.finish()
}

/// The daemon is stopped by request and by `kill -9`: the next daemon answers the next call.
fn the_daemon_stops_between_calls() -> Outcome {
    let mut world = World::new();
    world.write("f", "one\n");
    let mut client = McpClient::greeted(&world, &[], json!({}));
    for by_force in [false, true] {
        if by_force {
            world.kill9();
        } else {
            world.terminate();
        }
        world.start_daemon();
        for _ in 0..2 {
            let after = client.call("read_file", json!({ "path": "f" }));
            check(said(&after) == "   1 | one", || {
                let log = std::fs::read_to_string(world.home.join("log/aosd.log")).unwrap_or_default();
                format!("by force {by_force}: {after}\n{log}")
            })?;
        }
    }
    client.close(&world);
    world.finish()
}
