//! A small home that contains each kind of record: entries, closed intents, state, manifests, blobs, pre-images, a
//! virtual tree.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Client;
use crate::time::bound;
use crate::torture::Setup;

/// The files of a home, by their path below it.
pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// How the daemon that wrote the home ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// Everything is in the database.
    Stopped,
    /// The last entries are in the write-ahead log.
    Killed,
}

/// Lets one daemon write the home of `setup`, and a second daemon end as `ended` says. The first daemon stops, which
/// moves its write-ahead log into the database, so the log of the second daemon is short.
pub(super) fn write(setup: &Setup, ended: Ended) -> Result<Files, String> {
    let root = &setup.roots[0];
    live(setup, Ended::Stopped, |client| {
        local(client, root)?;
        in_the_record(client, &json!({ "vfs": {} }))?;
        in_the_record(client, &json!({ "staged": { "workdir": root } }))
    })?;
    live(setup, ended, |client| match ended {
        Ended::Stopped => Ok(()),
        Ended::Killed => in_the_record(client, &json!({ "vfs": {} })),
    })?;
    files(&setup.home).map_err(|why| format!("cannot read the home: {why}"))
}

fn live(
    setup: &Setup,
    ended: Ended,
    work: impl FnOnce(&mut Client) -> Result<(), String>,
) -> Result<(), String> {
    let daemon = setup.start_daemon(&[])?;
    let mut client = setup.client()?;
    work(&mut client)?;
    settled(&setup.home)?;
    match ended {
        Ended::Killed => daemon.kill(),
        Ended::Stopped => {
            let _ = client.call("daemon.stop", &json!({}));
            daemon.await_death(Duration::from_secs(20));
        }
    }
    Ok(())
}

/// Runs each effect that leaves data in the home in a session that stays open, and opens and closes another session.
fn local(client: &mut Client, root: &Path) -> Result<(), String> {
    let long = |word: &str| format!("{word} ").repeat(40);
    let content = |text: String| json!({ "inline_text": { "text": text } });
    let patch =
        "*** Begin Patch\n*** Add File: p\n+patched\n*** Update File: a\n@@\n-old\n+new\n*** End Patch\n";
    // A low limit, so that a few words become a blob.
    let target = json!({ "local": { "workdir": root } });
    let session = client.open_with(&json!({ "target": target, "capability": { "max_inline_bytes": 64 } }))?;
    let mut must = |kind: &str, mut params: Value, tool_call: &str| {
        params["session_id"] = json!(session);
        let receipt = client.try_effect(kind, &params, tool_call).ok_or("the daemon hung up")?;
        if receipt["status"] == "ok" { Ok(()) } else { Err(format!("{kind}: {receipt}")) }
    };
    must("host.fs.write_file", json!({ "path": "a", "content": content("old\n".into()) }), "t1")?;
    must("host.fs.write_file", json!({ "path": "b", "content": content(long("b")) }), "t2")?;
    must("host.fs.apply_patch", json!({ "patch": content(patch.into()) }), "t3")?;
    must("host.fs.edit_file", json!({ "path": "a", "old_string": "new", "new_string": "newer" }), "t4")?;
    must("host.fs.read_file", json!({ "path": "b" }), "t5")?;
    must("host.fs.make_dir", json!({ "path": "d" }), "t6")?;
    must("host.fs.move", json!({ "from": "b", "to": "d/b" }), "t7")?;
    must("host.fs.snapshot", json!({ "scope_id": "by_hand", "paths": ["a", "d"] }), "t8")?;
    let script = "printf 'made by a command' > made; printf 'changed by a command' > a; rm p";
    must("host.exec", json!({ "argv": ["sh", "-c", script] }), "t9")?;
    must("host.fs.remove", json!({ "path": "d", "recursive": true }), "t10")?;
    must("host.fs.rollback", json!({}), "t11")?;
    must("host.fs.write_file", json!({ "path": "e", "content": content("e\n".into()) }), "t12")?;
    let closed = client.open(root)?;
    let close = json!({ "session_id": closed, "signal": "kill" });
    client
        .try_effect("host.session.signal", &close, "t13")
        .map(drop)
        .ok_or_else(|| "the daemon hung up".into())
}

fn in_the_record(client: &mut Client, target: &Value) -> Result<(), String> {
    let session = client.open_with(&json!({ "target": target }))?;
    for (path, text) in [("v", "one"), ("w/x", "two"), ("v", "three")] {
        let content = json!({ "inline_text": { "text": text } });
        let params =
            json!({ "session_id": session, "path": path, "content": content, "create_parents": true });
        let receipt = client.try_effect("host.fs.write_file", &params, "tree").ok_or("the daemon hung up")?;
        if receipt["status"] != "ok" {
            return Err(format!("write_file: {receipt}"));
        }
    }
    Ok(())
}

/// Waits until all pre-images are stored. The daemon turns them into blobs and manifests in the background.
fn settled(home: &Path) -> Result<(), String> {
    let deadline = Instant::now() + bound(Duration::from_secs(20));
    let waiting = || files(&home.join("state/preimages")).map_or(0, |files| files.len());
    while waiting() > 0 {
        if Instant::now() > deadline {
            return Err(format!("{} pre-images are not settled", waiting()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// All regular files below a folder.
pub(super) fn files(folder: &Path) -> std::io::Result<Files> {
    let mut found = Files::new();
    collect(folder, Path::new(""), &mut found)?;
    Ok(found)
}

fn collect(folder: &Path, below: &Path, found: &mut Files) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if path.ends_with("state/reserve") {
            // Space that is held back for a full disk: 32 MiB without content.
        } else if entry.file_type()?.is_dir() {
            collect(&entry.path(), &path, found)?;
        } else if entry.file_type()?.is_file() {
            found.insert(path, std::fs::read(entry.path())?);
        }
    }
    Ok(())
}

/// Writes a new home, private to its owner as the daemon requires.
pub(super) fn lay_out(home: &Path, files: &Files) -> std::io::Result<()> {
    for (path, bytes) in files {
        let at = home.join(path);
        std::fs::create_dir_all(at.parent().unwrap_or(home))?;
        std::fs::write(&at, bytes)?;
        std::fs::set_permissions(&at, PermissionsExt::from_mode(0o600))?;
    }
    for folder in ["", "state", "state/blobs", "state/snapshots", "state/preimages", "run"] {
        let folder = home.join(folder);
        std::fs::create_dir_all(&folder)?;
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700))?;
    }
    Ok(())
}
