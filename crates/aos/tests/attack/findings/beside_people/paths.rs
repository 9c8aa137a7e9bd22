//! C25: taking turns back judges and touches exactly the paths of these turns.

use aos_testkit::copy::equal;
use serde_json::json;

use super::scene::{Scene, Variant, each};
use crate::Outcome;

pub(super) fn only_the_paths_of_the_turns() -> Outcome {
    let variants: &[Variant] = &[
        ("the finding", the_finding),
        ("a command", |scene| beside(scene, |scene| scene.sh("echo 2 > y").map(drop))),
        ("a patch", |scene| beside(scene, |scene| scene.patch("*** Update File: y\n@@\n-0\n+2\n").map(drop))),
        ("a removal", |scene| beside(scene, |scene| scene.remove("y").map(drop))),
        ("a move", |scene| beside(scene, |scene| scene.moves("y", "z").map(drop))),
        ("another session", another_session),
        ("in a folder that the turn made", in_a_folder_that_the_turn_made),
        ("several calls in a turn", several_calls_in_a_turn),
        ("several turns rolled back before", several_turns_before),
        ("redone and rolled back again", redone_and_rolled_back_again),
        ("control: nobody else wrote", nobody_else),
    ];
    each(variants)
}

type Change = (&'static str, fn(&Scene<'_>) -> Outcome);

/// What the person does to `y`, which is a file.
const CHANGES: &[Change] = &[
    ("overwritten", |scene| {
        scene.p("y", "PERSON\n");
        Ok(())
    }),
    ("removed", |scene| {
        scene.p_removes("y");
        Ok(())
    }),
    ("a folder", |scene| {
        scene.p_removes("y");
        scene.p("y/in", "PERSON\n");
        Ok(())
    }),
    ("a link", |scene| {
        scene.p_removes("y");
        scene.p_links("elsewhere", "y");
        Ok(())
    }),
    ("the mode", |scene| {
        scene.p_chmods("y", 0o600);
        Ok(())
    }),
    ("an attribute", |scene| scene.p_sets("y", "user.note", b"a note")),
];

/// Only `x` is taken back and comes again, with and without `force`; what the person did to `y` stays.
fn only_x(scene: &mut Scene<'_>) -> Outcome {
    for force in [false, true] {
        let undone = scene.undone("rollback", &json!({ "force": force }))?;
        undone.lists(&[], &["x"])?;
        let redone = scene.redo(1)?;
        equal(&undone.before, &redone.after, "after the redo")?;
    }
    Ok(())
}

fn the_finding(scene: &mut Scene<'_>) -> Outcome {
    scene.p("y", "0\n");
    scene.w("x", "1\n")?;
    scene.w("y", "2\n")?;
    scene.rollback(1)?;
    scene.has("y", "0\n")?;
    scene.p("y", "PERSON\n");
    only_x(scene)?;
    scene.has("y", "PERSON\n")?;
    // The second redo is of `y`.
    scene.conflicts_at("y", "redo", &json!({}))?;
    let forced = scene.undone("redo", &json!({ "force": true }))?;
    forced.lists(&["y"], &[])?;
    scene.has("y", "2\n")?;
    scene.back_by_snapshot(&forced)?;
    scene.has("y", "PERSON\n")
}

/// With each change by the person, after this call on `y` was rolled back.
fn beside(scene: &mut Scene<'_>, second: fn(&mut Scene<'_>) -> Outcome) -> Outcome {
    for (what, change) in CHANGES {
        let told = |why| format!("{what}: {why}");
        scene.p("y", "0\n");
        scene.w("x", &format!("{what}\n")).map_err(told)?;
        second(scene).map_err(told)?;
        scene.rollback(1).map_err(told)?;
        scene.has("y", "0\n").map_err(told)?;
        change(scene).map_err(told)?;
        only_x(scene).map_err(told)?;
        scene.rollback(1).map_err(told)?;
        if scene.at("y").symlink_metadata().is_ok() {
            scene.p_removes("y");
        }
    }
    Ok(())
}

fn another_session(scene: &mut Scene<'_>) -> Outcome {
    let mut other = scene.another();
    scene.p("y", "0\n");
    scene.w("x", "1\n")?;
    scene.w("y", "2\n")?;
    scene.rollback(1)?;
    other.w("y", "THEIRS\n")?;
    only_x(scene)?;
    scene.has("y", "THEIRS\n")?;
    other.rollback(1)?;
    scene.has("y", "0\n")?;
    scene.redo(1)?.lists(&["y"], &[])
}

fn in_a_folder_that_the_turn_made(scene: &mut Scene<'_>) -> Outcome {
    scene.w("d/x", "1\n")?;
    scene.w("d/y", "2\n")?;
    scene.rollback(1)?;
    scene.p("d/y", "PERSON\n");
    scene.rollback(1)?.lists(&[], &["d/x"])?;
    scene.has("d/y", "PERSON\n")?;
    scene.redo(1)?.lists(&["d/x"], &[])
}

fn several_calls_in_a_turn(scene: &mut Scene<'_>) -> Outcome {
    scene.p("y", "0\n");
    scene.turn = Some("first");
    scene.w("x", "0\n")?;
    scene.w("x", "1\n")?;
    scene.turn = Some("second");
    scene.w("y", "1\n")?;
    scene.w("y", "2\n")?;
    scene.turn = None;
    scene.rollback(1)?;
    scene.p("y", "PERSON\n");
    only_x(scene)?;
    scene.has("y", "PERSON\n")
}

fn several_turns_before(scene: &mut Scene<'_>) -> Outcome {
    scene.p("y", "0\n");
    scene.p("z", "0\n");
    scene.w("x", "1\n")?;
    scene.w("y", "2\n")?;
    scene.w("z", "3\n")?;
    scene.sh("echo 4 >> y; rm z")?;
    scene.rollback(2)?;
    scene.rollback(1)?;
    scene.p("y", "PERSON\n");
    scene.p_removes("z");
    only_x(scene)
}

fn redone_and_rolled_back_again(scene: &mut Scene<'_>) -> Outcome {
    scene.p("y", "0\n");
    scene.w("x", "1\n")?;
    scene.w("y", "2\n")?;
    scene.rollback(2)?;
    scene.redo(2)?;
    scene.rollback(1)?;
    scene.p("y", "PERSON\n");
    only_x(scene)?;
    // With a turn more before it.
    scene.w("other", "3\n")?;
    scene.rollback(1)?.lists(&[], &["other"])?;
    only_x(scene)
}

fn nobody_else(scene: &mut Scene<'_>) -> Outcome {
    scene.p("y", "0\n");
    let first = scene.tree();
    scene.w("x", "1\n")?;
    scene.w("y", "2\n")?;
    let last = scene.tree();
    scene.rollback(1)?.changes(&["y"])?;
    scene.rollback(1)?.changes(&["x"])?;
    equal(&first, &scene.tree(), "both back")?;
    scene.redo(2)?;
    equal(&last, &scene.tree(), "both again")
}
