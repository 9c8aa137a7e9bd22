//! Immutable and append-only files, and what happens beside a change that fails on them.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aos_testkit::ways::CHANGES_TO_A_FILE;
use aos_testkit::{Agent, Tracer, World, check, expect, missing, tree};
use serde_json::json;

use crate::{Need, Outcome};

/// A file or folder that not even root may change, until the end of the case.
struct Attribute(PathBuf, &'static str);

impl Attribute {
    fn set(path: PathBuf, attribute: &'static str) -> Result<Attribute, String> {
        let output = Command::new("chattr").arg(format!("+{attribute}")).arg(&path).output();
        let output = output.map_err(|why| format!("chattr: {why}"))?;
        check(output.status.success(), || String::from_utf8_lossy(&output.stderr).into_owned())?;
        Ok(Attribute(path, attribute))
    }
}

impl Drop for Attribute {
    fn drop(&mut self) {
        let _ = Command::new("chattr").arg(format!("-{}", self.1)).arg(&self.0).status();
    }
}

pub(super) fn immutable_files() -> Outcome {
    let world = World::new();
    world.write("ok.txt", "OLD\n");
    world.write("donor", "OLD\n");
    world.write("closed/f", "OLD\n");
    let immutable = Attribute::set(world.write("im", "OLD\n"), "i")?;
    let append_only = Attribute::set(world.write("ap", "OLD\n"), "a")?;
    let folder = Attribute::set(world.root.join("closed"), "i")?;
    let inner = Attribute::set(world.write("d/im", "OLD\n"), "i")?;
    let before = tree(&world.root);
    let times = |name: &str| {
        let meta = world.root.join(name).metadata().unwrap();
        (meta.ino(), meta.mtime(), meta.mtime_nsec())
    };
    let ok_before = times("ok.txt");
    let mut agent = world.agent(json!({}));
    let denied: &[&str] = &["error / permission_denied"];
    let unchanged = |what: &str| {
        check(tree(&world.root) == before, || format!("{what} changed something or left a temporary file"))?;
        check(times("ok.txt") == ok_before, || format!("{what} touched ok.txt"))
    };
    for path in ["im", "ap", "closed/f"] {
        for way in CHANGES_TO_A_FILE {
            let what = format!("{way} {path}");
            expect(&what, &agent.way(way, path), denied)?;
            unchanged(&what)?;
        }
        for sections in patches_that_touch(path) {
            expect(&sections, &agent.patch(&sections), denied)?;
            unchanged(&sections)?;
        }
    }
    for way in ["create_new", "patch_add", "create_parents", "make_dir", "move_to", "patch_move_to"] {
        expect(way, &agent.way(way, "closed/new"), denied)?;
        unchanged(way)?;
    }
    let mut wrong = Vec::new();
    if missing(Need::Strace).is_none() {
        wrong.extend(a_folder_that_is_renamed(&world, &mut agent).err());
        wrong.extend(a_neighbour_while_it_is_taken_back(&world, &mut agent).err());
    }
    // The world deletes its files at its end, so they must be deletable again.
    let _ = std::fs::rename(world.root.join("e"), world.root.join("d"));
    drop((immutable, append_only, folder, inner));
    check(wrong.is_empty(), || wrong.join("\n"))?;
    world.finish()
}

/// A folder that is renamed while a change in it fails keeps no temporary file.
fn a_folder_that_is_renamed(world: &World, agent: &mut Agent) -> Outcome {
    let (from, to) = (world.root.join("d"), world.root.join("e"));
    let slowly = Tracer::inject(world.daemon_pid(), "inject=renameat2:delay_enter=200000")?;
    let ended = AtomicBool::new(false);
    let receipt = std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = || std::fs::read_dir(&from).is_ok_and(|names| names.count() > 1);
            while !begun() && !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::fs::rename(&from, &to).unwrap();
        });
        let receipt = agent.way("edit_file", "d/im");
        ended.store(true, Ordering::Relaxed);
        receipt
    });
    drop(slowly);
    expect("an edit that fails slowly", &receipt, &["error / permission_denied"])?;
    let left: Vec<PathBuf> = tree(&to).into_keys().collect();
    check(left == [to.join("im")], || format!("the folder took along {left:?}"))
}

/// A path is rolled back only while it is as our step left it: what another process writes meanwhile stays and is
/// named.
fn a_neighbour_while_it_is_taken_back(world: &World, agent: &mut Agent) -> Outcome {
    world.write("a.txt", "OLD\n");
    let slowly = Tracer::inject(world.daemon_pid(), "inject=renameat2:delay_enter=200000")?;
    let ended = AtomicBool::new(false);
    let (wrote, receipt) = std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| write_while_it_is_taken_back(world, &ended));
        let update = |path: &str| format!("*** Update File: {path}\n@@\n-OLD\n+NEW\n");
        // This path comes first in order, so its step is done when the other fails.
        let receipt = agent.patch(&(update("a.txt") + &update("im")));
        ended.store(true, Ordering::Relaxed);
        (neighbour.join().expect("the neighbour ends"), receipt)
    });
    drop(slowly);
    expect("a patch that fails slowly", &receipt, &["error / permission_denied"])?;
    let expected: &[u8] = if wrote { b"NEIGHBOUR\n" } else { b"OLD\n" };
    check(world.read("a.txt") == expected, || {
        format!(
            "taking back destroyed what a neighbour wrote: {:?}",
            String::from_utf8_lossy(&world.read("a.txt"))
        )
    })?;
    check(!wrote || receipt["not_rolled_back"] == json!(["a.txt"]), || format!("it is not named: {receipt}"))
}

/// Replaces `a.txt` once the old file is beside it again. Returns whether it did.
fn write_while_it_is_taken_back(world: &World, ended: &AtomicBool) -> bool {
    let fresh = world.parent.join("fresh");
    std::fs::write(&fresh, "NEIGHBOUR\n").unwrap();
    let beside = || {
        let old = |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| bytes == b"OLD\n");
        let temporary = |path: &PathBuf| path.to_string_lossy().contains("/.aos-tmp-");
        let names = std::fs::read_dir(&world.root).unwrap().flatten().map(|entry| entry.path());
        names.filter(temporary).any(|path| old(&path))
    };
    let mut stage = 0;
    while !ended.load(Ordering::Relaxed) {
        let new = world.read("a.txt") == b"NEW\n";
        match stage {
            0 if new => stage = 1,       // the new file is in its place
            1 if !beside() => stage = 2, // the old one is stored as a pre-image
            2 if new && beside() => {
                // and is fetched to be put back
                std::fs::rename(&fresh, world.root.join("a.txt")).unwrap();
                return true;
            }
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    false
}

/// Patches on this file and another one, before it and behind it, with all kinds of changes.
fn patches_that_touch(path: &str) -> Vec<String> {
    let bad = format!("*** Update File: {path}\n@@\n-OLD\n+NEW\n");
    let delete = format!("*** Delete File: {path}\n");
    let rename = format!("*** Update File: {path}\n*** Move to: elsewhere\n@@\n-OLD\n+NEW\n");
    let fine = "*** Update File: ok.txt\n@@\n-OLD\n+NEW\n";
    let moved = "*** Update File: ok.txt\n*** Move to: made/up/name\n@@\n-OLD\n+NEW\n";
    let fresh = "*** Add File: made/up/fresh\n+x\n";
    let gone = "*** Delete File: ok.txt\n";
    let mut patches = Vec::new();
    for broken in [&bad, &delete, &rename] {
        for other in [fine, moved, fresh, gone] {
            patches.extend([format!("{broken}{other}"), format!("{other}{broken}")]);
        }
    }
    patches
}
