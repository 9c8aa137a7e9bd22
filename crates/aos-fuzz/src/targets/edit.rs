//! Edits: an exact edit equals `str::replace`, and every other edit replaces one place and nothing else.

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

/// A replacement that can be found in the result.
const MARK: &str = "<\u{1}new\u{1}>";

/// The parts: the text, `old`, `new`, and `all` for `replace_all`.
fn run(data: &[u8]) -> Shape {
    let whole = String::from_utf8_lossy(data);
    let [text, old, new, every] = parts(&whole);
    let replace_all = every.starts_with("all");
    let edits = [Edit { old, new, replace_all }];
    let edited = edit(text, &edits);
    assert_eq!(edited, edit(text, &edits), "the edit is not deterministic");
    let shape = Shape::default().with(replace_all).about(text.lines().count());
    match &edited {
        Ok(edited) => {
            check_exact(text, &edits[0], edited);
            check_one_place(text, old);
            shape.with(edited.kind.as_str()).about(edited.replacements as usize)
        }
        Err(error) => check_error(text, &edits[0], error, shape),
    }
}

fn check_exact(text: &str, edit: &Edit<'_>, edited: &Edited) {
    assert!(edited.replacements > 0 && !edit.old.is_empty());
    assert!(edit.replace_all || edited.replacements == 1);
    // A match never splits `\r\n`, so with `\r` in the text the standard library finds more.
    let count = if text.contains('\r') { 0 } else { text.matches(edit.old).count() as u64 };
    if count > 0 {
        assert_eq!(edited.kind, MatchKind::Exact, "a looser match than the exact one");
        assert_eq!(edited.replacements, count);
        let replaced = text.replace(edit.old, edit.new);
        // The line ends of `new` are adapted to the text; nothing else may differ.
        assert!(edit.new.contains('\r') || edited.text == replaced, "{:?}", edited.text);
    }
}

/// The text before and after the place is unchanged.
fn check_one_place(text: &str, old: &str) {
    if text.contains(MARK) || old.contains(MARK) {
        return;
    }
    if let Ok(edited) = edit(text, &[Edit { old, new: MARK, replace_all: false }]) {
        let (before, after) = edited.text.split_once(MARK).expect("the replacement is in the result");
        assert!(text.starts_with(before.trim_end()), "the text before the place changed");
        assert!(text.ends_with(after), "the text after the place changed");
    }
}

fn check_error(text: &str, edit: &Edit<'_>, error: &EditError, shape: Shape) -> Shape {
    assert!(!error.to_string().is_empty());
    match error {
        EditError::EmptyOld { .. } => assert!(edit.old.is_empty()),
        EditError::NotFound { already_applied, .. } => {
            assert!(text.contains('\r') || !text.contains(edit.old), "old occurs in the text");
            let returns = text.contains('\r') || edit.new.contains('\r');
            assert!(!already_applied || returns || text.matches(edit.new).count() == 1);
        }
        EditError::Ambiguous { lines, count, .. } => {
            assert!(*count > 1 && !edit.replace_all && lines.len() as u64 <= *count);
            // A lone `\r` ends a line too.
            let lines_max = text.split(['\n', '\r']).count();
            assert!(lines.is_sorted() && lines.iter().all(|line| *line <= lines_max), "{lines:?}");
        }
        EditError::TooLarge { .. } => panic!("a small text grew too large"),
    }
    shape.message(&error.to_string())
}
