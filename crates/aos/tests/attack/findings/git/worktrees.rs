//! A session on a linked worktree or a submodule works with the repository that it belongs to, and with no other.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use aos_testkit::{World, check, expect};
use serde_json::{Value, json};

use crate::Outcome;
use crate::exec::room::{Room, ordinary};
use crate::shell_undo::{same, seen};

const DENIED: &[&str] = &["forbidden / protected_path"];

/// Beside the root: a repository `main` with a worktree `tree` and a submodule `sub`.
const PREPARE: &str = "set -e; git init -q -b main lib; cd lib; git commit -q --allow-empty -m l; cd ..; \
    git init -q -b main main; cd main; git config user.name U; git config user.email u@x; echo 1 > f; git add f; git commit -q -m 1; \
    git -c protocol.file.allow=always submodule add -q ../lib sub; git commit -q -m 2; git worktree add -q ../tree -b topic; \
    printf '#!/bin/sh\\n' > .git/hooks/pre-push; chmod 755 .git/hooks/pre-push";

fn prepare(world: &World) -> Result<PathBuf, String> {
    let beside = world.root.join("repositories");
    std::fs::create_dir(&beside).map_err(|why| why.to_string())?;
    let owner = world.root.metadata().map_err(|why| why.to_string())?;
    let mut command = Command::new("sh");
    command
        .args(["-c", PREPARE])
        .current_dir(&beside)
        .env("HOME", &world.home)
        .env("GIT_CONFIG_NOSYSTEM", "1");
    for name in ["GIT_AUTHOR", "GIT_COMMITTER"] {
        command.env(format!("{name}_NAME"), "U").env(format!("{name}_EMAIL"), "u@x");
    }
    let made = command.output().map_err(|why| why.to_string())?;
    check(made.status.success(), || format!("{made:?}"))?;
    for path in seen(&world.root).keys() {
        std::os::unix::fs::lchown(world.root.join(path), Some(owner.uid()), Some(owner.gid()))
            .map_err(|why| why.to_string())?;
    }
    Ok(beside)
}

fn open(room: &Room, folder: &Path) -> String {
    room.another(json!({ "local": { "workdir": folder }, "policy": { "preset": "permissive" } }))
}

fn run(room: &Room, session: &str, script: &str, allowed: &[&str]) -> Result<Value, String> {
    let receipt = room.exec_in(session, json!({ "argv": ["sh", "-c", script] }));
    expect(script, &receipt, allowed)?;
    let is_fine = allowed != ["ok"] || receipt["exit_code"] == 0;
    check(is_fine, || format!("{script}: {receipt}"))?;
    Ok(receipt)
}

pub(super) fn linked_worktrees_have_git() -> Outcome {
    for (who, world) in
        [("this user's daemon", World::new()), ("an ordinary user's daemon", World::with(ordinary()))]
    {
        let beside = prepare(&world)?;
        let room = Room::of(world, json!({}));
        let work = || {
            for folder in ["tree", "main/sub"] {
                let session = open(&room, &beside.join(folder));
                run(
                    &room,
                    &session,
                    "git status -s && echo 2 > g && git add g && git -c user.name=a -c user.email=a@b commit -q -m 2 && git log --oneline",
                    &["ok"],
                )?;
                run(
                    &room,
                    &session,
                    "git branch b && git stash list && git remote add o https://example.org/o",
                    &["ok"],
                )?;
                // The repository is protected as if it were in the root.
                let before = seen(&beside);
                let common = "$(cd $(git rev-parse --git-common-dir) && pwd)";
                for script in [
                    "git config core.fsmonitor x",
                    &format!("echo x > {common}/hooks/post-checkout"),
                    &format!("echo x > {common}/info/attributes"),
                    "echo 'gitdir: /tmp' > .git",
                ] {
                    run(&room, &session, script, DENIED)?;
                }
                let config = beside.join(if folder == "tree" {
                    "main/.git/config"
                } else {
                    "main/.git/modules/sub/config"
                });
                let mut agent = room.world.quiet_agent(&session);
                let content = json!({ "inline_text": { "text": "x" } });
                let receipt = agent.fs("write_file", json!({ "path": config, "content": content }));
                expect("an effect", &receipt, DENIED)?;
                same(folder, &seen(&beside), &before)?;
            }
            // Nothing else of the repository's surroundings is seen.
            let session = open(&room, &beside.join("tree"));
            let receipt = run(&room, &session, &format!("cat {}/main/f || true", beside.display()), &["ok"])?;
            check(room.stdout(&receipt).is_empty(), || format!("{receipt}"))
        };
        work().map_err(|why: String| format!("{who}: {why}"))?;
        room.finish()?;
    }
    Ok(())
}

/// A `.git` file opens no folder that does not name the root, and none of another user.
pub(super) fn only_what_leads_back() -> Outcome {
    let world = World::new();
    let beside = prepare(&world)?;
    let room = Room::of(world, json!({}));
    let secret = beside.join("main/.git/description");
    std::fs::write(&secret, "SECRET").map_err(|why| why.to_string())?;
    let spoil = |folder: &str, path: &str, content: &str| -> Outcome {
        let folder = beside.join(folder);
        let _ = std::fs::create_dir(&folder);
        if !path.is_empty() {
            std::fs::write(beside.join(path), content).map_err(|why| why.to_string())?;
        }
        let session = open(&room, &folder);
        let receipt = run(&room, &session, &format!("cat {} || true", secret.display()), &["ok"])?;
        check(room.stdout(&receipt).is_empty(), || format!("{path}: {content}: {receipt}"))
    };
    spoil("evil", "evil/.git", "gitdir: ../main/.git\n")?;
    spoil("evil", "evil/.git", "gitdir: ../main/.git/worktrees/tree\n")?;
    spoil("evil", "evil/.git", "gitdir: ../main/.git/worktrees/tree\n\n")?;
    spoil("evil", "evil/.git", "gitdir: /\n")?;
    std::os::unix::fs::symlink("main/.git", beside.join("link")).map_err(|why| why.to_string())?;
    spoil("tree", "tree/.git", "gitdir: ../link/worktrees/tree\n")?;
    let real = format!("gitdir: {}/main/.git/worktrees/tree\n", beside.display());
    spoil("tree", "main/.git/worktrees/tree/commondir", "../../..\n")?;
    std::fs::write(beside.join("tree/.git"), real).map_err(|why| why.to_string())?;
    std::fs::write(beside.join("main/.git/worktrees/tree/commondir"), "../..\n")
        .map_err(|why| why.to_string())?;
    if aos_testkit::is_root() {
        std::os::unix::fs::chown(beside.join("main/.git/worktrees/tree"), Some(4_321), None)
            .map_err(|why| why.to_string())?;
        spoil("tree", "", "")?;
    }
    room.finish()
}
