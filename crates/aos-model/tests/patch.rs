//! Patches through the public interface: scenario folders, and properties over random patches and files.
//!
//! A folder of `patch_scenarios` holds `patch.txt`, the files before (`input/`) and after (`expected/`), and
//! the messages if any: `warnings.txt` (`code: message`) or, instead of `expected/`, `expected_error.txt`.
#![allow(clippy::disallowed_methods, reason = "a test reads its own scenarios")]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::path::Path;

use aos_model::patch::{FilesBefore, Plan, parse, plan};
use proptest::prelude::*;
use similar::{ChangeTag, TextDiff};

type Tree = BTreeMap<String, Vec<u8>>;

struct OnDisk<'a>(&'a Tree);

impl FilesBefore for OnDisk<'_> {
    type Error = Infallible;

    fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.get(path).cloned())
    }
}

/// Parses and plans a patch. The error has one message per line.
fn plan_text(patch: &str, before: &Tree) -> Result<Plan, String> {
    let patch = parse(patch).map_err(|error| error.to_string())?;
    plan(&patch, &mut OnDisk(before))
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn carry_out(plan: &Plan, tree: &mut Tree) {
    for change in &plan.changes {
        assert_eq!(tree.contains_key(&change.path), change.before, "whether {} was there", change.path);
        match &change.after {
            Some(bytes) => tree.insert(change.path.clone(), bytes.clone()),
            None => tree.remove(&change.path),
        };
    }
}

#[test]
fn scenarios() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/patch_scenarios");
    let mut folders: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    assert!(!folders.is_empty());
    let failures: Vec<String> = folders.iter().flat_map(|folder| failures_of(folder)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn failures_of(folder: &Path) -> Vec<String> {
    let name = folder.file_name().unwrap().to_string_lossy();
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let mut tree = tree_of(&folder.join("input"));
    let mut expected = tree_of(&folder.join("expected"));
    let mut warnings = String::new();
    let mut error = String::new();
    match plan_text(&read("patch.txt"), &tree) {
        Ok(plan) => {
            carry_out(&plan, &mut tree);
            for warning in &plan.warnings {
                warnings += &format!("{}: {}\n", warning.code, warning.message);
            }
        }
        Err(message) => {
            expected.clone_from(&tree);
            error = message + "\n";
        }
    }
    let mut failures = Vec::new();
    for (file, got) in [("warnings.txt", warnings), ("expected_error.txt", error)] {
        if got != read(file) {
            failures.push(format!("{name}/{file}:\n  expected {:?}\n  got      {got:?}", read(file)));
        }
    }
    let files: BTreeSet<_> = tree.keys().chain(expected.keys()).collect();
    for file in files {
        let show = |tree: &Tree| {
            tree.get(file).map_or("no file".into(), |bytes| format!("\"{}\"", bytes.escape_ascii()))
        };
        if tree.get(file) != expected.get(file) {
            let (expected, got) = (show(&expected), show(&tree));
            failures.push(format!("{name}/expected/{file}:\n  expected {expected}\n  got      {got}"));
        }
    }
    failures
}

fn tree_of(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        // Git does not store empty folders, so an absent folder is an empty one.
        let Ok(entries) = fs::read_dir(&next) else { continue };
        for entry in entries.map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                open.push(entry);
            } else {
                let path = entry.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                tree.insert(path, fs::read(&entry).unwrap());
            }
        }
    }
    tree
}

/// A quadratic search would take hours here.
#[test]
fn identical_lines_take_linear_time() {
    let tree =
        Tree::from([("f".to_owned(), b"x\n".repeat(200_000)), ("g".to_owned(), b"\n".repeat(200_000))]);
    for (path, context) in [("f", " x\n"), ("g", "\n")] {
        let hunk = context.repeat(10_000);
        let text = format!("*** Begin Patch\n*** Update File: {path}\n@@\n{hunk}-z\n*** End Patch\n");
        let error = plan_text(&text, &tree).unwrap_err();
        assert!(error.contains("it expects `z` at line 10001"), "{error}");
    }
}

/// Texts of few distinct lines, so that contexts repeat, with and without a final line end.
fn text() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "",
        "a",
        "b",
        "  a",
        "\ta",
        "a ",
        "x – y",
        "x - y",
        "“q”",
        "é",
        "*** End Patch",
        "@@",
        "+",
        "-a",
    ]);
    (prop::collection::vec(line, 0..12), any::<bool>()).prop_map(|(lines, ended)| {
        let text = lines.join("\n");
        if ended && !lines.is_empty() { text + "\n" } else { text }
    })
}

/// One hunk with the whole of `old`, so that only one place matches.
fn whole_patch(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let diff = TextDiff::from_slices(&old, &new);
    let lines = diff.iter_all_changes().map(|change| {
        let marker = match change.tag() {
            ChangeTag::Equal => ' ',
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        format!("{marker}{}\n", change.value())
    });
    format!("*** Begin Patch\n*** Update File: f\n@@\n{}*** End Patch\n", lines.collect::<String>())
}

/// Hunks with three lines of context, which are unique if the lines are.
fn narrow_patch(old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new).unified_diff().context_radius(3).to_string();
    let lines = diff.lines().map(|line| if line.starts_with("@@") { "@@" } else { line });
    format!("*** Begin Patch\n*** Update File: f\n{}\n*** End Patch\n", lines.collect::<Vec<_>>().join("\n"))
}

fn applied(patch: &str, old: &str) -> Result<String, String> {
    let mut tree = Tree::from([("f".to_owned(), old.as_bytes().to_vec())]);
    carry_out(&plan_text(patch, &tree)?, &mut tree);
    Ok(String::from_utf8(tree.remove("f").unwrap()).unwrap())
}

/// A patch cannot express a missing final line end: it stays missing if the last line stays.
fn with_last_line_end(old: &str, new: &str) -> String {
    let stays = !old.ends_with('\n') && new.lines().last() == old.lines().last();
    let lines: String = new.lines().map(|line| format!("{line}\n")).collect();
    if stays { lines.strip_suffix('\n').unwrap_or_default().to_owned() } else { lines }
}

fn numbered(picks: &[(u8, u8)], side: usize) -> String {
    let line = |(index, pick): (usize, &(u8, u8))| {
        let pick = if side == 0 { pick.0 } else { pick.1 };
        (pick > 0).then(|| format!("line {index} {pick}\n"))
    };
    picks.iter().enumerate().filter_map(line).collect()
}

proptest! {
    #[test]
    fn a_diff_of_two_texts_makes_the_second_of_the_first(old in text(), new in text()) {
        if old.lines().eq(new.lines()) {
            return Ok(());
        }
        let got = applied(&whole_patch(&old, &new), &old);
        let wanted = with_last_line_end(&old, &new);
        // The diff may report a last line that is both kept and moved either way.
        prop_assert!(
            got.as_deref() == Ok(wanted.as_str()) || got == Ok(wanted.clone() + "\n"),
            "wanted {:?}, got {:?}", wanted, got
        );
    }

    #[test]
    fn hunks_with_three_lines_of_context_do_too(
        picks in prop::collection::vec((0u8..3, 0u8..3), 1..60),
        crlf: bool,
    ) {
        let (mut old, mut new) = (numbered(&picks, 0), numbered(&picks, 1));
        if old == new {
            return Ok(());
        }
        let patch = narrow_patch(&old, &new);
        if crlf {
            (old, new) = (old.replace('\n', "\r\n"), new.replace('\n', "\r\n"));
        }
        // A line that is added to an empty file gets `\n`.
        if old.is_empty() {
            new = new.replace('\r', "");
        }
        prop_assert_eq!(applied(&patch, &old), Ok(new));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn no_mutation_of_a_patch_makes_anything_panic(
        old in text(),
        new in text(),
        file in prop::collection::vec(any::<u8>(), 0..40),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..4), 1..6),
    ) {
        let mut patch: Vec<char> = whole_patch(&old, &new).chars().collect();
        for (place, kind) in cuts {
            let at = place.index(patch.len());
            match kind {
                0 => drop(patch.remove(at)),
                1 => patch.insert(at, '\n'),
                2 => patch.insert(at, '\u{feff}'),
                _ => patch[at] = ['@', '+', ' ', '\r', '\0', '語'][at % 6],
            }
        }
        let patch: String = patch.into_iter().collect();
        for bytes in [old.into_bytes(), file] {
            let _ = plan_text(&patch, &Tree::from([("f".to_owned(), bytes)]));
        }
    }
}
