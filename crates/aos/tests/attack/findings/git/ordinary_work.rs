//! Ordinary work with git, each line a command of its own: every one lands.

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
    "git notes add -m n; git rerere; git config rerere.enabled true",
    "git sparse-checkout set --cone sub; git sparse-checkout disable",
    "git worktree add -q w -b w; cd w; echo w > w; git add w; git commit -q -m w",
    "git -C w status -s; git worktree list; git -C w log --oneline -3",
    "git worktree remove w; git worktree prune",
    "git init -q lib; cd lib; git config user.name L; git config user.email l@example.org; echo l > l; git add l; git commit -q -m l",
    "git -c protocol.file.allow=always submodule add -q file://$PWD/lib deps/lib; git commit -q -m sub",
    "git submodule update -q --init; git submodule status; git -C deps/lib checkout -q -b x; echo y > deps/lib/y; git -C deps/lib add y; git -C deps/lib -c user.name=a -c user.email=a@b commit -q -m y",
    "git submodule deinit -q -f deps/lib",
    "git clone -q --no-hardlinks lib copy; git -C copy checkout -q -b b; git -C copy config pull.rebase true; git -C copy push -q origin b",
    "git clone -q --bare --no-hardlinks lib bare.git; git -C bare.git gc -q",
    "git -C copy fetch -q origin; git -C copy pull -q origin b",
    "git init -q --separate-git-dir=$HOME/sep $HOME/x",
];

pub(super) fn ordinary_work() -> Outcome {
    each_daemon(|room| {
        for script in WORK {
            call(room, &format!("set -e; {script}"), &["ok"])?;
        }
        Ok(())
    })
}
