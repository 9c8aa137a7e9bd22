//! Patches: none leaves the roots, none is applied in part, and the receipt agrees with the tree.

mod crash;
mod limits;
mod one_file;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use aos_testkit::{Fixture, check, expect, new_seed, patch_params, text, tree, warning_codes};
use serde_json::json;

use crate::{Case, Need, Outcome, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("PATCH-01", additions_outside),
        plain("PATCH-02", moves_outside),
        plain("PATCH-05", through_links),
        plain("PATCH-06", one_misfit_and_nothing_moves),
        Case { id: "PATCH-07", needs: &[Need::Strace], run: crash::renames_that_fail },
        // Root, because only root can attach to a daemon that is not dumpable.
        Case { id: "PATCH-08", needs: &[Need::Strace, Need::Root], run: crash::killed_at_each_step },
        plain("PATCH-09", one_file::sections_about_one_file),
        plain("PATCH-10", one_file::deletions_of_what_is_no_file),
        plain("PATCH-11", limits::more_files_than_allowed),
        plain("PATCH-13", limits::patches_too_large),
        plain("PATCH-15", line_ends),
        plain("PATCH-16", onto_an_existing_file),
        plain("PATCH-17", odd_names),
        plain("PATCH-18", only_the_case),
        plain("PATCH-21", another_format),
        plain("PATCH-23", limits::signaled_or_left_alone),
        plain("OWN-PATCH-BOTH", a_file_and_a_folder_of_one_name),
    ]
}

/// Sends each patch, for real and as a dry run, and expects a refusal and an unchanged tree.
fn refused_whole(fixture: &mut Fixture, patches: &[String], allowed: &[&str]) -> Outcome {
    let before = tree(&fixture.world.root);
    for sections in patches {
        for dry_run in [true, false] {
            let mut params = patch_params(sections);
            params["dry_run"] = json!(dry_run);
            let receipt = fixture.fs("apply_patch", params);
            expect(&format!("dry_run {dry_run}: {sections}"), &receipt, allowed)?;
            check(tree(&fixture.world.root) == before, || format!("the tree changed: {sections}"))?;
        }
    }
    Ok(())
}

/// Such a patch used to be planned, and failed only when the second of the two was created: a dry run promised it, and
/// a kill in between was reported as a change that could not be rolled back.
fn a_file_and_a_folder_of_one_name() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("old", "OLD\n");
    let (file, below) = ("*** Add File: e\n+x\n", "*** Add File: e/f/g\n+x\n");
    let moved = "*** Update File: old\n*** Move to: e/f\n";
    let updated = "*** Update File: old\n@@\n-OLD\n+NEW\n*** Add File: old/x\n+x\n";
    let patches =
        [[file, below].concat(), [below, file].concat(), [moved, file].concat(), updated.to_owned()];
    refused_whole(&mut fixture, &patches, &["error / parent_not_found"])?;
    fixture.finish()
}

fn names_in(dir: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    names
}

fn additions_outside() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("sub/a.txt", "one\n");
    std::fs::create_dir(fixture.world.parent.join("ws-evil")).unwrap();
    let around = names_in(&fixture.world.parent);
    let elsewhere = std::env::temp_dir().join(format!("p_{:x}", new_seed()));
    let inside_home = fixture.world.home.join("state/p");
    let beside = fixture.world.parent.join("p");
    let absolute = |path: &Path| path.display().to_string();
    let paths = [
        absolute(&elsewhere),
        "../outside/p".into(),
        "sub/../../outside/p".into(),
        "../p".into(),
        "../ws/p".into(),
        "../ws-evil/p".into(),
        absolute(&beside),
        absolute(&inside_home),
        format!("{}/../p", absolute(&fixture.world.root)),
        "..".into(),
    ];
    let mut patches = Vec::new();
    for path in &paths {
        // Behind and before a valid section: that section must not be applied either.
        patches.push(format!("*** Add File: good\n+x\n*** Add File: {path}\n+x\n"));
        patches.push(format!("*** Add File: {path}\n+x\n*** Add File: good\n+x\n"));
        patches.push(format!("*** Delete File: {path}\n*** Delete File: sub/a.txt\n"));
        patches.push(format!(
            "*** Update File: sub/a.txt\n@@\n-one\n+two\n*** Update File: {path}\n@@\n-x\n+y\n"
        ));
    }
    patches.push("*** Update File: ../outside/secret\n@@\n+more\n".into());
    patches.push("*** Delete File: ../outside/secret\n".into());
    refused_whole(&mut fixture, &patches, &["forbidden / path_outside_roots"])?;
    check(!elsewhere.exists() && !inside_home.exists(), || "a file was made outside".into())?;
    check(names_in(&fixture.world.parent) == around, || "something was made beside the root".into())?;
    fixture.finish()
}

fn moves_outside() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("a.txt", "one\ntwo\n");
    fixture.world.write("sub/b.txt", "one\ntwo\n");
    let around = names_in(&fixture.world.parent);
    let beside = fixture.world.parent.join("moved").display().to_string();
    let home = fixture.world.home.join("moved").display().to_string();
    let mut patches = Vec::new();
    for to in ["../outside/a.txt", "../outside/secret", "sub/../../outside/a.txt", "../ws/a2", &beside, &home]
    {
        patches.push(format!("*** Update File: a.txt\n*** Move to: {to}\n@@\n-one\n+1\n"));
        patches.push(format!("*** Update File: a.txt\n*** Move to: {to}\n"));
        patches.push(format!(
            "*** Update File: sub/b.txt\n@@\n-one\n+1\n*** Update File: a.txt\n*** Move to: {to}\n"
        ));
    }
    // And from outside to inside: that would read a file that may not be read.
    patches.push("*** Update File: ../outside/secret\n*** Move to: stolen\n".into());
    refused_whole(&mut fixture, &patches, &["forbidden / path_outside_roots"])?;
    check(fixture.world.read("a.txt") == b"one\ntwo\n", || "a.txt changed".into())?;
    check(names_in(&fixture.world.parent) == around, || "something was made beside the root".into())?;
    fixture.finish()
}

fn through_links() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("a.txt", "one\n");
    fixture.world.link(&fixture.world.outside, "d");
    fixture.world.link("d", "e");
    fixture.world.link("../outside", "relative");
    fixture.world.link(fixture.world.outside.join("secret"), "s");
    fixture.world.link(fixture.world.outside.join("new"), "dangling");
    let mut patches = Vec::new();
    for path in ["d/x", "e/x", "relative/x", "d/new/x", "d/secret", "s", "dangling", "d/../outside/x"] {
        patches.push(format!("*** Add File: good\n+x\n*** Add File: {path}\n+x\n"));
        patches.push(format!("*** Update File: a.txt\n*** Move to: {path}\n"));
    }
    for path in ["d/secret", "e/secret", "relative/secret"] {
        patches.push(format!("*** Update File: {path}\n@@\n+more\n"));
        patches.push(format!("*** Delete File: {path}\n"));
        patches.push(format!("*** Update File: {path}\n*** Move to: stolen\n"));
    }
    patches.push("*** Update File: s\n@@\n+more\n".into());
    patches.push("*** Update File: s\n*** Move to: stolen\n".into());
    refused_whole(
        &mut fixture,
        &patches,
        &["forbidden / symlink_not_allowed", "forbidden / path_outside_roots"],
    )?;
    fixture.finish()
}

fn one_misfit_and_nothing_moves() -> Outcome {
    let mut fixture = Fixture::new();
    let files = ["one.txt", "two.txt", "three.txt"].map(|name| fixture.world.write(name, "alpha\nbeta\n"));
    let stamp = |path: &PathBuf| {
        let meta = path.metadata().unwrap();
        (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.ctime_nsec(), std::fs::read(path).unwrap())
    };
    let before: Vec<_> = files.iter().map(stamp).collect();
    let names = names_in(&fixture.world.root);
    for misfit in 0..3 {
        let section = |(index, name): (usize, &&str)| {
            let line = if index == misfit { "gamma" } else { "alpha" };
            format!("*** Update File: {name}\n@@\n-{line}\n+omega\n")
        };
        let updates: String = ["one.txt", "two.txt", "three.txt"].iter().enumerate().map(section).collect();
        for sections in [
            updates.clone(),
            format!("*** Add File: new/file\n+x\n{updates}"),
            format!("{updates}*** Delete File: one.txt\n"),
            format!(
                "*** Update File: one.txt\n*** Move to: moved.txt\n{}",
                updates.replace("one.txt", "moved.txt")
            ),
        ] {
            let receipt = fixture.patch(&sections);
            expect(&sections, &receipt, &["reject / patch_context_not_found"])?;
            check(!receipt["errors"].as_array().is_none_or(Vec::is_empty), || {
                format!("no errors: {receipt}")
            })?;
            let after: Vec<_> = files.iter().map(stamp).collect();
            check(after == before, || format!("a file was touched: {sections}"))?;
            check(names_in(&fixture.world.root) == names, || format!("names changed: {sections}"))?;
        }
    }
    fixture.finish()
}

fn line_ends() -> Outcome {
    let mut fixture = Fixture::new();
    let same = |fixture: &Fixture, name: &str, wanted: &str| {
        let found = String::from_utf8_lossy(&fixture.world.read(name)).into_owned();
        check(found == wanted, || format!("{name}: {found:?}, wanted {wanted:?}"))
    };
    fixture.world.write("f", "one\r\ntwo\r\nthree");
    expect("a middle line", &fixture.patch("*** Update File: f\n@@\n one\n-two\n+2\n"), &["ok"])?;
    same(&fixture, "f", "one\r\n2\r\nthree")?;
    expect("the last line", &fixture.patch("*** Update File: f\n@@\n-three\n+3\n"), &["ok"])?;
    same(&fixture, "f", "one\r\n2\r\n3\r\n")?;
    // Two lines for one, a patch in CRLF itself, and a pure addition in the middle: the file keeps its line ends.
    fixture.world.write("g", "one\r\ntwo\r\nthree");
    expect("two for one", &fixture.patch("*** Update File: g\n@@\n-two\n+2a\n+2b\n"), &["ok"])?;
    same(&fixture, "g", "one\r\n2a\r\n2b\r\nthree")?;
    expect("a patch in CRLF", &fixture.patch("*** Update File: g\r\n@@\r\n-one\r\n+1\r\n"), &["ok"])?;
    same(&fixture, "g", "1\r\n2a\r\n2b\r\nthree")?;
    expect("an addition", &fixture.patch("*** Update File: g\n@@\n 2a\n+2aa\n 2b\n"), &["ok"])?;
    same(&fixture, "g", "1\r\n2a\r\n2aa\r\n2b\r\nthree")?;
    // A move keeps them too, and in a file with mixed line ends each line keeps its own.
    fixture.world.write("h", "one\r\ntwo\nthree");
    expect("a move", &fixture.patch("*** Update File: h\n*** Move to: i\n@@\n-two\n+2\n"), &["ok"])?;
    check(fixture.world.read("i").starts_with(b"one\r\n2"), || "the first line lost its CR".into())?;
    check(fixture.world.read("i").ends_with(b"\nthree"), || "the last line was touched".into())?;
    fixture.finish()
}

fn onto_an_existing_file() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("a", "one\ntwo\n");
    fixture.world.write("b", "bee\n");
    for (tool_call, sections, a, b) in [
        ("tc_add", "*** Add File: b\n+new\n", Some("one\ntwo\n"), "new\n"),
        ("tc_move", "*** Update File: a\n*** Move to: b\n@@\n-one\n+1\n", None, "1\ntwo\n"),
        ("tc_rename", "*** Update File: a\n*** Move to: b\n", None, "one\ntwo\n"),
    ] {
        let before = tree(&fixture.world.root);
        let mut params = patch_params(sections);
        params["session_id"] = json!(fixture.session);
        let receipt = fixture.client.effect_of("host.fs.apply_patch", params, Some(tool_call));
        expect(sections, &receipt, &["ok"])?;
        check(!warning_codes(&receipt).is_empty(), || format!("{sections}: no warning: {receipt}"))?;
        let kept = a.is_some_and(|a| fixture.world.read("a") == a.as_bytes());
        check(kept || (a.is_none() && !fixture.world.root.join("a").exists()), || format!("{sections}: a"))?;
        check(fixture.world.read("b") == b.as_bytes(), || format!("{sections}: b"))?;
        restored(&mut fixture, tool_call, &before)?;
    }
    fixture.finish()
}

/// Undo restores both files byte for byte.
fn restored(fixture: &mut Fixture, tool_call: &str, before: &crash::Shape) -> Outcome {
    let receipt = fixture.fs("restore", json!({ "scope_id": tool_call }));
    expect(&format!("restore of {tool_call}"), &receipt, &["ok"])?;
    check(tree(&fixture.world.root) == *before, || format!("{tool_call} was not undone"))
}

fn odd_names() -> Outcome {
    // Trailing blanks of a header are not part of the path, as in Codex.
    for (written, shown, name) in [
        ("./a", "a", "a"),
        ("a//b", "a/b", "a/b"),
        (" a", " a", " a"),
        ("a ", "a", "a"),
        ("-rf", "-rf", "-rf"),
        ("--", "--", "--"),
        ("a\tb", "a\\x09b", "a\tb"),
        ("a/./b", "a/b", "a/b"),
        ("x/../a", "a", "a"),
        ("a\\x41b", "aAb", "aAb"),
        ("caf\u{e9}", "caf\u{e9}", "caf\u{e9}"),
        ("*", "*", "*"),
        ("$HOME", "$HOME", "$HOME"),
        ("~", "~", "~"),
    ] {
        let mut fixture = Fixture::new();
        std::fs::create_dir(fixture.world.root.join("x")).unwrap();
        let receipt = fixture.patch(&format!("*** Add File: {written}\n+content\n"));
        expect(&format!("Add File: {written:?}"), &receipt, &["ok"])?;
        check(receipt["changed_paths"] == json!([shown]), || format!("{written:?}: {receipt}"))?;
        check(fixture.world.read(name) == b"content\n", || format!("{written:?} did not make {name:?}"))?;
        let read = fixture.fs("read_file", json!({ "path": shown }));
        check(read["content"] == text("content\n"), || format!("{shown:?} cannot be asked for: {read}"))?;
        fixture.finish()?;
    }
    ordered_paths()
}

fn ordered_paths() -> Outcome {
    let mut fixture = Fixture::new();
    let sections: String = ["./z", "m//n", "-rf", "m.x", "B", "a\tb", "a", "m/a", " a"]
        .iter()
        .map(|path| format!("*** Add File: {path}\n+x\n"))
        .collect();
    let receipt = fixture.patch(&sections);
    expect("many odd names", &receipt, &["ok"])?;
    let wanted = json!([" a", "-rf", "B", "a", "a\\x09b", "m.x", "m/a", "m/n", "z"]);
    check(receipt["changed_paths"] == wanted, || format!("not in path order: {receipt}"))?;
    check(receipt["ops"] == json!({ "add": 9, "update": 0, "delete": 0, "move": 0 }), || {
        format!("ops: {receipt}")
    })?;
    fixture.finish()
}

fn only_the_case() -> Outcome {
    let mut fixture = Fixture::new();
    let path = fixture.world.write("a.txt", "one\ntwo\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    expect("a.txt -> A.txt", &fixture.patch("*** Update File: a.txt\n*** Move to: A.txt\n"), &["ok"])?;
    check(names_in(&fixture.world.root) == ["A.txt"], || "not exactly A.txt is there".into())?;
    check(fixture.world.read("A.txt") == b"one\ntwo\n", || "the content was lost".into())?;
    let mode = fixture.world.root.join("A.txt").metadata().unwrap().mode() & 0o7777;
    check(mode == 0o751, || format!("the mode became {mode:o}"))?;
    let receipt = fixture.patch("*** Update File: A.txt\n*** Move to: a.TXT\n@@\n-one\n+1\n");
    expect("A.txt -> a.TXT with a change", &receipt, &["ok"])?;
    check(fixture.world.read("a.TXT") == b"1\ntwo\n", || "the change was lost".into())?;
    check(receipt["changed_paths"] == json!(["A.txt", "a.TXT"]), || format!("{receipt}"))?;
    fixture.finish()
}

fn another_format() -> Outcome {
    let unsupported = &["error / unsupported_patch_format"];
    let mut fixture = Fixture::open(json!({ "capability": { "allowed_patch_formats": ["v4a"] } }));
    fixture.world.write("a", "one\n");
    let before = tree(&fixture.world.root);
    let v4a = "*** Begin Patch\n*** Update File: a\n@@\n-one\n+1\n*** End Patch\n";
    let unified = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+1\n";
    for patch in [v4a, unified, ""] {
        for format in ["unified", "V4A", "v4a ", "", "git", "v4b"] {
            let params = json!({ "patch": text(patch), "patch_format": format });
            expect(format, &fixture.fs("apply_patch", params), unsupported)?;
        }
    }
    check(tree(&fixture.world.root) == before, || "something was applied".into())?;
    expect(
        "unified by default",
        &fixture.fs("apply_patch", json!({ "patch": text(unified) })),
        &["parse_error"],
    )?;
    let explicit = json!({ "patch": text(v4a), "patch_format": "v4a" });
    expect("v4a by name", &fixture.fs("apply_patch", explicit), &["ok"])?;
    // A format that the capability does not list is refused, even the default one; `unified` is refused even when
    // listed.
    for formats in [json!([]), json!(["unified"])] {
        let session = fixture.world.open(json!({ "capability": { "allowed_patch_formats": formats } }));
        for params in [
            json!({ "patch": text(v4a) }),
            json!({ "patch": text(v4a), "patch_format": "v4a" }),
            json!({ "patch": text(unified), "patch_format": "unified" }),
        ] {
            expect("not listed", &fixture.client.fs(&session, "apply_patch", params), unsupported)?;
        }
    }
    fixture.finish()
}
