//! C28: the lists of an undo are exactly the difference of the trees before and after it, in dry runs too.

use serde_json::json;

use super::scene::{Scene, Variant, each};
use crate::Outcome;

pub(super) fn the_lists_are_the_difference() -> Outcome {
    let variants: &[Variant] = &[
        ("the finding", the_finding),
        ("a moved folder", a_moved_folder),
        ("a moved folder with the person's files", a_moved_folder_with_more),
        ("folders made by create_parents", made_by_create_parents),
        ("folders made by make_dir", made_by_make_dir),
        ("folders made by a patch", made_by_a_patch),
        ("made folders that stay", made_and_filled),
        ("a patch through a link", a_patch_through_a_link),
        ("a write through a linked folder", through_a_linked_folder),
        ("a removed folder", a_removed_folder),
        ("a command", a_command),
        ("a folder in place of a link", a_folder_in_place_of_a_link),
        ("some paths", some_paths),
        ("more than a receipt lists", more_than_a_receipt_lists),
        ("what is restored already", restored_already),
        ("control: writes", writes),
    ];
    each(variants)
}

fn the_finding(scene: &mut Scene<'_>) -> Outcome {
    scene.w("f", "A\n")?;
    scene.p_removes("f");
    scene.p("f/in", "PERSON\n");
    scene.p("f/sub/deep", "PERSON\n");
    scene.rollback_conflicts(1, "f")?;
    scene.force(1)?.lists(&[], &["f", "f/in", "f/sub", "f/sub/deep"])?;
    scene.redo(1)?.lists(&["f", "f/in", "f/sub", "f/sub/deep"], &[])
}

fn a_moved_folder(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/x", "x\n");
    scene.p("d/sub/y", "y\n");
    scene.moves("d", "e")?;
    let (old, new) = (["d", "d/sub", "d/sub/y", "d/x"], ["e", "e/sub", "e/sub/y", "e/x"]);
    scene.rollback(1)?.lists(&old, &new)?;
    scene.redo(1)?.lists(&new, &old)
}

fn a_moved_folder_with_more(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/x", "x\n");
    scene.moves("d", "e")?;
    scene.p("e/own", "PERSON\n");
    scene.p("e/x", "PERSON\n");
    let (old, new) = (["d", "d/own", "d/x"], ["e", "e/own", "e/x"]);
    scene.force(1)?.lists(&old, &new)?;
    scene.has("d/x", "PERSON\n")?;
    scene.redo(1)?.lists(&new, &old)
}

fn made_by_create_parents(scene: &mut Scene<'_>) -> Outcome {
    scene.w("n/m/x", "1\n")?;
    scene.rollback(1)?.lists(&[], &["n", "n/m", "n/m/x"])?;
    scene.redo(1)?.lists(&["n", "n/m", "n/m/x"], &[])
}

fn made_by_make_dir(scene: &mut Scene<'_>) -> Outcome {
    scene.ok("fs.make_dir", json!({ "path": "n/m/o", "parents": true }))?;
    scene.rollback(1)?.lists(&[], &["n", "n/m", "n/m/o"])?;
    scene.redo(1)?.lists(&["n", "n/m", "n/m/o"], &[])
}

fn made_by_a_patch(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "one\n");
    scene.patch("*** Add File: n/m/x\n+1\n*** Update File: f\n*** Move to: o/f\n@@\n-one\n+two\n")?;
    scene.rollback(1)?.lists(&["f"], &["n", "n/m", "n/m/x", "o", "o/f"])?;
    scene.redo(1)?.lists(&["n", "n/m", "n/m/x", "o", "o/f"], &["f"])
}

fn made_and_filled(scene: &mut Scene<'_>) -> Outcome {
    scene.w("n/m/x", "1\n")?;
    scene.p("n/own", "PERSON\n");
    scene.rollback(1)?.lists(&[], &["n/m", "n/m/x"])?;
    scene.redo(1)?.lists(&["n/m", "n/m/x"], &[])
}

fn a_patch_through_a_link(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "one\n");
    scene.p_links("f", "l");
    scene.patch("*** Update File: l\n@@\n-one\n+two\n")?;
    scene.has("f", "two\n")?;
    scene.rollback(1)?.lists(&["f"], &[])?;
    scene.redo(1)?.lists(&["f"], &[])
}

fn through_a_linked_folder(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/x", "one\n");
    scene.p_links("d", "l");
    scene.w("l/x", "two\n")?;
    scene.w("l/n/new", "new\n")?;
    scene.patch("*** Update File: l/x\n@@\n-two\n+three\n")?;
    scene.rollback(1)?.lists(&["d/x"], &[])?;
    scene.rollback(1)?.lists(&[], &["d/n", "d/n/new"])?;
    scene.rollback(1)?.lists(&["d/x"], &[])?;
    scene.redo(3)?.lists(&["d/n", "d/n/new", "d/x"], &[])
}

fn a_removed_folder(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/x", "x\n");
    scene.p("d/sub/y", "y\n");
    scene.p_links("x", "d/l");
    scene.remove("d")?;
    let all = ["d", "d/l", "d/sub", "d/sub/y", "d/x"];
    scene.rollback(1)?.lists(&all, &[])?;
    scene.redo(1)?.lists(&[], &all)
}

fn a_command(scene: &mut Scene<'_>) -> Outcome {
    scene.p("d/x", "x\n");
    scene.p("d/sub/y", "y\n");
    scene.p("k/in", "in\n");
    scene.p("f", "one\n");
    scene.p("to-folder", "one\n");
    scene.p("to-file/in", "in\n");
    scene.sh(
        "mv d e; echo two > f; mkdir -p n/m; : > n/m/x; chmod 700 k; ln -s f l; rm to-folder; mkdir to-folder; \
         : > to-folder/in; rm -r to-file; : > to-file",
    )?;
    let undone = scene.rollback(1)?;
    undone.lists(
        &["d", "d/sub", "d/sub/y", "d/x", "f", "k", "to-file", "to-file/in", "to-folder"],
        &["e", "e/sub", "e/sub/y", "e/x", "l", "n", "n/m", "n/m/x", "to-folder/in"],
    )?;
    scene.redo(1)?.lists_fit()
}

fn a_folder_in_place_of_a_link(scene: &mut Scene<'_>) -> Outcome {
    scene.p_links("elsewhere", "l");
    scene.remove("l")?;
    scene.p("l/in", "PERSON\n");
    scene.rollback_conflicts(1, "l")?;
    scene.force(1)?.lists(&["l"], &["l/in"])?;
    scene.redo(1)?.lists(&["l", "l/in"], &[])
}

fn some_paths(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "one\n");
    scene.call = Some("c");
    scene.w("f", "two\n")?;
    scene.w("n/m/x", "new\n")?;
    scene.w("n/y", "new\n")?;
    scene.call = None;
    let restore = |path: &str| json!({ "scope_id": "c", "paths": [path] });
    scene.undone("restore", &restore("n/m"))?.lists(&[], &["n/m", "n/m/x"])?;
    scene.undone("restore", &restore("f"))?.lists(&["f"], &[])?;
    scene.undone("restore", &restore("n"))?.lists(&[], &["n", "n/y"])?;
    scene.undone("restore", &restore("nothing"))?.lists(&[], &[])
}

fn more_than_a_receipt_lists(scene: &mut Scene<'_>) -> Outcome {
    for number in 0..1_100 {
        scene.p(&format!("d/{}/f{number}", number % 7), &format!("{number}\n"));
    }
    scene.remove("d")?;
    scene.rollback(1)?.lists_fit()?;
    scene.moves("d", "e")?;
    scene.rollback(1)?.lists_fit()?;
    scene.redo(1)?.lists_fit()
}

fn restored_already(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "one\n");
    scene.w("f", "two\n")?;
    scene.w("new", "new\n")?;
    scene.p("f", "one\n");
    scene.p_removes("new");
    scene.rollback(2)?.lists(&[], &[])
}

fn writes(scene: &mut Scene<'_>) -> Outcome {
    scene.p("f", "one\n");
    scene.w("f", "two\n")?;
    scene.w("new", "new\n")?;
    scene.rollback(2)?.lists(&["f"], &["new"])?;
    scene.redo(2)?.lists(&["f", "new"], &[])
}
