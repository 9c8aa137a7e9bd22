//! What is put back after a command without an overlay, whatever runs beside it and however the daemon ends.

use std::path::Path;

use aos_testkit::{Client, Findings, Start, World, check, expect, uncaptured, wait_for};
use serde_json::{Value, json};

use super::{furnish, rules, state};
use crate::Outcome;
use crate::exec::room::ordinary;

/// Changes what it may not, says so, and waits.
const EVIL: &str = "for path in .mcp.json .codex/config.toml locked/a .vscode/tasks.json n/.claude/settings.json .git/hooks/new; do \
    mkdir -p $(dirname $path); echo evil > $path; done; cp /bin/true su; chmod 4755 su; touch first; while [ ! -e go1 ]; do sleep 0.05; done";
const SECOND: &str = "touch second; while [ ! -e go2 ]; do sleep 0.05; done";
const NEW: &[&str] = &[".vscode/tasks.json", "n/.claude/settings.json", ".git/hooks/new"];

fn modes() -> Vec<(Value, &'static str)> {
    let mut mounts = uncaptured(json!({ "policy": rules() }));
    mounts["capability"]["cross_mounts"] = json!(true);
    let none = json!({ "isolation": "none", "policy": rules() });
    vec![(uncaptured(json!({ "policy": rules() })), "none"), (mounts, "auto"), (none, "auto")]
}

fn begin(world: &World, session: &str, capture: &str, script: &str) -> Result<Client, String> {
    let params = json!({ "session_id": session, "argv": ["sh", "-c", script], "capture": capture });
    let mut client = world.client();
    client.send_effect(
        1,
        &json!({ "kind": "host.exec", "params": params, "tool_call_id": script.len().to_string() }),
    )?;
    Ok(client)
}

fn wait_for_file(path: &Path) -> Outcome {
    wait_for(&path.display().to_string(), || path.exists())
}

/// What is different from before, and what is there and should not be.
fn left(world: &World, before: &[(String, super::Seen)]) -> Vec<String> {
    let after = state(world);
    let changed = before.iter().zip(after).filter(|(was, now)| *was != now).map(|(was, _)| was.0.clone());
    let new = NEW.iter().filter(|path| world.root.join(path).exists());
    changed.chain(new.map(|path| (*path).to_owned())).collect()
}

/// A command that begins beside another one does not take what that one changed for how it was before.
pub(super) fn commands_beside_each_other() -> Outcome {
    let mut findings = Findings::default();
    for start in [Start::default(), ordinary()] {
        for (params, capture) in modes() {
            // Captured commands of one session wait for each other.
            for is_one_session in [true, false].into_iter().filter(|one| !one || capture == "none") {
                let world = World::with(Start { uid: start.uid, ..Start::default() });
                furnish(&world);
                let before = state(&world);
                let first = world.open(params.clone());
                let second = if is_one_session { first.clone() } else { world.open(params.clone()) };
                let mut evil = begin(&world, &first, capture, EVIL)?;
                wait_for_file(&world.root.join("first"))?;
                let mut other = begin(&world, &second, capture, SECOND)?;
                wait_for_file(&world.root.join("second"))?;
                world.write("go1", "");
                let receipt = evil.answer().unwrap_or_default()["result"].clone();
                findings.add(expect(
                    "the first",
                    &receipt,
                    &["forbidden / protected_path", "forbidden / policy_denied"],
                ));
                world.write("go2", "");
                let receipt = other.answer().unwrap_or_default()["result"].clone();
                let left = left(&world, &before);
                findings
                    .add(check(left.is_empty(), || format!("{params} {is_one_session}: {left:?} {receipt}")));
                world.finish()?;
            }
        }
    }
    findings.outcome()
}

/// A daemon that is stopped ends such a command, and puts back what it changed.
pub(super) fn a_stopped_daemon() -> Outcome {
    let mut findings = Findings::default();
    for (params, capture) in modes() {
        let mut world = World::new();
        furnish(&world);
        let before = state(&world);
        let session = world.open(params.clone());
        let _evil = begin(&world, &session, capture, EVIL)?;
        wait_for_file(&world.root.join("first"))?;
        let (code, said, why) = world.aos(&["daemon", "stop"]);
        findings.add(check(code == 0, || format!("{code} {said} {why}")));
        let left = left(&world, &before);
        findings.add(check(left.is_empty(), || format!("{params}: {left:?}")));
        world.start_daemon();
        world.finish()?;
    }
    findings.outcome()
}

/// A daemon that is killed leaves it to the next one, which knows how everything was.
pub(super) fn a_killed_daemon() -> Outcome {
    let mut findings = Findings::default();
    for start in [Start::default(), ordinary()] {
        for (params, capture) in modes() {
            let mut world = World::with(Start { uid: start.uid, ..Start::default() });
            furnish(&world);
            let before = state(&world);
            let session = world.open(params.clone());
            let _evil = begin(&world, &session, capture, EVIL)?;
            wait_for_file(&world.root.join("first"))?;
            let overlays = world.home.join("state/overlays");
            wait_for("the baseline to be saved", || is_saved(&overlays))?;
            world.kill9();
            world.start_daemon();
            let left = left(&world, &before);
            findings.add(check(left.is_empty(), || format!("{params}: {left:?}")));
            let mode = crate::write_edit::mode_of(&world.root.join("su"));
            findings.add(check(mode & 0o6000 == 0, || format!("{params}: su has {mode:o}")));
            let (_, log, _) = world.aos(&["log"]);
            findings.add(check(log.contains("exec.put_back"), || format!("{params}: {log}")));
            wait_for("the baseline to be removed", || !is_saved(&overlays))?;
            world.finish()?;
        }
    }
    findings.outcome()
}

fn is_saved(overlays: &Path) -> bool {
    let folders = std::fs::read_dir(overlays).into_iter().flatten().flatten();
    let whole = |path: &Path| std::fs::read(path).is_ok_and(|bytes| bytes.ends_with(b"\0\0"));
    folders.into_iter().any(|folder| whole(&folder.path().join("baseline")))
}
