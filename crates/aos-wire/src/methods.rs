//! The methods of the socket beside `effect.call`: each a question to the host or an order of the operator.

use aos_host::{Evaluate, Host, ReadBlob};
use aos_model::refusal::Refusal;
use aos_model::strict;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::rpc::RpcError;

/// `effect.foresee`: the warnings that an effect would carry, or the refusal that it would be.
pub(crate) fn preview(host: &Host, params: &str) -> Result<String, RpcError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked<'a> {
        kind: String,
        #[serde(borrow)]
        params: &'a RawValue,
    }
    let asked: Asked<'_> = strict::parse(params).map_err(RpcError::params)?;
    Ok(answer(
        host.preview(&asked.kind, asked.params.get())
            .map(|warnings| json!({ "status": "ok", "warnings": warnings })),
    ))
}

/// `blob.read`: a range of a blob that a receipt of the session named.
pub(crate) fn read_blob(host: &Host, params: &str) -> Result<String, RpcError> {
    let asked: ReadBlob = strict::parse(params).map_err(RpcError::params)?;
    Ok(answer(host.read_blob(&asked).map(|range| {
        let mut answer = json!(range);
        answer["status"] = json!("ok");
        answer
    })))
}

/// `exec.cancel`: ends the commands of one tool call.
pub(crate) fn cancel(host: &Host, params: &str) -> Result<String, RpcError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        session_id: String,
        tool_call_id: String,
    }
    let asked: Asked = strict::parse(params).map_err(RpcError::params)?;
    Ok(host.cancel(&asked.session_id, &asked.tool_call_id))
}

fn answer(outcome: Result<serde_json::Value, Refusal>) -> String {
    match outcome {
        Ok(answer) => answer.to_string(),
        Err(refusal) => refused(refusal),
    }
}

/// `policy.evaluate`.
pub(crate) fn evaluate(host: &Host, params: &str) -> Result<String, RpcError> {
    let asked: Evaluate = strict::parse(params).map_err(RpcError::params)?;
    Ok(match host.evaluate(&asked) {
        Ok(evaluation) => serde_json::to_string(&evaluation).expect("BUG: an evaluation is plain data"),
        Err(refusal) => refused(refusal),
    })
}

/// `blob.adopt`.
pub(crate) fn adopt(host: &Host, params: &str) -> Result<String, RpcError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Adopt {
        blob_ref: String,
    }
    let Adopt { blob_ref } = strict::parse(params).map_err(RpcError::params)?;
    Ok(host.adopt_blob(&blob_ref))
}

/// `session.history`.
pub(crate) fn history(host: &Host, params: &str) -> Result<String, RpcError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        session_id: String,
    }
    let asked: Asked = strict::parse(params).map_err(RpcError::params)?;
    Ok(match host.history(&asked.session_id) {
        Ok(turns) => serde_json::json!({ "status": "ok", "turns": turns }).to_string(),
        Err(refusal) => refused(refusal),
    })
}

/// `session.diff`: what one tool call changed.
pub(crate) fn diff(host: &Host, params: &str) -> Result<String, RpcError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        session_id: String,
        tool_call_id: String,
    }
    let asked: Asked = strict::parse(params).map_err(RpcError::params)?;
    Ok(match host.diff(&asked.session_id, &asked.tool_call_id) {
        Ok(diff) => serde_json::json!({ "status": "ok", "diff": diff }).to_string(),
        Err(refusal) => refused(refusal),
    })
}

fn refused(refusal: Refusal) -> String {
    aos_model::receipt::Receipt::refusal(refusal).to_json()
}
