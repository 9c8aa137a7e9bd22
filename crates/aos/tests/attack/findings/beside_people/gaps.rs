//! C26: the person wrote between two calls. Going back over that is a conflict, unless it is forced.

use aos_testkit::copy::equal;
use aos_testkit::{Findings, World};
use serde_json::json;

use super::scene::{Scene, Variant, each, moving};
use crate::Outcome;

pub(super) fn somebody_wrote_between_two_calls() -> Outcome {
    let variants: &[Variant] = &[
        ("the finding", the_finding),
        ("in one turn", in_one_turn),
        ("one call", one_call),
        ("another session", another_session),
        ("several times", several_times),
        ("what moved on", what_moved_on),
        ("below a folder that is removed", below_a_removed_folder),
        ("staged", staged),
        ("control: nobody wrote between", nobody_between),
        ("control: the person wrote elsewhere", elsewhere),
        ("control: only the second call", only_the_second),
    ];
    let mut findings = Findings::default();
    findings.add(each(variants));
    findings.add(every_pair());
    findings.outcome()
}

fn the_finding(scene: &mut Scene<'_>) -> Outcome {
    scene.w("f", "A\n")?;
    scene.p("f", "PERSON\n");
    scene.w("f", "B\n")?;
    scene.rollback_conflicts(2, "f")?;
    scene.has("f", "B\n")?;
    scene.forced_and_back(2)?.lists(&[], &["f"])
}

type Step = fn(&mut Scene<'_>) -> Outcome;

/// What the person does to `f`, and which calls fit what is there then.
const BETWEEN: &[(&str, Step, &[&str])] = &[
    (
        "writes a file",
        |scene| {
            scene.p("f", "PERSON\n");
            Ok(())
        },
        OF_FILES,
    ),
    (
        "appends",
        |scene| {
            scene.p_appends("f", "PERSON\n");
            Ok(())
        },
        OF_FILES,
    ),
    (
        "changes the mode",
        |scene| {
            scene.p_chmods("f", 0o600);
            Ok(())
        },
        OF_FILES,
    ),
    ("sets an attribute", |scene| scene.p_sets("f", "user.note", b"a note"), OF_FILES),
    (
        "removes it",
        |scene| {
            scene.p_removes("f");
            Ok(())
        },
        OF_NOTHING,
    ),
    (
        "makes a folder",
        |scene| {
            scene.p_removes("f");
            scene.p("f/in", "PERSON\n");
            Ok(())
        },
        OF_OTHERS,
    ),
    (
        "makes a link",
        |scene| {
            scene.p_removes("f");
            scene.p_links("elsewhere", "f");
            Ok(())
        },
        OF_OTHERS,
    ),
];

const OF_FILES: &[&str] = &[
    "write",
    "append",
    "patch",
    "patch deletes",
    "remove",
    "move away",
    "move onto",
    "command writes",
    "command removes",
    "command moves",
];
const OF_NOTHING: &[&str] = &["write", "patch adds", "move onto", "command writes"];
const OF_OTHERS: &[&str] = &["remove", "move away", "command removes", "command replaces", "command moves"];

fn second_call(scene: &mut Scene<'_>, call: &str) -> Outcome {
    let first_line = scene.read("f").lines().next().unwrap_or_default().to_owned();
    let receipt = match call {
        "write" => scene.w("f", "B\n"),
        "append" => {
            let more = json!({ "path": "f", "content": aos_testkit::text("B\n"), "mode": "append" });
            scene.ok("fs.write_file", more)
        }
        "patch" => scene.patch(&format!("*** Update File: f\n@@\n-{first_line}\n+B\n")),
        "patch adds" => scene.patch("*** Add File: f\n+B\n"),
        "patch deletes" => scene.patch("*** Delete File: f\n"),
        "remove" => scene.remove("f"),
        "move away" => scene.moves("f", "g"),
        "move onto" => scene.ok("fs.move", moving("other", "f")),
        "command writes" => scene.sh("echo B > f"),
        "command removes" => scene.sh("rm -r f"),
        "command replaces" => scene.sh("rm -r f; echo B > f"),
        "command moves" => scene.sh("mv f g"),
        other => return Err(format!("no call is named {other}")),
    };
    receipt.map(drop)
}

/// Each change by the person with each second call, by two turns at once and by one after the other.
fn every_pair() -> Outcome {
    let world = World::new();
    let mut findings = Findings::default();
    for (what, change, calls) in BETWEEN {
        for call in *calls {
            for (way, take_back) in WAYS {
                let mut scene = Scene::new(&world, &format!("{what}, {call}, {way}").replace(' ', "-"));
                let outcome = take_back(&mut scene, *change, call);
                findings.add(outcome.map_err(|why| format!("P {what}, then {call}, {way}: {why}")));
            }
        }
    }
    findings.add(world.finish());
    findings.outcome()
}

type Pair = fn(&mut Scene<'_>, Step, &str) -> Outcome;

const WAYS: [(&str, Pair); 2] = [("at once", at_once), ("one by one", one_by_one)];

fn at_once(scene: &mut Scene<'_>, change: Step, call: &str) -> Outcome {
    scene.p("other", "other\n");
    let first = scene.tree();
    scene.w("f", "A\n")?;
    change(scene)?;
    second_call(scene, call)?;
    scene.rollback_conflicts(2, "f")?;
    let forced = scene.forced_and_back(2)?;
    equal(&first, &forced.after, "both turns, by force")
}

/// The second call alone goes back to what the person left; the first one is a conflict then, and changes nothing.
fn one_by_one(scene: &mut Scene<'_>, change: Step, call: &str) -> Outcome {
    scene.p("other", "other\n");
    scene.w("f", "A\n")?;
    change(scene)?;
    let between = scene.tree();
    second_call(scene, call)?;
    let undone = scene.rollback(1)?;
    equal(&between, &undone.after, "the second call taken back")?;
    if scene.at("f").symlink_metadata().is_err() {
        // What the first call would remove is gone already.
        return scene.rollback(1)?.lists(&[], &[]);
    }
    scene.rollback_conflicts(1, "f")?;
    equal(&between, &scene.tree(), "after the conflict")
}

fn in_one_turn(scene: &mut Scene<'_>) -> Outcome {
    scene.turn = Some("t");
    scene.w("f", "A\n")?;
    scene.p("f", "PERSON\n");
    scene.w("f", "B\n")?;
    scene.turn = None;
    scene.rollback_conflicts(1, "f")?;
    scene.forced_and_back(1)?.lists(&[], &["f"])
}

fn one_call(scene: &mut Scene<'_>) -> Outcome {
    scene.call = Some("c");
    scene.w("f", "A\n")?;
    scene.p("f", "PERSON\n");
    scene.w("f", "B\n")?;
    scene.call = None;
    scene.conflicts_at("f", "restore", &json!({ "scope_id": "c" }))?;
    let force = json!({ "scope_id": "c", "force": true });
    let forced = scene.undone("restore", &force)?;
    forced.lists(&[], &["f"])?;
    let back = scene.rollback(1)?;
    equal(&forced.before, &back.after, "the forced restore taken back")?;
    let forced = scene.undone("restore", &force)?;
    scene.back_by_snapshot(&forced)
}

fn another_session(scene: &mut Scene<'_>) -> Outcome {
    let mut other = scene.another();
    scene.w("f", "A\n")?;
    other.w("f", "THEIRS\n")?;
    scene.w("f", "B\n")?;
    scene.rollback_conflicts(2, "f")?;
    other.rollback_conflicts(1, "f")?;
    scene.forced_and_redone(2)?.lists(&[], &["f"])?;
    // One by one, the newest first.
    scene.rollback(1)?;
    scene.has("f", "THEIRS\n")?;
    other.rollback(1)?;
    scene.has("f", "A\n")?;
    scene.rollback(1)?;
    scene.lacks("f")
}

fn several_times(scene: &mut Scene<'_>) -> Outcome {
    for (agent, person) in [("A\n", "PERSON\n"), ("B\n", "PERSON again\n"), ("C\n", "PERSON at last\n")] {
        scene.w("f", agent)?;
        scene.p("f", person);
    }
    scene.w("f", "D\n")?;
    for turns in [4, 3, 2] {
        scene.rollback_conflicts(turns, "f")?;
    }
    scene.forced_and_redone(3)?;
    scene.has("f", "D\n")?;
    scene.rollback(1)?;
    scene.has("f", "PERSON at last\n")?;
    scene.rollback_conflicts(1, "f")
}

/// W `f` = A, P `f` = PERSON, W moves `f` to `g`, W `g` = B.
fn what_moved_on(scene: &mut Scene<'_>) -> Outcome {
    scene.w("f", "A\n")?;
    scene.p("f", "PERSON\n");
    scene.moves("f", "g")?;
    scene.w("g", "B\n")?;
    scene.rollback_conflicts(3, "f")?;
    scene.forced_and_redone(3)?.lists(&[], &["g"])?;
    scene.rollback(2)?.lists(&["f"], &["g"])?;
    scene.has("f", "PERSON\n")?;
    scene.rollback_conflicts(1, "f")
}

fn below_a_removed_folder(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/own", "own\n");
    scene.w("d/f", "A\n")?;
    scene.p("d/f", "PERSON\n");
    scene.remove("d")?;
    scene.rollback_conflicts(2, "d/f")?;
    scene.forced_and_back(2)?.lists(&["d", "d/own"], &[])
}

/// Commits of a staged session are calls like others.
fn staged(scene: &mut Scene<'_>) -> Outcome {
    let mut staged = scene.staged();
    staged.w("f", "A\n")?;
    staged.ok("staged.commit", json!({}))?;
    scene.p("f", "PERSON\n");
    staged.w("f", "B\n")?;
    staged.ok("staged.commit", json!({}))?;
    scene.has("f", "B\n")?;
    staged.rollback_conflicts(4, "f")?;
    scene.has("f", "B\n")?;
    staged.rollback(1)?;
    scene.has("f", "PERSON\n")?;
    staged.rollback(1)?;
    staged.rollback_conflicts(1, "f")?;
    scene.has("f", "PERSON\n")?;
    staged.force(1)?;
    scene.lacks("f")?;
    staged.redo(1)?;
    scene.has("f", "PERSON\n")
}

fn nobody_between(scene: &mut Scene<'_>) -> Outcome {
    scene.w("f", "A\n")?;
    scene.w("f", "B\n")?;
    let last = scene.tree();
    scene.rollback(2)?.lists(&[], &["f"])?;
    scene.redo(2)?;
    equal(&last, &scene.tree(), "after the redo")
}

fn elsewhere(scene: &mut Scene<'_>) -> Outcome {
    scene.w("f", "A\n")?;
    scene.p("g", "PERSON\n");
    // The same content again is no change.
    scene.p("f", "A\n");
    scene.w("f", "B\n")?;
    scene.rollback(2)?.lists(&[], &["f"])?;
    scene.has("g", "PERSON\n")
}

fn only_the_second(scene: &mut Scene<'_>) -> Outcome {
    scene.w("f", "A\n")?;
    scene.p("f", "PERSON\n");
    scene.w("f", "B\n")?;
    scene.rollback(1)?;
    scene.has("f", "PERSON\n")?;
    scene.redo(1)?;
    scene.has("f", "B\n")
}
