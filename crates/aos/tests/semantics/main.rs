//! Every status and every error code of the file effects, each produced on purpose through the socket.
//!
//! SEMANTICS.md names these tests row by row, and the tidy test compares the two.
#![allow(
    clippy::disallowed_methods,
    reason = "a test prepares and inspects the disk behind the product's back"
)]

mod original;
mod people;
mod undo_elsewhere;

use std::os::unix::fs::PermissionsExt as _;

use aos_testkit::{Start, World, text, uncaptured, verdict};
use serde_json::{Value, json};

/// One effect in a new session with `extra` (capability, policy, …).
fn ask(world: &World, extra: Value, effect: &str, params: Value) -> Value {
    let session = world.open(extra);
    ask_in(world, &session, effect, params)
}

fn ask_in(world: &World, session: &str, effect: &str, mut params: Value) -> Value {
    params["session_id"] = json!(session);
    world.client().effect(&format!("host.{effect}"), params)
}

/// One test per row: the name, the expected verdict, and the request that produces it. The world holds `f`
/// ("one\ntwo\n") and the folder `d` with `d/inner`.
macro_rules! rows {
    ($($name:ident => $expected:literal, $meet:expr;)*) => { $(
        #[test]
        fn $name() {
            let world = prepared(Start::default());
            let meet: fn(&World) -> Value = $meet;
            let receipt = meet(&world);
            assert_eq!(verdict(&receipt), $expected, "{receipt}");
            assert!(receipt["seq"].is_u64(), "every receipt carries its seq: {receipt}");
            if receipt.get("error_code").is_some() {
                assert!(receipt["error_message"].as_str().is_some_and(|message| message.len() > 10), "an error says a sentence: {receipt}");
            }
            world.finish().unwrap();
        }
    )* };
}

fn prepared(start: Start) -> World {
    let world = World::with(start);
    world.write("f", "one\ntwo\n");
    world.write("d/inner", "inner\n");
    world
}

rows! {
    // statuses
    status_ok => "ok", |w| ask(w, json!({}), "fs.read_file", json!({ "path": "f" }));
    status_ready => "ready", |w| w.open_receipt(json!({}));
    status_signaled => "signaled", |w| ask(w, json!({}), "session.signal", json!({ "signal": "int" }));
    status_already_exited => "already_exited", |w| {
        let session = w.open(json!({}));
        ask_in(w, &session, "session.signal", json!({ "signal": "term" }));
        ask_in(w, &session, "session.signal", json!({ "signal": "kill" }))
    };

    // the request and the session
    invalid_params => "error / invalid_params", |w| ask(w, json!({}), "fs.read_file", json!({ "path": "f", "pth": 1 }));
    invalid_params_unknown_kind => "error / invalid_params", |w| ask(w, json!({}), "fs.frobnicate", json!({}));
    session_not_found => "error / session_not_found", |w| ask_in(w, "hs_0", "fs.read_file", json!({ "path": "f" }));
    session_not_found_by_signal => "not_found / session_not_found", |w| ask_in(w, "hs_0", "session.signal", json!({ "signal": "term" }));
    session_closed => "error / session_closed", |w| {
        let session = w.open(json!({}));
        ask_in(w, &session, "session.signal", json!({ "signal": "kill" }));
        ask_in(w, &session, "fs.read_file", json!({ "path": "f" }))
    };
    session_expired => "error / session_expired", |w| ask(w, json!({ "session_ttl_ns": 0 }), "fs.read_file", json!({ "path": "f" }));
    invalid_workdir => "error / invalid_workdir", |w| w.open_receipt(json!({ "target": { "local": { "workdir": w.root.join("nope") } } }));
    invalid_workdir_relative => "error / invalid_workdir", |w| w.open_receipt(json!({ "target": { "local": { "workdir": "ws" } } }));
    unsupported_target => "error / unsupported_target", |w| ask(w, json!({ "target": { "vfs": {} } }), "exec", json!({ "argv": ["true"] }));
    invalid_capability => "error / invalid_capability", |w| w.open_receipt(json!({ "capability": { "max_read_bites": 1 } }));
    invalid_policy => "error / invalid_policy", |w| w.open_receipt(json!({ "policy": { "preset": "lax" } }));
    invalid_mount => "error / invalid_mount", |w| {
        let mounts = json!([{ "host_path": "/nope", "mode": "ro" }]);
        w.open_receipt(json!({ "target": { "local": { "workdir": w.root, "mounts": mounts } } }))
    };
    isolation_unavailable => "error / isolation_unavailable", |w| {
        let target = json!({ "local": { "workdir": w.root, "network_mode": "none" } });
        w.open_receipt(json!({ "target": target, "isolation": "none" }))
    };

    // the boundary
    path_outside_roots => "forbidden / path_outside_roots", |w| ask(w, json!({}), "fs.read_file", json!({ "path": "../outside/secret" }));
    symlink_not_allowed => "forbidden / symlink_not_allowed", |w| {
        w.link("../outside/secret", "l");
        ask(w, json!({}), "fs.read_file", json!({ "path": "l" }))
    };
    symlink_denied_by_capability => "forbidden / symlink_not_allowed", |w| {
        w.link("f", "l");
        ask(w, json!({ "capability": { "follow_symlinks": "deny" } }), "fs.read_file", json!({ "path": "l" }))
    };
    op_not_allowed => "forbidden / op_not_allowed", |w| ask(w, json!({ "capability": { "allowed_fs_ops": ["read"] } }), "fs.make_dir", json!({ "path": "n" }));
    policy_denied => "forbidden / policy_denied", |w| {
        let rule = json!({ "name": "no", "ops": ["read"], "paths": ["f"], "decision": "deny" });
        ask(w, json!({ "policy": { "rules": [rule] } }), "fs.read_file", json!({ "path": "f" }))
    };
    protected_path => "forbidden / protected_path", |w| ask(w, json!({}), "fs.write_file", json!({ "path": ".mcp.json", "content": text("{}") }));
    limit_exceeded => "forbidden / limit_exceeded", |w| {
        ask(w, json!({ "capability": { "max_write_bytes": 1 } }), "fs.write_file", json!({ "path": "f", "content": text("ab") }))
    };

    // paths and what is there
    invalid_path => "error / invalid_path", |w| ask(w, json!({}), "fs.stat", json!({ "path": "" }));
    path_not_found => "not_found / path_not_found", |w| ask(w, json!({}), "fs.read_file", json!({ "path": "nope" }));
    stat_says_that_nothing_exists => "not_found / path_not_found", |w| {
        let receipt = ask(w, json!({}), "fs.stat", json!({ "path": "nope" }));
        assert_eq!(receipt["exists"], false);
        receipt
    };
    is_directory_for_reads => "is_directory / is_directory", |w| ask(w, json!({}), "fs.read_file", json!({ "path": "d" }));
    is_directory_for_others => "error / is_directory", |w| ask(w, json!({}), "fs.write_file", json!({ "path": "d", "content": text("x") }));
    not_directory => "error / not_directory", |w| ask(w, json!({}), "fs.list_dir", json!({ "path": "f" }));
    not_regular_file => "error / not_regular_file", |w| {
        assert!(std::process::Command::new("mkfifo").arg(w.root.join("pipe")).status().unwrap().success());
        ask(w, json!({}), "fs.read_file", json!({ "path": "pipe" }))
    };
    parent_not_found => "error / parent_not_found", |w| ask(w, json!({}), "fs.write_file", json!({ "path": "a/b", "content": text("x") }));
    parent_is_a_file => "error / parent_not_found", |w| ask(w, json!({}), "fs.write_file", json!({ "path": "f/b", "content": text("x") }));
    directory_not_empty => "error / directory_not_empty", |w| ask(w, json!({}), "fs.remove", json!({ "path": "d" }));

    // content
    invalid_utf8_read => "error / invalid_utf8", |w| {
        w.write("b", b"\xff\xfe");
        ask(w, json!({}), "fs.read_file", json!({ "path": "b" }))
    };
    invalid_utf8_edit => "error / invalid_utf8", |w| {
        w.write("b", b"\xffold");
        ask(w, json!({}), "fs.edit_file", json!({ "path": "b", "old_string": "old", "new_string": "new" }))
    };
    inline_required_too_large => "error / inline_required_too_large", |w| {
        let capability = json!({ "max_inline_bytes": 3 });
        ask(w, json!({ "capability": capability }), "fs.read_file", json!({ "path": "f", "output_mode": "require_inline" }))
    };
    blob_not_found => "error / blob_not_found", |w| {
        let content = json!({ "blob_ref": { "blob_ref": format!("sha256:{}", "0".repeat(64)) } });
        ask(w, json!({}), "fs.write_file", json!({ "path": "f", "content": content }))
    };
    file_too_large => "error / file_too_large", |w| {
        std::fs::File::create(w.root.join("big")).unwrap().set_len((64 << 20) + 1).unwrap();
        ask(w, json!({}), "fs.edit_file", json!({ "path": "big", "old_string": "a", "new_string": "b" }))
    };

    // commands
    exec_ok => "ok", |w| {
        let receipt = exec(w, json!({}), json!({ "argv": ["sh", "-c", "echo out; echo err >&2; exit 3"] }));
        assert_eq!(receipt["exit_code"], 3);
        assert_eq!((&receipt["stdout"], &receipt["stderr"]), (&text("out\n"), &text("err\n")));
        assert_eq!(receipt["coverage"], "overlay");
        assert_eq!(receipt["changed_paths"], json!([]));
        receipt
    };
    exec_lands => "ok", |w| {
        let receipt = exec(w, json!({}), json!({ "argv": ["sh", "-c", "echo new > f; mkdir e; : > e/x"] }));
        assert_eq!(receipt["changed_paths"], json!(["e", "e/x", "f"]));
        assert_eq!((w.read("f"), &receipt["coverage"]), (b"new\n".to_vec(), &json!("overlay")));
        receipt
    };
    exec_uncaptured => "ok", |w| {
        let receipt = exec(w, uncaptured(json!({})), json!({ "argv": ["true"], "capture": "none" }));
        assert!(receipt["coverage"] == "none" && receipt.get("changed_paths").is_none(), "{receipt}");
        receipt
    };
    exec_uncaptured_not_allowed => "forbidden / exec_not_allowed", |w| {
        exec(w, json!({}), json!({ "argv": ["true"], "capture": "none" }))
    };
    exec_commit_denied => "forbidden / policy_denied", |w| {
        let rules = json!([{ "name": "no", "ops": ["write"], "paths": ["e/**"], "decision": "deny" }]);
        let argv = ["sh", "-c", "echo new > f; mkdir e; : > e/x; echo told"];
        let receipt = exec(w, json!({ "policy": { "rules": rules } }), json!({ "argv": argv }));
        assert_eq!((&receipt["stdout"], &receipt["exit_code"]), (&text("told\n"), &json!(0)));
        assert!(w.read("f") != b"new\n" && !w.root.join("e").exists());
        receipt
    };
    exec_commit_protected => "forbidden / protected_path", |w| {
        exec(w, json!({}), json!({ "argv": ["sh", "-c", "echo {} > .mcp.json"] }))
    };
    exec_commit_limit => "forbidden / limit_exceeded", |w| {
        let capability = json!({ "max_changed_files": 1 });
        exec(w, json!({ "capability": capability }), json!({ "argv": ["sh", "-c", ": > a; : > b"] }))
    };
    exec_dry_run => "ok", |w| {
        let receipt = exec(w, json!({}), json!({ "argv": ["sh", "-c", "echo new > g"], "dry_run": true }));
        assert_eq!(receipt["diff"], "--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+new\n");
        assert!(!w.root.join("g").exists());
        receipt
    };
    exec_dry_run_without_overlay => "error / unsupported", |w| {
        exec(w, json!({ "isolation": "none" }), json!({ "argv": ["true"], "dry_run": true }))
    };
    exec_timeout => "timeout / timeout", |w| {
        let receipt = exec(w, json!({}), json!({ "argv": ["sleep", "60"], "timeout_ns": 200_000_000 }));
        assert!(receipt["signal"] == "SIGTERM" && receipt.get("exit_code").is_none(), "{receipt}");
        receipt
    };
    exec_signaled => "signaled / signaled", |w| {
        let receipt = exec(w, json!({}), json!({ "argv": ["sh", "-c", "kill -SEGV $$"] }));
        assert_eq!(receipt["signal"], "SIGSEGV");
        receipt
    };
    exec_not_allowed => "forbidden / exec_not_allowed", |w| {
        exec(w, json!({ "capability": { "exec": { "allowed": false } } }), json!({ "argv": ["true"] }))
    };
    program_not_allowed => "forbidden / program_not_allowed", |w| {
        let capability = json!({ "exec": { "programs": ["true"] } });
        assert_eq!(exec(w, json!({ "capability": capability }), json!({ "argv": ["true"] }))["exit_code"], 0);
        exec(w, json!({ "capability": capability }), json!({ "argv": ["sh", "-c", "true"] }))
    };
    exec_policy_denied => "forbidden / policy_denied", |w| {
        exec(w, json!({}), json!({ "argv": ["cat", w.outside.join("secret")] }))
    };
    argv_empty => "error / argv_empty", |w| exec(w, json!({}), json!({ "argv": [] }));
    cwd_not_found => "error / cwd_not_found", |w| exec(w, json!({}), json!({ "argv": ["true"], "cwd": "nope" }));
    cwd_is_a_file => "error / cwd_not_found", |w| exec(w, json!({}), json!({ "argv": ["true"], "cwd": "f" }));
    cwd_outside => "forbidden / path_outside_roots", |w| exec(w, json!({}), json!({ "argv": ["true"], "cwd": ".." }));
    stdin_ref_not_found => "error / stdin_ref_not_found", |w| {
        exec(w, json!({}), json!({ "argv": ["cat"], "stdin_ref": format!("sha256:{}", "0".repeat(64)) }))
    };
    spawn_failed => "error / spawn_failed", |w| {
        let receipt = exec(w, json!({}), json!({ "argv": ["no-such-program"] }));
        assert!(receipt.get("stdout").is_none(), "nothing was run: {receipt}");
        receipt
    };
    unsupported_background => "error / unsupported", |w| exec(w, json!({}), json!({ "argv": ["true"], "background": true }));
    exec_inline_too_large => "error / inline_required_too_large", |w| {
        let capability = json!({ "max_inline_bytes": 3 });
        let receipt = exec(w, json!({ "capability": capability }), json!({ "argv": ["echo", "long"], "output_mode": "require_inline" }));
        assert!(receipt["exit_code"] == 0 && receipt["stdout"]["blob"]["size_bytes"] == 5, "it ran, and its output is kept: {receipt}");
        receipt
    };

    // writing, editing, patching
    file_exists => "conflict / file_exists", |w| ask(w, json!({}), "fs.write_file", json!({ "path": "f", "mode": "create", "content": text("x") }));
    file_exists_make_dir => "conflict / file_exists", |w| ask(w, json!({}), "fs.make_dir", json!({ "path": "d" }));
    file_exists_move => "conflict / file_exists", |w| ask(w, json!({}), "fs.move", json!({ "from": "f", "to": "d/inner" }));
    stale_base => "conflict / stale_base", |w| {
        let wrong = format!("sha256:{}", "0".repeat(64));
        ask(w, json!({}), "fs.edit_file", json!({ "path": "f", "old_string": "one", "new_string": "1", "expected_hash": wrong }))
    };
    invalid_input_empty_old_string => "error / invalid_input_empty_old_string", |w| {
        ask(w, json!({}), "fs.edit_file", json!({ "path": "f", "old_string": "", "new_string": "x" }))
    };
    edit_target_not_found => "not_found / edit_target_not_found", |w| {
        ask(w, json!({}), "fs.edit_file", json!({ "path": "f", "old_string": "three", "new_string": "x" }))
    };
    ambiguous_matches => "ambiguous / ambiguous_matches", |w| {
        ask(w, json!({}), "fs.edit_file", json!({ "path": "f", "old_string": "o", "new_string": "x" }))
    };
    invalid_patch_empty => "error / invalid_patch_empty", |w| ask(w, json!({}), "fs.apply_patch", json!({ "patch": text(" \n") }));
    unsupported_patch_format => "error / unsupported_patch_format", |w| {
        ask(w, json!({}), "fs.apply_patch", json!({ "patch": text("x"), "patch_format": "unified" }))
    };
    patch_parse_error => "parse_error / patch_parse_error", |w| ask(w, json!({}), "fs.apply_patch", json!({ "patch": text("hello") }));
    // undo
    snapshot_not_found => "not_found / snapshot_not_found", |w| ask(w, json!({}), "fs.restore", json!({ "scope_id": "tc1" }));
    changed_since => "conflict / changed_since", |w| {
        let session = w.open(json!({}));
        let written = ask_in(w, &session, "fs.write_file", json!({ "path": "f", "content": text("new\n") }));
        w.write("f", "somebody else's\n");
        let receipt = ask_in(w, &session, "fs.restore", json!({ "scope_id": written["tool_call_id"] }));
        assert_eq!(receipt["conflicts"], json!([{ "path": "f", "changed_by": "outside" }]));
        assert_eq!(w.read("f"), b"somebody else's\n");
        receipt
    };
    preimage_damaged => "error / preimage_damaged", |w| {
        let session = w.open(json!({}));
        let written = ask_in(w, &session, "fs.write_file", json!({ "path": "f", "content": text("new\n") }));
        let hash = aos_model::request::content_hash(b"one\ntwo\n");
        let body = w.home.join("state/blobs").join(&hash[7..9]).join(&hash[9..]);
        aos_testkit::wait_for("the body", || body.exists()).unwrap();
        std::fs::write(&body, "one\nTWO\n").unwrap();
        let receipt = ask_in(w, &session, "fs.restore", json!({ "scope_id": written["tool_call_id"] }));
        assert_eq!(w.read("f"), b"new\n");
        std::fs::write(&body, "one\ntwo\n").unwrap();
        receipt
    };
    nothing_to_roll_back => "nothing_to_roll_back / nothing_to_roll_back", |w| ask(w, json!({}), "fs.rollback", json!({}));
    nothing_to_redo => "nothing_to_redo / nothing_to_redo", |w| {
        let session = w.open(json!({}));
        ask_in(w, &session, "fs.make_dir", json!({ "path": "n" }));
        ask_in(w, &session, "fs.redo", json!({}))
    };
    patch_context_not_found => "reject / patch_context_not_found", |w| {
        let patch = "*** Begin Patch\n*** Update File: f\n@@\n-nope\n+x\n*** End Patch";
        ask(w, json!({}), "fs.apply_patch", json!({ "patch": text(patch) }))
    };

    // searching
    invalid_regex => "invalid_regex / invalid_regex", |w| ask(w, json!({}), "fs.grep", json!({ "pattern": "(a" }));
    invalid_glob_filter => "error / invalid_glob_filter", |w| {
        ask(w, json!({}), "fs.grep", json!({ "pattern": "a", "glob_filter": "{a" }))
    };
    invalid_pattern => "invalid_pattern / invalid_pattern", |w| ask(w, json!({}), "fs.glob", json!({ "pattern": "../*" }));
}

fn exec(world: &World, extra: Value, params: Value) -> Value {
    ask(world, extra, "exec", params)
}

#[test]
fn interrupted() {
    let mut world = prepared(Start::default());
    let session = world.open(uncaptured(json!({})));
    let mut client = world.client();
    let asking = session.clone();
    let running = std::thread::spawn(move || {
        let argv = json!(["sh", "-c", "touch began; sleep 60; touch ended"]);
        let params = json!({ "session_id": asking, "argv": argv, "capture": "none" });
        client
            .send_effect(1, &json!({ "kind": "host.exec", "params": params, "tool_call_id": "tc" }))
            .unwrap();
        client.line()
    });
    aos_testkit::wait_for("the command to begin", || world.root.join("began").exists()).unwrap();
    world.kill9();
    assert_eq!(running.join().unwrap(), None, "nobody is left to answer");
    world.restart(Start::default());
    let entries = world.entries_of(&session, "tc");
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(verdict(&entries[0]["receipt"]), "error / interrupted");
    assert!(!world.root.join("ended").exists());
    world.finish().unwrap();
}

#[test]
fn too_many_sessions() {
    // A session pins its roots with descriptors; a daemon that may open few files serves few sessions.
    let wrapper = ["prlimit", "--nofile=520:520"].map(str::to_owned).to_vec();
    let world = prepared(Start { wrapper, ..Start::default() });
    let verdicts: Vec<String> = (0..5).map(|_| verdict(&world.open_receipt(json!({})))).collect();
    assert_eq!(verdicts.first().map(String::as_str), Some("ready"));
    assert_eq!(verdicts.last().map(String::as_str), Some("error / too_many_sessions"));
    let open = world.client().effect("host.session.list", json!({}));
    let session = open["sessions"][0]["session_id"].as_str().unwrap().to_owned();
    assert_eq!(
        ask_in(&world, &session, "fs.read_file", json!({ "path": "f" }))["status"],
        "ok",
        "the others are served on"
    );
    world.finish().unwrap();
}

#[test]
fn permission_denied() {
    let uid = aos_testkit::is_root().then_some(12345);
    let world = prepared(Start { uid, ..Start::default() });
    std::fs::set_permissions(world.root.join("d"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let receipt = ask(&world, json!({}), "fs.write_file", json!({ "path": "d/new", "content": text("x") }));
    std::fs::set_permissions(world.root.join("d"), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(verdict(&receipt), "error / permission_denied", "{receipt}");
    world.finish().unwrap();
}
