//! Changes in more folders than the daemon may have files open.

use serde_json::json;

use aos_testkit::{Start, World, check, expect, tree};

use crate::Outcome;

/// The daemon's limit of open files.
const LIMIT: usize = 800;

/// More than the limit of each kind.
const FOLDERS: usize = 1_000;

pub fn more_folders_than_descriptors() -> Outcome {
    let wrapper = vec!["prlimit".to_owned(), format!("--nofile={LIMIT}:{LIMIT}")];
    let world = World::with(Start { wrapper, ..Start::default() });
    for n in 0..FOLDERS {
        world.write(&format!("old/{n}/changed"), "before");
        world.write(&format!("old/{n}/removed"), "before");
        world.write(&format!("old/{n}/touched"), "before");
    }
    let before = tree(&world.root);
    let session = world.open(json!({}));
    let script = format!(
        "for n in $(seq 0 {last}); do echo after > old/$n/changed; rm old/$n/removed; touch old/$n/touched; \
             mkdir -p new/$n/deep; echo x > new/$n/deep/made; done",
        last = FOLDERS - 1
    );
    let run = json!({ "session_id": session, "argv": ["sh", "-c", script] });
    let call = json!({ "kind": "host.exec", "params": run, "tool_call_id": "tc_many" });
    let mut runner = world.client();
    runner.send_effect(1, &call)?;
    // Others are served meanwhile.
    let other = world.open(json!({}));
    for n in 0..50 {
        let params = json!({ "path": format!("old/{n}/touched") });
        world.client().must(&other, "read_file", params, &["ok"])?;
    }
    let receipt = runner.answer().unwrap_or_default()["result"].clone();
    expect("the command", &receipt, &["ok"])?;
    check(receipt["changed_paths_count"] == 5 * FOLDERS + 1, || {
        format!("{} changed", receipt["changed_paths_count"])
    })?;
    check(world.read("old/999/changed") == b"after\n", || "a change is missing".into())?;
    check(world.read("new/999/deep/made") == b"x\n", || "a new file is missing".into())?;
    check(world.open_descriptors() < LIMIT / 2, || format!("{} are open", world.open_descriptors()))?;
    world.client().must(&session, "rollback", json!({}), &["ok"])?;
    check(tree(&world.root) == before, || "the rollback is not exact".into())?;
    world.client().must(&session, "redo", json!({}), &["ok"])?;
    check(world.read("new/7/deep/made") == b"x\n", || "redo: a new file is missing".into())?;
    world.finish()
}
