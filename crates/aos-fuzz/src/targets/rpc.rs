//! Lines of the socket: each message is answered by one line of JSON under its own id, and a request that is taken in
//! is recorded as what it is.

use std::collections::BTreeMap;

use aos_model::request::{Request, Unparsed};
use aos_model::strict;
use aos_wire::rpc::{self, EffectCall, Line, Message, Wrong};
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
    // The server splits at line ends before anything is read.
    let line = data.split(|b| *b == b'\n').next().unwrap_or_default();
    match rpc::parse_line(line) {
        Line::One(message) => told(message, Shape::default().with("one")),
        Line::Batch(messages) => {
            let shape = Shape::default().with("batch").about(messages.len());
            messages.into_iter().take(8).fold(shape, |shape, message| told(message, shape))
        }
    }
}

fn told(message: Result<Message<'_>, Wrong>, shape: Shape) -> Shape {
    let message = match message {
        Ok(message) => message,
        Err(wrong) => {
            let answer = rpc::error(None, &wrong);
            assert_eq!(one_line(&answer)["id"], "null");
            return shape.with(wrong.code.number()).message(&wrong.message);
        }
    };
    if let Some(id) = message.id {
        assert_eq!(one_line(&rpc::result(id, "{}"))["id"], id.get(), "another id than was given");
    }
    let call: EffectCall<'_> = match strict::parse(message.params) {
        Ok(call) => call,
        Err(invalid) => return shape.message(&invalid.to_string()),
    };
    match Request::parse(&call.kind, call.params.map_or("{}", RawValue::get)) {
        Ok(request) => recorded(&request, shape.with(request.kind())),
        Err(Unparsed::Syntax(why)) => shape.with("syntax").message(&why),
        Err(Unparsed::Refused(refusal)) => shape.with("refused").message(&refusal.message),
    }
}

/// The parts of an answer, each as it stands there.
fn one_line(answer: &str) -> BTreeMap<&str, &str> {
    assert!(!answer.contains('\n'), "an answer of two lines: {answer:?}");
    let parts: BTreeMap<&str, &RawValue> =
        serde_json::from_str(answer).unwrap_or_else(|why| panic!("{why}: {answer:?}"));
    parts.into_iter().map(|(name, part)| (name, part.get())).collect()
}

/// The record of a request is a request of the same record.
fn recorded(request: &Request, shape: Shape) -> Shape {
    let record = serde_json::to_string(request).expect("a request is plain data");
    let again =
        Request::parse(request.kind(), &record).unwrap_or_else(|why| panic!("{why}: recorded as {record}"));
    assert_eq!(serde_json::to_string(&again).expect("a request is plain data"), record);
    assert_eq!(again.session_id(), request.session_id());
    let fields = record.matches("\":").count();
    shape.with(fields)
}
