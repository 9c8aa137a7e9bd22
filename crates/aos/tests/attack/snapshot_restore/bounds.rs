//! How much is stored, for how long, and what happens to it then.

use std::time::{Duration, SystemTime};

use aos_testkit::{check, expect, text, tree, wait_for};
use serde_json::{Value, json};

use super::Stage;
use crate::Outcome;

const MEGABYTE: usize = 1_000_000;

fn large(n: usize) -> String {
    format!("{n:07}\n").repeat(MEGABYTE / 8)
}

fn replace(path: &str) -> Value {
    json!({ "path": path, "content": text("small\n") })
}

/// Bytes of pre-images on the disk, finalized or not.
fn stored(stage: &Stage) -> usize {
    let state = stage.world().home.join("state");
    let files = ["blobs", "preimages"].into_iter().flat_map(|folder| tree(&state.join(folder)).into_keys());
    files
        .filter_map(|path| path.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|meta| meta.len() as usize)
        .sum()
}

/// SNAP-11.
pub fn the_oldest_go() -> Outcome {
    let mut stage = Stage::open(json!({ "snapshot_bytes_max": 10 * MEGABYTE }));
    for n in 0..12 {
        stage.world().write(&format!("f{n}"), large(n));
    }
    for n in 0..12 {
        stage.ok(&format!("tc{n}"), "write_file", replace(&format!("f{n}")))?;
    }
    let scopes: Vec<String> = stage
        .snapshots()?
        .iter()
        .map(|one| one["scope_id"].as_str().unwrap_or_default().to_owned())
        .collect();
    let expected: Vec<String> = (2..12).map(|n| format!("tc{n}")).collect();
    check(scopes == expected, || format!("kept are {scopes:?}"))?;
    let before = stage.tree();
    for gone in ["tc0", "tc1"] {
        stage.must("restore", json!({ "scope_id": gone }), "not_found / snapshot_not_found")?;
    }
    stage.is(&before, "after restores of what was evicted")?;
    let kept = stage.store();
    wait_for("ten manifests", || std::fs::read_dir(&kept).is_ok_and(|all| all.count() == 10))?;
    let evictions =
        stage.world().journal().iter().filter(|entry| entry["kind"] == "host.fs.snapshot_evicted").count();
    check(evictions == 2, || format!("{evictions} evictions in the journal"))?;
    stage.must("restore", json!({ "scope_id": "tc11" }), "ok")?;
    check(stage.world().read("f11") == large(11).as_bytes(), || "tc11 is not exact".into())?;
    stage.must("rollback", json!({ "turns": 100 }), "nothing_to_roll_back")?;
    stage.finish()
}

/// One pre-image that is too large, several of one call, and the one that is being written.
pub fn the_cap() -> Outcome {
    let mut stage = Stage::open(json!({ "snapshot_bytes_max": 3 * MEGABYTE }));
    for n in 0..8 {
        stage.world().write(&format!("f{n}"), large(n));
    }
    stage.world().write("huge", "x".repeat(3 * MEGABYTE + 1));
    stage.world().write("dir/huge", "x".repeat(3 * MEGABYTE + 1));
    stage.world().write("full", "x".repeat(3 * MEGABYTE));
    let before = stage.tree();
    let refused = "forbidden / limit_exceeded";
    stage.must("write_file", replace("huge"), refused)?;
    stage.must(
        "edit_file",
        json!({ "path": "huge", "old_string": "x", "new_string": "y", "replace_all": true }),
        refused,
    )?;
    stage.must("remove", json!({ "path": "huge" }), refused)?;
    stage.must("remove", json!({ "path": "dir", "recursive": true }), refused)?;
    stage.must("move", json!({ "from": "f0", "to": "huge", "overwrite": true }), refused)?;
    stage.must("snapshot", json!({ "scope_id": "s", "paths": ["huge"] }), refused)?;
    stage.must("snapshot", json!({ "scope_id": "s", "paths": ["."] }), refused)?;
    stage.is(&before, "after refusals")?;
    // A move displaces nothing, so it needs no space.
    stage.ok("move", "move", json!({ "from": "huge", "to": "huge2" }))?;
    stage.taken_back("move", &before)?;
    stage.ok("full", "write_file", replace("full"))?;
    stage.taken_back("full", &before)?;
    // A call that began early and continues does not drop its own pre-images.
    stage.must("snapshot", json!({ "scope_id": "early" }), "ok")?;
    stage.ok("early", "write_file", replace("f0"))?;
    stage.ok("between1", "write_file", replace("f1"))?;
    stage.ok("between2", "write_file", replace("f2"))?;
    stage.ok("early", "write_file", replace("f3"))?;
    stage.must("restore", json!({ "scope_id": "between1" }), "not_found")?;
    let before = stage.tree();
    // A third pre-image still fits into the limit alone; a fourth does not.
    stage.ok("early", "write_file", replace("f4"))?;
    stage.is(&before, "").err().ok_or("nothing was written")?;
    let before = stage.tree();
    expect("a fourth", &stage.call("early", "write_file", replace("f5")), &[refused])?;
    stage.is(&before, "after the fourth was refused")?;
    // Several changes of one file in one turn store one pre-image.
    for n in 0..10 {
        let params = json!({ "path": "f6", "content": text(large(100 + n)) });
        expect("again", &stage.in_turn(Some("again"), Some("t1"), "write_file", params), &["ok"])?;
    }
    stage.must("restore", json!({ "scope_id": "again" }), "ok")?;
    check(stage.world().read("f6") == large(6).as_bytes(), || "f6".into())?;
    let bytes: u64 = stage.snapshots()?.iter().filter_map(|one| one["bytes"].as_u64()).sum();
    check(bytes <= 3 * MEGABYTE as u64, || format!("{bytes} bytes are kept"))?;
    stage.finish()
}

/// No snapshot is taken automatically, and nothing is stored for a restore that is never requested.
pub fn without_snapshots() -> Outcome {
    let mut stage = Stage::open(json!({ "auto_snapshot": false }));
    stage.world().write("f", "one\n");
    stage.world().write("g", "one\n");
    stage.world().write("d/x", "x\n");
    let receipt = stage.ok("tc1", "write_file", replace("f"))?;
    check(receipt.get("snapshot_id").is_none(), || receipt.to_string())?;
    stage.ok("tc1", "remove", json!({ "path": "d", "recursive": true }))?;
    check(stage.snapshots()?.is_empty(), || "there is a snapshot".into())?;
    stage.must("restore", json!({ "scope_id": "tc1" }), "not_found / snapshot_not_found")?;
    stage.must("rollback", json!({}), "nothing_to_roll_back")?;
    wait_for("the displaced files to go", || stored(&stage) == 0)?;
    // A requested snapshot is there.
    stage.must("snapshot", json!({ "scope_id": "tc2" }), "ok")?;
    stage.ok("tc2", "write_file", replace("g"))?;
    stage.must("restore", json!({ "scope_id": "tc2" }), "ok")?;
    check(stage.world().read("g") == b"one\n", || "g".into())?;
    stage.finish()
}

pub fn dropped() -> Outcome {
    let mut stage = Stage::new();
    for n in 0..40 {
        stage.world().write(&format!("f{n}"), format!("content {n}\n"));
    }
    for n in 0..40 {
        let call = format!("tc{n}");
        let receipt = stage.ok(&call, "write_file", replace(&format!("f{n}")))?;
        // At once, whether it was finalized or not.
        let dropped = stage.must("drop_snapshot", json!({ "snapshot_id": receipt["snapshot_id"] }), "ok")?;
        check(dropped["status"] == "ok", || dropped.to_string())?;
        stage.must(
            "drop_snapshot",
            json!({ "snapshot_id": receipt["snapshot_id"] }),
            "not_found / snapshot_not_found",
        )?;
        stage.must("restore", json!({ "scope_id": call }), "not_found / snapshot_not_found")?;
    }
    check(stage.snapshots()?.is_empty(), || "a dropped snapshot is listed".into())?;
    let (store, preimages) =
        (stage.store(), stage.world().home.join("state/preimages").join(&stage.fixture.session));
    let empty = |folder: &std::path::Path| std::fs::read_dir(folder).map_or(0, Iterator::count) == 0;
    wait_for("no manifest and no pre-image", || empty(&store) && empty(&preimages))?;
    // The daemon is killed right after it answered the drop.
    let receipt = stage.ok("last", "write_file", json!({ "path": "f0", "content": text("once more\n") }))?;
    stage.must("drop_snapshot", json!({ "snapshot_id": receipt["snapshot_id"] }), "ok")?;
    stage.fixture.world.kill9();
    stage.fixture.world.start_daemon();
    stage.fixture.client = stage.fixture.world.client();
    check(stage.snapshots()?.is_empty(), || "it is listed again".into())?;
    wait_for("no manifest and no pre-image after the kill", || empty(&store) && empty(&preimages))?;
    stage.finish()
}

fn age_bodies(stage: &Stage) {
    let old = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
    for path in tree(&stage.world().home.join("state/blobs")).into_keys().filter(|path| path.is_file()) {
        std::fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    }
}

fn body(stage: &Stage, content: &str) -> std::path::PathBuf {
    let hash = aos_model::request::content_hash(content.as_bytes());
    stage.world().home.join("state/blobs").join(&hash[7..9]).join(&hash[9..])
}

/// SNAP-23.
pub fn closed_sessions_leave_nothing() -> Outcome {
    let mut stage = Stage::new();
    let mut sessions = Vec::new();
    for n in 0..10 {
        stage.world().write(&format!("own{n}"), format!("own {n}\n"));
        stage.world().write(&format!("shared{n}"), "shared\n");
        let mut agent = stage.world().agent(json!({}));
        for path in [format!("own{n}"), format!("shared{n}")] {
            expect(&path, &agent.fs("write_file", replace(&path)), &["ok"])?;
        }
        expect("a snapshot", &agent.fs("snapshot", json!({ "scope_id": "s", "paths": ["."] })), &["ok"])?;
        sessions.push(agent);
    }
    stage.world().write("live", "shared\n");
    let receipt = stage.ok("tc", "write_file", replace("live"))?;
    stage.manifest(&receipt)?;
    for agent in &mut sessions {
        let params = json!({ "session_id": agent.session, "signal": "term" });
        expect("term", &agent.client.effect("host.session.signal", params), &["signaled"])?;
    }
    let snapshots = stage.world().home.join("state/snapshots");
    let left = || -> Vec<_> {
        let all = std::fs::read_dir(&snapshots).into_iter().flatten().flatten();
        all.map(|entry| entry.file_name()).filter(|name| *name != *stage.fixture.session).collect()
    };
    wait_for("the manifests of closed sessions to go", || left().is_empty())?;
    age_bodies(&stage);
    let (code, out, err) = stage.world().aos(&["gc"]);
    check(code == 0, || format!("gc: {code}: {out}{err}"))?;
    for n in 0..10 {
        check(!body(&stage, &format!("own {n}\n")).exists(), || {
            format!("the body of own{n} is still there")
        })?;
    }
    check(body(&stage, "shared\n").exists(), || "a live session's body was swept".into())?;
    stage.must("restore", json!({ "scope_id": "tc" }), "ok")?;
    check(stage.world().read("live") == b"shared\n", || "live".into())?;
    stage.finish()
}

/// Named blobs stay and young blobs stay, however old the file with that content was.
pub fn shared_and_young_bodies() -> Outcome {
    let mut stage = Stage::new();
    let old = SystemTime::now() - Duration::from_secs(1000 * 24 * 3600);
    let path = stage.world().write("f", "an old file\n");
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    let receipt = stage.ok("tc1", "write_file", replace("f"))?;
    wait_for("the body", || body(&stage, "an old file\n").exists())?;
    stage.must("drop_snapshot", json!({ "snapshot_id": receipt["snapshot_id"] }), "ok")?;
    stage.world().aos(&["gc"]);
    check(body(&stage, "an old file\n").exists(), || "a body of a minute ago was swept".into())?;
    age_bodies(&stage);
    stage.world().aos(&["gc"]);
    check(!body(&stage, "an old file\n").exists(), || "a dropped body was not swept".into())?;
    // Two snapshots share one body; one of them is dropped.
    stage.world().write("a", "the same\n");
    stage.world().write("b", "the same\n");
    let first = stage.ok("tc2", "write_file", replace("a"))?;
    stage.ok("tc3", "write_file", replace("b"))?;
    stage.must("drop_snapshot", json!({ "snapshot_id": first["snapshot_id"] }), "ok")?;
    wait_for("the body", || body(&stage, "the same\n").exists())?;
    age_bodies(&stage);
    stage.world().aos(&["gc"]);
    stage.must("restore", json!({ "scope_id": "tc3" }), "ok")?;
    check(stage.world().read("b") == b"the same\n", || "b".into())?;
    stage.finish()
}
