//! Modes, attributes, ACLs and owners are restored with a file.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::Path;

use aos_testkit::{Fixture, Start, World, check, patch_params, text};
use serde_json::json;

use super::Stage;
use crate::Outcome;

/// Names and values of all extended attributes, the ACL included.
pub fn attributes(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = vec![0_u8; 4096];
    let size = rustix::fs::listxattr(path, names.as_mut_slice()).unwrap_or(0);
    let mut found: Vec<(String, Vec<u8>)> = names[..size]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0_u8; 4096];
            let size = rustix::fs::getxattr(path, name, value.as_mut_slice()).unwrap_or(0);
            (String::from_utf8_lossy(name).into_owned(), value[..size].to_vec())
        })
        .collect();
    found.sort();
    found
}

pub fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
}

/// An ACL that lets one other user read, beside the owner.
pub fn acl() -> Vec<u8> {
    let entry = |tag: u16, perm: u16, id: u32| {
        [tag.to_le_bytes().as_slice(), &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let nobody = u32::MAX;
    let entries = [
        entry(0x01, 6, nobody),
        entry(0x02, 4, 1234),
        entry(0x04, 4, nobody),
        entry(0x10, 4, nobody),
        entry(0x20, 0, nobody),
    ];
    [2_u32.to_le_bytes().to_vec(), entries.concat()].concat()
}

pub fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

pub fn modes_attributes_and_owners() -> Outcome {
    let mut stage = Stage::new();
    let root = stage.world().root.clone();
    for (n, mode) in [0o600, 0o644, 0o755, 0o444, 0o711, 0o4755, 0o2755].into_iter().enumerate() {
        let path = stage.world().write(&format!("f{n}"), format!("file {n}\n"));
        set(&path, "user.color", format!("color {n}").as_bytes());
        set(&path, "user.empty", b"");
        if n == 1 {
            set(&path, "system.posix_acl_access", &acl());
        }
        if n != 1 {
            chmod(&path, mode);
        }
    }
    let owners = |root: &Path| -> Vec<(u32, u32)> {
        (0..7)
            .map(|n| root.join(format!("f{n}")).metadata().map(|m| (m.uid(), m.gid())).unwrap_or_default())
            .collect()
    };
    let (before, owned) = (stage.tree(), owners(&root));
    for n in 0..7 {
        let content = text("new\n");
        stage.ok(
            "write",
            "write_file",
            json!({ "path": format!("f{n}"), "content": content, "executable": true }),
        )?;
    }
    stage.taken_back("write", &before)?;
    check(owners(&root) == owned, || format!("owners: {:?}", owners(&root)))?;
    for n in 0..7 {
        stage.ok("remove", "remove", json!({ "path": format!("f{n}") }))?;
    }
    stage.taken_back("remove", &before)?;
    check(owners(&root) == owned, || format!("owners: {:?}", owners(&root)))?;
    let deletes: String = (0..7).map(|n| format!("*** Delete File: f{n}\n")).collect();
    stage.ok("patch", "apply_patch", patch_params(&deletes))?;
    stage.taken_back("patch", &before)?;
    // A file without an ACL does not get its folder's default ACL.
    let folder = root.join("d");
    std::fs::create_dir(&folder).unwrap();
    stage.world().write("d/plain", "plain\n");
    set(&folder, "system.posix_acl_default", &acl());
    let before = stage.tree();
    stage.ok("plain", "remove", json!({ "path": "d/plain" }))?;
    stage.taken_back("plain", &before)?;
    stage.finish()
}

/// An ordinary user's files and folders that are closed to their own owner.
pub fn closed_to_their_owner() -> Outcome {
    let uid = 65_534;
    let mut stage =
        Stage { fixture: Fixture::of(World::with(Start { uid: Some(uid), ..Start::default() }), json!({})) };
    let root = stage.world().root.clone();
    for path in ["f", "d/unreadable", "d/sub/g", "d/sub/deep/h", "other"] {
        stage.world().write(path, format!("{path}\n"));
    }
    for folder in ["d", "d/sub", "d/sub/deep"] {
        std::os::unix::fs::chown(root.join(folder), Some(uid), Some(uid)).unwrap();
    }
    chmod(&root.join("f"), 0o200);
    chmod(&root.join("d/unreadable"), 0o000);
    chmod(&root.join("d/sub/deep"), 0o555);
    chmod(&root.join("d/sub"), 0o555);
    let before = stage.tree();
    stage.ok("tc1", "write_file", json!({ "path": "f", "content": text("new\n") }))?;
    stage.taken_back("tc1", &before)?;
    stage.ok("tc2", "remove", json!({ "path": "d", "recursive": true }))?;
    stage.ok("tc3", "write_file", json!({ "path": "other", "content": text("new\n") }))?;
    stage.must("restore", json!({ "scope_id": "tc3" }), "ok")?;
    let receipt = stage.taken_back("tc2", &before)?;
    stage.must("restore", json!({ "snapshot_id": receipt["redo_snapshot_id"] }), "ok")?;
    check(!root.join("d").exists(), || "d is still there".into())?;
    stage.must("rollback", json!({}), "ok")?;
    stage.is(&before, "after the rollback")?;
    // What cannot be read cannot be captured by an explicit snapshot; the request is refused.
    chmod(&root.join("f"), 0o000);
    stage.must("snapshot", json!({ "scope_id": "tc4", "paths": ["f"] }), "error / permission_denied")?;
    chmod(&root.join("f"), 0o200);
    stage.finish()
}

/// Makes a folder immutable: nothing can be created in it, not even by root.
pub fn freeze(folder: &Path, frozen: bool) {
    let how = if frozen { "+i" } else { "-i" };
    assert!(
        std::process::Command::new("chattr")
            .arg(how)
            .arg(folder)
            .status()
            .is_ok_and(|status| status.success())
    );
}
