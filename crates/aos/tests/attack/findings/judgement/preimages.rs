//! Pre-images that are changed before they are finalized.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use aos_testkit::{Client, Start, Tracer, World, check, expect, wait_for};

use crate::Outcome;

/// One change of a pre-image behind the daemon's back.
type Change = fn(&Path, &World);

fn replace_by(path: &Path, make: impl FnOnce(&Path)) {
    let aside = path.with_extension("aside");
    std::fs::rename(path, aside).unwrap();
    make(path);
}

const CHANGES: &[(&str, Change)] = &[
    ("other bytes of the same length", |path, _| std::fs::write(path, "forged").unwrap()),
    ("longer", |path, _| std::fs::write(path, "before and more").unwrap()),
    ("emptied", |path, _| std::fs::write(path, "").unwrap()),
    ("another file", |path, _| replace_by(path, |path| std::fs::write(path, "forged").unwrap())),
    ("a link to the outside", |path, world| {
        let target = world.outside.join("secret");
        replace_by(path, |path| std::os::unix::fs::symlink(target, path).unwrap());
    }),
    ("a folder", |path, _| replace_by(path, |path| std::fs::create_dir(path).unwrap())),
    ("removed", |path, _| std::fs::rename(path, path.with_extension("aside")).unwrap()),
];

/// The manifests cannot be written until `finalize` allows it: the pre-images wait as they were taken.
fn waiting_world() -> Result<World, String> {
    let mut world = World::new();
    world.kill9();
    world.mount_tmpfs(&world.home.join("state/snapshots"), "ro,mode=0700,size=1m")?;
    world.start_daemon();
    Ok(world)
}

fn allow_finalizing(world: &World) -> Outcome {
    let folder = world.home.join("state/snapshots");
    let status = Command::new("mount").args(["-o", "remount,rw"]).arg(folder).status();
    check(status.is_ok_and(|status| status.success()), || "the manifests stay read-only".into())
}

/// The only pre-image of a session.
fn preimage(world: &World, session: &str) -> Result<PathBuf, String> {
    let folder = world.home.join("state/preimages").join(session);
    let mut names = std::fs::read_dir(&folder).map_err(|why| why.to_string())?.flatten();
    names.next().map(|entry| entry.path()).ok_or_else(|| "no pre-image".to_owned())
}

pub fn changed_before_it_is_finalized() -> Outcome {
    let text = json!({ "inline_text": { "text": "after" } });
    for (what, change) in CHANGES {
        for (op, params) in [
            ("write_file", json!({ "path": "file", "content": text })),
            ("remove", json!({ "path": "file" })),
            ("move", json!({ "from": "other", "to": "file", "overwrite": true })),
            ("snapshot", json!({ "scope_id": "s", "paths": ["file"] })),
        ] {
            let is_explicit = op == "snapshot";
            let world = waiting_world()?;
            world.write("file", "before");
            world.write("other", "other");
            let session = world.open(json!({}));
            let mut client = world.client();
            client.must(&session, op, params, &["ok"])?;
            if is_explicit {
                std::fs::write(world.root.join("file"), "after").unwrap();
            }
            change(&preimage(&world, &session)?, &world);
            allow_finalizing(&world)?;
            let before = aos_testkit::tree(&world.root);
            let (undo, params) = if is_explicit {
                ("restore", json!({ "scope_id": "s", "force": true }))
            } else {
                ("rollback", json!({ "force": true }))
            };
            let receipt = client.fs(&session, undo, params);
            expect(&format!("{what}, {op}"), &receipt, &["error / preimage_damaged"])?;
            check(aos_testkit::tree(&world.root) == before, || {
                format!("{what}, {op}: the tree was changed")
            })?;
        }
    }
    Ok(())
}

/// A pre-image that was copied, because the file had a second name or a writer, or is on another disk, is still good.
pub fn copies_are_good() -> Outcome {
    let text = json!({ "inline_text": { "text": "after" } });
    let mut world = waiting_world()?;
    std::fs::create_dir(world.root.join("disk")).unwrap();
    world.mount_tmpfs(&world.root.join("disk"), "size=1m,mode=0755")?;
    for path in ["linked", "held", "disk/file", "plain"] {
        world.write(path, "before");
    }
    std::fs::hard_link(world.root.join("linked"), world.root.join("second")).unwrap();
    let held = std::fs::OpenOptions::new().append(true).open(world.root.join("held")).unwrap();
    let session = world.open(json!({ "capability": { "cross_mounts": true } }));
    let mut client = world.client();
    for path in ["linked", "held", "disk/file", "plain"] {
        client.must(&session, "write_file", json!({ "path": path, "content": text }), &["ok"])?;
    }
    std::io::Write::write_all(&mut &held, b" more").map_err(|why| why.to_string())?;
    allow_finalizing(&world)?;
    client.must(&session, "rollback", json!({ "turns": 4 }), &["ok"])?;
    for path in ["linked", "held", "disk/file", "plain"] {
        check(world.read(path) == b"before", || format!("{path}: {:?}", world.read(path)))?;
    }
    Ok(())
}

/// What an ordinary user's files and folders deny to their owner stays denied, whenever the daemon dies while it reads
/// them among the pre-images.
pub fn closed_modes_through_a_kill() -> Outcome {
    let mut deaths = 0;
    for call in ["fchmod", "fchmodat", "unlinkat", "write", "renameat2"] {
        for when in 1..7 {
            if !dies_finalizing(call, when)? {
                break;
            }
            deaths += 1;
        }
    }
    check(deaths >= 8, || format!("only {deaths} deaths"))
}

/// The modes of everything below a folder.
fn modes_below(folder: &Path) -> BTreeMap<PathBuf, u32> {
    let mut modes = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let meta = entry.metadata().expect("nothing else changes the folder");
        modes.insert(entry.path(), meta.permissions().mode() & 0o7777);
        if meta.is_dir() {
            modes.extend(modes_below(&entry.path()));
        }
    }
    modes
}

/// False when finalizing makes fewer such calls.
fn dies_finalizing(call: &str, when: usize) -> Result<bool, String> {
    const UID: u32 = 65_534;
    let mut world = World::with(Start { uid: Some(UID), ..Start::default() });
    for path in ["d/open/a", "d/sub/deep/b", "d/sub/deep/c", "d/e", "d/f"] {
        world.write(path, path);
    }
    for folder in ["d", "d/open", "d/sub", "d/sub/deep"] {
        std::os::unix::fs::chown(world.root.join(folder), Some(UID), Some(UID)).unwrap();
    }
    let closed = [
        ("d/e", 0o200),
        ("d/f", 0o000),
        ("d/sub/deep/b", 0o011),
        ("d/sub/deep/c", 0o000),
        ("d/sub/deep", 0o555),
        ("d/sub", 0o555),
    ];
    for (path, mode) in closed {
        std::fs::set_permissions(world.root.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let before = modes_below(&world.root);
    let session = world.open(json!({}));
    let preimages = world.home.join("state/preimages").join(&session);
    let tracer = Tracer::tamper(world.daemon_pid(), call, &format!("signal=KILL:when={when}"))?;
    let receipt = world.client().fs(&session, "remove", json!({ "path": "d", "recursive": true }));
    let is_done = || std::fs::read_dir(&preimages).is_ok_and(|mut names| names.next().is_none());
    let is_dead = |world: &World| Client::connect(&world.home).is_err();
    wait_for("the end of finalizing", || is_dead(&world) || (receipt["status"] == "ok" && is_done()))?;
    let died = is_dead(&world);
    drop(tracer);
    world.kill9();
    world.start_daemon();
    let undone = world.client().fs(&session, "rollback", json!({}));
    expect(call, &undone, &["ok", "nothing_to_roll_back"])?;
    let found = modes_below(&world.root);
    check(found == before, || format!("{call} {when}: {undone}: {found:?} instead of {before:?}"))?;
    world.finish()?;
    Ok(died)
}
