//! C24: a folder that the person removed between two calls.

use serde_json::json;

use super::scene::{Scene, Variant, each};
use crate::Outcome;

pub(super) fn a_folder_that_went_between_two_calls() -> Outcome {
    let variants: &[Variant] = &[
        ("the finding", the_finding),
        ("made again by a command", made_again_by_a_command),
        ("made again by make_dir", made_again_by_make_dir),
        ("the folder above went too", the_folder_above_went),
        ("renamed by the person", renamed),
        ("replaced by a folder of the person", replaced_by_their_folder),
        ("replaced by a link, which the agent removes", replaced_by_a_link),
        ("the same file again", the_same_file_again),
        ("only the file went", only_the_file_went),
        ("one after the other", one_after_the_other),
        ("in one turn", in_one_turn),
        ("one call", one_call),
        ("control: only the second call", only_the_second_call),
        ("control: nobody removed it", nobody_removed_it),
    ];
    each(variants)
}

/// P `d/e/c` = 0, W `d/e/c` = 1.
fn begin(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/e/c", "0\n");
    scene.w("d/e/c", "1\n").map(drop)
}

/// The conflict, then the forced rollback with its lists, and the way back.
fn both_turns(scene: &mut Scene<'_>, restored: &[&str], deleted: &[&str]) -> Outcome {
    scene.rollback_conflicts(2, "d/e/c")?;
    let forced = scene.forced_and_back(2)?;
    forced.lists(restored, deleted)
}

fn the_finding(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.p_removes("d/e");
    scene.w("d/e/f", "2\n")?;
    both_turns(scene, &["d/e/c"], &["d/e/f"])
}

fn made_again_by_a_command(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.p_removes("d/e");
    scene.sh("mkdir -p d/e/g; echo 2 > d/e/g/f")?;
    both_turns(scene, &["d/e/c"], &["d/e/g", "d/e/g/f"])
}

fn made_again_by_make_dir(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.p_removes("d/e");
    scene.ok("fs.make_dir", json!({ "path": "d/e/g", "parents": true }))?;
    both_turns(scene, &["d/e/c"], &["d/e/g"])
}

fn the_folder_above_went(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.p_removes("d");
    scene.w("d/e/f", "2\n")?;
    both_turns(scene, &["d/e/c"], &["d/e/f"])
}

fn renamed(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.p_renames("d/e", "h");
    scene.w("d/e/f", "2\n")?;
    both_turns(scene, &["d/e/c"], &["d/e/f"])?;
    scene.has("h/c", "1\n")
}

fn replaced_by_their_folder(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.p_removes("d/e");
    scene.p("d/e/own", "PERSON\n");
    scene.w("d/e/f", "2\n")?;
    both_turns(scene, &["d/e/c"], &["d/e/f"])?;
    scene.has("d/e/own", "PERSON\n")
}

fn replaced_by_a_link(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.p_renames("d/e", "h");
    scene.p_links("../h", "d/e");
    scene.remove("d/e")?;
    scene.rollback_conflicts(2, "d/e")?;
    scene.forced_and_back(2)?.lists(&["d/e", "d/e/c"], &[])?;
    scene.has("h/c", "1\n")
}

fn the_same_file_again(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.p_removes("d/e");
    scene.w("d/e/c", "2\n")?;
    both_turns(scene, &["d/e/c"], &[])
}

fn only_the_file_went(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.p_removes("d/e/c");
    scene.w("d/e/f", "2\n")?;
    both_turns(scene, &["d/e/c"], &["d/e/f"])
}

fn one_after_the_other(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.p_removes("d/e");
    scene.w("d/e/f", "2\n")?;
    scene.rollback(1)?.lists(&[], &["d/e", "d/e/f"])?;
    scene.rollback_conflicts(1, "d/e/c")?;
    scene.forced_and_back(1)?.lists(&["d/e", "d/e/c"], &[])
}

fn in_one_turn(scene: &mut Scene<'_>) -> Outcome {
    scene.turn = Some("t");
    begin(scene)?;
    scene.p_removes("d/e");
    scene.w("d/e/f", "2\n")?;
    scene.turn = None;
    scene.rollback_conflicts(1, "d/e/c")?;
    scene.forced_and_back(1)?.lists(&["d/e/c"], &["d/e/f"])
}

fn one_call(scene: &mut Scene<'_>) -> Outcome {
    scene.call = Some("c");
    begin(scene)?;
    scene.p_removes("d/e");
    scene.w("d/e/f", "2\n")?;
    scene.call = None;
    scene.conflicts_at("d/e/c", "restore", &json!({ "scope_id": "c" }))?;
    let undone = scene.undone("restore", &json!({ "scope_id": "c", "force": true }))?;
    undone.lists(&["d/e/c"], &["d/e/f"])?;
    scene.back_by_snapshot(&undone)
}

fn only_the_second_call(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.p_removes("d/e");
    scene.w("d/e/f", "2\n")?;
    scene.rollback(1)?;
    scene.lacks("d/e")?;
    scene.redo(1)?;
    scene.has("d/e/f", "2\n")
}

fn nobody_removed_it(scene: &mut Scene<'_>) -> Outcome {
    begin(scene)?;
    scene.w("d/e/f", "2\n")?;
    scene.rollback(2)?;
    scene.has("d/e/c", "0\n")?;
    scene.lacks("d/e/f")?;
    scene.redo(2)?;
    scene.has("d/e/c", "1\n")?;
    scene.has("d/e/f", "2\n")
}
