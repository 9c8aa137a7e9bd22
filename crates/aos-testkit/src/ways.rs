//! Every way to name a path to the daemon, and the request that it makes.

use serde_json::{Value, json};

/// The ways that only read.
const LOOKS: &[&str] = &["read_file", "stat", "no_follow", "exists", "list_dir", "grep", "glob"];

/// The ways that change what they name.
pub const MUTATIONS: &[&str] = &[
    "write_file",
    "create_parents",
    "create_new",
    "append",
    "edit_file",
    "patch_add",
    "patch_update",
    "patch_delete",
    "patch_move_to",
    "remove",
    "move_from",
    "move_to",
    "make_dir",
];

/// The mutations that change an existing file.
pub const CHANGES_TO_A_FILE: [&str; 8] =
    ["edit_file", "write_file", "append", "patch_add", "patch_update", "patch_delete", "remove", "move_from"];

/// The effect and the params of a way. Edits and patches replace `OLD`; moves and patches need a file `donor`.
pub fn request(way: &str, path: &str) -> (&'static str, Value) {
    let write = |mode: &str| json!({ "path": path, "content": text("PWN"), "mode": mode });
    let patch = |body: String| patch_params(&body);
    match way {
        "read_file" => ("read_file", json!({ "path": path })),
        "write_file" => ("write_file", write("overwrite")),
        "create_parents" => {
            ("write_file", json!({ "path": path, "content": text("PWN"), "create_parents": true }))
        }
        "create_new" => ("write_file", write("create_new")),
        "append" => ("write_file", write("append")),
        "edit_file" => ("edit_file", json!({ "path": path, "old_string": "OLD", "new_string": "PWN" })),
        "patch_add" => ("apply_patch", patch(format!("*** Add File: {path}\n+PWN\n"))),
        "patch_update" => ("apply_patch", patch(format!("*** Update File: {path}\n@@\n-OLD\n+PWN\n"))),
        "patch_delete" => ("apply_patch", patch(format!("*** Delete File: {path}\n"))),
        "patch_move_to" => {
            ("apply_patch", patch(format!("*** Update File: donor\n*** Move to: {path}\n@@\n-OLD\n+PWN\n")))
        }
        "stat" => ("stat", json!({ "path": path })),
        "no_follow" => ("stat", json!({ "path": path, "no_follow": true })),
        "exists" => ("exists", json!({ "path": path })),
        "list_dir" => ("list_dir", json!({ "path": path })),
        "remove" => ("remove", json!({ "path": path, "recursive": true })),
        "remove_one" => ("remove", json!({ "path": path })),
        "move_from" => ("move", json!({ "from": path, "to": "moved" })),
        "move_to" => ("move", json!({ "from": "donor", "to": path, "overwrite": true })),
        "make_dir" => ("make_dir", json!({ "path": path, "parents": true })),
        "grep" => ("grep", json!({ "pattern": ".", "path": path })),
        "glob" => ("glob", json!({ "pattern": "**", "path": path })),
        other => unreachable!("no way is called {other}"),
    }
}

/// A text value for `content` and `patch`.
pub fn text(text: impl Into<String>) -> Value {
    json!({ "inline_text": { "text": text.into() } })
}

/// A whole patch around these file sections.
pub fn patch_of(sections: &str) -> String {
    format!("*** Begin Patch\n{sections}*** End Patch\n")
}

/// The params of `host.fs.apply_patch` for these file sections.
pub fn patch_params(sections: &str) -> Value {
    json!({ "patch": text(patch_of(sections)) })
}

/// The ways that act on the link itself when the last name of a path is a symbolic link.
pub const WAYS_TO_A_LINK: &[&str] =
    &["patch_delete", "no_follow", "remove", "move_from", "move_to", "make_dir"];

/// Every way: files and searches.
pub fn ways() -> Vec<&'static str> {
    [LOOKS, MUTATIONS].concat()
}

/// The ways that follow a symbolic link in the last name of a path.
pub fn following_ways() -> Vec<&'static str> {
    ways().into_iter().filter(|way| !WAYS_TO_A_LINK.contains(way)).collect()
}
