//! Hostile texts: nothing that a client sends reaches a terminal or a table unescaped.

use std::path::Path;
use std::time::Duration;

use aos_testkit::{Findings, Fixture, World, check, expect, patch_params, text};
use serde_json::{Value, json};

use super::names_field;
use crate::Outcome;

/// A line end, a cursor movement, a title, a C1 control and a bidi override: each would change what a person reads.
const HOSTILE: &str = "a\nb\r\u{1b}[31m\u{1b}]0;x\u{7}\u{9b}2J\u{202e}c\u{2028}d";

pub(super) fn hostile_texts() -> Outcome {
    let mut fixture = Fixture::new();
    let mut findings = Findings::default();
    findings.add(hostile_ids(&mut fixture));
    let workdir = fixture.world.root.join(format!("dir{HOSTILE}"));
    std::fs::create_dir(&workdir).unwrap();
    let local = json!({ "workdir": shown_path(&workdir), "env": { HOSTILE: HOSTILE } });
    let opened =
        fixture.world.open_receipt(json!({ "target": { "local": local }, "labels": { HOSTILE: HOSTILE } }));
    findings.add(expect("hostile labels and names", &opened, &["ready", "error / invalid_params"]));
    let labeled = fixture.world.open_receipt(json!({ "labels": { HOSTILE: HOSTILE } }));
    findings.add(expect("hostile labels", &labeled, &["ready", "error / invalid_params"]));
    for (kind, params) in [
        ("write_file", json!({ "path": HOSTILE, "content": text("x") })),
        ("read_file", json!({ "path": HOSTILE })),
        ("move", json!({ "from": HOSTILE, "to": format!("m{HOSTILE}") })),
        ("apply_patch", patch_params(&format!("*** Add File: {}\n+x\n", HOSTILE.replace(['\n', '\r'], "")))),
        ("read_file", json!({ "path": format!("missing{HOSTILE}") })),
        ("list_dir", json!({})),
    ] {
        let _ = fixture.fs(kind, params);
    }
    let _ = fixture.client.effect(HOSTILE, json!({}));
    let _ = fixture.client.effect("host.session.signal", json!({ "session_id": HOSTILE, "signal": "int" }));
    findings.add(tables_are_clean(&fixture.world));
    findings.add(complaints_are_clean(&fixture.world));
    let pid = fixture.world.terminate();
    findings.add(check(pid < Duration::from_secs(5), || "the daemon stops slowly".into()));
    let log = std::fs::read_to_string(fixture.world.home.join("log/aosd.log")).unwrap();
    findings.add(is_clean("aosd.log", &log));
    findings.add(fixture.finish());
    findings.outcome()
}

/// A path as a request spells it: control characters as `\xNN`.
fn shown_path(path: &Path) -> String {
    aos_model::path::show(path.as_os_str().as_encoded_bytes())
}

fn hostile_ids(fixture: &mut Fixture) -> Outcome {
    let mut findings = Findings::default();
    let long = "x".repeat(129);
    for id in [HOSTILE, "a\nb", "\u{1b}", "a b", "", ".", "../x", "a/b", "-a", "caf\u{e9}", "a\0", &long] {
        for field in ["tool_call_id", "turn_id"] {
            let params = json!({ "session_id": fixture.session, "path": "idw", "content": text("x") });
            let mut call = json!({ "kind": "host.fs.write_file", "params": params });
            call[field] = json!(id);
            let receipt = fixture.client.rpc("effect.call", call)["result"].clone();
            findings.add(names_field(&format!("{field} {id:?}"), &receipt, field));
        }
    }
    findings.add(check(!fixture.world.root.join("idw").exists(), || "a bad id was carried out".into()));
    findings.outcome()
}

fn is_hostile(c: char) -> bool {
    c.is_control() && c != '\n'
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

fn is_clean(what: &str, text: &str) -> Outcome {
    let found = text.chars().find(|c| is_hostile(*c));
    check(found.is_none(), || {
        let line = text.lines().find(|line| line.chars().any(is_hostile)).unwrap_or_default();
        format!("{what} shows {found:?} raw: {:.300}", line.escape_debug().to_string())
    })
}

/// One line per record, without anything that a terminal would interpret.
fn tables_are_clean(world: &World) -> Outcome {
    let mut findings = Findings::default();
    let head = world.client().rpc("daemon.status", json!({}))["result"]["seq"].as_u64().unwrap_or(0);
    for (words, json) in [(&["log"][..], false), (&["log", "--json"], true)] {
        let (code, out, err) = world.aos(words);
        findings.add(check(code == 0, || format!("aos {words:?}: {code}: {err}")));
        findings.add(is_clean(&format!("aos {words:?}"), &out));
        findings.add(check(out.lines().count() as u64 == head, || {
            format!("aos {words:?}: {} lines for {head} entries", out.lines().count())
        }));
        let parsed = out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok());
        findings.add(check(!json || parsed, || format!("aos {words:?} is no JSON")));
    }
    let sessions =
        world.client().effect("host.session.list", json!({}))["sessions"].as_array().map_or(0, Vec::len);
    for words in [&["session", "list"][..], &["session", "list", "--json"], &["session", "list", "--all"]] {
        let (_, out, _) = world.aos(words);
        findings.add(is_clean(&format!("aos {words:?}"), &out));
        findings.add(check(out.lines().count() == sessions, || {
            format!("aos {words:?}: {} lines for {sessions} sessions", out.lines().count())
        }));
    }
    for seq in 1..=head {
        let (_, out, _) = world.aos(&["show", &seq.to_string()]);
        findings.add(is_clean(&format!("aos show {seq}"), &out));
    }
    findings.outcome()
}

/// The client's own error messages are escaped as well.
fn complaints_are_clean(world: &World) -> Outcome {
    let mut findings = Findings::default();
    for words in [
        &["session", "close", HOSTILE][..],
        &["session", "open", HOSTILE],
        &["session", "open", "--label", HOSTILE],
        &["session", "open", "--policy", HOSTILE],
        &["blob", "get", HOSTILE],
        &["blob", "put", HOSTILE],
        &["policy", "path", HOSTILE, "--cwd", "/"],
        &["policy", "path", "x", "--cwd", "/", "--policy", HOSTILE],
        &["call", HOSTILE],
        &["call", "host.session.list", HOSTILE],
        &["call", "host.session.list", "{}", "--tool-call", HOSTILE],
        &["log", "--session", HOSTILE],
        &["status"],
    ] {
        let (code, out, err) = world.aos(words);
        findings
            .add(check((0..=125).contains(&code) && code != 101, || format!("aos {words:?}: exit {code}")));
        findings.add(is_clean(&format!("aos {words:?}"), &out));
        findings.add(is_clean(&format!("aos {words:?} on stderr"), &err));
    }
    findings.outcome()
}
