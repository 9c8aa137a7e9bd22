//! Undoing commands: what a command changes is applied as one change, checked as one, and undone as a whole.

mod crash;
mod landing;
mod rules;
mod work;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aos_testkit::{Start, World, check, expect};
use serde_json::{Value, json};

use crate::exec::room::{Room, ordinary};
use crate::{Case, Need, Outcome, plain};

pub fn cases() -> Vec<Case> {
    let own: Vec<Own> = vec![
        ("OWN-SHELL-ALL-KINDS", all_kinds),
        ("OWN-SHELL-LIKE-A-SHELL", like_a_shell),
        ("OWN-SHELL-TURNS", turns),
        ("OWN-SHELL-POWER", at_power),
        ("OWN-SHELL-ATTRIBUTES", attributes),
        ("OWN-SHELL-FOLDER-LOOK", looks_given_since),
        ("OWN-SHELL-FOLDER-CLOSED", attributes_of_a_closed_folder),
        ("OWN-SHELL-FOLDER-GONE", a_folder_that_one_call_changed_and_removed),
        ("OWN-SHELL-SESSION-CLOSED", session_closed),
        ("OWN-SHELL-NOTHING", rules::nothing_changed),
        ("OWN-SHELL-RULES", rules::rules_bind),
        ("OWN-SHELL-PROTECTED", rules::protected_names),
        ("OWN-SHELL-LIMITS", rules::limits),
        ("OWN-SHELL-ENDED", landing::ended_by_force),
        ("OWN-SHELL-DRY-RUN", rules::dry_run),
        ("OWN-SHELL-EXCLUDE", rules::left_out),
        ("OWN-SHELL-ROOTS", landing::several_roots),
        ("OWN-SHELL-CONCURRENT", landing::changed_meanwhile),
        ("OWN-SHELL-SPECIAL", landing::special_files),
        ("OWN-SHELL-COVERAGE", landing::never_more_than_is_true),
        ("OWN-SHELL-CLOSED-FOLDERS", landing::closed_to_its_owner),
        ("OWN-SHELL-NO-SNAPSHOT", without_snapshots),
        ("OWN-SHELL-KILLED", crash::while_it_runs),
        ("OWN-SHELL-KILLED-LANDING", crash::while_it_lands),
        ("OWN-SHELL-NO-SPACE", crash::no_space),
        ("OWN-SHELL-MAKE", work::make_builds_once),
        ("OWN-SHELL-GIT", work::git),
        ("OWN-SHELL-CARGO", work::cargo),
    ];
    let mut cases: Vec<Case> = own.into_iter().map(|(id, run)| plain(id, run)).collect();
    cases.push(Case { id: "OWN-SHELL-NO-OVERLAY", needs: &[Need::Root], run: crash::without_overlay });
    cases
}

type Own = (&'static str, fn() -> Outcome);

/// One path of a tree as undo must restore it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    what: String,
    mode: u32,
    owner: (u32, u32),
    attribute: Option<Vec<u8>>,
}

/// All paths below a folder, with content, mode, owner and the attribute `user.kept`.
pub fn seen(root: &Path) -> BTreeMap<PathBuf, Seen> {
    fn walk(dir: &Path, root: &Path, out: &mut BTreeMap<PathBuf, Seen>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let meta = path.symlink_metadata().unwrap();
            let what = if meta.is_symlink() {
                format!("-> {}", std::fs::read_link(&path).unwrap().display())
            } else if meta.is_dir() {
                "folder".to_owned()
            } else if meta.is_file() {
                format!("{:?}", String::from_utf8_lossy(&std::fs::read(&path).unwrap()))
            } else {
                "special".to_owned()
            };
            let mut value = [0_u8; 64];
            let attribute = rustix::fs::lgetxattr(&path, "user.kept", value.as_mut_slice()).ok();
            let mode = if meta.is_symlink() { 0 } else { meta.mode() & 0o7777 };
            let seen = Seen {
                what,
                mode,
                owner: (meta.uid(), meta.gid()),
                attribute: attribute.map(|length| value[..length].to_vec()),
            };
            out.insert(path.strip_prefix(root).unwrap().to_owned(), seen);
            if meta.is_dir() {
                walk(&path, root, out);
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(root, root, &mut out);
    out
}

/// Reports only the paths that differ, not both trees.
pub fn same(what: &str, now: &BTreeMap<PathBuf, Seen>, wanted: &BTreeMap<PathBuf, Seen>) -> Outcome {
    let differing: Vec<String> = now
        .keys()
        .chain(wanted.keys())
        .filter(|path| now.get(*path) != wanted.get(*path))
        .map(|path| format!("{}: {:?}, not {:?}", path.display(), now.get(path), wanted.get(path)))
        .take(10)
        .collect();
    check(differing.is_empty(), || format!("{what}: {}", differing.join("; ")))
}

pub fn mtime(path: &Path) -> (i64, i64) {
    let meta = path.symlink_metadata().unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    (meta.mtime(), meta.mtime_nsec())
}

/// The two kinds of daemon that a machine can have, one after the other.
fn each_daemon(run: impl Fn(&dyn Fn(Value) -> Room) -> Outcome) -> Outcome {
    run(&|extra| furnished(World::new(), extra)).map_err(|why| format!("this user's daemon: {why}"))?;
    run(&|extra| furnished(World::with(ordinary()), extra))
        .map_err(|why| format!("an ordinary user's daemon: {why}"))
}

/// A tree with a little of everything.
fn furnish(world: &World) {
    for (path, content) in [
        ("kept", "kept\n"),
        ("changed", "before\n"),
        ("gone", "gone\n"),
        ("dir/in", "in\n"),
        ("dir/sub/deep", "deep\n"),
    ] {
        world.write(path, content);
    }
    world.link("kept", "link");
    std::fs::set_permissions(world.root.join("gone"), std::fs::Permissions::from_mode(0o640)).unwrap();
    rustix::fs::setxattr(world.root.join("gone"), "user.kept", b"worn", rustix::fs::XattrFlags::empty())
        .unwrap();
    let owner = world.root.metadata().unwrap();
    for path in seen(&world.root).keys() {
        std::os::unix::fs::lchown(world.root.join(path), Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}

fn furnished(world: World, extra: Value) -> Room {
    furnish(&world);
    Room::of(world, extra)
}

impl Room {
    /// `sh -c SCRIPT` as a tool call of this name.
    pub fn call(&self, tool_call: &str, script: &str) -> Value {
        self.call_with(tool_call, script, json!({}))
    }

    pub fn call_with(&self, tool_call: &str, script: &str, extra: Value) -> Value {
        let mut params = json!({ "session_id": self.session, "argv": ["sh", "-c", script] });
        for (key, value) in extra.as_object().cloned().unwrap_or_default() {
            params[key] = value;
        }
        let mut client = self.world.client();
        client.stream().set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        client.effect_of("host.exec", params, Some(tool_call))
    }

    pub fn undo(&self, tool_call: &str) -> Value {
        let params = json!({ "session_id": self.session, "scope_id": tool_call });
        self.world.client().effect("host.fs.restore", params)
    }

    fn fs(&self, op: &str, mut params: Value) -> Value {
        params["session_id"] = json!(self.session);
        self.world.client().effect(&format!("host.fs.{op}"), params)
    }
}

pub fn changed(receipt: &Value) -> Vec<String> {
    let paths = receipt["changed_paths"].as_array().cloned().unwrap_or_default();
    paths.iter().map(|path| path.as_str().unwrap_or_default().to_owned()).collect()
}

/// Every kind of change that a shell makes to files.
const EVERYTHING: &str = "set -e
    echo after > changed; printf more >> dir/in; rm gone; mv dir/sub dir/moved; mkdir -p new/er; echo 1 > new/er/file
    ln -sf changed link; chmod 600 kept; chmod 700 dir; ln -s nowhere new/dangling; : > new/empty; rm -rf new/er; mkdir new/er";

fn all_kinds() -> Outcome {
    each_daemon(|open| {
        let room = open(json!({}));
        let before = seen(&room.world.root);
        let receipt = room.call("tc_all", EVERYTHING);
        expect("everything", &receipt, &["ok"])?;
        check(receipt["coverage"] == "overlay", || format!("{receipt}"))?;
        check(receipt["snapshot_id"].is_string() && receipt["durability"] == "process", || {
            format!("{receipt}")
        })?;
        let paths = changed(&receipt);
        for path in ["changed", "dir/in", "gone", "dir/sub", "dir/moved/deep", "link", "kept", "new/empty"] {
            check(paths.iter().any(|listed| listed == path), || format!("{path} is not in {paths:?}"))?;
        }
        check(!paths.contains(&"ready".to_owned()), || format!("{paths:?}"))?;
        let listed = room.fs("list_snapshots", json!({}));
        check(listed["snapshots"][0]["coverage"] == "overlay", || format!("{listed}"))?;
        let after = seen(&room.world.root);
        check(after != before, || "nothing landed".into())?;
        let undone = room.undo("tc_all");
        expect("undone", &undone, &["ok"])?;
        same("undone", &seen(&room.world.root), &before)?;
        // Forward again, which is an undo of the undo.
        let redo = json!({ "snapshot_id": undone["redo_snapshot_id"] });
        expect("forward", &room.fs("restore", redo), &["ok"])?;
        same("forward", &seen(&room.world.root), &after)?;
        crash::no_overlay_is_left(&room)?;
        room.finish()
    })
}

/// A shell is the reference: the same script in a copy of the tree leaves the same tree, times included.
fn like_a_shell() -> Outcome {
    let scripts = [
        EVERYTHING,
        "touch -d 2001-02-03T04:05:06 changed dir/in; touch -d 2002-02-03 new",
        "rm -rf dir && mkdir dir && echo other > dir/in && touch -d 2003-03-03 dir/in",
        "rm -rf dir && echo file > dir && touch -d 2004-04-04 dir",
        "rm kept && mkdir kept && echo x > kept/y && touch -d 2004-04-04 kept/y",
        "rm link && mkdir link; mv changed link/; chmod 444 link/changed",
        "cp -p changed copy; ln copy other; mv gone dir/; touch -r kept changed",
        "i=0; while [ $i -lt 300 ]; do mkdir -p many/$((i % 7)); echo $i > many/$((i % 7))/$i; i=$((i+1)); done; find many -exec touch -d 2005-05-05 {} +",
        "mv dir other; mv other/sub .; echo again > sub/deep; touch -d 2006-06-06 sub/deep",
        "printf '#!/bin/sh\\n' > run; chmod 755 run; touch -d 2007-07-07 run; mkdir -p a/b/c; rm -r a/b",
        "mkdir 'odd name' \"$(printf 'b\\001d')\"; echo x > 'odd name/new\nline'; touch -d 2008-08-08 'odd name/new\nline'",
    ];
    each_daemon(|open| {
        for (number, script) in scripts.iter().enumerate() {
            let room = open(json!({}));
            let (before, copy) = (seen(&room.world.root), room.world.parent.join("copy"));
            let run = |program: &str, words: &[&str]| {
                let done = std::process::Command::new(program).args(words).status().unwrap();
                check(done.success(), || format!("{program} {words:?}: {done}"))
            };
            run("cp", &["-a", &room.world.root.to_string_lossy(), &copy.to_string_lossy()])?;
            let owner = room.world.root.metadata().unwrap();
            let plain =
                ["--reuid", &owner.uid().to_string(), "--regid", &owner.gid().to_string(), "--clear-groups"];
            let mut shell = std::process::Command::new("setpriv");
            let is_root = aos_testkit::is_root();
            if !is_root {
                shell = std::process::Command::new("env");
            }
            if is_root {
                shell.args(plain);
            }
            let done = shell.args(["sh", "-c", &format!("umask 022; {script}")]).current_dir(&copy).status();
            check(done.is_ok_and(|status| status.success()), || format!("{script}: the oracle failed"))?;
            let receipt = room.call(&format!("tc_{number}"), script);
            expect(script, &receipt, &["ok"])?;
            check(receipt["exit_code"] == 0, || format!("{script}: {receipt}"))?;
            let (landed, wanted) = (seen(&room.world.root), seen(&copy));
            same(script, &landed, &wanted)?;
            for path in wanted.keys().filter(|path| copy.join(path).is_file()) {
                let old = mtime(&copy.join(path)).0 < 1_300_000_000;
                check(!old || mtime(&room.world.root.join(path)) == mtime(&copy.join(path)), || {
                    format!("{script}: {} has another time", path.display())
                })?;
            }
            expect(script, &room.undo(&format!("tc_{number}")), &["ok"])?;
            same(&format!("undo of {script}"), &seen(&room.world.root), &before)?;
            room.world_finish()?;
        }
        Ok(())
    })
}

fn turns() -> Outcome {
    let room = furnished(World::new(), json!({}));
    let before = seen(&room.world.root);
    let mut client = room.world.client();
    let mut turn = |turn: &str, kind: &str, mut params: Value| {
        params["session_id"] = json!(room.session);
        let call = json!({ "kind": kind, "params": params, "turn_id": turn });
        client.rpc("effect.call", call)["result"].clone()
    };
    let sh = |script: &str| json!({ "argv": ["sh", "-c", script] });
    let text = |text: &str| json!({ "inline_text": { "text": text } });
    expect(
        "write",
        &turn("t1", "host.fs.write_file", json!({ "path": "a", "content": text("1") })),
        &["ok"],
    )?;
    expect(
        "sh",
        &turn("t1", "host.exec", sh("echo 2 >> a; rm -r dir; mkdir dir; echo 3 > dir/in")),
        &["ok"],
    )?;
    expect(
        "write",
        &turn("t1", "host.fs.write_file", json!({ "path": "dir/in", "content": text("4") })),
        &["ok"],
    )?;
    let middle = seen(&room.world.root);
    expect("sh", &turn("t2", "host.exec", sh("mv a b; rm -r dir kept")), &["ok"])?;
    let after = seen(&room.world.root);
    // A command that changes nothing is not a step.
    expect("sh", &turn("t3", "host.exec", sh("cat b")), &["ok"])?;
    let back = room.fs("rollback", json!({}));
    check(back["rolled_back_turns"] == json!(["t2"]), || format!("{back}"))?;
    same("one turn back", &seen(&room.world.root), &middle)?;
    expect("back", &room.fs("rollback", json!({})), &["ok"])?;
    same("two turns back", &seen(&room.world.root), &before)?;
    expect("redo", &room.fs("redo", json!({ "turns": 2 })), &["ok"])?;
    same("forward", &seen(&room.world.root), &after)?;
    // Another process's change is not overwritten.
    room.world.write("b", "mine\n");
    expect("conflict", &room.fs("rollback", json!({})), &["conflict / changed_since"])?;
    room.finish()
}

/// At durability `power` changes are applied in the same way.
fn at_power() -> Outcome {
    let world = World::with(Start { power: true, ..Start::default() });
    let room = furnished(world, json!({}));
    let before = seen(&room.world.root);
    let receipt = room.call("tc_power", EVERYTHING);
    expect("everything", &receipt, &["ok"])?;
    check(receipt["durability"] == "power" && room.world.read("changed") == b"after\n", || {
        format!("{receipt}")
    })?;
    expect("undone", &room.undo("tc_power"), &["ok"])?;
    same("undone", &seen(&room.world.root), &before)?;
    room.finish()
}

/// Attributes that a command sets, changes or removes; the overlay's own attributes are not applied.
fn attributes() -> Outcome {
    each_daemon(|open| {
        let room = open(json!({}));
        let before = seen(&room.world.root);
        let script = "import os; os.setxattr('kept', 'user.kept', b'new'); os.removexattr('gone', 'user.kept'); open('made', 'w'); os.setxattr('made', 'user.kept', b'made')";
        let receipt = room.exec(json!({ "argv": ["python3", "-c", script] }));
        expect("python", &receipt, &["ok"])?;
        check(changed(&receipt) == ["gone", "kept", "made"], || format!("{receipt}"))?;
        let now = seen(&room.world.root);
        let worn = |path: &str| now[Path::new(path)].attribute.clone();
        check(worn("kept") == Some(b"new".to_vec()) && worn("made") == Some(b"made".to_vec()), || {
            format!("{now:?}")
        })?;
        check(worn("gone").is_none(), || format!("{now:?}"))?;
        for path in now.keys() {
            let mut names = [0_u8; 1024];
            let length =
                rustix::fs::llistxattr(room.world.root.join(path), names.as_mut_slice()).unwrap_or(0);
            let names = String::from_utf8_lossy(&names[..length]).into_owned();
            check(!names.contains("overlay"), || format!("{}: {names}", path.display()))?;
        }
        let id = receipt["tool_call_id"].as_str().unwrap_or_default().to_owned();
        expect("undo", &room.undo(&id), &["ok"])?;
        same("undone", &seen(&room.world.root), &before)?;
        room.finish()
    })
}

/// A later call's change of a folder's mode and attributes is a change like any other, and undo does not lose it.
fn looks_given_since() -> Outcome {
    each_daemon(|open| {
        let looks = |mode: &str, color: &str| {
            format!("import os; os.chmod('dir', {mode}); os.setxattr('dir', 'user.kept', b'{color}')")
        };
        let [first, second, third] = [looks("0o700", "red"), looks("0o750", "green"), looks("0o750", "blue")];
        for anew in ["", "import shutil; shutil.rmtree('dir'); os.mkdir('dir')"] {
            let room = open(json!({}));
            let before = seen(&room.world.root);
            let mut calls = Vec::new();
            for script in [format!("import os\n{anew}\n{first}"), second.clone(), third.clone()] {
                let receipt = room.exec(json!({ "argv": ["python3", "-c", script] }));
                expect("python", &receipt, &["ok"])?;
                calls.push(receipt["tool_call_id"].as_str().unwrap_or_default().to_owned());
            }
            let now = seen(&room.world.root);
            for (earlier, later) in [(0, 2), (1, 2)] {
                let refused = room.undo(&calls[earlier]);
                expect("undo of an earlier look", &refused, &["conflict / changed_since"])?;
                let by = refused["conflicts"][0]["changed_by"].as_str();
                check(by == Some(calls[later].as_str()), || format!("{refused}"))?;
                same("refused", &seen(&room.world.root), &now)?;
            }
            for call in calls.iter().rev() {
                expect("undo, newest first", &room.undo(call), &["ok"])?;
            }
            same("undone", &seen(&room.world.root), &before)?;
            room.finish()?;
        }
        // A folder that is closed to its owner is created open, filled and closed: that is not a later change of its
        // mode. The owner's entry in its ACL follows the mode and is not an attribute of its own.
        let room = open(json!({}));
        let list = crate::snapshot_restore::metadata::acl();
        let _ = rustix::fs::setxattr(
            room.world.root.join("dir"),
            "system.posix_acl_access",
            &list,
            rustix::fs::XattrFlags::empty(),
        );
        std::fs::set_permissions(room.world.root.join("dir"), std::fs::Permissions::from_mode(0o750))
            .unwrap();
        let before = seen(&room.world.root);
        for script in ["chmod 500 dir", "echo more >> changed", "chmod 700 dir; rm -r dir"] {
            expect(script, &room.sh(script), &["ok"])?;
        }
        expect("the removal taken back", &room.fs("rollback", json!({})), &["ok"])?;
        let elsewhere = room.fs("rollback", json!({}));
        check(elsewhere["restored_paths"] == json!(["changed"]), || format!("{elsewhere}"))?;
        expect("the closing taken back", &room.fs("rollback", json!({})), &["ok"])?;
        same("rolled back", &seen(&room.world.root), &before)?;
        room.finish()
    })
}

/// A folder that its owner may not write gets its attributes back, and keeps its mode.
fn attributes_of_a_closed_folder() -> Outcome {
    each_daemon(|open| {
        for (before, after) in [("0o500", "0o500"), ("0o500", "0o700"), ("0o700", "0o500")] {
            let room = open(json!({}));
            let look = |mode: &str, color: &str| {
                format!(
                    "import os; os.chmod('dir', 0o700); os.setxattr('dir', 'user.kept', b'{color}'); os.chmod('dir', {mode})"
                )
            };
            let mut trees = Vec::new();
            for script in [look(before, "red"), look(after, "green")] {
                trees.push(seen(&room.world.root));
                expect("python", &room.exec(json!({ "argv": ["python3", "-c", script] })), &["ok"])?;
            }
            trees.push(seen(&room.world.root));
            for (effect, found) in [("rollback", 1), ("redo", 2), ("rollback", 1), ("rollback", 0)] {
                expect(&format!("{effect} of {after}"), &room.fs(effect, json!({})), &["ok"])?;
                same(effect, &seen(&room.world.root), &trees[found])?;
            }
            room.finish()?;
        }
        Ok(())
    })
}

/// One call changes the mode of a folder and removes it: undo needs what was in it.
fn a_folder_that_one_call_changed_and_removed() -> Outcome {
    each_daemon(|open| {
        let room = open(json!({}));
        let before = seen(&room.world.root);
        for script in ["chmod 711 dir", "rm -r dir"] {
            let params = json!({ "session_id": room.session, "argv": ["sh", "-c", script] });
            let call =
                json!({ "kind": "host.exec", "params": params, "tool_call_id": "tc_both", "turn_id": "t" });
            let receipt = room.world.client().rpc("effect.call", call)["result"].take();
            expect(script, &receipt, &["ok"])?;
        }
        expect("undo", &room.undo("tc_both"), &["ok"])?;
        same("undone", &seen(&room.world.root), &before)?;
        room.finish()
    })
}

/// A session is closed while its command runs: the command's changes are applied, and no snapshot outlives the session.
fn session_closed() -> Outcome {
    let room = furnished(World::new(), json!({}));
    let other = room.another(json!({}));
    let running =
        room.start_in(&other, json!({ "argv": ["sh", "-c", "echo x > changed; echo y > mark; sleep 100"] }));
    crash::written(&room, "mark")?;
    expect("closed", &room.signal(&other, "kill"), &["signaled"])?;
    let receipt = running.join().map_err(|_| "it panicked")?;
    expect("ended", &receipt, &["signaled / signaled"])?;
    check(room.world.read("changed") == b"x\n" && receipt.get("snapshot_id").is_none(), || {
        format!("{receipt}")
    })?;
    let left = room.world.home.join("state/preimages").join(&other);
    aos_testkit::wait_for("its pre-images to go", || !left.exists())?;
    room.finish()
}

fn without_snapshots() -> Outcome {
    let room = furnished(World::new(), json!({ "auto_snapshot": false }));
    let receipt = room.call("tc_plain", "echo x > changed; rm -r dir");
    expect("plain", &receipt, &["ok"])?;
    check(receipt["coverage"] == "overlay" && receipt.get("snapshot_id").is_none(), || format!("{receipt}"))?;
    check(room.world.read("changed") == b"x\n", || "not landed".into())?;
    expect("undo", &room.undo("tc_plain"), &["not_found / snapshot_not_found"])?;
    // A requested snapshot is kept all the same.
    let asked = json!({ "scope_id": "tc_asked" });
    expect("asked", &room.fs("snapshot", asked), &["ok"])?;
    expect("sh", &room.call("tc_asked", "echo y > changed"), &["ok"])?;
    expect("undo", &room.undo("tc_asked"), &["ok"])?;
    check(room.world.read("changed") == b"x\n", || "not undone".into())?;
    room.finish()
}

/// Starts the daemon again after a kill.
fn again(room: &mut Room) {
    room.world.start_daemon();
}
