//! Crashes at moments that are rarely hit by chance; strace holds the daemon there.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use aos_testkit::torture::Daemon;
use aos_testkit::torture::kill::strace;
use aos_testkit::{Client, Start, Tracer, World, check, expect, text, tree, wait_for};
use serde_json::{Value, json};

use crate::Outcome;

/// A file that its owner may write but not read is replaced, and the daemon dies before it records that. The rollback
/// must not lose the old content: what cannot be compared stays among the pre-images.
pub fn over_an_unreadable_file() -> Outcome {
    let uid = 65_534;
    for when in 1..100 {
        let mut world = World::with(Start { uid: Some(uid), ..Start::default() });
        let path = world.write("f", "old content\n");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o200))
            .map_err(|why| why.to_string())?;
        let session = world.open(json!({}));
        // Each connection has a thread of its own, for which strace counts from one.
        let tracer = Tracer::tamper(world.daemon_pid(), "pwrite64", &format!("signal=KILL:when={when}"))?;
        let params = json!({ "session_id": session, "path": "f", "content": text("new content\n") });
        let receipt = world.client().effect("host.fs.write_file", params);
        if !receipt.is_null() {
            return check(when > 3, || format!("the daemon lived through pwrite64 {when}: {receipt}"));
        }
        drop(tracer);
        world.reap();
        world.start_daemon();
        let found = String::from_utf8_lossy(&world.read("f")).into_owned();
        // The pre-image may just be moving from one folder of the store to another.
        let kept = || (0..20).any(|_| kept_somewhere(&world, "old content\n"));
        check(found == "old content\n" || kept(), || {
            format!("killed at pwrite64 {when}: f holds `{found}` and the old content is nowhere")
        })?;
        world.finish()?;
    }
    Err("the daemon dies of a hundred pwrite64".into())
}

/// Whether a file below the home or the root has exactly this content.
fn kept_somewhere(world: &World, content: &str) -> bool {
    let hash = aos_model::request::content_hash(content.as_bytes());
    let trees = [aos_testkit::tree(&world.home), aos_testkit::tree(&world.root)];
    trees.iter().flat_map(|tree| tree.values()).any(|found| found.ends_with(&hash))
}

/// A folder on another file system than the home is removed: copied to the pre-images, then removed file by file. A crash in
/// between, at `power`, is before the receipt, and all of it must be back; otherwise it is after the receipt, and the rest of
/// it must be gone.
pub fn half_removed() -> Outcome {
    let mut wrong = Vec::new();
    for (when, power) in [1, 2, 5, 9].into_iter().flat_map(|when| [(when, false), (when, true)]) {
        let mut world = World::with(Start { power, ..Start::default() });
        let Some(other) = super::kills::elsewhere(&world) else { return Ok(()) };
        world.root = other.path().join("ws");
        for n in 0..10 {
            world.write(&format!("d/sub{}/f{n}", n % 2), format!("content {n}\n"));
        }
        let before = tree(&world.root);
        let session = world.open(json!({}));
        let tracer = Tracer::tamper(world.daemon_pid(), "unlinkat", &format!("signal=KILL:when={when}"))?;
        let params = json!({ "session_id": session, "path": "d", "recursive": true });
        let receipt = world.client().effect("host.fs.remove", params);
        check(receipt.is_null(), || format!("the daemon lived through unlinkat {when}: {receipt}"))?;
        drop(tracer);
        world.reap();
        world.start_daemon();
        let killed = format!("killed at unlinkat {when}, power {power}");
        if !power {
            let found = tree(&world.root);
            let left = found.keys().find(|path| **path != world.root);
            wrong.extend(left.map(|path| format!("{killed}: {} was left", path.display())));
            let undone = world.client().fs(&session, "rollback", json!({}));
            expect(&killed, &undone, &["ok"])?;
        }
        let found = tree(&world.root);
        if found != before {
            wrong.push(format!("{killed}: {} of {} paths came back", found.len(), before.len()));
        }
        world.finish()?;
    }
    check(wrong.is_empty(), || wrong.join("\n"))
}

/// How a pre-image is stored: moved on one disk; copied when the file has another hard link or is on another disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PreimageStorage {
    Moved,
    CopiedForALink,
    CopiedOverDisks,
}

/// A recovery that is killed itself is continued from wherever it stopped.
pub fn killed_recovery() -> Outcome {
    let mut wrong = Vec::new();
    for banked in [PreimageStorage::Moved, PreimageStorage::CopiedForALink, PreimageStorage::CopiedOverDisks]
    {
        for call in ["renameat2", "unlinkat", "copy_file_range", "fchmod", "pwrite64"] {
            for when in 1..30 {
                match recover_twice(banked, call, when) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(why) => wrong.push(format!("{banked:?}, killed at {call} {when}: {why}")),
                }
            }
        }
    }
    check(wrong.is_empty(), || wrong.join("\n"))
}

/// A crash leaves a patch open; its recovery is killed at a call; the next one must still restore everything. False
/// when the first recovery makes fewer such calls and survives.
fn recover_twice(banked: PreimageStorage, call: &str, when: usize) -> Result<bool, String> {
    let mut world = World::new();
    let other = super::kills::elsewhere(&world).filter(|_| banked == PreimageStorage::CopiedOverDisks);
    if let Some(other) = &other {
        world.root = other.path().join("ws");
    }
    for name in ["f", "gone"] {
        let path = world.write(name, format!("old {name}\n"));
        if banked == PreimageStorage::CopiedForALink {
            std::fs::hard_link(path, world.parent.join(name)).map_err(|why| why.to_string())?;
        }
    }
    let before = tree(&world.root);
    let session = world.open(json!({}));
    let sections =
        "*** Update File: f\n@@\n-old f\n+new f\n*** Delete File: gone\n*** Add File: n/added\n+added\n";
    let patch = text(format!("*** Begin Patch\n{sections}*** End Patch\n"));
    // The third write of a connection's thread starts the commit of the receipt.
    let tracer = Tracer::tamper(world.daemon_pid(), "pwrite64", "signal=KILL:when=3")?;
    let params = json!({ "session_id": session, "patch": patch });
    let receipt = world.client().effect("host.fs.apply_patch", params);
    check(receipt.is_null(), || format!("the daemon lived: {receipt}"))?;
    drop(tracer);
    world.reap();
    check(world.read("f") == b"new f\n", || "the patch was not applied before the crash".into())?;
    let wrapper = strace(&format!("inject={call}:signal=KILL:when={when}"), call);
    let died = world.setup().start(&wrapper, &[]).map(Daemon::kill).is_err();
    world.start_daemon();
    let shown = |path: &str| String::from_utf8_lossy(&world.read(path)).trim().to_owned();
    check(tree(&world.root) == before, || {
        format!("f holds `{}`, gone holds `{}`", shown("f"), shown("gone"))
    })?;
    let (_, log, _) = world.aos(&["log", "--json"]);
    let last: Value = serde_json::from_str(log.lines().last().unwrap_or_default()).unwrap_or_default();
    expect("the patch", &last["receipt"], &["error / interrupted_rolled_back"])?;
    let left = &last["receipt"]["not_rolled_back"];
    check(left.is_null(), || format!("all was brought back, but it says that {left} was not"))?;
    world.finish()?;
    Ok(died)
}

/// A connection of its own whose third rename is done and then delayed: an overwriting write takes two.
struct Held {
    client: Client,
    session: String,
}

const HOLD: &str = "delay_exit=3000000:when=3";

impl Held {
    fn new(world: &World, own: &str) -> Result<Held, String> {
        let (client, session) = (world.client(), world.open(json!({})));
        let mut held = Held { client, session };
        let first = held
            .client
            .effect("host.fs.write_file", held.params(json!({ "path": own, "content": text("x") })));
        expect("an overwriting write", &first, &["ok"])?;
        Ok(held)
    }

    fn params(&self, mut params: Value) -> Value {
        params["session_id"] = json!(self.session);
        params
    }

    /// Sends without waiting for the answer.
    fn send(&mut self, kind: &str, params: Value) -> Outcome {
        let call = json!({ "kind": kind, "params": self.params(params), "tool_call_id": "held" });
        self.client.send_effect(1, &call)
    }
}

/// A world with a folder `d`, and one file per client to overwrite first.
fn folder_to_move() -> World {
    let world = World::new();
    for (path, content) in [("d/x", "old\n"), ("own1", "o"), ("own2", "o")] {
        world.write(path, content);
    }
    world
}

/// One session moves a folder and has no answer yet; another writes below the new name and has one. After a crash the
/// move is rolled back, but the acknowledged write must still be where it was acknowledged.
pub fn written_below_an_open_move() -> Outcome {
    let mut world = folder_to_move();
    let tracer = Tracer::tamper(world.daemon_pid(), "renameat2", HOLD)?;
    let mut mover = Held::new(&world, "own1")?;
    mover.send("host.fs.move", json!({ "from": "d", "to": "e" }))?;
    wait_for("the folder is moved", || world.root.join("e").exists())?;
    let session = world.open(json!({}));
    let params = json!({ "session_id": session, "path": "e/new", "content": text("acknowledged\n") });
    let receipt = world.client().effect("host.fs.write_file", params);
    world.kill9();
    drop(tracer);
    world.start_daemon();
    let found = world.read("e/new");
    // Waiting for the move, or refusing while it is open, would both be correct.
    check(receipt["status"] != "ok" || found == b"acknowledged\n", || {
        let stands = tree(&world.root).into_keys().map(|path| path.display().to_string()).collect::<Vec<_>>();
        format!("the write of e/new was acknowledged ({receipt}); after the crash there is {stands:?}")
    })?;
    world.finish()
}

/// A folder is moved and a file below its new name is replaced; neither is answered when the daemon dies. Both are
/// rolled back, whichever came first.
pub fn two_open_intents() -> Outcome {
    let mut world = folder_to_move();
    let before = tree(&world.root.join("d"));
    let tracer = Tracer::tamper(world.daemon_pid(), "renameat2", HOLD)?;
    let mut mover = Held::new(&world, "own1")?;
    let mut writer = Held::new(&world, "own2")?;
    mover.send("host.fs.move", json!({ "from": "d", "to": "e" }))?;
    wait_for("the folder is moved", || world.root.join("e").exists())?;
    writer.send("host.fs.write_file", json!({ "path": "e/x", "content": text("new\n") }))?;
    // A daemon that makes the writer wait for the mover never gets here, and cannot confuse the two.
    let begun = Instant::now();
    while world.read("e/x") == b"old\n" && begun.elapsed() < Duration::from_secs(1) {
        std::thread::yield_now();
    }
    world.kill9();
    drop(tracer);
    world.start_daemon();
    let found = tree(&world.root.join("d"));
    check(found == before && !world.root.join("e").exists(), || {
        let (_, log, _) = world.aos(&["log", "--json"]);
        let closed: Vec<&str> = log.lines().filter(|line| line.contains("interrupted")).collect();
        format!("d was {before:?} and is {found:?}; the journal says {closed:?}")
    })?;
    world.finish()
}
