//! C30: a command whose changes cancel out changes nothing, and is no step of undo.

use aos_testkit::copy::{equal, set_xattr};
use aos_testkit::{Findings, Start, check};
use serde_json::json;

use super::scene::{Scene, Variant, each, each_with};
use crate::Outcome;
use crate::exec::room::ordinary;

pub(super) fn what_cancels_out_is_no_step() -> Outcome {
    let variants: &[Variant] = &[
        ("the finding", |scene| cancels_out(scene, &["cp -a d d2; rm -rf d; mv d2 d"])),
        ("touched only", |scene| cancels_out(scene, TOUCHED)),
        ("modes there and back", |scene| cancels_out(scene, MODES)),
        ("the same bytes", |scene| cancels_out(scene, SAME_BYTES)),
        ("names there and back", |scene| cancels_out(scene, NAMES)),
        ("made and removed", |scene| cancels_out(scene, MADE)),
        ("replaced by the same", |scene| cancels_out(scene, REPLACED)),
        ("in one turn with others", in_one_turn),
        ("rolled back through", rolled_back_through),
        ("what can be redone stays", what_can_be_redone_stays),
        ("control: one path differs", one_path_differs),
        ("control: nothing but a change", a_change),
    ];
    let mut findings = Findings::default();
    findings.add(each(variants));
    let as_a_user = |start: Start| each_with(start, variants).map_err(|why| format!("as a user: {why}"));
    findings.add(as_a_user(ordinary()));
    findings.outcome()
}

const TOUCHED: &[&str] =
    &["touch f", "touch -d 2001-02-03T04:05:06 f d/x", "touch d", "touch -d 2001-02-03 d d/sub"];
const MODES: &[&str] = &[
    "chmod 600 f; chmod 644 f",
    "chmod 700 d; chmod 750 d",
    "chmod -R go-rwx d; chmod 750 d; chmod 755 d/sub; chmod 644 d/x d/sub/y",
];
const SAME_BYTES: &[&str] = &[
    "printf 'one\\n' > f",
    "cat f > t; cat t > f; rm t",
    "printf 'x\\nmore\\n' > d/x; printf 'x\\n' > d/x",
    "sed -i s/absent/else/ g",
];
const NAMES: &[&str] = &[
    "mv f t; mv t f",
    "mv d t; mv t d",
    "mv d/sub t; mv t d/sub",
    "mv f t; mv g f; mv f g; mv t f",
    "mv l t; mv t l",
];
const MADE: &[&str] = &[
    "mkdir n; rmdir n",
    ": > t; rm t",
    "mkdir -p n/m; : > n/m/x; rm -r n",
    "ln -s x n; rm n",
    "ln f t; rm t",
];
const REPLACED: &[&str] = &[
    "cp -a f t; rm f; mv t f",
    "rm l; ln -s f l",
    "tar cf t.tar d; rm -rf d; tar xpf t.tar; rm t.tar",
    "rm -rf d/sub; mkdir -m 755 d/sub; printf 'y\\n' > d/sub/y; chmod 644 d/sub/y",
    "mv f t; mv t f; exit 3",
];

fn furnish(scene: &Scene<'_>) {
    for (path, content) in [("f", "one\n"), ("g", "two\n"), ("d/x", "x\n"), ("d/sub/y", "y\n")] {
        scene.p(path, content);
        scene.p_chmods(path, 0o644);
    }
    scene.p_chmods("d", 0o750);
    scene.p_chmods("d/sub", 0o755);
    scene.p_links("f", "l");
    set_xattr(&scene.at("f"), "user.kept", b"kept");
}

fn cancels_out(scene: &mut Scene<'_>, scripts: &[&str]) -> Outcome {
    furnish(scene);
    scene.w("marker", "marker\n")?;
    let (before, mut turns) = (scene.tree(), scene.turns());
    let mut findings = Findings::default();
    for script in scripts {
        let receipt = scene.ok("exec", json!({ "argv": ["sh", "-c", script] }))?;
        equal(&before, &scene.tree(), script)?;
        let is_nothing = receipt["changed_paths"] == json!([])
            && receipt["changed_paths_count"] == 0
            && receipt.get("snapshot_id").is_none();
        findings.add(check(is_nothing, || {
            let (paths, snapshot) = (&receipt["changed_paths"], &receipt["snapshot_id"]);
            format!("{script}: changed_paths {paths}, snapshot_id {snapshot}")
        }));
        let now = scene.turns();
        findings.add(check(now == turns, || format!("{script}: it is a step of undo")));
        turns = now;
    }
    // The newest step is the marker.
    findings.outcome()?;
    scene.rollback(1)?.lists(&[], &["marker"])
}

const NOTHING: &str = "cp -a d d2; rm -rf d; mv d2 d";

fn in_one_turn(scene: &mut Scene<'_>) -> Outcome {
    furnish(scene);
    let before = scene.tree();
    scene.turn = Some("t");
    scene.sh(NOTHING)?;
    scene.w("d/x", "2\n")?;
    scene.sh(NOTHING)?;
    scene.w("new", "new\n")?;
    scene.turn = None;
    let undone = scene.rollback(1)?;
    undone.lists(&["d/x"], &["new"])?;
    equal(&before, &undone.after, "after the rollback")
}

/// The person wrote before the command, which did not change that: the turns before it can be taken back as if it had
/// not run.
fn rolled_back_through(scene: &mut Scene<'_>) -> Outcome {
    furnish(scene);
    scene.w("d/x", "2\n")?;
    scene.p("d/own", "PERSON\n");
    scene.sh(NOTHING)?;
    scene.rollback(1)?.lists(&["d/x"], &[])?;
    scene.has("d/x", "x\n")?;
    scene.has("d/own", "PERSON\n")
}

fn what_can_be_redone_stays(scene: &mut Scene<'_>) -> Outcome {
    furnish(scene);
    scene.w("g", "2\n")?;
    scene.rollback(1)?;
    scene.sh(NOTHING)?;
    scene.redo(1)?.lists(&["g"], &[])
}

fn one_path_differs(scene: &mut Scene<'_>) -> Outcome {
    furnish(scene);
    let before = scene.tree();
    let receipt = scene.sh("cp -a d d2; echo 2 > d2/x; rm -rf d; mv d2 d")?;
    check(receipt["changed_paths"].to_string().contains("d/x"), || receipt.to_string())?;
    scene.rollback(1)?;
    equal(&before, &scene.tree(), "after the rollback")
}

fn a_change(scene: &mut Scene<'_>) -> Outcome {
    furnish(scene);
    let turns = scene.turns();
    let receipt = scene.sh("echo 2 > g")?;
    check(receipt["changed_paths"] == json!(["g"]) && receipt["snapshot_id"].is_string(), || {
        receipt.to_string()
    })?;
    check(scene.turns() == turns + 1, || "it is no turn".into())?;
    scene.rollback(1)?.lists(&["g"], &[])
}
