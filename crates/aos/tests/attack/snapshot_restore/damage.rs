//! Bodies and manifests that were changed behind the daemon's back: detected before anything is restored from them.

use std::path::PathBuf;

use aos_testkit::{check, expect, patch_params, text, wait_for};
use serde_json::{Value, json};

use super::Stage;
use crate::Outcome;

fn body(stage: &Stage, content: &str) -> PathBuf {
    let hash = aos_model::request::content_hash(content.as_bytes());
    stage.world().home.join("state/blobs").join(&hash[7..9]).join(&hash[9..])
}

/// Three files changed by one call; waits until their bodies are stored as blobs.
fn three_files(stage: &mut Stage) -> Result<Value, String> {
    for name in ["a", "b", "c"] {
        stage.world().write(name, format!("{name} one\n"));
    }
    let sections: String =
        ["a", "b", "c"].map(|n| format!("*** Update File: {n}\n@@\n-{n} one\n+{n} two\n")).concat();
    let receipt = stage.ok("tc1", "apply_patch", patch_params(&sections))?;
    for name in ["a", "b", "c"] {
        let body = body(stage, &format!("{name} one\n"));
        wait_for("the bodies", || body.exists())?;
    }
    Ok(receipt)
}

fn flip(path: &std::path::Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = at % bytes.len();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// SNAP-10.
pub fn a_flipped_body() -> Outcome {
    let mut stage = Stage::new();
    three_files(&mut stage)?;
    let before = stage.tree();
    let body = body(&stage, "b one\n");
    let whole = std::fs::read(&body).unwrap();
    flip(&body, 2);
    for params in [json!({}), json!({ "force": true }), json!({ "dry_run": true })] {
        let mut params = params;
        params["scope_id"] = json!("tc1");
        stage.must("restore", params, "error / preimage_damaged")?;
        stage.is(&before, "after a restore from a damaged body")?;
    }
    stage.must("rollback", json!({}), "error / preimage_damaged")?;
    stage.is(&before, "after a rollback from a damaged body")?;
    // The other files of the scope are not affected.
    stage.must("restore", json!({ "scope_id": "tc1", "paths": ["a"] }), "ok")?;
    check(stage.world().read("a") == b"a one\n", || "a".into())?;
    std::fs::write(&body, whole).unwrap();
    stage.must("restore", json!({ "scope_id": "tc1" }), "ok")?;
    check(stage.world().read("b") == b"b one\n" && stage.world().read("c") == b"c one\n", || "b, c".into())?;
    stage.finish()
}

/// Truncated, missing, replaced, flipped at every place: always reported, nothing changed, no other snapshot affected.
pub fn manifests_and_bodies() -> Outcome {
    let mut stage = Stage::new();
    let receipt = three_files(&mut stage)?;
    stage.world().write("other", "other one\n");
    stage.ok("tc2", "write_file", json!({ "path": "other", "content": text("other two\n") }))?;
    let folder = stage.store().join(receipt["snapshot_id"].as_str().unwrap_or_default());
    let manifest = folder.join("manifest.json");
    wait_for("the manifest", || manifest.exists())?;
    let whole = std::fs::read(&manifest).unwrap();
    let body = body(&stage, "a one\n");
    let content = std::fs::read(&body).unwrap();
    let before = stage.tree();
    type Harm = fn(&std::path::Path);
    let harms: &[(&str, Harm)] = &[
        ("gone", |path| std::fs::remove_file(path).unwrap()),
        ("empty", |path| std::fs::write(path, "").unwrap()),
        ("cut", |path| {
            let bytes = std::fs::read(path).unwrap();
            std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("a folder", |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }),
        ("a link", |path| {
            std::fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/dev/zero", path).unwrap();
        }),
        ("a FIFO", |path| {
            std::fs::remove_file(path).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
    ];
    for (what, harm) in harms {
        for (file, good) in [(&manifest, &whole), (&body, &content)] {
            harm(file);
            let what = format!("{} {what}", file.file_name().unwrap_or_default().to_string_lossy());
            for restart in [false, true] {
                if restart {
                    stage.fixture.world.kill9();
                    stage.fixture.world.start_daemon();
                    stage.fixture.client = stage.fixture.world.client();
                }
                let receipt = stage.fs("restore", json!({ "scope_id": "tc1" }));
                expect(&format!("{what}, restarted {restart}"), &receipt, &["error / preimage_damaged"])?;
                stage.is(&before, &what)?;
                let other = stage.fs("restore", json!({ "scope_id": "tc2", "dry_run": true }));
                expect(&format!("{what}: another snapshot"), &other, &["ok"])?;
            }
            let _ = std::fs::remove_dir(file);
            let _ = std::fs::remove_file(file);
            std::fs::write(file, good).unwrap();
        }
    }
    for at in (0..whole.len()).step_by(7) {
        flip(&manifest, at);
        let receipt = stage.fs("restore", json!({ "scope_id": "tc1", "dry_run": true }));
        // A flip may hit white space between two tokens, which changes nothing.
        expect(&format!("a flip at {at}"), &receipt, &["error / preimage_damaged", "ok"])?;
        check(receipt["status"] != "ok" || receipt["restored_paths"] == json!(["a", "b", "c"]), || {
            format!("a flip at {at} was believed: {receipt}")
        })?;
        std::fs::write(&manifest, &whole).unwrap();
    }
    stage.must("restore", json!({ "scope_id": "tc1" }), "ok")?;
    stage.finish()
}

/// A manifest that can be parsed and differs from what was written: another mode, another file's body, another name,
/// another kind. It is not trusted.
pub fn well_formed_and_wrong() -> Outcome {
    let mut stage = Stage::new();
    let receipt = three_files(&mut stage)?;
    let folder = stage.store().join(receipt["snapshot_id"].as_str().unwrap_or_default());
    let path = folder.join("manifest.json");
    wait_for("the manifest", || path.exists())?;
    let whole = std::fs::read(&path).unwrap();
    let before = stage.tree();
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 4] = [
        ("mode", |manifest| manifest["entries"]["a"]["mode"] = json!(0o777)),
        ("body", |manifest| {
            manifest["entries"]["a"]["body_hash"] = manifest["entries"]["b"]["body_hash"].clone();
        }),
        ("name", |manifest| manifest["entries"]["d"] = manifest["entries"]["a"].take()),
        ("kind", |manifest| manifest["entries"]["a"] = json!({ "kind": "absent" })),
    ];
    for (what, change) in changes {
        let mut manifest: Value = serde_json::from_slice(&whole).map_err(|why| why.to_string())?;
        change(&mut manifest);
        if let Some(entries) = manifest["entries"].as_object_mut() {
            entries.retain(|_, kept| !kept.is_null());
        }
        std::fs::write(&path, manifest.to_string()).unwrap();
        let receipt = stage.fs("restore", json!({ "scope_id": "tc1" }));
        let (verified, ..) = stage.world().aos(&["verify"]);
        std::fs::write(&path, &whole).unwrap();
        expect(&format!("another {what}"), &receipt, &["error / preimage_damaged"])?;
        stage.is(&before, &format!("after a restore with another {what}"))?;
        check(verified != 0, || format!("aos verify does not see another {what}"))?;
    }
    stage.must("restore", json!({ "scope_id": "tc1" }), "ok")?;
    stage.finish()
}

/// `aos verify` checks manifests and the bodies that they name.
pub fn verify_sees_it() -> Outcome {
    let mut stage = Stage::new();
    let receipt = three_files(&mut stage)?;
    let manifest =
        stage.store().join(receipt["snapshot_id"].as_str().unwrap_or_default()).join("manifest.json");
    let body = body(&stage, "a one\n");
    let (code, out, err) = stage.world().aos(&["verify"]);
    check(code == 0, || format!("whole: {code}: {out}{err}"))?;
    for file in [&manifest, &body] {
        let whole = std::fs::read(file).unwrap();
        flip(file, 30);
        let (code, out, err) = stage.world().aos(&["verify"]);
        std::fs::write(file, &whole).unwrap();
        check(code != 0, || format!("a flip in {}: {out}{err}", file.display()))?;
    }
    let whole = std::fs::read(&body).unwrap();
    std::fs::remove_file(&body).unwrap();
    let (code, out, err) = stage.world().aos(&["verify"]);
    std::fs::write(&body, whole).unwrap();
    check(code != 0 && format!("{out}{err}").contains("snap_"), || {
        format!("a missing body: {code}: {out}{err}")
    })?;
    stage.finish()
}
