//! Random policies, capabilities and operations, on few names, so that they often affect the same paths.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::random::Random;
use crate::ways::{patch_of, text};

const POINTS: &[&str] = &[
    "absolute_path",
    "path_outside_cwd",
    "path_outside_workspace",
    "command_cwd_outside_cwd",
    "command_cwd_outside_workspace",
    "command_external_paths",
    "command_paths_outside_workspace",
];
const DECISIONS: &[&str] = &["allow", "warn", "deny"];
const OPS: &[&str] = &["read", "write", "edit", "patch", "search", "list", "stat", "remove", "exec"];
const GLOBS: &[&str] = &[
    "**",
    "*",
    "in/**",
    "in/",
    "in/*",
    "in/f",
    "**/f",
    "**/*.rs",
    "f*",
    "?",
    "[fi]*",
    "{in,f}",
    "{in,sub}/**",
    "in/**/f",
    "sub/deep/",
    "sub/*/f",
    "**/deep/**",
    ".git/**",
    "to_*",
    "to_in/f",
    "cat",
    "third/**",
    "*/f",
];

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len())]
}

fn some(random: &mut Random, from: &[&str], most: usize) -> Vec<String> {
    (0..=random.below(most)).map(|_| pick(random, from).to_owned()).collect()
}

pub(super) fn policy(random: &mut Random) -> Value {
    let mut policy = Map::new();
    if random.one_in(2) {
        policy.insert("preset".into(), json!(pick(random, &["default", "strict", "permissive"])));
    }
    if random.one_in(3) {
        let mut points = Map::new();
        for point in some(random, POINTS, 5) {
            points.insert(point, json!(pick(random, DECISIONS)));
        }
        policy.insert("host_access".into(), Value::Object(points));
    }
    let rules: Vec<Value> = (0..random.below(6))
        .map(|number| {
            json!({
                "name": format!("r{number}"),
                "ops": some(random, OPS, 5),
                "paths": some(random, GLOBS, 3),
                "decision": pick(random, DECISIONS),
            })
        })
        .collect();
    policy.insert("rules".into(), Value::Array(rules));
    Value::Object(policy)
}

pub(super) fn capability(root: &Path, random: &mut Random) -> Value {
    let mut capability = json!({
        "follow_symlinks": pick(random, &["deny", "within_root_only", "within_root_only", "allow"]),
        "protected_paths": pick(random, &["deny", "warn", "allow", "withhold"]),
        "sensitive_paths": pick(random, &["deny", "warn", "allow"]),
        "exec": { "allowed": !random.one_in(8) },
    });
    if random.one_in(2) {
        capability["fs_roots"] = json!([root, root.with_file_name("second")]);
    }
    if random.one_in(8) {
        let ops = ["read", "write", "edit", "patch", "search", "list", "stat"];
        capability["allowed_fs_ops"] = json!(some(random, &ops, 7));
    }
    capability
}

/// One operation: its request, the paths that it names, and its name in policy rules.
#[derive(Debug)]
pub(super) struct Act {
    pub kind: &'static str,
    pub params: Value,
    pub op: &'static str,
    pub paths: Vec<String>,
    /// The MCP tool that does the same.
    pub tool: Option<(&'static str, Value)>,
}

impl Act {
    pub(super) fn new(root: &Path, random: &mut Random) -> Act {
        let (path, other) = (fuzzed(root, random), fuzzed(root, random));
        let content = text("one\n");
        let patch = |sections: String| json!({ "patch": text(patch_of(&sections)) });
        let (kind, params, op) = match random.below(15) {
            0 | 1 => ("host.fs.read_file", json!({ "path": path }), "read"),
            2 | 3 => ("host.fs.write_file", json!({ "path": path, "content": content }), "write"),
            4 => {
                let params = json!({ "path": path, "old_string": "one", "new_string": "one",
                    "with_diff": random.one_in(2) });
                ("host.fs.edit_file", params, "edit")
            }
            5 => ("host.fs.stat", json!({ "path": path }), "stat"),
            6 => ("host.fs.exists", json!({ "path": path }), "stat"),
            7 => ("host.fs.list_dir", json!({ "path": path }), "list"),
            8 => ("host.fs.apply_patch", patch(format!("*** Add File: {path}\n+one\n")), "patch"),
            9 => {
                let moved = format!("*** Update File: {path}\n*** Move to: {other}\n");
                return Act::several("host.fs.apply_patch", patch(moved), "patch", [path, other]);
            }
            10 => ("host.fs.make_dir", json!({ "path": path }), "write"),
            11 => ("host.fs.remove", json!({ "path": path }), "remove"),
            12 => {
                let params = json!({ "from": path, "to": other });
                return Act::several("host.fs.move", params, "write", [path, other]);
            }
            13 => ("host.fs.grep", json!({ "pattern": "one", "path": path }), "search"),
            _ => ("host.fs.glob", json!({ "pattern": "*", "path": path }), "search"),
        };
        // The tool for edits shows a diff.
        let is_tool = params["with_diff"] != false;
        let tool = tool_of(kind, &path).filter(|_| is_tool);
        Act { kind, params, op, paths: vec![path], tool }
    }

    /// Whether policy checks more paths than those that it names.
    pub(super) fn looks_below(&self) -> bool {
        ["host.fs.remove", "host.fs.move", "host.fs.grep", "host.fs.glob"].contains(&self.kind)
    }

    fn several(kind: &'static str, params: Value, op: &'static str, paths: [String; 2]) -> Act {
        Act { kind, params, op, paths: paths.into(), tool: None }
    }
}

fn tool_of(kind: &str, path: &str) -> Option<(&'static str, Value)> {
    Some(match kind {
        "host.fs.read_file" => ("read_file", json!({ "path": path })),
        // As the request: by default the tool makes folders, which are judged too.
        "host.fs.write_file" => {
            ("write_file", json!({ "path": path, "content": "one\n", "create_parents": false }))
        }
        "host.fs.edit_file" => {
            ("edit_file", json!({ "path": path, "old_string": "one", "new_string": "one" }))
        }
        "host.fs.apply_patch" => {
            ("apply_patch", json!({ "patch": patch_of(&format!("*** Add File: {path}\n+one\n")) }))
        }
        "host.fs.grep" => ("grep", json!({ "pattern": "one", "path": path })),
        "host.fs.glob" => ("glob", json!({ "pattern": "*", "path": path })),
        _ => return None,
    })
}

const PARTS: &[&str] = &[
    "in",
    "f",
    "sub",
    "deep",
    "x.rs",
    "to_in",
    "up",
    "out",
    "out_file",
    "to_second",
    "to_f",
    "there_and_back",
    "third",
    "ws",
    "second",
    "outside",
    "secret",
    "..",
    "..",
    ".",
    "new",
    ".git",
    "config",
    "\\x2e\\x2e",
    "\\x66",
    "~",
    "IN",
    "",
];
const PLAIN: &[&str] =
    &["in", "f", "in/f", "in/deep/f", "sub/deep/f", "sub/x.rs", "new", "in/new", "sub/deep", ".git/config"];

/// A random path. Half of the paths are inside the root without links, so that policy rules decide and not the
/// capability. The others lead through links and outside.
pub(super) fn fuzzed(root: &Path, random: &mut Random) -> String {
    if random.one_in(2) {
        return pick(random, PLAIN).to_owned();
    }
    let beside = |name: &str| root.with_file_name(name).display().to_string();
    let mut path = match random.below(8) {
        0 => "./".to_owned(),
        1 => format!("{}/", root.display()),
        2 => beside("outside") + "/",
        3 => beside("second") + "/",
        4 => beside("") + "/",
        _ => String::new(),
    };
    for number in 0..=random.below(4) {
        if number > 0 {
            path.push('/');
        }
        path.push_str(pick(random, PARTS));
    }
    path
}

/// Whether a path is inside the root and contains no link: rules then apply to exactly this path.
pub(super) fn is_plain(path: &str) -> bool {
    PLAIN.contains(&path)
}

/// A command, and the folder it runs in.
pub(super) fn command(root: &Path, random: &mut Random) -> (Vec<String>, String) {
    let programs = ["cat", "sh", "/bin/ls", "ls", "sed", "tar", "git"];
    let mut argv = vec![pick(random, &programs).to_owned()];
    for _ in 0..random.below(4) {
        let path = fuzzed(root, random);
        argv.push(match random.below(8) {
            0 => format!("--file={path}"),
            1 => format!("-o{path}"),
            2 => format!("@{path}"),
            3 => format!(">{path}"),
            4 => format!("-c 'cat {path}'"),
            5 => format!("$HOME/{path}"),
            6 => format!("file:{path}"),
            _ => path,
        });
    }
    (argv, fuzzed(root, random))
}
