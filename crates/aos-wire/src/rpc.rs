//! JSON-RPC 2.0 on the socket: one message or batch per line, ids echoed unchanged.

use std::borrow::Cow;

use aos_model::limits::BATCH_REQUESTS_MAX;
use aos_model::strict::{self, JsonError, present};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The errors of the envelope. A refused or failed effect is a `result`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    ParseError,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
}

impl ErrorCode {
    pub fn number(self) -> i32 {
        match self {
            ErrorCode::ParseError => -32700,
            ErrorCode::InvalidRequest => -32600,
            ErrorCode::MethodNotFound => -32601,
            ErrorCode::InvalidParams => -32602,
        }
    }
}

/// Why a message is not answered with a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError {
    pub code: ErrorCode,
    pub message: String,
}

impl RpcError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into() }
    }

    /// Params that do not fit their method. Invalid JSON in them is a parse error of the whole message.
    pub fn params(invalid: JsonError) -> RpcError {
        match invalid {
            JsonError::Syntax(why) => RpcError::new(ErrorCode::ParseError, why),
            JsonError::Shape(why) => RpcError::new(ErrorCode::InvalidParams, why),
        }
    }
}

/// One message; id and params are not parsed.
#[derive(Debug)]
pub struct Message<'a> {
    /// `None` for a notification, which gets no answer.
    pub id: Option<&'a RawValue>,
    pub method: Cow<'a, str>,
    pub params: &'a str,
}

/// A line: one message or a batch, each message valid or not by itself.
#[derive(Debug)]
pub enum Line<'a> {
    One(Result<Message<'a>, RpcError>),
    Batch(Vec<Result<Message<'a>, RpcError>>),
}

pub fn parse_line(line: &[u8]) -> Line<'_> {
    let broken = |why: String| Line::One(Err(RpcError::new(ErrorCode::ParseError, why)));
    let text = match std::str::from_utf8(line) {
        Ok(text) => text.trim_matches([' ', '\t', '\r', '\n']),
        Err(why) => return broken(format!("not UTF-8: {why}")),
    };
    if !text.starts_with('[') {
        return Line::One(parse_message(text));
    }
    let invalid = |why: String| Line::One(Err(RpcError::new(ErrorCode::InvalidRequest, why)));
    match serde_json::from_str::<Batch<'_>>(text) {
        Ok(batch) if batch.messages.is_empty() => invalid("the batch is empty".into()),
        Ok(batch) if batch.is_cut => invalid(format!(
            "a batch has at most {BATCH_REQUESTS_MAX} requests; nothing of this one was done; send several"
        )),
        Ok(batch) => {
            Line::Batch(batch.messages.into_iter().map(|message| parse_message(message.get())).collect())
        }
        Err(why) => broken(why.to_string()),
    }
}

/// The messages of a batch, of which no more are kept than may be answered: 16 MiB hold millions.
struct Batch<'a> {
    messages: Vec<&'a RawValue>,
    is_cut: bool,
}

impl<'de> Deserialize<'de> for Batch<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Batch<'de>, D::Error> {
        struct Messages;
        impl<'de> Visitor<'de> for Messages {
            type Value = Batch<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a batch")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Batch<'de>, A::Error> {
                let mut batch = Batch { messages: Vec::new(), is_cut: false };
                while batch.messages.len() < BATCH_REQUESTS_MAX {
                    match list.next_element()? {
                        Some(message) => batch.messages.push(message),
                        None => return Ok(batch),
                    }
                }
                while list.next_element::<IgnoredAny>()?.is_some() {
                    batch.is_cut = true;
                }
                Ok(batch)
            }
        }
        deserializer.deserialize_seq(Messages)
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
}

fn parse_message(text: &str) -> Result<Message<'_>, RpcError> {
    let envelope: Envelope<'_> = strict::parse(text).map_err(|invalid| match invalid {
        JsonError::Syntax(why) => RpcError::new(ErrorCode::ParseError, why),
        JsonError::Shape(why) => RpcError::new(ErrorCode::InvalidRequest, why),
    })?;
    if envelope.jsonrpc != "2.0" {
        return Err(RpcError::new(ErrorCode::InvalidRequest, "field `jsonrpc`: must be \"2.0\""));
    }
    if envelope.id.is_some_and(|id| id.get().starts_with(['{', '[', 't', 'f'])) {
        return Err(RpcError::new(
            ErrorCode::InvalidRequest,
            "field `id`: must be a string, a number or null",
        ));
    }
    Ok(Message {
        id: envelope.id,
        method: envelope.method,
        params: envelope.params.map_or("{}", RawValue::get),
    })
}

/// An answer with a result that is already JSON.
pub fn result(id: &RawValue, result: &str) -> String {
    let mut out = String::with_capacity(result.len() + id.get().len() + 40);
    out.push_str("{\"jsonrpc\":\"2.0\",\"id\":");
    out.push_str(id.get());
    out.push_str(",\"result\":");
    out.push_str(result);
    out.push('}');
    out
}

pub fn error(id: Option<&RawValue>, error: &RpcError) -> String {
    let message = serde_json::to_string(&error.message).expect("BUG: a string is JSON");
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{{\"code\":{},\"message\":{message}}}}}",
        id.map_or("null", RawValue::get),
        error.code.number()
    )
}

/// The params of `effect.call`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectCall<'a> {
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub tool_call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub turn_id: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(line: &str) -> i32 {
        match parse_line(line.as_bytes()) {
            Line::One(Err(error)) => error.code.number(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn invalid_envelopes_get_their_error_codes() {
        assert_eq!(code_of("{nope"), -32700);
        assert_eq!(code_of("\u{feff}{}"), -32700);
        assert_eq!(code_of("[]"), -32600);
        assert_eq!(code_of("{}"), -32600);
        assert_eq!(code_of("42"), -32600);
        assert_eq!(code_of(r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#), -32600);
        assert_eq!(code_of(r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#), -32600);
        assert_eq!(code_of(r#"{"jsonrpc":"2.0","id":1,"method":7}"#), -32600);
        let deep = "[".repeat(100_000);
        assert_eq!(code_of(&deep), -32700);
    }

    #[test]
    fn a_batch_is_bounded() {
        let batch = |count: usize| format!("[{}]", vec!["1"; count].join(","));
        let full = batch(BATCH_REQUESTS_MAX);
        let Line::Batch(messages) = parse_line(full.as_bytes()) else { panic!("{full}") };
        assert_eq!(messages.len(), BATCH_REQUESTS_MAX);
        assert_eq!(code_of(&batch(BATCH_REQUESTS_MAX + 1)), -32600);
        assert_eq!(code_of(&batch(8 << 20)), -32600);
        assert_eq!(code_of(&batch(8 << 20).replace(']', ",")), -32700);
    }

    #[test]
    fn ids_are_echoed_unchanged() {
        for id in ["null", "1.5", "1180591620717411303424", "\"\"", "-7"] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#);
            let Line::One(Ok(message)) = parse_line(line.as_bytes()) else { panic!("{line}") };
            assert_eq!(message.id.unwrap().get(), id);
            assert!(result(message.id.unwrap(), "{}").contains(&format!("\"id\":{id},")));
        }
    }

    #[test]
    fn a_message_without_id_is_a_notification() {
        let Line::One(Ok(message)) = parse_line(br#"{"jsonrpc":"2.0","method":"x"}"#) else { panic!() };
        assert!(message.id.is_none());
    }
}
