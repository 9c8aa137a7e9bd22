//! Rules, limits and dry runs apply to what a command changes.

use std::os::unix::fs::MetadataExt as _;

use aos_testkit::{World, check, expect, warning_codes};
use serde_json::json;

use super::{changed, each_daemon, furnished, same, seen};
use crate::Outcome;

pub(super) fn nothing_changed() -> Outcome {
    let room = furnished(World::new(), json!({ "policy": { "preset": "permissive" } }));
    let before = seen(&room.world.root);
    let entries = room.fs("list_snapshots", json!({}));
    for script in [
        "true",
        "cat changed",
        "exit 3",
        "echo x > /tmp/elsewhere",
        "cat dir/in >> /dev/null; : >> changed",
        "chmod 644 changed; chmod u+x changed; chmod 644 changed",
        "echo x > t; rm t",
    ] {
        let receipt = room.call("tc_none", script);
        expect(script, &receipt, &["ok"])?;
        check(changed(&receipt).is_empty() && receipt["changed_paths_count"] == 0, || {
            format!("{script}: {receipt}")
        })?;
        check(receipt["coverage"] == "overlay", || format!("{script}: {receipt}"))?;
    }
    same("nothing", &seen(&room.world.root), &before)?;
    let now = room.fs("list_snapshots", json!({}));
    check(now["snapshots"] == entries["snapshots"], || format!("{now}"))?;
    room.finish()
}

pub(super) fn rules_bind() -> Outcome {
    let rules = json!([
        { "name": "frozen", "ops": ["write"], "paths": ["dir/**"], "decision": "deny" },
        { "name": "keep", "ops": ["remove"], "paths": ["gone", "kept"], "decision": "deny" },
        { "name": "careful", "ops": ["write"], "paths": ["changed"], "decision": "warn" },
    ]);
    let room = furnished(World::new(), json!({ "policy": { "rules": rules } }));
    let before = seen(&room.world.root);
    for script in [
        "echo x > changed; echo hello; echo x >> dir/in; exit 4",
        "echo x > fresh; rm gone; echo hello; exit 4",
        "echo hello; mv kept elsewhere; exit 4",
        "mkdir -p dir/a/b; echo hello; exit 4",
    ] {
        let receipt = room.call("tc_denied", script);
        expect(script, &receipt, &["forbidden / policy_denied"])?;
        check(room.stdout(&receipt) == "hello\n" && receipt["exit_code"] == 4, || {
            format!("{script}: {receipt}")
        })?;
        check(receipt["error_message"].as_str().is_some_and(|text| text.contains("rule")), || {
            format!("{receipt}")
        })?;
        same(script, &seen(&room.world.root), &before)?;
    }
    let receipt = room.call("tc_warned", "echo x > changed; rm -r dir");
    expect("warned", &receipt, &["ok"])?;
    check(warning_codes(&receipt).contains(&"policy_rule"), || format!("{receipt}"))?;
    room.finish()
}

pub(super) fn protected_names() -> Outcome {
    let room = furnished(World::new(), json!({}));
    std::fs::create_dir_all(room.world.root.join(".git/hooks")).unwrap();
    room.world.write(".git/config", "[core]\n");
    let before = seen(&room.world.root);
    for script in [
        "echo evil > .git/hooks/pre-commit",
        "echo x >> .git/config",
        "mkdir .aos; echo x > .aos/y",
        "echo {} > dir/.mcp.json",
        "mkdir -p .claude; echo {} > .claude/settings.local.json",
        "mv .git elsewhere",
        "rm -rf .git",
        "mkdir -p deep/.GIT/hooks; echo x > deep/.GIT/hooks/y",
        "ln -s kept .codex",
        "rm -rf .git; mkdir -p .git/hooks; echo x > .git/hooks/y",
    ] {
        expect(script, &room.call("tc_protected", script), &["forbidden / protected_path"])?;
        same(script, &seen(&room.world.root), &before)?;
    }
    // A repository that the command creates is its own, as far as nothing in it runs code.
    let own = "mkdir -p mine/.git/hooks; echo x > mine/.git/hooks/a.sample; echo '[core]' > mine/.git/config";
    expect(own, &room.call("tc_own", own), &["ok"])?;
    expect("undo", &room.undo("tc_own"), &["ok"])?;
    same("undone", &seen(&room.world.root), &before)?;
    let warned = room.another(json!({ "capability": { "protected_paths": "warn" } }));
    let receipt = room.exec_in(&warned, json!({ "argv": ["sh", "-c", "echo x >> .git/config"] }));
    expect("warned", &receipt, &["ok"])?;
    check(warning_codes(&receipt).contains(&"protected_path"), || format!("{receipt}"))?;
    room.finish()
}

pub(super) fn limits() -> Outcome {
    let room =
        furnished(World::new(), json!({ "capability": { "max_changed_files": 3, "max_write_bytes": 1000 } }));
    let before = seen(&room.world.root);
    for script in
        ["for i in 1 2 3 4; do echo $i > n$i; done", "rm -r dir gone kept", "head -c 1001 /dev/zero > large"]
    {
        expect(script, &room.call("tc_much", script), &["forbidden / limit_exceeded"])?;
        same(script, &seen(&room.world.root), &before)?;
    }
    expect("enough", &room.call("tc_enough", "for i in 1 2 3; do echo $i > n$i; done"), &["ok"])?;
    // What cannot be stored as a pre-image is not changed.
    let small = room.another(json!({ "snapshot_bytes_max": 3 }));
    let receipt = room.exec_in(&small, json!({ "argv": ["sh", "-c", "echo x > changed; echo told"] }));
    expect("too much to keep", &receipt, &["forbidden / limit_exceeded"])?;
    check(room.stdout(&receipt) == "told\n", || format!("{receipt}"))?;
    check(room.world.read("changed") == b"before\n", || "it was changed all the same".into())?;
    room.finish()
}

pub(super) fn dry_run() -> Outcome {
    each_daemon(|open| {
        let room = open(json!({}));
        let before = seen(&room.world.root);
        let dry = json!({ "dry_run": true });
        let receipt = room.call_with(
            "tc_dry",
            "echo after > changed; rm -r dir; printf '\\0\\377' > binary; chmod 755 kept; echo said",
            dry,
        );
        expect("dry", &receipt, &["ok"])?;
        check(room.stdout(&receipt) == "said\n" && receipt["coverage"] == "overlay", || {
            format!("{receipt}")
        })?;
        let diff = receipt["diff"].as_str().unwrap_or_default();
        for part in [
            "--- a/changed\n+++ b/changed\n",
            "-before\n+after\n",
            "--- a/dir/in\n+++ /dev/null\n",
            "Binary files /dev/null and b/binary differ",
            "mode of kept 0644 -> 0755",
        ] {
            check(diff.contains(part), || format!("no {part:?} in {diff}"))?;
        }
        for path in ["binary", "changed", "dir", "dir/in", "dir/sub/deep", "kept"] {
            check(changed(&receipt).iter().any(|listed| listed == path), || format!("{path}: {receipt}"))?;
        }
        same("dry", &seen(&room.world.root), &before)?;
        check(receipt.get("snapshot_id").is_none(), || format!("{receipt}"))?;
        room.finish()
    })?;
    let room = furnished(World::new(), json!({ "isolation": "none" }));
    let receipt = room.call_with("tc_dry", "rm kept", json!({ "dry_run": true }));
    expect("no overlay", &receipt, &["error / unsupported"])?;
    check(room.world.root.join("kept").exists(), || "it ran".into())?;
    let both = json!({ "dry_run": true, "capture": "none" });
    expect("both", &room.call_with("tc_dry", "rm kept", both), &["error / unsupported"])?;
    room.finish()
}

pub(super) fn left_out() -> Outcome {
    each_daemon(|open| {
        let room = open(json!({ "capture_exclude": ["out", "**/cache/**", "missing"] }));
        let root = room.world.root.clone();
        for folder in ["out/deep", "dir/cache", "cache"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        let owner = root.metadata().unwrap();
        for path in seen(&root).keys() {
            std::os::unix::fs::lchown(root.join(path), Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        let receipt = room.call("tc_out", "echo 1 > out/deep/x; echo 2 > dir/cache/y; echo 3 > cache/z; echo 4 > changed; mkdir missing; echo 5 > missing/w");
        expect("left out", &receipt, &["ok"])?;
        check(changed(&receipt) == ["changed", "missing", "missing/w"], || format!("{receipt}"))?;
        expect("undo", &room.undo("tc_out"), &["ok"])?;
        for (path, there) in
            [("out/deep/x", true), ("dir/cache/y", true), ("cache/z", true), ("missing/w", false)]
        {
            check(root.join(path).exists() == there, || format!("{path}: {there} was expected"))?;
        }
        check(room.world.read("changed") == b"before\n", || "not undone".into())?;
        // A command can also run below a folder that is left out.
        let receipt = room.call_with("tc_in", "pwd; echo 6 > six", json!({ "cwd": "out/deep" }));
        expect("in it", &receipt, &["ok"])?;
        check(changed(&receipt).is_empty() && root.join("out/deep/six").exists(), || format!("{receipt}"))?;
        room.finish()
    })
}
