//! C13: redo brings back what the undo before it displaced, always.

use aos_testkit::copy::equal;
use aos_testkit::{Findings, World, check};
use serde_json::json;

use super::scene::{Scene, Variant, each};
use crate::Outcome;

pub(super) fn redo_brings_back_what_was_displaced() -> Outcome {
    let variants: &[Variant] = &[
        ("the finding", the_finding),
        ("from the command line", from_the_command_line),
        ("changes of all kinds", changes_of_all_kinds),
        ("two turns, one after the other", two_turns),
        ("a command", a_command),
        ("one call", one_call),
        ("another session", another_session),
        ("a moved folder", a_moved_folder),
        ("a redo over what the person wrote", a_forced_redo),
        ("control: nobody else wrote", nobody_else),
    ];
    let mut findings = Findings::default();
    findings.add(each(variants));
    findings.add(a_killed_daemon().map_err(|why| format!("a killed daemon: {why}")));
    findings.outcome()
}

fn the_finding(scene: &mut Scene<'_>) -> Outcome {
    scene.w("f", "A\n")?;
    for (more, all) in [("B\n", "A\nB\n"), ("C\n", "A\nB\nC\n"), ("D\n", "A\nB\nC\nD\n")] {
        scene.p_appends("f", more);
        scene.rollback_conflicts(1, "f")?;
        scene.force(1)?;
        scene.lacks("f")?;
        scene.redo(1)?;
        scene.has("f", all)?;
    }
    scene.forced_and_back(1).map(drop)
}

fn from_the_command_line(scene: &mut Scene<'_>) -> Outcome {
    scene.w("f", "A\n")?;
    for all in ["A\nB\n", "A\nB\nC\n"] {
        scene.p("f", all);
        scene.aos(&["undo", "--force", "--yes"])?;
        scene.lacks("f")?;
        scene.aos(&["redo", "--yes"])?;
        scene.has("f", all)?;
    }
    // After another change the call of the undo brings it back.
    let forced = scene.force(1)?;
    scene.w("another", "another\n")?;
    let call = forced.receipt["tool_call_id"].as_str().unwrap_or("a receipt without tool_call_id");
    check(scene.aos(&["history"])?.contains(call), || format!("`aos history` does not list {call}"))?;
    scene.aos(&["undo", call, "--yes"])?;
    scene.has("f", "A\nB\nC\n")
}

fn changes_of_all_kinds(scene: &mut Scene<'_>) -> Outcome {
    type Change = (&'static str, fn(&Scene<'_>) -> Outcome);
    let changes: &[Change] = &[
        ("append", |scene| {
            scene.p_appends("f", "more\n");
            Ok(())
        }),
        ("mode", |scene| {
            scene.p_chmods("f", 0o600);
            Ok(())
        }),
        ("attribute", |scene| scene.p_sets("f", "user.note", b"a note")),
        ("another file", |scene| {
            scene.p("f", "PERSON\n");
            Ok(())
        }),
        ("a folder", |scene| {
            scene.p_removes("f");
            scene.p("f/in", "PERSON\n");
            Ok(())
        }),
        ("a link", |scene| {
            scene.p_removes("f");
            scene.p_links("elsewhere", "f");
            Ok(())
        }),
        ("nothing", |scene| {
            scene.p_removes("f");
            Ok(())
        }),
    ];
    scene.p("f", "0\n");
    scene.w("f", "A\n")?;
    for (what, change) in changes {
        let told = |why| format!("{what}: {why}");
        change(scene).map_err(told)?;
        let forced = scene.force(1).map_err(told)?;
        scene.has("f", "0\n").map_err(told)?;
        let redone = scene.redo(1).map_err(told)?;
        equal(&forced.before, &redone.after, what)?;
    }
    Ok(())
}

fn two_turns(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    scene.w("f", "1\n")?;
    scene.w("f", "2\n")?;
    for person in ["PERSON\n", "PERSON again\n"] {
        scene.p("f", person);
        scene.force(2)?;
        scene.has("f", "0\n")?;
        scene.redo(1)?;
        scene.has("f", "1\n")?;
        scene.redo(1)?;
        scene.has("f", person)?;
    }
    Ok(())
}

fn a_command(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/old", "old\n");
    scene.sh("rm -r d; mkdir d; echo A > d/f; echo A > g")?;
    for person in ["PERSON\n", "PERSON again\n"] {
        scene.p("d/f", person);
        scene.p("d/own", person);
        scene.rollback_conflicts(1, "d/f")?;
        let forced = scene.force(1)?;
        scene.has("d/old", "old\n")?;
        scene.lacks("d/f")?;
        scene.has("d/own", person)?;
        let redone = scene.redo(1)?;
        equal(&forced.before, &redone.after, person)?;
    }
    Ok(())
}

/// The undo of one call is a turn; undoing that brings back what it displaced.
fn one_call(scene: &mut Scene<'_>) -> Outcome {
    scene.as_call("c", "fs.write_file", super::scene::write("f", "A\n"))?;
    let params = json!({ "scope_id": "c", "force": true });
    for person in ["PERSON\n", "PERSON again\n"] {
        scene.p("f", person);
        scene.conflicts_at("f", "restore", &json!({ "scope_id": "c" }))?;
        scene.undone("restore", &params)?;
        scene.lacks("f")?;
        scene.rollback(1)?;
        scene.has("f", person)?;
    }
    let undone = scene.undone("restore", &params)?;
    scene.back_by_snapshot(&undone)
}

fn another_session(scene: &mut Scene<'_>) -> Outcome {
    let mut other = scene.another();
    scene.w("f", "A\n")?;
    for theirs in ["THEIRS\n", "THEIRS again\n"] {
        other.w("f", theirs)?;
        scene.rollback_conflicts(1, "f")?;
        scene.force(1)?;
        scene.lacks("f")?;
        scene.redo(1)?;
        scene.has("f", theirs)?;
    }
    scene.forced_and_back(1).map(drop)
}

fn a_moved_folder(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/f", "0\n");
    scene.w("d/f", "A\n")?;
    scene.moves("d", "e")?;
    for person in ["PERSON\n", "PERSON again\n"] {
        scene.p("e/f", person);
        scene.p("e/own", person);
        let forced = scene.force(2)?;
        scene.has("d/f", "0\n")?;
        scene.has("d/own", person)?;
        let redone = scene.redo(2)?;
        equal(&forced.before, &redone.after, person)?;
    }
    Ok(())
}

fn a_forced_redo(scene: &mut Scene<'_>) -> Outcome {
    scene.w("f", "A\n")?;
    for person in ["PERSON\n", "PERSON again\n"] {
        scene.rollback(1)?;
        scene.p("f", person);
        scene.conflicts_at("f", "redo", &json!({}))?;
        let forced = scene.undone("redo", &json!({ "force": true }))?;
        scene.has("f", "A\n")?;
        scene.undone("restore", &json!({ "snapshot_id": forced.receipt["redo_snapshot_id"] }))?;
        scene.has("f", person)?;
        // That restore is a turn. Behind it is the write, as the redo left it.
        scene.rollback(1)?;
        scene.has("f", "A\n")?;
    }
    Ok(())
}

fn nobody_else(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    scene.w("f", "A\n")?;
    let before = scene.tree();
    for force in [false, true, false] {
        scene.undone("rollback", &json!({ "force": force }))?;
        scene.has("f", "0\n")?;
        scene.redo(1)?;
        equal(&before, &scene.tree(), "after the redo")?;
    }
    Ok(())
}

fn a_killed_daemon() -> Outcome {
    let mut world = World::new();
    let mut scene = Scene::new(&world, "v");
    let (session, root) = (scene.session.clone(), scene.root.clone());
    scene.w("f", "A\n")?;
    for all in ["A\nB\n", "A\nB\nC\n"] {
        let mut scene = Scene::in_session(&world, session.clone(), root.clone());
        scene.p("f", all);
        scene.force(1)?;
        world.kill9();
        world.start_daemon();
        let mut scene = Scene::in_session(&world, session.clone(), root.clone());
        scene.redo(1)?;
        scene.has("f", all)?;
    }
    world.finish()
}
