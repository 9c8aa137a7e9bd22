//! The subcommands, one file each: they call the daemon or read AOS_HOME, and print.

pub(crate) mod blob;
pub(crate) mod call;
pub(crate) mod daemon;
mod daemon_logs;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod history;
pub(crate) mod log;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod policy;
pub(crate) mod record;
pub(crate) mod session;
pub(crate) mod setup;
pub(crate) mod stage;
pub(crate) mod tool;

use std::path::Path;

use anyhow::Context as _;
use aos_wire::{Client, ClientError};
use serde_json::Value;

use crate::{Exit, connect};

/// The context of an error that sets the exit code.
#[derive(Debug)]
pub(crate) struct ExitWith(pub(crate) Exit);

impl std::fmt::Display for ExitWith {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Exit::Usage => "usage",
            Exit::Upstream => "no answer from the daemon",
            Exit::Contaminated => "the record cannot be verified",
            Exit::ReplayFault => "the replay cannot continue",
            Exit::Timeout => "timeout",
            Exit::Internal => "internal error",
            Exit::Success | Exit::Failure | Exit::Program(_) => "failed",
        })
    }
}

impl std::error::Error for ExitWith {}

/// Connects to the daemon; a failure exits with 98.
pub(crate) fn daemon() -> anyhow::Result<Client> {
    connect::client().context(ExitWith(Exit::Upstream))
}

/// Calls one effect and returns its receipt.
pub(crate) fn effect(client: &mut Client, kind: &str, params: &Value) -> anyhow::Result<Value> {
    let receipt = client.effect(kind, &params.to_string(), None, None).map_err(daemon_error)?;
    Ok(serde_json::from_str(&receipt)?)
}

pub(crate) fn daemon_error(error: ClientError) -> anyhow::Error {
    anyhow::Error::new(error).context(ExitWith(Exit::Upstream))
}

/// Whether a receipt is a success.
pub(crate) fn is_success(kind: &str, status: &str) -> bool {
    matches!(status, "ok" | "ready") || (status == "signaled" && kind == "host.session.signal")
}

/// The message and code of a receipt that is not a success.
pub(crate) fn refusal_text(receipt: &Value) -> String {
    let text = |name: &str| receipt.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("{} ({})", text("error_message"), text("error_code"))
}

pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    #[expect(clippy::disallowed_methods, reason = "the operator's own argument, read as the operator")]
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A policy argument: the name of a preset, or a file.
pub(crate) fn policy_argument(text: &str) -> anyhow::Result<Value> {
    if matches!(text, "default" | "strict" | "permissive") {
        return Ok(serde_json::json!({ "preset": text }));
    }
    let json = read_text(Path::new(text))?;
    serde_json::from_str(&json).with_context(|| format!("{text} is not JSON"))
}
