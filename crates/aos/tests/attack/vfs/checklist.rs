//! The testing checklist of seed 002, line by line. Line 5, the prompt, is tested where the prompt is made.

use aos_testkit::{World, check, expect, text};
use serde_json::{Value, json};

use super::Tree;
use crate::Outcome;

/// "Unit tests for path normalization and validation, including rejection of absolute paths, `..`, and non-ASCII
/// segments." Absolute-style paths are served: `/` is the root.
pub fn line_1_paths() -> Outcome {
    super::listed::invalid_names()
}

/// "Reducer tests covering create/overwrite/append flows, version increments, and timestamp updates."
pub fn line_2_writes_versions_times() -> Outcome {
    super::listed::versions_and_times()?;
    let world = World::new();
    let mut tree = Tree::vfs(&world);
    tree.write("f", "a b\n")?;
    tree.ok("edit_file", json!({ "path": "f", "old_string": "a", "new_string": "A" }))?;
    let patch = "*** Begin Patch\n*** Update File: f\n@@\n-A b\n+A B\n*** End Patch\n";
    tree.ok("apply_patch", json!({ "patch": text(patch) }))?;
    tree.ok("move", json!({ "from": "f", "to": "g" }))?;
    let file = &tree.files(None)?[0];
    check(file["version"] == 3 && file["path"] == "g", || format!("{file}"))?;
    // A refused write does not make a version.
    let exists = json!({ "path": "g", "mode": "create", "content": text("x") });
    expect("create", &tree.fs("write_file", exists), &["conflict / file_exists"])?;
    check(tree.files(None)?[0]["version"] == 3, || "a refused write counted".into())?;
    world.finish()
}

/// "Host mount tests validating allow-list enforcement, glob inclusion/exclusion, `max_bytes` capping, duplicate path
/// handling, and deterministic merging when mounts overlap."
pub fn line_3_mounts() -> Outcome {
    let world = World::new();
    for (path, content) in [
        ("docs/a.md", "a"),
        ("docs/sub/b.md", "b"),
        ("docs/c.txt", "c"),
        ("more/a.md", "A"),
        ("more/sub", "file"),
    ] {
        world.write(path, content);
    }
    let open = |mounts: Value, roots: Value| open_mounts(&world, mounts, roots);
    let tree = |receipt: &Value| mounted_files(&world, receipt);
    let root = json!([world.root]);
    // The allow-list.
    for (mounts, roots) in [
        (json!([{ "host_path": "docs" }]), json!([])),
        (json!([{ "host_path": world.outside }]), root.clone()),
        (json!([{ "host_path": "../outside" }]), root.clone()),
        (json!([{ "host_path": "docs/../../outside" }]), root.clone()),
        (json!([{ "host_path": "missing" }]), root.clone()),
        (json!([{ "host_path": " " }]), root.clone()),
        (json!([{ "host_path": "docs" }]), json!([world.root.join("missing")])),
    ] {
        expect(&format!("{mounts} in {roots}"), &open(mounts.clone(), roots), &["error / invalid_mount"])?;
    }
    // The globs: like the original's, a star matches slashes.
    let globbed = open(
        json!([{ "host_path": "docs", "include_glob": ["*.md"], "exclude_glob": ["sub/*"] }]),
        root.clone(),
    );
    check(tree(&globbed)? == pairs(&[("docs/a.md", "a")]), || "the globs".into())?;
    let included = open(json!([{ "host_path": "docs", "include_glob": "*.md" }]), root.clone());
    check(tree(&included)? == pairs(&[("docs/a.md", "a"), ("docs/sub/b.md", "b")]), || {
        "the include glob".into()
    })?;
    // Each mount has its own budget.
    let capped = open(
        json!([{ "host_path": "docs", "max_bytes": 3 }, { "host_path": "more", "max_bytes": 5 }]),
        root.clone(),
    );
    tree(&capped)?;
    expect(
        "over",
        &open(json!([{ "host_path": "docs", "max_bytes": 2 }]), root.clone()),
        &["error / invalid_mount"],
    )?;
    // Overlaps, in order: a later mount overwrites, folders merge, a path is never both a file and a folder.
    let over =
        json!([{ "host_path": "docs", "mount_path": "m" }, { "host_path": "more", "mount_path": "/m/" }]);
    let merged = pairs(&[("m/a.md", "A"), ("m/c.txt", "c"), ("m/sub", "file")]);
    for _ in 0..3 {
        check(tree(&open(over.clone(), root.clone()))? == merged, || "the merge".into())?;
    }
    let back =
        json!([{ "host_path": "more", "mount_path": "m" }, { "host_path": "docs", "mount_path": "m" }]);
    let merged = pairs(&[("m/a.md", "a"), ("m/c.txt", "c"), ("m/sub/b.md", "b")]);
    check(tree(&open(back, root.clone()))? == merged, || "the merge the other way".into())?;
    // One file; and an absolute host path.
    let single = open(
        json!([{ "host_path": world.root.join("docs/a.md") }, { "host_path": "docs/c.txt", "mount_path": "x" }]),
        root,
    );
    check(tree(&single)? == pairs(&[("docs/a.md", "a"), ("x/c.txt", "c")]), || "single files".into())?;
    world.finish()
}

fn open_mounts(world: &World, mounts: Value, roots: Value) -> Value {
    let target = json!({ "target": { "vfs": { "mounts": mounts, "allowed_roots": roots } } });
    world.client().effect("host.session.open", target)
}

/// Paths and contents of all files in the session of this receipt.
fn mounted_files(world: &World, receipt: &Value) -> Result<Vec<(String, String)>, String> {
    expect("open", receipt, &["ready"])?;
    let session = receipt["session_id"].as_str().unwrap().to_owned();
    let files = Tree { client: world.client(), session }.files(None)?;
    let word = |file: &Value, name: &str| file[name].as_str().unwrap_or_default().to_owned();
    Ok(files.iter().map(|file| (word(file, "path"), word(file, "content"))).collect())
}

fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
    wanted.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned())).collect()
}

/// "Tests ensuring directory deletion removes all nested files while leaving unrelated paths untouched."
pub fn line_4_removal() -> Outcome {
    let world = World::new();
    let mut tree = Tree::vfs(&world);
    for path in ["a/b/c", "a/b/d/e", "a/f", "ab/g", "h"] {
        tree.write(path, path)?;
    }
    let receipt = tree.ok("remove", json!({ "path": "a/b", "recursive": true }))?;
    check(receipt["removed"] == 2, || format!("{receipt}"))?;
    check(tree.names()? == ["a/f", "ab/g", "h"], || "other paths".into())?;
    let receipt = tree.fs("remove", json!({ "path": "a" }));
    expect("not empty", &receipt, &["error / directory_not_empty"])?;
    expect("gone", &tree.fs("remove", json!({ "path": "a/b" })), &["not_found / path_not_found"])?;
    world.finish()
}

/// "End-to-end scenario: start from the empty VFS (optionally with configured host mounts), list directories,
/// read/write files, and confirm session snapshots update with each tool call."
pub fn line_6_end_to_end() -> Outcome {
    let world = World::new();
    let receipt = Tree::vfs(&world).ok("host.vfs.latest", json!({}))?;
    check(receipt["tree_version"] == 0 && receipt["files"] == json!([]), || format!("{receipt}"))?;
    world.write("docs/guide.md", "# guide\n");
    let target = json!({ "vfs": { "allowed_roots": [world.root], "mounts": [{ "host_path": "docs" }] } });
    let mut tree = Tree::open(&world, target, json!({}));
    let mut version = tree.ok("host.vfs.latest", json!({}))?["tree_version"].as_u64().unwrap();
    let listing = tree.ok("list_dir", json!({ "path": "/" }))?;
    check(listing["entries"]["inline_text"]["text"] == "docs/", || format!("{listing}"))?;
    check(tree.read("docs/guide.md") == "# guide\n", || "the mount".into())?;
    let edit = json!({ "path": "docs/guide.md", "old_string": "guide", "new_string": "Guide" });
    let acts = [
        ("write_file", json!({ "path": "notes/todo.txt", "content": text("one\n") })),
        ("edit_file", edit),
        ("write_file", json!({ "path": "notes/todo.txt", "mode": "append", "content": text("two\n") })),
        ("remove", json!({ "path": "notes", "recursive": true })),
    ];
    for (op, params) in acts {
        tree.ok(op, params)?;
        let now = tree.ok("host.vfs.latest", json!({}))?["tree_version"].as_u64().unwrap();
        check(now == version + 1, || format!("{op}: {version} then {now}"))?;
        version = now;
    }
    check(tree.names()? == ["docs/guide.md"], || "the end".into())?;
    check(world.read("docs/guide.md") == b"# guide\n", || "the host changed".into())?;
    // Tool events in the journal carry path, mode and the size of the result.
    let appended = world.journal().into_iter().find(|entry| entry["params"]["mode"] == "append");
    let appended = appended.ok_or("no such entry")?;
    let told = (&appended["params"]["path"], &appended["receipt"]["written_bytes"]);
    check(told == (&json!("notes/todo.txt"), &json!(4)), || format!("{appended}"))?;
    world.finish()
}
