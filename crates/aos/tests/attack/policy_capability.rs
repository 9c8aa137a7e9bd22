//! Policy and capability: what is reported is what happens, on every front end, at the limit and one over.

mod limits;
mod links;
mod malformed;
mod policy;
mod protected;
mod reach;

use std::path::Path;

use aos_testkit::{Client, Findings, World, patch_params, text};
use serde_json::{Value, json};

use crate::{Case, Outcome, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("POL-01", policy::each_point_each_decision),
        plain("POL-02", policy::said_and_done),
        plain("POL-03", limits::reads_are_cut),
        plain("POL-04", reach::operations_not_allowed),
        plain("POL-05", policy::rules_by_both_spellings),
        plain("POL-07", reach::roots_of_another_session),
        plain("POL-08", reach::guessed_ids),
        plain("POL-09", malformed::invalid_policies),
        plain("POL-10", malformed::invalid_numbers),
        plain("POL-13", limits::inline_or_not_at_all),
        plain("OWN-CAP-PERMISSIVE", limits::nothing_binds),
        plain("OWN-CAP-ALLOWED_FS_OPS", reach::each_operation_alone),
        plain("OWN-CAP-FS_ROOTS", reach::only_the_roots),
        plain("OWN-CAP-FOLLOW_SYMLINKS-DENY", links::links_denied),
        plain("OWN-CAP-FOLLOW_SYMLINKS-WITHIN_ROOT_ONLY", links::links_inside),
        plain("OWN-CAP-FOLLOW_SYMLINKS-ALLOW", links::links_anywhere),
        plain("OWN-CAP-PROTECTED_PATHS", protected::protected_names),
        plain("OWN-CAP-MAX_READ_BYTES", limits::read_limit),
        plain("OWN-CAP-MAX_WRITE_BYTES-WRITE", limits::write_limit_of_writes),
        plain("OWN-CAP-MAX_WRITE_BYTES-EDIT", limits::write_limit_of_edits),
        plain("OWN-CAP-MAX_WRITE_BYTES-PATCH", limits::write_limit_of_patches),
        plain("OWN-CAP-MAX_PATCH_BYTES", limits::patch_limit),
        plain("OWN-CAP-MAX_INLINE_BYTES", limits::inline_limit),
        plain("OWN-CAP-ALLOWED_PATCH_FORMATS", limits::patch_formats),
        plain("OWN-CAP-MAX_CHANGED_FILES", limits::changed_files_limit),
        plain("OWN-CAP-MAX_EDIT_REPLACEMENTS", limits::replacements_limit),
    ]
}

fn capability(capability: Value) -> Value {
    json!({ "capability": capability })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Every file effect on a path, with the operation that it needs. `path` is an existing file with the content
/// `one\n` in an existing folder.
fn effects_on(path: &str) -> Vec<(&'static str, &'static str, Value)> {
    let dir = path.rsplit_once('/').map_or(".", |(dir, _)| dir);
    let sibling = |name: &str| format!("{dir}/{name}");
    let patch = |sections: String| patch_params(&sections);
    vec![
        ("read", "read_file", json!({ "path": path })),
        ("stat", "stat", json!({ "path": path })),
        ("stat", "stat", json!({ "path": path, "no_follow": true })),
        ("stat", "exists", json!({ "path": path })),
        ("list", "list_dir", json!({ "path": dir })),
        ("edit", "edit_file", json!({ "path": path, "old_string": "one", "new_string": "one" })),
        ("write", "write_file", json!({ "path": path, "content": text("one\n") })),
        ("write", "write_file", json!({ "path": sibling("w"), "content": text("x") })),
        ("write", "move", json!({ "from": sibling("w"), "to": sibling("m") })),
        ("write", "remove", json!({ "path": sibling("m") })),
        ("write", "make_dir", json!({ "path": sibling("made") })),
        ("write", "remove", json!({ "path": sibling("made") })),
        ("patch", "apply_patch", patch(format!("*** Update File: {path}\n@@\n one\n"))),
        ("patch", "apply_patch", patch(format!("*** Add File: {}\n+x\n", sibling("p")))),
        ("patch", "apply_patch", patch(format!("*** Delete File: {}\n", sibling("p")))),
    ]
}

fn searches_in(dir: &str) -> [(&'static str, Value); 2] {
    [("grep", json!({ "pattern": "one", "path": dir })), ("glob", json!({ "pattern": "*", "path": dir }))]
}

/// `$R/in`, a second root, and a third folder that is not a root but that a link in `$R` leads to.
fn plant_three(world: &World) {
    world.write("in/f", "one\n");
    for name in ["second", "third"] {
        std::fs::create_dir_all(world.parent.join(name)).unwrap();
        std::fs::write(world.parent.join(name).join("f"), "one\n").unwrap();
    }
    if !world.root.join("third").exists() {
        world.link(world.parent.join("third"), "third");
    }
}

fn rule(name: &str, ops: Value, paths: Value, decision: &str) -> Value {
    json!({ "name": name, "ops": ops, "paths": paths, "decision": decision })
}

/// Every effect on an existing file succeeds on this one.
fn served(client: &mut Client, session: &str, path: &str) -> Outcome {
    let mut findings = Findings::default();
    for (_, kind, params) in effects_on(path) {
        findings.add(client.must(session, kind, params, &["ok"]));
    }
    findings.outcome()
}
