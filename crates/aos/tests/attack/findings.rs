//! The outside review's findings, by their ids: each was seen to fail, and guards what mended it.

use serde_json::json;

use aos_testkit::{World, check, wait_for};

use crate::{Case, Outcome, plain};

pub fn cases() -> Vec<Case> {
    vec![plain("S24", orders_beside_effects_are_journaled)]
}

/// Adopting a blob, collecting garbage and cancelling a command each change something: each is an entry.
fn orders_beside_effects_are_journaled() -> Outcome {
    let world = World::new();
    let session = world.open(json!({}));
    let blob = world.blob(b"adopted");
    let mut client = world.client();
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
