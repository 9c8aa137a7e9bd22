//! What the originals got wrong in trials, one named test each.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use aos_testkit::{Start, World, text, timed, tree, verdict};
use serde_json::{Value, json};

use crate::{ask, ask_in, prepared};

fn patch(sections: &str) -> Value {
    json!({ "patch": text(format!("*** Begin Patch\n{sections}*** End Patch\n")) })
}

#[test]
fn a_capability_for_reading_let_writes_through() {
    let world = prepared(Start::default());
    let session = world.open(json!({ "capability": { "allowed_fs_ops": ["read"] } }));
    let before = tree(&world.root);
    for (effect, params) in [
        ("fs.write_file", json!({ "path": "f", "content": text("x") })),
        ("fs.edit_file", json!({ "path": "f", "old_string": "one", "new_string": "x" })),
        ("fs.apply_patch", patch("*** Delete File: f\n")),
        ("fs.remove", json!({ "path": "f" })),
        ("fs.move", json!({ "from": "f", "to": "g" })),
        ("fs.make_dir", json!({ "path": "n" })),
    ] {
        assert_eq!(
            verdict(&ask_in(&world, &session, effect, params)),
            "forbidden / op_not_allowed",
            "{effect}"
        );
    }
    assert_eq!(ask_in(&world, &session, "fs.read_file", json!({ "path": "f" }))["status"], "ok");
    assert_eq!(tree(&world.root), before);
    world.finish().unwrap();
}

#[test]
fn a_path_climbed_out_of_a_root_below_the_workdir() {
    let world = prepared(Start::default());
    world.write("src/a", "inside\n");
    let session = world.open(json!({ "capability": { "fs_roots": ["src/"] } }));
    assert_eq!(ask_in(&world, &session, "fs.read_file", json!({ "path": "src/a" }))["status"], "ok");
    for path in ["src/../../etc/passwd", "src/../f", "src/../src/a", "f", ".", "src-evil/a"] {
        let receipt = ask_in(&world, &session, "fs.read_file", json!({ "path": path }));
        assert_eq!(verdict(&receipt), "forbidden / path_outside_roots", "{path}");
    }
    world.finish().unwrap();
}

#[test]
fn the_paths_of_a_patch_were_never_checked() {
    let world = prepared(Start::default());
    let before = tree(&world.root);
    for sections in [
        "*** Add File: ../outside/p\n+x\n",
        "*** Add File: /tmp/aos-original\n+x\n",
        "*** Delete File: ../outside/secret\n",
        "*** Update File: f\n*** Move to: ../outside/f\n@@\n-one\n+1\n",
    ] {
        let receipt = ask(&world, json!({}), "fs.apply_patch", patch(sections));
        assert_eq!(verdict(&receipt), "forbidden / path_outside_roots", "{sections}");
    }
    assert_eq!(tree(&world.root), before);
    world.finish().unwrap();
}

#[test]
fn a_hunk_line_that_begins_with_a_wide_character_panicked() {
    let world = prepared(Start::default());
    world.write("wide", "é\nüber\n");
    let odd =
        ask(&world, json!({}), "fs.apply_patch", patch("*** Update File: wide\n@@\né\n-über\n+über alles\n"));
    assert_eq!(odd["status"], "parse_error", "{odd}");
    let good =
        ask(&world, json!({}), "fs.apply_patch", patch("*** Update File: wide\n@@\n é\n-über\n+über ☃\n"));
    assert_eq!(good["status"], "ok", "{good}");
    assert_eq!(world.read("wide"), "é\nüber ☃\n".as_bytes());
    world.finish().unwrap();
}

#[test]
fn a_patch_over_several_files_was_not_one() {
    let world = prepared(Start::default());
    let before = tree(&world.root);
    let sections =
        "*** Add File: new\n+x\n*** Update File: f\n@@\n-one\n+1\n*** Update File: d/inner\n@@\n-nope\n+x\n";
    let receipt = ask(&world, json!({}), "fs.apply_patch", patch(sections));
    assert_eq!(verdict(&receipt), "reject / patch_context_not_found");
    assert_eq!(tree(&world.root), before);
    world.finish().unwrap();
}

#[test]
fn hints_and_end_of_file_were_ignored() {
    let world = prepared(Start::default());
    world.write("hints", "fn a() {\n    x\n}\nfn b() {\n    x\n}\nend\nend\n");
    let sections = "*** Update File: hints\n@@ fn b() {\n-    x\n+    y\n@@\n-end\n+last\n*** End of File\n";
    let receipt = ask(&world, json!({}), "fs.apply_patch", patch(sections));
    assert_eq!(receipt["status"], "ok", "{receipt}");
    assert_eq!(world.read("hints"), b"fn a() {\n    x\n}\nfn b() {\n    y\n}\nend\nlast\n");
    world.finish().unwrap();
}

#[test]
fn an_executable_file_lost_its_mode() {
    let world = prepared(Start::default());
    let path = world.write("run.sh", "#!/bin/sh\necho old\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let session = world.open(json!({}));
    for (effect, params) in [
        ("fs.edit_file", json!({ "path": "run.sh", "old_string": "old", "new_string": "new" })),
        ("fs.apply_patch", patch("*** Update File: run.sh\n@@\n-echo new\n+echo newer\n")),
        ("fs.write_file", json!({ "path": "run.sh", "content": text("#!/bin/sh\n") })),
    ] {
        assert_eq!(ask_in(&world, &session, effect, params)["status"], "ok");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755, "{effect}");
    }
    world.finish().unwrap();
}

#[test]
fn an_edited_link_became_a_file() {
    let world = prepared(Start::default());
    world.link("f", "l");
    let session = world.open(json!({}));
    for (effect, params) in [
        ("fs.edit_file", json!({ "path": "l", "old_string": "one", "new_string": "1" })),
        ("fs.apply_patch", patch("*** Update File: l\n@@\n-two\n+2\n")),
    ] {
        assert_eq!(ask_in(&world, &session, effect, params)["status"], "ok", "{effect}");
        assert!(world.root.join("l").is_symlink(), "{effect}");
    }
    assert_eq!(world.read("f"), b"1\n2\n");
    world.finish().unwrap();
}

#[test]
fn writing_to_the_folder_itself_left_a_file_outside() {
    let world = prepared(Start::default());
    let (before, around) = (tree(&world.root), std::fs::read_dir(&world.parent).unwrap().count());
    for path in [".", "./", "d/..", "d"] {
        let receipt = ask(&world, json!({}), "fs.write_file", json!({ "path": path, "content": text("x") }));
        assert_eq!(verdict(&receipt), "error / is_directory", "{path}");
    }
    assert_eq!(tree(&world.root), before);
    assert_eq!(std::fs::read_dir(&world.parent).unwrap().count(), around);
    world.finish().unwrap();
}

/// Every refusal of these tests and of the rows beside them has a message; this test checks its form.
#[test]
fn errors_carried_no_message() {
    let world = World::new();
    let receipt = ask(&world, json!({}), "fs.read_file", json!({ "path": "nope" }));
    let message = receipt["error_message"].as_str().unwrap_or_default();
    assert!(message.starts_with("nope: ") && message.contains("; "), "subject, cause and remedy: {message}");
    world.finish().unwrap();
}

/// The command tools of the original of seed 000.
fn exec(world: &World, extra: Value, params: Value) -> Value {
    ask(world, extra, "exec", params)
}

fn printed(receipt: &Value) -> &str {
    receipt["stdout"]["inline_text"]["text"].as_str().unwrap_or_default()
}

#[test]
fn a_timeout_of_half_a_second_took_five() {
    let world = prepared(Start::default());
    for script in ["sleep 300", "trap '' TERM INT; sleep 300; sleep 300", "setsid sleep 300 & sleep 300"] {
        let params = json!({ "argv": ["sh", "-c", script], "timeout_ns": 500_000_000 });
        let receipt =
            timed(Duration::from_millis(2_500), script, || exec(&world, json!({}), params)).unwrap();
        assert_eq!(receipt["status"], "timeout", "{receipt}");
    }
    world.finish().unwrap();
}

#[test]
fn the_daemons_whole_environment_leaked() {
    let secret = ("MY_TOKEN".to_owned(), "leaked".to_owned());
    let world = prepared(Start { env: vec![secret], ..Start::default() });
    let receipt = exec(&world, json!({}), json!({ "argv": ["env"] }));
    assert_eq!(receipt["status"], "ok", "{receipt}");
    assert!(!receipt.to_string().contains("leaked"), "{receipt}");
    for line in printed(&receipt).lines() {
        let name = line.split('=').next().unwrap_or_default();
        assert!(["PATH", "HOME", "LANG", "TERM", "USER"].contains(&name), "{line}");
    }
    world.finish().unwrap();
}

#[test]
fn a_cwd_could_be_anywhere() {
    let world = prepared(Start::default());
    world.link("../outside", "l");
    for cwd in ["..", "/", "/etc", "../outside", "l", "d/../.."] {
        let receipt = exec(&world, json!({}), json!({ "argv": ["touch", "ran"], "cwd": cwd }));
        assert_eq!(receipt["status"], "forbidden", "{cwd}: {receipt}");
    }
    let receipt = exec(&world, json!({}), json!({ "argv": ["pwd", "-P"], "cwd": "d" }));
    assert_eq!(printed(&receipt).trim_end(), world.root.join("d").to_str().unwrap());
    world.finish().unwrap();
}

#[test]
fn a_signal_killed_nothing() {
    let world = prepared(Start::default());
    for (signal, is_open) in [("int", true), ("term", false), ("kill", false)] {
        let session = world.open(aos_testkit::uncaptured(json!({})));
        let mut client = world.client();
        let running = {
            // Many short sleeps: a shell that is interrupted just before it starts a child waits for that child first.
            let script =
                format!("touch {signal}; i=0; while [ $i -lt 6000 ]; do i=$((i+1)); sleep 0.1; done");
            let params = json!({ "session_id": session, "argv": ["sh", "-c", script], "capture": "none" });
            std::thread::spawn(move || client.effect("host.exec", params))
        };
        aos_testkit::wait_for("the command", || world.root.join(signal).exists()).unwrap();
        assert_eq!(
            ask_in(&world, &session, "session.signal", json!({ "signal": signal }))["status"],
            "signaled"
        );
        let receipt = running.join().unwrap();
        assert_eq!(receipt["status"], "signaled", "{signal}: {receipt}");
        let next = ask_in(&world, &session, "exec", json!({ "argv": ["true"] }));
        assert_eq!(verdict(&next), if is_open { "ok" } else { "error / session_closed" }, "{signal}");
    }
    world.finish().unwrap();
}

/// Paths that the heuristic of seed 004's original allowed under `strict`.
#[test]
fn strict_let_paths_in_disguise_through() {
    let world = prepared(Start::default());
    let session = world.open(json!({ "policy": { "preset": "strict" } }));
    for argv in [
        json!(["bash", "-c", "cat /etc/passwd"]),
        json!(["curl", "-d", "@/etc/passwd", "http://127.0.0.1/"]),
        json!(["cc", "-o../x", "f"]),
    ] {
        let question = json!({ "session_id": session, "argv": argv });
        let evaluation = world.client().rpc("policy.evaluate", question);
        assert_eq!(evaluation["result"]["disposition"], "deny", "{argv}: {evaluation}");
        let receipt = ask_in(&world, &session, "exec", json!({ "argv": argv }));
        assert_eq!(verdict(&receipt), "forbidden / policy_denied", "{argv}: {receipt}");
    }
    world.finish().unwrap();
}
