//! C27: restoring what is restored changes nothing.

use aos_testkit::copy::equal;
use serde_json::{Value, json};

use super::scene::{Scene, Variant, each, moving, write};
use crate::Outcome;

pub(super) fn what_is_restored_stays() -> Outcome {
    let variants: &[Variant] = &[
        ("the finding", the_finding),
        ("to a free name", to_a_free_name),
        ("a folder", a_folder),
        ("by patch", by_patch),
        ("by a command", by_a_command),
        ("two files that change places", swapped),
        ("two files of the same size and time", swapped_alike),
        ("edited by the person since", edited_since),
        ("with the person's file at the old name", in_its_place),
        ("by its snapshot", by_its_snapshot),
        ("one path of several", one_path),
        ("the restore of a restore", the_restore_of_a_restore),
        ("control: writes and removals", writes_and_removals),
    ];
    each(variants)
}

fn scope(force: bool) -> Value {
    json!({ "scope_id": "c", "force": force })
}

/// Restores the call `c` several times: once it changes something, and then nothing. It never changes what it did.
fn restored_once(scene: &mut Scene<'_>, first: &aos_testkit::copy::Tree) -> Outcome {
    for force in [true, false] {
        let undone = scene.undone("restore", &scope(force))?;
        equal(first, &undone.after, "after the restore")?;
        undone.lists_fit()?;
        for force in [true, false, true] {
            scene.again(&scope(force)).map_err(|why| format!("force {force}: {why}"))?;
        }
        // Once more from the start, without force.
        scene.rollback(1)?;
        equal(&undone.before, &scene.tree(), "the restore taken back")?;
    }
    Ok(())
}

fn the_finding(scene: &mut Scene<'_>) -> Outcome {
    scene.p("b", "1\n");
    scene.p("d", "2\n");
    let first = scene.tree();
    scene.as_call("c", "fs.move", moving("d", "b"))?;
    restored_once(scene, &first)
}

fn to_a_free_name(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d", "2\n");
    let first = scene.tree();
    scene.as_call("c", "fs.move", moving("d", "b"))?;
    restored_once(scene, &first)
}

fn a_folder(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/x", "x\n");
    scene.p("d/sub/y", "y\n");
    scene.p("e/z", "z\n");
    let first = scene.tree();
    scene.as_call("c", "fs.move", moving("d", "e/d"))?;
    scene.as_call("c", "fs.move", moving("e/d/sub", "sub"))?;
    restored_once(scene, &first)
}

fn by_patch(scene: &mut Scene<'_>) -> Outcome {
    scene.p("b", "1\n");
    scene.p("d", "2\n");
    scene.p("e", "3\n");
    let first = scene.tree();
    scene.call = Some("c");
    scene.patch(
        "*** Update File: d\n*** Move to: b\n@@\n-2\n+two\n*** Update File: e\n*** Move to: n/e\n@@\n-3\n+3\n+4\n",
    )?;
    scene.call = None;
    restored_once(scene, &first)
}

fn by_a_command(scene: &mut Scene<'_>) -> Outcome {
    scene.p("b", "1\n");
    scene.p("d", "2\n");
    scene.p("e/x", "3\n");
    let first = scene.tree();
    scene.as_call("c", "exec", json!({ "argv": ["sh", "-c", "mv d b; mv e f; mv f/x d"] }))?;
    restored_once(scene, &first)
}

fn swapped(scene: &mut Scene<'_>) -> Outcome {
    scene.p("b", "1\n");
    scene.p("d", "2\n");
    let first = scene.tree();
    for (from, to) in [("b", "t"), ("d", "b"), ("t", "d")] {
        scene.as_call("c", "fs.move", moving(from, to))?;
    }
    scene.has("b", "2\n")?;
    restored_once(scene, &first)
}

/// As after a checkout: nothing but the content tells them apart.
fn swapped_alike(scene: &mut Scene<'_>) -> Outcome {
    for (path, content) in [("b", "1\n"), ("d", "2\n")] {
        scene.p(path, content);
        let file = std::fs::File::options().append(true).open(scene.at(path)).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    }
    let first = scene.tree();
    for (from, to) in [("b", "t"), ("d", "b"), ("t", "d")] {
        scene.as_call("c", "fs.move", moving(from, to))?;
    }
    restored_once(scene, &first)
}

fn edited_since(scene: &mut Scene<'_>) -> Outcome {
    scene.p("b", "1\n");
    scene.p("d", "2\n");
    scene.as_call("c", "fs.move", moving("d", "b"))?;
    scene.p_appends("b", "PERSON\n");
    scene.conflicts_at("b", "restore", &scope(false))?;
    scene.undone("restore", &scope(true))?.lists(&["b", "d"], &[])?;
    scene.has("b", "1\n")?;
    scene.has("d", "2\nPERSON\n")?;
    for _ in 0..2 {
        scene.again(&scope(true))?;
    }
    scene.has("d", "2\nPERSON\n")
}

fn in_its_place(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d", "2\n");
    scene.as_call("c", "fs.move", moving("d", "b"))?;
    scene.p("d", "PERSON\n");
    scene.conflicts_at("d", "restore", &scope(false))?;
    let forced = scene.undone("restore", &scope(true))?;
    forced.lists(&["d"], &["b"])?;
    for force in [true, false, true] {
        scene.again(&scope(force)).map_err(|why| format!("force {force}: {why}"))?;
    }
    scene.has("d", "2\n")?;
    scene.back_by_snapshot(&forced)
}

fn by_its_snapshot(scene: &mut Scene<'_>) -> Outcome {
    scene.p("b", "1\n");
    scene.p("d", "2\n");
    let first = scene.tree();
    let receipt = scene.moves("d", "b")?;
    for force in [true, false] {
        let params = json!({ "snapshot_id": receipt["snapshot_id"], "force": force });
        let undone = scene.undone("restore", &params)?;
        equal(&first, &undone.after, "after the restore")?;
        scene.again(&params)?;
        scene.again(&params)?;
        scene.rollback(1)?;
    }
    Ok(())
}

fn one_path(scene: &mut Scene<'_>) -> Outcome {
    scene.p("b", "1\n");
    scene.p("d", "2\n");
    scene.p("f", "3\n");
    scene.call = Some("c");
    scene.moves("d", "b")?;
    scene.w("f", "4\n")?;
    scene.call = None;
    let params = json!({ "scope_id": "c", "paths": ["d"], "force": true });
    scene.undone("restore", &params)?.lists(&["b", "d"], &[])?;
    scene.again(&params)?;
    let params = json!({ "scope_id": "c", "paths": ["f"] });
    scene.undone("restore", &params)?.lists(&["f"], &[])?;
    scene.again(&params)?;
    scene.again(&scope(true))?;
    scene.again(&scope(false))
}

fn the_restore_of_a_restore(scene: &mut Scene<'_>) -> Outcome {
    scene.p("b", "1\n");
    scene.p("d", "2\n");
    scene.as_call("c", "fs.move", moving("d", "b"))?;
    let moved = scene.tree();
    let undone = scene.undone("restore", &scope(true))?;
    let params = json!({ "snapshot_id": undone.receipt["redo_snapshot_id"], "force": true });
    let redone = scene.undone("restore", &params)?;
    equal(&moved, &redone.after, "the move again")?;
    scene.again(&params)?;
    scene.again(&params)
}

fn writes_and_removals(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "1\n");
    scene.p("d/x", "x\n");
    let first = scene.tree();
    scene.as_call("c", "fs.write_file", write("f", "2\n"))?;
    scene.as_call("c", "fs.write_file", write("n/m", "3\n"))?;
    scene.as_call("c", "fs.remove", json!({ "path": "d", "recursive": true }))?;
    let undone = scene.undone("restore", &scope(true))?;
    equal(&first, &undone.after, "after the restore")?;
    scene.again(&scope(true))?;
    scene.again(&scope(false))
}
