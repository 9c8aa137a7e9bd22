//! Clients that disconnect: their request is executed completely and once, or not at all.

use aos_testkit::world::DESCRIPTORS_SLACK;
use aos_testkit::{Findings, Fixture, check, expect, is_full, patch_params, text, tree, wait_for};
use serde_json::{Value, json};

use super::{call, still_serves};
use crate::Outcome;

pub(super) fn gone_in_mid_request() -> Outcome {
    let mut fixture = Fixture::new();
    let descriptors = fixture.world.open_descriptors();
    let mut findings = Findings::default();
    for round in 0..if is_full() { 50 } else { 5 } {
        findings.add(gone_after_a_patch(&fixture, round));
    }
    findings.add(gone_before_the_end(&fixture));
    findings.add(half_closed(&fixture));
    // The command ends by itself or with its client, and its receipt is in the journal.
    let params = json!({ "session_id": fixture.session, "argv": ["sleep", "1"] });
    let entry = gone_after(&fixture, "host.exec", params, "tc_exec")?;
    findings.add(expect("exec", &entry["receipt"], &["ok", "signaled", "error"]));
    let params = json!({ "session_id": fixture.session, "scope_id": "tc_gone0" });
    let entry = gone_after(&fixture, "host.fs.restore", params, "tc_restore")?;
    findings.add(expect("restore", &entry["receipt"], &["ok", "conflict", "error"]));
    fixture.client = fixture.world.client();
    findings.add(wait_for("the descriptors to be closed", || {
        fixture.world.open_descriptors() <= descriptors + DESCRIPTORS_SLACK
    }));
    findings.add(fixture.finish());
    findings.outcome()
}

/// Sends an effect, disconnects, and waits for its only entry in the journal.
fn gone_after(fixture: &Fixture, kind: &str, params: Value, tool_call: &str) -> Result<Value, String> {
    let call = json!({ "kind": kind, "params": params, "tool_call_id": tool_call });
    let mut client = fixture.world.client();
    client.send_effect(1, &call)?;
    drop(client);
    let mut entries = Vec::new();
    wait_for("the receipt", || {
        entries = fixture.world.entries_of(&fixture.session, tool_call);
        !entries.is_empty()
    })?;
    check(entries.len() == 1, || format!("{tool_call}: {} receipts", entries.len()))?;
    Ok(entries.remove(0))
}

fn gone_after_a_patch(fixture: &Fixture, round: usize) -> Outcome {
    let files: String = (0..50).map(|n| format!("*** Add File: r{round}/f{n}\n+x\n")).collect();
    let mut params = patch_params(&files);
    params["session_id"] = json!(fixture.session);
    let entry = gone_after(fixture, "host.fs.apply_patch", params, &format!("tc_gone{round}"))?;
    let there = tree(&fixture.world.root.join(format!("r{round}"))).len();
    let wanted = if entry["receipt"]["status"] == "ok" { 50 } else { 0 };
    check(there == wanted, || format!("round {round}: {there} files, and {}", entry["receipt"]))
}

/// Without its line end a line is not a request, however much of it was sent.
fn gone_before_the_end(fixture: &Fixture) -> Outcome {
    let params =
        json!({ "session_id": fixture.session, "path": "half", "content": text("x".repeat(1 << 20)) });
    let line = call("1", "host.fs.write_file", &params.to_string());
    for part in [1, line.len() / 2, line.len()] {
        let mut client = fixture.world.client();
        client.send(&line.as_bytes()[..part]).map_err(|why| why.to_string())?;
        drop(client);
    }
    still_serves(&mut fixture.world.patient_client(), "half requests")?;
    check(!fixture.world.root.join("half").exists(), || "half a request was carried out".into())
}

/// A client that only shuts down its sending side still gets the answer.
fn half_closed(fixture: &Fixture) -> Outcome {
    let mut client = fixture.world.patient_client();
    let params = json!({ "session_id": fixture.session, "path": "whole", "content": text("x") });
    let line = call("1", "host.fs.write_file", &params.to_string());
    client.send(format!("{line}\n").as_bytes()).map_err(|why| why.to_string())?;
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    let answer: Value = serde_json::from_str(&client.line().unwrap_or_default()).unwrap_or_default();
    check(answer["result"]["status"] == "ok", || format!("half closed: {answer}"))?;
    check(client.line().is_none(), || "the connection stays open".into())
}
