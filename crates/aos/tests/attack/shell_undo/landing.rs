//! How the changes of a command are applied: after a timeout or a kill, on several roots, beside other changes, and for
//! special files.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use aos_testkit::{World, check, expect, warning_codes};
use serde_json::json;

use super::{changed, each_daemon, furnish, furnished, same, seen};
use crate::Outcome;
use crate::exec::room::{Room, ns};

pub(super) fn ended_by_force() -> Outcome {
    let room = furnished(World::new(), json!({}));
    let before = seen(&room.world.root);
    let half = json!({ "timeout_ns": ns(Duration::from_secs(2)) });
    let receipt =
        room.call_with("tc_late", "echo half > changed; sleep 60; echo whole > changed", half.clone());
    expect("late", &receipt, &["timeout / timeout"])?;
    check(changed(&receipt) == ["changed"] && room.world.read("changed") == b"half\n", || {
        format!("{receipt}")
    })?;
    expect("undo", &room.undo("tc_late"), &["ok"])?;
    let receipt = room.call("tc_killed", "rm gone; kill -9 $$");
    expect("killed", &receipt, &["signaled / signaled"])?;
    check(!room.world.root.join("gone").exists(), || format!("{receipt}"))?;
    expect("undo", &room.undo("tc_killed"), &["ok"])?;
    same("undone", &seen(&room.world.root), &before)?;
    let discarding = room.another(json!({ "on_failure": "discard" }));
    let sh = |script: &str| json!({ "argv": ["sh", "-c", script] });
    let mut late = sh("echo half > changed; sleep 60");
    late["timeout_ns"] = half["timeout_ns"].clone();
    let late = room.exec_in(&discarding, late);
    expect("late", &late, &["timeout / timeout"])?;
    let killed = room.exec_in(&discarding, sh("rm gone; kill -9 $$"));
    expect("killed", &killed, &["signaled / signaled"])?;
    for receipt in [&late, &killed] {
        check(changed(receipt).is_empty() && warning_codes(receipt).contains(&"discarded"), || {
            format!("{receipt}")
        })?;
    }
    same("discarded", &seen(&room.world.root), &before)?;
    // A nonzero exit code is the command's result, not a failure of the daemon.
    expect("exit", &room.exec_in(&discarding, sh("echo kept > changed; exit 1")), &["ok"])?;
    check(room.world.read("changed") == b"kept\n", || "what an exit code left was discarded".into())?;
    room.finish()
}

pub(super) fn several_roots() -> Outcome {
    let world = World::new();
    furnish(&world);
    let other = world.parent.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("f"), "1\n").unwrap();
    let roots = json!([world.root, other, world.root.join("dir")]);
    let room =
        Room::of(world, json!({ "capability": { "fs_roots": roots }, "policy": { "preset": "permissive" } }));
    let before = (seen(&room.world.root), seen(&other));
    let receipt = room.call(
        "tc_roots",
        &format!("echo 2 > {0}/f; echo 2 > {0}/g; echo x > dir/in; rm kept; cd {0} && pwd", other.display()),
    );
    expect("roots", &receipt, &["ok"])?;
    let absolute = other.join("g").display().to_string();
    for path in ["dir/in", "kept", absolute.as_str()] {
        check(changed(&receipt).iter().any(|listed| listed == path), || format!("{path}: {receipt}"))?;
    }
    check(std::fs::read(other.join("f")).unwrap() == b"2\n", || "not landed".into())?;
    let inside = room.call_with("tc_cwd", "echo here > h", json!({ "cwd": other }));
    expect("inside", &inside, &["ok"])?;
    expect("undo", &room.undo("tc_cwd"), &["ok"])?;
    expect("undo", &room.undo("tc_roots"), &["ok"])?;
    same("first", &seen(&room.world.root), &before.0)?;
    same("second", &seen(&other), &before.1)?;
    room.finish()
}

pub(super) fn changed_meanwhile() -> Outcome {
    let room = furnished(World::new(), json!({}));
    let beside = room.another(json!({}));
    let running = room.start(json!({ "argv": ["sh", "-c", "echo mine > changed; sleep 3; echo end"] }));
    aos_testkit::wait_for("the command runs", || !room.survivors().is_empty())?;
    let mut client = room.world.client();
    let write = json!({ "session_id": beside, "path": "changed", "content": { "inline_text": { "text": "theirs\n" } } });
    expect("beside", &client.effect("host.fs.write_file", write), &["ok"])?;
    room.world.write("kept", "outside\n");
    let receipt = running.join().map_err(|_| "it panicked")?;
    expect("over it", &receipt, &["ok"])?;
    check(warning_codes(&receipt) == ["concurrent_change"], || format!("{receipt}"))?;
    check(room.world.read("changed") == b"mine\n" && room.world.read("kept") == b"outside\n", || {
        format!("{receipt}")
    })?;
    let id = receipt["tool_call_id"].as_str().unwrap_or_default().to_owned();
    expect("undo", &room.undo(&id), &["ok"])?;
    check(room.world.read("changed") == b"theirs\n", || {
        "what was there at the end is what comes back".into()
    })?;
    room.finish()
}

pub(super) fn special_files() -> Outcome {
    let room = furnished(World::new(), json!({}));
    let receipt =
        room.call("tc_special", "mkfifo fifo; mkfifo dir/fifo; rm gone; mkfifo gone; echo x > changed");
    expect("special", &receipt, &["ok"])?;
    let warning = receipt["warnings"].to_string();
    check(warning.contains("special_files_not_kept") && warning.contains("dir/fifo"), || {
        format!("{receipt}")
    })?;
    for path in ["fifo", "dir/fifo", "gone"] {
        check(room.world.root.join(path).symlink_metadata().is_err(), || format!("{path} is there"))?;
    }
    expect("undo", &room.undo("tc_special"), &["ok"])?;
    check(room.world.read("gone") == b"gone\n", || "not undone".into())?;
    room.finish()
}

pub(super) fn never_more_than_is_true() -> Outcome {
    let script = "echo 1 > made; mkdir new; echo 2 > new/in; echo x > changed; rm gone";
    let none = furnished(World::new(), json!({}));
    let receipt = none.call_with("tc_none", script, json!({ "capture": "none" }));
    check(receipt["coverage"] == "none" && receipt.get("changed_paths").is_none(), || format!("{receipt}"))?;
    none.finish()?;
    let bare = furnished(World::new(), json!({ "isolation": "none" }));
    check(bare.call("tc_bare", script)["coverage"] == "none", || "without isolation".into())?;
    bare.finish()?;
    // Where other mounts are included, no overlay can cover all of the root.
    let scan = furnished(World::new(), json!({ "capability": { "cross_mounts": true } }));
    let receipt = scan.call("tc_scan", script);
    expect("scan", &receipt, &["ok"])?;
    check(receipt["coverage"] == "scan", || format!("{receipt}"))?;
    check(changed(&receipt) == ["changed", "gone", "made", "new", "new/in"], || format!("{receipt}"))?;
    check(receipt["not_undoable"] == json!(["changed", "gone"]), || format!("{receipt}"))?;
    let listed = scan.fs("list_snapshots", json!({}));
    check(listed["snapshots"][0]["coverage"] == "scan", || format!("{listed}"))?;
    expect("undo", &scan.undo("tc_scan"), &["ok"])?;
    check(!scan.world.root.join("new").exists() && !scan.world.root.join("made").exists(), || {
        "made paths".into()
    })?;
    check(scan.world.read("changed") == b"x\n", || "it cannot be brought back".into())?;
    scan.finish()?;
    // Our own state below the root is not captured.
    let world = World::new();
    furnish(&world);
    let extra = json!({ "capability": { "fs_roots": [".", ".."] }, "policy": { "preset": "permissive" } });
    let inside = Room::of(world, extra);
    let receipt =
        inside.call("tc_inside", "echo x > changed; rm -rf ../home; echo y > ../home/z; echo w > ../beside");
    check(["overlay", "scan"].contains(&receipt["coverage"].as_str().unwrap_or_default()), || {
        format!("{receipt}")
    })?;
    check(!receipt["changed_paths"].to_string().contains("home"), || format!("{receipt}"))?;
    expect("undo", &inside.undo("tc_inside"), &["ok"])?;
    inside.finish()
}

pub(super) fn closed_to_its_owner() -> Outcome {
    each_daemon(|open| {
        let room = open(json!({}));
        let before = seen(&room.world.root);
        let receipt = room.call("tc_closed", "mkdir -p shut/in; echo 1 > shut/in/f; chmod 400 shut/in/f; chmod 500 shut/in shut; echo x > none; chmod 000 none; chmod 500 dir");
        expect("closed", &receipt, &["ok"])?;
        let mode = |path: &str| room.world.root.join(path).metadata().map(|meta| meta.mode() & 0o7777).ok();
        for (path, wanted) in [("shut", 0o500), ("shut/in", 0o500), ("none", 0), ("dir", 0o500)] {
            check(mode(path) == Some(wanted), || format!("{path}: {:?}", mode(path)))?;
        }
        // Only root may remove something from a folder that is closed to its owner.
        let undone = room.undo("tc_closed");
        expect("undo", &undone, &["ok", "error / permission_denied"])?;
        if undone["status"] == "ok" {
            same("undone", &seen(&room.world.root), &before)?;
        }
        for path in ["dir", "shut", "shut/in"] {
            let _ =
                std::fs::set_permissions(room.world.root.join(path), std::fs::Permissions::from_mode(0o755));
        }
        room.finish()
    })
}
