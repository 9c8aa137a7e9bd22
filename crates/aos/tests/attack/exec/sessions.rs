//! Several sessions at a time: what is closed stays closed, and no session sees into another.

use std::time::Instant;

use aos_testkit::time::in_time;
use aos_testkit::{Findings, Start, World, check, expect, tree, wait_for};
use serde_json::json;

use super::room::{Room, SECOND, ns};
use crate::Outcome;

pub fn gone() -> Outcome {
    let room = Room::new();
    room.world.write("f", "x");
    let closed = room.another(json!({}));
    expect("close", &room.signal(&closed, "term"), &["signaled"])?;
    let killed = room.another(json!({}));
    expect("kill", &room.signal(&killed, "kill"), &["signaled"])?;
    let expired = room.another(json!({ "session_ttl_ns": 1 }));
    let before = tree(&room.world.root);
    let mut client = room.world.client();
    for (session, code) in [
        (&closed, "error / session_closed"),
        (&killed, "error / session_closed"),
        (&expired, "error / session_expired"),
        (&"hs_0".to_owned(), "error / session_not_found"),
    ] {
        for argv in [json!(["touch", "started"]), json!([])] {
            let receipt = room.exec_in(session, json!({ "argv": argv }));
            expect("exec", &receipt, &[code])?;
        }
        for (op, params) in [
            ("read_file", json!({ "path": "f" })),
            ("write_file", json!({ "path": "f", "content": { "inline_text": { "text": "y" } } })),
            ("stat", json!({ "path": "f" })),
            ("remove", json!({ "path": "f" })),
        ] {
            expect(op, &client.fs(session, op, params), &[code])?;
        }
    }
    check(tree(&room.world.root) == before, || "something was done".into())?;
    room.nothing_runs()?;
    room.finish()
}

/// Two roots side by side, both open: neither is visible from the other.
pub fn apart() -> Outcome {
    let mut world = World::asleep(Start::default());
    let second = world.parent.join("ws2");
    std::fs::create_dir(&second).unwrap();
    std::fs::write(second.join("theirs"), "theirs\n").unwrap();
    world.start_daemon();
    let room = Room::of(world, json!({ "policy": { "preset": "permissive" } }));
    let other = room.another(json!({ "local": { "workdir": second }, "policy": { "preset": "permissive" } }));
    let receipt = room.exec_in(&other, json!({ "argv": ["sh", "-c", "cat theirs; echo home > ~/h; echo tmp > /tmp/t; echo shm > /dev/shm/s"] }));
    check(room.stdout(&receipt) == "theirs\n", || format!("{receipt}"))?;
    let there = second.display().to_string();
    for script in [
        format!("cat {there}/theirs"),
        format!("ls {there}"),
        format!("mkdir -p {there} && echo x > {there}/new && false"),
    ] {
        check(room.sh(&script)["exit_code"] != 0, || format!("{script} worked"))?;
    }
    for script in ["cat ~/h", "cat /tmp/t", "cat /dev/shm/s"] {
        check(room.sh(script)["exit_code"] != 0, || format!("{script} worked"))?;
    }
    check(!second.join("new").exists(), || "it wrote into the other's root".into())?;
    // A running command of one session is not visible to the other.
    let running = room.start_in(
        &other,
        json!({ "argv": ["sh", "-c", "touch ready; sleep 3"], "capture": "none", "timeout_ns": ns(10 * SECOND) }),
    );
    aos_testkit::wait_for("the other to run", || second.join("ready").exists())?;
    let seen = room.says("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls -d /proc/[0-9]* | wc -l")?;
    check(!seen.contains("touch ready"), || format!("it sees {seen}"))?;
    expect("the other", &running.join().map_err(|_| "no receipt".to_owned())?, &["ok"])?;
    room.finish()
}

/// `/opt` is readable for all commands; another session's root in it is not.
pub fn a_root_in_a_public_place() -> Outcome {
    let theirs =
        tempfile::Builder::new().prefix("aos-attack-").tempdir_in("/opt").map_err(|why| why.to_string())?;
    std::fs::write(theirs.path().join("theirs"), "theirs\n").unwrap();
    let room = Room::permissive();
    let there = theirs.path().display().to_string();
    let _other = room.another(json!({ "local": { "workdir": there } }));
    let receipt = room.sh(&format!("cat {there}/theirs"));
    check(receipt["exit_code"] != 0, || format!("another session's root: {receipt}"))?;
    room.finish()
}

/// A long command delays neither reads nor `capture: none` commands nor other sessions.
pub fn reads_run_beside() -> Outcome {
    let room = Room::new();
    room.world.write("f", "x");
    let long = room.start(json!({ "argv": ["sleep", "100"] }));
    wait_for("the long command runs", || !room.survivors().is_empty())?;
    let begun = Instant::now();
    let mut client = room.world.client();
    for (op, params) in
        [("read_file", json!({ "path": "f" })), ("stat", json!({ "path": "f" })), ("list_dir", json!({}))]
    {
        expect(op, &client.fs(&room.session, op, params), &["ok"])?;
    }
    expect("a free one", &room.exec(json!({ "argv": ["true"], "capture": "none" })), &["ok"])?;
    expect("a list", &client.effect("host.session.list", json!({})), &["ok"])?;
    let other = room.another(json!({}));
    expect("another session", &room.exec_in(&other, json!({ "argv": ["true"] })), &["ok"])?;
    in_time(begun, 2 * SECOND, "the short ones")?;
    check(!long.is_finished(), || "the short ones waited for the long one".into())?;
    expect("int", &room.signal(&room.session, "int"), &["signaled"])?;
    expect("the long one", &long.join().map_err(|_| "no receipt".to_owned())?, &["signaled"])?;
    room.finish()
}

/// A command cannot ask the daemon for what it may not do itself.
pub fn our_socket_is_out_of_reach() -> Outcome {
    let room = Room::permissive();
    let socket = room.world.home.join("run/aosd.sock").display().to_string();
    std::fs::copy(&room.world.programs.aos, room.world.root.join("aos")).map_err(|why| why.to_string())?;
    let home = room.world.home.display().to_string();
    let connect = format!("import socket; socket.socket(socket.AF_UNIX).connect('{socket}')");
    let receipt = room.run(&["python3", "-c", &connect]);
    check(receipt["exit_code"] != 0, || format!("it connects: {receipt}"))?;
    let mut findings = Findings::default();
    for words in [vec!["./aos", "status"], vec!["./aos", "log"], vec!["./aos", "session", "list"]] {
        let params =
            json!({ "argv": words, "env_patch": { "AOS_HOME": home }, "timeout_ns": ns(10 * SECOND) });
        let receipt = room.exec(params);
        findings
            .add(check(!room.stdout(&receipt).contains(&room.session), || format!("{words:?}: {receipt}")));
    }
    findings.add(room.finish());
    findings.outcome()
}

/// A command cannot make the operator's requests, however little its sandbox isolates.
pub fn operators_verbs() -> Outcome {
    let room = Room::open(json!({ "isolation": "none", "policy": { "preset": "permissive" } }));
    let (aos, home) = (room.world.programs.aos.display().to_string(), room.world.home.display().to_string());
    let open = json!({ "target": { "local": { "workdir": "/" } } }).to_string();
    let kill = json!({ "session_id": room.session, "signal": "kill" }).to_string();
    for words in [[&aos, "call", "host.session.open", &open], [&aos, "call", "host.session.signal", &kill]] {
        let params =
            json!({ "argv": words, "env_patch": { "AOS_HOME": home }, "timeout_ns": ns(10 * SECOND) });
        let receipt = room.exec(params);
        expect("a command", &receipt, &["ok"])?;
        check(receipt["exit_code"] != 0, || format!("{words:?}: {receipt}"))?;
    }
    expect("the session", &room.run(&["true"]), &["ok"])?;
    room.finish()
}

/// Commands that change files run one at a time, in the order in which they arrived.
pub fn in_order() -> Outcome {
    let room = Room::new();
    let mut client = room.world.client();
    for number in 0..20 {
        // Earlier commands are slower: only a kept order gives this result.
        let script = format!("sleep 0.0{}; echo {number} >> f", 9 - number % 10);
        let params = json!({ "session_id": room.session, "argv": ["sh", "-c", script] });
        let call = json!({ "kind": "host.exec", "params": params });
        client.send_effect(number, &call)?;
    }
    let mut answers = 0;
    while answers < 20 {
        let line = client.line().ok_or("the daemon hung up")?;
        answers += usize::from(line.contains("\"exit_code\":0"));
    }
    let expected: String = (0..20).map(|number| format!("{number}\n")).collect();
    let found = String::from_utf8_lossy(&room.world.read("f")).into_owned();
    check(found == expected, || format!("out of order: {found}"))?;
    room.finish()
}

/// Sessions outlive the daemon; afterwards their limits and their view are the same.
pub fn after_a_restart() -> Outcome {
    let extra = json!({
        "capability": { "exec": { "programs": ["sh", "cat"], "max_output_bytes": 10 } },
        "policy": { "preset": "permissive" },
    });
    let mut room = Room::open(extra);
    expect("HOME", &room.sh("echo kept > ~/kept"), &["ok"])?;
    room.world.restart(Start::default());
    expect("a program", &room.run(&["true"]), &["forbidden / program_not_allowed"])?;
    let receipt = room.sh("echo 0123456789abcdef");
    check(receipt["truncated"] == true, || format!("the limit is forgotten: {receipt}"))?;
    check(room.stdout(&room.sh("cat ~/kept")).trim() == "kept", || "HOME is forgotten".into())?;
    let receipt = room.sh("echo $AOS_ATTACK_MARK | head -c 9");
    check(room.mark.starts_with(room.stdout(&receipt).trim()) && receipt["stdout_bytes"] == 9, || {
        format!("its variables are forgotten: {receipt}")
    })?;
    room.world_finish()
}
