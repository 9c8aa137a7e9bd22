//! Invalid policies and capabilities: no session opens, and the message names the field.

use aos_testkit::{Client, Findings, Fixture, World, check, expect};
use serde_json::{Value, json};

use super::{rule, served};
use crate::Outcome;

pub(super) fn invalid_policies() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("f", "one\n");
    let good = rule("r", json!(["read"]), json!(["**"]), "deny");
    let with = |field: &str, value: Value| {
        let mut rule = good.clone();
        rule[field] = value;
        json!({ "rules": [rule] })
    };
    let without = |field: &str| {
        let mut rule = good.clone();
        rule.as_object_mut().unwrap().remove(field);
        json!({ "rules": [rule] })
    };
    let bad = [
        json!({ "preset": "lax" }),
        json!({ "preset": "STRICT" }),
        json!({ "preset": null }),
        json!({ "preset": 1 }),
        json!({ "presets": "strict" }),
        json!({ "host_access": { "nope": "allow" } }),
        json!({ "host_access": { "absolute_path": "maybe" } }),
        json!({ "host_access": { "absolute_path": null } }),
        json!({ "host_access": ["allow"] }),
        json!({ "rules": {} }),
        json!({ "rules": [1] }),
        json!("strict"),
        json!([]),
        with("ops", json!(["delete"])),
        with("ops", json!(["READ"])),
        with("ops", json!("read")),
        with("decision", json!("ask")),
        with("decision", json!("Deny")),
        with("output", json!("inline_only")),
        with("extra", json!(1)),
        with("name", json!(7)),
        with("paths", json!("**")),
        with("paths", json!(["a[", "b"])),
        with("paths", json!(["{a"])),
        without("name"),
        without("ops"),
        without("paths"),
        without("decision"),
    ];
    let sessions = |client: &mut Client| {
        client.effect("host.session.list", json!({}))["sessions"].as_array().map_or(0, Vec::len)
    };
    let before = sessions(&mut fixture.client);
    let mut findings = Findings::default();
    for policy in &bad {
        let receipt = fixture.world.open_receipt(json!({ "policy": policy }));
        findings.add(expect(&format!("policy {policy}"), &receipt, &["error / invalid_policy"]));
        findings.add(check(receipt["session_id"].is_null(), || format!("a session all the same: {receipt}")));
    }
    findings.add(check(sessions(&mut fixture.client) == before, || "a session was made".into()));
    let journaled = fixture.world.journal();
    let count = journaled.iter().filter(|entry| entry["receipt"]["error_code"] == "invalid_policy").count();
    findings.add(check(count == bad.len(), || format!("{count} of {} refusals are journaled", bad.len())));
    let strict = fixture.world.open(json!({ "policy": { "rules": [good] } }));
    let read = json!({ "path": "f" });
    findings.add(expect(
        "the stricter",
        &fixture.client.fs(&strict, "read_file", read.clone()),
        &["forbidden / policy_denied"],
    ));
    findings.add(fixture.must("read_file", read, &["ok"]));
    findings.add(fixture.finish());
    findings.outcome()
}

const NUMBERS: &str = "max_read_bytes max_write_bytes max_patch_bytes max_inline_bytes max_grep_results max_glob_results \
                       max_scan_files max_scan_bytes max_changed_files max_edit_replacements exec.max_output_bytes";
const NO_NUMBERS: &str = r#"18446744073709551616 -1 1e308 "10" null 1.5 1e400 [] {} true [1]"#;

pub(super) fn invalid_numbers() -> Outcome {
    let world = World::new();
    let mut client = world.client();
    let mut findings = Findings::default();
    let target = json!({ "local": { "workdir": world.root } });
    let mut open = |capability: &str| {
        client
            .raw_effect("host.session.open", &format!("{{\"target\":{target},\"capability\":{capability}}}"))
    };
    for number in NUMBERS.split(' ') {
        let field = number.rsplit('.').next().unwrap();
        for value in NO_NUMBERS.split(' ') {
            let inner = format!("{{\"{field}\":{value}}}");
            let capability = if number.starts_with("exec") { format!("{{\"exec\":{inner}}}") } else { inner };
            let receipt = open(&capability);
            let what = format!("{number}: {value}");
            findings.add(expect(&what, &receipt, &["error / invalid_capability", "error / invalid_params"]));
            // A number that is too large is a syntax error to most JSON parsers, which cannot name the field.
            let named = receipt["error_message"].as_str().unwrap_or_default().contains(field);
            findings.add(check(named || value == "1e400", || {
                format!("{what}: the field is not named: {receipt}")
            }));
            findings.add(check(receipt["session_id"].is_null(), || format!("{what}: a session: {receipt}")));
        }
    }
    findings.add(other_fields_that_are_none(&mut open));
    // The largest number limits nothing and breaks nothing.
    let largest = open("{\"max_read_bytes\":18446744073709551615,\"max_write_bytes\":18446744073709551615}");
    findings.add(expect("2^64-1", &largest, &["ready"]));
    world.write("f", "one\n");
    findings.add(served(&mut world.client(), largest["session_id"].as_str().unwrap_or_default(), "f"));
    findings.add(world.finish());
    findings.outcome()
}

const WRONG_FIELDS: &str = r#"allowed_fs_ops ["delete"]
allowed_fs_ops ["Read"]
allowed_fs_ops "read"
allowed_fs_ops null
fs_roots "/"
fs_roots null
fs_roots [1]
follow_symlinks "Allow"
follow_symlinks true
follow_symlinks null
follow_symlinks {"allow":null}
protected_paths "off"
protected_paths null
protected_paths []
protected_paths {"allow":null}
cross_mounts "true"
cross_mounts 1
cross_mounts null
allowed_patch_formats "v4a"
allowed_patch_formats [1]
exec false
exec null
exec []
exec [false]
exec {"allowed":"no"}
exec {"alowed":false}
exec {"programs":"ls"}
follow_symlink "deny"
max_read_byte 1"#;

fn other_fields_that_are_none(open: &mut impl FnMut(&str) -> Value) -> Outcome {
    let mut findings = Findings::default();
    for line in WRONG_FIELDS.lines() {
        let (field, value) = line.split_once(' ').expect("a field and a value");
        let receipt = open(&format!("{{\"{field}\":{value}}}"));
        let what = format!("{field}: {value}");
        findings.add(expect(&what, &receipt, &["error / invalid_capability", "error / invalid_params"]));
        let named = receipt["error_message"].as_str().unwrap_or_default().contains(field);
        findings.add(check(named, || format!("{what}: the field is not named: {receipt}")));
    }
    for whole in ["[]", "null", "\"x\"", "1", "[[\"read\"]]", "{\"max_read_bytes\":1,\"max_read_bytes\":2}"] {
        let receipt = open(whole);
        findings.add(expect(whole, &receipt, &["error / invalid_capability", "error / invalid_params"]));
    }
    findings.outcome()
}
