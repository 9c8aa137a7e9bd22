//! Homes written by earlier versions stay readable byte for byte: their entries, their replay, their verification.
#![allow(clippy::disallowed_methods, reason = "a test unpacks its fixture and runs the product")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The versions whose homes are kept. Each has `home-VERSION.tar.gz`, written by that version's release build, and the
/// output of that build for it.
const VERSIONS: &[&str] = &["0.1.0"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn unpacked(version: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let archive = fixtures().join(format!("home-{version}.tar.gz"));
    let status = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(dir.path()).status().unwrap();
    assert!(status.success());
    dir
}

/// What `aos` prints about a home, with its exit code.
fn aos(home: &Path, words: &[&str]) -> (String, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_aos")).args(words).env("AOS_HOME", home).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code())
}

#[test]
fn replay_of_an_old_home_matches() {
    for version in VERSIONS {
        let dir = unpacked(version);
        assert_eq!(aos(&dir.path().join("home"), &["replay", "--verify"]), ("MATCH\n".to_owned(), Some(0)));
    }
}

#[test]
fn an_old_home_is_whole() {
    for version in VERSIONS {
        let dir = unpacked(version);
        let (text, code) = aos(&dir.path().join("home"), &["verify"]);
        assert!(code == Some(0) && text.starts_with("intact: "), "{version}: {text}");
    }
}

#[test]
fn entries_and_replayed_state_of_an_old_home_print_the_same_bytes() {
    for version in VERSIONS {
        let dir = unpacked(version);
        for (words, golden) in [(["log", "--json"].as_slice(), "log.jsonl"), (&["replay"], "replay.txt")] {
            let kept = std::fs::read_to_string(fixtures().join(format!("home-{version}.{golden}"))).unwrap();
            let (text, code) = aos(&dir.path().join("home"), words);
            assert_eq!(code, Some(0), "{version}: {text}");
            for (line, (now, before)) in text.lines().zip(kept.lines()).enumerate() {
                assert_eq!(now, before, "{version}: aos {words:?}, line {}", line + 1);
            }
            assert_eq!(text.lines().count(), kept.lines().count(), "{version}: aos {words:?}");
        }
    }
}

/// The requests of an old home are sent again: their records are the same except for ids, times and the machine.
#[test]
fn the_requests_of_an_old_home_are_recorded_the_same() {
    for version in VERSIONS {
        let kept = std::fs::read_to_string(fixtures().join(format!("home-{version}.log.jsonl"))).unwrap();
        let kept: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let dir = tempfile::tempdir().unwrap();
        let (home, workdir) = (dir.path().join("home"), dir.path().canonicalize().unwrap().join("ws"));
        for (path, text) in
            [("f.txt", "old\n"), ("src/main.rs", "fn main() {}\n"), ("docs/gone.md", "gone\n")]
        {
            std::fs::create_dir_all(workdir.join(path).parent().unwrap()).unwrap();
            std::fs::write(workdir.join(path), text).unwrap();
        }
        let workdir = workdir.display().to_string();
        ask_again(&home, &workdir, &kept);
        aos(&home, &["daemon", "stop"]);
        let (now, _) = aos(&home, &["log", "--json"]);
        let now: Vec<Value> = now.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kept: Vec<&Value> = kept.iter().filter(|entry| can_be_asked(entry)).collect();
        for (now, kept) in now.iter().zip(&kept) {
            assert_eq!(normal(now, &workdir), normal(kept, "/tmp/fx/ws"), "{version}: entry {}", kept["seq"]);
        }
        assert_eq!(now.len(), kept.len(), "{version}");
    }
}

/// Whether an entry is an effect whose whole request is recorded: `aos blob put` is not, and of a request that cannot
/// be parsed only the text is stored.
fn can_be_asked(entry: &Value) -> bool {
    entry["kind"] != "blob.put" && entry["params"].get("raw").is_none()
}

fn ask_again(home: &Path, workdir: &str, entries: &[Value]) {
    let mut sessions: Vec<(String, String)> = Vec::new();
    for entry in entries.iter().filter(|entry| can_be_asked(entry)) {
        let mut params = entry["params"].to_string().replace("/tmp/fx/ws", workdir);
        for (old, new) in &sessions {
            params = params.replace(old, new);
        }
        let (text, _) = aos(home, &["call", entry["kind"].as_str().unwrap(), &params]);
        let answer = text.lines().find(|line| line.starts_with('{')).unwrap_or(&text);
        let receipt: Value = serde_json::from_str(answer).unwrap_or_else(|why| panic!("{text}: {why}"));
        let ids = (entry["receipt"]["session_id"].as_str(), receipt["session_id"].as_str());
        if let (Some(old), Some(new)) = ids {
            sessions.push((old.to_owned(), new.to_owned()));
        }
    }
}

fn without_hashes(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "hash");
            kept.map(|(name, value)| (name.clone(), without_hashes(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_hashes).collect(),
        other => other.clone(),
    }
}

/// An entry without what differs from run to run: ids, times, its number, the workdir, inode numbers, and the sandbox
/// of this machine.
fn normal(value: &Value, workdir: &str) -> Value {
    match value {
        Value::Object(fields) => {
            // An identity is a device, an inode and a time. Versions after 0.1.0 record it of snapshots by hand too (S31).
            const OF_THE_RUN: [&str; 6] = ["seq", "isolation_applied", "identity", "dev", "ino", "mount"];
            // They also record the attributes that a change left (C29), and the content of a file that was moved.
            let is_move = fields.get("kind").is_some_and(|kind| kind == "host.fs.move");
            let facts = |value: &Value| if is_move { without_hashes(value) } else { value.clone() };
            let is_same = |name: &str| !OF_THE_RUN.contains(&name) && name != "xattrs";
            let kept = fields.iter().filter(|(name, _)| is_same(name));
            kept.map(|(name, value)| {
                let value = if name.ends_with("_ns") { Value::Null } else { normal(&facts(value), workdir) };
                (name.clone(), value)
            })
            .collect()
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| normal(item, workdir)).collect();
            // The steps of an undo have another order since.
            if items.iter().any(|item| item.get("path").is_some()) {
                items.sort_by_key(|item| item["path"].to_string());
            }
            items.into()
        }
        Value::String(text) => {
            let is_id = ["hs_", "tc_", "turn_", "snap_"].iter().find(|prefix| text.starts_with(**prefix));
            is_id.map_or_else(|| text.replace(workdir, "WORKDIR").into(), |prefix| (*prefix).into())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
