//! Lines of the socket: a response is one line of JSON with the id of its message, and the recorded form of a request
//! parses to the same request.

use std::collections::BTreeMap;

use aos_model::request::{Request, RequestError};
use aos_model::strict;
use aos_wire::rpc::{self, EffectCall, Line, Message, RpcError};
use serde_json::value::RawValue;

use super::Target;
use crate::Shape;

pub(super) const TARGET: Target = Target {
    name: "rpc",
    run,
    dictionary: &[
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"effect.call\",\"params\":{\"kind\":\"",
        "\"id\":null,",
        "\"id\":\"a\",",
        "\"tool_call_id\":\"tc_1\"",
        "\"turn_id\":\"t\"",
        "host.session.open",
        "host.session.signal",
        "host.fs.read_file",
        "host.fs.write_file",
        "host.fs.edit_file",
        "host.fs.apply_patch",
        "host.fs.grep",
        "host.fs.restore",
        "host.exec",
        "host.staged.commit",
        "\"session_id\":\"hs_1\"",
        "{\"inline_text\":{\"text\":\"x\"}}",
        "{\"inline_bytes\":{\"bytes\":\"AA==\"}}",
        "{\"blob_ref\":{\"blob_ref\":\"sha256:00\"}}",
        "\"capability\":{\"allowed_fs_ops\":[\"read\"]}",
        "\"policy\":{\"preset\":\"strict\"}",
        "\\ud800",
        "\\u0000",
        "[[[[[[[[[[[[[[[[",
        "null",
        "true",
        ",",
    ],
};

fn run(data: &[u8]) -> Shape {
    // The server splits its input at line ends before it parses.
    let line = data.split(|b| *b == b'\n').next().unwrap_or_default();
    match rpc::parse_line(line) {
        Line::One(message) => check_message(message, Shape::default().with("one")),
        Line::Batch(messages) => {
            let shape = Shape::default().with("batch").about(messages.len());
            messages.into_iter().take(8).fold(shape, |shape, message| check_message(message, shape))
        }
    }
}

fn check_message(message: Result<Message<'_>, RpcError>, shape: Shape) -> Shape {
    let message = match message {
        Ok(message) => message,
        Err(wrong) => {
            let response = rpc::error(None, &wrong);
            assert_eq!(fields(&response)["id"], "null");
            return shape.with(wrong.code.number()).message(&wrong.message);
        }
    };
    if let Some(id) = message.id {
        assert_eq!(fields(&rpc::result(id, "{}"))["id"], id.get(), "the id differs");
    }
    let call: EffectCall<'_> = match strict::parse(message.params) {
        Ok(call) => call,
        Err(invalid) => return shape.message(&invalid.to_string()),
    };
    match Request::parse(&call.kind, call.params.map_or("{}", RawValue::get)) {
        Ok(request) => check_record(&request, shape.with(request.kind())),
        Err(RequestError::Syntax(why)) => shape.with("syntax").message(&why),
        Err(RequestError::Refused(refusal)) => shape.with("refused").message(&refusal.message),
    }
}

/// The fields of a response, as raw JSON.
fn fields(response: &str) -> BTreeMap<&str, &str> {
    assert!(!response.contains('\n'), "a response of two lines: {response:?}");
    let parts: BTreeMap<&str, &RawValue> =
        serde_json::from_str(response).unwrap_or_else(|why| panic!("{why}: {response:?}"));
    parts.into_iter().map(|(name, part)| (name, part.get())).collect()
}

/// The recorded form of a request parses to a request with the same recorded form.
fn check_record(request: &Request, shape: Shape) -> Shape {
    let record = serde_json::to_string(request).expect("a request serializes");
    let again =
        Request::parse(request.kind(), &record).unwrap_or_else(|why| panic!("{why}: recorded as {record}"));
    assert_eq!(serde_json::to_string(&again).expect("a request serializes"), record);
    assert_eq!(again.session_id(), request.session_id());
    let fields = record.matches("\":").count();
    shape.with(fields)
}
