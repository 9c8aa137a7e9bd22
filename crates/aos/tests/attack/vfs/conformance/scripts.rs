//! The requests that every target must answer in the same way.

use aos_testkit::text;
use serde_json::{Value, json};

/// The requests, in order. `patch` means the sections of one patch.
pub(super) fn script() -> Vec<(&'static str, Value)> {
    let mut script = reads();
    script.extend(searches());
    script.extend(writes());
    script.extend(searches());
    script.extend(edits_and_patches());
    script.extend(moves_and_removals());
    script.extend(searches());
    script.extend(undo());
    script.extend(reads());
    script
}

fn reads() -> Vec<(&'static str, Value)> {
    let read = |rest: Value| {
        let mut params = json!({ "path": "README.md" });
        for (key, value) in rest.as_object().cloned().unwrap_or_default() {
            params[key] = value;
        }
        ("read_file", params)
    };
    vec![
        read(json!({})),
        read(json!({ "with_hash": true })),
        read(json!({ "offset_bytes": 2, "max_bytes": 5 })),
        read(json!({ "offset_bytes": 1_000 })),
        // From inside a character, and up to the middle of one.
        read(json!({ "offset_bytes": 21 })),
        read(json!({ "max_bytes": 21 })),
        read(json!({ "encoding": "bytes" })),
        read(json!({ "path": "src" })),
        read(json!({ "path": "missing" })),
        read(json!({ "path": "README.md/below" })),
        read(json!({ "path": "empty" })),
        ("stat", json!({ "path": "src/main.rs" })),
        ("stat", json!({ "path": "nope/nope" })),
        ("exists", json!({ "path": "src" })),
        ("exists", json!({ "path": "nope" })),
        ("list_dir", json!({})),
        ("list_dir", json!({ "path": "src" })),
        ("list_dir", json!({ "max_results": 2 })),
        ("list_dir", json!({ "path": "README.md" })),
        ("list_dir", json!({ "path": "nope" })),
    ]
}

fn searches() -> Vec<(&'static str, Value)> {
    let grep = |rest: Value| {
        let mut params = json!({ "pattern": "let x" });
        for (key, value) in rest.as_object().cloned().unwrap_or_default() {
            params[key] = value;
        }
        ("grep", params)
    };
    vec![
        grep(json!({})),
        grep(json!({ "path": "src" })),
        grep(json!({ "path": "src/deep/er" })),
        grep(json!({ "path": "ignored/x.rs" })),
        grep(json!({ "include_ignored": true })),
        grep(json!({ "context_lines": 1 })),
        grep(json!({ "files_only": true })),
        grep(json!({ "glob_filter": "*.log" })),
        grep(json!({ "glob_filter": "!src/**" })),
        grep(json!({ "max_results": 1 })),
        grep(json!({ "pattern": "LET", "case_insensitive": true })),
        grep(json!({ "pattern": "u32)", "fixed_strings": true })),
        grep(json!({ "pattern": "u32)" })),
        grep(json!({ "pattern": "no such thing" })),
        grep(json!({ "path": "nope" })),
        ("glob", json!({ "pattern": "**/*.rs" })),
        ("glob", json!({ "pattern": "*" })),
        ("glob", json!({ "pattern": "src/*" })),
        ("glob", json!({ "pattern": "**", "include_ignored": true })),
        ("glob", json!({ "pattern": ".hidden/*" })),
        ("glob", json!({ "pattern": "**/*.rs", "path": "src", "max_results": 1 })),
        ("glob", json!({ "pattern": "../*" })),
        ("glob", json!({ "pattern": "[" })),
        ("glob", json!({ "pattern": "*", "path": "README.md" })),
    ]
}

fn writes() -> Vec<(&'static str, Value)> {
    let write = |path: &str, content: &str, rest: Value| {
        let mut params = json!({ "path": path, "content": text(content) });
        for (key, value) in rest.as_object().cloned().unwrap_or_default() {
            params[key] = value;
        }
        ("write_file", params)
    };
    vec![
        write("new.txt", "new\n", json!({ "with_diff": true })),
        write("new.txt", "newer\n", json!({ "with_diff": true })),
        write("new.txt", "again\n", json!({ "mode": "create_new" })),
        write("new.txt", "more\n", json!({ "mode": "append", "with_diff": true })),
        write("README.md", "x", json!({ "expected_hash": "sha256:00" })),
        write("nope.txt", "x", json!({ "expected_hash": "sha256:00" })),
        write("made/on/the/way.rs", "let x = 7;\n", json!({ "create_parents": true })),
        write("src", "x", json!({})),
        write("run.sh", "#!/bin/sh\n", json!({ "executable": true })),
        ("stat", json!({ "path": "run.sh" })),
        write("run.sh", "#!/bin/sh\ntrue\n", json!({})),
        ("stat", json!({ "path": "run.sh" })),
        write("big.txt", &"0123456789\n".repeat(4_000), json!({})),
        ("read_file", json!({ "path": "big.txt" })),
        ("read_file", json!({ "path": "big.txt", "output_mode": "require_inline" })),
        write("README.md/x", "x", json!({ "create_parents": true })),
        write(".git/hooks/pre-commit", "x", json!({ "create_parents": true })),
        write(".mcp.json", "{}", json!({})),
        ("make_dir", json!({ "path": "dir" })),
        ("make_dir", json!({ "path": "dir" })),
        ("make_dir", json!({ "path": "a/b/c" })),
        ("make_dir", json!({ "path": "a/b/c", "parents": true })),
        ("make_dir", json!({ "path": "a/b", "parents": true })),
        ("make_dir", json!({ "path": "README.md" })),
        ("list_dir", json!({ "path": "a" })),
    ]
}

fn edits_and_patches() -> Vec<(&'static str, Value)> {
    let edit = |path: &str, old: &str, new: &str| {
        ("edit_file", json!({ "path": path, "old_string": old, "new_string": new, "with_diff": true }))
    };
    let patch = |sections: &str| {
        let whole = format!("*** Begin Patch\n{sections}*** End Patch\n");
        ("apply_patch", json!({ "patch": text(whole), "with_diff": true }))
    };
    let (_, mut dry) = patch("*** Delete File: win.txt\n");
    dry["dry_run"] = json!(true);
    vec![
        edit("src/main.rs", "let x = 1;", "let y = 1;"),
        edit("src/main.rs", "let  y  =  1;", "let z = 1;"),
        edit("src/main.rs", "nothing like it", "z"),
        edit("twice.txt", "same", "other"),
        edit("win.txt", "one\ntwo", "uno\ndos"),
        edit("missing", "a", "b"),
        edit("src", "a", "b"),
        edit("README.md", "", "b"),
        (
            "edit_file",
            json!({ "path": "twice.txt", "old_string": "same", "new_string": "other", "replace_all": true }),
        ),
        (
            "edit_file",
            json!({ "path": "src/lib.rs", "edits": [
            { "old_string": "a + b", "new_string": "a - b" }, { "old_string": "gone", "new_string": "x" }] }),
        ),
        patch(
            "*** Update File: src/lib.rs\n@@\n-    a + b\n+    a * b\n*** Add File: patched/new.rs\n+let x = 8;\n*** Delete File: noise.log\n",
        ),
        patch("*** Update File: src/lib.rs\n*** Move to: lib/moved.rs\n@@\n-    a * b\n+    a / b\n"),
        patch("*** Update File: twice.txt\n@@\n-not there\n+x\n"),
        patch("*** Delete File: missing\n"),
        patch("*** Nonsense\n"),
        ("apply_patch", dry),
        ("read_file", json!({ "path": "win.txt" })),
        ("read_file", json!({ "path": "lib/moved.rs" })),
    ]
}

fn moves_and_removals() -> Vec<(&'static str, Value)> {
    let moved = |from: &str, to: &str, overwrite: bool| {
        ("move", json!({ "from": from, "to": to, "overwrite": overwrite }))
    };
    vec![
        moved("new.txt", "newest.txt", false),
        moved("newest.txt", "twice.txt", false),
        moved("newest.txt", "twice.txt", true),
        moved("twice.txt", "twice.txt", false),
        moved("src", "lib/src", false),
        moved("lib", "lib/lib", false),
        moved("missing", "x", false),
        moved("win.txt", "no/parent", false),
        moved("win.txt", "lib", true),
        ("list_dir", json!({ "path": "lib" })),
        ("list_dir", json!({ "path": "lib/src" })),
        ("remove", json!({ "path": "lib" })),
        ("remove", json!({ "path": "lib/src/deep", "recursive": true })),
        ("remove", json!({ "path": "empty" })),
        ("remove", json!({ "path": "empty" })),
        ("remove", json!({ "path": "dir" })),
        ("remove", json!({ "path": "made", "recursive": true })),
        ("list_dir", json!({})),
    ]
}

/// Calls are named by their position in the whole script, so that undo can name them.
pub(super) fn undo() -> Vec<(&'static str, Value)> {
    vec![
        ("snapshot", json!({ "scope_id": "by-hand", "paths": ["lib", "README.md", "never"] })),
        ("write_file", json!({ "path": "README.md", "content": text("gone\n") })),
        ("write_file", json!({ "path": "never", "content": text("was\n") })),
        ("remove", json!({ "path": "lib/src/main.rs" })),
        ("restore", json!({ "scope_id": "by-hand", "dry_run": true })),
        ("restore", json!({ "scope_id": "by-hand" })),
        ("read_file", json!({ "path": "README.md" })),
        ("exists", json!({ "path": "never" })),
        ("restore", json!({ "scope_id": "nobody" })),
        (
            "apply_patch",
            json!({ "patch": text("*** Begin Patch\n*** Add File: some/one\n+1\n*** Add File: some/two\n+2\n*** Delete File: win.txt\n*** End Patch\n") }),
        ),
        ("restore", json!({ "scope_id": "call-undo", "paths": ["some//one"], "dry_run": true })),
        ("restore", json!({ "scope_id": "call-undo", "paths": ["some/one", "win.txt"] })),
        ("list_dir", json!({ "path": "some" })),
        ("restore", json!({ "scope_id": "call-undo" })),
        ("exists", json!({ "path": "some" })),
        ("rollback", json!({ "turns": 1 })),
        ("rollback", json!({ "turns": 3 })),
        ("glob", json!({ "pattern": "**/*.rs" })),
        ("redo", json!({ "turns": 2 })),
        ("redo", json!({ "turns": 5 })),
        ("redo", json!({})),
        ("rollback", json!({ "turns": 4 })),
        ("write_file", json!({ "path": "fresh", "content": text("x\n") })),
        ("redo", json!({})),
        ("list_dir", json!({ "path": "lib" })),
    ]
}
