//! A client's pipe in the daemon's hands: the same answers, each once, whatever becomes of the daemon, `aos mcp` or the
//! bytes on their way.

use std::io::{BufRead as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use serde_json::{Value, json};

use super::mcp::{Door, said};
use crate::world::{World, check, expect, wait_for};
use crate::{Case, Outcome};

pub fn cases() -> Vec<Case> {
    let plain = |id, run| Case { id, needs: &[], run };
    vec![
        plain("OWN-MCP-PIPE", it_answers_like_rmcp),
        plain("OWN-MCP-PIPE-PIECES", lines_come_in_pieces_and_heaps),
        plain("OWN-MCP-PIPE-WAITS", a_change_behind_a_command),
        plain("OWN-MCP-PIPE-BESIDE", a_change_behind_the_command_of_another),
        plain("OWN-MCP-PIPE-STOP", the_daemon_stops_between_calls),
        plain("OWN-MCP-PIPE-DEATH", the_daemon_dies_while_it_answers),
        plain("OWN-MCP-PIPE-GONE", the_owner_dies_while_it_is_lent),
        plain("OWN-MCP-PIPE-STRANGE", descriptors_that_are_no_pipe),
    ]
}

/// What is left of an answer when what differs from call to call is taken out.
fn without_numbers(mut answer: Value) -> Value {
    if let Some(fields) = answer.pointer_mut("/result/structuredContent").and_then(Value::as_object_mut) {
        for name in ["seq", "tool_call_id", "turn_id", "snapshot_id", "new_mtime_ns"] {
            fields.remove(name);
        }
    }
    answer.as_object_mut().expect("an answer").remove("id");
    answer
}

/// A member of `_meta` that nobody knows sends a call the long way, through the protocol's own machinery.
fn it_answers_like_rmcp() -> Outcome {
    let world = World::new();
    world.write("a.txt", "one\ntwo\n");
    let mut door = Door::greeted(&world, &[], json!({}));
    let calls = [
        ("read_file", json!({ "path": "a.txt" })),
        ("read_file", json!({ "path": "a.txt", "offset": 1, "limit": 1 })),
        ("read_file", json!({ "path": "absent" })),
        ("read_file", json!({ "path": "../o/secret" })),
        ("read_file", json!({ "path": 7 })),
        ("read_file", json!({})),
        ("read_file", json!({ "path": "a.txt", "session": "hs_another" })),
        ("list_dir", json!({ "path": "." })),
        ("stat", json!({ "path": "a.txt" })),
        ("write_file", json!({ "path": "b.txt", "content": "é\u{2028}\n" })),
        ("edit_file", json!({ "path": "a.txt", "old_string": "one", "new_string": "one" })),
        ("write_file", json!({ "path": ".git/hooks/pre-commit", "content": "x" })),
        ("no_such_tool", json!({})),
    ];
    for (tool, arguments) in calls {
        let params = json!({ "name": tool, "arguments": arguments });
        let mut long = params.clone();
        long["_meta"] = json!({ "unknown": true });
        // Once before: what the first call creates is there for both that are compared.
        door.request("tools/call", params.clone());
        wait_until_lent(&world, &mut door)?;
        let (quick, slow) = (door.request("tools/call", params), door.request("tools/call", long));
        check(without_numbers(quick.clone()) == without_numbers(slow.clone()), || {
            format!("{tool}: {quick}\n{slow}")
        })?;
    }
    door.close(&world);
    world.finish()
}

/// Each call is answered once, however its bytes arrive and whether or not anybody reads the answers meanwhile.
fn lines_come_in_pieces_and_heaps() -> Outcome {
    let world = World::new();
    world.write("a.txt", "a line of some length\n".repeat(40));
    let mut door = Door::greeted(&world, &[], json!({}));
    let line = |id: usize| {
        let params = json!({ "name": "read_file", "arguments": { "path": "a.txt" } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string() + "\n"
    };
    let send = |door: &mut Door, bytes: &[u8]| {
        door.to.as_mut().expect("the door is open").write_all(bytes).expect("aos mcp reads");
    };
    wait_until_lent(&world, &mut door)?;
    let mut expected = Vec::new();
    let cut = line(1000);
    for at in [1, cut.len() / 2, cut.len() - 1] {
        send(&mut door, &cut.as_bytes()[..at]);
        // The first piece is read by itself.
        wait_for("the piece to be read", || is_read(&door))?;
        send(&mut door, &cut.as_bytes()[at..]);
        let answer = door.answer(1000);
        check(said(&answer["result"]).contains("40 | a line"), || format!("cut at {at}: {answer}"))?;
    }
    send(&mut door, (line(2000) + &line(2001)).as_bytes());
    expected.extend([2000, 2001]);
    // Far more than fits into the pipe of the answers; a thread sends, and nobody reads until it is through.
    let mut to = door.to.take().expect("the door is open");
    let sender = std::thread::spawn(move || {
        for id in 3000..3300 {
            to.write_all(line(id).as_bytes()).expect("aos mcp reads on");
        }
        to
    });
    door.to = Some(sender.join().expect("all was sent"));
    expected.extend(3000..3300);
    let mut heard: Vec<u64> = (0..expected.len()).filter_map(|_| door.hear()["id"].as_u64()).collect();
    heard.sort_unstable();
    check(heard == expected, || format!("answered: {heard:?}"))?;
    door.close(&world);
    world.finish()
}

/// A command holds the session: the door goes on answering, and the change lands once, after it.
fn a_change_behind_a_command() -> Outcome {
    let world = World::new();
    let mut door = Door::greeted(&world, &[], json!({}));
    let meta = json!({ "progressToken": "p" });
    let arguments = json!({ "command": "echo begun; sleep 1000" });
    let command = door.ask("tools/call", json!({ "name": "shell", "arguments": arguments, "_meta": meta }));
    while door.hear()["params"]["progressToken"] != "p" {}
    let arguments = json!({ "path": "log", "content": "change\n", "mode": "append" });
    let change = door.ask("tools/call", json!({ "name": "write_file", "arguments": arguments }));
    let (ping, read) = (
        door.ask("ping", json!({})),
        door.ask("tools/call", json!({ "name": "list_dir", "arguments": { "path": "." } })),
    );
    let mut answered = Vec::new();
    while !(answered.contains(&ping) && answered.contains(&read)) {
        let message = door.hear();
        answered.extend(message["id"].as_u64().filter(|_| message.get("method").is_none()));
    }
    check(!answered.contains(&change), || "the change did not wait for the command".into())?;
    door.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": command } })
            .to_string(),
    );
    let changed = door.answer(change)["result"].take();
    check(said(&changed).contains("Created log"), || format!("{changed}"))?;
    let log = world.read("log");
    check(log == b"change\n", || format!("log: {}", String::from_utf8_lossy(&log)))?;
    door.close(&world);
    world.finish()
}

/// Whether all that was sent has been read.
fn is_read(door: &Door) -> bool {
    rustix::io::ioctl_fionread(door.to.as_ref().expect("the door is open")).is_ok_and(|left| left == 0)
}

/// Calls until the daemon has the pipe: the first ones may come while rmcp still tidies up.
pub fn wait_until_lent(world: &World, door: &mut Door) -> Outcome {
    let pipe = rustix::fs::fstat(door.to.as_ref().expect("the door is open")).expect("a pipe").st_ino;
    let (theirs, wanted) = (format!("/proc/{}/fd", world.daemon_pid()), format!("pipe:[{pipe}]"));
    wait_for("the pipe to be lent", || {
        door.call("stat", json!({ "path": "f" }));
        let held = std::fs::read_dir(&theirs).into_iter().flatten().flatten();
        held.filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .any(|link| link.as_os_str() == wanted.as_str())
    })
}

/// The pipe goes back: somebody else can wait, and whoever asks something else is answered.
fn a_change_behind_the_command_of_another() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    let mut door = Door::greeted(&world, &[], json!({}));
    wait_until_lent(&world, &mut door)?;
    let stat = door.call("stat", json!({ "path": "f" }));
    let session = &stat["structuredContent"]["session"];
    let mut other = world.client();
    // It ends by itself so that a daemon that waits in place is caught, and not waited for.
    let params = json!({ "session_id": session, "argv": ["sh", "-c", "echo begun; sleep 20"] });
    let call = json!({ "kind": "host.exec", "params": params, "tool_call_id": "tc_long" });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "effect.call", "params": call });
    other.send(format!("{request}\n").as_bytes()).map_err(|why| why.to_string())?;
    check(other.line().is_some_and(|line| line.contains("exec.progress")), || "no progress".into())?;
    let append = json!({ "path": "f", "content": "two\n", "mode": "append" });
    let change = door.ask("tools/call", json!({ "name": "write_file", "arguments": append }));
    let ping = door.ask("ping", json!({}));
    let first = door.hear();
    check(first["id"] == ping, || format!("the change {change} did not wait: {first}"))?;
    let ended =
        world.client().rpc("exec.cancel", json!({ "session_id": session, "tool_call_id": "tc_long" }));
    check(ended["result"]["ended"] == 1, || format!("{ended}"))?;
    let changed = door.answer(change)["result"].take();
    check(said(&changed).contains("Appended to f"), || format!("{changed}"))?;
    let now = world.read("f");
    check(now == b"one\ntwo\n", || format!("f: {}", String::from_utf8_lossy(&now)))?;
    door.close(&world);
    world.finish()
}

/// By request and by `kill -9`: the next call is answered by the next daemon.
fn the_daemon_stops_between_calls() -> Outcome {
    let mut world = World::new();
    world.write("f", "one\n");
    let mut door = Door::greeted(&world, &[], json!({}));
    for by_force in [false, true] {
        wait_until_lent(&world, &mut door)?;
        if by_force {
            world.kill9();
        } else {
            world.terminate();
        }
        world.start_daemon();
        for _ in 0..2 {
            let after = door.call("read_file", json!({ "path": "f" }));
            check(said(&after) == "   1 | one", || format!("by force {by_force}: {after}"))?;
        }
    }
    door.close(&world);
    world.finish()
}

/// Nobody reads, so it stands in the middle of an answer: that call is told as such, the others are answered.
fn the_daemon_dies_while_it_answers() -> Outcome {
    let mut world = World::new();
    world.write("f", "a line of some length\n".repeat(1_300));
    let mut door = Door::greeted(&world, &[], json!({}));
    wait_until_lent(&world, &mut door)?;
    let read = json!({ "name": "read_file", "arguments": { "path": "f" } });
    let calls: Vec<u64> = (0..3).map(|_| door.ask("tools/call", read.clone())).collect();
    wait_for("the pipe to be full", || {
        rustix::io::ioctl_fionread(door.from.get_ref()).is_ok_and(|waiting| waiting > 60_000)
    })?;
    world.kill9();
    world.start_daemon();
    let mut half = String::new();
    door.from.read_line(&mut half).map_err(|why| why.to_string())?;
    check(serde_json::from_str::<Value>(&half).is_err(), || "the answer was not cut off".into())?;
    let gone = door.answer(calls[0]);
    check(gone["result"]["structuredContent"]["error_code"] == "daemon_gone", || format!("{gone}"))?;
    let mut others: Vec<u64> = Vec::new();
    while others.len() < 2 {
        let answer = door.hear();
        check(said(&answer["result"]).contains("1300 | a line"), || format!("after call {others:?}"))?;
        others.extend(answer["id"].as_u64());
    }
    others.sort_unstable();
    check(others == calls[1..], || format!("answered: {others:?}"))?;
    door.close(&world);
    world.finish()
}

/// The daemon lets go of the streams: the client sees their end.
fn the_owner_dies_while_it_is_lent() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    let mut door = Door::greeted(&world, &[], json!({}));
    wait_until_lent(&world, &mut door)?;
    door.child.kill().map_err(|why| why.to_string())?;
    let mut rest = String::new();
    let read = door.from.read_line(&mut rest).map_err(|why| why.to_string())?;
    check(read == 0, || rest.clone())?;
    let broken = || door.to.as_ref().is_some_and(|mut to| to.write_all(b"\n").is_err());
    wait_for("nobody to read any more", broken)?;
    drop(door);
    world.finish()
}

fn opened(path: &str) -> OwnedFd {
    let file = std::fs::File::options().read(true).write(true).open(path);
    file.unwrap_or_else(|why| panic!("{path}: {why}")).into()
}

/// Whatever is lent, the daemon gives it back and serves the others.
fn descriptors_that_are_no_pipe() -> Outcome {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let world = World::new();
    let session = world.open(json!({}));
    world.write("f", "one\n");
    let tray = |bytes: &[u8]| {
        let path = world.write("tray", [&[0][..], &(bytes.len() as u32).to_le_bytes(), bytes].concat());
        opened(path.to_str().expect("the path is text"))
    };
    let line = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "read_file", "arguments": { "path": "f" },
    } });
    let line = format!("{line}\n").into_bytes();
    let long = vec![b'x'; 1 << 20];
    let pipe = || rustix::pipe::pipe().expect("a pipe").0;
    for (what, parts) in [
        ("nothing", vec![]),
        ("too few", vec![opened("/dev/null"), opened("/dev/null")]),
        ("the end at once", vec![opened("/dev/null"), opened("/dev/null"), tray(b"")]),
        ("a line without end", vec![opened("/dev/zero"), opened("/dev/null"), tray(b"")]),
        ("nowhere to write", vec![opened("/dev/null"), opened("/dev/full"), tray(&line)]),
        ("nothing to write to", vec![opened("/dev/null"), pipe(), tray(&line)]),
        (
            "nothing to read from",
            vec![rustix::pipe::pipe().expect("a pipe").1, opened("/dev/null"), tray(b"")],
        ),
        ("no tray", vec![opened("/dev/null"), opened("/dev/null"), pipe()]),
        ("an endless tray", vec![opened("/dev/null"), opened("/dev/null"), opened("/dev/zero")]),
        ("an empty tray", vec![opened("/dev/null"), opened("/dev/null"), opened("/dev/null")]),
        ("a heavy tray", vec![opened("/dev/null"), opened("/dev/null"), tray(&long)]),
        ("too many", (0..8).map(|_| opened("/dev/null")).collect()),
    ] {
        let mut client = world.client();
        let offer = json!({ "sessions": [session], "profile": "anthropic", "staged": false });
        let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "mcp.lend", "params": offer });
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut handed = SendAncillaryBuffer::new(&mut space);
        let parts: Vec<_> = parts.iter().map(|part| part.as_fd()).collect();
        check(handed.push(SendAncillaryMessage::ScmRights(&parts)), || "no room".into())?;
        let bytes = format!("{request}\n");
        sendmsg(client.stream(), &[std::io::IoSlice::new(bytes.as_bytes())], &mut handed, SendFlags::empty())
            .map_err(|why| why.to_string())?;
        let answer = client.line().ok_or_else(|| format!("{what}: the connection ended"))?;
        check(answer.contains("\"id\":7"), || format!("{what}: {answer}"))?;
        let stat = client.effect("host.fs.stat", json!({ "session_id": session, "path": "f" }));
        expect(what, &stat, &["ok"])?;
    }
    world.finish()
}
