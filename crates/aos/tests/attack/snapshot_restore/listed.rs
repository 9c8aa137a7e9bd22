//! Single tool calls: captured, restored, in conflict.

use std::os::unix::fs::PermissionsExt;

use aos_testkit::{check, expect, patch_params, text, tree};
use serde_json::{Value, json};

use super::{Stage, listed_paths, manifest_at};
use crate::Outcome;

fn chmod(stage: &Stage, path: &str, mode: u32) {
    std::fs::set_permissions(stage.world().root.join(path), PermissionsExt::from_mode(mode)).unwrap();
}

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({ "path": path, "old_string": old, "new_string": new })
}

fn write(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": text(content), "create_parents": true })
}

/// SNAP-01.
pub fn an_edit() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "OLD\n");
    chmod(&stage, "f", 0o640);
    let before = stage.tree();
    stage.ok("tc1", "edit_file", edit("f", "OLD", "NEW"))?;
    let receipt = stage.taken_back("tc1", &before)?;
    check(receipt["restored_paths"] == json!(["f"]) && receipt["deleted_paths"] == json!([]), || {
        receipt.to_string()
    })?;
    check(receipt["redo_snapshot_id"].as_str().is_some_and(|id| id.starts_with("snap_")), || {
        receipt.to_string()
    })?;
    stage.finish()
}

/// SNAP-02.
pub fn a_new_file_and_its_folders() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("keep/x", "x\n");
    std::fs::create_dir(stage.world().root.join("empty")).unwrap();
    let before = stage.tree();
    stage.ok("tc1", "write_file", write("a/b/new", "new\n"))?;
    stage.ok("tc2", "write_file", write("empty/in/it", "new\n"))?;
    let receipt = stage.must("restore", json!({ "scope_id": "tc1" }), "ok")?;
    check(
        receipt["deleted_paths"] == json!(["a", "a/b", "a/b/new"]) && receipt["restored_paths"] == json!([]),
        || receipt.to_string(),
    )?;
    check(!stage.world().root.join("a").exists(), || "the folders that tc1 made are still there".into())?;
    stage.taken_back("tc2", &before)?;
    // A folder to which another process added something stays.
    stage.ok("tc3", "write_file", write("p/q/new", "new\n"))?;
    stage.world().write("p/theirs", "theirs\n");
    let receipt = stage.must("restore", json!({ "scope_id": "tc3" }), "ok")?;
    check(receipt["deleted_paths"] == json!(["p/q", "p/q/new"]), || receipt.to_string())?;
    check(!stage.world().root.join("p/q").exists() && stage.world().read("p/theirs") == b"theirs\n", || {
        "p".into()
    })?;
    // Each folder that was created is named.
    stage.ok("tc4", "make_dir", json!({ "path": "m/n/o", "parents": true }))?;
    let receipt = stage.must("restore", json!({ "scope_id": "tc4" }), "ok")?;
    check(receipt["deleted_paths"] == json!(["m", "m/n", "m/n/o"]), || receipt.to_string())?;
    check(!stage.world().root.join("m").exists(), || "m is still there".into())?;
    stage.finish()
}

/// SNAP-03.
pub fn a_deleted_file_whose_folder_went_too() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("d/f", "content\n");
    chmod(&stage, "d/f", 0o751);
    let before = tree(&stage.world().root);
    stage.ok("tc1", "apply_patch", patch_params("*** Delete File: d/f\n"))?;
    std::fs::remove_dir(stage.world().root.join("d")).unwrap();
    let receipt = stage.must("restore", json!({ "scope_id": "tc1" }), "ok")?;
    check(receipt["restored_paths"] == json!(["d", "d/f"]), || receipt.to_string())?;
    check(tree(&stage.world().root) == before, || "d/f is not back".into())?;
    stage.finish()
}

/// SNAP-07.
pub fn changed_by_another_process() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "one\n");
    stage.world().write("g", "one\n");
    stage.ok(
        "tc1",
        "apply_patch",
        patch_params("*** Update File: f\n@@\n-one\n+two\n*** Update File: g\n@@\n-one\n+two\n"),
    )?;
    stage.world().write("f", "the user's\n");
    let before = stage.tree();
    let times = times(&stage);
    let receipt = stage.must("restore", json!({ "scope_id": "tc1" }), "conflict / changed_since")?;
    check(receipt["conflicts"] == json!([{ "path": "f", "changed_by": "outside" }]), || receipt.to_string())?;
    stage.is(&before, "after a conflict")?;
    check(self::times(&stage) == times, || "a conflict touched a time".into())?;
    let receipt = stage.must("restore", json!({ "scope_id": "tc1", "force": true }), "ok")?;
    check(stage.world().read("f") == b"one\n" && stage.world().read("g") == b"one\n", || {
        receipt.to_string()
    })?;
    let redo = receipt["redo_snapshot_id"].clone();
    stage.must("restore", json!({ "snapshot_id": redo }), "ok")?;
    stage.is(&before, "after the redo")?;
    stage.finish()
}

fn times(stage: &Stage) -> Vec<(std::path::PathBuf, std::time::SystemTime)> {
    let paths = tree(&stage.world().root).into_keys();
    paths.map(|path| (path.clone(), path.symlink_metadata().unwrap().modified().unwrap())).collect()
}

/// SNAP-08.
pub fn invalid_ids() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "x\n");
    let home = tree(&stage.world().parent);
    let long = "x".repeat(10_240);
    for id in ["../../x", "a/b", "", ".", "a\0b", "..", "-x", "\u{e9}", "x\n", long.as_str()] {
        for params in [json!({ "scope_id": id }), json!({ "scope_id": id, "paths": ["f"] })] {
            stage.must("snapshot", params, "error / invalid_params")?;
        }
        for params in [json!({ "scope_id": id }), json!({ "snapshot_id": id })] {
            expect(id, &stage.fs("restore", params), &["error / invalid_params"])?;
        }
        let receipt = stage.fs("drop_snapshot", json!({ "snapshot_id": id }));
        expect(id, &receipt, &["not_found / snapshot_not_found", "error / invalid_params"])?;
        let params = json!({ "session_id": id, "scope_id": "tc1" });
        let receipt = stage.fixture.client.effect("host.fs.snapshot", params);
        expect(id, &receipt, &["error / session_not_found", "error / invalid_params"])?;
    }
    let outside = |tree: &super::Tree| {
        let ours = stage.world().home.clone();
        tree.keys().filter(|path| !path.starts_with(&ours)).cloned().collect::<Vec<_>>()
    };
    check(outside(&home) == outside(&tree(&stage.world().parent)), || "a path appeared outside".into())?;
    for (params, field) in [
        (json!({}), "neither"),
        (json!({ "scope_id": "a", "snapshot_id": "snap_1" }), "both"),
        (json!({ "scope_id": 1 }), "a number"),
        (json!({ "scope_id": "a", "forse": true }), "an unknown field"),
    ] {
        expect(field, &stage.fs("restore", params), &["error / invalid_params"])?;
    }
    stage.finish()
}

/// SNAP-18.
pub fn twice_unknown_and_foreign() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "one\n");
    let before = stage.tree();
    stage.ok("tc1", "edit_file", edit("f", "one", "two"))?;
    let first = stage.taken_back("tc1", &before)?;
    let again = stage.taken_back("tc1", &before)?;
    for field in ["restored_paths", "deleted_paths"] {
        check(again[field] == json!([]), || format!("the second time: {again}"))?;
    }
    check(first["restored_paths"] == json!(["f"]), || first.to_string())?;
    stage.must("restore", json!({ "scope_id": "tc9" }), "not_found / snapshot_not_found")?;
    stage.must("restore", json!({ "snapshot_id": "snap_9" }), "not_found / snapshot_not_found")?;
    let mut other = stage.world().agent(json!({}));
    let mut params = edit("f", "one", "theirs");
    params["session_id"] = json!(other.session);
    let receipt = other.client.effect_of("host.fs.edit_file", params, Some("theirs"));
    expect("the other session's edit", &receipt, &["ok"])?;
    stage.must("restore", json!({ "scope_id": "theirs" }), "not_found / snapshot_not_found")?;
    let id = receipt["snapshot_id"].clone();
    stage.must("restore", json!({ "snapshot_id": id }), "not_found / snapshot_not_found")?;
    stage.must("drop_snapshot", json!({ "snapshot_id": id }), "not_found / snapshot_not_found")?;
    check(stage.world().read("f") == b"theirs\n", || "the other session's file was touched".into())?;
    expect("its own restore", &other.fs("restore", json!({ "scope_id": "theirs" })), &["ok"])?;
    stage.finish()
}

/// SNAP-20.
pub fn two_calls_on_one_file() -> Outcome {
    let mut stage = Stage::new();
    let lines = "line\n".repeat(2_000);
    stage.world().write("f", format!("one\n{lines}"));
    stage.ok("tc1", "edit_file", edit("f", "one", "two"))?;
    stage.ok("tc2", "edit_file", edit("f", "two", "three"))?;
    let before = stage.tree();
    let receipt = stage.must("restore", json!({ "scope_id": "tc1" }), "conflict / changed_since")?;
    check(receipt["conflicts"] == json!([{ "path": "f", "changed_by": "tc2" }]), || receipt.to_string())?;
    check(receipt["error_message"].as_str().is_some_and(|why| why.contains("tc2")), || receipt.to_string())?;
    stage.is(&before, "after the conflict")?;
    stage.must("restore", json!({ "scope_id": "tc1", "force": true }), "ok")?;
    check(stage.world().read("f") == format!("one\n{lines}").as_bytes(), || "not tc1's pre-image".into())?;
    // In the right order there is no conflict.
    stage.must("rollback", json!({}), "ok")?;
    stage.is(&before, "after the rollback of the forced restore")?;
    stage.must("restore", json!({ "scope_id": "tc2" }), "ok")?;
    stage.must("restore", json!({ "scope_id": "tc1" }), "ok")?;
    check(stage.world().read("f") == format!("one\n{lines}").as_bytes(), || "not as before".into())?;
    stage.finish()
}

/// Captured at once, whole folders too, and restored whatever happened since; new files in them stay.
pub fn explicit_snapshots() -> Outcome {
    let mut stage = Stage::new();
    for (path, content) in [("d/a", "a\n"), ("d/sub/b", "b\n"), ("f", "f\n"), ("other", "o\n")] {
        stage.world().write(path, content);
    }
    stage.world().link("a", "d/link");
    chmod(&stage, "d/sub", 0o710);
    let before = stage.tree();
    let receipt =
        stage.must("snapshot", json!({ "scope_id": "tc1", "paths": ["d", "f", "absent"] }), "ok")?;
    check(receipt["mode"] == "explicit" && receipt["captured"] == 7, || receipt.to_string())?;
    let manifest = stage.manifest(&receipt)?;
    let names: Vec<&String> = manifest["entries"].as_object().ok_or("no entries")?.keys().collect();
    check(names == ["absent", "d", "d/a", "d/link", "d/sub", "d/sub/b", "f"], || manifest.to_string())?;
    check(manifest["entries"]["absent"] == json!({ "kind": "absent" }), || manifest.to_string())?;
    // Changes of all kinds by another process.
    let root = stage.world().root.clone();
    std::fs::remove_dir_all(root.join("d")).unwrap();
    stage.world().write("d/a", "changed\n");
    stage.world().write("d/new", "new\n");
    stage.world().write("f", "changed\n");
    stage.world().write("absent", "here\n");
    let receipt = stage.must("restore", json!({ "scope_id": "tc1" }), "ok")?;
    check(listed_paths(&receipt, "deleted_paths") == ["absent"], || receipt.to_string())?;
    check(stage.world().read("d/new") == b"new\n", || "a new file in the folder was touched".into())?;
    std::fs::remove_file(root.join("d/new")).unwrap();
    stage.is(&before, "after an explicit restore")?;
    // A folder became a file and a file became a folder; both are restored.
    std::fs::remove_dir_all(root.join("d")).unwrap();
    stage.world().write("d", "a file now\n");
    std::fs::remove_file(root.join("f")).unwrap();
    std::fs::create_dir(root.join("f")).unwrap();
    stage.must("restore", json!({ "snapshot_id": manifest["snapshot_id"] }), "ok")?;
    stage.is(&before, "after kinds were changed")?;
    // The root itself.
    stage.must("snapshot", json!({ "scope_id": "all", "paths": ["."] }), "ok")?;
    std::fs::remove_dir_all(root.join("d")).unwrap();
    stage.must("restore", json!({ "scope_id": "all" }), "ok")?;
    stage.is(&before, "after a restore of everything")?;
    for (paths, verdict) in [
        (json!(["../outside/secret"]), "forbidden / path_outside_roots"),
        (json!([""]), "error / invalid_path"),
    ] {
        stage.must("snapshot", json!({ "scope_id": "tc2", "paths": paths }), verdict)?;
    }
    stage.finish()
}

/// Registered first, then filled by the effects of its own tool call only.
pub fn open_snapshots() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "one\n");
    stage.world().write("g", "one\n");
    stage.world().write("h", "one\n");
    let before = stage.tree();
    let opened = stage.must("snapshot", json!({ "scope_id": "tc1" }), "ok")?;
    check(opened["mode"] == "open" && opened["captured"] == 0, || opened.to_string())?;
    let edited = stage.in_turn(Some("tc1"), Some("t1"), "edit_file", edit("f", "one", "two"));
    let removed = stage.in_turn(Some("tc1"), Some("t1"), "remove", json!({ "path": "g" }));
    let other = stage.ok("tc2", "edit_file", edit("h", "one", "two"))?;
    for receipt in [&edited, &removed] {
        check(receipt["snapshot_id"] == opened["snapshot_id"], || {
            format!("not into the open one: {receipt}")
        })?;
    }
    check(other["snapshot_id"] != opened["snapshot_id"], || other.to_string())?;
    let folder = stage.store().join(opened["snapshot_id"].as_str().unwrap_or_default());
    let names = |manifest: &Value| {
        manifest["entries"].as_object().map(|all| all.keys().cloned().collect::<Vec<_>>()).unwrap_or_default()
    };
    aos_testkit::wait_for("both paths in the manifest", || {
        manifest_at(&folder).is_ok_and(|manifest| names(&manifest) == ["f", "g"])
    })?;
    let listed = stage.snapshots()?;
    let mine = listed.iter().find(|one| one["snapshot_id"] == opened["snapshot_id"]).ok_or("not listed")?;
    check(mine["scope_id"] == "tc1" && mine["paths"] == json!(["f", "g"]) && mine["bytes"] == 8, || {
        mine.to_string()
    })?;
    check(mine["turn_id"] == "t1" && mine["coverage"] == "exact", || mine.to_string())?;
    stage.must("restore", json!({ "scope_id": "tc2" }), "ok")?;
    stage.taken_back("tc1", &before)?;
    // A snapshot without captures exists all the same, and restores nothing.
    stage.must("snapshot", json!({ "scope_id": "idle" }), "ok")?;
    let receipt = stage.must("restore", json!({ "scope_id": "idle" }), "ok")?;
    check(receipt["restored_paths"] == json!([]), || receipt.to_string())?;
    stage.finish()
}

/// All effects of a tool call restore as one, to the first pre-image of each path.
pub fn several_effects_of_one_call() -> Outcome {
    let mut stage = Stage::new();
    for (path, content) in [("f", "one\n"), ("g", "one\n"), ("d/x", "x\n"), ("d/y", "y\n")] {
        stage.world().write(path, content);
    }
    let before = stage.tree();
    for n in 1..5 {
        stage.ok("tc1", "write_file", write("f", &format!("version {n}\n")))?;
    }
    stage.ok("tc1", "write_file", write("new", "new\n"))?;
    stage.ok("tc1", "move", json!({ "from": "g", "to": "moved" }))?;
    stage.ok("tc1", "edit_file", edit("moved", "one", "two"))?;
    stage.ok("tc1", "remove", json!({ "path": "d", "recursive": true }))?;
    stage.ok("tc1", "make_dir", json!({ "path": "d" }))?;
    stage.ok("tc1", "write_file", write("d/x", "another\n"))?;
    stage.ok("tc1", "remove", json!({ "path": "new" }))?;
    let after = stage.tree();
    let ids: std::collections::BTreeSet<String> =
        stage.snapshots()?.iter().map(|one| one["snapshot_id"].to_string()).collect();
    check(ids.len() == 1, || format!("one call made {} snapshots", ids.len()))?;
    let receipt = stage.taken_back("tc1", &before)?;
    let redo = receipt["redo_snapshot_id"].clone();
    stage.must("restore", json!({ "snapshot_id": redo }), "ok")?;
    stage.is(&after, "after the redo")?;
    // An explicit snapshot of the same scope, made first, has the earliest pre-image.
    stage.world().write("e", "earliest\n");
    stage.must("snapshot", json!({ "scope_id": "tc2", "paths": ["e"] }), "ok")?;
    stage.world().write("e", "between\n");
    stage.ok("tc2", "write_file", write("e", "latest\n"))?;
    stage.must("restore", json!({ "scope_id": "tc2" }), "ok")?;
    check(stage.world().read("e") == b"earliest\n", || "not the earliest pre-image".into())?;
    stage.finish()
}

/// All fields of the manifest, named as in the contract.
pub fn manifests() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("src/a", "body\n");
    chmod(&stage, "src/a", 0o640);
    stage.world().link("a", "src/l");
    let wrote = stage.in_turn(Some("tc1"), Some("t1"), "write_file", write("src/a", "new\n"));
    let manifest = stage.manifest(&wrote)?;
    for (field, value) in [
        ("snapshot_id", wrote["snapshot_id"].clone()),
        ("session_id", json!(stage.fixture.session)),
        ("scope_id", json!("tc1")),
        ("turn_id", json!("t1")),
        ("workspace_root", json!(stage.world().root)),
    ] {
        check(manifest[field] == value, || format!("{field}: {manifest}"))?;
    }
    let taken = manifest["captured_at_ns"].as_u64().unwrap_or_default();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    check(now - taken < 60_000_000_000, || format!("captured_at_ns: {manifest}"))?;
    let entry = &manifest["entries"]["src/a"];
    let hash = aos_model::request::content_hash(b"body\n");
    check(entry["kind"] == "file" && entry["body_hash"] == hash && entry["mode"] == 0o640, || {
        manifest.to_string()
    })?;
    let kinds = [
        ("write_file", write("src/new", "x"), "src/new", "absent"),
        ("remove", json!({ "path": "src/l" }), "src/l", "symlink"),
        ("remove", json!({ "path": "src", "recursive": true }), "src", "dir"),
    ];
    for (op, params, path, kind) in kinds {
        let receipt = stage.call("tc2", op, params);
        let id = receipt["snapshot_id"].as_str().unwrap_or_default().to_owned();
        let folder = stage.store().join(id);
        aos_testkit::wait_for(path, || {
            manifest_at(&folder).is_ok_and(|manifest| manifest["entries"][path]["kind"] == kind)
        })?;
    }
    // A body is stored once, by its hash, and not in the tree.
    let body = stage.world().home.join("state/blobs").join(&hash[7..9]).join(&hash[9..]);
    aos_testkit::wait_for("the body", || std::fs::read(&body).is_ok_and(|bytes| bytes == b"body\n"))?;
    stage.finish()
}

/// Each way in which another process can change a path in between.
pub fn all_kinds_of_conflicts() -> Outcome {
    type Meddle = fn(&std::path::Path);
    let meddlings: &[(&str, Meddle)] = &[
        ("content", |f| std::fs::write(f, "theirs").unwrap()),
        ("mode only", |f| std::fs::set_permissions(f, PermissionsExt::from_mode(0o600)).unwrap()),
        ("gone", |f| std::fs::remove_file(f).unwrap()),
        ("a link", |f| {
            std::fs::remove_file(f).unwrap();
            std::os::unix::fs::symlink("elsewhere", f).unwrap();
        }),
        ("a folder", |f| {
            std::fs::remove_file(f).unwrap();
            std::fs::create_dir(f).unwrap();
        }),
        ("the same size and time", |f| {
            let time = f.metadata().unwrap().modified().unwrap();
            std::fs::write(f, "TWO\n").unwrap();
            std::fs::File::options().write(true).open(f).unwrap().set_modified(time).unwrap();
        }),
    ];
    for (what, meddle) in meddlings {
        let mut stage = Stage::new();
        stage.world().write("f", "one\n");
        stage.world().write("g", "one\n");
        stage.ok("tc1", "edit_file", edit("g", "one", "two"))?;
        stage.ok("tc1", "edit_file", edit("f", "one", "two"))?;
        meddle(&stage.world().root.join("f"));
        let before = stage.tree();
        for (op, params) in [("restore", json!({ "scope_id": "tc1" })), ("rollback", json!({ "turns": 2 }))] {
            let receipt =
                stage.must(op, params, "conflict / changed_since").map_err(|why| format!("{what}: {why}"))?;
            check(receipt["conflicts"][0]["path"] == "f", || format!("{what}: {receipt}"))?;
            stage.is(&before, what)?;
        }
        stage
            .must("restore", json!({ "scope_id": "tc1", "force": true }), "ok")
            .map_err(|why| format!("{what}: {why}"))?;
        check(stage.world().read("f") == b"one\n" && stage.world().read("g") == b"one\n", || {
            format!("{what}: force")
        })?;
        stage.must("rollback", json!({}), "ok")?;
        stage.is(&before, &format!("{what}: the forced restore taken back"))?;
        stage.finish()?;
    }
    removed_and_moved_conflicts()
}

fn removed_and_moved_conflicts() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "one\n");
    stage.ok("tc1", "remove", json!({ "path": "f" }))?;
    stage.world().write("f", "theirs\n");
    let receipt = stage.must("restore", json!({ "scope_id": "tc1" }), "conflict / changed_since")?;
    check(receipt["conflicts"] == json!([{ "path": "f", "changed_by": "outside" }]), || receipt.to_string())?;
    // The same content at the path is not a conflict: the file is already as it was.
    stage.world().write("f", "one\n");
    stage.must("restore", json!({ "scope_id": "tc1" }), "ok")?;
    stage.ok("tc2", "move", json!({ "from": "f", "to": "g" }))?;
    stage.world().write("f", "theirs\n");
    stage.must("restore", json!({ "scope_id": "tc2" }), "conflict / changed_since")?;
    check(stage.world().read("f") == b"theirs\n" && stage.world().read("g") == b"one\n", || "f, g".into())?;
    std::fs::remove_file(stage.world().root.join("f")).unwrap();
    stage.world().write("g", "theirs\n");
    stage.must("restore", json!({ "scope_id": "tc2" }), "conflict / changed_since")?;
    check(stage.world().read("g") == b"theirs\n", || "g".into())?;
    // The later call is named, also when it only moved the file away, or replaced the folder with a file.
    stage.world().write("d/x", "x\n");
    stage.ok("tc3", "edit_file", edit("d/x", "x", "y"))?;
    stage.ok("tc4", "move", json!({ "from": "d/x", "to": "away" }))?;
    let receipt = stage.must("restore", json!({ "scope_id": "tc3" }), "conflict / changed_since")?;
    check(receipt["conflicts"] == json!([{ "path": "d/x", "changed_by": "tc4" }]), || receipt.to_string())?;
    stage.ok("tc5", "remove", json!({ "path": "d", "recursive": true }))?;
    stage.ok("tc6", "write_file", write("d", "a file\n"))?;
    let receipt = stage.must("restore", json!({ "scope_id": "tc4" }), "conflict / changed_since")?;
    check(receipt["conflicts"] == json!([{ "path": "d", "changed_by": "tc6" }]), || receipt.to_string())?;
    stage.finish()
}

/// What `force` displaces is in the restore's own snapshot, whole folders too.
pub fn force_buries_nothing_for_good() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "one\n");
    stage.ok("tc1", "remove", json!({ "path": "f" }))?;
    for (path, content) in [("f/a", "a\n"), ("f/sub/b", "b\n")] {
        stage.world().write(path, content);
    }
    let before = stage.tree();
    stage.must("restore", json!({ "scope_id": "tc1" }), "conflict / changed_since")?;
    let receipt = stage.must("restore", json!({ "scope_id": "tc1", "force": true }), "ok")?;
    check(stage.world().read("f") == b"one\n", || receipt.to_string())?;
    stage.must("restore", json!({ "snapshot_id": receipt["redo_snapshot_id"] }), "ok")?;
    stage.is(&before, "after the forced restore was taken back")?;
    // A file at the path that a move returns to.
    stage.world().write("m", "m\n");
    stage.ok("tc2", "move", json!({ "from": "m", "to": "n" }))?;
    stage.world().write("m", "theirs\n");
    let before = stage.tree();
    stage.must("restore", json!({ "scope_id": "tc2", "force": true }), "ok")?;
    check(stage.world().read("m") == b"m\n" && !stage.world().root.join("n").exists(), || "m".into())?;
    stage.must("rollback", json!({}), "ok")?;
    stage.is(&before, "after the forced move was taken back")?;
    stage.finish()
}
