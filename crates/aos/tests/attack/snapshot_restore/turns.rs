//! Turns: rolled back and redone, several at a time, beside another session, and across restarts.

use aos_testkit::{check, expect, patch_params, text};
use serde_json::{Value, json};

use super::{Stage, listed_paths};
use crate::Outcome;

fn write(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": text(content), "create_parents": true })
}

/// SNAP-16.
pub fn a_write_ends_what_could_be_redone() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "one\n");
    stage.turn("t1", "write_file", write("f", "two\n"))?;
    let receipt = stage.must("rollback", json!({}), "ok")?;
    check(
        receipt["rolled_back_turns"] == json!(["t1"]) && receipt["restored_paths"] == json!(["f"]),
        || receipt.to_string(),
    )?;
    stage.turn("t2", "write_file", write("g", "new\n"))?;
    let before = stage.tree();
    stage.must("redo", json!({}), "nothing_to_redo / nothing_to_redo")?;
    stage.is(&before, "after a redo of nothing")?;
    // A restore is a mutation too; a refused one, a read and a dry run are not.
    stage.must("rollback", json!({}), "ok")?;
    stage.fs("read_file", json!({ "path": "f" }));
    stage.fs("write_file", json!({ "path": "f", "content": text("x"), "mode": "create_new" }));
    stage.must("snapshot", json!({ "scope_id": "s", "paths": ["f"] }), "ok")?;
    stage.must("redo", json!({}), "ok")?;
    stage.is(&before, "after the redo")?;
    stage.must("rollback", json!({}), "ok")?;
    stage.world().write("f", "changed outside\n");
    stage.must("restore", json!({ "scope_id": "s" }), "ok")?;
    stage.must("redo", json!({}), "nothing_to_redo")?;
    stage.finish()
}

/// SNAP-17.
pub fn two_sessions() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "one\n");
    stage.world().write("own", "one\n");
    stage.turn("t1", "write_file", write("f", "first\n"))?;
    stage.turn("t1", "write_file", write("own", "first\n"))?;
    let mut other = stage.world().agent(json!({}));
    expect("the second", &other.write("f", "second\n"), &["ok"])?;
    let before = stage.tree();
    let receipt = stage.must("rollback", json!({}), "conflict / changed_since")?;
    check(receipt["conflicts"][0]["path"] == "f", || receipt.to_string())?;
    stage.is(&before, "after the conflict")?;
    // Once the second has rolled its change back, the first can too.
    expect("the second's rollback", &other.fs("rollback", json!({})), &["ok"])?;
    stage.must("rollback", json!({}), "ok")?;
    check(stage.world().read("f") == b"one\n" && stage.world().read("own") == b"one\n", || "f".into())?;
    stage.finish()
}

pub fn several_calls_and_turns() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "0\n");
    stage.world().write("d/x", "x\n");
    let mut trees = vec![stage.tree()];
    stage.turn("t1", "write_file", write("f", "1\n"))?;
    stage.turn("t1", "move", json!({ "from": "d", "to": "e" }))?;
    stage.turn("t1", "edit_file", json!({ "path": "e/x", "old_string": "x", "new_string": "y" }))?;
    trees.push(stage.tree());
    stage.turn(
        "t2",
        "apply_patch",
        patch_params("*** Update File: f\n@@\n-1\n+2\n*** Delete File: e/x\n*** Add File: n/m\n+m\n"),
    )?;
    trees.push(stage.tree());
    let own = stage.fs("write_file", write("f", "3\n"));
    trees.push(stage.tree());
    let own = own["turn_id"].as_str().unwrap_or_default().to_owned();
    check(own.starts_with("turn_"), || format!("a mutation without a turn is one of its own: {own}"))?;
    let receipt = stage.must("rollback", json!({ "turns": 2 }), "ok")?;
    check(receipt["rolled_back_turns"] == json!([own, "t2"]), || receipt.to_string())?;
    check(listed_paths(&receipt, "deleted_paths") == ["n", "n/m"], || receipt.to_string())?;
    stage.is(&trees[1], "two back")?;
    let receipt = stage.must("redo", json!({}), "ok")?;
    check(receipt["redone_turns"] == json!(["t2"]), || receipt.to_string())?;
    stage.is(&trees[2], "one forth")?;
    // More turns than there are: all of them are rolled back.
    let receipt = stage.must("rollback", json!({ "turns": 100 }), "ok")?;
    check(receipt["rolled_back_turns"] == json!(["t2", "t1"]), || receipt.to_string())?;
    stage.is(&trees[0], "all back")?;
    stage.must("rollback", json!({}), "nothing_to_roll_back / nothing_to_roll_back")?;
    let receipt = stage.must("redo", json!({ "turns": 100 }), "ok")?;
    check(receipt["redone_turns"] == json!(["t1", "t2", own]), || receipt.to_string())?;
    stage.is(&trees[3], "all forth")?;
    stage.must("redo", json!({}), "nothing_to_redo / nothing_to_redo")?;
    // A turn that continues after a rollback and a redo is still one turn.
    stage.turn("t5", "write_file", write("f", "5\n"))?;
    stage.must("rollback", json!({}), "ok")?;
    stage.must("redo", json!({}), "ok")?;
    stage.turn("t5", "write_file", write("g", "5\n"))?;
    stage.must("rollback", json!({}), "ok")?;
    stage.is(&trees[3], "t5 back as one")?;
    for wrong in [json!({ "turns": "1" }), json!({ "turns": -1 }), json!({ "turn": 1 })] {
        expect("turns", &stage.fs("rollback", wrong), &["error / invalid_params"])?;
    }
    stage.finish()
}

pub fn what_is_no_step() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "one\n");
    for op in ["rollback", "redo"] {
        let status = if op == "redo" { "nothing_to_redo" } else { "nothing_to_roll_back" };
        stage.must(op, json!({}), status)?;
    }
    let before = stage.tree();
    stage.turn("t1", "write_file", write("f", "two\n"))?;
    // None of these changes anything.
    let nothing = [
        ("read_file", json!({ "path": "f" })),
        ("edit_file", json!({ "path": "f", "old_string": "two", "new_string": "two" })),
        ("edit_file", json!({ "path": "f", "old_string": "nope", "new_string": "x" })),
        ("make_dir", json!({ "path": ".", "parents": true })),
        ("move", json!({ "from": "f", "to": "f" })),
        ("apply_patch", json!({ "patch": patch_params("*** Add File: n\n+n\n")["patch"], "dry_run": true })),
        ("restore", json!({ "scope_id": "unknown" })),
        ("snapshot", json!({ "scope_id": "s" })),
    ];
    for (n, (op, params)) in nothing.into_iter().enumerate() {
        stage.in_turn(None, Some(&format!("idle{n}")), op, params);
    }
    let again = stage.in_turn(None, Some("again"), "restore", json!({ "scope_id": "s" }));
    expect("a restore of nothing", &again, &["ok"])?;
    let receipt = stage.must("rollback", json!({}), "ok")?;
    check(receipt["rolled_back_turns"] == json!(["t1"]), || receipt.to_string())?;
    stage.is(&before, "after the rollback")?;
    stage.finish()
}

/// A caller that restarts its call ids in each turn: the turns are still distinct.
pub fn one_call_id_in_two_turns() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "0\n");
    stage.world().write("d/x", "x\n");
    let first = stage.tree();
    stage.in_turn(Some("call_1"), Some("t1"), "write_file", write("f", "1\n"));
    stage.in_turn(Some("call_1"), Some("t1"), "remove", json!({ "path": "d", "recursive": true }));
    let second = stage.tree();
    stage.in_turn(Some("call_1"), Some("t2"), "write_file", write("f", "2\n"));
    stage.in_turn(Some("call_1"), Some("t2"), "write_file", write("d/x", "another\n"));
    stage.in_turn(Some("call_1"), Some("t2"), "remove", json!({ "path": "d", "recursive": true }));
    let third = stage.tree();
    stage.must("rollback", json!({}), "ok")?;
    stage.is(&second, "one turn back")?;
    stage.must("rollback", json!({}), "ok")?;
    stage.is(&first, "two turns back")?;
    stage.must("redo", json!({ "turns": 2 }), "ok")?;
    stage.is(&third, "both forth")?;
    stage.taken_back("call_1", &first)?;
    stage.finish()
}

/// Where a needed snapshot was dropped, nothing is guessed: the tree stays, and the answer says so.
pub fn what_was_dropped_is_not_guessed() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "0\n");
    stage.world().write("g", "0\n");
    stage.turn("t1", "write_file", write("f", "1\n"))?;
    stage.turn("t2", "write_file", write("g", "1\n"))?;
    let rolled = stage.must("rollback", json!({}), "ok")?;
    let before = stage.tree();
    stage.must("drop_snapshot", json!({ "snapshot_id": rolled["snapshot_id"] }), "ok")?;
    stage.must("redo", json!({}), "nothing_to_redo")?;
    stage.is(&before, "after a redo without its snapshot")?;
    // A rollback needs the dropped snapshot too.
    let t3 = stage.turn("t3", "write_file", write("g", "3\n"))?;
    stage.must("rollback", json!({}), "ok")?;
    stage.must("redo", json!({}), "ok")?;
    let before = stage.tree();
    stage.must("drop_snapshot", json!({ "snapshot_id": t3["snapshot_id"] }), "ok")?;
    stage.must("rollback", json!({}), "nothing_to_roll_back")?;
    stage.is(&before, "after a rollback without its snapshot")?;
    // An explicit snapshot does not block a redo.
    stage.turn("t4", "write_file", write("f", "4\n"))?;
    let by_hand = stage.must("snapshot", json!({ "scope_id": "s", "paths": ["f"] }), "ok")?;
    stage.must("drop_snapshot", json!({ "snapshot_id": by_hand["snapshot_id"] }), "ok")?;
    stage.must("rollback", json!({}), "ok")?;
    stage.is(&before, "after the rollback of t4")?;
    stage.finish()
}

/// Restore, rollback and redo are mutations with snapshots of their own, even where the session takes none by itself.
pub fn undo_of_undo() -> Outcome {
    for auto_snapshot in [true, false] {
        let mut stage = Stage::open(json!({ "auto_snapshot": auto_snapshot }));
        stage.world().write("f", "one\n");
        let before = stage.tree();
        stage.must("snapshot", json!({ "scope_id": "tc1" }), "ok")?;
        stage.ok("tc1", "write_file", write("f", "two\n"))?;
        let after = stage.tree();
        // Under the same id as the call that it restores.
        let receipt = stage.ok("tc1", "restore", json!({ "scope_id": "tc1" }))?;
        stage.is(&before, "after the restore")?;
        for field in ["redo_snapshot_id", "snapshot_id"] {
            check(receipt[field].as_str().is_some_and(|id| id.starts_with("snap_")), || receipt.to_string())?;
        }
        let redo = receipt["redo_snapshot_id"].clone();
        stage.must("restore", json!({ "snapshot_id": redo }), "ok")?;
        stage.is(&after, "after the restore of the restore")?;
        let rolled = stage.must("rollback", json!({}), "ok")?;
        stage.is(&before, "after the rollback of that")?;
        stage.must("restore", json!({ "snapshot_id": rolled["snapshot_id"] }), "ok")?;
        stage.is(&after, "after the rollback was restored")?;
        stage.must("redo", json!({}), "nothing_to_redo")?;
        stage.finish()?;
    }
    Ok(())
}

/// A folder was moved away and another of its name was filled, with a folder where the first one has a file. After the
/// rollback that file is in the way of the redo, but it moves away with its folder.
pub fn done_again_in_another_folder() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("a/f", "one\n");
    stage.world().write("a/g/h", "two\n");
    let before = stage.tree();
    stage.turn("t1", "move", json!({ "from": "a", "to": "x" }))?;
    stage.turn("t2", "write_file", write("a/f/f", "new\n"))?;
    stage.turn("t3", "write_file", write("a/g/h/i/j", "new\n"))?;
    let after = stage.tree();
    stage.must("rollback", json!({ "turns": 3 }), "ok")?;
    stage.is(&before, "after the rollback")?;
    stage.must("redo", json!({ "turns": 3 }), "ok")?;
    stage.is(&after, "after the redo")?;
    stage.must("rollback", json!({ "turns": 3 }), "ok")?;
    stage.is(&before, "after another rollback")?;
    stage.finish()
}

pub fn across_restarts() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("f", "0\n");
    let mut trees = vec![stage.tree()];
    for n in 1..5 {
        stage.turn(&format!("t{n}"), "write_file", write("f", &format!("{n}\n")))?;
        stage.turn(&format!("t{n}"), "write_file", write(&format!("d{n}/new"), "new\n"))?;
        trees.push(stage.tree());
        if n == 2 {
            stage.fixture.world.terminate();
        } else {
            stage.fixture.world.kill9();
        }
        stage.fixture.world.start_daemon();
        stage.fixture.client = stage.fixture.world.client();
    }
    stage.must("rollback", json!({ "turns": 3 }), "ok")?;
    stage.is(&trees[1], "three back")?;
    stage.fixture.world.kill9();
    stage.fixture.world.start_daemon();
    stage.fixture.client = stage.fixture.world.client();
    let receipt = stage.must("redo", json!({ "turns": 2 }), "ok")?;
    check(receipt["redone_turns"] == json!(["t2", "t3"]), || receipt.to_string())?;
    stage.is(&trees[3], "two forth")?;
    stage.must("rollback", json!({ "turns": 9 }), "ok")?;
    stage.is(&trees[0], "all back")?;
    stage.finish()
}
