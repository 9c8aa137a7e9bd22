//! What file effects attempt, and the controls that must succeed.

use std::path::Path;

use serde_json::{Value, json};

use super::names::other_case;
use super::scene::{Scene, Victim};
use crate::random::Random;
use crate::ways::{self, patch_params, text};

/// An effect of `host.fs` and its params.
pub(super) type Call = (&'static str, Value);

/// The calls of one attempt to read a victim. A later one reads what an earlier one brought elsewhere.
pub(super) fn reading(
    scene: &Scene,
    victim: &Victim,
    root: &Path,
    scratch: &str,
    random: &mut Random,
) -> Vec<Call> {
    let path = spelled(scene, &victim.path, root, random);
    let (folder, name) = victim.path.rsplit_once('/').unwrap_or((".", &victim.path));
    let moved = |to: &str| ("move", json!({ "from": path, "to": to }));
    let read = |path: String| ("read_file", json!({ "path": path }));
    let patch = |body: String| {
        let mut params = patch_params(&body);
        params["with_diff"] = json!(true);
        ("apply_patch", params)
    };
    let edit = |old: &str| {
        ("edit_file", json!({ "path": path, "old_string": old, "new_string": "NEW", "with_diff": true }))
    };
    let write = |mode: &str| {
        ("write_file", json!({ "path": path, "content": text("NEW\n"), "mode": mode, "with_diff": true }))
    };
    match random.below(20) {
        0 | 1 => vec![read(path)],
        2 => vec![("read_file", json!({ "path": path, "encoding": "bytes", "offset_bytes": 2 }))],
        3 => vec![("read_file", json!({ "path": path, "output_mode": "require_inline", "with_hash": true }))],
        4 => vec![("grep", json!({ "pattern": ".", "path": path, "include_ignored": true }))],
        5 => vec![(
            "grep",
            json!({ "pattern": "OLD", "context_lines": 2, "include_ignored": true, "max_results": 900 }),
        )],
        6 => vec![("grep", json!({ "pattern": "[0-9a-f]{30}", "path": folder, "glob_filter": name }))],
        7 => vec![edit("OLD")],
        8 => vec![edit("OLE"), edit("OLD\n0")],
        9 => vec![(
            "edit_file",
            json!({ "path": path, "with_diff": true, "edits": [{ "old_string": "OLD", "new_string": "OLD!" }] }),
        )],
        10 => vec![write("append")],
        11 => vec![write("overwrite")],
        12 => vec![patch(format!("*** Update File: {path}\n@@\n-OLD\n+NEW\n"))],
        13 => vec![patch(format!("*** Update File: {path}\n@@\n OLD\n-nothing like it\n+NEW\n"))],
        14 => vec![patch(format!("*** Delete File: {path}\n"))],
        15 => vec![moved(scratch), read(scratch.to_owned())],
        16 => vec![
            patch(format!("*** Update File: {path}\n*** Move to: {scratch}\n@@\n-OLD\n+NEW\n")),
            read(scratch.to_owned()),
        ],
        17 => vec![("move", json!({ "from": folder, "to": scratch })), read(format!("{scratch}/{name}"))],
        18 => vec![
            ("snapshot", json!({ "paths": [path], "scope_id": "tc_snapshot" })),
            ("restore", json!({ "scope_id": "tc_snapshot", "dry_run": true })),
        ],
        _ => vec![
            ("stat", json!({ "path": path })),
            ("list_dir", json!({ "path": folder })),
            ("glob", json!({ "pattern": "**" })),
        ],
    }
}

/// The calls of one attempt to write a victim.
pub(super) fn writing(
    scene: &Scene,
    victim: &Victim,
    root: &Path,
    scratch: &str,
    random: &mut Random,
) -> Vec<Call> {
    let mut path = spelled(scene, &victim.path, root, random);
    if victim.is_protected && !victim.exists && random.one_in(3) {
        path = other_case(&victim.path, random);
    }
    let folder = victim.path.rsplit_once('/').map_or(".", |(folder, _)| folder);
    let top = victim.path.split('/').next().unwrap_or_default();
    let write =
        |path: &str| ("write_file", json!({ "path": path, "content": text("PWN"), "create_parents": true }));
    match random.below(24) {
        0 => vec![("remove", json!({ "path": folder, "recursive": true }))],
        1 => vec![("move", json!({ "from": folder, "to": scratch }))],
        2 => vec![("move", json!({ "from": top, "to": scratch })), write(&path)],
        3 => vec![(
            "apply_patch",
            patch_params(&format!("*** Add File: {scratch}\n+PWN\n*** Add File: {path}\n+PWN\n")),
        )],
        4 => vec![("write_file", json!({ "path": path, "content": text("OLD"), "executable": true }))],
        5 => vec![(
            "edit_file",
            json!({ "path": path, "edits": [{ "old_string": "OLD", "new_string": "PWN" }] }),
        )],
        6 => vec![write(&format!("{scratch}/in")), ("move", json!({ "from": scratch, "to": path }))],
        7 => vec![
            ("snapshot", json!({ "paths": [path], "scope_id": "tc_snapshot" })),
            write(&path),
            ("restore", json!({ "scope_id": "tc_snapshot", "force": true })),
            ("rollback", json!({ "turns": 1, "force": true })),
        ],
        8 => vec![("make_dir", json!({ "path": format!("{path}/in"), "parents": true }))],
        _ => vec![ways::request(ways::MUTATIONS[random.below(ways::MUTATIONS.len())], &path)],
    }
}

/// A path in one of the spellings in which it can be requested.
fn spelled(scene: &Scene, path: &str, root: &Path, random: &mut Random) -> String {
    let through = scene.links.iter().find_map(|(link, target)| match path.strip_prefix(target.as_str()) {
        Some("") => Some(link.clone()),
        Some(rest) if rest.starts_with('/') => Some(format!("{link}{rest}")),
        _ => None,
    });
    match (random.below(9), through) {
        (0..4, Some(through)) => through,
        (4, _) => format!("./{path}"),
        (5, _) => format!("{}/{path}", root.display()),
        (6, _) => format!("open/../{path}"),
        (7, _) => path.replace('/', "//"),
        (8, _) => in_bytes(path),
        _ => path.to_owned(),
    }
}

/// A path with its last letter spelled as a byte.
fn in_bytes(path: &str) -> String {
    let is_spelled = path.contains('\\');
    match path.char_indices().rev().find(|(_, c)| c.is_ascii_alphabetic()) {
        Some((at, c)) if !is_spelled => format!("{}\\x{:02x}{}", &path[..at], c as u32, &path[at + 1..]),
        _ => path.to_owned(),
    }
}

/// An effect on a path that is not denied. It must be `ok`.
pub(super) fn control(scene: &Scene, path: &str, scratch: &str, random: &mut Random) -> Call {
    let reads = [("read_file", json!({ "path": path })), ("grep", json!({ "pattern": "OLD", "path": path }))];
    if scene.rules.no_writes || random.one_in(4) {
        return random.pick(&reads).clone();
    }
    match random.below(7) {
        0 => ("write_file", json!({ "path": path, "content": text("fine\n") })),
        1 => ("edit_file", json!({ "path": path, "old_string": "OLD", "new_string": "NEW" })),
        2 => ("apply_patch", patch_params(&format!("*** Update File: {path}\n@@\n-OLD\n+NEW\n"))),
        3 => (
            "apply_patch",
            patch_params(&format!("*** Update File: {path}\n*** Move to: {scratch}\n@@\n-OLD\n+NEW\n")),
        ),
        4 => ("remove", json!({ "path": path })),
        5 => ("move", json!({ "from": path, "to": scratch })),
        _ => (
            "write_file",
            json!({ "path": format!("{scratch}/in"), "content": text("fine\n"), "create_parents": true }),
        ),
    }
}
