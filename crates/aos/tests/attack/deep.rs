//! Trees that are deeper, and folders that hold more files, than the daemon may have open at a time: it handles what it
//! can and keeps running.

use std::os::fd::OwnedFd;
use std::path::Path;

use aos_testkit::{Start, World, check, expect, patch_params, tree};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use serde_json::{Value, json};

use crate::{Case, Outcome, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("OWN-DEEP-TREE", as_a_whole),
        plain("OWN-DEEP-COMMAND", by_a_command),
        plain("OWN-MANY-BACK", more_than_can_be_open),
        plain("OWN-MANY-REFUSED", more_than_one_call_may_change),
    ]
}

/// So deep that one recursive call per level overflows any stack.
const LEVELS: usize = 4_000;
/// A depth that is accepted.
const FINE: usize = 400;

fn dig(root: &Path, name: &str, levels: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let enter = |dir: OwnedFd, name: &str| {
        rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o755)).unwrap();
        rustix::fs::openat(&dir, name, flags, Mode::empty()).unwrap()
    };
    let top = enter(rustix::fs::openat(CWD, root, flags, Mode::empty()).unwrap(), name);
    (1..levels).fold(top, |dir, _| enter(dir, "a"));
}

/// Removes a deep tree from the top, one level at a time: a recursive removal cannot.
fn fill_in(root: &Path, name: &str) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::openat(CWD, root.join(name), flags, Mode::empty()).unwrap();
    while let Ok(below) = rustix::fs::openat(&top, "a", flags, Mode::empty()) {
        let moved = rustix::fs::renameat(&below, "a", &top, "b");
        rustix::fs::unlinkat(&top, "a", AtFlags::REMOVEDIR).unwrap();
        if moved.is_ok() {
            rustix::fs::renameat(&top, "b", &top, "a").unwrap();
        }
    }
    std::fs::remove_dir(root.join(name)).unwrap();
}

fn as_a_whole() -> Outcome {
    let world = World::new();
    dig(&world.root, "deep", LEVELS);
    dig(&world.root, "fine", FINE);
    let mut agent = world.agent(json!({ "policy": { "preset": "permissive" } }));
    let too_deep: &[&str] = &["forbidden / limit_exceeded"];
    for (op, params, allowed) in [
        ("stat", json!({ "path": "deep" }), &["ok"][..]),
        ("list_dir", json!({ "path": "deep" }), &["ok"]),
        ("glob", json!({ "pattern": "**" }), &["ok"]),
        ("grep", json!({ "pattern": "needle" }), &["ok"]),
        ("snapshot", json!({ "scope_id": "s", "paths": ["deep"] }), too_deep),
        ("move", json!({ "from": "deep", "to": "moved" }), too_deep),
        ("remove", json!({ "path": "deep", "recursive": true }), too_deep),
        ("snapshot", json!({ "scope_id": "s", "paths": ["fine"] }), &["ok"]),
        ("move", json!({ "from": "fine", "to": "moved" }), &["ok"]),
        ("remove", json!({ "path": "moved", "recursive": true }), &["ok"]),
        ("rollback", json!({ "turns": 2 }), &["ok"]),
    ] {
        expect(&format!("{op} {params}"), &agent.fs(op, params), allowed)?;
    }
    check(world.root.join("deep/a/a").is_dir(), || "the deep tree was touched".into())?;
    check(world.root.join("fine").join(["a"; FINE - 1].join("/")).is_dir(), || {
        "the other did not come back".into()
    })?;
    fill_in(&world.root, "deep");
    world.finish()
}

/// A command that makes a tree too deep is refused, and the tree is discarded; a command that removes such a tree is
/// refused too, and the tree stays.
fn by_a_command() -> Outcome {
    let world = World::new();
    dig(&world.root, "deep", 600);
    let mut agent = world.agent(json!({ "policy": { "preset": "permissive" } }));
    let digging = "my $n = shift; mkdir 'made'; chdir 'made'; for (1..$n) { mkdir 'a'; chdir 'a' }";
    let mut run = |argv: Value| {
        let params = json!({ "session_id": agent.session, "argv": argv });
        agent.client.effect("host.exec", params)
    };
    let too_deep: &[&str] = &["forbidden / limit_exceeded"];
    expect("digging", &run(json!(["perl", "-e", digging, "2000"])), too_deep)?;
    check(!world.root.join("made").exists(), || "something landed".into())?;
    expect("rm -r", &run(json!(["rm", "-rf", "deep"])), too_deep)?;
    check(world.root.join("deep/a/a").is_dir(), || "something went".into())?;
    expect("beside it", &run(json!(["touch", "deep/x"])), &["ok"])?;
    expect("digging less", &run(json!(["perl", "-e", digging, FINE.to_string()])), &["ok"])?;
    std::fs::remove_file(world.root.join("deep/x")).unwrap();
    fill_in(&world.root, "deep");
    world.finish()
}

/// A folder that holds more files than the daemon may have open is restored.
fn more_than_can_be_open() -> Outcome {
    let wrapper = vec!["prlimit".to_owned(), "--nofile=2048:2048".to_owned()];
    // At `power` the changed folders are held until they are synced.
    let mut world = World::asleep(Start { wrapper, power: true, ..Start::default() });
    for number in 0..2_200 {
        world.write(&format!("many/{number}"), format!("file {number}\n"));
    }
    world.start_daemon();
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    expect("remove", &agent.fs("remove", json!({ "path": "many", "recursive": true })), &["ok"])?;
    expect("rollback", &agent.fs("rollback", json!({})), &["ok"])?;
    check(tree(&world.root) == before, || "not everything came back".into())?;
    let new: String = (0..2_200).map(|number| format!("*** Add File: new/{number}\n+text\n")).collect();
    expect("a patch", &agent.fs("apply_patch", patch_params(&new)), &["ok"])?;
    let after = tree(&world.root);
    expect("rollback of the patch", &agent.fs("rollback", json!({})), &["ok"])?;
    check(tree(&world.root) == before, || "not everything is gone again".into())?;
    expect("redo", &agent.fs("redo", json!({})), &["ok"])?;
    check(tree(&world.root) == after, || "not everything was done again".into())?;
    world.finish()
}

/// A patch, a command or a removal that would take too much memory is refused and changes nothing.
fn more_than_one_call_may_change() -> Outcome {
    const MANY: usize = 80_001;
    let world = World::new();
    let mut agent = world.agent(json!({ "policy": { "preset": "permissive" } }));
    let refused: &[&str] = &["forbidden / limit_exceeded"];
    let patch: String = (0..MANY).map(|number| format!("*** Add File: {number}\n+\n")).collect();
    expect("a patch", &agent.fs("apply_patch", patch_params(&patch)), refused)?;
    let script = "mkdir 'd'; for my $n (1..shift) { open(my $f, '>', \"d/$n\") }";
    let command = json!({ "session_id": agent.session, "argv": ["perl", "-e", script, MANY.to_string()] });
    expect("a command", &agent.client.effect("host.exec", command), refused)?;
    check(!world.root.join("d").exists(), || "the command's files landed".into())?;
    std::fs::create_dir(world.root.join("d")).unwrap();
    for number in 0..MANY {
        std::fs::File::create(world.root.join(format!("d/{number}"))).unwrap();
    }
    let remove = agent.fs("remove", json!({ "path": "d", "recursive": true }));
    expect("a removal", &remove, refused)?;
    expect("a move", &agent.fs("move", json!({ "from": "d", "to": "e" })), &["ok"])?;
    expect("rollback", &agent.fs("rollback", json!({})), &["ok"])?;
    let left = std::fs::read_dir(world.root.join("d")).unwrap().count();
    check(left == MANY, || format!("{left} of {MANY} files are left"))?;
    world.finish()
}
