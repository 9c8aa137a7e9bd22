//! The paths among the words of a command.

use serde_json::{Value, json};

use aos_testkit::{World, check, expect};

use crate::Outcome;

/// The decision on a command, as it is previewed and as it is carried out.
fn decide(world: &World, session: &str, argv: &Value) -> Result<String, String> {
    let mut client = world.client();
    let said = client.rpc("policy.evaluate", json!({ "session_id": session, "argv": argv }));
    let said = said["result"]["disposition"].as_str().unwrap_or_default().to_owned();
    let receipt = client.effect("host.exec", json!({ "session_id": session, "argv": argv }));
    let denied = receipt["error_code"] == "policy_denied";
    check(denied == (said == "deny"), || format!("{argv}: said {said}, done {receipt}"))?;
    Ok(said)
}

/// A command can make the missing folder first: what follows its `..` is judged with its links.
pub fn links_after_a_missing_name() -> Outcome {
    let world = World::new();
    world.link(&world.outside, "lnk_out");
    world.link("lnk_out", "lnk_lnk");
    world.link(world.parent.join("nowhere/deep"), "dangling");
    world.write("file", "x");
    world.write("d/inner", "x");
    world.link("../d", "d/self");
    let session = world.open(json!({ "policy": { "preset": "strict" } }));
    for path in [
        "nope/../lnk_out/secret",
        "nope/deeper/../../lnk_out/secret",
        "./nope/../lnk_lnk/secret",
        "nope/../lnk_out/../ws2",
        "nope/../d/../lnk_out/secret",
        "file/../lnk_out/secret",
        "d/nope/../../lnk_out/secret",
        "dangling/../x",
    ] {
        for argv in [
            json!(["cat", path]),
            json!(["sh", "-c", format!("mkdir -p nope/deeper d/nope; cat {path}")]),
            json!(["tool", format!("--out={path}")]),
        ] {
            let said = decide(&world, &session, &argv)?;
            check(said == "deny", || format!("{argv}: {said}"))?;
        }
    }
    let rule = json!({ "name": "r", "ops": ["exec"], "paths": ["closed/**"], "decision": "deny" });
    world.write("closed/x", "x");
    world.link("closed", "lnk_in");
    let ruled = world.open(json!({ "policy": { "rules": [rule] } }));
    let params = json!({ "session_id": ruled, "argv": ["cat", "nope/../lnk_in/x"] });
    expect("a rule", &world.client().effect("host.exec", params), &["forbidden / policy_denied"])?;
    for path in ["nope/../d/inner", "d/self/inner", "nope/new", "d/../nope/../d/inner"] {
        let said = decide(&world, &session, &json!(["ls", path]))?;
        check(said == "allow", || format!("{path}: {said}"))?;
    }
    world.finish()
}

/// An absolute value right after a cluster of options is found, and a relative one is not taken for absolute.
pub fn options_with_attached_values() -> Outcome {
    let world = World::new();
    world.write("src/usr", "needle");
    let session = world.open(json!({ "policy": { "preset": "strict" } }));
    for argv in [
        json!(["tar", "-xf/etc/a"]),
        json!(["tar", "-xzf/opt2/a"]),
        json!(["env", "A=1", "tar", "-xvf/etc/a"]),
        json!(["curl", "-sSo/etc/x"]),
        json!(["curl", "-fsSLo/opt2/x"]),
        json!(["cc", "-isystem/usr/include"]),
        json!(["cc", "-include/opt2/x.h"]),
        json!(["sh", "-c", "true; tar -cf/etc/a ."]),
        json!(["perl", "-I", "-ple", "/etc/hostname"]),
        json!(["perl", "-nI", "-e", "/etc/hostname"]),
    ] {
        let said = decide(&world, &session, &argv)?;
        check(said == "deny", || format!("{argv}: {said}"))?;
    }
    for argv in [
        json!(["rg", "-gsrc/x", "needle"]),
        json!(["rg", "-gsrc/usr", "needle"]),
        json!(["grep", "-nrfsrc/usr", "."]),
        json!(["cc", "-Lbuild/lib", "-Isrc/usr"]),
        json!(["make", "-Csrc/usr"]),
        json!(["perl", "-Isrc", "-ne", "/etc/"]),
    ] {
        let said = decide(&world, &session, &argv)?;
        check(said == "allow", || format!("{argv}: {said}"))?;
    }
    world.finish()
}
