//! What is restored: content, kind, mode, attributes, links, folders, names; and what is left alone.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use aos_testkit::{check, patch_params, text, tree};
use serde_json::{Value, json};

use super::metadata::{acl, chmod, freeze, set};
use super::{Stage, Tree, listed_paths};
use crate::Outcome;

/// All of it is restored, with the modes and attributes of its folders; in one call, and any number of times.
pub fn a_removed_folder() -> Outcome {
    let mut stage = Stage::new();
    let root = stage.world().root.clone();
    for n in 0..30 {
        stage.world().write(&format!("d/s{}/t{}/f{n}", n % 3, n % 2), format!("file {n}\n"));
    }
    std::fs::create_dir(root.join("d/empty")).unwrap();
    stage.world().link("s0", "d/to-folder");
    for (folder, mode) in [("d", 0o750), ("d/s0", 0o1777), ("d/empty", 0o700), ("d/s1/t0", 0o2775)] {
        chmod(&root.join(folder), mode);
        set(&root.join(folder), "user.label", folder.as_bytes());
    }
    set(&root.join("d/s2"), "system.posix_acl_default", &acl());
    let before = stage.tree();
    let removed = stage.ok("tc1", "remove", json!({ "path": "d", "recursive": true }))?;
    check(removed["removed"] == 31 && !root.join("d").exists(), || removed.to_string())?;
    let receipt = stage.taken_back("tc1", &before)?;
    check(listed_paths(&receipt, "restored_paths").contains(&"d/empty"), || receipt.to_string())?;
    stage.must("restore", json!({ "snapshot_id": receipt["redo_snapshot_id"] }), "ok")?;
    check(!root.join("d").exists(), || "d is still there".into())?;
    stage.must("rollback", json!({ "turns": 2 }), "ok")?;
    stage.must("redo", json!({ "turns": 1 }), "ok")?;
    stage.is(&before, "after the rollback and the redo")?;
    // Created again by another call, with other content.
    stage.ok("tc2", "remove", json!({ "path": "d", "recursive": true }))?;
    stage.ok(
        "tc2",
        "write_file",
        json!({ "path": "d/s0", "content": text("a file now\n"), "create_parents": true }),
    )?;
    stage.taken_back("tc2", &before)?;
    stage.finish()
}

pub fn links() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "one\n");
    stage.world().link("f", "l");
    stage.world().link("nowhere/at all", "dangling");
    stage.world().link("../outside/secret", "out");
    std::os::unix::fs::symlink(OsStr::from_bytes(b"odd\xff\n"), stage.world().root.join("odd")).unwrap();
    let before = stage.tree();
    for link in ["l", "dangling", "odd", "out"] {
        stage.ok(link, "remove", json!({ "path": link }))?;
        stage.taken_back(link, &before)?;
    }
    // Written through the link: the target changes, the link stays a link.
    let receipt = stage.ok("through", "write_file", json!({ "path": "l", "content": text("two\n") }))?;
    let manifest = stage.manifest(&receipt)?;
    check(manifest["entries"].as_object().is_some_and(|all| all.keys().eq(["f"])), || manifest.to_string())?;
    stage.taken_back("through", &before)?;
    stage.ok("moved", "move", json!({ "from": "l", "to": "m" }))?;
    stage.ok("moved", "write_file", json!({ "path": "l", "content": text("a file now\n") }))?;
    stage.taken_back("moved", &before)?;
    stage.finish()
}

fn mv(from: &str, to: &str) -> Value {
    json!({ "from": from, "to": to })
}

pub fn moves() -> Outcome {
    let mut stage = Stage::new();
    for (path, content) in
        [("a", "A\n"), ("b", "B\n"), ("d/x", "x\n"), ("d/y", "y\n"), ("d/sub/z", "z\n"), ("e/k", "k\n")]
    {
        stage.world().write(path, content);
    }
    let before = stage.tree();
    // One file; onto another; names swapped; three in a cycle.
    stage.ok("one", "move", mv("a", "c"))?;
    let moved = stage.taken_back("one", &before)?;
    check(moved["restored_paths"] == json!(["a"]) && moved["deleted_paths"] == json!(["c"]), || {
        moved.to_string()
    })?;
    stage.ok("onto", "move", json!({ "from": "a", "to": "b", "overwrite": true }))?;
    stage.taken_back("onto", &before)?;
    for (from, to) in [("a", "t"), ("b", "a"), ("t", "b")] {
        stage.ok("swap", "move", mv(from, to))?;
    }
    check(stage.world().read("a") == b"B\n", || "not swapped".into())?;
    stage.taken_back("swap", &before)?;
    for (from, to) in [("d", "t"), ("e", "d"), ("t", "e"), ("e/x", "d/x"), ("a", "e/x")] {
        stage.ok("ring", "move", mv(from, to))?;
    }
    stage.taken_back("ring", &before)?;
    // A folder is removed, another is created in its place, and a third moves to where a subfolder of the first was.
    stage.world().write("other/z", "other\n");
    let with_other = stage.tree();
    stage.ok("again", "remove", json!({ "path": "d", "recursive": true }))?;
    stage.ok("again", "make_dir", json!({ "path": "d" }))?;
    stage.ok("again", "move", mv("other", "d/sub"))?;
    stage.taken_back("again", &with_other)?;
    std::fs::remove_dir_all(stage.world().root.join("other")).unwrap();
    moves_and_edits(&mut stage, &before)?;
    moves_of_folders_within(&mut stage, &before)?;
    // By patch, also onto other files.
    stage.ok("patch", "apply_patch", patch_params("*** Update File: a\n*** Move to: n/m/a\n@@\n-A\n+AA\n*** Update File: d/x\n*** Move to: b\n@@\n-x\n+XX\n"))?;
    stage.taken_back("patch", &before)?;
    stage.finish()
}

/// A folder with edits inside before and after the move, and with files moved out of it and into it.
fn moves_and_edits(stage: &mut Stage, before: &Tree) -> Outcome {
    for (op, params) in [
        ("edit_file", json!({ "path": "d/x", "old_string": "x", "new_string": "X" })),
        ("move", mv("d", "f")),
        ("edit_file", json!({ "path": "f/y", "old_string": "y", "new_string": "Y" })),
        ("move", mv("f/sub/z", "z")),
        ("write_file", json!({ "path": "f/new", "content": text("new\n") })),
        ("move", mv("a", "f/sub/a")),
        ("move", mv("f", "e/f")),
        ("remove", json!({ "path": "e/f/x" })),
        ("make_dir", json!({ "path": "d" })),
        ("write_file", json!({ "path": "d/x", "content": text("another\n") })),
    ] {
        stage.ok("tc", op, params)?;
    }
    let after = stage.tree();
    let taken = stage.taken_back("tc", before)?;
    stage.must("restore", json!({ "snapshot_id": taken["redo_snapshot_id"] }), "ok")?;
    stage.is(&after, "after the redo")?;
    stage.must("rollback", json!({}), "ok")?;
    stage.is(before, "after the rollback of the redo")
}

/// A folder is restored to its path inside another folder than the one that it left; then everything is undone and
/// redone at once, with the outer folders moving too.
fn moves_of_folders_within(stage: &mut Stage, before: &Tree) -> Outcome {
    stage.ok("inner", "move", mv("d/sub", "e/sub"))?;
    stage.ok("outer", "move", mv("d", "e/d"))?;
    stage.ok("new", "make_dir", json!({ "path": "d" }))?;
    stage.must("restore", json!({ "scope_id": "inner" }), "ok")?;
    let after = stage.tree();
    stage.must("rollback", json!({ "turns": 4 }), "ok")?;
    stage.is(before, "after the rollback of four turns")?;
    stage.must("redo", json!({ "turns": 4 }), "ok")?;
    stage.is(&after, "after their redo")?;
    stage.must("rollback", json!({ "turns": 4 }), "ok")?;
    stage.is(before, "after their second rollback")
}

pub fn odd_names() -> Outcome {
    let mut stage = Stage::new();
    let root = stage.world().root.clone();
    let names: &[&[u8]] = &[
        b"\xff\xfe",
        b"new\nline",
        b"tab\t",
        b" blank ",
        b"-rf",
        b"back\\x41slash",
        "caf\u{e9}".as_bytes(),
        b"*",
    ];
    std::fs::create_dir(root.join(OsStr::from_bytes(b"d\xff"))).unwrap();
    for name in names {
        std::fs::write(root.join(OsStr::from_bytes(name)), name).unwrap();
        std::fs::write(root.join(OsStr::from_bytes(b"d\xff")).join(OsStr::from_bytes(name)), name).unwrap();
    }
    let before = stage.tree();
    for name in names {
        let shown = aos_model::path::show(name);
        stage.ok("write", "write_file", json!({ "path": shown, "content": text("x") }))?;
        let receipt = stage.ok(&format!("rm{}", name.len()), "remove", json!({ "path": shown }))?;
        let manifest = stage.manifest(&receipt)?;
        check(manifest["entries"].get(&shown).is_some(), || format!("{shown}: {manifest}"))?;
        stage.must("rollback", json!({}), "ok")?;
    }
    stage.taken_back("write", &before)?;
    stage.ok("folder", "remove", json!({ "path": "d\\xff", "recursive": true }))?;
    stage.taken_back("folder", &before)?;
    stage.ok("moved", "move", json!({ "from": "d\\xff", "to": "e\\xfe" }))?;
    stage.taken_back("moved", &before)?;
    stage.finish()
}

/// The other name keeps its content; the restored one has the same content again.
pub fn hard_links() -> Outcome {
    let mut stage = Stage::new();
    let path = stage.world().write("f", "one\n");
    std::fs::hard_link(&path, stage.world().root.join("other")).unwrap();
    let before = stage.tree();
    stage.ok("tc1", "write_file", json!({ "path": "f", "content": text("two\n") }))?;
    stage.taken_back("tc1", &before)?;
    stage.ok("tc2", "remove", json!({ "path": "f" }))?;
    // Written through the other name: the pre-image does not change.
    std::fs::write(stage.world().root.join("other"), "changed\n").unwrap();
    stage.must("restore", json!({ "scope_id": "tc2" }), "ok")?;
    check(stage.world().read("f") == b"one\n" && stage.world().read("other") == b"changed\n", || "f".into())?;
    // A hard link outside a removed folder: its file is still the user's, with its mode and its time.
    let inner = stage.world().write("d/inner", "one\n");
    let other = stage.world().root.join("other-of-inner");
    std::fs::hard_link(&inner, &other).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(1_000_000);
    std::fs::File::options().write(true).open(&other).unwrap().set_modified(long_ago).unwrap();
    chmod(&other, 0o755);
    let receipt = stage.ok("folder", "remove", json!({ "path": "d", "recursive": true }))?;
    stage.manifest(&receipt)?;
    aos_testkit::wait_for("no pre-images", || {
        let preimages = stage.world().home.join("state/preimages").join(&stage.fixture.session);
        std::fs::read_dir(preimages).is_ok_and(|all| all.count() == 0)
    })?;
    let meta = other.metadata().unwrap();
    check(meta.mode() & 0o7777 == 0o755 && meta.modified().unwrap() == long_ago, || format!("{meta:?}"))?;
    std::fs::write(&other, "changed\n").unwrap();
    stage.must("restore", json!({ "scope_id": "folder" }), "ok")?;
    check(
        stage.world().read("d/inner") == b"one\n" && std::fs::read(&other).unwrap() == b"changed\n",
        || "d/inner".into(),
    )?;
    // Open for writing while it is replaced: what is written later is not in the pre-image.
    let mut open = std::fs::File::options().append(true).open(stage.world().root.join("f")).unwrap();
    stage.ok("tc3", "write_file", json!({ "path": "f", "content": text("three\n") }))?;
    std::io::Write::write_all(&mut open, b"late\n").unwrap();
    stage.must("restore", json!({ "scope_id": "tc3" }), "ok")?;
    check(stage.world().read("f") == b"one\n", || "what came late is in the pre-image".into())?;
    stage.finish()
}

/// A restore writes only what it must: the time of no other path changes, and a restored file's time is now.
pub fn nothing_else_is_touched() -> Outcome {
    let mut stage = Stage::new();
    let long_ago = SystemTime::now() - Duration::from_secs(1_000_000);
    for n in 0..20 {
        stage.world().write(&format!("d{}/f{n}", n % 4), format!("file {n}\n"));
    }
    stage.world().link("d0/f0", "link");
    let paths: Vec<_> = tree(&stage.world().root).into_keys().collect();
    for path in &paths {
        if path.is_file() && !path.is_symlink() {
            std::fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
        }
    }
    let time = |path: &Path| path.symlink_metadata().unwrap().modified().unwrap();
    let before: Vec<SystemTime> = paths.iter().map(|path| time(path)).collect();
    stage.ok("tc1", "edit_file", json!({ "path": "d0/f0", "old_string": "file", "new_string": "FILE" }))?;
    stage.ok("tc1", "move", json!({ "from": "d1/f1", "to": "d1/moved" }))?;
    let begun = SystemTime::now() - Duration::from_millis(20);
    stage.must("restore", json!({ "scope_id": "tc1" }), "ok")?;
    for (path, before) in paths.iter().zip(before) {
        let now = time(path);
        if path.ends_with("d0/f0") {
            check(now >= begun, || format!("a restored file's time is not now: {now:?}"))?;
        } else if !path.is_dir() || path.ends_with("d2") || path.ends_with("d3") {
            check(now == before, || format!("the time of {} changed", path.display()))?;
        }
    }
    stage.finish()
}

pub fn some_paths_only() -> Outcome {
    let mut stage = Stage::new();
    for path in ["f", "g", "d/x", "d/y", "dd/z"] {
        stage.world().write(path, "one\n");
    }
    let root = stage.world().root.clone();
    let sections: String = ["f", "g", "d/x", "d/y", "dd/z"]
        .iter()
        .map(|path| format!("*** Update File: {path}\n@@\n-one\n+two\n"))
        .collect();
    stage.ok("tc1", "apply_patch", patch_params(&(sections + "*** Add File: new\n+new\n")))?;
    let absolute = root.join("g").display().to_string();
    for (paths, restored, deleted) in [
        (json!(["f"]), json!(["f"]), json!([])),
        (json!([absolute]), json!(["g"]), json!([])),
        (json!(["./d/"]), json!(["d/x", "d/y"]), json!([])),
        (json!(["unheard-of"]), json!([]), json!([])),
        (json!([]), json!([]), json!([])),
        (json!(["d/../new"]), json!([]), json!(["new"])),
    ] {
        let receipt = stage.must("restore", json!({ "scope_id": "tc1", "paths": paths }), "ok")?;
        check(receipt["restored_paths"] == restored && receipt["deleted_paths"] == deleted, || {
            format!("{paths}: {receipt}")
        })?;
    }
    check(stage.world().read("dd/z") == b"two\n", || "dd/z was not asked for".into())?;
    // Conflicts on other paths do not matter.
    stage.ok(
        "tc2",
        "apply_patch",
        patch_params("*** Update File: f\n@@\n-one\n+two\n*** Update File: g\n@@\n-one\n+two\n"),
    )?;
    stage.world().write("g", "theirs\n");
    stage.must("restore", json!({ "scope_id": "tc2", "paths": ["g"] }), "conflict / changed_since")?;
    stage.must("restore", json!({ "scope_id": "tc2", "paths": ["f"] }), "ok")?;
    for (path, verdict) in [("../outside", "forbidden / path_outside_roots"), ("", "error / invalid_path")] {
        stage.must("restore", json!({ "scope_id": "tc1", "paths": [path] }), verdict)?;
    }
    // For a move, either path may be named.
    stage.ok("tc3", "move", json!({ "from": "d/x", "to": "moved" }))?;
    stage.must("restore", json!({ "scope_id": "tc3", "paths": ["d/x"] }), "ok")?;
    check(stage.world().read("d/x") == b"one\n" && !root.join("moved").exists(), || "d/x".into())?;
    stage.finish()
}

/// A dry run reports what would happen and changes nothing: no file, no time, no snapshot, no step.
pub fn dry_runs() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "one\n");
    stage.turn("t1", "edit_file", json!({ "path": "f", "old_string": "one", "new_string": "two" }))?;
    let made = stage.turn("t1", "write_file", json!({ "path": "new", "content": text("new\n") }))?;
    let before = stage.tree();
    let snapshots = stage.snapshots()?;
    let scope = made["tool_call_id"].clone();
    let receipt = stage.must("restore", json!({ "scope_id": scope, "dry_run": true }), "ok")?;
    check(receipt["deleted_paths"] == json!(["new"]) && receipt.get("redo_snapshot_id").is_none(), || {
        receipt.to_string()
    })?;
    check(receipt.get("snapshot_id").is_none(), || receipt.to_string())?;
    stage.is(&before, "after dry runs")?;
    check(stage.snapshots()? == snapshots, || "a dry run made a snapshot".into())?;
    // A conflict is reported as the real run would report it.
    stage.world().write("new", "theirs\n");
    for dry_run in [true, false] {
        let params = json!({ "scope_id": scope, "dry_run": dry_run });
        let receipt = stage.must("restore", params, "conflict / changed_since")?;
        check(receipt["conflicts"][0]["path"] == "new", || receipt.to_string())?;
    }
    stage.world().write("new", "new\n");
    stage.must("rollback", json!({}), "ok")?;
    check(stage.world().read("f") == b"one\n" && !stage.world().root.join("new").exists(), || "f".into())?;
    stage.finish()
}

/// A folder with a FIFO in it is removed and restored without it, and the answer says so; nothing hangs.
pub fn special_files() -> Outcome {
    let mut stage = Stage::new();
    let root = stage.world().root.clone();
    stage.world().write("d/f", "one\n");
    let fifo = std::process::Command::new("mkfifo").arg(root.join("d/pipe")).status();
    check(fifo.is_ok_and(|status| status.success()), || "mkfifo".into())?;
    stage.ok("tc1", "remove", json!({ "path": "d", "recursive": true }))?;
    stage.must("restore", json!({ "scope_id": "tc1" }), "ok")?;
    check(stage.world().read("d/f") == b"one\n", || "d/f is not back".into())?;
    // A changed path is a FIFO now.
    stage.ok("tc2", "edit_file", json!({ "path": "d/f", "old_string": "one", "new_string": "two" }))?;
    std::fs::remove_file(root.join("d/f")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(root.join("d/f")).status();
    check(fifo.is_ok_and(|status| status.success()), || "mkfifo".into())?;
    stage.must("restore", json!({ "scope_id": "tc2" }), "conflict / changed_since")?;
    stage.finish()
}

/// Files and folders that are closed to their owner are restored as closed with their folder, although the manifest had
/// to be written twice: the first attempt failed.
pub fn listed_twice() -> Outcome {
    let mut stage = Stage::new();
    let inside = stage.world().root.join("e/a");
    stage.world().write("e/a/f", "in a closed folder\n");
    stage.world().write("e/closed", "of nobody but its owner\n");
    chmod(&stage.world().root.join("e/closed"), 0o200);
    chmod(&inside, 0o500);
    let before = stage.tree();
    let store = stage.store();
    std::fs::create_dir_all(&store).unwrap();
    freeze(&store, true);
    stage.ok("gone", "remove", json!({ "path": "e", "recursive": true }))?;
    stage.must("rollback", json!({}), "error / permission_denied")?;
    freeze(&store, false);
    stage.must("rollback", json!({}), "ok")?;
    stage.is(&before, "after the second try")?;
    stage.finish()
}
