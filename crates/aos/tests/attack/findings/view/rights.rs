//! A daemon of root acts on files with the rights of the session's commands.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use aos_testkit::{Findings, World, check, expect};
use serde_json::json;

use crate::exec::room::Room;
use crate::{Case, Need, Outcome};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case { id: "S16", needs: &[Need::Root], run: effects_reach_what_commands_reach },
        Case { id: "OWN-S16-OPAQUE", needs: &[Need::Root], run: forged_attributes_delete_nothing },
        Case { id: "OWN-S16-UNDO", needs: &[Need::Root], run: undo_with_the_same_rights },
        Case { id: "OWN-S16-CLOSED", needs: &[], run: undo_in_closed_folders },
    ]
}

const USER: u32 = 12_345;

/// A root that belongs to `owner`, in which some files and folders are another user's.
fn room_of(owner: u32) -> Room {
    let world = World::new();
    let other = if owner == 0 { USER } else { 0 };
    let own = |path: &std::path::Path, uid: u32| chown(path, Some(uid), Some(uid)).unwrap();
    own(&world.root, owner);
    for (name, mode, owner) in [
        ("own", 0o644, owner),
        ("private", 0o600, other),
        ("closed/inner", 0o644, other),
        ("shared/kept", 0o644, other),
        ("folder/sub/kept", 0o644, other),
    ] {
        let path = world.write(name, format!("content of {name}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        own(&path, owner);
    }
    std::fs::set_permissions(world.root.join("closed"), std::fs::Permissions::from_mode(0o700)).unwrap();
    for folder in ["closed", "shared", "folder/sub"] {
        own(&world.root.join(folder), other);
    }
    own(&world.root.join("folder"), owner);
    Room::of(world, json!({ "policy": { "preset": "permissive" } }))
}

fn room() -> Room {
    room_of(USER)
}

/// What the owner of the workdir may not do, a file effect does not do either.
fn effects_reach_what_commands_reach() -> Outcome {
    [USER, 0].into_iter().try_for_each(effects_reach_what_commands_of)
}

fn effects_reach_what_commands_of(uid: u32) -> Outcome {
    let room = room_of(uid);
    let mut client = room.world.client();
    let mut findings = Findings::default();
    let content = json!({ "inline_text": { "text": "x" } });
    for (operation, params) in [
        ("read_file", json!({ "path": "private" })),
        ("read_file", json!({ "path": "closed/inner" })),
        ("list_dir", json!({ "path": "closed" })),
        ("write_file", json!({ "path": "shared/new", "content": content })),
        ("write_file", json!({ "path": "shared/kept", "content": content })),
        ("remove", json!({ "path": "shared/kept" })),
        ("remove", json!({ "path": "shared", "recursive": true })),
        ("make_dir", json!({ "path": "shared/new" })),
        ("move", json!({ "from": "shared/kept", "to": "stolen" })),
    ] {
        let receipt = client.fs(&room.session, operation, params.clone());
        let what = format!("{operation} {params}");
        findings.add(expect(&what, &receipt, &["error / permission_denied"]));
        let names_uid =
            receipt["error_message"].as_str().is_some_and(|text| text.contains(&format!("uid {uid}")));
        findings.add(check(names_uid, || format!("{what}: {receipt}")));
    }
    let found = client.fs(&room.session, "grep", json!({ "path": ".", "pattern": "content of" }));
    let text = found.to_string();
    findings.add(check(!text.contains("private:") && !text.contains("closed/inner"), || text));
    for kept in ["shared/kept", "closed/inner", "private"] {
        findings.add(check(room.world.root.join(kept).exists(), || format!("{kept} is gone")));
    }
    // Its own files are read and changed, and new ones belong to it.
    findings.add(expect("read", &client.fs(&room.session, "read_file", json!({ "path": "own" })), &["ok"]));
    for path in ["own", "made"] {
        let params = json!({ "path": path, "content": content });
        findings.add(expect(path, &client.fs(&room.session, "write_file", params), &["ok"]));
        let owner = room.world.root.join(path).metadata().map(|meta| meta.uid()).unwrap_or(u32::MAX);
        findings.add(check(owner == uid, || format!("{path} belongs to {owner}")));
    }
    findings.add(room.finish());
    findings.outcome()
}

/// An attribute that looks like overlayfs's own, set by the command: nothing is taken for removed, and it does not land.
fn forged_attributes_delete_nothing() -> Outcome {
    let room = room();
    let mut findings = Findings::default();
    for name in
        ["user.overlay.opaque", "user.overlay.whiteout", "user.overlay.redirect", "user.overlay.metacopy"]
    {
        let script = format!(
            "import os; os.setxattr('folder', '{name}', b'y'); os.setxattr('own', '{name}', b'y'); open('folder/new', 'w')"
        );
        let receipt = room.run(&["python3", "-c", &script]);
        findings.add(check(receipt["exit_code"] == 0, || format!("{name}: {receipt}")));
        let kept = room.world.root.join("folder/sub/kept").exists() && room.world.root.join("own").exists();
        findings.add(check(kept, || format!("{name}: files were removed: {receipt}")));
        for path in ["folder", "own"] {
            let mut value = [0_u8; 8];
            let read = rustix::fs::getxattr(room.world.root.join(path), name, value.as_mut_slice());
            findings.add(check(read.is_err(), || format!("{name} landed on {path}")));
        }
    }
    findings.add(room.finish());
    findings.outcome()
}

/// Changes are taken back with the same rights; the folder of pre-images is the user's, below root's own.
fn undo_with_the_same_rights() -> Outcome {
    let room = room();
    let mut client = room.world.client();
    let mut findings = Findings::default();
    let content = json!({ "inline_text": { "text": "changed" } });
    let mode = json!({ "path": "own", "content": content });
    findings.add(expect("write", &client.fs(&room.session, "write_file", mode), &["ok"]));
    findings.add(expect(
        "remove",
        &client.fs(&room.session, "remove", json!({ "path": "folder/sub", "recursive": true })),
        &["error / permission_denied"],
    ));
    let parent = room.world.home.join("state/preimages");
    let meta = parent.metadata().map_err(|why| why.to_string())?;
    findings.add(check(meta.uid() == 0 && meta.mode() & 0o777 == 0o700, || format!("{:o}", meta.mode())));
    let own = parent.join(&room.session).metadata().map_err(|why| why.to_string())?;
    findings.add(check(own.uid() == USER && own.mode() & 0o777 == 0o700, || {
        format!("{} {:o}", own.uid(), own.mode())
    }));
    findings.add(expect("undo", &client.fs(&room.session, "rollback", json!({})), &["ok"]));
    findings.add(check(room.world.read("own") == b"content of own\n", || "it is not back".into()));
    let owner = room.world.root.join("own").metadata().map(|meta| meta.uid()).unwrap_or(0);
    findings.add(check(owner == USER, || format!("it belongs to {owner}")));
    findings.add(expect("redo", &client.fs(&room.session, "redo", json!({})), &["ok"]));
    let receipt = room.sh("echo by command > own; rm made; echo x > new");
    findings.add(check(receipt["status"] == "ok", || format!("{receipt}")));
    findings.add(expect("undo", &client.fs(&room.session, "rollback", json!({})), &["ok"]));
    findings.add(room.finish());
    findings.outcome()
}

/// A command changes files in a folder that is closed before and afterwards, or closes it: both land, and undo takes
/// both back, although the daemon has no more rights than the command. A file effect does not open a folder.
fn undo_in_closed_folders() -> Outcome {
    let room = Room::of(World::new(), json!({ "policy": { "preset": "permissive" } }));
    let mut client = room.world.client();
    let mut findings = Findings::default();
    let folder = room.world.root.join("d");
    room.world.write("d/e/f", "old");
    for path in ["d/e", "d"] {
        std::fs::set_permissions(room.world.root.join(path), std::fs::Permissions::from_mode(0o500)).unwrap();
    }
    let closed = |what: &str| {
        let modes = [&folder, &folder.join("e")].map(|path| path.metadata().unwrap().mode() & 0o7777);
        check(modes == [0o500, 0o500], || format!("{what}: the modes are {modes:?}"))
    };
    for script in [
        "chmod u+w d/e; echo new > d/e/f; echo n > d/e/n; chmod u-w d/e",
        "chmod 700 d/e; rm d/e/f; chmod 500 d/e",
        "chmod 700 d d/e; mv d/e d/moved; echo n > d/moved/n; mkdir d/new; echo n > d/new/n; chmod 500 d/new d/moved d",
        "chmod -R 700 d; rm -r d; mkdir d; echo n > d/n; chmod 500 d",
    ] {
        findings.add(expect(script, &room.sh(script), &["ok"]));
        findings.add(expect(script, &client.fs(&room.session, "rollback", json!({})), &["ok"]));
        findings.add(closed(script));
        let text = std::fs::read(folder.join("e/f")).unwrap_or_default();
        let names = std::fs::read_dir(&folder).map(Iterator::count).unwrap_or_default();
        findings.add(check(text == b"old" && names == 1, || format!("{script}: {names} names, {text:?}")));
        findings.add(expect(script, &client.fs(&room.session, "redo", json!({})), &["ok"]));
        findings.add(expect(script, &client.fs(&room.session, "rollback", json!({})), &["ok"]));
        findings.add(closed(script));
    }
    let params = json!({ "path": "d/e/f", "content": { "inline_text": { "text": "x" } } });
    let receipt = client.fs(&room.session, "write_file", params);
    findings.add(expect("write", &receipt, &["error / permission_denied"]));
    findings.add(closed("a refused write"));
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::set_permissions(folder.join("e"), std::fs::Permissions::from_mode(0o700)).unwrap();
    findings.add(room.finish());
    findings.outcome()
}
