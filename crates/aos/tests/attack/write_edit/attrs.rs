//! Modes, attributes, owners and links of overwritten files.

use std::os::unix::fs::MetadataExt as _;

use aos_testkit::ways::CHANGES_TO_A_FILE;
use aos_testkit::{Agent, Start, World, check, expect, is_root, text, tree, verdict};
use serde_json::json;

use super::{DENIED, has_warning, mode_of, set_mode};
use crate::Outcome;

pub(super) fn modes_are_kept() -> Outcome {
    let mut outcomes = modes_under(Start::default())?;
    if is_root() {
        outcomes.extend(modes_under(Start { uid: Some(65_534), ..Start::default() })?);
        owners_are_kept()?;
    }
    // A read-only file is always treated the same, changed or refused.
    outcomes.dedup();
    check(outcomes.len() == 1, || format!("a read-only file is changed sometimes: {outcomes:?}"))
}

/// Returns the verdicts for the read-only files.
fn modes_under(start: Start) -> Result<Vec<String>, String> {
    let world = World::with(start);
    let mut agent = world.agent(json!({}));
    let mut outcomes = Vec::new();
    for way in ["edit_file", "write_file", "append", "patch_update", "patch_add"] {
        for mode in [0o755, 0o640, 0o444, 0o600, 0o664, 0o777, 0o400] {
            let path = world.write(&format!("{way}-{mode:o}"), "OLD\n");
            set_mode(&path, mode);
            let receipt = agent.way(way, path.file_name().unwrap().to_str().unwrap());
            let what = format!("{way} of a file of mode {mode:o}");
            let changed = std::fs::read(&path).unwrap() != b"OLD\n";
            if mode & 0o200 == 0 {
                expect(&what, &receipt, &["ok", "error / permission_denied"])?;
                outcomes.push(verdict(&receipt));
            } else {
                expect(&what, &receipt, &["ok"])?;
            }
            check(changed == (receipt["status"] == "ok"), || {
                format!("{what}: the file says otherwise: {receipt}")
            })?;
            check(mode_of(&path) == mode, || format!("{what}: it is {:o} now", mode_of(&path)))?;
        }
    }
    special_bits_go(&world, &mut agent)?;
    attributes_stay(&world, &mut agent)?;
    world.finish()?;
    Ok(outcomes)
}

/// Changed content must not run with another user's privileges.
fn special_bits_go(world: &World, agent: &mut Agent) -> Outcome {
    for (way, mode) in
        [("edit_file", 0o4755), ("write_file", 0o2755), ("patch_update", 0o6755), ("append", 0o4711)]
    {
        let path = world.write(&format!("special-{way}"), "OLD\n");
        set_mode(&path, mode);
        expect(way, &agent.way(way, &format!("special-{way}")), &["ok"])?;
        check(mode_of(&path) == mode & 0o777, || format!("{way}: {mode:o} became {:o}", mode_of(&path)))?;
    }
    let script = json!({ "path": "script", "content": text("#!\n"), "executable": true });
    expect("executable", &agent.fs("write_file", script), &["ok"])?;
    let mode = mode_of(&world.root.join("script"));
    check(mode & 0o111 != 0 && mode & 0o022 == 0, || format!("a new script has mode {mode:o}"))
}

fn attributes_stay(world: &World, agent: &mut Agent) -> Outcome {
    // An ACL that lets user 1234 read.
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 4, 1234), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        acl.extend(tag.to_le_bytes().into_iter().chain(rights.to_le_bytes()).chain(id.to_le_bytes()));
    }
    for way in ["edit_file", "write_file", "append", "patch_update"] {
        let path = world.write(&format!("dressed-{way}"), "OLD\n");
        let attributes: [(&str, &[u8]); 2] = [("user.note", b"kept"), ("system.posix_acl_access", &acl)];
        let set = attributes.map(|(name, value)| {
            rustix::fs::setxattr(&path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
        });
        let mode = mode_of(&path);
        expect(way, &agent.way(way, &format!("dressed-{way}")), &["ok"])?;
        for ((name, value), _) in attributes.iter().zip(set).filter(|(_, set)| *set) {
            let mut kept = vec![0; 256];
            let size = rustix::fs::getxattr(&path, *name, kept.as_mut_slice()).unwrap_or(0);
            check(kept[..size] == **value, || format!("{way}: {name} was not kept"))?;
        }
        check(mode_of(&path) == mode, || format!("{way}: {mode:o} became {:o}", mode_of(&path)))?;
    }
    Ok(())
}

/// The owner of a file of somebody else is kept, or a warning says that it could not be. A daemon of root has no more
/// rights on files than the commands of the session (S16).
fn owners_are_kept() -> Outcome {
    for uid in [None, Some(65_534)] {
        let world = World::with(Start { uid, ..Start::default() });
        let mut agent = world.agent(json!({}));
        for way in ["edit_file", "write_file", "append", "patch_update"] {
            let path = world.write(way, "OLD\n");
            std::os::unix::fs::chown(&path, Some(1234), Some(1234)).unwrap();
            set_mode(&path, 0o644);
            let receipt = agent.way(way, way);
            expect(way, &receipt, &["ok"])?;
            let meta = path.metadata().unwrap();
            let kept = (meta.uid(), meta.gid()) == (1234, 1234);
            check(kept || has_warning(&receipt), || {
                format!("{way}: the owner changed in silence: {receipt}")
            })?;
            check(meta.mode() & 0o7777 == 0o644, || format!("{way}: the mode is {:o}", meta.mode()))?;
        }
        world.finish()?;
    }
    Ok(())
}

pub(super) fn hard_links_break() -> Outcome {
    let world = World::new();
    let mut agent = world.agent(json!({}));
    for way in ["edit_file", "write_file", "append", "patch_update", "patch_add"] {
        let (a, b) = (world.write(&format!("{way}-a"), "OLD\n"), world.root.join(format!("{way}-b")));
        std::fs::hard_link(&a, &b).unwrap();
        let receipt = agent.way(way, &format!("{way}-a"));
        expect(way, &receipt, &["ok"])?;
        check(std::fs::read(&a).unwrap() != b"OLD\n", || format!("{way}: a has the old bytes"))?;
        check(std::fs::read(&b).unwrap() == b"OLD\n", || format!("{way}: b has the new bytes"))?;
        check(a.metadata().unwrap().ino() != b.metadata().unwrap().ino(), || {
            format!("{way}: still one file")
        })?;
        let warned = receipt["warnings"].to_string();
        check(warned.contains("link") && warned.contains(&format!("{way}-a")), || {
            format!("{way}: {receipt}")
        })?;
    }
    // The other name may be outside the roots: it keeps its content.
    std::fs::hard_link(world.outside.join("secret"), world.root.join("h")).unwrap();
    for way in ["write_file", "remove"] {
        expect(way, &agent.way(way, "h"), &["ok"])?;
    }
    // A single name: no warning.
    world.write("alone", "OLD\n");
    let receipt = agent.way("edit_file", "alone");
    check(!has_warning(&receipt), || format!("a warning for nothing: {receipt}"))?;
    world.finish()
}

pub(super) fn links_inside_are_written_through() -> Outcome {
    let world = World::new();
    std::fs::create_dir(world.root.join("sub")).unwrap();
    world.link("f", "l");
    world.link(world.root.join("f"), "absolute");
    world.link("sub/../f", "winding");
    world.link("../ws/f", "around");
    world.link("l", "twice");
    world.link("sub", "folder");
    std::os::unix::fs::symlink("../f", world.root.join("sub/up")).unwrap();
    world.write("f", "OLD\n");
    let mut agent = world.agent(json!({}));
    expect("write_file l", &agent.write("l", "NEW"), &["ok"])?;
    check(world.root.join("l").is_symlink() && world.read("f") == b"NEW", || "l was replaced".into())?;
    for path in ["l", "absolute", "winding", "around", "twice", "sub/up", "folder/up"] {
        for (way, after) in [
            ("write_file", "PWN"),
            ("append", "OLD\nPWN"),
            ("edit_file", "PWN\n"),
            ("patch_update", "PWN\n"),
            ("patch_add", "PWN\n"),
        ] {
            world.write("f", "OLD\n");
            let what = format!("{way} {path}");
            expect(&what, &agent.way(way, path), &["ok"])?;
            check(world.read("f") == after.as_bytes(), || format!("{what}: f holds {:?}", world.read("f")))?;
            check(world.root.join(path).is_symlink(), || format!("{what}: the link is gone"))?;
            check(!world.root.join("f").is_symlink(), || format!("{what}: f became a link"))?;
        }
    }
    expect("a new file in a linked folder", &agent.write("folder/new", "x"), &["ok"])?;
    check(world.read("sub/new") == b"x", || "it is not in the folder".into())?;
    links_go_alone(&world, &mut agent)?;
    let mut strict = world.agent(json!({ "capability": { "follow_symlinks": "deny" } }));
    for path in ["l", "absolute", "folder/new"] {
        for way in ["read_file", "write_file", "append", "edit_file", "patch_add"] {
            expect(way, &strict.way(way, path), &["forbidden / symlink_not_allowed"])?;
        }
    }
    world.finish()
}

/// Removing a link's name removes the link, never its target.
fn links_go_alone(world: &World, agent: &mut Agent) -> Outcome {
    world.write("f", "OLD\n");
    for (way, link) in [("remove", "winding"), ("patch_delete", "around"), ("move_from", "twice")] {
        expect(way, &agent.way(way, link), &["ok"])?;
        check(world.root.join(link).symlink_metadata().is_err(), || format!("{way}: {link} is still there"))?;
        check(world.read("f") == b"OLD\n", || format!("{way}: f was touched"))?;
    }
    check(world.root.join("moved").is_symlink(), || "a moved link is no link any more".into())?;
    expect("remove a linked folder", &agent.way("remove", "folder"), &["ok"])?;
    check(world.read("sub/new") == b"x", || "the folder behind the link went too".into())?;
    world.link("sub", "folder");
    Ok(())
}

pub(super) fn a_closed_folder() -> Outcome {
    let world = World::with(Start { uid: Some(65_534), ..Start::default() });
    let dir = world.root.join("dir");
    for name in ["dir/file", "open.txt", "donor"] {
        set_mode(&world.write(name, "OLD\n"), 0o644);
    }
    std::os::unix::fs::chown(&dir, Some(65_534), Some(65_534)).unwrap();
    set_mode(&dir, 0o555);
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    let unchanged = |what: &str| check(tree(&world.root) == before, || format!("{what} changed something"));
    expect("reading is free", &agent.way("read_file", "dir/file"), &["ok"])?;
    for way in CHANGES_TO_A_FILE {
        expect(way, &agent.way(way, "dir/file"), DENIED)?;
        unchanged(way)?;
    }
    for way in ["create_new", "create_parents", "patch_add", "patch_move_to", "move_to", "make_dir"] {
        for path in ["dir/new", "dir/new/er"] {
            if path == "dir/new/er" && ["create_new", "move_to"].contains(&way) {
                continue;
            }
            expect(&format!("{way} {path}"), &agent.way(way, path), DENIED)?;
            unchanged(way)?;
        }
    }
    for sections in [
        "*** Update File: open.txt\n@@\n-OLD\n+NEW\n*** Update File: dir/file\n@@\n-OLD\n+NEW\n",
        "*** Update File: dir/file\n@@\n-OLD\n+NEW\n*** Add File: fresh/er\n+x\n",
        "*** Delete File: open.txt\n*** Delete File: dir/file\n",
    ] {
        expect(sections, &agent.patch(sections), DENIED)?;
        unchanged(sections)?;
    }
    a_folder_nobody_may_enter(&world, &mut agent)?;
    world.finish()
}

fn a_folder_nobody_may_enter(world: &World, agent: &mut Agent) -> Outcome {
    let dir = world.root.join("dir");
    for (path, mode) in [(dir.join("file"), 0o000), (dir.clone(), 0o000)] {
        set_mode(&path, mode);
        for way in ["read_file", "edit_file", "append", "patch_update"] {
            expect(way, &agent.way(way, "dir/file"), DENIED)?;
        }
    }
    for way in ["stat", "exists", "write_file", "remove", "move_from", "create_parents"] {
        expect(way, &agent.way(way, "dir/file"), DENIED)?;
    }
    expect("list_dir", &agent.way("list_dir", "dir"), DENIED)
}
