//! Plain calls: understood to the last field and answered in rmcp's own bytes, without its work, which costs as much as
//! the call itself. Every other line is rmcp's.

use rmcp::model::{CallToolResult, RequestId};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::handler::result;
use super::offer::{Offer, Order};
use crate::tools::Outcome;

/// A call of a tool that works on one file.
pub(crate) struct Plain<'a> {
    pub(crate) id: &'a RawValue,
    /// Or what is refused without asking.
    pub(crate) order: Result<Order, Outcome>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    method: &'a str,
    params: Call<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call<'a> {
    name: &'a str,
    #[serde(default)]
    arguments: Map<String, Value>,
    #[serde(default, rename = "_meta")]
    _meta: Option<Meta>,
}

/// Such a tool has no progress to tell.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    #[serde(default, rename = "progressToken")]
    _progress_token: IgnoredAny,
}

#[derive(Serialize)]
struct Answer<'a> {
    jsonrpc: &'a str,
    id: &'a RawValue,
    result: CallToolResult,
}

impl<'a> Plain<'a> {
    pub(crate) fn parse(offer: &Offer, line: &'a [u8]) -> Option<Plain<'a>> {
        let Ok(Line { jsonrpc: "2.0", id, method: "tools/call", params }) = serde_json::from_slice(line)
        else {
            return None;
        };
        serde_json::from_str::<RequestId>(id.get()).ok()?;
        let tool = offer.tools().into_iter().find(|tool| tool.name == params.name)?;
        let order = tool.works_on_one_file().then(|| offer.order(tool, params.arguments))?;
        Some(Plain { id, order })
    }

    /// The answer's line.
    pub(crate) fn answer(id: &RawValue, outcome: Outcome) -> Vec<u8> {
        let mut result = result(outcome);
        // Protocols before 2026-07-28 do not know it; clients of later ones are rmcp's.
        result.result_type = None;
        let answer = Answer { jsonrpc: "2.0", id, result };
        let mut line = serde_json::to_vec(&answer).expect("BUG: a result is JSON");
        line.push(b'\n');
        line
    }
}
