//! Host mounts: what can be mounted, what cannot, and how the error names it.

use std::time::Duration;

use aos_testkit::{World, check, expect, is_root, timed};
use serde_json::{Value, json};

use super::Tree;
use crate::Outcome;

fn open(world: &World, mount: Value) -> Value {
    let target = json!({ "vfs": { "allowed_roots": [world.root], "mounts": [mount] } });
    world.client().effect("host.session.open", json!({ "target": target }))
}

fn refused_naming(world: &World, mount: Value, name: &str) -> Outcome {
    let receipt = open(world, mount.clone());
    expect(&mount.to_string(), &receipt, &["error / invalid_mount"])?;
    let message = receipt["error_message"].as_str().unwrap_or_default();
    check(message.contains(name), || format!("{name} is not named: {message}"))?;
    let sessions = world.client().effect("host.session.list", json!({}));
    let open =
        sessions["sessions"].as_array().is_some_and(|all| all.iter().any(|one| one["state"] == "open"));
    check(!open, || "a session was opened all the same".into())
}

fn names(world: &World, receipt: &Value) -> Result<Vec<String>, String> {
    expect("open", receipt, &["ready"])?;
    let session = receipt["session_id"].as_str().unwrap().to_owned();
    Tree { client: world.client(), session }.names()
}

pub fn links() -> Outcome {
    let world = World::new();
    world.write("m/file", "1\n");
    world.link("loop", "m/loop");
    world.link(".", "m/circle");
    for follow in [false, true] {
        let receipt = timed(Duration::from_secs(2), "the loop", || {
            open(&world, json!({ "host_path": "m", "follow_symlinks": follow }))
        })?;
        match follow {
            false => check(names(&world, &receipt)? == ["m/file"], || "a link was followed".into())?,
            true => expect("the loop", &receipt, &["ready", "error / invalid_mount"])?,
        }
        if let Some(session) = receipt["session_id"].as_str() {
            world.client().effect("host.session.signal", json!({ "session_id": session, "signal": "kill" }));
        }
    }
    let targets = [
        world.outside.to_str().unwrap().to_owned(),
        world.outside.join("secret").to_str().unwrap().to_owned(),
        "../../outside/secret".to_owned(),
        "../../outside".to_owned(),
        "/proc/self/root".to_owned(),
    ];
    for target in targets {
        let link = world.root.join("m/out");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for follow in [false, true] {
            let mount = json!({ "host_path": "m", "follow_symlinks": follow });
            timed(Duration::from_secs(2), &target, || refused_naming(&world, mount, "m/out"))??;
        }
        // The link itself is the mount.
        let receipt = open(&world, json!({ "host_path": "m/out", "follow_symlinks": true }));
        expect("the link itself", &receipt, &["error / invalid_mount"])?;
    }
    world.finish()
}

/// Links that stay inside: skipped, or followed to their targets.
pub fn links_inside() -> Outcome {
    let world = World::new();
    world.write("m/real/file", "1\n");
    world.write("beside/other", "2\n");
    world.link("real/file", "m/to-file");
    world.link("real", "m/to-folder");
    world.link("../beside", "m/to-beside");
    world.link(world.root.join("beside/other"), "m/absolute");
    // Links are followed only when the mount asks for it.
    let plain = names(&world, &open(&world, json!({ "host_path": "m" })))?;
    check(plain == ["m/real/file"], || format!("{plain:?}"))?;
    let followed = names(&world, &open(&world, json!({ "host_path": "m", "follow_symlinks": true })))?;
    let wanted = ["m/absolute", "m/real/file", "m/to-beside/other", "m/to-file", "m/to-folder/file"];
    check(followed == wanted, || format!("{followed:?}"))?;
    // Only the folder itself is allowed: what is beside it is outside.
    let target =
        json!({ "vfs": { "allowed_roots": [world.root.join("m")], "mounts": [{ "host_path": "." }] } });
    let receipt = world.client().effect("host.session.open", json!({ "target": target }));
    expect("beside", &receipt, &["error / invalid_mount"])?;
    // Excluded by a glob, it is ignored.
    let target = json!({ "vfs": { "allowed_roots": [world.root.join("m")],
        "mounts": [{ "host_path": ".", "exclude_glob": ["to-beside", "absolute"] }] } });
    let receipt = world.client().effect("host.session.open", json!({ "target": target }));
    check(names(&world, &receipt)? == ["real/file"], || "without the links".into())?;
    world.finish()
}

pub fn the_budget() -> Outcome {
    let world = World::new();
    for file in 0..10 {
        world.write(&format!("m/f{file}"), "x".repeat(1_024));
    }
    for _ in 0..20 {
        refused_naming(&world, json!({ "host_path": "m", "max_bytes": 5_000 }), "m/f4")?;
    }
    refused_naming(&world, json!({ "host_path": "m", "max_bytes": 0 }), "m/f0")?;
    check(
        names(&world, &open(&world, json!({ "host_path": "m", "max_bytes": 10_240 })))?.len() == 10,
        || "exactly the budget".into(),
    )?;
    world.finish()
}

pub fn special_files() -> Outcome {
    let world = World::new();
    for folder in ["fifo", "device", "sparse"] {
        std::fs::create_dir(world.root.join(folder)).unwrap();
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.root.join("fifo/it"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .map_err(|why| why.to_string())?;
    let sparse = std::fs::File::create(world.root.join("sparse/it")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    if is_root() {
        let (kind, mode) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::from_raw_mode(0o666));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            world.root.join("device/it"),
            kind,
            mode,
            rustix::fs::makedev(1, 5),
        )
        .map_err(|why| why.to_string())?;
    } else {
        let listener = std::os::unix::net::UnixListener::bind(world.root.join("device/it"));
        drop(listener.map_err(|why| why.to_string())?);
    }
    let before = world.rss();
    for folder in ["fifo", "device", "sparse"] {
        let named = format!("{folder}/it");
        timed(Duration::from_secs(2), folder, || {
            refused_naming(&world, json!({ "host_path": folder }), &named)
        })??;
        timed(Duration::from_secs(2), folder, || {
            refused_naming(&world, json!({ "host_path": named }), &named)
        })??;
    }
    let grown = world.rss_peak().saturating_sub(before);
    check(grown < 64 << 20, || format!("{} MB", grown >> 20))?;
    world.finish()
}

/// Only readable text files whose names a virtual tree can have; the refusal names the file.
pub fn what_cannot_be_mounted() -> Outcome {
    let world = World::new();
    world.write("bytes/ok", "fine");
    world.write("bytes/raw.bin", b"\xff\xfe\x00");
    refused_naming(&world, json!({ "host_path": "bytes" }), "bytes/raw.bin")?;
    let without = open(&world, json!({ "host_path": "bytes", "exclude_glob": ["*.bin"] }));
    let session = without["session_id"].as_str().ok_or("not opened")?.to_owned();
    world.client().effect("host.session.signal", json!({ "session_id": session, "signal": "kill" }));
    world.write("foreign/caf\u{e9}", "x");
    refused_naming(&world, json!({ "host_path": "foreign" }), "foreign/caf\u{e9}")?;
    world.write(&format!("deep/{}", vec!["d"; 17].join("/")), "x");
    refused_naming(&world, json!({ "host_path": "deep" }), "deep/d")?;
    refused_naming(&world, json!({ "host_path": "deep", "mount_path": "../up" }), "mount_path")?;
    refused_naming(&world, json!({ "host_path": "bytes", "include_glob": ["["] }), "include_glob")?;
    if !is_root() {
        let closed = world.write("closed/file", "x");
        std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
        refused_naming(&world, json!({ "host_path": "closed" }), "closed/file")?;
    }
    for unknown in [json!({ "host_path": "bytes", "mode": "rw" }), json!({}), json!({ "host_path": 1 })] {
        expect("fields", &open(&world, unknown), &["error / invalid_params"])?;
    }
    world.finish()
}

/// Our own state cannot be mounted, under any root.
pub fn our_own_state() -> Outcome {
    let world = World::new();
    let target = |mount: Value| json!({ "vfs": { "allowed_roots": [world.parent], "mounts": [mount] } });
    let home = json!({ "target": target(json!({ "host_path": "home" })) });
    expect("the home", &world.client().effect("host.session.open", home), &["error / invalid_mount"])?;
    let state = json!({ "target": target(json!({ "host_path": "home/state", "include_glob": ["*.db"] })) });
    expect("the state", &world.client().effect("host.session.open", state), &["error / invalid_mount"])?;
    // A mount above it skips it.
    let above = json!({ "target": target(json!({ "host_path": ".", "include_glob": ["home/*"], "mount_path": "all" })) });
    let receipt = world.client().effect("host.session.open", above);
    check(names(&world, &receipt)?.is_empty(), || "something of the home was mounted".into())?;
    world.finish()
}

/// The model sees where a mount is in its tree; where it is on the host only when the operator allows it.
pub fn what_is_shown() -> Outcome {
    let world = World::new();
    for file in 0..25 {
        world.write(&format!("docs/f{file:02}.md"), "x");
    }
    world.write("docs/a/b.md", "x");
    let shown = |extra: Value| -> Result<Value, String> {
        let mut target = json!({ "allowed_roots": [world.root], "mounts": [{ "host_path": world.root.join("docs"), "mount_path": "d" }] });
        for (key, value) in extra.as_object().cloned().unwrap_or_default() {
            target[key] = value;
        }
        let receipt = world.client().effect("host.session.open", json!({ "target": { "vfs": target } }));
        expect("open", &receipt, &["ready"])?;
        let listed = world.client().effect("host.session.list", json!({}));
        let own = listed["sessions"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["session_id"] == receipt["session_id"]).cloned());
        Ok(own.ok_or("not listed")?["mounts"][0].clone())
    };
    let mount = shown(json!({}))?;
    check(mount["mount_path"] == "d" && mount["shown"] == "d" && mount["more"] == 6, || format!("{mount}"))?;
    let entries = mount["entries"].as_array().cloned().unwrap_or_default();
    check(entries.len() == 20 && entries[0] == "a/" && entries[1] == "f00.md", || format!("{mount}"))?;
    let mount = shown(json!({ "show_host_paths": true }))?;
    check(mount["shown"].as_str() == world.root.join("docs").to_str(), || format!("{mount}"))?;
    world.finish()
}
