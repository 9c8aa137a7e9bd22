//! Patches: a parsed patch survives printing and parsing, and planning is consistent and deterministic.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use aos_model::patch::{
    FileOp, FilesBefore, Hunk, HunkLine, ParseError, Patch, Plan, PlanError, parse, plan,
};

use super::{Target, parts};
use crate::Shape;

pub(super) const TARGET: Target = Target {
    name: "patch",
    run,
    dictionary: &[
        "*** Begin Patch\n",
        "*** End Patch\n",
        "*** Add File: a\n",
        "*** Delete File: a\n",
        "*** Update File: a\n",
        "*** Move to: b\n",
        "*** End of File\n",
        "@@\n",
        "@@ fn a() {\n",
        "<<'EOF'\n",
        "EOF\n",
        "+",
        "-",
        "*** ",
        "\n%%\n",
        "“”–…",
        "\u{a0}",
    ],
};

/// The first part is the patch, the second the content of every file that it names.
fn run(data: &[u8]) -> Shape {
    let text = String::from_utf8_lossy(data);
    let [text, content] = parts(&text);
    let patch = match parse(text) {
        Ok(patch) => patch,
        Err(ParseError::Empty) => return Shape::default().with("empty"),
        Err(error) => return Shape::default().message(&error.to_string()),
    };
    assert!(!patch.files.is_empty(), "a patch without files");
    let written = print(&patch);
    let again = parse(&written).unwrap_or_else(|why| panic!("{why}: printed as\n{written}"));
    assert_eq!(without_numbers(again), without_numbers(patch.clone()), "printed as\n{written}");
    let mut shape = Shape::default().with("patch").about(patch.files.len());
    for content in [Some(content), None] {
        let (first, second) = (planned(&patch, content), planned(&patch, content));
        assert_eq!(first, second, "planning is not deterministic");
        shape = match first {
            Ok(plan) => check(&plan, &patch, shape),
            Err(errors) => errors.iter().fold(shape, |shape, error| match error {
                PlanError::Missing { .. } => shape.with("missing"),
                PlanError::BelowFile { .. } => shape.with("below a file"),
                PlanError::Context { path, message } => {
                    shape.message(message.trim_start_matches(path.as_str()))
                }
                PlanError::Exhausted { .. } => shape.with("exhausted"),
                PlanError::Read { source, .. } => match *source {},
            }),
        };
    }
    shape
}

/// Every file has the same content, or none exists.
struct Files<'a> {
    content: Option<&'a str>,
    read: BTreeSet<String>,
}

impl FilesBefore for Files<'_> {
    type Error = Infallible;

    fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, Infallible> {
        assert!(self.read.insert(path.to_owned()), "{path} is read twice");
        Ok(self.content.map(|content| content.as_bytes().to_vec()))
    }
}

fn planned(patch: &Patch, content: Option<&str>) -> Result<Plan, Vec<PlanError<Infallible>>> {
    plan(patch, &mut Files { content, read: BTreeSet::new() })
}

fn check(plan: &Plan, patch: &Patch, shape: Shape) -> Shape {
    let named: BTreeSet<&str> = patch.targets().map(|target| target.path).collect();
    assert!(plan.changes.is_sorted_by(|a, b| a.path < b.path), "changes are unsorted, or a path has two");
    let sections = plan.counts.add + plan.counts.update + plan.counts.delete;
    assert_eq!(sections as usize, patch.files.len());
    let mut kinds: BTreeMap<(bool, bool), usize> = BTreeMap::new();
    for change in &plan.changes {
        assert!(named.contains(change.path.as_str()), "{} is changed but not named", change.path);
        assert!(change.before || change.after.is_some(), "{} did not exist and is removed", change.path);
        *kinds.entry((change.before, change.after.is_some())).or_default() += 1;
    }
    kinds
        .into_iter()
        .fold(shape.with(plan.warnings.len()), |shape, (kind, count)| shape.with(kind).about(count))
}

fn print(patch: &Patch) -> String {
    let mut out = "*** Begin Patch\n".to_owned();
    for file in &patch.files {
        match file {
            FileOp::Add { path, content } => {
                out += &format!("*** Add File: {path}\n");
                content.split_terminator('\n').for_each(|line| out += &format!("+{line}\n"));
            }
            FileOp::Delete { path } => out += &format!("*** Delete File: {path}\n"),
            FileOp::Update { path, move_to, hunks } => {
                out += &format!("*** Update File: {path}\n");
                move_to.iter().for_each(|to| out += &format!("*** Move to: {to}\n"));
                hunks.iter().for_each(|hunk| print_hunk(hunk, &mut out));
            }
        }
    }
    out + "*** End Patch\n"
}

fn print_hunk(hunk: &Hunk, out: &mut String) {
    if hunk.hints.is_empty() {
        *out += "@@\n";
    }
    hunk.hints.iter().for_each(|hint| *out += &format!("@@ {hint}\n"));
    for line in &hunk.lines {
        *out += &match line {
            HunkLine::Keep(text) => format!(" {text}\n"),
            HunkLine::Remove(text) => format!("-{text}\n"),
            HunkLine::Insert(text) => format!("+{text}\n"),
        };
    }
    if hunk.end_of_file {
        *out += "*** End of File\n";
    }
}

/// Line numbers change when a patch is printed.
fn without_numbers(mut patch: Patch) -> Patch {
    for file in &mut patch.files {
        if let FileOp::Update { hunks, .. } = file {
            hunks.iter_mut().for_each(|hunk| hunk.line_number = 0);
        }
    }
    patch
}
