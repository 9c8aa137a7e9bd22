//! The methods of the socket besides `effect.call`: queries, and requests of the operator.

use aos_host::{Evaluate, Host, ReadBlob};
use aos_model::refusal::Refusal;
use aos_model::strict;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::rpc::RpcError;

/// `effect.foresee`: the warnings that an effect would have, or its refusal.
pub(crate) fn preview(host: &Host, params: &str) -> Result<String, RpcError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Params<'a> {
        kind: String,
        #[serde(borrow)]
        params: &'a RawValue,
    }
    let params: Params<'_> = strict::parse(params).map_err(RpcError::params)?;
    Ok(answer(
        host.preview(&params.kind, params.params.get())
            .map(|warnings| json!({ "status": "ok", "warnings": warnings })),
    ))
}

/// `blob.read`: a range of a blob that a receipt of the session contains.
pub(crate) fn read_blob(host: &Host, params: &str) -> Result<String, RpcError> {
    let params: ReadBlob = strict::parse(params).map_err(RpcError::params)?;
    Ok(answer(host.read_blob(&params).map(|range| {
        let mut answer = json!(range);
        answer["status"] = json!("ok");
        answer
    })))
}

/// `exec.cancel`: ends the commands of one tool call.
pub(crate) fn cancel(host: &Host, params: &str) -> Result<String, RpcError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Params {
        session_id: String,
        tool_call_id: String,
    }
    let params: Params = strict::parse(params).map_err(RpcError::params)?;
    Ok(host.cancel(&params.session_id, &params.tool_call_id))
}

fn answer(outcome: Result<serde_json::Value, Refusal>) -> String {
    match outcome {
        Ok(answer) => answer.to_string(),
        Err(refusal) => refused(refusal),
    }
}

/// `policy.evaluate`.
pub(crate) fn evaluate(host: &Host, params: &str) -> Result<String, RpcError> {
    let params: Evaluate = strict::parse(params).map_err(RpcError::params)?;
    Ok(match host.evaluate(&params) {
        Ok(evaluation) => serde_json::to_string(&evaluation).expect("BUG: an evaluation is plain data"),
        Err(refusal) => refused(refusal),
    })
}

/// A method without params: `store.gc`, `daemon.status`, `daemon.stop`.
pub(crate) fn no_params(params: &str) -> Result<(), RpcError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct None {}
    strict::parse(params).map(|None {}| ()).map_err(RpcError::params)
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
    struct Params {
        session_id: String,
    }
    let params: Params = strict::parse(params).map_err(RpcError::params)?;
    Ok(match host.history(&params.session_id) {
        Ok(turns) => serde_json::json!({ "status": "ok", "turns": turns }).to_string(),
        Err(refusal) => refused(refusal),
    })
}

/// `session.diff`: what one tool call changed.
pub(crate) fn diff(host: &Host, params: &str) -> Result<String, RpcError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Params {
        session_id: String,
        tool_call_id: String,
    }
    let params: Params = strict::parse(params).map_err(RpcError::params)?;
    Ok(match host.diff(&params.session_id, &params.tool_call_id) {
        Ok(diff) => serde_json::json!({ "status": "ok", "diff": diff }).to_string(),
        Err(refusal) => refused(refusal),
    })
}

fn refused(refusal: Refusal) -> String {
    aos_model::receipt::Receipt::refusal(refusal).to_json()
}
