//! A disk that is full or fails: a write is complete or not done at all.

use std::time::Duration;

use aos_testkit::time::PATIENCE;
use aos_testkit::{Agent, Start, Tracer, World, check, expect, patch_of, text, tree, verdict};
use serde_json::{Value, json};

use super::NO_SPACE;
use crate::Outcome;

pub(super) fn no_space() -> Outcome {
    let mut world = World::asleep(Start::default());
    let root = world.root.clone();
    world.mount_tmpfs(&root, "size=1M")?;
    world.start_daemon();
    world.write("pad", vec![b'p'; 900_000]);
    world.write("f", "OLD");
    let before = tree(&root);
    let mut agent = world.agent(json!({}));
    let large = "x".repeat(2_000_000);
    let refused = agent.write("f", &large);
    expect("2 MB into 1 MB", &refused, NO_SPACE)?;
    let unchanged = |what: &str| check(tree(&root) == before, || format!("{what} changed something"));
    unchanged("an overwrite")?;
    for (what, op, params) in too_large_in_all_ways(&large) {
        expect(what, &agent.fs(op, params), NO_SPACE)?;
        unchanged(what)?;
    }
    expect("a small write", &agent.write("f", "NEW"), &["ok"])?;
    check(world.read("f") == b"NEW", || "the small write is not there".into())?;
    expect("a small file", &agent.write("g", "small"), &["ok"])?;
    expect("a small edit", &agent.edit("f", "NEW", "NEWER"), &["ok"])?;
    room_that_was_needed(&world, &mut agent)?;
    world.finish()?;
    no_space_for_the_pre_image()
}

fn too_large_in_all_ways(large: &str) -> Vec<(&'static str, &'static str, Value)> {
    let add = |path: &str| format!("*** Add File: {path}\n+{large}\n");
    let patch = |sections: String| json!({ "patch": text(patch_of(&sections)) });
    let small = "*** Update File: f\n@@\n-OLD\n+NEW\n";
    vec![
        ("append", "write_file", json!({ "path": "f", "content": text(large), "mode": "append" })),
        ("create_new", "write_file", json!({ "path": "new", "content": text(large), "mode": "create_new" })),
        (
            "create_parents",
            "write_file",
            json!({ "path": "a/b/c", "content": text(large), "create_parents": true }),
        ),
        ("edit_file", "edit_file", json!({ "path": "f", "old_string": "OLD", "new_string": large })),
        ("patch add", "apply_patch", patch(add("new"))),
        ("patch, the large one last", "apply_patch", patch(format!("{small}{}", add("deep/er")))),
        ("patch, the large one first", "apply_patch", patch(format!("{}{small}", add("deep/er")))),
        ("patch with a deletion", "apply_patch", patch(format!("*** Delete File: pad\n{}", add("new")))),
    ]
}

/// Space that a first step freed must still be free when the second step fails and the first is rolled back.
fn room_that_was_needed(world: &World, agent: &mut Agent) -> Outcome {
    let pad = world.read("pad");
    let before = tree(&world.root);
    let (head, rest) = ("p".repeat(900_000), "y".repeat(1_100_000));
    let patch = format!("*** Update File: pad\n@@\n-{head}\n+small\n*** Add File: new\n+{rest}\n");
    expect("free, then fill", &agent.patch(&patch), NO_SPACE)?;
    check(world.read("pad") == pad && tree(&world.root) == before, || "pad did not come back".into())
}

/// No mutation without a stored pre-image: where the home is full, nothing changes.
fn no_space_for_the_pre_image() -> Outcome {
    let mut world = World::asleep(Start::default());
    let home = world.home.clone();
    world.mount_tmpfs(&home, "size=6M,mode=700")?;
    world.start_daemon();
    // The home is on another file system, so the file is copied into it and not moved.
    let old = vec![b'o'; 8 << 20];
    world.write("f", &old);
    world.write("small", "OLD\n");
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    for way in ["write_file", "patch_add", "remove", "patch_delete"] {
        expect(way, &agent.way(way, "f"), NO_SPACE)?;
        check(tree(&world.root) == before, || format!("{way} changed something"))?;
    }
    let both = "*** Update File: small\n@@\n-OLD\n+NEW\n*** Delete File: f\n";
    expect("a patch of both", &agent.patch(both), NO_SPACE)?;
    check(tree(&world.root) == before, || "the patch changed something".into())?;
    expect("a small one", &agent.edit("small", "OLD", "NEW"), &["ok"])?;
    world.finish()
}

pub(super) fn no_inodes() -> Outcome {
    let mut world = World::asleep(Start::default());
    let root = world.root.clone();
    world.mount_tmpfs(&root, "size=1M,nr_inodes=32")?;
    world.start_daemon();
    world.write("f", "OLD\n");
    world.write("donor", "OLD\n");
    let filled = (0..100).find(|number| std::fs::write(root.join(format!("fill{number}")), "").is_err());
    let filled = filled.ok_or("the file system has no end of inodes")?;
    let before = tree(&root);
    let mut agent = world.agent(json!({}));
    for (way, path) in [
        ("create_new", "new"),
        ("write_file", "new"),
        ("create_parents", "new/er"),
        ("patch_add", "new"),
        ("make_dir", "new"),
        ("edit_file", "f"),
        ("write_file", "f"),
        ("append", "f"),
        ("patch_update", "f"),
    ] {
        let what = format!("{way} {path}");
        expect(&what, &agent.way(way, path), NO_SPACE)?;
        check(tree(&root) == before, || format!("{what} changed something"))?;
    }
    let both = "*** Delete File: donor\n*** Update File: f\n@@\n-OLD\n+NEW\n*** Add File: n1\n+x\n*** Add File: n2\n+x\n";
    expect("a patch that needs two", &agent.patch(both), NO_SPACE)?;
    check(tree(&root) == before, || "the patch changed something".into())?;
    // A move needs no inode, and a removed file frees one.
    expect("move", &agent.way("move_from", "f"), &["ok"])?;
    expect("remove", &agent.way("remove", &format!("fill{}", filled - 1)), &["ok"])?;
    expect("one more", &agent.way("edit_file", "moved"), &["ok"])?;
    world.finish()
}

/// A daemon that does not answer within this time has stopped.
fn be_patient(agent: &Agent) {
    agent.client.give_up_after(PATIENCE).unwrap();
}

const EVERY_FSYNC: &str = "inject=fsync,fdatasync:error=EIO";

pub(super) fn fsync_fails() -> Outcome {
    for way in ["write_file", "edit_file", "patch_update", "patch_delete", "remove", "move_from"] {
        an_fsync_fails(way, "f", EVERY_FSYNC)?;
    }
    for way in ["create_new", "create_parents", "patch_add", "make_dir"] {
        an_fsync_fails(way, "made/new", EVERY_FSYNC)?;
    }
    // The first calls of a thread succeed, later ones fail: at each step of the write.
    for first in 1..=8 {
        an_fsync_fails("write_file", "f", &format!("{EVERY_FSYNC}:when={first}+"))?;
    }
    from_the_start()
}

fn an_fsync_fails(way: &str, path: &str, inject: &str) -> Outcome {
    let power = Start { power: true, ..Start::default() };
    let mut world = World::with(power.clone());
    world.write("f", "OLD\n");
    std::fs::create_dir(world.root.join("made")).unwrap();
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    be_patient(&agent);
    let injection = Tracer::inject(world.daemon_pid(), inject)?;
    let receipt = agent.way(way, path);
    let what = format!("{way} with {inject}");
    if inject == EVERY_FSYNC {
        check(receipt.is_null() || verdict(&receipt) == "error / io_error", || format!("{what}: {receipt}"))?;
    }
    drop(injection);
    world.kill9();
    world.restart(power);
    let as_before = tree(&world.root) == before;
    let recorded = journaled(&world)?;
    // A daemon that stopped before its answer may have done the write or not; the journal then decides.
    let done =
        if receipt.is_null() && inject != EVERY_FSYNC { recorded == "ok" } else { receipt["status"] == "ok" };
    check(as_before != done, || format!("{what}: {receipt}, but afterwards {:?}", tree(&world.root)))?;
    check((recorded == "ok") == done, || format!("{what}: {receipt}, but the journal says {recorded}"))?;
    world.finish()
}

/// The verdict that the journal holds for the last file effect.
fn journaled(world: &World) -> Result<String, String> {
    let (code, log, err) = world.aos(&["log", "--json"]);
    check(code == 0, || format!("aos log: {code} {err}"))?;
    let mut entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_files = |entry: &Value| entry["kind"].as_str().is_some_and(|kind| kind.starts_with("host.fs."));
    let last = entries.rfind(of_files);
    Ok(last.map_or("nothing".into(), |entry| verdict(&entry["receipt"])))
}

/// A daemon that cannot sync does not start, or at least never acknowledges a change.
fn from_the_start() -> Outcome {
    let wrapper = ["strace", "-f", "-o", "/dev/null", "-e", EVERY_FSYNC].map(str::to_owned).to_vec();
    let power = Start { power: true, ..Start::default() };
    let mut world = World::asleep(Start { wrapper, ..power.clone() });
    world.write("f", "OLD\n");
    if world.try_start_daemon().is_ok() {
        let receipt = world.open_receipt(json!({}));
        if let Some(session) = receipt["session_id"].as_str() {
            let mut agent = Agent { session: session.to_owned(), client: world.client() };
            be_patient(&agent);
            let receipt = agent.way("write_file", "f");
            check(receipt["status"] != "ok", || format!("ok without an fsync: {receipt}"))?;
        }
        world.kill9();
    }
    world.restart(power);
    check(world.read("f") == b"OLD\n", || "f was changed".into())?;
    world.finish()
}

pub(super) fn writing_fails() -> Outcome {
    // A new home needs more writes than these, so most of these daemons do not start.
    for number in 1..=20 {
        a_write_fails(number, true)?;
    }
    let seen = (1..=20).map(|number| a_write_fails(number, false)).collect::<Result<Vec<_>, _>>()?;
    check(seen.iter().any(|said| said == "error / no_space"), || format!("never no_space: {seen:?}"))?;
    check(seen.iter().any(|said| said == "ok"), || format!("never ok: {seen:?}"))
}

/// The `number`th write of each thread fails, from the daemon's start or from the moment it has a session. Returns the
/// verdict on our write.
fn a_write_fails(number: usize, from_the_start: bool) -> Result<String, String> {
    let inject = format!("inject=write,pwrite64,writev:error=ENOSPC:when={number}");
    let wrapper = ["strace", "-f", "-o", "/dev/null", "-e", &inject].map(str::to_owned).to_vec();
    let mut world = World::asleep(Start::default());
    world.write("f", "OLD\n");
    let new = "n".repeat(5_000_000);
    let mut said = "no daemon".to_owned();
    if !from_the_start {
        world.start_daemon();
        let session = world.open(json!({}));
        let _injection = Tracer::inject(world.daemon_pid(), &inject)?;
        said = write_while_it_fails(&world, &session, &new);
    } else if world.try_restart(Start { wrapper, ..Start::default() }).is_ok() {
        let mut client = world.client();
        client.stream().set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let target = json!({ "target": { "local": { "workdir": world.root } } });
        let opened = client.effect("host.session.open", target);
        let session = opened["session_id"].as_str().unwrap_or_default();
        said =
            if session.is_empty() { verdict(&opened) } else { write_while_it_fails(&world, session, &new) };
    }
    let what = format!("write {number}{}", if from_the_start { " from the start" } else { "" });
    whole_or_not(&world, &format!("{what}: {said}"), &said, &new)?;
    world.restart(Start::default());
    whole_or_not(&world, &format!("{what}: {said}, after a restart"), &said, &new)?;
    world.finish()?;
    Ok(said)
}

fn whole_or_not(world: &World, what: &str, said: &str, new: &str) -> Outcome {
    let now = world.read("f");
    let (old, whole) = (now == b"OLD\n", now == new.as_bytes());
    let truthful = match said {
        "ok" => whole,
        // A write to our socket failed: the outcome is unknown, but the file is not written in part.
        "no answer" => old || whole,
        _ => old,
    };
    check(truthful, || format!("{what}: f has {} bytes", now.len()))?;
    check(tree(&world.root).len() == 1, || format!("{what}: left {:?}", tree(&world.root).keys()))
}

fn write_while_it_fails(world: &World, session: &str, new: &str) -> String {
    let mut agent = Agent { session: session.to_owned(), client: world.client() };
    agent.client.stream().set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let receipt = agent.write("f", new);
    if receipt.is_null() { "no answer".to_owned() } else { verdict(&receipt) }
}
