//! What may change in a git folder, by a command and by an effect.

use aos_testkit::{Findings, Start, World, check, expect, warning_codes};
use serde_json::json;

use super::{call, each_daemon};
use crate::Outcome;
use crate::exec::room::{Room, ordinary};
use crate::shell_undo::{same, seen};

const DENIED: &[&str] = &["forbidden / protected_path"];

/// Each of these makes the user's next `git status` run code, or the one after the next command.
const ATTACKS: &[&str] = &[
    "mkdir e; cp -r .git/. e/; printf '[core]\\nfsmonitor = ./x\\n' >> e/config; echo ../e > .git/commondir",
    "git config extensions.worktreeConfig true; printf '[core]\\nfsmonitor = ./x\\n' > .git/config.worktree",
    "git config core.fsmonitor ./x",
    "git config core.hooksPath hooks",
    "git config --unset core.editor",
    "git config alias.st '!x'",
    "git config remote.o.url 'ext::sh -c x'",
    "git config remote.o.url -- -x",
    "git config branch.main.remote ext::x",
    // `git fetch --all` passes the names of remotes as arguments.
    "git config 'remote.--upload-pack=touch x;.url' .",
    "git config 'remote.--upload-pack=x.promisor' true",
    "git config 'remote.ext::sh -c x.prune' true",
    "git config extensions.partialClone -- --upload-pack=x",
    "git config 'branch.--x.merge' refs/heads/main",
    "git config 'submodule.--x.active' true",
    "git config submodule.s.update '!x'",
    "git config commit.gpgsign true",
    "git config include.path ../x",
    "printf '[user]\\nname = a\\\\\\nb\\n' >> .git/config",
    "ln -sf ../f .git/config",
    "mkdir -p .git/modules/m/objects .git/modules/m/refs; echo x > .git/modules/m/HEAD; printf '[core]\\nfsmonitor = x\\n' > .git/modules/m/config",
    "mkdir -p .git/modules/m; echo > .git/modules/m/config",
    "mkdir -p .git/worktrees/w; echo ../../e > .git/worktrees/w/commondir",
    "mkdir -p .git/worktrees/w; printf '[core]\\nfsmonitor = x\\n' > .git/worktrees/w/config",
    "mkdir s; echo 'gitdir: /tmp/x' > s/.git",
    "mkdir s; echo 'gitdir: ../.git' > s/.git",
    "git init -q --bare b; mkdir s; echo 'gitdir: ../b' > s/.git",
    "mkdir s; ln -s ../.git s/.git",
    "git init -q --bare b; git -C b config core.fsmonitor x",
    "git init -q n; git -C n config core.fsmonitor x",
    "git init -q n; git -C n config core.worktree /etc",
    "mkdir -p n/.GIT; printf '[core]\\nfsmonitor = x\\n' > n/.GIT/config",
    "mkdir -p objects refs; echo 'ref: refs/heads/main' > HEAD; printf '[core]\\nfsmonitor = x\\n' > config",
    "mkdir -p .git/objects/n/objects .git/objects/n/refs; echo x > .git/objects/n/HEAD; printf '[core]\\nfsmonitor = x\\n' > .git/objects/n/config",
    "echo x > .git/hooks/post-checkout",
    "echo x >> .git/hooks/pre-commit",
    "chmod 644 .git/hooks/pre-commit",
    "rm .git/hooks/pre-commit",
    "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
    "mkdir .git/rebase-merge; printf 'pick 1\\n exec x\\n' > .git/rebase-merge/git-rebase-todo",
    "mkdir .git/rebase-merge; printf 'x ./x\\n' > .git/rebase-merge/git-rebase-todo",
    "mkdir e; echo 'x ./x' > e/git-rebase-todo; ln -s ../e .git/rebase-merge",
    "mv .git g; mkdir .git; cp -r g/. .git; echo '[alias]' >> .git/config; echo 'a = !x' >> .git/config",
    "mv .git elsewhere",
    "rm -rf .git",
    "mkdir -p .hg; echo x > .hg/hgrc",
    // A link where a folder would hold protected names.
    "mkdir s; echo x > s/settings.json; ln -s s .claude",
    "mkdir -p s n; echo x > s/tasks.json; ln -s ../s n/.VSCode",
    "mkdir -p s/repo; ln -s s .jj; echo x > s/repo/config.toml",
    "mkdir -p .jj s; ln -s ../s .jj/repo",
    "ln -s nowhere .cursor",
    "mkdir -p .jj/repo; echo x > .jj/repo/config.toml",
];

pub(super) fn what_runs_code_does_not_land() -> Outcome {
    each_daemon(|room| {
        let before = seen(&room.world.root);
        for script in ATTACKS {
            call(room, script, DENIED)?;
            same(script, &seen(&room.world.root), &before)?;
        }
        // Unchanged bytes are not a change.
        call(room, "touch .git/config .git/hooks/pre-commit", &["ok"])?;
        same("touched", &seen(&room.world.root), &before)
    })
}

/// A repository that the command makes lands without its hooks.
pub(super) fn new_repositories() -> Outcome {
    each_daemon(|room| {
        let script = "git init -q n; echo x > n/.git/hooks/pre-commit; ln -s /bin/true n/.git/hooks/pre-push; \
            git init -q --bare b; echo x > b/hooks/update; echo kept > n/file";
        let receipt = call(room, script, &["ok"])?;
        check(warning_codes(&receipt).contains(&"hooks_withheld"), || format!("{receipt}"))?;
        for (path, lands) in [
            ("n/.git/HEAD", true),
            ("n/.git/hooks", true),
            ("n/file", true),
            ("b/config", true),
            ("n/.git/hooks/pre-commit", false),
            ("n/.git/hooks/pre-push", false),
            ("b/hooks/update", false),
        ] {
            check(room.world.root.join(path).symlink_metadata().is_ok() == lands, || {
                format!("{path}: {lands}")
            })?;
        }
        let withheld = receipt["withheld_paths"].as_array().map_or(0, Vec::len);
        check(withheld == 3, || format!("{receipt}"))?;
        let listed = receipt["changed_paths"].to_string();
        check(!listed.contains("pre-commit\""), || listed)
    })
}

/// What was written as an ordinary file is judged when the folder becomes a git folder, whoever completes it.
pub(super) fn completed_later() -> Outcome {
    each_daemon(|room| {
        let parts = "mkdir -p n/objects n/refs n/hooks; printf '[core]\\nfsmonitor = x\\n' > n/config; echo x > n/hooks/update";
        call(room, parts, &["ok"])?;
        call(room, "mkdir -p m/objects m/refs; printf '[core]\\nfsmonitor = x\\n' > m/config", &["ok"])?;
        call(room, "echo 'ref: refs/heads/main' > m/HEAD", DENIED)?;
        call(room, "echo 'ref: refs/heads/main' > n/HEAD", DENIED)?;
        call(room, "echo 'ref: refs/heads/main' > HEAD; mv HEAD n/HEAD", DENIED)?;
        let mut agent = room.world.quiet_agent(&room.session);
        for (path, content) in [("n/HEAD", "x"), ("n/commondir", "x")] {
            let receipt = agent.write(path, content);
            let allowed = if path == "n/HEAD" { DENIED } else { &["ok"] };
            expect(path, &receipt, allowed)?;
        }
        call(room, "echo 'ref: refs/heads/main' > n/HEAD", DENIED)?;
        call(room, "rm -r n/hooks n/config n/commondir; echo 'ref: refs/heads/main' > n/HEAD", &["ok"])?;
        expect("config", &agent.write("n/config", "x"), DENIED)?;
        expect("hooks", &agent.write("n/hooks/update", "x"), DENIED)?;
        call(room, "printf '[core]\\nbare = true\\n' > n/config", &["ok"]).map(drop)
    })
}

/// Effects on files never write configuration, hooks or anything else that git interprets.
pub(super) fn effects_never_configure_git() -> Outcome {
    each_daemon(|room| {
        let before = seen(&room.world.root);
        let mut agent = room.world.quiet_agent(&room.session);
        for path in [
            ".git/config",
            ".git/config.worktree",
            ".git/commondir",
            ".git/modules/m/config",
            ".git/worktrees/w/gitdir",
            ".git/info/attributes",
            ".git/hooks/x.sample",
            ".git/rebase-merge/git-rebase-todo",
            "sub/.git",
            ".hg/hgrc",
            ".jj/repo/config.toml",
        ] {
            let content = json!({ "inline_text": { "text": "x" } });
            let write = json!({ "path": path, "content": content, "create_parents": true });
            expect(path, &agent.fs("write_file", write), DENIED)?;
            let moved = json!({ "from": "f", "to": path });
            expect(path, &agent.fs("move", moved), &["forbidden / protected_path", "not_found"])?;
        }
        let bare = "*** Add File: b/HEAD\n+x\n*** Add File: b/objects/x\n+x\n*** Add File: b/refs/x\n+x\n*** Add File: b/config\n+x\n";
        expect("a bare repository by patch", &agent.patch(bare), DENIED)?;
        same("effects", &seen(&room.world.root), &before)?;
        expect("HEAD", &agent.write(".git/MERGE_MSG", "x"), &["ok"])
    })
}

/// The folder of `core.hooksPath` is protected like `.git/hooks`.
pub(super) fn hooks_path() -> Outcome {
    each_daemon(|room| {
        let config = room.world.root.join(".git/config");
        let text = std::fs::read_to_string(&config).map_err(|why| why.to_string())?;
        std::fs::write(&config, text + "[core]\n\thooksPath = tools/hooks\n")
            .map_err(|why| why.to_string())?;
        call(room, "mkdir -p tools/hooks; echo x > tools/hooks/pre-commit", DENIED)?;
        call(room, "mkdir -p tools/other; echo x > tools/other/pre-commit", &["ok"])?;
        let mut agent = room.world.quiet_agent(&room.session);
        let content = json!({ "inline_text": { "text": "x" } });
        let write = json!({ "path": "tools/hooks/update", "content": content, "create_parents": true });
        expect("hooks", &agent.fs("write_file", write), DENIED)
    })
}

/// The same for a `core.hooksPath` that counts elsewhere too: in linked worktrees, and that of the user's own
/// configuration in each repository.
pub(super) fn hooks_path_elsewhere() -> Outcome {
    let mut findings = Findings::default();
    for uid in [None, ordinary().uid] {
        let home = tempfile::tempdir().map_err(|why| why.to_string())?;
        std::os::unix::fs::chown(home.path(), uid, uid).map_err(|why| why.to_string())?;
        let global = "[core]\n\thooksPath = .user-hooks\n";
        std::fs::write(home.path().join(".gitconfig"), global).map_err(|why| why.to_string())?;
        let env = vec![("HOME".to_owned(), home.path().display().to_string())];
        let world = World::with(Start { uid, env, ..Start::default() });
        super::prepare(&world)?;
        super::run_outside(&world, "git worktree add -q w && git config core.hooksPath tools/hooks")?;
        let room = Room::of(world, json!({ "policy": { "preset": "permissive" } }));
        let mut agent = room.world.quiet_agent(&room.session);
        for path in ["tools/hooks/a", "w/tools/hooks/a", ".user-hooks/a", "w/.user-hooks/a", "w/.user-hooks"]
        {
            let script = format!("mkdir -p $(dirname {path}); echo x > {path}");
            findings.add(call(&room, &script, DENIED).map(drop));
            let content = json!({ "inline_text": { "text": "x" } });
            let write = json!({ "path": path, "content": content, "create_parents": true });
            findings.add(expect(path, &agent.fs("write_file", write), DENIED));
        }
        for path in ["sub/.user-hooks/a", "sub/tools/hooks/a"] {
            findings
                .add(call(&room, &format!("mkdir -p $(dirname {path}); echo x > {path}"), &["ok"]).map(drop));
        }
        let local = json!({ "workdir": room.world.root.join("w") });
        let of_worktree = room.another(json!({ "local": local, "policy": { "preset": "permissive" } }));
        for path in ["tools/hooks/a", ".user-hooks/a"] {
            let script = format!("mkdir -p $(dirname {path}); echo x > {path}");
            let receipt = room.exec_in(&of_worktree, json!({ "argv": ["sh", "-c", script] }));
            findings.add(expect(path, &receipt, DENIED));
        }
        room.finish()?;
    }
    findings.outcome()
}

/// A link in the place of a folder that would hold protected names: none comes, and the user's own stays.
pub(super) fn links() -> Outcome {
    each_daemon(|room| {
        let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, room.world.root.join(at)).unwrap();
        for folder in ["s", "n"] {
            std::fs::create_dir(room.world.root.join(folder)).unwrap();
        }
        link("s", "plain");
        link("s", ".claude");
        super::run_outside(&room.world, "true")?;
        let mut agent = room.world.quiet_agent(&room.session);
        for (from, to) in [("plain", ".vscode"), ("plain", "n/.CURSOR"), (".claude", "other")] {
            let moved = json!({ "from": from, "to": to });
            expect(to, &agent.fs("move", moved), DENIED)?;
        }
        expect("a removal", &agent.fs("remove", json!({ "path": ".claude" })), DENIED)?;
        for script in ["rm .claude", "rm .claude; mkdir .claude", "ln -sfn f .claude", "mv plain .hg"] {
            call(room, script, DENIED)?;
        }
        expect("an ordinary link", &agent.fs("move", json!({ "from": "plain", "to": "b" })), &["ok"])?;
        let kept = std::fs::read_link(room.world.root.join(".claude")).is_ok_and(|to| to.as_os_str() == "s");
        check(kept, || "the user's link is gone".into())
    })
}

/// Where the user's own names are links, or configuration includes a file, what they lead to is protected like them.
const LED_TO: &str = "mkdir hk gh cl .vscode by-include; ln -s hk hl; git config core.hooksPath hl; rm -r .git/hooks; ln -s ../gh .git/hooks; \
    echo x > m.json; ln -s m.json .mcp.json; ln -s cl .claude; echo x > t.json; ln -s ../t.json .vscode/tasks.json; \
    printf '[core]\\n\\thooksPath = by-include\\n' > gc; git config include.path ../gc";

pub(super) fn what_links_lead_to() -> Outcome {
    let mut findings = Findings::default();
    for uid in [None, ordinary().uid] {
        for (extra, capture) in [
            (json!({}), "auto"),
            (json!({ "capability": { "exec": { "uncaptured": true } } }), "none"),
            (json!({ "isolation": "none" }), "auto"),
        ] {
            let world = World::with(Start { uid, ..Start::default() });
            super::prepare(&world)?;
            super::run_outside(&world, LED_TO)?;
            let mut params = extra.clone();
            params["policy"] = json!({ "preset": "permissive" });
            let room = Room::of(world, params);
            let before = seen(&room.world.root);
            let mut agent = room.world.quiet_agent(&room.session);
            for path in [
                "hk/a",
                "hl/b",
                "gh/c",
                "m.json",
                "cl/settings.json",
                "t.json",
                "gc",
                "by-include/d",
                ".claude/d",
            ] {
                let content = json!({ "inline_text": { "text": "y" } });
                let write = json!({ "path": path, "content": content, "create_parents": true });
                findings.add(expect(path, &agent.fs("write_file", write), DENIED));
                let script = format!("mkdir -p $(dirname {path}); rm -f {path}; echo y > {path}");
                let receipt = room.exec(json!({ "argv": ["sh", "-c", script], "capture": capture }));
                let now = seen(&room.world.root);
                findings.add(same(&format!("{extra} {path}: {receipt}"), &now, &before));
            }
            room.finish()?;
        }
    }
    findings.outcome()
}

/// What git wrote is undone like any other change.
pub(super) fn undo() -> Outcome {
    each_daemon(|room| {
        call(room, "git worktree add -q v -b v", &["ok"])?;
        for script in [
            "git remote add o https://example.org/o",
            "git init -q n; git init -q --bare b",
            "git worktree add -q w -b w",
            "git worktree remove v",
            "echo 2 > f; git commit -q -am 2",
        ] {
            let before = seen(&room.world.root);
            let receipt = room.call("tc_git", script);
            expect(script, &receipt, &["ok"])?;
            check(receipt["exit_code"] == 0, || format!("{script}: {receipt}"))?;
            expect(script, &room.undo("tc_git"), &["ok"])?;
            same(script, &seen(&room.world.root), &before)?;
        }
        Ok(())
    })
}
