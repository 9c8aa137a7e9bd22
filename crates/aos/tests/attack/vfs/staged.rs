//! Staged trees: nothing reaches the disk by itself, a commit is applied as a whole, and no other process's work is
//! lost.

use aos_testkit::{Tracer, World, check, expect, text, tree};
use serde_json::{Value, json};

use super::Tree;
use crate::Outcome;

fn sample(world: &World) {
    for (path, content) in [("a.txt", "one\ntwo\n"), ("d/x", "x\n"), ("d/e/y", "y\n"), ("keep/z", "z\n")] {
        world.write(path, content);
    }
    world.link("a.txt", "to-a");
}

fn words(value: &Value) -> Vec<String> {
    let all = value.as_array().cloned().unwrap_or_default();
    all.iter().map(|word| word.as_str().unwrap_or_default().to_owned()).collect()
}

fn stage_all(tree: &mut Tree) -> Outcome {
    tree.ok("edit_file", json!({ "path": "to-a", "old_string": "two", "new_string": "TWO" }))?;
    tree.write("new/deep/file", "new\n")?;
    tree.ok("remove", json!({ "path": "d", "recursive": true }))?;
    tree.ok("move", json!({ "from": "keep", "to": "kept" }))?;
    Ok(())
}

pub fn the_disk_is_untouched() -> Outcome {
    let world = World::new();
    sample(&world);
    let before = tree(&world.root);
    let mut staged = Tree::staged(&world);
    stage_all(&mut staged)?;
    check(tree(&world.root) == before, || "the disk changed".into())?;
    // Every reader sees the same overlay.
    check(staged.read("a.txt") == "one\nTWO\n" && staged.read("to-a") == "one\nTWO\n", || "read".into())?;
    let listing = staged.ok("list_dir", json!({}))?;
    check(listing["entries"]["inline_text"]["text"] == "a.txt\nkept/\nnew/\nto-a@", || format!("{listing}"))?;
    for (path, exists) in
        [("d", false), ("d/x", false), ("keep/z", false), ("kept/z", true), ("new/deep", true)]
    {
        check(staged.ok("exists", json!({ "path": path }))?["exists"] == exists, || {
            format!("exists {path}")
        })?;
    }
    let found = staged.ok("grep", json!({ "pattern": "." }))?;
    let wanted = "a.txt:1:one\na.txt:2:TWO\nkept/z:1:z\nnew/deep/file:1:new";
    check(found["matches"]["inline_text"]["text"] == wanted, || format!("{found}"))?;
    let globbed = staged.ok("glob", json!({ "pattern": "**" }))?;
    let mut globbed: Vec<&str> =
        globbed["paths"]["inline_text"]["text"].as_str().unwrap_or_default().lines().collect();
    globbed.sort_unstable();
    check(globbed == ["a.txt", "kept/z", "new/deep/file", "to-a"], || format!("{globbed:?}"))?;
    // New files on the disk are visible, unless something staged covers them.
    world.write("later", "later\n");
    world.write("d/later", "hidden\n");
    check(staged.read("later") == "later\n", || "what came later is not seen".into())?;
    check(staged.ok("exists", json!({ "path": "d/later" }))?["exists"] == false, || {
        "a removed folder shows".into()
    })?;
    let diff = staged.ok("host.staged.diff", json!({}))?;
    let files: Vec<(&str, &str)> = diff["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["path"].as_str().unwrap(), file["change"].as_str().unwrap()))
        .collect();
    let wanted = [
        ("a.txt", "changed"),
        ("d/e/y", "removed"),
        ("d/x", "removed"),
        ("keep/z", "removed"),
        ("kept", "added"),
        ("kept/z", "added"),
        ("new", "added"),
        ("new/deep", "added"),
        ("new/deep/file", "added"),
    ];
    check(files == wanted, || format!("{files:?}"))?;
    let unified = diff["diff"].as_str().unwrap_or_default();
    check(unified.contains("--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n"), || {
        unified.to_owned()
    })?;
    world.finish()
}

pub fn a_commit_lands_as_one() -> Outcome {
    let world = World::new();
    sample(&world);
    let mut staged = Tree::staged(&world);
    stage_all(&mut staged)?;
    let receipt = staged.ok("host.staged.commit", json!({}))?;
    check(receipt["snapshot_id"].is_string() && receipt["durability"] == "process", || format!("{receipt}"))?;
    check(world.read("a.txt") == b"one\nTWO\n" && world.read("kept/z") == b"z\n", || "not landed".into())?;
    check(world.read("new/deep/file") == b"new\n", || "not landed".into())?;
    check(!world.root.join("d").exists() && !world.root.join("keep").exists(), || "not gone".into())?;
    check(world.root.join("to-a").is_symlink(), || "the link was replaced".into())?;
    let diff = staged.ok("host.staged.diff", json!({}))?;
    check(diff["files"] == json!([]) && diff["diff"] == "", || format!("{diff}"))?;
    let receipt = staged.ok("host.staged.commit", json!({}))?;
    check(receipt["committed_paths"] == json!([]), || format!("{receipt}"))?;
    // Staging continues from there.
    staged.ok("edit_file", json!({ "path": "a.txt", "old_string": "one", "new_string": "ONE" }))?;
    staged.ok("host.staged.commit", json!({}))?;
    check(world.read("a.txt") == b"ONE\nTWO\n", || "the second commit".into())?;
    world.finish()
}

pub fn changed_underneath() -> Outcome {
    let world = World::new();
    sample(&world);
    let mut staged = Tree::staged(&world);
    stage_all(&mut staged)?;
    let conflict = |staged: &mut Tree, named: &str| -> Outcome {
        let before = tree(&world.root);
        let receipt = staged.effect("host.staged.commit", json!({}));
        expect(named, &receipt, &["conflict / stale_base"])?;
        let paths: Vec<&str> = receipt["conflicts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["path"].as_str().unwrap())
            .collect();
        check(paths == [named], || format!("{paths:?}"))?;
        check(receipt["error_message"].as_str().unwrap().contains(named), || "not named".into())?;
        check(tree(&world.root) == before, || "something landed".into())
    };
    world.write("a.txt", "one\ntwo\nthree\n");
    conflict(&mut staged, "a.txt")?;
    // Writing the same content again is not a change, whatever its time.
    world.write("a.txt", "one\ntwo\n");
    world.write("d/stranger", "mine\n");
    conflict(&mut staged, "d/stranger")?;
    std::fs::remove_file(world.root.join("d/stranger")).unwrap();
    world.write("new", "in the way\n");
    conflict(&mut staged, "new")?;
    std::fs::remove_file(world.root.join("new")).unwrap();
    std::fs::remove_file(world.root.join("keep/z")).unwrap();
    conflict(&mut staged, "keep/z")?;
    world.write("keep/z", "z\n");
    std::fs::remove_file(world.root.join("a.txt")).unwrap();
    world.link(world.outside.join("secret"), "a.txt");
    let receipt = staged.effect("host.staged.commit", json!({}));
    check(receipt["status"] != "ok", || format!("committed over a link to outside: {receipt}"))?;
    std::fs::remove_file(world.root.join("a.txt")).unwrap();
    world.write("a.txt", "one\ntwo\n");
    staged.ok("host.staged.commit", json!({}))?;
    world.finish()
}

pub fn by_path() -> Outcome {
    let world = World::new();
    sample(&world);
    let mut staged = Tree::staged(&world);
    stage_all(&mut staged)?;
    let only = staged.ok("host.staged.diff", json!({ "paths": ["d"] }))?;
    check(only["files_count"] == 2, || format!("{only}"))?;
    let receipt = staged.ok("host.staged.commit", json!({ "paths": ["new/deep/file", "d/e"] }))?;
    let committed = words(&receipt["committed_paths"]);
    check(committed == ["d/e", "d/e/y", "new", "new/deep", "new/deep/file"], || format!("{committed:?}"))?;
    check(world.read("new/deep/file") == b"new\n" && !world.root.join("d/e").exists(), || {
        "not landed".into()
    })?;
    check(world.read("d/x") == b"x\n" && world.read("a.txt") == b"one\ntwo\n", || "more landed".into())?;
    check(staged.ok("exists", json!({ "path": "d/x" }))?["exists"] == false, || {
        "the rest is not staged any more".into()
    })?;
    for bad in [json!(["nothing/here"]), json!(["../outside/secret"]), json!([""])] {
        let receipt = staged.effect("host.staged.commit", json!({ "paths": bad }));
        check(receipt["status"] != "ok", || format!("{bad}: {receipt}"))?;
    }
    staged.ok("host.staged.commit", json!({ "paths": ["."] }))?;
    check(!world.root.join("d").exists() && world.read("a.txt") == b"one\nTWO\n", || "the rest".into())?;
    world.finish()
}

pub fn discarded() -> Outcome {
    let world = World::new();
    sample(&world);
    let mut staged = Tree::staged(&world);
    stage_all(&mut staged)?;
    let receipt = staged.call("drop", "host.staged.discard", json!({ "paths": ["d/x", "a.txt"] }));
    expect("discard", &receipt, &["ok"])?;
    check(words(&receipt["discarded_paths"]) == ["a.txt", "d/x"], || format!("{receipt}"))?;
    check(staged.read("d/x") == "x\n" && staged.read("a.txt") == "one\ntwo\n", || "not seen again".into())?;
    check(staged.ok("exists", json!({ "path": "d/e/y" }))?["exists"] == false, || {
        "more was discarded".into()
    })?;
    // A discard can be undone.
    let receipt = staged.fs("restore", json!({ "scope_id": "drop" }));
    expect("undo of a discard", &receipt, &["ok"])?;
    check(staged.read("a.txt") == "one\nTWO\n", || "not staged again".into())?;
    check(staged.ok("exists", json!({ "path": "d" }))?["exists"] == false, || "the folder is seen".into())?;
    staged.ok("host.staged.discard", json!({}))?;
    let diff = staged.ok("host.staged.diff", json!({}))?;
    check(diff["files"] == json!([]), || format!("{diff}"))?;
    check(staged.read("d/e/y") == "y\n" && staged.read("keep/z") == "z\n", || "not as on the disk".into())?;
    world.finish()
}

pub fn a_commit_is_undone() -> Outcome {
    let world = World::new();
    sample(&world);
    let before = tree(&world.root);
    let content = |tree: &std::collections::BTreeMap<std::path::PathBuf, String>| {
        tree.keys().cloned().collect::<Vec<_>>()
    };
    let mut staged = Tree::staged(&world);
    stage_all(&mut staged)?;
    let diff = staged.ok("host.staged.diff", json!({}))?;
    let receipt = staged.call("commit", "host.staged.commit", json!({}));
    expect("commit", &receipt, &["ok"])?;
    let receipt = staged.fs("restore", json!({ "scope_id": "commit" }));
    expect("undo", &receipt, &["ok"])?;
    check(content(&tree(&world.root)) == content(&before), || "the disk is not as it was".into())?;
    check(world.read("a.txt") == b"one\ntwo\n" && world.read("d/e/y") == b"y\n", || "content".into())?;
    // The committed change is staged again.
    let again = staged.ok("host.staged.diff", json!({}))?;
    check(again["diff"] == diff["diff"] && again["files"] == diff["files"], || format!("{again}"))?;
    // Rolled back turn by turn: the undo, the undo of the commit, and the changes themselves.
    let receipt = staged.ok("rollback", json!({ "turns": 1 }))?;
    check(receipt["status"] == "ok" && world.read("a.txt") == b"one\nTWO\n", || format!("{receipt}"))?;
    staged.ok("redo", json!({ "turns": 1 }))?;
    check(world.read("a.txt") == b"one\ntwo\n", || "done again".into())?;
    // Another process changed the file on the disk since: nothing is touched.
    staged.ok("host.staged.commit", json!({}))?;
    world.write("a.txt", "mine\n");
    expect("conflict", &staged.fs("rollback", json!({})), &["conflict / changed_since"])?;
    check(world.read("a.txt") == b"mine\n" && world.read("kept/z") == b"z\n", || "touched".into())?;
    world.finish()
}

/// A file becomes a folder, and the other way round; a removed folder is created again with other content.
pub fn files_folders_and_links() -> Outcome {
    let world = World::new();
    sample(&world);
    let mut staged = Tree::staged(&world);
    staged.ok("remove", json!({ "path": "a.txt" }))?;
    staged.write("a.txt/inside", "folder now\n")?;
    staged.ok("remove", json!({ "path": "d", "recursive": true }))?;
    staged.write("d", "file now\n")?;
    staged.ok("remove", json!({ "path": "keep", "recursive": true }))?;
    staged.write("keep/other", "again\n")?;
    let listing = staged.ok("list_dir", json!({ "path": "keep" }))?;
    check(listing["entries"]["inline_text"]["text"] == "other", || format!("{listing}"))?;
    staged.ok("move", json!({ "from": "to-a", "to": "moved-link" }))?;
    expect(
        "a link that leads nowhere",
        &staged.fs("read_file", json!({ "path": "moved-link" })),
        &["is_directory / is_directory"],
    )?;
    staged.ok("make_dir", json!({ "path": "empty/folder", "parents": true }))?;
    staged.call("c", "host.staged.commit", json!({}));
    check(world.read("a.txt/inside") == b"folder now\n" && world.read("d") == b"file now\n", || {
        "kinds".into()
    })?;
    check(world.read("keep/other") == b"again\n" && !world.root.join("keep/z").exists(), || "keep".into())?;
    check(
        std::fs::read_link(world.root.join("moved-link")).is_ok_and(|to| to.to_str() == Some("a.txt")),
        || "link".into(),
    )?;
    check(!world.root.join("to-a").is_symlink() && world.root.join("empty/folder").is_dir(), || {
        "the rest".into()
    })?;
    expect("undo", &staged.fs("restore", json!({ "scope_id": "c" })), &["ok"])?;
    check(
        world.read("a.txt") == b"one\ntwo\n"
            && world.read("d/e/y") == b"y\n"
            && world.read("keep/z") == b"z\n",
        || "undo".into(),
    )?;
    world.finish()
}

/// A commit is checked as what it does: policy, protected names, and the capability.
pub fn policy_at_commit() -> Outcome {
    let world = World::new();
    sample(&world);
    let policy = json!({ "policy": { "rules": [
        { "name": "keep", "ops": ["remove"], "paths": ["keep/**"], "decision": "deny" },
        { "name": "hush", "ops": ["read"], "paths": ["secret/**"], "decision": "deny" }] } });
    let mut staged = Tree::open(&world, json!({ "staged": { "workdir": world.root } }), policy);
    let receipt = staged.fs("remove", json!({ "path": "keep", "recursive": true }));
    expect("at once", &receipt, &["forbidden / policy_denied"])?;
    for path in [".git/hooks/pre-commit", ".mcp.json"] {
        let write = json!({ "path": path, "content": text("x"), "create_parents": true });
        expect(path, &staged.fs("write_file", write), &["forbidden / protected_path"])?;
    }
    staged.write("secret/f", "hush\n")?;
    staged.write("open/f", "open\n")?;
    let diff = staged.ok("host.staged.diff", json!({}))?;
    check(!diff["diff"].as_str().unwrap().contains("hush"), || format!("{diff}"))?;
    let reader = json!({ "capability": { "allowed_fs_ops": ["read", "list"] } });
    let mut reader = Tree::open(&world, json!({ "staged": { "workdir": world.root } }), reader);
    for kind in ["host.staged.commit", "host.staged.discard"] {
        expect(kind, &reader.effect(kind, json!({})), &["forbidden / op_not_allowed"])?;
    }
    world.finish()
}

pub fn links_to_outside() -> Outcome {
    let world = World::new();
    sample(&world);
    world.link(&world.outside, "out");
    world.link(world.outside.join("secret"), "leak");
    world.link("../outside/secret", "up");
    world.link("loop", "loop");
    let mut staged = Tree::staged(&world);
    for path in ["out/secret", "leak", "up"] {
        for op in ["read_file", "stat", "grep"] {
            let receipt = staged.fs(
                op,
                if op == "grep" { json!({ "path": path, "pattern": "." }) } else { json!({ "path": path }) },
            );
            expect(&format!("{op} {path}"), &receipt, &["forbidden / symlink_not_allowed"])?;
        }
        let write = json!({ "path": path, "content": text("x") });
        expect(path, &staged.fs("write_file", write), &["forbidden / symlink_not_allowed"])?;
    }
    expect("a loop", &staged.fs("read_file", json!({ "path": "loop" })), &["error / invalid_path"])?;
    for path in
        ["../outside/secret", world.outside.join("secret").to_str().unwrap(), "d/../../outside/secret"]
    {
        expect(path, &staged.fs("read_file", json!({ "path": path })), &["forbidden / path_outside_roots"])?;
    }
    // A link that was moved still has its target: outside.
    staged.ok("move", json!({ "from": "up", "to": "d/up" }))?;
    let receipt = staged.fs("read_file", json!({ "path": "d/up" }));
    check(receipt["status"] != "ok" || !receipt.to_string().contains(&world.canary), || {
        format!("{receipt}")
    })?;
    // The folder is swapped for a link after staging: the commit does not follow it.
    staged.ok("edit_file", json!({ "path": "d/x", "old_string": "x", "new_string": "X" }))?;
    std::fs::rename(world.root.join("d"), world.root.join("was-d")).unwrap();
    world.link(&world.outside, "d");
    let receipt = staged.effect("host.staged.commit", json!({ "paths": ["d/x"] }));
    check(receipt["status"] != "ok", || format!("committed through a link: {receipt}"))?;
    world.finish()
}

pub fn from_the_command_line() -> Outcome {
    let world = World::new();
    sample(&world);
    let root = world.root.to_str().unwrap();
    let (code, out, err) = world.aos(&["session", "open", "--staged", root]);
    check(code == 0, || err)?;
    let session = out.trim().to_owned();
    let mut staged = Tree { client: world.client(), session: session.clone() };
    staged.ok("edit_file", json!({ "path": "a.txt", "old_string": "two", "new_string": "TWO" }))?;
    staged.write("b.txt", "b\n")?;
    let (code, out, _) = world.aos(&["stage", "diff", "-s", &session]);
    check(code == 0 && out.contains("-two\n+TWO\n") && out.contains("+++ b/b.txt"), || out)?;
    let (code, out, _) = world.aos(&["stage", "discard", "b.txt", "-s", &session]);
    check(code == 0 && out.contains("1 path discarded"), || out)?;
    world.write("a.txt", "changed\n");
    let (code, _, err) = world.aos(&["stage", "commit", "-s", &session]);
    check(code == 1 && err.contains("a.txt"), || format!("{code}: {err}"))?;
    world.write("a.txt", "one\ntwo\n");
    let (code, out, err) = world.aos(&["stage", "commit", "-s", &session]);
    check(code == 0 && out.contains("1 path committed"), || format!("{out}{err}"))?;
    check(world.read("a.txt") == b"one\nTWO\n" && !world.root.join("b.txt").exists(), || "the disk".into())?;
    let (code, out, _) = world.aos(&["stage", "diff", "-s", &session]);
    check(code == 0 && out.contains("nothing is staged"), || out)?;
    let (code, out, err) =
        world.aos(&["session", "open", "--vfs", "--allow-root", root, "--mount", "d:docs"]);
    check(code == 0, || err)?;
    let names = Tree { client: world.client(), session: out.trim().to_owned() }.names()?;
    check(names == ["docs/e/y", "docs/x"], || format!("{names:?}"))?;
    let (_, out, _) = world.aos(&["session", "list"]);
    check(out.contains("(staged)") && out.contains("(virtual)"), || out)?;
    world.finish()
}

/// Killed at each rename and at writes of the journal: the commit is on the disk and no longer staged, or neither.
pub fn killed_in_a_commit() -> Outcome {
    for (call, most) in [("renameat2", 40), ("pwrite64", 24)] {
        let mut kills = 0;
        for when in (1..most).step_by(if call == "pwrite64" { 3 } else { 1 }) {
            let mut world = World::new();
            sample(&world);
            let mut staged = Tree::staged(&world);
            stage_all(&mut staged)?;
            let diff = staged.ok("host.staged.diff", json!({}))?["diff"].clone();
            let before = content(&world);
            let inject = format!("inject={call}:signal=KILL:when={when}");
            let trace = format!("trace={call}");
            let tracer =
                Tracer::attach(world.daemon_pid(), &["-o", "/dev/null", "-e", &trace, "-e", &inject])?;
            let mut fresh = Tree { client: world.client(), session: staged.session.clone() };
            let receipt = fresh.effect("host.staged.commit", json!({}));
            drop(tracer);
            let answered = receipt["status"] == "ok";
            if !answered {
                kills += 1;
                world.reap();
                world.start_daemon();
            }
            let mut after = Tree { client: world.client(), session: staged.session.clone() };
            let waits = after.ok("host.staged.diff", json!({}))?["diff"].clone();
            let landed = content(&world) != before;
            let whole = world.root.join("kept/z").exists() && !world.root.join("d").exists();
            check(landed == whole && landed == (waits == ""), || {
                format!("{call} {when}: landed {landed}, waits {waits}")
            })?;
            check(landed || waits == diff, || format!("{call} {when}: another change waits"))?;
            check(!answered || landed, || format!("{call} {when}: acknowledged and lost"))?;
            world.finish()?;
            if answered {
                break;
            }
        }
        check(kills > 0, || format!("{call}: nobody was killed"))?;
    }
    Ok(())
}

fn content(world: &World) -> Vec<(std::path::PathBuf, Option<Vec<u8>>)> {
    tree(&world.root).into_keys().map(|path| (path.clone(), std::fs::read(path).ok())).collect()
}
