//! One file a verb. They read arguments, ask the daemon or the record, and print.

pub(crate) mod blob;
pub(crate) mod call;
pub(crate) mod daemon;
mod daemon_logs;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod log;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod policy;
pub(crate) mod record;
pub(crate) mod session;
pub(crate) mod setup;
pub(crate) mod stage;
pub(crate) mod tool;
pub(crate) mod undo;

use std::path::Path;

use anyhow::Context as _;
use aos_wire::{Client, ClientError};
use serde_json::Value;

use crate::{Exit, connect};

/// An error that decides the exit code.
#[derive(Debug)]
pub(crate) struct Ending(pub(crate) Exit);

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Exit::Usage => "usage",
            Exit::Upstream => "no answer from the daemon",
            Exit::Contaminated => "the record is damaged",
            Exit::ReplayFault => "the replay cannot go on",
            Exit::Timeout => "the time ran out",
            Exit::Internal => "internal error",
            Exit::Success | Exit::Failure | Exit::Program(_) => "failed",
        })
    }
}

impl std::error::Error for Ending {}

/// The daemon, or exit code 98.
pub(crate) fn daemon() -> anyhow::Result<Client> {
    connect::client().context(Ending(Exit::Upstream))
}

/// One effect; the receipt as JSON.
pub(crate) fn effect(client: &mut Client, kind: &str, params: &Value) -> anyhow::Result<Value> {
    let receipt = client.effect(kind, &params.to_string(), None, None).map_err(ended)?;
    Ok(serde_json::from_str(&receipt)?)
}

pub(crate) fn ended(error: ClientError) -> anyhow::Error {
    anyhow::Error::new(error).context(Ending(Exit::Upstream))
}

/// Whether a receipt is a success.
pub(crate) fn is_success(kind: &str, status: &str) -> bool {
    matches!(status, "ok" | "ready") || (status == "signaled" && kind == "host.session.signal")
}

/// The sentence of a receipt that says no.
pub(crate) fn complaint(receipt: &Value) -> String {
    let text = |name: &str| receipt.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("{} ({})", text("error_message"), text("error_code"))
}

pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    #[expect(clippy::disallowed_methods, reason = "the operator's own argument, read as the operator")]
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A policy as the command line gives it: a preset's name or a file.
pub(crate) fn policy_argument(text: &str) -> anyhow::Result<Value> {
    if matches!(text, "default" | "strict" | "permissive") {
        return Ok(serde_json::json!({ "preset": text }));
    }
    let json = read_text(Path::new(text))?;
    serde_json::from_str(&json).with_context(|| format!("{text} is no JSON"))
}
