//! Undo is a request like any other: capability, protection, policy and the resolver check it.

use aos_testkit::{check, expect, text, tree};
use serde_json::{Value, json};

use super::Stage;
use crate::Outcome;

fn write(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": text(content) })
}

pub fn policy_and_capability() -> Outcome {
    let deny = |ops: &[&str], path: &str| json!({ "policy": { "rules": [{ "name": "no", "ops": ops, "paths": [path], "decision": "deny" }] } });
    // A file that may be written but not removed stays.
    let mut stage = Stage::open(deny(&["remove"], "new"));
    stage.turn("t1", "write_file", write("new", "new\n"))?;
    let made = stage.turn("t1", "write_file", write("other", "new\n"))?;
    let before = stage.tree();
    stage.must("rollback", json!({}), "forbidden / policy_denied")?;
    stage.is(&before, "after a denied rollback")?;
    stage.must("restore", json!({ "scope_id": made["tool_call_id"] }), "ok")?;
    stage.finish()?;
    // A file that may be read but not written is captured by an explicit snapshot, and not restored.
    for (extra, path, verdict) in [
        (deny(&["write"], "locked"), "locked", "forbidden / policy_denied"),
        (json!({}), ".mcp.json", "forbidden / protected_path"),
        (json!({ "capability": { "allowed_fs_ops": ["read"] } }), "f", "forbidden / op_not_allowed"),
    ] {
        let mut stage = Stage::open(extra);
        stage.world().write(path, "one\n");
        stage.world().write("free", "one\n");
        stage.must("snapshot", json!({ "scope_id": "s", "paths": [path, "free"] }), "ok")?;
        stage.world().write(path, "two\n");
        stage.world().write("free", "two\n");
        let before = stage.tree();
        for force in [false, true] {
            stage.must("restore", json!({ "scope_id": "s", "force": force }), verdict)?;
            stage.is(&before, verdict)?;
        }
        stage.finish()?;
    }
    // A file that may not be read is not captured; without `write` there is nothing to roll back either.
    let mut stage = Stage::open(deny(&["read"], "secret"));
    stage.world().write("secret", "one\n");
    stage.must("snapshot", json!({ "scope_id": "s", "paths": ["secret"] }), "forbidden / policy_denied")?;
    stage.finish()?;
    warned_and_listed()
}

/// A restore carries warnings, and its journal entry names the tool call and the turn.
fn warned_and_listed() -> Outcome {
    let rule = json!({ "name": "care", "ops": ["write"], "paths": ["f"], "decision": "warn" });
    let mut stage = Stage::open(json!({ "policy": { "rules": [rule] } }));
    stage.world().write("f", "one\n");
    stage.ok("tc1", "write_file", write("f", "two\n"))?;
    let receipt = stage.in_turn(Some("undo1"), Some("t9"), "restore", json!({ "scope_id": "tc1" }));
    expect("restore", &receipt, &["ok"])?;
    check(aos_testkit::warning_codes(&receipt) == ["policy_rule"], || receipt.to_string())?;
    for (field, value) in [("tool_call_id", "undo1"), ("turn_id", "t9"), ("durability", "process")] {
        check(receipt[field] == value, || receipt.to_string())?;
    }
    let entries = stage.world().entries_of(&stage.fixture.session, "undo1");
    check(entries.len() == 1 && entries[0]["kind"] == "host.fs.restore", || format!("{entries:?}"))?;
    let rolled = stage.must("rollback", json!({}), "ok")?;
    check(rolled["rolled_back_turns"] == json!(["t9"]), || rolled.to_string())?;
    stage.finish()
}

/// Another process turns a folder of the path into a link, to the outside or to elsewhere inside: nothing is written
/// through it, and the link stays.
pub fn links_in_the_way() -> Outcome {
    for inside in [false, true] {
        for force in [false, true] {
            let mut stage = Stage::new();
            let root = stage.world().root.clone();
            stage.world().write("d/secret", "one\n");
            stage.world().write("d/made", "one\n");
            stage.ok("edited", "write_file", write("d/secret", "two\n"))?;
            stage.ok("removed", "remove", json!({ "path": "d/made" }))?;
            stage.ok("new", "write_file", write("d/new", "new\n"))?;
            std::fs::rename(root.join("d"), root.join("e")).unwrap();
            let target = if inside { root.join("e") } else { stage.world().outside.clone() };
            std::os::unix::fs::symlink(&target, root.join("d")).unwrap();
            let before = tree(&root);
            for call in ["edited", "removed", "new"] {
                let receipt = stage.fs("restore", json!({ "scope_id": call, "force": force }));
                let refused =
                    if force { "forbidden / symlink_not_allowed" } else { "conflict / changed_since" };
                let nothing = receipt["restored_paths"] == json!([]) && receipt["deleted_paths"] == json!([]);
                if !nothing {
                    expect(&format!("{call}, inside {inside}, force {force}"), &receipt, &[refused])?;
                }
                check(tree(&root) == before, || {
                    format!("{call}, inside {inside}, force {force}: {receipt}")
                })?;
            }
            let refused = if force { "forbidden / symlink_not_allowed" } else { "conflict / changed_since" };
            stage.must("rollback", json!({ "turns": 3, "force": force }), refused)?;
            check(tree(&root) == before, || "the rollback wrote through a link".into())?;
            stage.finish()?;
        }
    }
    Ok(())
}
