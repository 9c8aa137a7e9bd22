//! The listed cases of virtual trees, and further cases of the same kind.

use aos_testkit::{Fixture, Tracer, World, check, expect, full_figure, text};
use serde_json::json;

use super::Tree;
use crate::Outcome;

pub fn depth_and_length() -> Outcome {
    let world = World::new();
    let mut tree = Tree::vfs(&world);
    let deep = |names: usize| vec!["d"; names].join("/");
    let long = |letters: usize| "x".repeat(letters);
    tree.write(&deep(16), "ok")?;
    tree.write(&long(80), "ok")?;
    for bad in [deep(17), long(81), format!("a/{}", long(81)), long(300)] {
        let write = json!({ "path": bad, "content": text("x"), "create_parents": true });
        expect(&bad, &tree.fs("write_file", write), &["error / invalid_path"])?;
    }
    // Moving a folder must not bring its content too deep.
    tree.ok("make_dir", json!({ "path": "top" }))?;
    let receipt = tree.fs("move", json!({ "from": "d", "to": "top/d" }));
    expect("moving too deep", &receipt, &["error / invalid_path"])?;
    check(tree.names()? == [deep(16), long(80)], || "something else was made".into())?;
    world.finish()
}

pub fn invalid_names() -> Outcome {
    let world = World::new();
    let mut tree = Tree::vfs(&world);
    tree.write("a/b", "one")?;
    for bad in ["..", ".", "", "a\0b", "caf\u{e9}", "a/../b", "./a", "a/.", "/..", "\\xff", "a\\x00b"] {
        for op in ["read_file", "stat", "exists", "list_dir", "remove", "make_dir", "grep", "glob"] {
            let receipt = tree.fs(op, json!({ "path": bad, "pattern": "x" }));
            // Only a search has a pattern.
            let plain = tree.fs(op, json!({ "path": bad }));
            let receipt = if receipt["error_code"] == "invalid_params" { plain } else { receipt };
            expect(&format!("{op} {bad:?}"), &receipt, &["error / invalid_path"])?;
        }
        let write = json!({ "path": bad, "content": text("x"), "create_parents": true });
        expect(&format!("write {bad:?}"), &tree.fs("write_file", write), &["error / invalid_path"])?;
        for (from, to) in [("a/b", bad), (bad, "c")] {
            let receipt = tree.fs("move", json!({ "from": from, "to": to }));
            expect(&format!("move {from:?} {to:?}"), &receipt, &["error / invalid_path"])?;
        }
    }
    check(tree.names()? == ["a/b"], || "the state changed".into())?;
    check(tree.read("a//b") == "one" && tree.read("/a/b/") == "one", || "a//b is not a/b".into())?;
    tree.write("a\\b", "two")?;
    check(tree.names()? == ["a/b", "a\\b"], || "a backslash was taken for a separator".into())?;
    check(tree.read("a/b") == "one" && tree.read("a\\b") == "two", || "the two are mixed up".into())?;
    world.finish()
}

pub fn a_prefix_is_a_folder() -> Outcome {
    let world = World::new();
    let mut tree = Tree::vfs(&world);
    for path in ["src/a", "src2/b", "srcfile", "src-1/c"] {
        tree.write(path, path)?;
    }
    let receipt = tree.ok("remove", json!({ "path": "src", "recursive": true }))?;
    check(receipt["removed"] == 1, || format!("{receipt}"))?;
    check(tree.names()? == ["src-1/c", "src2/b", "srcfile"], || "others went too".into())?;
    world.finish()
}

pub fn the_source_is_never_written() -> Outcome {
    let world = World::new();
    for file in 0..20 {
        world.write(&format!("docs/f{file}.md"), format!("line {file}\n"));
    }
    let target = json!({ "vfs": { "allowed_roots": [world.root], "mounts": [{ "host_path": "docs" }] } });
    let trace = world.parent.join("trace");
    let calls = "trace=open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,link,linkat,symlinkat,truncate,ftruncate,fchmod,fchmodat,utimensat,copy_file_range,ioctl";
    let tracer = Tracer::attach(world.daemon_pid(), &["-y", "-o", trace.to_str().unwrap(), "-e", calls])?;
    let before = aos_testkit::tree(&world.root);
    let mut tree = Tree::open(&world, target, json!({}));
    for round in 0..full_figure(1_000, 300) {
        let path = format!("docs/f{}.md", round % 20);
        match round % 4 {
            0 => tree.write(&path, &format!("written {round}\n")).map(drop)?,
            1 => {
                let edit = json!({ "path": path, "old_string": "line", "new_string": "row" });
                expect(
                    "edit",
                    &tree.fs("edit_file", edit),
                    &["ok", "not_found / edit_target_not_found", "not_found / path_not_found"],
                )?;
            }
            2 => {
                let receipt = tree.fs("remove", json!({ "path": path }));
                expect("rm", &receipt, &["ok", "not_found / path_not_found"])?;
            }
            _ => {
                let receipt = tree.fs("grep", json!({ "pattern": "written" }));
                expect("grep", &receipt, &["ok"])?;
            }
        }
    }
    tracer.detach();
    let source = world.root.to_str().unwrap();
    let traced = std::fs::read_to_string(&trace).map_err(|why| why.to_string())?;
    check(traced.contains(source), || "the trace saw nothing of the mount".into())?;
    // strace prints a call that another thread interrupts on two lines: the first has the arguments.
    let writes = |line: &&str| {
        let opens = line.contains("open") && !line.contains("opened");
        let to_write = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| line.contains(flag));
        line.contains(source) && (to_write || !opens)
    };
    let wrote: Vec<&str> = traced.lines().filter(writes).collect();
    check(wrote.is_empty(), || format!("{} calls that write, {}", wrote.len(), wrote[0]))?;
    check(aos_testkit::tree(&world.root) == before, || "the source changed".into())?;
    world.finish()
}

pub fn versions_and_times() -> Outcome {
    let world = World::new();
    let mut tree = Tree::vfs(&world);
    let write = |mode: &str, content: &str| json!({ "path": "f", "mode": mode, "content": text(content) });
    let mut seen = Vec::new();
    let look = |tree: &mut Tree| -> Result<serde_json::Value, String> {
        // Times have three decimals: two calls must not get the same time.
        std::thread::sleep(std::time::Duration::from_millis(3));
        Ok(tree.files(None)?.first().cloned().unwrap_or_default())
    };
    tree.ok("write_file", write("create", "one\n"))?;
    seen.push(look(&mut tree)?);
    tree.ok("write_file", write("overwrite", "two\n"))?;
    seen.push(look(&mut tree)?);
    tree.ok("write_file", write("append", "three\n"))?;
    seen.push(look(&mut tree)?);
    tree.ok("remove", json!({ "path": "f" }))?;
    seen.push(look(&mut tree)?);
    tree.ok("write_file", write("create_new", "four\n"))?;
    seen.push(look(&mut tree)?);
    let versions: Vec<_> = seen.iter().map(|file| file["version"].as_u64()).collect();
    check(versions == [Some(1), Some(2), Some(3), None, Some(1)], || format!("{versions:?}"))?;
    check(seen[2]["content"] == "two\nthree\n" && seen[2]["size_bytes"] == 10, || format!("{}", seen[2]))?;
    check(seen[0]["created_at"] == seen[2]["created_at"], || "created_at moved".into())?;
    check(seen[0]["created_at"] == seen[0]["updated_at"], || "a new file was updated".into())?;
    check(seen[4]["created_at"].as_str() > seen[2]["updated_at"].as_str(), || "created_at came back".into())?;
    for pair in [(0, 1), (1, 2)] {
        let updated = |index: usize| seen[index]["updated_at"].as_str().unwrap_or_default().to_owned();
        check(updated(pair.0) < updated(pair.1), || format!("updated_at {pair:?}"))?;
    }
    for (version, file) in (1..).zip(&seen) {
        let old = tree.files(Some(version))?;
        check(old.first().cloned().unwrap_or_default() == *file, || format!("tree {version} is {old:?}"))?;
    }
    check(tree.files(Some(0))?.is_empty(), || "the first tree is not empty".into())?;
    let receipt = tree.effect("host.vfs.latest", json!({ "tree_version": 99 }));
    expect("a version that never was", &receipt, &["not_found / path_not_found"])?;
    // The time of a file is the time of its call.
    let stat = tree.ok("stat", json!({ "path": "f" }))?;
    let entry = world.journal().into_iter().rfind(|entry| entry["kind"] == "host.fs.write_file");
    let entry = entry.ok_or("no entry of the last write")?;
    check(stat["mtime_ns"] == entry["at_ns"], || format!("{} and {}", stat["mtime_ns"], entry["at_ns"]))?;
    world.finish()
}

pub fn a_thousand_versions() -> Outcome {
    let world = World::new();
    let mut tree = Tree::vfs(&world);
    // Ten megabytes, in as many files as needed.
    let body = |seed: usize| format!("{seed:08}\n{}", "0123456789abcde\n".repeat(2_930));
    let files = 213;
    for file in 0..files {
        tree.write(&format!("d{}/f{file}", file % 10), &body(file))?;
    }
    let before = tree.ok("host.vfs.latest", json!({}))?["tree_version"].as_u64().unwrap_or(0);
    let rounds = full_figure(1_000, 300);
    for round in 0..rounds {
        let file = round % files;
        let old = format!("{file:08}");
        // One byte: the first digit becomes a letter, and back.
        let new = format!("x{}", &old[1..]);
        let (old, new) = if (round / files).is_multiple_of(2) { (old, new) } else { (new, old) };
        let path = format!("d{}/f{file}", file % 10);
        tree.ok("edit_file", json!({ "path": path, "old_string": old, "new_string": new }))?;
    }
    let peak = world.rss_peak();
    check(peak < 200 << 20, || format!("{} MB", peak >> 20))?;
    for version in [before, before + 7, before + rounds as u64 / 2] {
        let old = tree.files(Some(version))?;
        check(old.len() == files, || format!("{} files in tree {version}", old.len()))?;
        let edited = (version - before) as usize;
        for (file, is_new) in [(0, edited > 0), (edited.saturating_sub(1) % files, edited > 0)] {
            let path = format!("d{}/f{file}", file % 10);
            let found = old.iter().find(|found| found["path"] == path.as_str()).ok_or("a file is missing")?;
            let letter = found["content"].as_str().is_some_and(|content| content.starts_with('x'));
            check(letter == is_new || edited > files, || {
                format!("tree {version}: {path} is of another time")
            })?;
        }
    }
    world.finish()
}

pub fn no_commands() -> Outcome {
    let world = World::new();
    for mut tree in [Tree::vfs(&world), Tree::staged(&world)] {
        let receipt = tree.effect("host.exec", json!({ "argv": ["touch", "made"] }));
        expect("exec", &receipt, &["error / unsupported_target"])?;
    }
    check(!world.root.join("made").exists(), || "a command ran".into())?;
    let mut fixture = Fixture::of(World::new(), json!({}));
    for kind in ["host.vfs.latest", "host.staged.diff", "host.staged.commit", "host.staged.discard"] {
        let receipt = fixture.client.effect(kind, json!({ "session_id": fixture.session }));
        expect(kind, &receipt, &["error / unsupported_target"])?;
    }
    let mut virtual_tree = Tree::vfs(&fixture.world);
    for kind in ["host.staged.diff", "host.staged.commit", "host.staged.discard"] {
        expect(kind, &virtual_tree.effect(kind, json!({})), &["error / unsupported_target"])?;
    }
    fixture.finish()?;
    world.finish()
}

pub fn text_of_a_bounded_length() -> Outcome {
    let world = World::new();
    let mut tree = Tree::vfs(&world);
    let long = "\u{e9}".repeat(48_000);
    tree.write("f", &long)?;
    let over = format!("{long}x");
    let write = |content: serde_json::Value| json!({ "path": "g", "content": content });
    expect("too long", &tree.fs("write_file", write(text(&over))), &["error / content_too_long"])?;
    let bytes = json!({ "inline_bytes": { "bytes": "/w==" } });
    expect("no text", &tree.fs("write_file", write(bytes)), &["error / invalid_utf8"])?;
    let edit = json!({ "path": "f", "old_string": "\u{e9}", "new_string": over, "replace_all": true });
    expect("edit", &tree.fs("edit_file", edit), &["error / content_too_long"])?;
    let patch = format!("*** Begin Patch\n*** Add File: g\n+{over}\n*** End Patch\n");
    let receipt = tree.fs("apply_patch", json!({ "patch": text(patch) }));
    expect("patch", &receipt, &["error / content_too_long"])?;
    // Appending still works: the limit is per write.
    tree.ok("write_file", json!({ "path": "f", "mode": "append", "content": text("tail") }))?;
    check(tree.names()? == ["f"], || "something was written".into())?;
    world.finish()
}

pub fn never_both() -> Outcome {
    let world = World::new();
    let mut tree = Tree::vfs(&world);
    tree.write("a", "file")?;
    let below = json!({ "path": "a/b", "content": text("x"), "create_parents": true });
    expect("below a file", &tree.fs("write_file", below), &["error / parent_not_found"])?;
    tree.write("d/e", "file")?;
    let onto = json!({ "path": "d", "content": text("x") });
    expect("onto a folder", &tree.fs("write_file", onto), &["error / is_directory"])?;
    expect("a folder", &tree.fs("make_dir", json!({ "path": "a" })), &["conflict / file_exists"])?;
    let patch = "*** Begin Patch\n*** Add File: a/x\n+1\n*** End Patch\n";
    let receipt = tree.fs("apply_patch", json!({ "patch": text(patch) }));
    check(receipt["status"] != "ok", || format!("{receipt}"))?;
    check(tree.names()? == ["a", "d/e"], || "a path is both".into())?;
    world.finish()
}

pub fn roots_of_a_virtual_tree() -> Outcome {
    let world = World::new();
    let capability = json!({ "capability": { "fs_roots": ["work", "/notes"] } });
    let mut tree = Tree::open(&world, json!({ "vfs": {} }), capability);
    tree.write("work/a", "1")?;
    tree.write("/notes/b", "2")?;
    for path in ["c", "workshop/d", "/", "notes2"] {
        let write = json!({ "path": path, "content": text("x"), "create_parents": true });
        expect(path, &tree.fs("write_file", write), &["forbidden / path_outside_roots"])?;
        expect(path, &tree.fs("stat", json!({ "path": path })), &["forbidden / path_outside_roots"])?;
    }
    // A virtual tree does not contain the host's files of such names.
    let mut plain = Tree::vfs(&world);
    for path in [
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/1/status",
        world.outside.join("secret").to_str().unwrap(),
    ] {
        expect(path, &plain.fs("read_file", json!({ "path": path })), &["not_found / path_not_found"])?;
        plain.write(path, "mine")?;
        check(plain.read(path) == "mine", || format!("{path} is not the tree's"))?;
    }
    world.finish()
}

pub fn a_tree_is_its_sessions_own() -> Outcome {
    let world = World::new();
    let (mut one, mut other) = (Tree::vfs(&world), Tree::vfs(&world));
    one.write("f", "one")?;
    check(other.names()?.is_empty(), || "a tree is seen by another session".into())?;
    other.write("f", "other")?;
    check(one.read("f") == "one" && other.read("f") == "other", || "the trees are mixed up".into())?;
    // A session cannot name another session's blob.
    let receipt = one.ok("read_file", json!({ "path": "f", "with_hash": true }))?;
    let write = json!({ "path": "g", "content": { "blob_ref": { "blob_ref": receipt["hash"] } } });
    expect("a foreign blob", &other.fs("write_file", write), &["error / blob_not_found"])?;
    world.finish()
}

/// A tree knows paths, not objects: a change after a move counts as a later change there.
pub fn a_move_that_was_built_on() -> Outcome {
    let world = World::new();
    let mut tree = Tree::vfs(&world);
    tree.write("d/x", "one\n")?;
    tree.write("d/y", "two\n")?;
    expect("move", &tree.call("move", "move", json!({ "from": "d", "to": "e" })), &["ok"])?;
    let edit = json!({ "path": "e/x", "old_string": "one", "new_string": "ONE" });
    expect("edit", &tree.call("edit", "edit_file", edit), &["ok"])?;
    let receipt = tree.fs("restore", json!({ "scope_id": "move" }));
    expect("restore", &receipt, &["conflict / changed_since"])?;
    check(receipt["conflicts"] == json!([{ "path": "e/x", "changed_by": "edit" }]), || format!("{receipt}"))?;
    check(tree.names()? == ["e/x", "e/y"], || "something was touched".into())?;
    for scope in ["edit", "move"] {
        tree.ok("restore", json!({ "scope_id": scope }))?;
    }
    check(tree.names()? == ["d/x", "d/y"] && tree.read("d/x") == "one\n", || "not taken back".into())?;
    world.finish()
}

/// The policy decision about a path of a virtual tree does not depend on the host's links.
pub fn said_and_done() -> Outcome {
    let world = World::new();
    world.link(&world.outside, "out");
    let mut tree = Tree::open(&world, json!({ "vfs": {} }), json!({ "policy": { "preset": "strict" } }));
    let path = world.root.join("out/secret");
    for path in ["a/b", "/c", "/lib/x", path.to_str().unwrap()] {
        let asked = json!({ "session_id": tree.session, "path": path });
        let said = tree.client.rpc("policy.evaluate", asked)["result"].clone();
        check(said["disposition"] == "allow" && said["has_risks"] == false, || format!("{path}: {said}"))?;
        let written = tree.write(path, "x")?;
        check(written.get("warnings").is_none(), || format!("{written}"))?;
        let (code, out, err) = world.aos(&["policy", "explain", &written["seq"].to_string()]);
        check(code == 0 && out.contains("Host access allowed"), || format!("{out}{err}"))?;
    }
    world.finish()
}
