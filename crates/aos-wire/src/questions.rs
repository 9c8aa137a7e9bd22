//! What the tools for models ask beside effects: what policy would say, a range of a blob, the end of one command.

use aos_host::{Host, ReadBlob};
use aos_model::refusal::Refusal;
use aos_model::strict;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::rpc::Wrong;
use crate::server::refused;

/// `effect.foresee`: the warnings that an effect would carry, or the refusal that it would be.
pub(crate) fn preview(host: &Host, params: &str) -> Result<String, Wrong> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked<'a> {
        kind: String,
        #[serde(borrow)]
        params: &'a RawValue,
    }
    let asked: Asked<'_> = strict::parse(params).map_err(Wrong::params)?;
    Ok(answer(
        host.preview(&asked.kind, asked.params.get())
            .map(|warnings| json!({ "status": "ok", "warnings": warnings })),
    ))
}

/// `blob.read`: a range of a blob that a receipt of the session named.
pub(crate) fn read_blob(host: &Host, params: &str) -> Result<String, Wrong> {
    let asked: ReadBlob = strict::parse(params).map_err(Wrong::params)?;
    Ok(answer(host.read_blob(&asked).map(|range| {
        let mut answer = json!(range);
        answer["status"] = json!("ok");
        answer
    })))
}

/// `exec.cancel`: ends the commands of one tool call.
pub(crate) fn cancel(host: &Host, params: &str) -> Result<String, Wrong> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        session_id: String,
        tool_call_id: String,
    }
    let asked: Asked = strict::parse(params).map_err(Wrong::params)?;
    Ok(answer(
        host.cancel(&asked.session_id, &asked.tool_call_id)
            .map(|ended| json!({ "status": "ok", "ended": ended })),
    ))
}

fn answer(outcome: Result<serde_json::Value, Refusal>) -> String {
    match outcome {
        Ok(answer) => answer.to_string(),
        Err(refusal) => refused(refusal),
    }
}
