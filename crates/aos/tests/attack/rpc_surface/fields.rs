//! The fields of every effect: unknown, misspelt, duplicate, of a wrong type, or of an unusual size.

use std::collections::BTreeMap;
use std::path::Path;

use aos_testkit::{Findings, Fixture, check, expect, patch_params, text, verdict};
use serde_json::{Value, json};

use super::names_field;
use crate::Outcome;

/// Every effect that this build serves, with valid params.
fn every_effect(session: &str, root: &Path) -> Vec<(&'static str, Value)> {
    let inside = |mut params: Value| {
        params["session_id"] = json!(session);
        params
    };
    vec![
        ("host.session.open", json!({ "target": { "local": { "workdir": root } } })),
        ("host.session.list", json!({})),
        ("host.session.signal", inside(json!({ "signal": "int" }))),
        ("host.fs.read_file", inside(json!({ "path": "f" }))),
        ("host.fs.write_file", inside(json!({ "path": "w", "content": text("x") }))),
        ("host.fs.edit_file", inside(json!({ "path": "f", "old_string": "one", "new_string": "one" }))),
        ("host.fs.apply_patch", inside(patch_params("*** Update File: f\n@@\n one\n"))),
        ("host.fs.stat", inside(json!({ "path": "f" }))),
        ("host.fs.exists", inside(json!({ "path": "f" }))),
        ("host.fs.list_dir", inside(json!({ "path": "." }))),
        ("host.fs.make_dir", inside(json!({ "path": "made" }))),
        ("host.fs.move", inside(json!({ "from": "w", "to": "m" }))),
        ("host.fs.remove", inside(json!({ "path": "m" }))),
    ]
}

pub(super) fn unknown_fields() -> Outcome {
    let fixture = Fixture::new();
    fixture.world.write("f", "one\n");
    let mut client = fixture.world.patient_client();
    let mut findings = Findings::default();
    for (kind, good) in every_effect(&fixture.session, &fixture.world.root) {
        let mut refused = |params: Value, field: &str| {
            names_field(&format!("{kind} {params}"), &client.effect(kind, params), field)
        };
        for extra in ["extra_field", "Path", "sessionId", "session_id ", "__proto__", "output-mode", ""] {
            let mut params = good.clone();
            params[extra] = json!("x");
            findings.add(refused(params, extra));
        }
        // Each field misspelt in turn: it is then unknown, or missing.
        for field in good.as_object().unwrap().keys() {
            let mut params = good.clone();
            let value = params.as_object_mut().unwrap().remove(field).unwrap();
            params[format!("{}x", &field[..field.len() - 1])] = value;
            findings.add(refused(params, &field[..field.len() - 1]));
        }
    }
    findings.add(nested_fields(&fixture));
    findings.add(doubled_fields(&fixture));
    let (code, out, _) =
        fixture.world.aos(&["call", "host.fs.read_file", "{\"sesion_id\":\"x\",\"path\":\"f\"}"]);
    findings.add(check(code == 1 && out.contains("sesion_id"), || format!("aos call: {code}: {out}")));
    findings.add(fixture.finish());
    findings.outcome()
}

/// Unknown fields one level down.
fn nested_fields(fixture: &Fixture) -> Outcome {
    let mut findings = Findings::default();
    let mut client = fixture.world.patient_client();
    let local = |extra: Value| {
        let mut local = json!({ "workdir": fixture.world.root });
        local.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap_or_default());
        json!({ "target": { "local": local } })
    };
    let session = &fixture.session;
    for (kind, params, field) in [
        ("open", local(json!({ "wrkdir": "x" })), "wrkdir"),
        ("open", local(json!({ "mounts": [{ "host_path": "/", "mode": "ro", "mod": 1 }] })), "mod"),
        ("open", json!({ "target": { "remote": {} } }), "remote"),
        ("open", json!({ "target": { "local": { "workdir": fixture.world.root }, "vfs": {} } }), "target"),
        (
            "write_file",
            json!({ "path": "w", "content": { "inline_text": { "text": "x", "txt": 1 } } }),
            "txt",
        ),
        ("write_file", json!({ "path": "w", "content": { "inline": { "text": "x" } } }), "inline"),
        ("write_file", json!({ "path": "w", "content": { "text": "x" } }), "content"),
        (
            "write_file",
            json!({ "path": "w", "content": { "inline_text": { "text": "x" }, "more": {} } }),
            "content",
        ),
        (
            "edit_file",
            json!({ "path": "f", "edits": [{ "old_string": "one", "new_string": "x", "al": true }] }),
            "al",
        ),
        ("apply_patch", json!({ "patch": { "inline_text": { "text": "x" }, "blob_ref": {} } }), "patch"),
        ("apply_patch", json!({ "patch": { "blob_ref": { "ref": "x" } } }), "ref"),
    ] {
        let what = format!("{kind} {params}");
        let receipt = match kind {
            "open" => client.effect("host.session.open", params),
            _ => client.fs(session, kind, params),
        };
        findings.add(names_field(&what, &receipt, field));
    }
    for (given, field, code) in [
        (
            json!({ "capability": { "follow_symlink": "deny" } }),
            "follow_symlink",
            "error / invalid_capability",
        ),
        (json!({ "capability": { "exec": { "alowed": false } } }), "alowed", "error / invalid_capability"),
        (json!({ "policy": { "rule": [] } }), "rule", "error / invalid_policy"),
        (
            json!({ "policy": { "host_access": { "absolute": "deny" } } }),
            "absolute",
            "error / invalid_policy",
        ),
    ] {
        let receipt = fixture.world.open_receipt(given);
        findings.add(expect(field, &receipt, &[code]));
        let named = receipt["error_message"].as_str().is_some_and(|message| message.contains(field));
        findings.add(check(named, || format!("{field} is not named: {receipt}")));
    }
    findings.outcome()
}

/// A duplicate key is refused: it is not clear which one counts.
fn doubled_fields(fixture: &Fixture) -> Outcome {
    let mut findings = Findings::default();
    let mut client = fixture.world.patient_client();
    let (session, root) = (&fixture.session, json!(fixture.world.root));
    for (kind, params, field) in [
        (
            "host.fs.read_file",
            format!(r#"{{"session_id":"{session}","path":"f","path":"../outside/secret"}}"#),
            "path",
        ),
        (
            "host.fs.stat",
            format!(r#"{{"session_id":"{session}","session_id":"x","path":"f"}}"#),
            "session_id",
        ),
        (
            "host.fs.write_file",
            format!(
                r#"{{"session_id":"{session}","path":"w","content":{{"inline_text":{{"text":"a","text":"b"}}}}}}"#
            ),
            "text",
        ),
        (
            "host.session.open",
            format!(r#"{{"target":{{"local":{{"workdir":{root},"workdir":"/"}}}}}}"#),
            "workdir",
        ),
        (
            "host.session.open",
            format!(r#"{{"target":{{"local":{{"workdir":{root}}}}},"labels":{{"a":"1","a":"2"}}}}"#),
            "a",
        ),
        (
            "host.session.open",
            format!(r#"{{"target":{{"local":{{"workdir":{root},"env":{{"A":"1","A":"2"}}}}}}}}"#),
            "A",
        ),
    ] {
        findings.add(names_field(&params, &client.raw_effect(kind, &params), field));
    }
    findings.outcome()
}

pub(super) fn wrong_types() -> Outcome {
    let fixture = Fixture::new();
    fixture.world.write("f", "one\n");
    let mut client = fixture.world.patient_client();
    let mut findings = Findings::default();
    for (kind, good) in every_effect(&fixture.session, &fixture.world.root) {
        for field in good.as_object().unwrap().keys() {
            for wrong in
                [json!(["f"]), json!(7), json!(null), json!({ "a": "f" }), json!(true), json!(1.5), json!([])]
            {
                let mut params = good.clone();
                params[field] = wrong;
                let what = format!("{kind} {params}");
                findings.add(names_field(&what, &client.effect(kind, params), field));
            }
        }
        for whole in ["[]", "null", "7", "\"x\"", "true", "[{}]"] {
            let receipt = client.raw_effect(kind, whole);
            findings.add(expect(&format!("{kind} {whole}"), &receipt, &["error / invalid_params"]));
        }
    }
    findings.add(wrong_options(&fixture));
    findings.add(lists_for_objects(&fixture));
    findings.add(odd_numbers(&fixture));
    findings.add(fixture.finish());
    findings.outcome()
}

/// Every optional field of the effects, with its type.
const OPTIONS: &str = "read_file offset_bytes number
read_file max_bytes number
read_file encoding word
read_file with_hash flag
read_file output_mode word
write_file create_parents flag
write_file mode word
write_file executable flag
write_file expected_hash text
write_file with_diff flag
edit_file replace_all flag
edit_file expected_hash text
edit_file with_diff flag
apply_patch patch_format text
apply_patch dry_run flag
apply_patch with_diff flag
stat no_follow flag
list_dir max_results number
list_dir output_mode word
remove recursive flag
move overwrite flag
make_dir parents flag";

fn wrong_options(fixture: &Fixture) -> Outcome {
    let mut findings = Findings::default();
    let mut client = fixture.world.patient_client();
    let effects: BTreeMap<_, _> = every_effect(&fixture.session, &fixture.world.root).into_iter().collect();
    for line in OPTIONS.lines() {
        let [kind, field, sort] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let kind = format!("host.fs.{kind}");
        let mut wrong = vec!["null", "[]", "{}", "[true]", "{\"auto\":null}"];
        wrong.extend(match sort {
            "number" => &["\"1\"", "true", "-1", "1.5", "1e30", "18446744073709551616"][..],
            "flag" => &["\"true\"", "1", "0"],
            "word" => &["\"nope\"", "\"\"", "\"AUTO\"", "1", "true"],
            _ => &["1", "true"],
        });
        for value in wrong {
            let mut params = effects[kind.as_str()].clone();
            params[field] = json!("@@");
            let params = params.to_string().replace("\"@@\"", value);
            findings.add(names_field(&format!("{kind} {params}"), &client.raw_effect(&kind, &params), field));
        }
    }
    findings.outcome()
}

/// A list in place of an object, or an object in place of a word, is refused.
fn lists_for_objects(fixture: &Fixture) -> Outcome {
    let mut findings = Findings::default();
    let mut client = fixture.world.patient_client();
    let (session, root) = (json!(fixture.session), json!(fixture.world.root));
    let inside = |rest: &str| format!("{{\"session_id\":{session},{rest}}}");
    for (kind, params) in [
        ("host.session.open", format!("{{\"target\":{{\"local\":[{root}]}}}}")),
        ("host.session.open", format!("{{\"target\":[\"local\",{{\"workdir\":{root}}}]}}")),
        (
            "host.session.open",
            format!("{{\"target\":{{\"local\":{{\"workdir\":{root},\"mounts\":[[\"/\",null,\"ro\"]]}}}}}}"),
        ),
        (
            "host.session.open",
            format!("{{\"target\":{{\"local\":{{\"workdir\":{root}}}}},\"isolation\":{{\"none\":null}}}}"),
        ),
        ("host.session.signal", inside("\"signal\":{\"int\":null}")),
        ("host.session.signal", inside("\"signal\":[\"int\"]")),
        ("host.fs.write_file", inside("\"path\":\"l\",\"content\":{\"inline_text\":[\"x\"]}")),
        ("host.fs.write_file", inside("\"path\":\"l\",\"content\":[\"inline_text\",{\"text\":\"x\"}]")),
        ("host.fs.write_file", inside("\"path\":\"l\",\"content\":{\"inline_bytes\":[\"eA==\"]}")),
        (
            "host.fs.write_file",
            inside(
                "\"path\":\"l\",\"content\":{\"inline_text\":{\"text\":\"x\"}},\"mode\":{\"append\":null}",
            ),
        ),
        ("host.fs.edit_file", inside("\"path\":\"f\",\"edits\":[[\"one\",\"one\"]]")),
        (
            "host.fs.edit_file",
            inside("\"path\":\"f\",\"edits\":{\"old_string\":\"one\",\"new_string\":\"one\"}"),
        ),
        (
            "host.fs.apply_patch",
            inside(
                "\"patch\":{\"inline_text\":[\"*** Begin Patch\\n*** Add File: l\\n+x\\n*** End Patch\\n\"]}",
            ),
        ),
        ("host.fs.read_file", inside("\"path\":\"f\",\"encoding\":{\"bytes\":null}")),
    ] {
        let receipt = client.raw_effect(kind, &params);
        findings.add(expect(&format!("{kind} {params}"), &receipt, &["error / invalid_params"]));
    }
    findings.add(check(!fixture.world.root.join("l").exists(), || "a list wrote a file".into()));
    findings.outcome()
}

fn odd_numbers(fixture: &Fixture) -> Outcome {
    let mut findings = Findings::default();
    let mut client = fixture.world.patient_client();
    let mut read = |field: &str, value: &str| {
        let params = format!("{{\"session_id\":\"{}\",\"path\":\"f\",\"{field}\":{value}}}", fixture.session);
        client.raw_effect("host.fs.read_file", &params)
    };
    for value in ["9223372036854775808", "9223372036854775807", "18446744073709551615", "4", "5"] {
        let receipt = read("offset_bytes", value);
        let empty =
            receipt["status"] == "ok" && receipt["content"] == text("") && receipt["truncated"] == false;
        findings.add(check(empty || verdict(&receipt) == "error / invalid_params", || {
            format!("offset {value}: {receipt}")
        }));
    }
    let none = read("max_bytes", "0");
    let empty = none["status"] == "ok" && none["content"] == text("");
    findings
        .add(check(empty || verdict(&none) == "error / invalid_params", || format!("max_bytes 0: {none}")));
    let all = read("max_bytes", "18446744073709551615");
    findings.add(check(all["content"] == text("one\n"), || format!("max_bytes 2^64-1: {all}")));
    // Times: the largest value must not overflow into the past.
    for ttl in ["18446744073709551615", "9223372036854775807"] {
        let target = json!({ "local": { "workdir": fixture.world.root } });
        let receipt = client
            .raw_effect("host.session.open", &format!("{{\"target\":{target},\"session_ttl_ns\":{ttl}}}"));
        let later = receipt["expires_at_ns"].as_u64() > receipt["started_at_ns"].as_u64();
        findings.add(check(verdict(&receipt) == "error / invalid_params" || later, || {
            format!("ttl {ttl}: {receipt}")
        }));
        let Some(session) = receipt["session_id"].as_str() else { continue };
        findings.add(client.must(session, "stat", json!({ "path": "f" }), &["ok"]));
    }
    findings.outcome()
}
