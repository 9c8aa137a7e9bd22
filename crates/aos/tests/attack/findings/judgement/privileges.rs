//! What a command must not leave behind: files with the privileges of another user, and files that others still write.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use aos_testkit::{Findings, Start, World, check, expect, uncaptured, wait_for, warning_codes};

use crate::Outcome;
use crate::write_edit::mode_of;

fn mode(world: &World, path: &str) -> u32 {
    std::fs::metadata(world.root.join(path)).map_or(0, |meta| meta.permissions().mode() & 0o7777)
}

fn set_mode(world: &World, path: &str, mode: u32) {
    std::fs::set_permissions(world.root.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
}

const SCRIPT: &str = "echo x > new; chmod 6755 new; echo x > group; chmod 2711 group; mkdir shared; chmod 2755 shared; \
    echo x > shared/inner; chmod 4700 shared/inner; chmod 4755 plain; echo y > changed; chmod 6755 changed; touch own";

/// Neither over an overlay nor without one do set-id bits stay; folders keep theirs, and so do files that the command
/// did not change.
pub fn set_id_bits_are_dropped() -> Outcome {
    for uid in [None, Some(65_534)] {
        for capture in ["auto", "none"] {
            let world = World::with(Start { uid, ..Start::default() });
            for name in ["plain", "changed", "own"] {
                world.write(name, "x");
            }
            set_mode(&world, "own", 0o4755);
            set_mode(&world, "plain", 0o755);
            // A file that changed right before the command counts as the command's.
            std::thread::sleep(std::time::Duration::from_millis(200));
            let session = world.open(uncaptured(json!({})));
            let params = json!({ "session_id": session, "argv": ["sh", "-c", SCRIPT], "capture": capture });
            let receipt = world.client().effect("host.exec", params);
            expect(capture, &receipt, &["ok"])?;
            check(receipt["exit_code"] == 0, || format!("{receipt}"))?;
            check(warning_codes(&receipt).contains(&"privileges_dropped"), || {
                format!("{capture}: {receipt}")
            })?;
            for (path, expected) in [
                ("new", 0o755),
                ("group", 0o711),
                ("shared/inner", 0o700),
                ("plain", 0o755),
                ("changed", 0o755),
                ("shared", 0o2755),
            ] {
                check(mode(&world, path) == expected, || {
                    format!("{uid:?} {capture}: {path} has {:o}: {receipt}", mode(&world, path))
                })?;
            }
            if capture == "auto" && receipt["coverage"] == "overlay" {
                check(mode(&world, "own") == 0o4755, || format!("own has {:o}", mode(&world, "own")))?;
                let changed = receipt["changed_paths"].to_string();
                check(!changed.contains("plain"), || format!("plain did not change: {changed}"))?;
            }
            world.finish()?;
        }
    }
    Ok(())
}

/// Each leaves a file with set-id bits where it is not found easily.
const HIDDEN: &[&str] = &[
    "mkdir build/d; echo x > build/d/f; chmod 4755 build/d/f; chmod 0 build/d",
    "mkdir -p build/d/e; echo x > build/d/e/f; chmod 6711 build/d/e/f; chmod 0 build/d/e build/d",
    "echo x > build/f; chmod 4111 build/f",
    "echo x > build/f; chmod 2000 build/f",
    "mkdir build/.aos-tmp-x; echo x > build/.aos-tmp-x/f; chmod 4755 build/.aos-tmp-x/f",
    "echo x > build/f; chmod 4755 build/f; chmod 311 build",
    "echo x > build/f; chmod 4755 build/f; touch -d @1 build/f",
];

/// Where a command writes past an overlay, set-id bits are dropped from what it closed or made unreadable, too.
pub fn hidden_set_id_bits_are_dropped() -> Outcome {
    let mut findings = Findings::default();
    for uid in [None, Some(65_534)] {
        for (params, capture) in [
            (uncaptured(json!({})), "none"),
            (uncaptured(json!({ "capability": { "protected_paths": "allow" } })), "none"),
            (json!({ "isolation": "none" }), "auto"),
            (json!({ "capture_exclude": ["build"] }), "auto"),
        ] {
            let world = World::with(Start { uid, ..Start::default() });
            let session = world.open(params.clone());
            for script in HIDDEN {
                let folder = world.root.join("build");
                let _ = std::fs::remove_dir_all(&folder);
                std::fs::create_dir(&folder).map_err(|why| why.to_string())?;
                std::os::unix::fs::chown(&folder, uid, uid).map_err(|why| why.to_string())?;
                let run = json!({ "session_id": session, "argv": ["sh", "-c", script], "capture": capture });
                let receipt = world.client().effect("host.exec", run);
                let opened = Command::new("chmod").args(["-R", "u+rwx"]).arg(&folder).status();
                check(opened.is_ok_and(|status| status.success()), || format!("{script}: {receipt}"))?;
                let bits = find(&folder, "f").map(|path| mode_of(&path) & 0o6000);
                let fine = bits.is_none_or(|bits| bits == 0)
                    && warning_codes(&receipt).contains(&"privileges_dropped");
                findings.add(check(fine, || format!("{uid:?} {params}: {script}: {bits:?} {receipt}")));
            }
            world.finish()?;
        }
    }
    findings.outcome()
}

/// File capabilities that a file of the root had do not stay with what a command makes of it.
pub fn capabilities_are_dropped() -> Outcome {
    let world = World::new();
    let path = world.write("tool", "x");
    let given = Command::new("setcap").arg("cap_net_raw+ep").arg(&path).status();
    if !given.is_ok_and(|status| status.success()) {
        return world.finish(); // no setcap here, or no such attributes
    }
    let has = |path: &Path| {
        let shown = Command::new("getcap").arg(path).output().map(|output| output.stdout).unwrap_or_default();
        !shown.is_empty()
    };
    check(has(&path), || "setcap had no effect".into())?;
    let session = world.open(json!({}));
    let params = json!({ "session_id": session, "argv": ["chmod", "700", "tool"] });
    let receipt = world.client().effect("host.exec", params);
    expect("chmod", &receipt, &["ok"])?;
    check(mode(&world, "tool") == 0o700 && !has(&path), || format!("{receipt}"))?;
    world.finish()
}

/// A file below a folder, by its name.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if entry.file_name() == name && !is_dir {
                return Some(entry.path());
            }
            if is_dir {
                folders.push(entry.path());
            }
        }
    }
    None
}

/// Whoever has a file of a command open for writing does not have the file that landed.
pub fn a_file_that_is_still_written() -> Outcome {
    let world = World::new();
    world.write("old", "before\n");
    let session = world.open(json!({}));
    let script = "trap 'exit 0' INT; echo one > fresh; echo two > old; while :; do sleep 0.05; done";
    let params = json!({ "session_id": session, "argv": ["sh", "-c", script] });
    let mut runner = world.client();
    runner.send_effect(1, &json!({ "kind": "host.exec", "params": params, "tool_call_id": "tc" }))?;
    let overlays = world.home.join("state/overlays");
    let whole = |name: &str, content: &str| {
        find(&overlays, name).filter(|path| std::fs::read_to_string(path).is_ok_and(|found| found == content))
    };
    wait_for("the command to write", || {
        whole("fresh", "one\n").is_some() && whole("old", "two\n").is_some()
    })?;
    let open = |name: &str| {
        let path = find(&overlays, name).ok_or_else(|| format!("{name} is gone"))?;
        std::fs::OpenOptions::new().append(true).open(path).map_err(|why| why.to_string())
    };
    let mut held = [open("fresh")?, open("old")?];
    let signal = json!({ "session_id": session, "signal": "int" });
    world.client().effect("host.session.signal", signal);
    let receipt: Value = runner.answer().unwrap_or_default()["result"].clone();
    check(receipt["changed_paths"] == json!(["fresh", "old"]), || format!("{receipt}"))?;
    for file in &mut held {
        file.write_all(b"later\n").map_err(|why| why.to_string())?;
    }
    for (path, content) in [("fresh", "one\n"), ("old", "two\n")] {
        let found = String::from_utf8_lossy(&world.read(path)).into_owned();
        check(found == content, || format!("{path} holds {found:?} after the receipt"))?;
    }
    world.client().must(&session, "rollback", json!({}), &["ok"])?;
    check(world.read("old") == b"before\n" && !world.root.join("fresh").exists(), || "not undone".into())?;
    world.finish()
}
