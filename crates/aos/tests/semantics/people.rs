//! Undo as people use it, from the command line.

use aos_testkit::{Start, text, tree};
use serde_json::json;

use crate::prepared;

#[test]
fn people_look_take_back_and_do_again() {
    let world = prepared(Start::default());
    let session = world.open(json!({}));
    let before = tree(&world.root);
    let (code, history, told) = world.aos(&["history", "-s", &session]);
    assert!(code == 0 && history.is_empty() && told.contains("has changed nothing yet"), "{history}{told}");
    let write = json!({ "session_id": session, "path": "f", "content": text("one\n2\n") });
    assert_eq!(world.client().effect_of("host.fs.write_file", write, Some("edit"))["status"], "ok");
    let edited = tree(&world.root);
    let remove = json!({ "session_id": session, "path": "d", "recursive": true });
    assert_eq!(world.client().effect_of("host.fs.remove", remove, Some("clean"))["status"], "ok");
    let removed = tree(&world.root);
    let aos = |words: &[&str]| world.aos(&[words, &["-s", &session]].concat());

    let (code, history, _) = aos(&["history"]);
    assert_eq!(code, 0);
    for piece in ["edit", "changed  f  +1 -1", "clean", "removed  d", "done"] {
        assert!(history.contains(piece), "`{piece}` is not in:\n{history}");
    }
    assert!(aos(&["diff", "edit"]).1.contains("-two\n+2\n"));
    let (_, diff, _) = aos(&["diff", "clean"]);
    assert!(diff.contains("removed folder d\n--- a/d/inner\n+++ /dev/null\n"), "{diff}");

    let (code, shown, _) = aos(&["undo", "--dry-run"]);
    assert!(code == 0 && shown.contains("restore  d/inner"), "{shown}");
    assert_eq!(tree(&world.root), removed, "a dry run changed something");
    let (code, _, complaint) = aos(&["undo"]);
    assert!(code != 0 && complaint.contains("--yes"), "nobody is there to be asked: {complaint}");
    assert_eq!(tree(&world.root), removed);

    assert_eq!(aos(&["undo", "--yes"]).0, 0);
    assert_eq!(tree(&world.root), edited);
    assert_eq!(aos(&["undo", "--yes"]).0, 0);
    assert_eq!(tree(&world.root), before);
    assert!(aos(&["history"]).1.contains("undone"));
    for expected in [&edited, &removed] {
        assert_eq!(aos(&["redo", "--yes"]).0, 0);
        assert_eq!(tree(&world.root), *expected);
    }
    assert_eq!(aos(&["undo", "edit", "--yes"]).0, 0, "one call alone, whatever came after");
    assert_eq!(world.read("f"), b"one\ntwo\n");
    world.finish().unwrap();
}
