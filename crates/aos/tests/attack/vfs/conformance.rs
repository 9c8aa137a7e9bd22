//! One set of effects, three targets: a virtual and a staged session answer what a local one answers.

mod scripts;

use std::path::Path;
use std::time::{Duration, SystemTime};

use aos_testkit::{Random, World, check, full_figure, text, tree};
use serde_json::{Value, json};

use super::Tree;
use crate::Outcome;

/// The files before the first effect, all with the same time.
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

/// A receipt without the fields that differ from run to run.
fn plain(mut receipt: Value, world: &World) -> Value {
    for name in ["seq", "turn_id", "snapshot_id", "redo_snapshot_id", "mtime_ns", "new_mtime_ns"] {
        receipt.as_object_mut().map(|fields| fields.remove(name));
    }
    // The size of a folder depends on its file system.
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

pub fn the_same_receipts() -> Outcome {
    let world = World::new();
    let mut targets = targets(&world, &json!({}));
    let mut differences = Vec::new();
    for (number, (op, params)) in scripts::script().into_iter().enumerate() {
        // The call that undo names explicitly.
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
    // The committed staged tree equals what the local session made.
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

/// A random effect on a few names: they collide, and a path is sometimes a file and sometimes a folder.
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

/// Random histories with rollbacks: the same answers and the same tree after each effect, whatever the target. The
/// staged tree, committed at the end, equals the local one.
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
