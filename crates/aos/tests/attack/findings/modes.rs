//! What is denied stays denied in every isolation and capture mode.

use aos_testkit::{World, check, expect, uncaptured};
use serde_json::json;

use crate::{Case, Outcome, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![plain("S1", a_command_without_capture_needs_the_capability)]
}

/// Only whoever opens the session decides that commands may run without capture.
fn a_command_without_capture_needs_the_capability() -> Outcome {
    let world = World::new();
    let session = world.open(json!({}));
    let run = |session: &str, capture: &str| {
        let argv = json!(["sh", "-c", "echo x > made"]);
        let params = json!({ "session_id": session, "argv": argv, "capture": capture });
        world.client().effect("host.exec", params)
    };
    expect("not given", &run(&session, "none"), &["forbidden / exec_not_allowed"])?;
    check(!world.root.join("made").exists(), || "it ran".into())?;
    expect("captured", &run(&session, "auto"), &["ok"])?;
    let receipt = world.open_receipt(json!({ "capability": { "exec": {} } }));
    check(receipt["capability"]["exec"].get("uncaptured").is_none(), || format!("{receipt}"))?;
    let (code, shown, err) = world.aos(&["exec", "-s", &session, "--no-capture", "--", "true"]);
    check(code != 0 && err.contains("--uncaptured"), || format!("{code} {shown} {err}"))?;
    let given = world.open(uncaptured(json!({})));
    expect("given", &run(&given, "none"), &["ok"])?;
    let root = world.root.display().to_string();
    let (_, opened, err) = world.aos(&["session", "open", "--uncaptured", &root]);
    expect(&err, &run(opened.trim(), "none"), &["ok"])?;
    world.finish()
}
