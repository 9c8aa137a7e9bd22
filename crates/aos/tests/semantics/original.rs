//! What the original of seed 000 got wrong when it was tried, one named test each.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::world::{Start, World, text, tree, verdict};
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

/// Every refusal of these tests and of the rows beside them says a sentence; this asks for the shape of one.
#[test]
fn errors_carried_no_message() {
    let world = World::new();
    let receipt = ask(&world, json!({}), "fs.read_file", json!({ "path": "nope" }));
    let message = receipt["error_message"].as_str().unwrap_or_default();
    assert!(message.starts_with("nope: ") && message.contains("; "), "subject, cause and remedy: {message}");
    world.finish().unwrap();
}
