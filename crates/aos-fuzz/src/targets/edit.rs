//! Edits: exact ones are those of the standard library, the others replace one place and nothing else.

use aos_model::edit::{Edit, EditError, Edited, MatchKind, edit};

use super::{Target, parts};
use crate::Shape;

pub(super) const TARGET: Target = Target {
    name: "edit",
    run,
    dictionary: &[
        "\n%%\n",
        "    ",
        "  ",
        "\t",
        "“",
        "”",
        "\"",
        "’",
        "'",
        "–",
        "—",
        "-",
        "…",
        "\u{a0}",
        "\u{3000}",
        "fn a() {\n",
        "}\n",
        "let x = 1;",
        "all",
    ],
};

/// A new text that is known again wherever it lands.
const MARK: &str = "<\u{1}new\u{1}>";

/// The parts: the text, what is looked for, what comes in its place, and `all` for every place.
fn run(data: &[u8]) -> Shape {
    let whole = String::from_utf8_lossy(data);
    let [text, old, new, every] = parts(&whole);
    let replace_all = every.starts_with("all");
    let edits = [Edit { old, new, replace_all }];
    let edited = edit(text, &edits);
    assert_eq!(edited, edit(text, &edits), "two answers to one edit");
    let shape = Shape::default().with(replace_all).about(text.lines().count());
    match &edited {
        Ok(edited) => {
            exact(text, &edits[0], edited);
            one_place(text, old);
            shape.with(edited.kind.as_str()).about(edited.replacements as usize)
        }
        Err(error) => failed(text, &edits[0], error, shape),
    }
}

fn exact(text: &str, edit: &Edit<'_>, edited: &Edited) {
    assert!(edited.replacements > 0 && !edit.old.is_empty());
    assert!(edit.replace_all || edited.replacements == 1);
    // Half a line end is no place, so with `\r` in it the library finds more.
    let there = if text.contains('\r') { 0 } else { text.matches(edit.old).count() as u64 };
    if there > 0 {
        assert_eq!(edited.kind, MatchKind::Exact, "a weaker match than there is");
        assert_eq!(edited.replacements, there);
        let by_the_library = text.replace(edit.old, edit.new);
        // The line ends of a new text follow the file's; nothing else may differ.
        assert!(edit.new.contains('\r') || edited.text == by_the_library, "{:?}", edited.text);
    }
}

/// What stands before and after the place stays, byte for byte.
fn one_place(text: &str, old: &str) {
    if text.contains(MARK) || old.contains(MARK) {
        return;
    }
    if let Ok(edited) = edit(text, &[Edit { old, new: MARK, replace_all: false }]) {
        let (before, after) = edited.text.split_once(MARK).expect("the new text is in the result");
        assert!(text.starts_with(before.trim_end()), "the text before the place changed");
        assert!(text.ends_with(after), "the text after the place changed");
    }
}

fn failed(text: &str, edit: &Edit<'_>, error: &EditError, shape: Shape) -> Shape {
    assert!(!error.to_string().is_empty());
    match error {
        EditError::EmptyOld { .. } => assert!(edit.old.is_empty()),
        EditError::NotFound { already_applied, .. } => {
            assert!(text.contains('\r') || !text.contains(edit.old), "it stands there");
            let returns = text.contains('\r') || edit.new.contains('\r');
            assert!(!already_applied || returns || text.matches(edit.new).count() == 1);
        }
        EditError::Ambiguous { lines, count, .. } => {
            assert!(*count > 1 && !edit.replace_all && lines.len() as u64 <= *count);
            // A `\r` alone ends a line, too.
            let lines_max = text.split(['\n', '\r']).count();
            assert!(lines.is_sorted() && lines.iter().all(|line| *line <= lines_max), "{lines:?}");
        }
        EditError::TooLarge { .. } => panic!("a small text grew too large"),
    }
    shape.message(&error.to_string())
}
