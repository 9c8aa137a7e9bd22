//! The request of a client: a way, and a random path of parts that could lead out of the root.

use std::path::Path;

use serde_json::{Value, json};

use super::maze::NAMES;
use crate::random::Random;
use crate::ways::{MUTATIONS, request};

/// One request with the path that it names.
#[derive(Debug)]
pub(super) struct Ask {
    pub kind: String,
    pub params: Value,
    pub path: String,
    pub writes: bool,
}

const LOOKS: &[&str] = &["stat", "no_follow", "exists", "read_file", "list_dir"];

impl Ask {
    /// Mostly reads, which are cheap. A tenth are mutations, a few search or run a command in the folder.
    pub(super) fn new(session: &str, root: &Path, random: &mut Random) -> Ask {
        let number = random.below(10_000);
        let (way, writes) = match number {
            0..2 => ("exec", false),
            2..60 => (["grep", "glob"][number % 2], false),
            60..1_160 => (change(random), true),
            _ => (LOOKS[random.below(LOOKS.len())], false),
        };
        let path = fuzzed(root, writes, random);
        let (kind, mut params) = match way {
            "exec" => command(&path, random),
            way => {
                let (op, params) = request(way, &path);
                (format!("host.fs.{op}"), params)
            }
        };
        params["session_id"] = json!(session);
        Ask { kind, params, path, writes }
    }
}

/// One of the mutations, or a non-recursive removal, which fails on a folder that is not empty.
fn change(random: &mut Random) -> &'static str {
    MUTATIONS.get(random.below(MUTATIONS.len() + 1)).copied().unwrap_or("remove_one")
}

/// A command that prints its working directory and what it finds there.
fn command(cwd: &str, random: &mut Random) -> (String, Value) {
    let capture = ["auto", "none"][random.below(2)];
    let script = "pwd; ls -la; cat secret ../beyond/secret out/secret";
    let params = json!({
        "argv": ["sh", "-c", script],
        "cwd": cwd,
        "capture": capture,
        "timeout_ns": 10_000_000_000_u64,
    });
    ("host.exec".to_owned(), params)
}

/// A random path. A write ends in a name of the maze: if the jail fails, no other file of the machine is damaged.
fn fuzzed(root: &Path, writes: bool, random: &mut Random) -> String {
    let mut path = match random.below(24) {
        0 => format!("{}/", root.display()),
        1 => format!("{}/../beyond/", root.display()),
        2 => format!("/proc/self/root{}/", root.display()),
        3 => "./".to_owned(),
        4 => "../".to_owned(),
        5 => "//".to_owned(),
        _ => String::new(),
    };
    for _ in 0..random.below(5) {
        path.push_str(match random.below(16) {
            0 => "..",
            1 => ".",
            2 => "",
            3 => "\\x2e\\x2e",
            4 => "beyond",
            _ => NAMES[random.below(NAMES.len())],
        });
        path.push('/');
    }
    let last = match random.below(12) {
        0 => "secret",
        1 => "new",
        2 if !writes => "only-here",
        3 if !writes => "..",
        4 if !writes => "",
        _ => NAMES[random.below(NAMES.len())],
    };
    path + last
}
