//! The findings of the outside review, by their ids: each case failed before its fix and guards it.

mod beside_people;
mod direct;
mod front_ends;
mod git;
mod judgement;
mod modes;
mod peers;
mod reading;
mod view;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use aos_testkit::{World, check, wait_for};

use crate::{Case, Need, Outcome, plain};

pub fn cases() -> Vec<Case> {
    let side_entrances = vec![
        plain("S24", operator_requests_are_journaled),
        Case { id: "OWN-S24-PREVIEW", needs: &[Need::Root], run: a_preview_of_an_undo_writes_nothing },
    ];
    [
        side_entrances,
        beside_people::cases(),
        direct::cases(),
        front_ends::cases(),
        git::cases(),
        judgement::cases(),
        modes::cases(),
        peers::cases(),
        reading::cases(),
        view::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Adopting a blob, collecting garbage and cancelling a command each change something: each one is journaled.
fn operator_requests_are_journaled() -> Outcome {
    let world = World::new();
    let session = world.open(json!({}));
    let blob = world.blob(b"adopted");
    let mut client = world.client();
    for method in ["store.gc", "daemon.stop", "daemon.status"] {
        let refused = client.rpc(method, json!({ "dry_run": true }));
        check(refused["error"]["code"] == -32602, || format!("{method}: {refused}"))?;
    }
    let gc = client.rpc("store.gc", json!({}));
    check(gc["result"]["status"] == "ok" && gc["result"]["removed"].is_u64(), || format!("{gc}"))?;
    let cancel = |tool_call: &str| {
        world.client().rpc("exec.cancel", json!({ "session_id": session, "tool_call_id": tool_call }))
    };
    let nothing = cancel("tc_nothing");
    check(nothing["result"]["ended"] == 0, || format!("{nothing}"))?;
    let params = json!({ "session_id": session, "argv": ["sh", "-c", "echo begun; sleep 1000"] });
    let call = json!({ "kind": "host.exec", "params": params, "tool_call_id": "tc_long" });
    client.send_effect(1, &call)?;
    wait_for("the command to run and to be cancelled", || cancel("tc_long")["result"]["ended"] == 1)?;
    let entries = world.journal();
    let of_kind = |kind: &str| entries.iter().filter(|entry| entry["kind"] == kind).collect::<Vec<_>>();
    let (adopted, collected, cancelled) =
        (of_kind("blob.put"), of_kind("store.gc"), of_kind("host.exec.cancel"));
    check(adopted.iter().any(|entry| entry["params"]["blob_ref"] == blob.as_str()), || {
        format!("{adopted:?}")
    })?;
    check(collected.len() == 1, || format!("{collected:?}"))?;
    let told = cancelled.len() == 1 && cancelled[0]["params"]["tool_call_id"] == "tc_long";
    check(told && cancelled[0]["session_id"] == session.as_str(), || format!("{cancelled:?}"))?;
    world.finish()
}

/// A preview of an undo reads pre-images that are not finalized, and does not finalize them. Manifests cannot be
/// written here, so the background thread does not finalize them either.
fn a_preview_of_an_undo_writes_nothing() -> Outcome {
    let mut world = World::new();
    world.kill9();
    world.mount_tmpfs(&world.home.join("state/snapshots"), "ro,mode=0700,size=1m")?;
    world.start_daemon();
    let session = world.open(json!({}));
    world.write("folder/inner", "inner");
    world.write("file", "before");
    let content = json!({ "inline_text": { "text": "after" } });
    let mut client = world.client();
    client.must(&session, "write_file", json!({ "path": "file", "content": content }), &["ok"])?;
    client.must(&session, "remove", json!({ "path": "folder", "recursive": true }), &["ok"])?;
    let state = world.home.join("state");
    let before = files_below(&state);
    for turns in [1, 2] {
        let params = json!({ "session_id": session, "turns": turns });
        let preview = client.rpc("effect.foresee", json!({ "kind": "host.fs.rollback", "params": params }));
        check(preview["result"]["status"] == "ok", || format!("{preview}"))?;
    }
    let after = files_below(&state);
    check(before == after, || format!("before {before:?}, after {after:?}"))?;
    client.must(&session, "rollback", json!({}), &["error / io_error"])?;
    world.finish()
}

/// Size and modification time of everything below a folder, except the journal.
fn files_below(folder: &Path) -> BTreeMap<PathBuf, (u64, i64)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, meta) = (entry.path(), entry.metadata().expect("nothing else changes the folder"));
        if meta.is_dir() {
            found.extend(files_below(&path));
        }
        if !entry.file_name().to_string_lossy().starts_with("journal.db") {
            found.insert(path, (meta.len(), meta.ctime_nsec() + meta.ctime() * 1_000_000_000));
        }
    }
    found
}
