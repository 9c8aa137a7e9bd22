//! Our own state below a root, under its own path and under others.

use std::path::{Path, PathBuf};

use aos_testkit::{Findings, Start, World, check, expect};
use serde_json::{Value, json};

use crate::exec::room::Room;
use crate::{Case, Need, Outcome, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![
        plain("S7", folders_above_our_state_cannot_be_renamed),
        plain("OWN-S7-MOVED", our_state_is_known_where_it_was_moved),
        Case { id: "OWN-S7-USER", needs: &[Need::Root], run: the_same_for_an_ordinary_user },
        Case { id: "OWN-S7-ALIAS", needs: &[Need::Root], run: our_state_by_a_second_mount },
    ]
}

/// A session on the folder that holds everything, with our home two folders down.
fn room(uid: Option<u32>) -> Room {
    let mut world = World::asleep(Start { uid, ..Start::default() });
    let deep = world.parent.join("a/b");
    std::fs::create_dir_all(&deep).unwrap();
    let home = deep.join("home");
    std::fs::rename(&world.home, &home).unwrap();
    world.home = home;
    for folder in [&world.parent.clone(), &world.parent.join("a"), &deep] {
        std::fs::write(folder.join("beside"), "beside\n").unwrap();
        std::os::unix::fs::chown(folder, uid, uid).unwrap();
    }
    world.start_daemon();
    let root = world.parent.clone();
    Room::of(world, json!({ "local": { "workdir": root }, "policy": { "preset": "permissive" } }))
}

/// No way to give a folder above our state another name.
fn folders_above_our_state_cannot_be_renamed() -> Outcome {
    renames(room(None))
}

fn the_same_for_an_ordinary_user() -> Outcome {
    renames(room(Some(12_345)))
}

fn renames(room: Room) -> Outcome {
    let journal = room.world.home.join("state/journal.db");
    let mut findings = Findings::default();
    for script in [
        "mv a x",
        "mv a/b a/x",
        "mv a/b x",
        "mv a/b/home a/b/x",
        "mkdir y && mv -T y a",
        "python3 -c 'import os; os.rename(\"a\", \"x\")'",
        "cp -al a x; ls x/b/home/state",
        "rm -rf a; ls a/b/home/state x/b/home/state",
        "rmdir a/b/home",
        "ln -s a l; mv l/b l/c",
        "cat a/b/home/state/journal.db | head -c 15 | grep SQLite",
    ] {
        let receipt = room.sh(script);
        let failed = receipt["exit_code"] != 0;
        findings.add(check(failed, || format!("{script}: {receipt}")));
        findings.add(check(journal.exists(), || format!("{script}: the journal is gone")));
        for name in ["x", "a/x"] {
            let read = room.world.client().fs(
                &room.session,
                "read_file",
                json!({ "path": format!("{name}/b/home/state/journal.db") }),
            );
            findings.add(check(read["status"] != "ok", || format!("{script}: {name}: {read}")));
        }
    }
    // What is beside can be used and changed as ever.
    for folder in ["a", "a/b"] {
        std::fs::write(room.world.parent.join(folder).join("beside"), "beside\n").unwrap();
    }
    findings.add(
        room.says("cat a/beside a/b/beside > got && echo new > a/b/new && mv a/b/new a/b/newer").map(drop),
    );
    findings.add(check(room.world.parent.join("a/b/newer").exists(), || "it did not land".into()));
    for (operation, params) in [
        ("move", json!({ "from": "a", "to": "x" })),
        ("move", json!({ "from": "a/b", "to": "x" })),
        ("remove", json!({ "path": "a", "recursive": true })),
    ] {
        let receipt = room.world.client().fs(&room.session, operation, params.clone());
        let refused = receipt["status"] != "ok" && journal.exists();
        findings.add(check(refused, || format!("{operation} {params}: {receipt}")));
    }
    findings.add(finish(room));
    findings.outcome()
}

/// The canary lies inside this root; only our own state is looked for.
fn finish(room: Room) -> Outcome {
    room.world.finish()
}

/// All file effects on a path below our state.
fn attempts(path: &str) -> Vec<(&'static str, Value)> {
    let content = json!({ "inline_text": { "text": "x" } });
    vec![
        ("read_file", json!({ "path": format!("{path}/journal.db") })),
        ("stat", json!({ "path": format!("{path}/journal.db") })),
        ("list_dir", json!({ "path": path })),
        ("write_file", json!({ "path": format!("{path}/journal.db"), "content": content })),
        (
            "write_file",
            json!({ "path": format!("{path}/new/deep"), "content": content, "create_parents": true }),
        ),
        ("remove", json!({ "path": format!("{path}/journal.db") })),
        ("move", json!({ "from": format!("{path}/journal.db"), "to": "stolen" })),
        ("grep", json!({ "path": path, "pattern": "SQLite" })),
        ("glob", json!({ "path": path, "pattern": "**/*" })),
    ]
}

fn refused_at(room: &Room, path: &str, findings: &mut Findings) {
    let mut client = room.world.client();
    for (operation, params) in attempts(path) {
        let receipt = client.fs(&room.session, operation, params);
        let what = format!("{operation} in {path}");
        findings.add(expect(&what, &receipt, &["forbidden / path_outside_roots"]));
    }
}

/// Somebody else renames a folder above our home while the daemon runs: what is there now is still ours.
fn our_state_is_known_where_it_was_moved() -> Outcome {
    let room = room(None);
    let mut findings = Findings::default();
    refused_at(&room, "a/b/home/state", &mut findings);
    // The client finds the daemon by the path of the home: one connection is kept for all of it.
    let mut client = room.world.client();
    let (from, to) = (room.world.parent.join("a"), room.world.parent.join("moved"));
    std::fs::rename(&from, &to).map_err(|why| why.to_string())?;
    for place in ["moved/b/home", "moved/b/home/state"] {
        for (operation, params) in attempts(place) {
            let receipt = client.fs(&room.session, operation, params);
            findings.add(expect(
                &format!("{operation} {place}"),
                &receipt,
                &["forbidden / path_outside_roots"],
            ));
        }
    }
    let listed = client.fs(&room.session, "list_dir", json!({ "path": "moved/b" }));
    findings.add(check(!listed.to_string().contains("home"), || format!("{listed}")));
    let found = client.fs(
        &room.session,
        "glob",
        json!({ "path": ".", "pattern": "**/journal.db*", "include_ignored": true }),
    );
    findings.add(check(!found.to_string().contains("moved"), || format!("{found}")));
    let params = json!({ "session_id": room.session, "argv": ["sh", "-c", "find . -name 'journal*'; head -c 15 moved/b/home/state/journal.db"] });
    let receipt = client.effect("host.exec", params);
    findings.add(check(!receipt.to_string().contains("journal.db"), || format!("{receipt}")));
    std::fs::rename(&to, &from).map_err(|why| why.to_string())?;
    findings.add(finish(room));
    findings.outcome()
}

/// A second mount of our state, and of a folder in it, inside a root whose session crosses mounts.
fn our_state_by_a_second_mount() -> Outcome {
    let mut world = World::new();
    let places: Vec<(PathBuf, PathBuf)> = [("", "all"), ("state", "state"), ("state/blobs", "blobs")]
        .iter()
        .map(|(from, at)| (world.home.join(from), world.root.join(at)))
        .collect();
    for (from, at) in &places {
        std::fs::create_dir_all(at).unwrap();
        world.mount_bind(Path::new(from), at)?;
    }
    let session = json!({
        "local": { "workdir": world.root }, "policy": { "preset": "permissive" },
        "capability": { "cross_mounts": true },
    });
    let room = Room::of(world, session);
    let mut findings = Findings::default();
    for path in ["all/state", "all", "state", "blobs"] {
        refused_at(&room, path, &mut findings);
    }
    let receipt = room.sh("find . -name 'journal*'; find . -name '*.sock'; cat all/state/journal.db state/journal.db | head -c 15");
    findings.add(check(room.stdout(&receipt).is_empty(), || format!("{receipt}")));
    findings.add(finish(room));
    findings.outcome()
}
