//! What a command may fill, and a daemon whose disk is full.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use aos_testkit::{Findings, Start, World, check, expect, wait_for};
use serde_json::{Value, json};

use crate::exec::room::{Room, SECOND, ns};
use crate::{Case, Need, Outcome, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![
        plain("S8", a_command_that_fills_its_folders_is_ended),
        Case { id: "OWN-S8-DISK", needs: &[Need::Root], run: a_command_that_fills_the_disk_is_ended },
        Case { id: "OWN-S8-INODES", needs: &[Need::Root], run: a_command_that_takes_all_inodes_is_ended },
        Case {
            id: "OWN-S8-OVERLAY",
            needs: &[Need::Root],
            run: no_overlay_for_want_of_room_is_no_reason_to_run,
        },
        Case { id: "OWN-S8-FULL", needs: &[Need::Root], run: a_daemon_on_a_full_disk },
        Case { id: "OWN-S8-RETRIES", needs: &[Need::Root], run: whoever_tries_again_uses_up_no_reserve },
        Case { id: "OWN-S8-START", needs: &[Need::Root], run: a_start_on_a_full_disk },
        Case { id: "OWN-S8-ROOT", needs: &[Need::Root], run: a_patch_on_a_full_root },
        Case { id: "S17", needs: &[Need::Root], run: memory_of_an_ordinary_user },
    ]
}

fn limited(exec: Value) -> Value {
    let mut capability = json!({ "exec": { "allowed": true } });
    for (name, value) in exec.as_object().unwrap() {
        capability["exec"][name] = value.clone();
    }
    json!({ "policy": { "preset": "permissive" }, "capability": capability })
}

fn run(room: &Room, session: &str, script: &str) -> Value {
    room.exec_in(session, json!({ "argv": ["sh", "-c", script], "timeout_ns": ns(60 * SECOND) }))
}

const OVER: &str = "forbidden / limit_exceeded";

/// Files in HOME, in /tmp and in the roots; by one process, by many, in folders that cannot be read.
fn a_command_that_fills_its_folders_is_ended() -> Outcome {
    let room = Room::open(limited(json!({ "max_scratch_bytes": 20 << 20, "max_overlay_bytes": 20 << 20 })));
    let mut findings = Findings::default();
    for script in [
        "head -c 60000000 /dev/zero > /tmp/f; sleep 40",
        "head -c 60000000 /dev/zero > ~/f; sleep 40",
        "for n in 1 2 3 4 5 6 7 8; do head -c 8000000 /dev/zero > /tmp/f$n & done; wait; sleep 40",
        "mkdir -p /tmp/a/b; head -c 60000000 /dev/zero > /tmp/a/b/f; chmod 0 /tmp/a; sleep 40",
        "(setsid sh -c 'head -c 60000000 /dev/zero > ~/g; sleep 40' &); sleep 40",
        "head -c 60000000 /dev/zero > big; sleep 40",
        "fallocate -l 60000000 /tmp/h; sleep 40",
    ] {
        let session =
            room.another(limited(json!({ "max_scratch_bytes": 20 << 20, "max_overlay_bytes": 20 << 20 })));
        let receipt = run(&room, &session, &format!("echo x > landed; {script}"));
        findings.add(expect(script, &receipt, &[OVER]));
        let took = receipt["ended_at_ns"].as_u64().zip(receipt["started_at_ns"].as_u64());
        findings.add(check(took.is_some_and(|(end, start)| end - start < ns(30 * SECOND)), || {
            format!("{script}: it was not ended: {receipt}")
        }));
        for name in ["landed", "big"] {
            findings.add(check(!room.world.root.join(name).exists(), || format!("{script}: {name} landed")));
        }
        expect("close", &room.signal(&session, "term"), &["signaled"])?;
    }
    // What is there from before may be removed, and less than the limit is no matter.
    let session = room.another(limited(json!({ "max_scratch_bytes": 20 << 20 })));
    findings.add(expect(
        "over",
        &run(&room, &session, "head -c 60000000 /dev/zero > /tmp/f; sleep 40"),
        &[OVER],
    ));
    let receipt = run(
        &room,
        &session,
        "rm /tmp/f; sleep 0.3; head -c 9000000 /dev/zero > /tmp/g; sleep 0.3; echo done",
    );
    findings.add(expect("after", &receipt, &["ok"]));
    findings.add(check(room.stdout(&receipt) == "done\n", || format!("{receipt}")));
    // Shared memory has its own bound.
    let receipt = run(
        &room,
        &room.session,
        "head -c 300000000 /dev/zero > /dev/shm/f; df -B1 --output=size /dev/shm | tail -1",
    );
    findings.add(check(room.stdout(&receipt).trim() == (256_u64 << 20).to_string(), || format!("{receipt}")));
    findings.add(room.finish());
    findings.outcome()
}

/// A world whose home is a small file system of its own.
fn small_disk(options: &str) -> Result<World, String> {
    let mut world = World::asleep(Start::default());
    let home = world.home.clone();
    world.mount_tmpfs(&home, options)?;
    world.start_daemon();
    Ok(world)
}

fn permissive(world: &World) -> String {
    world.open(json!({ "policy": { "preset": "permissive" } }))
}

fn filler(world: &World, script: &str) -> (String, Value) {
    let session = permissive(world);
    let params =
        json!({ "session_id": session, "argv": ["sh", "-c", script], "timeout_ns": ns(60 * SECOND) });
    let receipt = world.client().effect("host.exec", params);
    (session, receipt)
}

/// Another session can still write, and everything is given back when the session is closed.
fn others_go_on(world: &World, session: &str, findings: &mut Findings) {
    let mut client = world.client();
    let other = permissive(world);
    let content = json!({ "inline_text": { "text": "x" } });
    // What the command changed in the roots is removed in the background.
    let mut write = || client.fs(&other, "write_file", json!({ "path": "other", "content": content }));
    findings.add(wait_for("another session to write", || write()["status"] == "ok"));
    let params = json!({ "session_id": session, "signal": "term" });
    findings.add(expect("close", &client.effect("host.session.signal", params), &["signaled"]));
}

fn a_command_that_fills_the_disk_is_ended() -> Outcome {
    let mut findings = Findings::default();
    for script in [
        "cat /dev/zero > /tmp/f; sleep 40",
        "cat /dev/zero > ~/f",
        "cat /dev/zero > big",
        "exec 3> /tmp/f; rm /tmp/f; cat /dev/zero >&3; sleep 40",
    ] {
        let world = small_disk("size=300m,mode=0700")?;
        let (session, receipt) = filler(&world, &format!("echo x > landed; {script}"));
        findings.add(expect(script, &receipt, &[OVER]));
        findings.add(check(!world.root.join("landed").exists(), || format!("{script}: it landed")));
        others_go_on(&world, &session, &mut findings);
        findings.add(world.finish());
    }
    findings.outcome()
}

fn a_command_that_takes_all_inodes_is_ended() -> Outcome {
    let world = small_disk("size=300m,nr_inodes=4000,mode=0700")?;
    let script = "echo x > landed; i=0; while : > /tmp/f$i; do i=$((i+1)); done; sleep 40";
    let (session, receipt) = filler(&world, script);
    let mut findings = Findings::default();
    findings.add(expect(script, &receipt, &[OVER]));
    findings.add(check(!world.root.join("landed").exists(), || "it landed".into()));
    others_go_on(&world, &session, &mut findings);
    findings.add(world.finish());
    findings.outcome()
}

/// Where the folders of an overlay find no room, the command does not run: without an overlay its changes would stay.
fn no_overlay_for_want_of_room_is_no_reason_to_run() -> Outcome {
    let world = small_disk("size=64m,nr_inodes=400,mode=0700")?;
    // With nothing to guard, a command without an overlay needs no folder of ours.
    let capability = json!({ "protected_paths": "allow" });
    let session = world.open(json!({ "policy": { "preset": "permissive" }, "capability": capability }));
    let mut client = world.client();
    let mut exec = |argv: Value| client.effect("host.exec", json!({ "session_id": session, "argv": argv }));
    // The private folders of the session are made with its first command.
    expect("the first", &exec(json!(["true"])), &["ok"])?;
    let many = world.home.join("many");
    std::fs::create_dir(&many).map_err(|why| why.to_string())?;
    let mut findings = Findings::default();
    for free in 0..8 {
        world.write("old", "content\n");
        let name = |number: usize| many.join(number.to_string());
        let made = (0..1000).take_while(|number| std::fs::File::create(name(*number)).is_ok()).count();
        (0..free.min(made)).for_each(|number| drop(std::fs::remove_file(name(number))));
        let receipt = exec(json!(["mv", "old", "new"]));
        let has_landed = world.root.join("new").exists() || !world.root.join("old").exists();
        let is_said = receipt["status"] == "ok" && receipt["coverage"] == "overlay";
        findings.add(check(!has_landed || is_said, || format!("{free} free: it landed: {receipt}")));
        let _ = std::fs::remove_file(world.root.join("new"));
        (0..made).for_each(|number| drop(std::fs::remove_file(name(number))));
    }
    findings.add(world.finish());
    findings.outcome()
}

/// Fills what is left of a file system.
fn fill(folder: &Path) -> std::path::PathBuf {
    use std::io::Write as _;
    let path = folder.join("filler");
    let mut file = std::fs::File::create(&path).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    path
}

/// Reads, closing and garbage collection work, changes do not, and it says why; after a kill as well.
fn a_daemon_on_a_full_disk() -> Outcome {
    let mut world = small_disk("size=64m,mode=0700")?;
    world.write("file", "content\n");
    let sessions = [permissive(&world), permissive(&world), permissive(&world)];
    let mut findings = Findings::default();
    let content = json!({ "inline_text": { "text": "x" } });
    let write = json!({ "path": "new", "content": content });
    findings.add(expect("before", &world.client().fs(&sessions[0], "write_file", write.clone()), &["ok"]));
    let filler = fill(&world.home);
    for round in ["running", "started again"] {
        let mut client = world.client();
        // The first change finds out that the disk is full.
        for _ in 0..50 {
            let receipt = client.fs(&sessions[0], "write_file", write.clone());
            if receipt["error_code"] == "no_space" {
                break;
            }
        }
        let receipt = client.fs(&sessions[0], "write_file", write.clone());
        findings.add(expect(round, &receipt, &["error / no_space"]));
        let receipt = client.fs(&sessions[0], "read_file", json!({ "path": "file" }));
        findings.add(expect(round, &receipt, &["ok"]));
        let gc = client.rpc("store.gc", json!({}));
        findings.add(check(gc["result"]["status"] == "ok", || format!("{round}: {gc}")));
        let (code, said, why) = world.aos(&["status"]);
        findings
            .add(check(code == 0 && said.contains("is full"), || format!("{round}: status: {said}{why}")));
        let (code, said, why) = world.aos(&["doctor"]);
        findings
            .add(check(code == 0 && said.contains("is full"), || format!("{round}: doctor: {said}{why}")));
        let closed = if round == "running" { &sessions[1] } else { &sessions[2] };
        let params = json!({ "session_id": closed, "signal": "term" });
        findings.add(expect(round, &client.effect("host.session.signal", params), &["signaled"]));
        if round == "running" {
            world.kill9();
            world.try_start_daemon().map_err(|why| format!("it does not start on a full disk: {why}"))?;
        }
    }
    std::fs::remove_file(&filler).unwrap();
    wait_for("changes to be accepted again", || {
        world.client().fs(&sessions[0], "write_file", write.clone())["status"] == "ok"
    })?;
    findings.add(world.finish());
    findings.outcome()
}

/// A client in a loop, in a session on the disk or with a layer, leaves enough for reads, closing and garbage collection.
fn whoever_tries_again_uses_up_no_reserve() -> Outcome {
    let world = small_disk("size=32m,mode=0700")?;
    world.write("file", "content\n");
    let virtual_tree = json!({ "target": { "vfs": {} } });
    let sessions = [permissive(&world), permissive(&world), world.open(virtual_tree)];
    let mut findings = Findings::default();
    fill(&world.home);
    let mut client = world.client();
    let mut refused = 0;
    for number in 0..6000 {
        let text = format!("{number} {}", "x".repeat(1000));
        let write = json!({ "path": "new", "content": { "inline_text": { "text": text } } });
        let receipt = client.fs(&sessions[1 + number % 2], "write_file", write);
        refused += u32::from(receipt["error_code"] == "no_space");
    }
    findings.add(check(refused > 5000, || format!("only {refused} of 6000 writes were refused")));
    let receipt = client.fs(&sessions[0], "read_file", json!({ "path": "file" }));
    findings.add(expect("a read", &receipt, &["ok"]));
    let gc = client.rpc("store.gc", json!({}));
    findings.add(check(gc["result"]["status"] == "ok", || format!("gc: {gc}")));
    for session in &sessions {
        let params = json!({ "session_id": session, "signal": "term" });
        findings.add(expect("close", &client.effect("host.session.signal", params), &["signaled"]));
    }
    findings.add(world.finish());
    findings.outcome()
}

/// The daemon was killed before it found out: the next one starts.
fn a_start_on_a_full_disk() -> Outcome {
    let mut findings = Findings::default();
    for options in ["size=64m,mode=0700", "size=8m,mode=0700", "size=64m,nr_inodes=200,mode=0700"] {
        let mut world = small_disk(options)?;
        world.write("file", "content\n");
        let session = permissive(&world);
        world.kill9();
        let filler = fill(&world.home);
        let many = world.home.join("many");
        let made = std::fs::create_dir(&many).is_ok();
        let mut number = 0;
        while made && std::fs::File::create(many.join(format!("{number}"))).is_ok() {
            number += 1;
            if number > 100_000 {
                break;
            }
        }
        world.try_start_daemon().map_err(|why| format!("{options}: it does not start: {why}"))?;
        let mut client = world.client();
        let receipt = client.fs(&session, "read_file", json!({ "path": "file" }));
        findings.add(expect(options, &receipt, &["ok"]));
        let params = json!({ "session_id": session, "signal": "term" });
        findings.add(expect(options, &client.effect("host.session.signal", params), &["signaled"]));
        let _ = std::fs::remove_file(filler);
        let _ = std::fs::remove_dir_all(many);
        findings.add(world.finish());
    }
    findings.outcome()
}

/// The root is on another disk than the home. Another process takes all space there that a patch gives up: the patch is
/// refused, and what it had replaced is back.
fn a_patch_on_a_full_root() -> Outcome {
    use std::io::Write as _;
    let mut world = World::asleep(Start::default());
    let root = world.root.clone();
    world.mount_tmpfs(&root, "size=4m,mode=0755")?;
    world.start_daemon();
    let large = format!("first\n{}", "a line of a large file\n".repeat(40_000));
    world.write("large", &large);
    let session = permissive(&world);
    let filler = std::fs::File::create(root.join("filler")).map_err(|why| why.to_string())?;
    let stop = AtomicBool::new(false);
    let mut findings = Findings::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = (&filler).write_all(&[b'x'; 4096]);
            }
        });
        let added = "+a line of a new file\n".repeat(10_000);
        let patch =
            format!("*** Begin Patch\n*** Delete File: large\n*** Add File: new\n{added}*** End Patch\n");
        let params = json!({ "patch": { "inline_text": { "text": patch } } });
        for _ in 0..10 {
            let receipt = world.client().fs(&session, "apply_patch", params.clone());
            findings.add(expect("a patch on a full root", &receipt, &["error / no_space"]));
            findings.add(check(receipt["not_rolled_back"].is_null(), || format!("{receipt}")));
            findings.add(check(world.read("large") == large.as_bytes(), || "large is not as before".into()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    std::fs::remove_file(root.join("filler")).map_err(|why| why.to_string())?;
    findings.add(world.finish());
    findings.outcome()
}

/// Without a cgroup the limit is not kept for all of a command, and the receipt says so.
fn memory_of_an_ordinary_user() -> Outcome {
    let mut findings = Findings::default();
    let world = World::with(Start { uid: Some(12_345), ..Start::default() });
    let room = Room::of(world, limited(json!({ "max_memory_bytes": 64 << 20 })));
    let receipt = run(&room, &room.session, "true");
    let warned = receipt["warnings"].to_string().contains("limit_not_enforced");
    findings.add(check(warned, || format!("{receipt}")));
    let receipt = run(
        &room,
        &room.session,
        "df -B1 --output=size /dev/shm | tail -1; head -c 100000000 /dev/zero > /dev/shm/f",
    );
    findings.add(check(room.stdout(&receipt).trim() == (64 << 20).to_string(), || format!("{receipt}")));
    findings.add(check(receipt["exit_code"] != 0, || format!("{receipt}")));
    let receipt = room.exec(json!({ "argv": ["python3", "-c", "bytearray(200 << 20)"] }));
    findings.add(check(receipt["exit_code"] != 0, || format!("{receipt}")));
    findings.add(room.finish());
    // No limit, no warning.
    let room = Room::of(World::with(Start { uid: Some(12_345), ..Start::default() }), json!({}));
    let receipt = room.run(&["true"]);
    findings.add(check(!receipt.to_string().contains("limit_not_enforced"), || format!("{receipt}")));
    findings.add(room.finish());
    findings.outcome()
}
