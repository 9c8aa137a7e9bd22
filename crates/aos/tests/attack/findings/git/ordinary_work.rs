//! Ordinary work with git, each line a command of its own: every one lands.

use serde_json::json;

use super::{call, each_daemon};
use crate::Outcome;

const WORK: &[&str] = &[
    "git status -s",
    "git config user.name 'Somebody Else'",
    "git remote add origin https://example.org/r.git",
    "git remote set-url origin git@example.org:r.git; git remote rename origin up; git remote remove up",
    "echo 2 >> f; git commit -q -am 2",
    "git checkout -q -b topic; echo 3 > g; git add g; git commit -q -m 3; git branch -u main",
    "git checkout -q main; git merge -q --no-ff --no-edit topic",
    "git tag v1; git tag -a v2 -m v2; git branch -m topic other; git branch -d other",
    "echo 4 >> f; git stash -q; git stash pop -q; git checkout -q f",
    "git checkout -q -b r HEAD~1; echo 5 > h; git add h; git commit -q -m 5; git rebase -q main; git checkout -q main",
    "git checkout -q -b c1; echo a > f; git commit -q -am a; git checkout -q main; echo b > f; git commit -q -am b; ! git merge -q c1",
    "git status -s; echo ab > f; git add f; git commit -q --no-edit",
    "git checkout -q r; echo z > f; git commit -q -am z; ! git rebase -q main; ls .git/rebase-merge",
    "git rebase --abort; git checkout -q main",
    "git revert --no-edit HEAD -m 1; git reset -q --hard HEAD~1; git cherry-pick -x c1~1 || git cherry-pick --abort || true",
    "git gc -q; git repack -q -a -d; git pack-refs --all; git fsck",
    "git bisect start HEAD HEAD~2; git bisect good; git bisect reset",
    "git notes add -m n; git rerere; git config rerere.enabled true; git config lfs.repositoryformatversion 0",
    "git notes --ref=n add -m o; ! git notes merge -q n; git notes merge --abort; git fsck --lost-found",
    "git sparse-checkout set --cone sub; git sparse-checkout disable",
    "git worktree add -q w -b w; cd w; echo w > w; git add w; git commit -q -m w",
    "git -C w status -s; git worktree list; git -C w log --oneline -3",
    "git worktree lock --reason why w; git worktree list",
    "git worktree unlock w; git worktree remove w; git worktree prune",
    "git init -q lib; cd lib; git config user.name L; git config user.email l@example.org; echo l > l; git add l; git commit -q -m l",
    "git -c protocol.file.allow=always submodule add -q ./lib deps/lib; git commit -q -m sub",
    "git submodule update -q --init; git submodule status; git -C deps/lib checkout -q -b x; echo y > deps/lib/y; git -C deps/lib add y; git -C deps/lib -c user.name=a -c user.email=a@b commit -q -m y",
    "git submodule deinit -q -f deps/lib",
    "git clone -q lib copy; git -C copy checkout -q -b b; git -C copy config pull.rebase true; git -C copy push -q origin b",
    "git clone -q --bare lib bare.git; git -C bare.git gc -q",
    "git -C copy fetch -q origin; git -C copy pull -q origin b",
    "git init -q --separate-git-dir=$HOME/sep $HOME/x",
];

/// A local clone makes hard links or copies; other programs make hard links.
pub(super) fn local_clones() -> Outcome {
    each_daemon(|room| {
        let one = "git init -q n; cd n; for i in 1 2 3; do echo $i > f$i; git add .; git -c user.name=a -c user.email=a@b commit -q -m $i; done";
        call(room, &format!("set -e; {one}; git repack -q; echo 4 > f4; git add f4"), &["ok"])?;
        call(
            room,
            "set -e; git clone -q n m; git -C m fsck; git -C m log --oneline; git clone -q --mirror n o; git clone -q . p",
            &["ok"],
        )?;
        call(
            room,
            "set -e; git -C m fsck; test \"$(git -C m rev-parse HEAD)\" = \"$(git -C n rev-parse HEAD)\"",
            &["ok"],
        )?;
        // Links of the command's own files, of files that were there before, by many processes at once.
        let links = "set -e; echo a > a; ln a b; ln f g; echo more >> g; test \"$(cat f)\" = \"$(cat g)\"; mkdir l; \
            for i in $(seq 40); do (for k in 1 2 3 4 5; do ln a l/$i.$k; done) & done; wait; test $(ls l | wc -l) = 200; \
            ! ln a b 2>/dev/null; ! ln missing c 2>/dev/null; cp -al l k; test $(stat -c %h a) = 402";
        call(room, links, &["ok"])?;
        // Processes that are killed while they ask leave init well.
        let killed = "for i in $(seq 20); do (while :; do ln a x$i; rm -f x$i; done) 2>/dev/null & pids=\"$pids $!\"; done; sleep 0.2; kill -9 $pids; wait; rm -f x*; ln a end";
        call(room, killed, &["ok"])?;
        let left = room.exec(json!({ "argv": ["sh", "-c", "while :; do ln a y; rm -f y; done"], "timeout_ns": 300_000_000_u64 }));
        aos_testkit::expect("ended while it links", &left, &["timeout", "timeout / timeout"])?;
        // Who has the name of git is answered like git; nothing else about it changes.
        let named = call(room, "cp $(command -v ln) git; ./git a z 2>/dev/null; echo $?; rm git", &["ok"])?;
        aos_testkit::check(matches!(room.stdout(&named).trim(), "0" | "1"), || format!("{named}"))
    })
}

pub(super) fn ordinary_work() -> Outcome {
    each_daemon(|room| {
        for script in WORK {
            call(room, &format!("set -e; {script}"), &["ok"])?;
        }
        Ok(())
    })
}
