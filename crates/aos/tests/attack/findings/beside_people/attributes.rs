//! C29: an attribute or an ACL that the person set counts like content.

use aos_testkit::copy::{equal, remove_xattr, same, set_acl};
use aos_testkit::{check, patch_params};
use serde_json::json;

use super::scene::{Scene, Variant, each};
use crate::Outcome;

pub(super) fn attributes_count_like_content() -> Outcome {
    let variants: &[Variant] = &[
        ("the finding", the_finding),
        ("on a file of another call", of_an_older_file),
        ("by a command", by_a_command),
        ("by a patch", by_a_patch),
        ("on a folder that was made", on_a_made_folder),
        ("on a folder whose mode a command changed", on_a_changed_folder),
        ("removed by the person", removed_by_the_person),
        ("with another value", another_value),
        ("between two calls", between_two_calls),
        ("on a file in place of a removed one", in_place_of_a_removed_one),
        ("on a moved file", on_a_moved_file),
        ("before a redo", before_a_redo),
        ("an ACL", an_acl),
        ("a default ACL of a folder", a_default_acl),
        ("of a folder that is closed to its owner", of_a_closed_folder),
        ("control: the mode", the_mode),
        ("control: only touched", only_touched),
    ];
    each(variants)
}

const NOTE: (&str, &[u8]) = ("user.note", b"PERSON");

fn note(scene: &Scene<'_>, path: &str) -> Outcome {
    scene.p_sets(path, NOTE.0, NOTE.1)
}

fn the_finding(scene: &mut Scene<'_>) -> Outcome {
    scene.w("f", "A\n")?;
    note(scene, "f")?;
    scene.rollback_conflicts(1, "f")?;
    scene.forced_and_back(1)?.lists(&[], &["f"])
}

fn of_an_older_file(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    scene.p_sets("f", "user.kept", b"kept")?;
    scene.w("f", "A\n")?;
    note(scene, "f")?;
    scene.rollback_conflicts(1, "f")?;
    scene.forced_and_back(1)?.lists(&["f"], &[])
}

fn by_a_command(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    scene.p("g", "0\n");
    scene.sh("echo A > f; chmod 600 g; echo A > new")?;
    for path in ["f", "g", "new"] {
        note(scene, path)?;
        scene.rollback_conflicts(1, path)?;
    }
    scene.forced_and_back(1)?.lists(&["f", "g"], &["new"])
}

fn by_a_patch(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    scene.ok("fs.apply_patch", patch_params("*** Update File: f\n@@\n-0\n+A\n*** Add File: n\n+A\n"))?;
    for path in ["f", "n"] {
        note(scene, path)?;
        scene.rollback_conflicts(1, path)?;
    }
    scene.forced_and_back(1)?.lists(&["f"], &["n"])
}

fn on_a_made_folder(scene: &mut Scene<'_>) -> Outcome {
    scene.ok("fs.make_dir", json!({ "path": "d" }))?;
    note(scene, "d")?;
    scene.rollback_conflicts(1, "d")?;
    scene.forced_and_back(1)?.lists(&[], &["d"])?;
    scene.w("n/x", "A\n")?;
    note(scene, "n")?;
    scene.rollback_conflicts(1, "n")?;
    scene.forced_and_redone(1)?.lists(&[], &["n", "n/x"])
}

/// It may be a conflict, or the mode goes back and the attribute stays.
fn on_a_changed_folder(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/x", "x\n");
    scene.p_chmods("d", 0o755);
    scene.sh("chmod 700 d")?;
    note(scene, "d")?;
    let undone = scene.undo("rollback", &json!({}))?;
    if undone.receipt["status"] != "ok" {
        scene.rollback_conflicts(1, "d")?;
        return scene.forced_and_back(1)?.lists(&["d"], &[]);
    }
    undone.lists(&["d"], &[])?;
    check(remove_xattr(&scene.at("d"), NOTE.0), || "the attribute is lost".into())?;
    scene.p_sets("d", NOTE.0, NOTE.1)?;
    let redone = scene.redo(1)?;
    equal(&undone.before, &redone.after, "after the redo")
}

fn removed_by_the_person(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    note(scene, "f")?;
    scene.w("f", "A\n")?;
    check(remove_xattr(&scene.at("f"), NOTE.0), || "the write did not keep the attribute".into())?;
    scene.rollback_conflicts(1, "f")?;
    scene.forced_and_back(1)?.lists(&["f"], &[])
}

fn another_value(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    note(scene, "f")?;
    scene.w("f", "A\n")?;
    scene.p_sets("f", NOTE.0, b"PERSON again")?;
    scene.rollback_conflicts(1, "f")?;
    scene.forced_and_back(1)?.lists(&["f"], &[])
}

fn between_two_calls(scene: &mut Scene<'_>) -> Outcome {
    scene.w("f", "A\n")?;
    note(scene, "f")?;
    scene.w("f", "B\n")?;
    scene.rollback_conflicts(2, "f")?;
    scene.rollback(1)?;
    scene.has("f", "A\n")?;
    scene.rollback_conflicts(1, "f")?;
    scene.redo(1)?;
    scene.forced_and_back(2)?.lists(&[], &["f"])
}

fn in_place_of_a_removed_one(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    scene.remove("f")?;
    scene.p("f", "0\n");
    note(scene, "f")?;
    scene.rollback_conflicts(1, "f")?;
    scene.forced_and_back(1)?.lists(&["f"], &[])
}

/// It may be a conflict, or the file goes back with its attribute.
fn on_a_moved_file(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    scene.moves("f", "g")?;
    note(scene, "g")?;
    let undone = scene.undo("rollback", &json!({}))?;
    if undone.receipt["status"] == "ok" {
        undone.lists(&["f"], &["g"])?;
        return check(same(undone.before.get("g"), undone.after.get("f")), || "the attribute is lost".into());
    }
    scene.rollback_conflicts(1, "g")?;
    let forced = scene.forced_and_back(1)?;
    check(same(forced.before.get("g"), forced.after.get("f")), || "the attribute is lost".into())
}

fn before_a_redo(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    scene.w("f", "A\n")?;
    scene.rollback(1)?;
    note(scene, "f")?;
    scene.conflicts_at("f", "redo", &json!({}))?;
    let forced = scene.undone("redo", &json!({ "force": true }))?;
    forced.lists(&["f"], &[])?;
    scene.back_by_snapshot(&forced)
}

const ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// Whether the file system has ACLs. If not, the cases that need them say so.
fn has_acls(scene: &Scene<'_>) -> bool {
    scene.p("probe", "");
    let has_acls = set_acl(&scene.at("probe"), ACL);
    scene.p_removes("probe");
    if !has_acls {
        println!("C29: ACLs are not tested: the file system of the temporary folder has none");
    }
    has_acls
}

fn an_acl(scene: &mut Scene<'_>) -> Outcome {
    if !has_acls(scene) {
        return Ok(());
    }
    scene.w("f", "A\n")?;
    scene.ok("fs.make_dir", json!({ "path": "d" }))?;
    for (turns, path) in [(1, "d"), (2, "f")] {
        set_acl(&scene.at(path), ACL);
        scene.rollback_conflicts(turns, path)?;
    }
    scene.forced_and_back(2)?.lists(&[], &["d", "f"])
}

fn a_default_acl(scene: &mut Scene<'_>) -> Outcome {
    if !has_acls(scene) {
        return Ok(());
    }
    scene.w("d/x", "A\n")?;
    set_acl(&scene.at("d"), DEFAULT_ACL);
    scene.rollback_conflicts(1, "d")?;
    scene.forced_and_back(1)?.lists(&[], &["d", "d/x"])
}

/// Undo restores what such a folder has: an ACL does not keep the other attributes out.
fn of_a_closed_folder(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/x", "x\n");
    note(scene, "d")?;
    if has_acls(scene) {
        set_acl(&scene.at("d"), ACL);
    }
    scene.p_chmods("d", 0o500);
    let before = scene.tree();
    let remove = json!({ "path": "d", "recursive": true });
    scene.as_call("c", "fs.remove", remove)?;
    scene.rollback(1)?;
    equal(&before, &scene.tree(), "after the rollback")?;
    scene.again(&json!({ "scope_id": "c", "force": true }))?;
    scene.p_chmods("d", 0o700);
    Ok(())
}

fn the_mode(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    scene.w("f", "A\n")?;
    scene.p_chmods("f", 0o600);
    scene.rollback_conflicts(1, "f")?;
    scene.forced_and_redone(1)?;
    Ok(())
}

fn only_touched(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "0\n");
    scene.w("f", "A\n")?;
    scene.w("n/x", "A\n")?;
    let file = std::fs::File::options().append(true).open(scene.at("f")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    scene.p("n/aside", "");
    scene.p_removes("n/aside");
    scene.rollback(2)?;
    scene.has("f", "0\n")?;
    scene.lacks("n")
}
