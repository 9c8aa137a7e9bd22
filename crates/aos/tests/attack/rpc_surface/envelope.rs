//! The envelope: lines that are not JSON, ids and batches of every kind, and bytes that are not text.

use std::collections::BTreeSet;

use aos_testkit::{Findings, Fixture, World, check, text, verdict};
use serde_json::{Value, json};

use super::{ask, call, envelope_error, list_call, still_serves};
use crate::Outcome;

const MALFORMED: &[&str] = &[
    "{",
    "nope",
    "{\"a\":}",
    "[1,",
    "\"unterminated",
    "{} {}",
    "{\"jsonrpc\":1,",
    "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"x\"",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"effect.call\",",
    "{'jsonrpc':'2.0'}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",}",
    "NaN",
    "undefined",
    "{\"id\":01}",
    "{\"id\":+1}",
    "{\"id\":.5}",
    "{\"a\":\"tab\tinside\"}",
    "// comment",
    "}{",
    "\u{0}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"effect.call\",\"params\":{\"kind\":\"host.session.list\",\"params\":{}}",
];

pub(super) fn malformed_lines() -> Outcome {
    let world = World::new();
    let mut client = world.patient_client();
    let mut findings = Findings::default();
    for line in MALFORMED {
        let answer = ask(&mut client, line);
        findings.add(envelope_error(line, &answer, &[-32700]));
        findings.add(check(answer["id"].is_null(), || format!("{line}: the id is null: {answer}")));
        findings.add(still_serves(&mut client, line));
    }
    // Without waiting in between: one answer each, in order.
    let both = format!("{{\n{}\n", list_call("7"));
    client.send(both.as_bytes()).map_err(|why| why.to_string())?;
    let (first, second) = (client.line().unwrap_or_default(), client.line().unwrap_or_default());
    findings
        .add(check(first.contains("-32700") && second.contains("\"id\":7"), || format!("{first}{second}")));
    // Valid JSON that is not a request.
    for line in
        ["42", "\"x\"", "null", "true", "{}", "[]", "{\"jsonrpc\":\"2.0\"}", "{\"id\":1,\"method\":\"x\"}"]
    {
        findings.add(envelope_error(line, &ask(&mut client, line), &[-32600]));
        findings.add(still_serves(&mut client, line));
    }
    findings.add(world.finish());
    findings.outcome()
}

pub(super) fn deep_and_wide() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    let session = world.open(json!({}));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_object = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let keys: Vec<String> = (0..10_000).map(|n| format!("\"k{n}\":\"v\"")).collect();
    let wide = format!("{{{}}}", keys.join(","));
    let target = json!({ "local": { "workdir": world.root } });
    let mut findings = Findings::default();
    for value in [&deep, &deep_object, &wide, &"[".repeat(100_000), &"{\"a\":".repeat(100_000)] {
        for line in [
            value.clone(),
            format!("[{value}]"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{value},\"method\":\"x\"}}"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":{value}}}"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"effect.call\",\"params\":{value}}}"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"policy.evaluate\",\"params\":{value}}}"),
            call("1", "host.session.list", value),
            call("1", "host.fs.read_file", &format!("{{\"session_id\":\"{session}\",\"path\":{value}}}")),
            call(
                "1",
                "host.fs.read_file",
                &format!("{{\"session_id\":\"{session}\",\"path\":\"f\",\"x\":{value}}}"),
            ),
            call("1", "host.session.open", &format!("{{\"target\":{target},\"capability\":{value}}}")),
            call("1", "host.session.open", &format!("{{\"target\":{target},\"policy\":{value}}}")),
            call("1", "host.session.open", &format!("{{\"target\":{target},\"labels\":{value}}}")),
            call("1", "host.session.open", &format!("{{\"target\":{{\"vfs\":{value}}}}}")),
            call("1", "host.session.open", &format!("{{\"target\":{{\"staged\":{value}}}}}")),
        ] {
            findings.add(is_refused(&world, &line));
        }
    }
    findings.add(record_is_readable(&world));
    findings.add(world.finish());
    findings.outcome()
}

/// An error in the envelope or in the receipt; any answer except a success.
fn is_refused(world: &World, line: &str) -> Outcome {
    let answer = ask(&mut world.patient_client(), line);
    let answer = answer.get(0).cloned().unwrap_or(answer);
    let refused = answer["error"]["code"].is_number() || answer["result"]["status"] == "error";
    check(refused, || format!("{:.200}: {:.300}", line, answer.to_string()))
}

/// Refused requests are in the journal, and the journal can still be read.
fn record_is_readable(world: &World) -> Outcome {
    let mut findings = Findings::default();
    for words in [
        &["log"][..],
        &["log", "--json"],
        &["session", "list", "--all"],
        &["show", "2"],
        &["verify"],
        &["replay", "--verify"],
    ] {
        let (code, _, err) = world.aos(words);
        findings.add(check(code == 0, || format!("aos {words:?}: exit {code}: {err:.300}")));
    }
    let head = world.client().rpc("daemon.status", json!({}))["result"]["seq"].as_u64().unwrap_or(0);
    for seq in 1..=head {
        let (code, _, err) = world.aos(&["show", &seq.to_string()]);
        findings.add(check(code == 0, || format!("aos show {seq}: exit {code}: {err:.300}")));
    }
    findings.outcome()
}

pub(super) fn ids_and_batches() -> Outcome {
    let fixture = Fixture::new();
    let mut findings = Findings::default();
    findings.add(ids_come_back(&fixture.world));
    findings.add(invalid_ids(&fixture.world));
    findings.add(two_with_one_id(&fixture));
    findings.add(notifications(&fixture));
    findings.add(invalid_requests(&fixture.world));
    findings.add(odd_batches(&fixture.world));
    findings.add(a_large_batch(&fixture));
    findings.add(fixture.finish());
    findings.outcome()
}

fn ids_come_back(world: &World) -> Outcome {
    let mut findings = Findings::default();
    let long = format!("\"{}\"", "x".repeat(10_000));
    for id in [
        "null",
        "1.5",
        "1180591620717411303424",
        "\"\"",
        "0",
        "-7",
        "1e3",
        "1.0",
        "\"1\"",
        "\"\\u0041\"",
        "18446744073709551616",
        "0.1000000000000000055511151231257827",
        "\"a\\n\\\"b\"",
        &long,
    ] {
        let mut client = world.patient_client();
        let sent = client.send(format!("{}\n", list_call(id)).as_bytes());
        let answer = client.line().unwrap_or_default();
        // The id as it was sent, or another spelling of the same value.
        let value = |text: &str| serde_json::from_str::<Value>(text).ok();
        let given = value(&answer).map(|answer| answer["id"].clone());
        let same = answer.contains(&format!("\"id\":{id},")) || (given.is_some() && given == value(id));
        findings.add(check(same && sent.is_ok(), || format!("id {id:.40}: {answer:.200}")));
        findings.add(check(answer.contains("\"result\""), || format!("id {id:.40}: {answer:.200}")));
        findings.add(still_serves(&mut client, id));
    }
    findings.outcome()
}

fn invalid_ids(world: &World) -> Outcome {
    let mut findings = Findings::default();
    for id in ["{}", "[]", "[1]", "true", "false", "{\"a\":1}"] {
        let mut client = world.patient_client();
        findings.add(envelope_error(&format!("id {id}"), &ask(&mut client, list_call(id)), &[-32600]));
        findings.add(still_serves(&mut client, id));
    }
    findings.outcome()
}

/// Two open requests with one id get two answers; the sender must tell them apart itself.
fn two_with_one_id(fixture: &Fixture) -> Outcome {
    let mut client = fixture.world.patient_client();
    let write = |name: &str| {
        let params = json!({ "session_id": fixture.session, "path": name, "content": text("x") });
        call("5", "host.fs.write_file", &params.to_string())
    };
    client.send(format!("{}\n{}\n", write("a"), write("b")).as_bytes()).map_err(|why| why.to_string())?;
    for _ in 0..2 {
        let answer: Value = serde_json::from_str(&client.line().unwrap_or_default()).unwrap_or_default();
        check(answer["id"] == 5 && answer["result"]["status"] == "ok", || format!("one id twice: {answer}"))?;
    }
    still_serves(&mut client, "one id twice")?;
    check(fixture.world.read("a") == b"x" && fixture.world.read("b") == b"x", || "not both were done".into())
}

/// A request without an id gets no answer, not even an error, but it is executed.
fn notifications(fixture: &Fixture) -> Outcome {
    let mut client = fixture.world.patient_client();
    let params = json!({ "session_id": fixture.session, "path": "noted", "content": text("x") });
    let effect = call("1", "host.fs.write_file", &params.to_string()).replace("\"id\":1,", "");
    let (unknown, invalid) = (
        "{\"jsonrpc\":\"2.0\",\"method\":\"nope\"}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"effect.call\",\"params\":{}}",
    );
    let lines = [effect.as_str(), unknown, invalid, &format!("[{unknown},{effect},{invalid}]")].join("\n");
    client.send(format!("{lines}\n").as_bytes()).map_err(|why| why.to_string())?;
    // The next answer must be the one to this request.
    still_serves(&mut client, "notifications")?;
    check(fixture.world.read("noted") == b"x", || "the notification was not done".into())
}

fn invalid_requests(world: &World) -> Outcome {
    let mut findings = Findings::default();
    let mut client = world.patient_client();
    for (line, codes) in [
        (r#"{"jsonrpc":"1.0","id":1,"method":"effect.call"}"#, &[-32600][..]),
        (r#"{"jsonrpc":2.0,"id":1,"method":"effect.call"}"#, &[-32600]),
        (r#"{"id":1,"method":"effect.call"}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"method":1,"params":"bar"}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"effect.call"}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"nope"}"#, &[-32601]),
        (r#"{"jsonrpc":"2.0","id":1,"method":""}"#, &[-32601]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"EFFECT.CALL"}"#, &[-32601]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call"}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":{}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":"x"}"#, &[-32600, -32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":7}"#, &[-32600, -32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":null}"#, &[-32600, -32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":{"kind":7}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":{"kind":"a","extra":1}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":{"kind":"a","kind":"b"}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"effect.call","params":{"kind":"a","turn_id":1}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"policy.evaluate","params":{"pth":"x"}}"#, &[-32602]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"policy.evaluate","params":[]}"#, &[-32602]),
    ] {
        let answer = ask(&mut client, line);
        findings.add(envelope_error(line, &answer, codes));
        let code = answer["error"]["code"].as_i64();
        // Where the request could be parsed, its id is returned; where it could not, the id is null.
        let wanted = if code == Some(-32600) {
            answer["id"].is_null() || answer["id"] == 1
        } else {
            answer["id"] == 1
        };
        findings.add(check(wanted, || format!("{line}: the id: {answer}")));
    }
    findings.add(still_serves(&mut client, "requests that are none"));
    findings.outcome()
}

fn odd_batches(world: &World) -> Outcome {
    let mut findings = Findings::default();
    let mut client = world.patient_client();
    findings.add(envelope_error("[]", &ask(&mut client, "[]"), &[-32600]));
    let good = list_call("1");
    for (line, count) in [
        ("[1]", 1),
        ("[1,2,3]", 3),
        ("[[]]", 1),
        ("[[1,2],{},null,\"x\"]", 4),
        // A list is not a request, whatever it contains.
        ("[[\"2.0\",1,\"daemon.status\"]]", 1),
        ("[[\"2.0\",1,\"effect.call\",{\"kind\":\"host.session.list\"}]]", 1),
    ] {
        let answer = ask(&mut client, line);
        let errors = answer.as_array().cloned().unwrap_or_default();
        findings.add(check(errors.len() == count, || format!("{line}: {answer}")));
        for error in errors {
            findings.add(envelope_error(line, &error, &[-32600]));
            findings.add(check(error["id"].is_null(), || format!("{line}: the id is null: {error}")));
        }
    }
    findings.add(envelope_error("a broken batch", &ask(&mut client, format!("[{good},{{]")), &[-32700]));
    let mixed = format!("[{good},1,{{\"jsonrpc\":\"2.0\",\"method\":\"nope\"}},{}]", list_call("\"z\""));
    let answer = ask(&mut client, &mixed);
    let ids: Vec<Value> =
        answer.as_array().into_iter().flatten().map(|answer| answer["id"].clone()).collect();
    findings.add(check(ids.len() == 3 && ids.contains(&json!(1)) && ids.contains(&json!("z")), || {
        format!("{answer}")
    }));
    findings.add(still_serves(&mut client, "odd batches"));
    findings.outcome()
}

fn a_large_batch(fixture: &Fixture) -> Outcome {
    let ground = json!({ "session_id": fixture.session, "path": "f" });
    let requests: Vec<String> = (0..10_000)
        .map(|id| match id % 5 {
            0 => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"nope\"}}"),
            1 => call(&id.to_string(), "host.fs.exists", &ground.to_string()),
            _ => format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"policy.evaluate\",\"params\":{ground}}}"
            ),
        })
        .collect();
    let mut client = fixture.world.patient_client();
    envelope_error("10,000 at once", &ask(&mut client, format!("[{}]", requests.join(","))), &[-32600])?;
    let mut answers = Vec::new();
    for requests in requests.chunks(100) {
        let answer = ask(&mut client, format!("[{}]", requests.join(",")));
        check(answer.as_array().is_some_and(|answers| answers.len() == requests.len()), || {
            format!("{} requests: {:.200}", requests.len(), answer.to_string())
        })?;
        answers.extend(answer.as_array().cloned().unwrap_or_default());
    }
    let mut seen = BTreeSet::new();
    for answer in &answers {
        let id = answer["id"].as_u64().ok_or_else(|| format!("no id: {answer}"))?;
        check(seen.insert(id), || format!("id {id} was answered twice"))?;
        let fits = match id % 5 {
            0 => answer["error"]["code"] == -32601,
            1 => answer["result"]["exists"] == false,
            _ => answer["result"]["disposition"] == "allow",
        };
        check(fits, || format!("the answer to {id} is another's: {answer}"))?;
    }
    still_serves(&mut client, "100 batches of 100")
}

pub(super) fn text_that_is_none() -> Outcome {
    let fixture = Fixture::new();
    fixture.world.write("f", "one\n");
    let mut findings = Findings::default();
    let path = |path: &str| {
        call(
            "1",
            "host.fs.read_file",
            &format!("{{\"session_id\":\"{}\",\"path\":\"{path}\"}}", fixture.session),
        )
    };
    for escape in ["\\ud800", "\\udfff", "\\ud800\\ud800", "a\\udc00b", "\\uD83D\\u0041", "\\ud83d"] {
        for line in [
            path(escape),
            path("f").replace("host.fs.read_file", escape),
            path("f").replace("effect.call", escape),
            path("f").replace("\"kind\"", &format!("\"tool_call_id\":\"{escape}\",\"kind\"")),
            path("f").replace("\"path\"", &format!("\"{escape}\":1,\"path\"")),
        ] {
            let mut client = fixture.world.patient_client();
            findings.add(envelope_error(&line, &ask(&mut client, &line), &[-32700, -32600, -32601, -32602]));
            findings.add(still_serves(&mut client, &line));
        }
    }
    // Deeper in the request the receipt may carry the refusal; never a success.
    let target = json!({ "local": { "workdir": fixture.world.root } });
    for field in [
        "\"labels\":{\"a\":\"\\ud800\"}",
        "\"capability\":{\"fs_roots\":[\"\\ud800\"]}",
        "\"policy\":{\"preset\":\"\\ud800\"}",
    ] {
        findings.add(is_refused(
            &fixture.world,
            &call("1", "host.session.open", &format!("{{\"target\":{target},{field}}}")),
        ));
    }
    findings.add(bytes_that_are_no_text(&fixture, &path("f")));
    let paired = ask(&mut fixture.world.patient_client(), path("\\ud83d\\ude00"));
    findings.add(check(verdict(&paired["result"]) == "not_found / path_not_found", || {
        format!("a pair: {paired}")
    }));
    findings.add(fixture.finish());
    findings.outcome()
}

/// Invalid UTF-8, a BOM, and UTF-16 in both byte orders.
fn bytes_that_are_no_text(fixture: &Fixture, good: &str) -> Outcome {
    let utf16 = |big: bool, bom: bool| -> Vec<u8> {
        let text = if bom { format!("\u{feff}{good}") } else { good.to_owned() };
        text.encode_utf16()
            .flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() })
            .collect()
    };
    let inside = |bytes: &[u8]| [&good.as_bytes()[..good.len() - 4], bytes, b"\"}}}"].concat();
    let mut findings = Findings::default();
    for line in [
        vec![0xff],
        inside(&[0xff]),
        inside(&[0xc0, 0x80]),
        inside(&[0xed, 0xa0, 0x80]),
        inside(&[0xf4, 0x90, 0x80, 0x80]),
        inside(&[0xe2, 0x82]),
        [b"\xef\xbb\xbf", good.as_bytes()].concat(),
        [good.as_bytes(), b"\xff"].concat(),
        utf16(false, true),
        utf16(true, true),
        utf16(false, false),
        utf16(true, false),
    ] {
        let mut client = fixture.world.patient_client();
        let what = format!("{:?}", line.escape_ascii().to_string().get(..24));
        findings.add(envelope_error(&what, &ask(&mut client, &line), &[-32700, -32602]));
        findings.add(still_serves(&mut client, &what));
    }
    findings.outcome()
}
