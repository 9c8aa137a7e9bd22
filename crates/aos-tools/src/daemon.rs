//! The daemon's interface for tools: a method and its params, answered with JSON.

use aos_model::request::Base64;
use serde::Deserialize;

/// Calls methods of the daemon: over a connection, or in the daemon's own process.
pub trait DaemonApi {
    /// The result of a method, as JSON. `on_progress` gets the output of a command while it runs.
    fn call(
        &mut self,
        method: &str,
        params: &str,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<String, CallError>;
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("{0}")]
    NoAnswer(String),
    #[error("{0}")]
    TooLong(String),
}

/// Output of a running command, reported before the answer.
#[derive(Debug, Deserialize)]
pub struct Progress {
    pub stream: String,
    /// The offset of the bytes in the stream.
    pub offset_bytes: u64,
    pub bytes: Base64,
}

/// The params of `effect.call`.
pub fn effect_call(kind: &str, params: &str, tool_call: Option<&str>, turn: Option<&str>) -> String {
    let quoted = |text: &str| serde_json::to_string(text).expect("BUG: a string is JSON");
    let mut call = format!("{{\"kind\":{},\"params\":{params}", quoted(kind));
    for (name, id) in [("tool_call_id", tool_call), ("turn_id", turn)] {
        if let Some(id) = id {
            call.push_str(&format!(",\"{name}\":{}", quoted(id)));
        }
    }
    call.push('}');
    call
}
