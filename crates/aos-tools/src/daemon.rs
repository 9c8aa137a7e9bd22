//! The daemon as a tool sees it: a method, its params, an answer.

use aos_model::request::Base64;
use serde::Deserialize;

/// Answers the requests of a tool: the daemon behind a connection, or the daemon itself.
pub trait DaemonApi {
    /// The result of a method, as JSON. `watch` gets the output of a command while it runs.
    fn call(
        &mut self,
        method: &str,
        params: &str,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<String, Unanswered>;
}

/// Why a request has no answer, for people.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unanswered(pub String);

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
