//! The rules, on trees in memory.

use std::collections::BTreeMap;

use super::*;

/// A tree in memory: a path with content is a file, one that ends in a slash a folder, one with `->` a link.
#[derive(Default)]
struct Memory(BTreeMap<Vec<u8>, (Kind, Vec<u8>)>);

impl Memory {
    fn of(entries: &[(&str, &str)]) -> Memory {
        let mut tree = Memory::default();
        for (path, content) in entries {
            let absolute = format!("/r/{}", path.trim_end_matches('/')).into_bytes();
            let mut above = absolute.as_slice();
            while let Some(parent) = parent_of(above).filter(|parent| !parent.is_empty()) {
                tree.0.entry(parent.to_vec()).or_insert((Kind::Dir, Vec::new()));
                above = parent;
            }
            let kind = match () {
                () if path.ends_with('/') => Kind::Dir,
                () if content.starts_with("->") => Kind::Symlink,
                () => Kind::File,
            };
            tree.0.insert(absolute, (kind, content.as_bytes().to_vec()));
        }
        tree
    }
}

impl Tree for Memory {
    fn kind(&self, absolute: &[u8]) -> Option<Kind> {
        self.0.get(absolute).map(|(kind, _)| *kind)
    }

    fn read(&self, absolute: &[u8]) -> Option<Vec<u8>> {
        self.0.get(absolute).filter(|(kind, _)| *kind == Kind::File).map(|(_, content)| content.clone())
    }
}

/// The strictest verdict on every path that differs.
fn judge(before: &[(&str, &str)], after: &[(&str, &str)]) -> GitVerdict {
    let (before, after) = (Memory::of(before), Memory::of(after));
    let mut judge = GitJudge::new(&before, &after);
    let mut verdict = GitVerdict::Allowed;
    let paths: std::collections::BTreeSet<_> = before.0.keys().chain(after.0.keys()).collect();
    for path in paths.into_iter().filter(|path| before.0.get(*path) != after.0.get(*path)) {
        match judge.judge(b"/r", path) {
            GitVerdict::Allowed => {}
            GitVerdict::WithheldHook => verdict = GitVerdict::WithheldHook,
            GitVerdict::Denied(why) => {
                return GitVerdict::Denied(format!("{}: {why}", String::from_utf8_lossy(path)));
            }
        }
    }
    verdict
}

fn with<'a>(base: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    base.iter().chain(more).copied().collect()
}

const REPO: &[(&str, &str)] = &[
    (".git/HEAD", "ref: refs/heads/main\n"),
    (".git/config", "[core]\n\tbare = false\n\thooksPath = kept\n"),
    (".git/objects/", ""),
    (".git/refs/", ""),
    (".git/hooks/pre-commit", "user's"),
    ("file", "x"),
];

const BARE: &[(&str, &str)] = &[
    ("b/HEAD", "ref: refs/heads/main\n"),
    ("b/config", "[core]\n\tbare = true\n"),
    ("b/objects/", ""),
    ("b/refs/", ""),
];

const WORKTREE: &[(&str, &str)] = &[
    (".git/worktrees/w/HEAD", "x"),
    (".git/worktrees/w/gitdir", "/r/w/.git\n"),
    (".git/worktrees/w/commondir", "../..\n"),
    ("w/.git", "gitdir: /r/.git/worktrees/w\n"),
    ("w/file", "x"),
];

const SUBMODULE: &[(&str, &str)] = &[
    (".git/modules/a/s/HEAD", "x"),
    (".git/modules/a/s/config", "[core]\n\tworktree = ../../../../s\n"),
    (".git/modules/a/s/objects/", ""),
    (".git/modules/a/s/refs/", ""),
    (".git/modules/a/s/hooks/x.sample", ""),
    ("s/.git", "gitdir: ../.git/modules/a/s\n"),
];

#[test]
fn ordinary_git_work_is_allowed() {
    for more in [
        &[(".git/index", "x"), (".git/COMMIT_EDITMSG", "x"), (".git/refs/heads/config", "x")][..],
        &[(".git/rebase-merge/git-rebase-todo", "pick 1 exec\nfixup 2\n"), (".git/ORIG_HEAD", "x")],
        &[(".git/objects/pack/link", "->x"), (".git/info/exclude", "x"), (".git/index.lock", "x")],
        &[
            (".git/lost-found/commit/1", "x"),
            (".git/NOTES_MERGE_REF", "x"),
            (".git/NOTES_MERGE_WORKTREE/1", "x"),
        ],
        WORKTREE,
        SUBMODULE,
        BARE,
        &[
            ("n/.git/HEAD", "x"),
            ("n/.git/config", "[core]\n\tbare = false\n"),
            ("n/.git/hooks/a.sample", "x"),
            ("n/.git/branches/", ""),
        ],
    ] {
        assert_eq!(judge(REPO, &with(REPO, more)), GitVerdict::Allowed, "{more:?}");
    }
    assert_eq!(judge(&with(REPO, WORKTREE), REPO), GitVerdict::Allowed, "a worktree is removed");
    let locked = with(&with(REPO, WORKTREE), &[(".git/worktrees/w/locked", "x")]);
    assert_eq!(judge(&with(REPO, WORKTREE), &locked), GitVerdict::Allowed, "a worktree is locked");
    let remote = "[core]\n\tbare = false\n\thooksPath = kept\n[remote \"o\"]\n\turl = x\n";
    assert_eq!(judge(REPO, &with(REPO, &[(".git/config", remote)])), GitVerdict::Allowed);
}

#[test]
fn hooks_of_a_new_repository_are_withheld() {
    for hook in ["n/.git/hooks/pre-commit", "n/.git/hooks/a.sample/x", "s/.git/hooks/post-checkout"] {
        let after = with(REPO, &[(hook, "x"), ("n/.git/HEAD", "x")]);
        assert_eq!(judge(REPO, &after), GitVerdict::WithheldHook, "{hook}");
    }
    assert_eq!(judge(REPO, &with(REPO, &[("n/.git/hooks/x", "->/bin/sh")])), GitVerdict::WithheldHook);
}

#[test]
fn what_would_run_code_is_denied() {
    let evil = "[core]\n\tfsmonitor = x\n";
    let outside = "[core]\n\tworktree = /etc\n";
    for more in [
        &[(".git/commondir", "../x\n")][..],
        &[(".git/config.worktree", evil)],
        &[(".git/config.lock", evil)],
        &[(".git/config", "->../x")],
        &[(".git/CONFIG", "")],
        &[(".git/gitdir", "x")],
        &[(".git/locked", "x")],
        &[(".git/NOTES_MERGE_WORKTREE", "->../x")],
        &[(".git/info/attributes", "* filter=x")],
        &[(".git/hooks/pre-commit", "mine")],
        &[(".git/hooks/new.sample", "x")],
        &[(".git/modules/a/config", "")],
        &[(".git/modules/x", "->../y")],
        &[(".git/worktrees/x", "file")],
        &[(".git/worktrees/x/config", evil)],
        &[(".git/worktrees/x/commondir", "../../../x\n")],
        &[(".git/worktrees/x/gitdir", "/r/file\n")],
        &[(".git/rebase-merge", "->../x")],
        &[(".git/rebase-merge/git-rebase-todo", "pick 1\n \tx rm\n")],
        &[(".git/rebase-apply/git-rebase-todo.backup", "exec rm\n")],
        &[("n/.git", "gitdir: ../b\n")],
        &[("n/.git", "gitdir: /etc\n")],
        &[("n/.git", "->../b")],
        &[("n/.git/config", evil)],
        &[("n/.GIT/config", evil)],
        &[("n/HEAD", "x"), ("n/objects/", ""), ("n/refs/", ""), ("n/config", evil)],
        &[("n/HEAD", "x"), ("n/commondir", "../b"), ("file", "y")],
        &[("n/HEAD", "x"), ("n/objects/", ""), ("n/refs/", ""), ("n/config", outside)],
        &[
            (".git/objects/n/HEAD", "x"),
            (".git/objects/n/objects/", ""),
            (".git/objects/n/refs/", ""),
            (".git/objects/n/config", evil),
        ],
        &[(".git/hooks/HEAD", "x"), (".git/hooks/objects/", ""), (".git/hooks/refs/", "")],
        &[("HEAD", "x"), ("objects/", ""), ("refs/", ""), ("config", evil)],
    ] {
        assert!(matches!(judge(REPO, &with(REPO, more)), GitVerdict::Denied(_)), "{more:?}");
    }
    let without_hooks: Vec<_> = REPO.iter().copied().filter(|(path, _)| !path.contains("hooks")).collect();
    assert!(matches!(judge(REPO, &without_hooks), GitVerdict::Denied(_)), "hooks are removed");
    assert!(matches!(judge(REPO, &[("file", "x")]), GitVerdict::Denied(_)), ".git is removed");
}

#[test]
fn a_folder_that_becomes_a_git_folder_is_judged_as_a_whole() {
    for there in ["n/config", "n/hooks/post-checkout", "n/worktrees/x/config", "n/commondir"] {
        let before = with(REPO, &[(there, "[core]\n\tfsmonitor = x\n"), ("n/objects/", ""), ("n/refs/", "")]);
        let after = with(&before, &[("n/HEAD", "x")]);
        assert!(matches!(judge(&before, &after), GitVerdict::Denied(_)), "{there}");
    }
    let before = with(REPO, &[("n/config", "[core]\n\tbare = true\n"), ("n/objects/", ""), ("n/refs/", "")]);
    assert_eq!(judge(&before, &with(&before, &[("n/HEAD", "x")])), GitVerdict::Allowed);
}

#[test]
fn both_ends_of_a_worktree_name_each_other() {
    let both = with(REPO, WORKTREE);
    assert_eq!(judge(REPO, &both), GitVerdict::Allowed);
    for (path, content) in [
        ("w/.git", "gitdir: /r/.git\n"),
        ("w/.git", "gitdir: ../b/../.git/worktrees/w\n"),
        (".git/worktrees/w/gitdir", "/r/other/.git\n"),
        (".git/worktrees/w/commondir", "../../../b\n"),
    ] {
        assert!(
            matches!(judge(&both, &with(&both, &[(path, content)])), GitVerdict::Denied(_)),
            "{path}: {content}"
        );
    }
}

#[test]
fn paths_are_joined_as_text_only_where_no_link_matters() {
    assert_eq!(join(b"/r/a", b"../b/./c"), Some(b"/r/b/c".to_vec()));
    assert_eq!(join(b"/r/a", b"/x"), Some(b"/x".to_vec()));
    assert_eq!(join(b"/r/a", b"x/../y"), None);
    assert_eq!(join(b"/r", b"../../x"), None);
}
