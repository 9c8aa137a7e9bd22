//! Real tools over an overlay: they build, they find what they built, and all of it is undone.

use aos_testkit::{World, check, expect};
use serde_json::json;

use super::{changed, furnished, same, seen};
use crate::Outcome;
use crate::exec::room::ordinary;

/// `make` compares times: what one command built, the next one does not build again.
pub fn make_builds_once() -> Outcome {
    for world in [World::new(), World::with(ordinary())] {
        let room = furnished(world, json!({}));
        let rules = "all: out stamp\nout: mid\n\tcat mid > out; echo built out\nmid: changed\n\tcp changed mid; echo built mid\nstamp: out\n\ttouch stamp\n";
        room.world.write("Makefile", rules);
        let first = room.call("tc_1", "make -s");
        expect("first", &first, &["ok"])?;
        check(room.stdout(&first) == "built mid\nbuilt out\n", || format!("{first}"))?;
        let again = room.call("tc_2", "make -s");
        check(room.stdout(&again).is_empty() && changed(&again).is_empty(), || format!("{again}"))?;
        // A changed time alone is applied: `make` depends on it.
        let touched = room.call("tc_3", "touch changed");
        check(touched["status"] == "ok" && changed(&touched).is_empty(), || format!("{touched}"))?;
        let third = room.call("tc_4", "make -s");
        check(room.stdout(&third).starts_with("built mid"), || format!("{third}"))?;
        room.world_finish()?;
    }
    Ok(())
}

pub fn git() -> Outcome {
    for world in [World::new(), World::with(ordinary())] {
        let room = furnished(world, json!({}));
        let before = seen(&room.world.root);
        let me = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; set -e;";
        let init = room.call(
            "tc_init",
            &format!("{me} git init -q .; git add -A; git commit -qm one; git status --porcelain"),
        );
        expect("init", &init, &["ok"])?;
        check(init["exit_code"] == 0 && init["coverage"] == "overlay", || format!("{init}"))?;
        let repository = seen(&room.world.root);
        let work = room.call("tc_work", &format!("{me} git checkout -qb side; echo x > changed; git mv gone went; git commit -qam two; git checkout -q -; git merge -q side; git gc -q; git fsck; git log --oneline | wc -l"));
        expect("work", &work, &["ok"])?;
        check(room.stdout(&work).trim_end().ends_with('2'), || format!("{work}"))?;
        let status = room.call(
            "tc_status",
            "export GIT_OPTIONAL_LOCKS=0; git status --porcelain; git fsck && git log --oneline | wc -l",
        );
        check(room.stdout(&status).trim() == "2", || format!("{status}"))?;
        expect("undo", &room.undo("tc_work"), &["ok"])?;
        same("one commit back", &seen(&room.world.root), &repository)?;
        let status = room.call(
            "tc_status",
            "export GIT_OPTIONAL_LOCKS=0; git fsck && git status --porcelain && git log --oneline | wc -l",
        );
        check(room.stdout(&status).trim() == "1", || format!("{status}"))?;
        // `git status` may refresh the index; the repository is removed all the same.
        let force = json!({ "session_id": room.session, "scope_id": "tc_init", "force": true });
        expect("undo", &room.world.client().effect("host.fs.restore", force), &["ok"])?;
        let now = seen(&room.world.root);
        check(!now.keys().any(|path| path.starts_with(".git") && path.ends_with("config")), || {
            "the repository is still there".into()
        })?;
        for (path, was) in &before {
            check(now.get(path) == Some(was), || format!("{}: {:?}", path.display(), now.get(path)))?;
        }
        room.world_finish()?;
    }
    Ok(())
}

pub fn cargo() -> Outcome {
    let room = furnished(World::new(), json!({}));
    room.world.write("Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    room.world.write("src/main.rs", "fn main() { println!(\"hello\"); }\n");
    let has_cargo = room.sh("cargo --version");
    if has_cargo["exit_code"] != 0 {
        println!("skipped: no cargo to be seen");
        return room.finish();
    }
    let before = seen(&room.world.root);
    let built = room.call("tc_build", "cargo build -q --offline && ./target/debug/small");
    expect("build", &built, &["ok"])?;
    check(room.stdout(&built) == "hello\n", || format!("{built}"))?;
    let fresh = room.call("tc_fresh", "cargo build --offline 2>&1");
    let said = room.stdout(&fresh);
    check(!said.contains("Compiling"), || format!("it was built again: {said}"))?;
    for tool_call in ["tc_fresh", "tc_build"] {
        expect("undo", &room.undo(tool_call), &["ok", "not_found"])?;
    }
    same("undone", &seen(&room.world.root), &before)?;
    room.finish()
}
