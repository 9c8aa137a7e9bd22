//! Trees outlive the daemon, end with their session, and are folded from the journal to the same state.

use aos_testkit::{Start, World, check, expect, text};
use serde_json::json;

use super::Tree;
use crate::Outcome;

fn again(world: &World, tree: &Tree) -> Tree {
    Tree { client: world.client(), session: tree.session.clone() }
}

pub fn restarts_and_kills() -> Outcome {
    let mut world = World::new();
    world.write("m/f", "mounted\n");
    let target = json!({ "vfs": { "allowed_roots": [world.root], "mounts": [{ "host_path": "m" }] } });
    let mut tree = Tree::open(&world, target, json!({}));
    let mut staged = Tree::staged(&world);
    for round in 0..4 {
        expect(
            "write",
            &tree.call(
                &format!("w{round}"),
                "write_file",
                json!({ "path": format!("d/{round}"), "content": text("x\n") }),
            ),
            &["ok"],
        )?;
        tree.ok(
            "write_file",
            json!({ "path": "log", "mode": "append", "content": text(format!("{round}\n")) }),
        )?;
        staged.write(&format!("s/{round}"), "staged\n")?;
        let before = (tree.ok("host.vfs.latest", json!({}))?, staged.ok("host.staged.diff", json!({}))?);
        if round % 2 == 0 {
            world.kill9();
            world.start_daemon();
        } else {
            world.restart(Start::default());
        }
        (tree, staged) = (again(&world, &tree), again(&world, &staged));
        let after = (tree.ok("host.vfs.latest", json!({}))?, staged.ok("host.staged.diff", json!({}))?);
        for name in ["tree_version", "files"] {
            check(before.0[name] == after.0[name], || format!("{name}: {} then {}", before.0, after.0))?;
        }
        check(before.1["diff"] == after.1["diff"], || "the staged tree".into())?;
    }
    // Earlier versions and undo, from before the restarts.
    let old = tree.files(Some(2))?;
    check(old.len() == 2 && old[0]["path"] == "d/0", || format!("{old:?}"))?;
    let receipt = tree.fs("restore", json!({ "scope_id": "w0" }));
    expect("undo", &receipt, &["ok"])?;
    check(tree.ok("exists", json!({ "path": "d/0" }))?["exists"] == false, || "not undone".into())?;
    check(tree.read("m/f") == "mounted\n", || "the mount".into())?;
    staged.ok("host.staged.commit", json!({}))?;
    check(world.read("s/3") == b"staged\n", || "not committed".into())?;
    let (code, out, _) = world.aos(&["replay", "--verify"]);
    check(code == 0 && out.contains("MATCH"), || out)?;
    world.finish()
}

pub fn replay_and_closing() -> Outcome {
    let mut world = World::new();
    let mut tree = Tree::vfs(&world);
    tree.write("a/b", "content that is nowhere else\n")?;
    tree.ok("move", json!({ "from": "a", "to": "c" }))?;
    tree.ok("remove", json!({ "path": "c", "recursive": true }))?;
    tree.ok("rollback", json!({}))?;
    let match_is = |world: &World, extra: &[&str]| -> Outcome {
        let words = [&["replay", "--verify"], extra].concat();
        let (code, out, err) = world.aos(&words);
        check(code == 0 && out.contains("MATCH"), || format!("{words:?}: {code} {out}{err}"))
    };
    match_is(&world, &[])?;
    match_is(&world, &["--session", &tree.session])?;
    // Garbage collection keeps everything of a tree while its entries are in the journal.
    let (code, out, err) = world.aos(&["gc"]);
    check(code == 0, || format!("{out}{err}"))?;
    check(tree.read("c/b") == "content that is nowhere else\n", || "swept".into())?;
    let receipt =
        world.client().effect("host.session.signal", json!({ "session_id": tree.session, "signal": "term" }));
    expect("close", &receipt, &["signaled"])?;
    expect("after", &tree.effect("host.vfs.latest", json!({})), &["error / session_closed"])?;
    match_is(&world, &[])?;
    // Replay looks for a blob that an entry of a tree names.
    world.terminate();
    let blobs = world.home.join("state/blobs");
    let named = aos_testkit::tree(&blobs).into_keys().find(|path| path.is_file()).ok_or("no blob")?;
    let kept = world.parent.join("kept");
    std::fs::rename(&named, &kept).unwrap();
    let (code, out, _) = world.aos(&["replay", "--verify"]);
    check(code == 103, || format!("{code}: {out}"))?;
    std::fs::rename(&kept, &named).unwrap();
    world.finish()
}

/// What could not be journaled is not visible to any reader.
pub fn what_was_not_recorded_did_not_happen() -> Outcome {
    let mut world = World::new();
    let mut tree = Tree::vfs(&world);
    tree.write("f", "one\n")?;
    // Killed between two writes, many times: acknowledged writes are there, and versions have no gap.
    let mut acknowledged = 1;
    for round in 0..6 {
        let session = tree.session.clone();
        let mut writer = Tree { client: world.patient_client(), session };
        let pid = world.daemon_pid();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(5 + 7 * round));
            aos_testkit::signal(pid, rustix::process::Signal::KILL);
        });
        loop {
            let receipt =
                writer.fs("write_file", json!({ "path": "f", "mode": "append", "content": text("more\n") }));
            if receipt["status"] != "ok" {
                break;
            }
            acknowledged += 1;
        }
        killer.join().expect("it only sleeps and signals");
        world.reap();
        world.start_daemon();
        tree = again(&world, &tree);
        let file = tree.files(None)?.remove(0);
        let (version, lines) =
            (file["version"].as_u64().unwrap(), file["content"].as_str().unwrap().lines().count() as u64);
        check(version == lines, || format!("version {version}, {lines} lines"))?;
        // The last one may be written and not acknowledged.
        check(version >= acknowledged && version <= acknowledged + 1, || {
            format!("{acknowledged} acknowledged, {version} there")
        })?;
        acknowledged = version;
    }
    let (code, out, _) = world.aos(&["replay", "--verify"]);
    check(code == 0 && out.contains("MATCH"), || out)?;
    world.finish()
}
