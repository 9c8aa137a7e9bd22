//! Writing and editing: whole or not at all, nothing lost, nothing beside it touched, whatever fails underneath.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aos_model::request::content_hash;
use aos_testkit::time::PATIENCE;
use aos_testkit::{
    Agent, Start, Tracer, World, check, expect, full_figure, is_root, patch_of, text, timed, tree, verdict,
};
use base64::Engine as _;
use serde_json::{Value, json};

use crate::{Case, Need, Outcome};

pub fn cases() -> Vec<Case> {
    let case = |id, needs, run| Case { id, needs, run };
    vec![
        case("WRITE-01", &[], readers_see_one_version),
        case("WRITE-02", &[], modes_are_kept),
        case("WRITE-06", &[], hard_links_break),
        case("WRITE-07", &[], links_inside_are_written_through),
        case("WRITE-08", &[Need::Root], a_closed_folder),
        case("WRITE-09", &[Need::Root], no_space),
        case("WRITE-10", &[Need::Root], no_inodes),
        case("WRITE-12", &[Need::Strace], fsync_fails),
        case("WRITE-13", &[Need::Strace], writing_fails),
        case("WRITE-15", &[], one_creator_wins),
        case("WRITE-16", &[], creating_at_a_dangling_link),
        case("WRITE-17", &[], no_lost_updates),
        case("WRITE-19", &[], the_limit_is_a_limit),
        case("WRITE-22", &[], line_ends_stay),
        case("WRITE-23", &[], an_empty_old_string),
        case("WRITE-24", &[], two_matches),
        case("WRITE-25", &[], folded_punctuation),
        case("WRITE-27", &[], the_new_text_is_not_searched),
        case("WRITE-28", &[], replacements_are_limited),
        case("WRITE-31", &[], receipts_are_truthful),
    ]
}

const LIMIT: &[&str] = &["forbidden / limit_exceeded"];
const NO_SPACE: &[&str] = &["error / no_space"];
const DENIED: &[&str] = &["error / permission_denied"];

fn mode_of(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn has_warning(receipt: &Value) -> bool {
    receipt["warnings"].as_array().is_some_and(|warnings| !warnings.is_empty())
}

fn readers_see_one_version() -> Outcome {
    const SIZE: usize = 1_000_000;
    let world = World::new();
    let versions = ["A", "B"].map(|letter| letter.repeat(SIZE));
    let names = [content_hash(versions[0].as_bytes()), content_hash(versions[1].as_bytes())];
    let path = world.write("f", &versions[0]);
    let session = world.open(json!({}));
    let inline = world.open(json!({ "capability": { "max_inline_bytes": 2 * SIZE } }));
    let (writes, reads) = (full_figure(10_000, 60), full_figure(100_000, 120));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut writer = world.quiet_agent(&session);
        let versions = &versions;
        let writing = scope.spawn(move || {
            (0..writes).try_for_each(|number| {
                expect("write_file", &writer.write("f", &versions[number % 2]), &["ok"])
            })
        });
        // Who reads without us sees whole files too.
        let beside = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let bytes = std::fs::read(&path).unwrap();
                let whole = versions.iter().any(|version| version.as_bytes() == bytes);
                check(whole, || format!("a neighbour read {} bytes of a mixture", bytes.len()))?;
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        let (mut by_blob, mut by_text) = (world.quiet_agent(&session), world.quiet_agent(&inline));
        let reading = (0..reads).try_for_each(|number| {
            // The journal keeps what goes out inline, so that is not done a hundred thousand times.
            if number % 16 == 0 && number < 2_000 {
                let read = by_text.way("read_file", "f");
                let content = read["content"]["inline_text"]["text"].as_str().unwrap_or_default();
                return check(versions.iter().any(|version| version == content), || {
                    format!("{} bytes of a mixture were read inline", content.len())
                });
            }
            let read = by_blob.way("read_file", "f");
            let blob = &read["content"]["blob"];
            check(names.iter().any(|name| blob["blob_ref"] == *name) && blob["size_bytes"] == SIZE, || {
                format!("a mixture was read: {read}")
            })
        });
        stop.store(true, Ordering::Relaxed);
        beside.join().expect("the neighbour ends").and(writing.join().expect("the writer ends")).and(reading)
    })?;
    world.finish()
}

fn modes_are_kept() -> Outcome {
    let mut outcomes = modes_under(Start::default())?;
    if is_root() {
        outcomes.extend(modes_under(Start { uid: Some(65_534), ..Start::default() })?);
        owners_are_kept()?;
    }
    // Whichever it is for a file that is read-only, it is so always.
    outcomes.dedup();
    check(outcomes.len() == 1, || format!("a read-only file is changed sometimes: {outcomes:?}"))
}

/// Returns what became of the read-only files.
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

/// Changed content must not run with somebody else's rights.
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
    // An access list that gives user 1234 the right to read.
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

/// Root gives a file back to its owner; anybody else says that it cannot.
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
            check(kept || (uid.is_some() && has_warning(&receipt)), || {
                format!("{way}: the owner changed in silence: {receipt}")
            })?;
            check(meta.mode() & 0o7777 == 0o644, || format!("{way}: the mode is {:o}", meta.mode()))?;
        }
        world.finish()?;
    }
    Ok(())
}

fn hard_links_break() -> Outcome {
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
    // The other name may lie outside the roots: it keeps what it had.
    std::fs::hard_link(world.outside.join("secret"), world.root.join("h")).unwrap();
    for way in ["write_file", "remove"] {
        expect(way, &agent.way(way, "h"), &["ok"])?;
    }
    // One name only: nothing to say.
    world.write("alone", "OLD\n");
    let receipt = agent.way("edit_file", "alone");
    check(!has_warning(&receipt), || format!("a warning for nothing: {receipt}"))?;
    world.finish()
}

fn links_inside_are_written_through() -> Outcome {
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

/// What takes a name away takes the link, never what it leads to.
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

fn a_closed_folder() -> Outcome {
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
    for way in [
        "edit_file",
        "write_file",
        "append",
        "patch_add",
        "patch_update",
        "patch_delete",
        "remove",
        "move_from",
    ] {
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

fn no_space() -> Outcome {
    let mut world = World::asleep(Start::default());
    let root = world.root.clone();
    world.mount_tmpfs(&root, "size=1M")?;
    world.start_daemon();
    world.write("pad", vec![b'p'; 900_000]);
    world.write("f", "OLD");
    let before = tree(&root);
    let mut agent = world.agent(json!({}));
    let large = "x".repeat(2_000_000);
    let refused = agent.write("f", &large);
    expect("2 MB into 1 MB", &refused, NO_SPACE)?;
    let unchanged = |what: &str| check(tree(&root) == before, || format!("{what} changed something"));
    unchanged("an overwrite")?;
    for (what, op, params) in too_large_in_all_ways(&large) {
        expect(what, &agent.fs(op, params), NO_SPACE)?;
        unchanged(what)?;
    }
    expect("a small write", &agent.write("f", "NEW"), &["ok"])?;
    check(world.read("f") == b"NEW", || "the small write is not there".into())?;
    expect("a small file", &agent.write("g", "small"), &["ok"])?;
    expect("a small edit", &agent.edit("f", "NEW", "NEWER"), &["ok"])?;
    room_that_was_needed(&world, &mut agent)?;
    world.finish()?;
    no_space_for_the_pre_image()
}

fn too_large_in_all_ways(large: &str) -> Vec<(&'static str, &'static str, Value)> {
    let add = |path: &str| format!("*** Add File: {path}\n+{large}\n");
    let patch = |sections: String| json!({ "patch": text(patch_of(&sections)) });
    let small = "*** Update File: f\n@@\n-OLD\n+NEW\n";
    vec![
        ("append", "write_file", json!({ "path": "f", "content": text(large), "mode": "append" })),
        ("create_new", "write_file", json!({ "path": "new", "content": text(large), "mode": "create_new" })),
        (
            "create_parents",
            "write_file",
            json!({ "path": "a/b/c", "content": text(large), "create_parents": true }),
        ),
        ("edit_file", "edit_file", json!({ "path": "f", "old_string": "OLD", "new_string": large })),
        ("patch add", "apply_patch", patch(add("new"))),
        ("patch, the large one last", "apply_patch", patch(format!("{small}{}", add("deep/er")))),
        ("patch, the large one first", "apply_patch", patch(format!("{}{small}", add("deep/er")))),
        ("patch with a deletion", "apply_patch", patch(format!("*** Delete File: pad\n{}", add("new")))),
    ]
}

/// What a first step set free must still be free when the second fails and the first is taken back.
fn room_that_was_needed(world: &World, agent: &mut Agent) -> Outcome {
    let pad = world.read("pad");
    let before = tree(&world.root);
    let (head, rest) = ("p".repeat(900_000), "y".repeat(1_100_000));
    let patch = format!("*** Update File: pad\n@@\n-{head}\n+small\n*** Add File: new\n+{rest}\n");
    expect("free, then fill", &agent.patch(&patch), NO_SPACE)?;
    check(world.read("pad") == pad && tree(&world.root) == before, || "pad did not come back".into())
}

/// No mutation without a stored pre-image: where the home is full, nothing moves.
fn no_space_for_the_pre_image() -> Outcome {
    let mut world = World::asleep(Start::default());
    let home = world.home.clone();
    world.mount_tmpfs(&home, "size=6M,mode=700")?;
    world.start_daemon();
    // Written by many names, so that the file is copied into the home and not moved.
    let old = vec![b'o'; 8 << 20];
    world.write("f", &old);
    world.write("small", "OLD\n");
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    for way in ["write_file", "patch_add", "remove", "patch_delete"] {
        expect(way, &agent.way(way, "f"), NO_SPACE)?;
        check(tree(&world.root) == before, || format!("{way} changed something"))?;
    }
    let both = "*** Update File: small\n@@\n-OLD\n+NEW\n*** Delete File: f\n";
    expect("a patch of both", &agent.patch(both), NO_SPACE)?;
    check(tree(&world.root) == before, || "the patch changed something".into())?;
    expect("a small one", &agent.edit("small", "OLD", "NEW"), &["ok"])?;
    world.finish()
}

fn no_inodes() -> Outcome {
    let mut world = World::asleep(Start::default());
    let root = world.root.clone();
    world.mount_tmpfs(&root, "size=1M,nr_inodes=32")?;
    world.start_daemon();
    world.write("f", "OLD\n");
    world.write("donor", "OLD\n");
    let filled = (0..100).find(|number| std::fs::write(root.join(format!("fill{number}")), "").is_err());
    let filled = filled.ok_or("the file system has no end of inodes")?;
    let before = tree(&root);
    let mut agent = world.agent(json!({}));
    for (way, path) in [
        ("create_new", "new"),
        ("write_file", "new"),
        ("create_parents", "new/er"),
        ("patch_add", "new"),
        ("make_dir", "new"),
        ("edit_file", "f"),
        ("write_file", "f"),
        ("append", "f"),
        ("patch_update", "f"),
    ] {
        let what = format!("{way} {path}");
        expect(&what, &agent.way(way, path), NO_SPACE)?;
        check(tree(&root) == before, || format!("{what} changed something"))?;
    }
    let both = "*** Delete File: donor\n*** Update File: f\n@@\n-OLD\n+NEW\n*** Add File: n1\n+x\n*** Add File: n2\n+x\n";
    expect("a patch that needs two", &agent.patch(both), NO_SPACE)?;
    check(tree(&root) == before, || "the patch changed something".into())?;
    // A move needs none, and one that is gone makes room.
    expect("move", &agent.way("move_from", "f"), &["ok"])?;
    expect("remove", &agent.way("remove", &format!("fill{}", filled - 1)), &["ok"])?;
    expect("one more", &agent.way("edit_file", "moved"), &["ok"])?;
    world.finish()
}

/// No answer within this is a daemon that stopped.
fn be_patient(agent: &Agent) {
    agent.client.give_up_after(PATIENCE).unwrap();
}

const EVERY_FSYNC: &str = "inject=fsync,fdatasync:error=EIO";

fn fsync_fails() -> Outcome {
    for way in ["write_file", "edit_file", "patch_update", "patch_delete", "remove", "move_from"] {
        an_fsync_fails(way, "f", EVERY_FSYNC)?;
    }
    for way in ["create_new", "create_parents", "patch_add", "make_dir"] {
        an_fsync_fails(way, "made/new", EVERY_FSYNC)?;
    }
    // The first ones of a thread work, those after fail: at each place of the way.
    for first in 1..=8 {
        an_fsync_fails("write_file", "f", &format!("{EVERY_FSYNC}:when={first}+"))?;
    }
    from_the_start()
}

fn an_fsync_fails(way: &str, path: &str, inject: &str) -> Outcome {
    let power = Start { power: true, ..Start::default() };
    let mut world = World::with(power.clone());
    world.write("f", "OLD\n");
    std::fs::create_dir(world.root.join("made")).unwrap();
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    be_patient(&agent);
    let injection = Tracer::inject(world.daemon_pid(), inject)?;
    let receipt = agent.way(way, path);
    let what = format!("{way} with {inject}");
    if inject == EVERY_FSYNC {
        check(receipt.is_null() || verdict(&receipt) == "error / io_error", || format!("{what}: {receipt}"))?;
    }
    drop(injection);
    world.kill9();
    world.restart(power);
    let as_before = tree(&world.root) == before;
    let recorded = journaled(&world)?;
    // Who stopped before answering may have done it or not; then the record is what counts.
    let done =
        if receipt.is_null() && inject != EVERY_FSYNC { recorded == "ok" } else { receipt["status"] == "ok" };
    check(as_before != done, || format!("{what}: {receipt}, but afterwards {:?}", tree(&world.root)))?;
    check((recorded == "ok") == done, || format!("{what}: {receipt}, but the journal says {recorded}"))?;
    world.finish()
}

/// What the journal says of the last file effect.
fn journaled(world: &World) -> Result<String, String> {
    let (code, log, err) = world.aos(&["log", "--json"]);
    check(code == 0, || format!("aos log: {code} {err}"))?;
    let mut entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_files = |entry: &Value| entry["kind"].as_str().is_some_and(|kind| kind.starts_with("host.fs."));
    let last = entries.rfind(of_files);
    Ok(last.map_or("nothing".into(), |entry| verdict(&entry["receipt"])))
}

/// A daemon that cannot sync does not start, or at least never says that something is done.
fn from_the_start() -> Outcome {
    let wrapper = ["strace", "-f", "-o", "/dev/null", "-e", EVERY_FSYNC].map(str::to_owned).to_vec();
    let power = Start { power: true, ..Start::default() };
    let mut world = World::asleep(Start { wrapper, ..power.clone() });
    world.write("f", "OLD\n");
    if world.try_start_daemon().is_ok() {
        let receipt = world.open_receipt(json!({}));
        if let Some(session) = receipt["session_id"].as_str() {
            let mut agent = Agent { session: session.to_owned(), client: world.client() };
            be_patient(&agent);
            let receipt = agent.way("write_file", "f");
            check(receipt["status"] != "ok", || format!("ok without an fsync: {receipt}"))?;
        }
        world.kill9();
    }
    world.restart(power);
    check(world.read("f") == b"OLD\n", || "f was changed".into())?;
    world.finish()
}

fn writing_fails() -> Outcome {
    // A new home needs more writes than these, so most of these daemons do not even start.
    for number in 1..=20 {
        a_write_fails(number, true)?;
    }
    let seen = (1..=20).map(|number| a_write_fails(number, false)).collect::<Result<Vec<_>, _>>()?;
    check(seen.iter().any(|said| said == "error / no_space"), || format!("never no_space: {seen:?}"))?;
    check(seen.iter().any(|said| said == "ok"), || format!("never ok: {seen:?}"))
}

/// The `number`th write of each thread fails, from the daemon's start or from when it has a session. Returns what it
/// said of ours.
fn a_write_fails(number: usize, from_the_start: bool) -> Result<String, String> {
    let inject = format!("inject=write,pwrite64,writev:error=ENOSPC:when={number}");
    let wrapper = ["strace", "-f", "-o", "/dev/null", "-e", &inject].map(str::to_owned).to_vec();
    let mut world = World::asleep(Start::default());
    world.write("f", "OLD\n");
    let new = "n".repeat(5_000_000);
    let mut said = "no daemon".to_owned();
    if !from_the_start {
        world.start_daemon();
        let session = world.open(json!({}));
        let _injection = Tracer::inject(world.daemon_pid(), &inject)?;
        said = write_while_it_fails(&world, &session, &new);
    } else if world.try_restart(Start { wrapper, ..Start::default() }).is_ok() {
        let mut client = world.client();
        client.stream().set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let target = json!({ "target": { "local": { "workdir": world.root } } });
        let opened = client.effect("host.session.open", target);
        let session = opened["session_id"].as_str().unwrap_or_default();
        said =
            if session.is_empty() { verdict(&opened) } else { write_while_it_fails(&world, session, &new) };
    }
    let what = format!("write {number}{}", if from_the_start { " from the start" } else { "" });
    whole_or_not(&world, &format!("{what}: {said}"), &said, &new)?;
    world.restart(Start::default());
    whole_or_not(&world, &format!("{what}: {said}, after a restart"), &said, &new)?;
    world.finish()?;
    Ok(said)
}

fn whole_or_not(world: &World, what: &str, said: &str, new: &str) -> Outcome {
    let now = world.read("f");
    let (old, whole) = (now == b"OLD\n", now == new.as_bytes());
    let truthful = match said {
        "ok" => whole,
        // A write to our socket failed: nobody knows, but there is no part of it.
        "no answer" => old || whole,
        _ => old,
    };
    check(truthful, || format!("{what}: f has {} bytes", now.len()))?;
    check(tree(&world.root).len() == 1, || format!("{what}: left {:?}", tree(&world.root).keys()))
}

fn write_while_it_fails(world: &World, session: &str, new: &str) -> String {
    let mut agent = Agent { session: session.to_owned(), client: world.client() };
    agent.client.stream().set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let receipt = agent.write("f", new);
    if receipt.is_null() { "no answer".to_owned() } else { verdict(&receipt) }
}

/// Runs a request a thread, all at once, and returns the receipts in their order.
fn at_once(agents: Vec<Agent>, request: impl Fn(usize, &mut Agent) -> Value + Sync) -> Vec<Value> {
    let start = std::sync::Barrier::new(agents.len());
    std::thread::scope(|scope| {
        let running: Vec<_> = agents
            .into_iter()
            .enumerate()
            .map(|(number, mut agent)| {
                let (start, request) = (&start, &request);
                scope.spawn(move || {
                    start.wait();
                    request(number, &mut agent)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("a request ends")).collect()
    })
}

/// Of many that want the same, one gets it and the others are told.
fn one_winner(what: &str, receipts: &[Value]) -> Result<usize, String> {
    let winners: Vec<usize> =
        (0..receipts.len()).filter(|number| receipts[*number]["status"] == "ok").collect();
    check(winners.len() == 1, || format!("{what}: {} of {} won", winners.len(), receipts.len()))?;
    for receipt in receipts.iter().filter(|receipt| receipt["status"] != "ok") {
        expect(what, receipt, &["conflict / file_exists"])?;
    }
    Ok(winners[0])
}

fn one_creator_wins() -> Outcome {
    let world = World::new();
    let one = world.open(json!({}));
    let sessions: Vec<String> = (0..8).map(|_| world.open(json!({}))).collect();
    for (name, sessions) in [("x", std::slice::from_ref(&one)), ("y", &sessions), ("deep/z", &sessions)] {
        let agents =
            || (0..100).map(|number| world.quiet_agent(&sessions[number % sessions.len()])).collect();
        if name.starts_with("deep") {
            std::fs::create_dir(world.root.join("deep")).unwrap();
        }
        let receipts = at_once(agents(), |number, agent| {
            // `create` is an alias.
            let mode = ["create_new", "create"][number % 2];
            let content = text(format!("by {number}\n"));
            agent.fs("write_file", json!({ "path": name, "content": content, "mode": mode }))
        });
        let winner = one_winner(name, &receipts)?;
        check(receipts[winner]["created"] == true, || format!("{name}: {}", receipts[winner]))?;
        check(world.read(name) == format!("by {winner}\n").as_bytes(), || {
            format!("{name} is not the winner's")
        })?;
        let folders =
            at_once(agents(), |_, agent| agent.fs("make_dir", json!({ "path": format!("{name}-dir") })));
        one_winner("make_dir", &folders)?;
        one_mover_wins(&world, agents(), name)?;
    }
    world.finish()
}

fn one_mover_wins(world: &World, agents: Vec<Agent>, name: &str) -> Outcome {
    let source = |number: usize| format!("{name}-from-{number}");
    for number in 0..100 {
        world.write(&source(number), format!("{number}"));
    }
    let to = format!("{name}-to");
    let receipts =
        at_once(agents, |number, agent| agent.fs("move", json!({ "from": source(number), "to": to })));
    let winner = one_winner("move", &receipts)?;
    check(world.read(&to) == winner.to_string().as_bytes(), || "the target is not the winner's".into())?;
    let left = (0..100).filter(|number| world.root.join(source(*number)).exists()).count();
    check(left == 99, || format!("{left} of 99 sources are left"))
}

fn creating_at_a_dangling_link() -> Outcome {
    let world = World::new();
    world.link("nowhere", "dl");
    world.link("missing/er", "deep");
    world.link("dl", "twice");
    world.write("there", "OLD\n");
    world.link("there", "live");
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    let exists: &[&str] = &["conflict / file_exists"];
    for path in ["live", "dl", "twice", "deep"] {
        for mode in ["create_new", "create"] {
            let params = json!({ "path": path, "content": text("x"), "mode": mode });
            expect(&format!("{mode} {path}"), &agent.fs("write_file", params), exists)?;
        }
        let params =
            json!({ "path": path, "content": text("x"), "mode": "create_new", "create_parents": true });
        expect(&format!("create_parents {path}"), &agent.fs("write_file", params), exists)?;
        expect(path, &agent.fs("make_dir", json!({ "path": path })), exists)?;
        let params = json!({ "from": "there", "to": path });
        expect(path, &agent.fs("move", params), exists)?;
        check(tree(&world.root) == before, || format!("{path}: something was changed"))?;
    }
    world.finish()
}

/// Sends all requests before it reads an answer, and returns the receipts by their place.
fn pipelined(agent: &mut Agent, requests: &[Value]) -> Result<Vec<Value>, String> {
    for (id, request) in requests.iter().enumerate() {
        let mut params = request.clone();
        params["params"]["session_id"] = json!(agent.session);
        agent.client.send_effect(id, &params)?;
    }
    let mut receipts = vec![Value::Null; requests.len()];
    for _ in requests {
        let line = agent.client.line().ok_or("the daemon went away")?;
        let answer: Value = serde_json::from_str(&line).map_err(|why| why.to_string())?;
        let id = answer["id"].as_u64().ok_or("an answer without id")? as usize;
        receipts[id] = answer["result"].clone();
    }
    Ok(receipts)
}

fn no_lost_updates() -> Outcome {
    let world = World::new();
    let one = world.open(json!({}));
    let crowd: Vec<Agent> = (0..10).map(|_| world.quiet_agent(&one)).collect();
    edits_of_a_thousand_lines(&world, "one", crowd, &["ok"])?;
    let crowd: Vec<Agent> = (0..8).map(|_| world.quiet_agent(&world.open(json!({})))).collect();
    edits_of_a_thousand_lines(&world, "eight", crowd, &["ok", "conflict"])?;
    let crowd: Vec<Agent> = (0..8).map(|_| world.quiet_agent(&world.open(json!({})))).collect();
    appends_and_patches(&world, crowd)?;
    world.finish()
}

/// Each line is edited once. What was said to be done is there, and what was not is as it was.
fn edits_of_a_thousand_lines(world: &World, name: &str, crowd: Vec<Agent>, allowed: &[&str]) -> Outcome {
    const LINES: usize = 1_000;
    world.write(name, (0..LINES).map(|line| format!("<{line}> old\n")).collect::<String>());
    let share = LINES / crowd.len();
    let edit = |line: usize| {
        let params = json!({ "path": name, "old_string": format!("<{line}> old"), "new_string": format!("<{line}> new") });
        json!({ "kind": "host.fs.edit_file", "params": params })
    };
    let receipts = at_once(crowd, |number, agent| {
        let requests: Vec<Value> = (number * share..(number + 1) * share).map(edit).collect();
        pipelined(agent, &requests).map_or_else(Value::String, Value::Array)
    });
    let content = String::from_utf8(world.read(name)).map_err(|why| why.to_string())?;
    let lines: Vec<&str> = content.lines().collect();
    check(lines.len() == LINES, || format!("{} lines are left", lines.len()))?;
    let mut done = 0;
    for (line, receipt) in
        receipts.iter().flat_map(|share| share.as_array().cloned().unwrap_or_default()).enumerate()
    {
        expect(name, &receipt, allowed)?;
        let ok = receipt["status"] == "ok";
        done += usize::from(ok);
        let wanted = format!("<{line}> {}", if ok { "new" } else { "old" });
        check(lines[line] == wanted, || format!("line {line} is {:?} after {receipt}", lines[line]))?;
    }
    check(done > 0, || format!("no edit succeeded: {receipts:?}"))
}

/// Other ways that build on what is there: each acknowledged line is in the file once.
fn appends_and_patches(world: &World, crowd: Vec<Agent>) -> Outcome {
    world.write("log", "begin\n");
    let request = |number: usize, turn: usize| {
        let line = format!("<{number}-{turn}>");
        if turn.is_multiple_of(2) {
            let params = json!({ "path": "log", "content": text(format!("{line}\n")), "mode": "append" });
            return (line, json!({ "kind": "host.fs.write_file", "params": params }));
        }
        let patch = patch_of(&format!("*** Update File: log\n@@\n begin\n+{line}\n"));
        (line, json!({ "kind": "host.fs.apply_patch", "params": { "patch": text(patch) } }))
    };
    let receipts = at_once(crowd, |number, agent| {
        let requests: Vec<Value> = (0..40).map(|turn| request(number, turn).1).collect();
        pipelined(agent, &requests).map_or_else(Value::String, Value::Array)
    });
    let content = String::from_utf8(world.read("log")).map_err(|why| why.to_string())?;
    let mut done = 0;
    for (number, share) in receipts.iter().enumerate() {
        for (turn, receipt) in share.as_array().ok_or_else(|| share.to_string())?.iter().enumerate() {
            expect("append or patch", receipt, &["ok", "conflict", "reject"])?;
            let ok = receipt["status"] == "ok";
            done += usize::from(ok);
            let found = content.lines().filter(|line| *line == request(number, turn).0).count();
            check(found == usize::from(ok), || format!("{found} times in the file: {receipt}"))?;
        }
    }
    check(done > 0 && content.lines().count() == done + 1, || format!("{done} done: {content}"))
}

fn the_limit_is_a_limit() -> Outcome {
    let world = World::new();
    world.write("other", "OLD\n");
    let mut agent = world.agent(json!({ "capability": { "max_write_bytes": 1000 } }));
    let thousand = "a".repeat(1000);
    expect("1000 bytes", &agent.write("f", &thousand), &["ok"])?;
    let before = tree(&world.root);
    let over = "b".repeat(1001);
    let base64 = base64::engine::general_purpose::STANDARD.encode(&over);
    // Bytes count, not characters.
    let accents = "\u{e9}".repeat(501);
    let file = world.parent.join("blob");
    std::fs::write(&file, &over).unwrap();
    let (code, blob_ref, err) = world.aos(&["blob", "put", file.to_str().unwrap()]);
    check(code == 0, || format!("aos blob put: {err}"))?;
    let write = |content: Value| json!({ "path": "f", "content": content });
    let patch = |sections: String| json!({ "patch": text(patch_of(&sections)) });
    for (what, op, params) in [
        ("1001 bytes", "write_file", write(text(&over))),
        ("501 accents", "write_file", write(text(&accents))),
        ("bytes", "write_file", write(json!({ "inline_bytes": { "bytes": base64 } }))),
        ("a blob", "write_file", write(json!({ "blob_ref": { "blob_ref": blob_ref.trim() } }))),
        ("create_new", "write_file", json!({ "path": "new", "content": text(&over), "mode": "create_new" })),
        ("parents", "write_file", json!({ "path": "a/b/c", "content": text(&over), "create_parents": true })),
        ("append", "write_file", json!({ "path": "f", "content": text("b"), "mode": "append" })),
        ("edit", "edit_file", json!({ "path": "other", "old_string": "OLD", "new_string": over })),
        ("patch add", "apply_patch", patch(format!("*** Add File: new\n+{over}\n"))),
        (
            "patch of two",
            "apply_patch",
            patch(format!("*** Update File: other\n@@\n-OLD\n+NEW\n*** Add File: new\n+{over}\n")),
        ),
    ] {
        expect(what, &agent.fs(op, params), LIMIT)?;
        check(tree(&world.root) == before, || format!("{what}: something was changed"))?;
    }
    check(world.read("f") == thousand.as_bytes(), || "f was cut".into())?;
    expect("500 accents", &agent.write("f", &"\u{e9}".repeat(500)), &["ok"])?;
    let mut none = world.agent(json!({ "capability": { "max_write_bytes": 0 } }));
    expect("a byte", &none.write("g", "x"), LIMIT)?;
    expect("no byte", &none.write("g", ""), &["ok"])?;
    world.finish()
}

fn line_ends_stay() -> Outcome {
    let world = World::new();
    let mut agent = world.agent(json!({}));
    let before = "\u{feff}one\r\ntwo\r\nthree\r\nfour";
    // What is sought, what it becomes, and the whole file then. Line ends follow what they replace.
    let edits = [
        ("two", "2", "\u{feff}one\r\n2\r\nthree\r\nfour"),
        ("two\r\n", "2\r\n", "\u{feff}one\r\n2\r\nthree\r\nfour"),
        ("two\n", "2\n", "\u{feff}one\r\n2\r\nthree\r\nfour"),
        ("two\nthree\n", "2\n2b\n3\n", "\u{feff}one\r\n2\r\n2b\r\n3\r\nfour"),
        ("two", "2\n2b", "\u{feff}one\r\n2\r\n2b\r\nthree\r\nfour"),
        ("two\n", "", "\u{feff}one\r\nthree\r\nfour"),
        ("one\ntwo", "1\n2", "\u{feff}1\r\n2\r\nthree\r\nfour"),
        ("one", "1", "\u{feff}1\r\ntwo\r\nthree\r\nfour"),
        ("three\nfour", "3\n4", "\u{feff}one\r\ntwo\r\n3\r\n4"),
    ];
    for (old, new, after) in edits {
        world.write("f", before);
        let receipt = agent.edit("f", old, new);
        expect(&format!("{old:?}"), &receipt, &["ok"])?;
        check(world.read("f") == after.as_bytes(), || {
            format!("{old:?} to {new:?}: {:?}", String::from_utf8_lossy(&world.read("f")))
        })?;
    }
    world.write("f", before);
    expect("a patch", &agent.patch("*** Update File: f\n@@\n one\n-two\n+2\n three\n"), &["ok"])?;
    check(world.read("f") == edits[0].2.as_bytes(), || {
        format!("the patch made {:?}", String::from_utf8_lossy(&world.read("f")))
    })?;
    // Only the edited span: mixed ends, form feeds, NULs and lone CRs elsewhere stay what they are.
    let mixed = "a\r\nb\nc\rd\0\x0ce\r\nmiddle\nf\u{2028}g\r\n\r\n\n\r";
    world.write("mixed", mixed);
    expect("mixed", &agent.edit("mixed", "middle", "changed"), &["ok"])?;
    check(world.read("mixed") == mixed.replace("middle", "changed").as_bytes(), || {
        "something else moved".into()
    })?;
    world.write("binary", b"text\n\xff\xfe\nmore\n");
    expect("no UTF-8", &agent.edit("binary", "text", "TEXT"), &["error / invalid_utf8"])?;
    check(world.read("binary") == b"text\n\xff\xfe\nmore\n", || "the binary was changed".into())?;
    world.finish()
}

fn an_empty_old_string() -> Outcome {
    let world = World::new();
    world.write("f", "OLD\n");
    world.write("empty", "");
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    let refused: &[&str] = &["error / invalid_input_empty_old_string"];
    for path in ["f", "empty"] {
        for extra in [json!({}), json!({ "replace_all": true }), json!({ "with_diff": true })] {
            let mut params = json!({ "path": path, "old_string": "", "new_string": "x" });
            params.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap());
            expect(&params.to_string(), &agent.fs("edit_file", params.clone()), refused)?;
        }
        expect("to nothing", &agent.edit(path, "", ""), refused)?;
        let good = json!({ "old_string": "OLD", "new_string": "NEW" });
        let bad = json!({ "old_string": "", "new_string": "x" });
        for edits in [json!([bad]), json!([good, bad]), json!([bad, good])] {
            expect("edits", &agent.fs("edit_file", json!({ "path": path, "edits": edits })), refused)?;
        }
    }
    check(tree(&world.root) == before, || "something was changed".into())?;
    world.finish()
}

fn two_matches() -> Outcome {
    let world = World::new();
    let content = "first\nsame\nmiddle\nsame\nlast\n";
    world.write("f", content);
    let mut agent = world.agent(json!({}));
    let ambiguous: &[&str] = &["ambiguous / ambiguous_matches"];
    let refused = agent.edit("f", "same", "other");
    expect("two matches", &refused, ambiguous)?;
    let message = refused["error_message"].as_str().unwrap_or_default();
    check(message.contains('2') && message.contains('4'), || format!("no line numbers: {message}"))?;
    let explicit = json!({ "path": "f", "old_string": "same", "new_string": "other", "replace_all": false });
    expect("replace_all false", &agent.fs("edit_file", explicit), ambiguous)?;
    let edits = json!([{ "old_string": "first", "new_string": "1" }, { "old_string": "same", "new_string": "other" }]);
    expect("all or nothing", &agent.fs("edit_file", json!({ "path": "f", "edits": edits })), ambiguous)?;
    // Matches that only blanks tell apart are several too.
    world.write("blanks", "a  b\nx\na   b\n");
    expect("by blanks", &agent.edit("blanks", "a b", "c"), ambiguous)?;
    check(world.read("f") == content.as_bytes() && world.read("blanks") == b"a  b\nx\na   b\n", || {
        "an ambiguous edit changed something".into()
    })?;
    let all = json!({ "path": "f", "old_string": "same", "new_string": "other", "replace_all": true });
    let done = agent.fs("edit_file", all);
    check(done["status"] == "ok" && done["replacements"] == 2, || format!("replace_all: {done}"))?;
    check(world.read("f") == content.replace("same", "other").as_bytes(), || {
        "not both were replaced".into()
    })?;
    world.finish()
}

fn folded_punctuation() -> Outcome {
    let world = World::new();
    let line = "\tprint(\u{201c}it\u{2019}s\u{a0}1\u{2013}2\u{201d},\tx)";
    let around =
        ["# \u{201c}head\u{201d} \u{2014} stays\u{a0}\r\n", "\n\u{2018}tail\u{2019}\u{2026}\t\u{2013}"];
    let before = format!("{}{line}{}", around[0], around[1]);
    let session = world.open(json!({}));
    let mut seen = Vec::new();
    for number in 0..100 {
        let name = format!("copy{number}");
        world.write(&name, &before);
        let mut agent = world.quiet_agent(&session);
        let receipt = agent.edit(&name, "print(\"it's 1-2\", x)", "print(\"new\")");
        expect(&name, &receipt, &["ok"])?;
        check(receipt["replacements"] == 1 && receipt["match_kind"] == "punctuation", || {
            format!("{receipt}")
        })?;
        seen.push(world.read(&name));
    }
    let after = String::from_utf8_lossy(&seen[0]).into_owned();
    check(seen.iter().all(|bytes| *bytes == seen[0]), || "the copies differ".into())?;
    check(after.starts_with(around[0]) && after.ends_with(around[1]), || format!("around it: {after:?}"))?;
    let middle = &after[around[0].len()..after.len() - around[1].len()];
    check(middle.trim_start() == "print(\"new\")", || format!("in its place: {middle:?}"))?;
    // Folding is the last resort: where the text stands as it was given, that is meant.
    world.write("exact", "\u{201c}x\u{201d}\n\"x\"\n");
    let mut agent = world.agent(json!({}));
    let receipt = agent.edit("exact", "\"x\"", "y");
    check(
        receipt["match_kind"] == "exact" && world.read("exact") == "\u{201c}x\u{201d}\ny\n".as_bytes(),
        || format!("the exact one was not taken: {receipt}"),
    )?;
    // Twice by folding is ambiguous, and other letters are never taken for the same.
    world.write("twice", "\u{201c}x\u{201d}\n\u{201e}x\u{201d}\n");
    expect("twice", &agent.edit("twice", "\"x\"", "y"), &["ambiguous / ambiguous_matches"])?;
    world.write("alike", "c\u{e0}f\u{e9} \u{430}\n");
    expect("letters", &agent.edit("alike", "cafe a", "y"), &["not_found / edit_target_not_found"])?;
    world.finish()
}

fn the_new_text_is_not_searched() -> Outcome {
    let world = World::new();
    let mut agent = world.agent(json!({}));
    for (content, old, new, after, replacements) in [
        ("aa", "a", "aa", "aaaa", 2),
        ("aa", "a", "", "", 2),
        // Matches do not overlap.
        ("aaa", "aa", "a", "aa", 1),
        ("aaaa", "aa", "aaa", "aaaaaa", 2),
        ("ab", "ab", "abab", "abab", 1),
        ("x\nx\n", "x\n", "x\nx\n", "x\nx\nx\nx\n", 2),
        ("\u{e9}\u{e9}", "\u{e9}", "e\u{301}\u{e9}", "e\u{301}\u{e9}e\u{301}\u{e9}", 2),
    ] {
        world.write("f", content);
        let params = json!({ "path": "f", "old_string": old, "new_string": new, "replace_all": true });
        let what = format!("{old:?} to {new:?} in {content:?}");
        let receipt = timed(Duration::from_secs(1), &what, || agent.fs("edit_file", params))?;
        check(receipt["status"] == "ok" && receipt["replacements"] == replacements, || {
            format!("{what}: {receipt}")
        })?;
        check(world.read("f") == after.as_bytes(), || {
            format!("{what}: {:?}", String::from_utf8_lossy(&world.read("f")))
        })?;
    }
    // A text by itself changes nothing and says so.
    world.write("f", "aa");
    let same = agent
        .fs("edit_file", json!({ "path": "f", "old_string": "a", "new_string": "a", "replace_all": true }));
    expect("a to a", &same, &["ok"])?;
    check(world.read("f") == b"aa", || "a to a changed something".into())?;
    world.finish()
}

fn replacements_are_limited() -> Outcome {
    let world = World::new();
    world.write("f", "x x x x\n");
    world.write("three", "x x x\n");
    let mut agent = world.agent(json!({ "capability": { "max_edit_replacements": 3 } }));
    let all = |path: &str| json!({ "path": path, "old_string": "x", "new_string": "y", "replace_all": true });
    expect("four", &agent.fs("edit_file", all("f")), LIMIT)?;
    // Several edits count together.
    let edits = json!([
        { "old_string": "x x", "new_string": "a b" },
        { "old_string": "x", "new_string": "y", "replace_all": true },
        { "old_string": "a", "new_string": "c" },
    ]);
    world.write("summed", "x x x x\n");
    let summed = agent.fs("edit_file", json!({ "path": "summed", "edits": edits }));
    expect("summed", &summed, &["forbidden / limit_exceeded", "ambiguous / ambiguous_matches"])?;
    let edits = json!([
        { "old_string": "x", "new_string": "y", "replace_all": true },
        { "old_string": "end", "new_string": "END" },
    ]);
    world.write("more", "x x x end\n");
    expect("three and one", &agent.fs("edit_file", json!({ "path": "more", "edits": edits })), LIMIT)?;
    check(world.read("f") == b"x x x x\n" && world.read("more") == b"x x x end\n", || {
        "something was changed".into()
    })?;
    let done = agent.fs("edit_file", all("three"));
    check(done["status"] == "ok" && done["replacements"] == 3, || format!("three: {done}"))?;
    world.finish()
}

fn receipts_are_truthful() -> Outcome {
    for power in [false, true] {
        let world = World::with(Start { power, ..Start::default() });
        let mut agent = world.agent(json!({}));
        let bytes = base64::engine::general_purpose::STANDARD.encode([0, 255, 10]);
        let large = "\u{e9}".repeat(100_000);
        for (content, size) in [
            (text("hello\n"), 6),
            (text(""), 0),
            (text(large), 200_000),
            (json!({ "inline_bytes": { "bytes": bytes } }), 3),
        ] {
            for (mode, name) in [("overwrite", "f"), ("overwrite", "f"), ("create_new", "new")] {
                let created = !world.root.join(name).exists();
                let params = json!({ "path": name, "content": content, "mode": mode });
                told_as_it_is(&world, &mut agent, params, created, size)?;
            }
            expect("remove", &agent.way("remove", "new"), &["ok"])?;
        }
        let parents = json!({ "path": "a/b/c", "content": text("x"), "create_parents": true });
        told_as_it_is(&world, &mut agent, parents, true, 1)?;
        appended_as_told(&world, &mut agent)?;
        world.finish()?;
    }
    Ok(())
}

fn told_as_it_is(world: &World, agent: &mut Agent, params: Value, created: bool, size: u64) -> Outcome {
    let path = params["path"].as_str().unwrap().to_owned();
    let receipt = agent.fs("write_file", params);
    expect(&path, &receipt, &["ok"])?;
    let meta = world.root.join(&path).metadata().unwrap();
    let mtime = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
    let looked = agent.way("stat", &path);
    check(receipt["new_mtime_ns"] == mtime && looked["mtime_ns"] == mtime, || {
        format!("{mtime}: {receipt} {looked}")
    })?;
    check(receipt["written_bytes"] == size && looked["size_bytes"] == size && meta.len() == size, || {
        format!("{size} bytes: {receipt} {looked}")
    })?;
    check(receipt["created"] == created, || format!("created should be {created}: {receipt}"))?;
    let named = ["snapshot_id", "tool_call_id", "turn_id", "durability"];
    check(named.iter().all(|name| receipt[*name].is_string()), || format!("a field is missing: {receipt}"))
}

fn appended_as_told(world: &World, agent: &mut Agent) -> Outcome {
    for (name, created) in [("log", true), ("log", false)] {
        let params = json!({ "path": name, "content": text("line\n"), "mode": "append" });
        let receipt = agent.fs("write_file", params);
        let meta = world.root.join(name).metadata().unwrap();
        let mtime = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        check(
            receipt["created"] == created
                && receipt["written_bytes"] == 5
                && receipt["new_mtime_ns"] == mtime,
            || format!("append: {receipt}"),
        )?;
    }
    check(world.read("log") == b"line\nline\n", || "the appended lines are not there".into())
}
