//! Rules deny a path in whatever spelling either of them is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Value, json};

use aos_testkit::{World, check, expect};

use crate::Outcome;

fn deny(globs: &[String]) -> Value {
    json!({ "rules": [{ "name": "closed", "ops": ["read", "write", "search"], "paths": globs, "decision": "deny" }] })
}

/// A session whose rule has this one glob, on `$R` or on a link to it.
fn open(world: &World, glob: &str, through_link: bool) -> Result<String, String> {
    let workdir = if through_link { world.parent.join("alias") } else { world.root.clone() };
    let target = json!({ "local": { "workdir": workdir } });
    let receipt = world.open_receipt(json!({ "target": target, "policy": deny(&[glob.to_owned()]) }));
    receipt["session_id"].as_str().map(str::to_owned).ok_or_else(|| format!("{glob}: {receipt}"))
}

pub fn every_spelling_is_denied() -> Outcome {
    let world = World::new();
    std::fs::write(world.root.join(OsStr::from_bytes(b"key\xff")), "needle").unwrap();
    for name in ["keyä", "key\n", "key*", "d/secret"] {
        world.write(name, "needle");
    }
    std::os::unix::fs::symlink(&world.root, world.parent.join("alias")).unwrap();
    let (root, parent) = (world.root.display().to_string(), world.parent.display().to_string());
    let mut client = world.client();
    for (glob, path) in [
        (r"key\xff".to_owned(), r"key\xff"),
        (r"key\xFF".to_owned(), r"key\xff"),
        (r"\x6bey\xff".to_owned(), r"key\xff"),
        ("key?".to_owned(), r"key\xff"),
        ("key?".to_owned(), r"key\x0a"),
        ("key?".to_owned(), "keyä"),
        ("key[!a]".to_owned(), "keyä"),
        (r"key\xc3\xa4".to_owned(), "keyä"),
        (r"key\x2a".to_owned(), "key*"),
        (format!("{root}/d/secret"), "d/secret"),
        (format!("{root}/d/"), "d/secret"),
        (format!("{root}//d/./*"), "d/secret"),
        (format!("{parent}/*/d/secret"), "d/secret"),
        (format!("{parent}/alias/d/**"), "d/secret"),
        ("/**/secret".to_owned(), "d/secret"),
        ("d//secret".to_owned(), "d/secret"),
        ("/".to_owned(), "d/secret"),
    ] {
        let through_link = glob.contains("/alias/");
        let session = open(&world, &glob, through_link)?;
        let content = json!({ "inline_text": { "text": "new" } });
        let what = format!("{glob} on {path}");
        for path in [path.to_owned(), format!("{root}/{path}")] {
            let read = client.fs(&session, "read_file", json!({ "path": path }));
            expect(&what, &read, &["forbidden / policy_denied"])?;
            let written = client.fs(&session, "write_file", json!({ "path": path, "content": content }));
            expect(&what, &written, &["forbidden / policy_denied"])?;
        }
        let found = client.fs(&session, "grep", json!({ "pattern": "needle" }));
        let lines = found["matches"]["inline_text"]["text"].as_str().unwrap_or_default();
        check(!lines.lines().any(|line| line.starts_with(&format!("{path}:"))), || {
            format!("{what}: {found}")
        })?;
        client.must(
            &session,
            "read_file",
            json!({ "path": "keyab" }),
            &["not_found / path_not_found", "forbidden / policy_denied"],
        )?;
    }
    world.finish()
}

/// What a rule could never match is refused when the session is opened, and what it could is not.
pub fn void_globs_are_refused() -> Outcome {
    let world = World::new();
    let outside = world.outside.display().to_string();
    let root = world.root.display().to_string();
    for glob in
        ["../outside/secret", "d/../key", r"a\x2fb", r"a\x00", "/etc/**", &outside, &format!("{root}-evil/x")]
    {
        let receipt = world.open_receipt(json!({ "policy": deny(&["ok".into(), (*glob).to_owned()]) }));
        expect(glob, &receipt, &["error / invalid_policy"])?;
        let message = receipt["error_message"].as_str().unwrap_or_default();
        check(message.contains("rules[0].paths[1]"), || format!("{glob}: {message}"))?;
    }
    let reached = json!({ "fs_roots": [root, outside] });
    let receipt =
        world.open_receipt(json!({ "capability": reached, "policy": deny(std::slice::from_ref(&outside)) }));
    check(receipt["status"] == "ready", || format!("another root: {receipt}"))?;
    let followed = json!({ "follow_symlinks": "allow" });
    let receipt = world.open_receipt(json!({ "capability": followed, "policy": deny(&["/etc/**".into()]) }));
    check(receipt["status"] == "ready", || format!("links lead anywhere: {receipt}"))?;
    let named =
        json!({ "rules": [{ "name": "r", "ops": ["exec"], "paths": ["/etc/**"], "decision": "deny" }] });
    let session = world.open(json!({ "policy": named }));
    let params = json!({ "session_id": session, "argv": ["cat", "/etc/hostname"] });
    expect("cat", &world.client().effect("host.exec", params), &["forbidden / policy_denied"])?;
    let tree = json!({ "target": { "vfs": {} }, "policy": deny(&["/d/secret".into()]) });
    let session = world.open(tree);
    let written =
        json!({ "path": "d/secret", "content": { "inline_text": { "text": "x" } }, "create_parents": true });
    world.client().must(&session, "write_file", written, &["forbidden / policy_denied"])?;
    world.finish()
}

/// A reopened session applies its rules to the same spellings.
pub fn rules_survive_a_restart() -> Outcome {
    let mut world = World::new();
    world.write("d/secret", "needle");
    std::os::unix::fs::symlink(&world.root, world.parent.join("alias")).unwrap();
    let glob = format!("{}/alias/d/**", world.parent.display());
    let session = open(&world, &glob, true)?;
    world.kill9();
    world.start_daemon();
    world.client().must(
        &session,
        "read_file",
        json!({ "path": "d/secret" }),
        &["forbidden / policy_denied"],
    )?;
    world.finish()
}
