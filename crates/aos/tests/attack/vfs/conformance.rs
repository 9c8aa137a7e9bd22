//! One set of effects, three targets: what a local session answers, a virtual and a staged one answer too.

use std::path::Path;
use std::time::{Duration, SystemTime};

use aos_testkit::{Random, World, check, full_figure, text, tree};
use serde_json::{Value, json};

use super::Tree;
use crate::Outcome;

/// What stands there before the first effect, with one time for all.
const SAMPLE: &[(&str, &str)] = &[
    ("README.md", "# sample\n\nHello, caf\u{e9}.\n"),
    ("src/main.rs", "fn main() {\n    let x = 1;\n    println!(\"{x}\");\n}\n"),
    ("src/lib.rs", "pub fn add(a: u32, b: u32) -> u32 {\n    a + b\n}\n"),
    ("src/deep/er/mod.rs", "// deep\nlet x = 2;\n"),
    ("src-2/other.rs", "let x = 3;\n"),
    (".ignore", "ignored/\n*.log\n"),
    ("ignored/x.rs", "let x = 4;\n"),
    ("noise.log", "let x = 5;\n"),
    (".hidden/y.rs", "let x = 6;\n"),
    ("win.txt", "one\r\ntwo\r\n"),
    ("twice.txt", "same\nsame\n"),
    ("empty", ""),
];

fn lay_out(dir: &Path) {
    let time = SystemTime::now() - Duration::from_secs(3_600);
    for (path, content) in SAMPLE {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }
}

/// The three targets over three copies of the sample, with their folders.
fn targets(world: &World, extra: &Value) -> Vec<(&'static str, Tree)> {
    let dir = |name: &str| {
        let dir = world.root.join(name);
        std::fs::create_dir(&dir).unwrap();
        lay_out(&dir);
        dir
    };
    let (local, staged, mounted) = (dir("local"), dir("staged"), dir("mounted"));
    let mount = json!({ "host_path": mounted, "mount_path": "/" });
    vec![
        ("local", json!({ "local": { "workdir": local } })),
        ("vfs", json!({ "vfs": { "allowed_roots": [world.root], "mounts": [mount] } })),
        ("staged", json!({ "staged": { "workdir": staged } })),
    ]
    .into_iter()
    .map(|(name, target)| (name, Tree::open(world, target, extra.clone())))
    .collect()
}

/// A receipt without what is of the moment.
fn plain(mut receipt: Value, world: &World) -> Value {
    for name in ["seq", "turn_id", "snapshot_id", "redo_snapshot_id", "mtime_ns", "new_mtime_ns"] {
        receipt.as_object_mut().map(|fields| fields.remove(name));
    }
    // How large a folder is, only its file system knows.
    if receipt["kind"] == "dir" {
        receipt["size_bytes"] = json!(0);
    }
    for snapshot in receipt["snapshots"].as_array_mut().into_iter().flatten() {
        for name in ["snapshot_id", "turn_id", "captured_at_ns"] {
            snapshot.as_object_mut().map(|fields| fields.remove(name));
        }
    }
    for name in ["rolled_back_turns", "redone_turns"] {
        if let Some(turns) = receipt.get_mut(name) {
            *turns = json!(turns.as_array().map_or(0, Vec::len));
        }
    }
    let text = receipt.to_string();
    let text = ["local", "staged"]
        .iter()
        .fold(text, |text, name| text.replace(world.root.join(name).to_str().unwrap(), "$R"));
    serde_json::from_str(&text).expect("still JSON")
}

/// What is asked, in order. `patch` stands for the sections of one.
fn script() -> Vec<(&'static str, Value)> {
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
        // Inside a character, and up to the middle of one.
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

/// Calls are named by their place in the whole, so that undo can name them.
fn undo() -> Vec<(&'static str, Value)> {
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

pub fn the_same_receipts() -> Outcome {
    let world = World::new();
    let mut targets = targets(&world, &json!({}));
    let mut differences = Vec::new();
    for (number, (op, params)) in script().into_iter().enumerate() {
        // The one that undo names by hand.
        let named = params.to_string().contains("some/two");
        let call = if named { "call-undo".to_owned() } else { format!("call-{number}") };
        let mut receipts: Vec<(&str, Value)> = Vec::new();
        for (name, tree) in &mut targets {
            let receipt = plain(tree.call(&call, op, params.clone()), &world);
            receipts.push((name, receipt));
        }
        let local = receipts[0].1.clone();
        for (name, receipt) in &receipts[1..] {
            if *receipt != local {
                differences.push(format!("{call} {op} {params}\n  local  {local}\n  {name:6} {receipt}"));
            }
        }
    }
    check(differences.is_empty(), || format!("{} differ:\n{}", differences.len(), differences.join("\n")))?;
    // What was staged, committed, is what the local session made.
    let staged = &mut targets[2].1;
    staged.ok("host.staged.commit", json!({}))?;
    let (local, staged) = (tree(&world.root.join("local")), tree(&world.root.join("staged")));
    let content = |tree: &std::collections::BTreeMap<std::path::PathBuf, String>, name: &str| {
        let below = world.root.join(name);
        let strip = |path: &Path| path.strip_prefix(&below).unwrap_or(path).to_owned();
        tree.iter().map(|(path, look)| (strip(path), look.clone())).collect::<Vec<_>>()
    };
    let (local, staged) = (content(&local, "local"), content(&staged, "staged"));
    check(local.iter().map(|(path, _)| path).eq(staged.iter().map(|(path, _)| path)), || {
        format!("local has {local:?}\nstaged has {staged:?}")
    })?;
    world.finish()
}

pub fn the_same_limits_and_rules() -> Outcome {
    let world = World::new();
    let extra = json!({
        "capability": { "max_write_bytes": 50, "max_read_bytes": 10, "max_changed_files": 1, "max_edit_replacements": 1,
            "max_grep_results": 2, "max_glob_results": 3, "max_scan_files": 4, "max_inline_bytes": 20, "max_patch_bytes": 300 },
        "policy": { "rules": [
            { "name": "no-src", "ops": ["write", "edit", "patch", "remove"], "paths": ["src/**"], "decision": "deny", "reason": "kept" },
            { "name": "secret", "ops": ["read", "search"], "paths": ["src-2/**"], "decision": "deny" },
            { "name": "care", "ops": ["write"], "paths": ["*.txt"], "decision": "warn" },
            { "name": "blobs", "ops": ["read"], "paths": ["README.md"], "decision": "allow", "output": "blob_only" }] },
        "snapshot_bytes_max": 40,
    });
    let mut targets = targets(&world, &extra);
    let patch =
        |sections: &str| json!({ "patch": text(format!("*** Begin Patch\n{sections}*** End Patch\n")) });
    let script = vec![
        ("write_file", json!({ "path": "f.txt", "content": text("x".repeat(51)) })),
        ("write_file", json!({ "path": "f.txt", "content": text("x".repeat(50)) })),
        ("write_file", json!({ "path": "f.txt", "content": text("y") })),
        ("write_file", json!({ "path": "src/new.rs", "content": text("x") })),
        ("edit_file", json!({ "path": "src/lib.rs", "old_string": "a + b", "new_string": "x" })),
        ("remove", json!({ "path": "src", "recursive": true })),
        ("move", json!({ "from": "src", "to": "elsewhere" })),
        ("move", json!({ "from": "win.txt", "to": "src/win.txt" })),
        (
            "edit_file",
            json!({ "path": "twice.txt", "old_string": "same", "new_string": "x", "replace_all": true }),
        ),
        ("apply_patch", patch("*** Delete File: win.txt\n*** Delete File: empty\n")),
        ("apply_patch", patch(&format!("*** Add File: p\n+{}\n", "z".repeat(300)))),
        ("read_file", json!({ "path": "src/main.rs" })),
        ("read_file", json!({ "path": "src-2/other.rs" })),
        ("read_file", json!({ "path": "README.md" })),
        ("read_file", json!({ "path": "README.md", "output_mode": "require_inline" })),
        ("grep", json!({ "pattern": "." })),
        ("grep", json!({ "pattern": "let x", "include_ignored": true })),
        ("glob", json!({ "pattern": "**" })),
        ("list_dir", json!({ "path": "src-2" })),
    ];
    let mut differences = Vec::new();
    for (op, params) in script {
        let receipts: Vec<Value> =
            targets.iter_mut().map(|(_, tree)| plain(tree.call("c", op, params.clone()), &world)).collect();
        for other in &receipts[1..] {
            if *other != receipts[0] {
                differences.push(format!("{op} {params}\n  {}\n  {other}", receipts[0]));
            }
        }
    }
    check(differences.is_empty(), || differences.join("\n"))?;
    world.finish()
}

/// A random effect on a handful of names: they meet, and a path is a file now and a folder then.
fn random_effect(random: &mut Random) -> (&'static str, Value) {
    let path = |random: &mut Random| {
        let depth = 1 + random.below(3);
        (0..depth).map(|_| *random.pick(&["a", "b", "c-1"])).collect::<Vec<_>>().join("/")
    };
    let line = |random: &mut Random| format!("line {}\n", random.below(5));
    match random.below(12) {
        0..=2 => {
            let mode = random.pick(&["overwrite", "append", "create_new"]);
            let content = text(line(random));
            (
                "write_file",
                json!({ "path": path(random), "mode": mode, "content": content, "create_parents": true }),
            )
        }
        3 => (
            "edit_file",
            json!({ "path": path(random), "old_string": "line", "new_string": "row", "replace_all": true }),
        ),
        4 => {
            let (one, two, content) = (path(random), path(random), line(random));
            let sections = format!("*** Add File: {one}\n+{content}*** Delete File: {two}\n");
            ("apply_patch", json!({ "patch": text(format!("*** Begin Patch\n{sections}*** End Patch\n")) }))
        }
        5 => ("remove", json!({ "path": path(random), "recursive": random.below(2) == 0 })),
        6 | 7 => {
            ("move", json!({ "from": path(random), "to": path(random), "overwrite": random.below(2) == 0 }))
        }
        8 => ("make_dir", json!({ "path": path(random), "parents": random.below(2) == 0 })),
        9 => ("rollback", json!({ "turns": 1 + random.below(3) })),
        10 => ("redo", json!({ "turns": 1 + random.below(2) })),
        _ => ("stat", json!({ "path": path(random) })),
    }
}

/// Everything that a session sees, file by file.
fn seen(tree: &mut Tree) -> Result<(Vec<String>, Value, Value), String> {
    let globbed = tree.ok("glob", json!({ "pattern": "**" }))?;
    let mut paths: Vec<String> = globbed["paths"]["inline_text"]["text"]
        .as_str()
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect();
    paths.sort();
    let grepped = tree.ok("grep", json!({ "pattern": ".", "max_results": 10_000 }))?;
    let listed = tree.ok("list_dir", json!({}))?;
    Ok((paths, grepped["matches"].clone(), listed["entries"].clone()))
}

/// Random histories: the same answers and the same tree after each effect, whatever the target; and what was staged,
/// committed at some moment and rolled back over, is what the local session did.
pub fn random_histories() -> Outcome {
    let world = World::new();
    for history in 0..full_figure(200, 12) {
        let mut random = Random::for_case();
        let seed = random.seed;
        let dir = |name: &str| {
            let dir = world.root.join(format!("{history}-{name}"));
            std::fs::create_dir(&dir).unwrap();
            std::fs::create_dir(dir.join("b")).unwrap();
            for (path, content) in [("a", "line 1\nline 2\n"), ("b/a", "line 3\n"), ("b/c-1", "line 4\n")] {
                std::fs::write(dir.join(path), content).unwrap();
            }
            dir
        };
        let (local, staged, mounted) = (dir("local"), dir("staged"), dir("mounted"));
        let mount = json!({ "host_path": mounted, "mount_path": "/" });
        let targets = [
            json!({ "local": { "workdir": local } }),
            json!({ "vfs": { "allowed_roots": [world.root], "mounts": [mount] } }),
            json!({ "staged": { "workdir": staged } }),
        ];
        let mut trees = targets.map(|target| Tree::open(&world, target, json!({})));
        let mut told = Vec::new();
        for step in 0..40 {
            let (op, params) = random_effect(&mut random);
            let call = format!("call-{step}");
            told.push(format!("{call} {op} {params}"));
            let trail = || format!("seed {seed}, history {history}:\n{}", told.join("\n"));
            let receipts = trees.each_mut().map(|tree| plain(tree.call(&call, op, params.clone()), &world));
            let undo = matches!(op, "rollback" | "redo");
            let sight = trees.each_mut().map(seen);
            for target in [1, 2] {
                let same = if undo {
                    receipts[target]["status"] == receipts[0]["status"]
                } else {
                    receipts[target] == receipts[0]
                };
                check(same, || format!("{}\n{} and {}", trail(), receipts[0], receipts[target]))?;
                check(sight[target] == sight[0], || {
                    format!("{}\ntarget {target}: {:?} and {:?}", trail(), sight[0], sight[target])
                })?;
            }
        }
        let committed = trees[2].ok("host.staged.commit", json!({}));
        committed.map_err(|why| format!("seed {seed}, history {history}: {why}\n{}", told.join("\n")))?;
        let bare = |dir: &Path| {
            let below = |path: &Path| path.strip_prefix(dir).unwrap_or(path).to_owned();
            tree(dir).into_keys().map(|path| (std::fs::read(&path).ok(), below(&path))).collect::<Vec<_>>()
        };
        check(bare(&local) == bare(&staged), || format!("history {history}: the commit differs"))?;
        for session in &trees {
            let close = json!({ "session_id": session.session, "signal": "kill" });
            world.client().effect("host.session.signal", close);
        }
    }
    world.finish()
}
