//! Chooses the next request of a history: every kind of request, on few names, with any answer.

use serde_json::{Value, json};

use crate::random::Random;

/// What a session works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Local,
    Vfs,
    Staged,
}

const NAMES: &[&str] = &["a", "b", "c", "d/e", "d/f", "d/g/h", "k"];

/// Ids from earlier answers that later requests use.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) call: Option<String>,
    pub(super) snapshot: Option<String>,
    pub(super) blob: Option<String>,
}

/// One request, without its session id.
pub(super) fn next(random: &mut Random, target: Target, known: &Known, number: u64) -> (&'static str, Value) {
    let path = NAMES[random.below(NAMES.len())];
    let other = NAMES[random.below(NAMES.len())];
    match random.below(100) {
        0..20 => ("host.fs.write_file", write(random, path, known, number)),
        20..27 => ("host.fs.edit_file", edit(random, path, number)),
        27..35 => ("host.fs.apply_patch", patch(random, path, other, number)),
        35..39 => ("host.fs.remove", json!({ "path": path, "recursive": random.one_in(2) })),
        39..43 => ("host.fs.move", json!({ "from": path, "to": other, "overwrite": random.one_in(2) })),
        43..45 => ("host.fs.make_dir", json!({ "path": format!("m{}", number % 5), "parents": true })),
        45..66 => look(random, path),
        66..84 => undo(random, path, known),
        84..92 => of_target(random, target, path, number),
        92..95 => ("host.session.list", Value::Null),
        _ => nonsense(random, path),
    }
}

/// Lines that contain `number`; sometimes so many that an answer becomes a blob.
fn text(random: &mut Random, number: u64) -> String {
    let lines = if random.one_in(12) { 700 } else { random.below(6) };
    format!("number {number}\n") + &format!("a line of {number} that fills a file\n").repeat(lines)
}

fn write(random: &mut Random, path: &str, known: &Known, number: u64) -> Value {
    let content = match &known.blob {
        Some(blob) if random.one_in(6) => json!({ "blob_ref": { "blob_ref": blob } }),
        _ => json!({ "inline_text": { "text": text(random, number) } }),
    };
    let mode = ["overwrite", "overwrite", "append", "create_new"][random.below(4)];
    json!({ "path": path, "content": content, "create_parents": true, "mode": mode,
        "with_diff": random.one_in(3) })
}

fn edit(random: &mut Random, path: &str, number: u64) -> Value {
    let old = if random.one_in(5) { "stands nowhere" } else { "number" };
    json!({ "path": path, "old_string": old, "new_string": format!("number {number} once"),
        "replace_all": random.one_in(2) })
}

fn patch(random: &mut Random, path: &str, other: &str, number: u64) -> Value {
    let sections = match random.below(3) {
        0 => format!("*** Add File: {path}\n+number {number}\n*** Delete File: {other}\n"),
        1 => format!("*** Add File: {path}\n+number {number}\n*** Add File: n{}/x\n+number\n", number % 3),
        _ => format!("*** Delete File: {path}\n"),
    };
    let patch = format!("*** Begin Patch\n{sections}*** End Patch\n");
    json!({ "patch": { "inline_text": { "text": patch } }, "dry_run": random.one_in(6) })
}

fn look(random: &mut Random, path: &str) -> (&'static str, Value) {
    match random.below(6) {
        0 => ("host.fs.grep", json!({ "pattern": "n.mber", "context_lines": random.below(2) })),
        1 => ("host.fs.glob", json!({ "pattern": "**/*" })),
        2 => ("host.fs.stat", json!({ "path": path })),
        3 => ("host.fs.list_dir", json!({ "path": "d" })),
        4 => ("host.fs.exists", json!({ "path": path })),
        _ => ("host.fs.read_file", json!({ "path": path, "with_hash": random.one_in(2) })),
    }
}

fn undo(random: &mut Random, path: &str, known: &Known) -> (&'static str, Value) {
    let call = known.call.clone().unwrap_or_else(|| "none".into());
    let snapshot = known.snapshot.clone().unwrap_or_else(|| "snap_none".into());
    match random.below(8) {
        0 => ("host.fs.snapshot", json!({ "scope_id": call, "paths": [path, "d"] })),
        1 => ("host.fs.list_snapshots", json!({})),
        2 => ("host.fs.drop_snapshot", json!({ "snapshot_id": snapshot })),
        3 => ("host.fs.redo", json!({ "turns": 1 + random.below(2) })),
        4 | 5 => ("host.fs.rollback", json!({ "turns": 1 + random.below(2), "force": random.one_in(3) })),
        6 => ("host.fs.restore", json!({ "snapshot_id": snapshot, "force": random.one_in(2) })),
        _ => ("host.fs.restore", json!({ "scope_id": call, "dry_run": random.one_in(4) })),
    }
}

/// A request that only some targets support. The others refuse it, and the refusal is recorded too.
fn of_target(random: &mut Random, target: Target, path: &str, number: u64) -> (&'static str, Value) {
    let own = if random.one_in(10) { random.below(3) } else { target as usize };
    match (own, random.below(3)) {
        (0, case) => {
            let script = format!(
                "echo out {number}; echo err >&2; echo number {number} > s{}; exit {case}",
                number % 4
            );
            let argv = json!(["sh", "-c", script]);
            ("host.exec", json!({ "argv": argv, "dry_run": random.one_in(8) }))
        }
        (1, _) => ("host.vfs.latest", json!({})),
        (_, 0) => ("host.staged.diff", json!({})),
        (_, 1) => ("host.staged.commit", json!({ "paths": [path] })),
        _ => ("host.staged.discard", json!({ "paths": [path] })),
    }
}

fn nonsense(random: &mut Random, path: &str) -> (&'static str, Value) {
    match random.below(4) {
        0 => ("host.fs.read_file", json!({ "path": "../outside" })),
        1 => ("host.fs.read_file", json!({ "path": path, "surprise": "\u{1b}[31m" })),
        2 => ("host.no.such.thing", json!({})),
        _ => (
            "host.fs.write_file",
            json!({ "path": ".git/config", "content": { "inline_text": { "text": "" } } }),
        ),
    }
}
