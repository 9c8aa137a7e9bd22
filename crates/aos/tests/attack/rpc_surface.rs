//! The socket: whatever is sent, the daemon answers as JSON-RPC requires, keeps serving others, and does not change.

mod envelope;
mod fields;
mod floods;
mod gone;
mod hostile_home;
mod mcp;
mod mcp_stream;
mod sessions;
mod stranger;
mod texts;

use std::path::Path;

use aos_testkit::{Client, check, expect};
use serde_json::Value;

use crate::{Case, Need, Outcome, plain};

pub use stranger::other_uid;

pub fn cases() -> Vec<Case> {
    let mut cases = mcp::cases();
    cases.extend(mcp_stream::cases());
    cases.extend([
        plain("RPC-01", envelope::malformed_lines),
        plain("RPC-02", envelope::deep_and_wide),
        plain("RPC-03", floods::a_line_without_end),
        plain("OWN-RPC-FLOOD", floods::a_flood_of_half_lines),
        plain("OWN-RPC-BESIDE", floods::a_command_blocks_no_request),
        plain("RPC-04", floods::slow_senders),
        plain("RPC-06", envelope::ids_and_batches),
        plain("RPC-07", envelope::text_that_is_none),
        plain("RPC-08", fields::unknown_fields),
        plain("RPC-09", fields::wrong_types),
        Case { id: "RPC-10", needs: &[Need::Root], run: stranger::other_uids_cannot_connect },
        plain("RPC-12", gone::gone_in_mid_request),
        plain("RPC-18", texts::hostile_texts),
        plain("RPC-19", sessions::sessions_without_end),
        plain("RPC-21", hostile_home::a_hostile_home),
    ]);
    cases
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Sends one line and reads one answer.
fn ask(client: &mut Client, line: impl AsRef<[u8]>) -> Value {
    let sent = client.send(line.as_ref()).and_then(|()| client.send(b"\n"));
    match (sent, client.line()) {
        (Ok(()), Some(answer)) => serde_json::from_str(&answer).unwrap_or(Value::String(answer)),
        _ => Value::Null,
    }
}

fn call(id: &str, kind: &str, params: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"effect.call\",\"params\":{{\"kind\":\"{kind}\",\"params\":{params}}}}}"
    )
}

fn list_call(id: &str) -> String {
    call(id, "host.session.list", "{}")
}

/// The connection still works.
fn still_serves(client: &mut Client, after: &str) -> Outcome {
    let answer = ask(client, list_call("\"still\""));
    check(answer["id"] == "still" && answer["result"]["status"] == "ok", || {
        format!("after {after}: {answer}")
    })
}

/// An error of the envelope: one of `codes`, no result, and an id that is null or given.
fn envelope_error(what: &str, answer: &Value, codes: &[i64]) -> Outcome {
    let code = answer["error"]["code"].as_i64();
    check(code.is_some_and(|code| codes.contains(&code)), || {
        format!("{what}: wanted {codes:?}, got {answer}")
    })?;
    check(answer["jsonrpc"] == "2.0" && answer.get("result").is_none(), || format!("{what}: {answer}"))?;
    check(answer["error"]["message"].is_string() && answer.get("id").is_some(), || {
        format!("{what}: {answer}")
    })
}

/// `error / invalid_params` with a message that names the field.
fn names_field(what: &str, receipt: &Value, field: &str) -> Outcome {
    expect(what, receipt, &["error / invalid_params"])?;
    let message = receipt["error_message"].as_str().unwrap_or_default();
    check(message.contains(field), || format!("{what}: {field} is not named: {receipt}"))
}
