//! What undo got wrong elsewhere, one named test each: the original of seed 001, and what users of similar tools
//! report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aos_testkit::{Client, Start, World, text, tree, verdict};
use serde_json::{Value, json};

use crate::prepared;

/// A session in which tool calls have ids.
struct Room {
    world: World,
    client: Client,
    session: String,
}

impl Room {
    fn open(extra: Value) -> Room {
        let world = prepared(Start::default());
        Room { client: world.client(), session: world.open(extra), world }
    }

    fn call(&mut self, id: &str, effect: &str, mut params: Value) -> Value {
        params["session_id"] = json!(self.session);
        self.client.effect_of(&format!("host.{effect}"), params, Some(id))
    }

    fn write(&mut self, id: &str, path: &str, content: &str) {
        let params = json!({ "path": path, "content": text(content), "create_parents": true });
        let receipt = self.call(id, "fs.write_file", params);
        assert_eq!(receipt["status"], "ok", "{receipt}");
    }

    fn shell(&mut self, id: &str, script: &str) -> Value {
        let receipt = self.call(id, "exec", json!({ "argv": ["sh", "-c", script] }));
        assert_eq!(receipt["exit_code"], 0, "{receipt}");
        receipt
    }

    fn restore(&mut self, call: &str) -> Value {
        self.call("undo", "fs.restore", json!({ "scope_id": call }))
    }
}

#[test]
fn a_restore_overwrote_later_edits() {
    let mut room = Room::open(json!({}));
    room.write("first", "f", "by the agent\n");
    std::fs::write(room.world.root.join("f"), "by its user, later\n").unwrap();
    assert_eq!(verdict(&room.restore("first")), "conflict / changed_since");
    assert_eq!(room.world.read("f"), b"by its user, later\n");
    room.world.finish().unwrap();
}

#[test]
fn a_write_went_on_when_its_capture_failed() {
    let mut room = Room::open(json!({ "snapshot_bytes_max": 10 }));
    room.world.write("big", "more than ten bytes\n");
    let before = tree(&room.world.root);
    let receipt = room.call("tc", "fs.write_file", json!({ "path": "big", "content": text("x") }));
    assert_eq!(verdict(&receipt), "forbidden / limit_exceeded", "{receipt}");
    assert_eq!(tree(&room.world.root), before);
    room.world.finish().unwrap();
}

#[test]
fn links_folders_and_what_commands_did_were_skipped() {
    let mut room = Room::open(json!({}));
    room.world.link("f", "l");
    let before = tree(&room.world.root);
    let ran = room.shell("tc", "rm -r d l; mkdir -p new/deep; echo x > new/deep/x; ln -s nowhere here; rm f");
    if ran["coverage"] != "overlay" {
        eprintln!("skipped: no overlay on this machine, and the receipt says so");
        return room.world.finish().unwrap();
    }
    let receipt = room.restore("tc");
    assert_eq!(receipt["status"], "ok", "{receipt}");
    assert_eq!(tree(&room.world.root), before);
    room.world.finish().unwrap();
}

#[test]
fn bodies_were_not_shared_between_snapshots() {
    let mut room = Room::open(json!({}));
    let large = "the same line over and over\n".repeat(40_000);
    for number in 0..5 {
        room.world.write(&format!("copy{number}"), &large);
        room.write(&format!("tc{number}"), &format!("copy{number}"), "small\n");
    }
    // Listing waits for snapshots that are being written.
    let listed = room.call("list", "fs.list_snapshots", json!({}));
    assert_eq!(listed["snapshots"].as_array().map(Vec::len), Some(5), "{listed}");
    for number in 0..5 {
        let receipt = room.restore(&format!("tc{number}"));
        assert_eq!(receipt["status"], "ok", "{receipt}");
    }
    let kept = disk_bytes(&room.world.home.join("state/blobs"));
    assert!(kept < 2 * large.len() as u64, "{kept} bytes are kept of five copies of {}", large.len());
    room.world.finish().unwrap();
}

#[test]
fn a_rollback_went_on_when_it_was_only_partial() {
    let mut room = Room::open(json!({}));
    let patch = "*** Begin Patch\n*** Update File: f\n@@\n-one\n+1\n*** Add File: g\n+new\n*** End Patch\n";
    let receipt = room.call("tc", "fs.apply_patch", json!({ "patch": text(patch) }));
    assert_eq!(receipt["status"], "ok", "{receipt}");
    std::fs::write(room.world.root.join("g"), "somebody else's\n").unwrap();
    let before = tree(&room.world.root);
    let receipt = room.call("undo", "fs.rollback", json!({}));
    assert_eq!(verdict(&receipt), "conflict / changed_since", "{receipt}");
    assert_eq!(tree(&room.world.root), before, "it moved something");
    std::fs::write(room.world.root.join("g"), "new\n").unwrap();
    let receipt = room.call("undo", "fs.rollback", json!({}));
    assert_eq!(receipt["status"], "ok", "the turn is still there to be taken back: {receipt}");
    assert_eq!(room.world.read("f"), b"one\ntwo\n");
    room.world.finish().unwrap();
}

/// A typical user's tree: untracked files, ignored files, and a repository in it.
fn plant_untracked(world: &World) {
    for (path, content) in [
        (".gitignore", "secret.env\nbuild/\n"),
        ("secret.env", "KEY=1\n"),
        ("build/out.o", "object\n"),
        ("untracked/notes.md", "not in any commit\n"),
        ("vendor/lib/.git/HEAD", "ref: refs/heads/main\n"),
        ("vendor/lib/code.c", "int main;\n"),
    ] {
        world.write(path, content);
    }
}

#[test]
fn whole_trees_were_lost_to_a_clean_on_restore() {
    let mut room = Room::open(json!({}));
    plant_untracked(&room.world);
    let before = tree(&room.world.root);
    room.write("tc", "f", "changed\n");
    room.world.write("made-meanwhile", "by its user\n");
    let receipt = room.restore("tc");
    assert_eq!(receipt["status"], "ok", "{receipt}");
    let receipt = room.call("undo", "fs.rollback", json!({}));
    assert_eq!(receipt["status"], "ok", "{receipt}");
    assert_eq!(room.world.read("made-meanwhile"), b"by its user\n");
    std::fs::remove_file(room.world.root.join("made-meanwhile")).unwrap();
    room.call("undo", "fs.rollback", json!({}));
    assert_eq!(tree(&room.world.root), before);
    room.world.finish().unwrap();
}

#[test]
fn the_times_of_all_files_were_rewritten() {
    let mut room = Room::open(json!({}));
    plant_untracked(&room.world);
    let before = times(&room.world.root);
    room.write("tc1", "f", "changed\n");
    room.shell("tc2", "echo more >> untracked/notes.md; echo x > new");
    for _ in 0..2 {
        let receipt = room.call("undo", "fs.rollback", json!({}));
        assert_eq!(receipt["status"], "ok", "{receipt}");
    }
    for (path, time) in times(&room.world.root) {
        let touched = ["f", "untracked/notes.md"].iter().any(|name| path.ends_with(name));
        assert!(touched || before.get(&path) == Some(&time), "{} was rewritten", path.display());
    }
    room.world.finish().unwrap();
}

#[test]
fn shadow_repositories_took_gigabytes() {
    let mut room = Room::open(json!({}));
    let large = "x".repeat(1 << 20);
    for number in 0..20 {
        room.world.write(&format!("assets/{number}"), format!("{number}{large}"));
    }
    let state = room.world.home.join("state");
    let before = disk_bytes(&state);
    room.write("tc1", "f", "changed\n");
    room.shell("tc2", "echo more >> f");
    room.call("list", "fs.list_snapshots", json!({}));
    let grown = disk_bytes(&state).saturating_sub(before);
    assert!(grown < 1 << 20, "20 MB of files that nobody touched cost {grown} bytes");
    room.world.finish().unwrap();
}

/// All files below a folder. What the daemon removes meanwhile is not there.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), found),
            _ => found.push(entry.path()),
        }
    }
}

fn times(root: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let mut found = Vec::new();
    files(root, &mut found);
    found
        .into_iter()
        .map(|path| (path.clone(), path.symlink_metadata().unwrap().modified().unwrap()))
        .collect()
}

fn disk_bytes(dir: &Path) -> u64 {
    let mut found = Vec::new();
    files(dir, &mut found);
    found.iter().map(|path| path.symlink_metadata().map_or(0, |meta| meta.len())).sum()
}
