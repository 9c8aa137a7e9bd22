//! Without an overlay, and in folders that are not captured: what is protected or denied is as before afterwards.

mod beside;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

use aos_testkit::{Findings, Start, World, check, expect, uncaptured, verdict, warning_codes};
use serde_json::{Value, json};

use crate::exec::isolation::no_namespaces;
use crate::exec::room::{Room, ordinary};
use crate::write_edit::mode_of;
use crate::{Case, Need, Outcome, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![
        plain("S2", what_is_denied_is_put_back),
        Case { id: "OWN-S2-ANOTHERS", needs: &[Need::Root], run: another_users_folder_is_put_back },
        plain("OWN-S2-ORDINARY", ordinary_work_is_not_refused),
        plain("OWN-S2-WITHHOLD", withheld_paths_are_put_back),
        plain("OWN-S2-CLOSED", what_is_hidden_is_put_back),
        plain("OWN-S2-BOUNDS", what_cannot_be_compared_does_not_run),
        plain("OWN-S2-BESIDE", beside::commands_beside_each_other),
        plain("OWN-S2-STOPPED", beside::a_stopped_daemon),
        plain("OWN-S2-KILLED", beside::a_killed_daemon),
        plain("S27", excluded_folders_are_policed),
        plain("OWN-S27-FOLDER", an_excluded_folder_itself_is_policed),
        plain("OWN-S27-GLOBS", globs_that_reach_what_is_protected_are_invalid),
    ]
}

const GUARDED: &[&str] = &[
    ".git/config",
    ".git/hooks/pre-commit",
    ".mcp.json",
    ".codex/config.toml",
    "sub/.claude/settings.json",
    "locked/a",
    "locked/deep/b",
    "keep.txt",
    "hooked/pre-push",
];

fn furnish(world: &World) {
    for folder in [".git/objects", ".git/refs", "build"] {
        std::fs::create_dir_all(world.root.join(folder)).unwrap();
    }
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    world.write(".git/config", "[core]\n\tbare = false\n\thooksPath = hooked\n");
    for path in &GUARDED[1..] {
        world.write(path, format!("content of {path}\n"));
    }
    std::fs::set_permissions(
        world.root.join(".git/hooks/pre-commit"),
        std::fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    world.write("plain.txt", "plain\n");
    world.write(".git/logs/HEAD", "0 1 U <u@x> 1 +0000\tcommit: 1\n");
    std::os::unix::fs::symlink("mercurial", world.root.join(".hg")).unwrap();
    give_to_owner(world);
}

/// The daemon of an ordinary user works on files of its own.
fn give_to_owner(world: &World) {
    let owner = std::fs::metadata(&world.root).unwrap().uid();
    let _ = std::process::Command::new("chown").arg("-R").arg(owner.to_string()).arg(&world.root).status();
}

type Seen = Option<(u32, u32, Vec<u8>)>;

/// Mode, owner and content of what must not change; `None` where it is no file.
fn state(world: &World) -> Vec<(String, Seen)> {
    let of = |path: &&str| {
        let full = world.root.join(path);
        let meta = full.symlink_metadata().ok().filter(std::fs::Metadata::is_file);
        let seen = meta.map(|meta| (meta.mode(), meta.uid(), std::fs::read(&full).unwrap_or_default()));
        ((*path).to_owned(), seen)
    };
    GUARDED.iter().map(of).collect()
}

fn rules() -> Value {
    json!({ "preset": "permissive", "rules": [
        { "name": "locked", "ops": ["write", "remove"], "paths": ["locked/**", "keep.txt"], "decision": "deny" },
    ] })
}

/// Each changes something that it may not.
const ATTACKS: &[&str] = &[
    "echo x >> .git/config",
    "printf '[core]\\n\\tfsmonitor = ./x\\n' > .git/config",
    "mv .git g; mkdir .git; printf '[core]\\n\\tfsmonitor = ./x\\n' > .git/config; rm g/config; mv g/* .git/; true",
    "echo x > .git/hooks/post-checkout",
    "echo x > .git/hooks/pre-commit; rm -f .git/hooks/pre-commit",
    "chmod 777 .git/hooks/pre-commit",
    "echo x > hooked/pre-push; echo y > hooked/new",
    "printf '[core]\\n\\thooksPath = other\\n' > .git/config; echo x > hooked/pre-push",
    "rm -f .mcp.json; ln -s /etc/passwd .mcp.json",
    "rm -rf .codex; mkdir .codex; echo evil > .codex/config.toml",
    "rm -rf .codex; ln -s locked .codex",
    "mkdir -p new/.claude; echo x > new/.claude/settings.json",
    "mv sub s2; mkdir -p sub/.claude; echo x > sub/.claude/settings.json",
    "rm -rf locked",
    "rm -rf locked; ln -s /tmp locked",
    "mv locked elsewhere",
    "echo x > locked/a; echo y > locked/new",
    "rm -f keep.txt; mkdir keep.txt; touch keep.txt/in",
    "echo x > keep.txt; chmod 600 keep.txt",
    "printf '[core]\\n\\tfsmonitor = ./x\\n' > .git/config.worktree",
    "echo /elsewhere > .git/commondir",
    "mkdir -p bare/objects bare/refs; echo 'ref: x' > bare/HEAD; printf '[core]\\n\\tfsmonitor = ./x\\n' > bare/config",
    "printf 'gitdir: /tmp/evil\\n' > sub/.git",
    "ln -s /tmp/evil sub/.git",
    "mkdir sub/.GIT",
    "ln -f plain.txt keep.txt; echo x > plain.txt",
    "echo x > build/.mcp.json",
    "mkdir s; echo x > s/tasks.json; ln -s s .vscode",
    "mkdir -p s n; echo x > s/settings.json; ln -s ../s n/.CLAUDE",
    "rm .hg; mkdir .hg; echo x > .hg/hgrc",
    "rm .git/logs/HEAD; ln -s ../../plain.txt .git/logs/HEAD",
    // The size and the mtime are as before.
    "touch -r keep.txt t; printf 'CONTENT of keep.txt\n' > keep.txt; touch -r t keep.txt",
    "touch -r .mcp.json t; printf 'CONTENT of .mcp.json\n' > .mcp.json; touch -r t .mcp.json",
    "cp -p keep.txt t; sed -i s/content/CONTENT/ keep.txt; touch -r t keep.txt",
    "cp -p .git/hooks/pre-commit t; rm .git/hooks/pre-commit; sed s/content/CONTENT/ t > .git/hooks/pre-commit; \
        chmod 755 .git/hooks/pre-commit; touch -r t .git/hooks/pre-commit",
];

/// How a session's commands run without an overlay.
fn modes() -> Vec<(&'static str, Start, Value, &'static str)> {
    let base = || uncaptured(json!({ "policy": rules() }));
    let with = |key: &str, value: Value| {
        let mut params = base();
        params[key] = value;
        params
    };
    let mut mounts = base();
    mounts["capability"]["cross_mounts"] = json!(true);
    vec![
        ("uncaptured", Start::default(), base(), "none"),
        ("uncaptured, ordinary user", ordinary(), base(), "none"),
        ("cross_mounts", Start::default(), mounts.clone(), "auto"),
        ("cross_mounts, ordinary user", ordinary(), mounts, "auto"),
        ("no isolation", Start::default(), with("isolation", json!("none")), "auto"),
        ("no isolation, ordinary user", ordinary(), with("isolation", json!("none")), "none"),
        ("reduced", no_namespaces(), with("allow_reduced", json!(true)), "auto"),
    ]
}

fn what_is_denied_is_put_back() -> Outcome {
    let mut findings = Findings::default();
    for (mode, start, params, capture) in modes() {
        let room = Room::of(World::with(start), params);
        for attack in ATTACKS {
            empty(&room.world);
            furnish(&room.world);
            if attack.contains("touch -r") {
                // What changed a moment ago is compared by its bytes, not by its times.
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            let before = state(&room.world);
            let script = format!("{attack}; echo said; echo new > plain.new");
            let receipt = room.exec(json!({ "argv": ["sh", "-c", script], "capture": capture }));
            let after = state(&room.world);
            let differs: Vec<_> = before.iter().zip(&after).filter(|(was, now)| was != now).collect();
            findings.add(check(differs.is_empty(), || format!("{mode}: {attack}: {differs:?} {receipt}")));
            for path in ["new/.claude/settings.json", ".git/hooks/post-checkout", "hooked/new", "locked/new"]
            {
                let left = room.world.root.join(path).symlink_metadata().is_ok();
                findings.add(check(!left, || format!("{mode}: {attack}: {path} is there: {receipt}")));
            }
            for path in [".git/config.worktree", ".git/commondir", "sub/.git", "sub/.GIT", "build/.mcp.json"]
            {
                let left = room.world.root.join(path).symlink_metadata().is_ok();
                findings.add(check(!left, || format!("{mode}: {attack}: {path} is there: {receipt}")));
            }
            let link = std::fs::read_link(room.world.root.join(".hg"));
            findings.add(check(link.is_ok(), || format!("{mode}: {attack}: .hg is no link: {receipt}")));
            for path in [".vscode", "n/.CLAUDE", ".git/logs/HEAD"] {
                let is_link = room.world.root.join(path).is_symlink();
                findings.add(check(!is_link, || format!("{mode}: {attack}: {path} is a link: {receipt}")));
            }
            let bare = ["HEAD", "config"].iter().all(|name| room.world.root.join("bare").join(name).exists());
            findings.add(check(!bare, || format!("{mode}: {attack}: a bare repository: {receipt}")));
            let said = verdict(&receipt);
            let is_told = said == "forbidden / protected_path" || said == "forbidden / policy_denied";
            if is_told {
                let denied = receipt["denied_paths_count"].as_u64().unwrap_or(0) > 0;
                let kept = receipt["changed_paths"].to_string().contains("plain.new");
                let whole = denied && kept && room.stdout(&receipt).ends_with("said\n");
                findings.add(check(whole, || format!("{mode}: {attack}: {receipt}")));
            }
            let landed = room.world.root.join("plain.new").exists();
            findings.add(check(landed, || format!("{mode}: {attack}: the rest did not stay: {receipt}")));
            // Without mounts nothing kept it from changing, so it was changed and put back.
            let is_bare = !mode.starts_with("uncaptured") && !mode.starts_with("cross_mounts");
            findings.add(check(is_told || !is_bare, || format!("{mode}: {attack}: {receipt}")));
        }
        room.world_finish()?;
    }
    findings.outcome()
}

/// A daemon of root in a folder of another user, whose rights its effects and commands have.
fn another_users_folder_is_put_back() -> Outcome {
    let mut findings = Findings::default();
    let mut none = json!({ "policy": rules() });
    none["isolation"] = json!("none");
    for (params, capture) in [(uncaptured(json!({ "policy": rules() })), "none"), (none, "auto")] {
        let world = World::new();
        std::os::unix::fs::chown(&world.root, ordinary().uid, ordinary().uid).unwrap();
        let room = Room::of(world, params);
        for attack in ATTACKS {
            empty(&room.world);
            furnish(&room.world);
            let before = state(&room.world);
            let receipt = room.exec(json!({ "argv": ["sh", "-c", attack], "capture": capture }));
            let after = state(&room.world);
            findings.add(check(before == after, || format!("{capture}: {attack}: {after:?} {receipt}")));
        }
        room.world_finish()?;
    }
    findings.outcome()
}

/// Removes everything in the root.
fn empty(world: &World) {
    for entry in std::fs::read_dir(&world.root).unwrap().flatten() {
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let _ = if is_dir { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }
}

fn ordinary_work_is_not_refused() -> Outcome {
    let mut findings = Findings::default();
    for (mode, start, params, capture) in modes() {
        let room = Room::of(World::with(start), params);
        furnish(&room.world);
        for script in [
            "echo x > plain.txt; mkdir -p a/b; echo y > a/b/c; rm -r a",
            "echo x > .git/index; mkdir -p .git/refs/heads; echo y > .git/refs/heads/main; echo z > .git/COMMIT_EDITMSG",
            "cat .git/config .mcp.json locked/a keep.txt > copy",
            "touch unchanged; cp -p plain.txt copy2; mv copy2 copy3",
        ] {
            let receipt = room.exec(json!({ "argv": ["sh", "-ec", script], "capture": capture }));
            let fine = verdict(&receipt) == "ok" && receipt["exit_code"] == 0;
            findings.add(check(fine, || format!("{mode}: {script}: {receipt}")));
        }
        if mode.starts_with("no isolation") || mode == "reduced" {
            // Bytes, kind and mode are the same: no change, whatever the time says.
            let touch = "touch .git/config keep.txt; cp -p keep.txt k; mv k keep.txt";
            let receipt = room.exec(json!({ "argv": ["sh", "-ec", touch], "capture": capture }));
            findings.add(expect(&format!("{mode}: touch"), &receipt, &["ok"]));
            // A key of git's configuration that runs nothing may change.
            let remote = "printf '[remote \"o\"]\\n\\turl = https://example.org/x\\n' >> .git/config";
            let receipt = room.exec(json!({ "argv": ["sh", "-ec", remote], "capture": capture }));
            findings.add(expect(&format!("{mode}: remote"), &receipt, &["ok"]));
        }
        room.world_finish()?;
    }
    findings.outcome()
}

fn withheld_paths_are_put_back() -> Outcome {
    let params = json!({ "isolation": "none", "capability": { "protected_paths": "withhold" }, "policy": { "preset": "permissive" } });
    let room = Room::of(World::new(), params);
    furnish(&room.world);
    let before = state(&room.world);
    let receipt = room.sh("echo x > .mcp.json; echo y > .git/hooks/pre-commit; echo z > plain.txt");
    expect("withheld", &receipt, &["ok"])?;
    check(warning_codes(&receipt).contains(&"protected_withheld"), || format!("{receipt}"))?;
    check(receipt["withheld_paths"] == json!([".git/hooks/pre-commit", ".mcp.json"]), || {
        format!("{receipt}")
    })?;
    check(state(&room.world) == before && room.world.read("plain.txt") == b"z\n", || "changed".into())?;
    room.world_finish()
}

/// What a command may not write is found in folders that it closed to their owner, or beside folders that cannot be
/// listed.
fn what_is_hidden_is_put_back() -> Outcome {
    let mut findings = Findings::default();
    for (mode, start, params, capture) in modes() {
        let room = Room::of(World::with(start), params);
        for attack in [
            "mkdir n; echo x > n/.mcp.json; chmod 000 n",
            "mkdir n; echo x > n/.mcp.json; chmod 400 n",
            "mkdir n; echo x > n/.mcp.json; chmod 555 n",
            "mkdir -p n/in; echo x > n/in/.mcp.json; chmod 000 n/in n",
            "rm sub/.claude/settings.json; echo x > sub/.mcp.json; chmod 000 sub/.claude sub",
            "echo x > n.txt; echo x > build/.mcp.json; chmod 000 build .",
            "mkdir .aos-tmp-x sub/.aos-tmp-y; echo x > .aos-tmp-x/.mcp.json; echo x > sub/.aos-tmp-y/.mcp.json",
            "echo x > build/.mcp.json; mkdir -p deep$(printf '/a%.0s' $(seq 520))",
        ] {
            open_again(&room.world);
            empty(&room.world);
            furnish(&room.world);
            let before = state(&room.world);
            let receipt = room.exec(json!({ "argv": ["sh", "-c", attack], "capture": capture }));
            open_again(&room.world);
            let after = state(&room.world);
            findings.add(check(after == before, || format!("{mode}: {attack}: {after:?} {receipt}")));
            let hidden = ["n/.mcp.json", "n/in/.mcp.json", "sub/.mcp.json", "build/.mcp.json"];
            for path in hidden.iter().chain(&[".aos-tmp-x", "sub/.aos-tmp-y"]) {
                let is_there = room.world.root.join(path).symlink_metadata().is_ok();
                findings.add(check(!is_there, || format!("{mode}: {attack}: {path} is there: {receipt}")));
            }
        }
        empty(&room.world);
        room.world_finish()?;
    }
    findings.outcome()
}

/// Opens the root and the folders in it that an attack closes.
fn open_again(world: &World) {
    for folder in [".", "n", "n/in", "sub", "sub/.claude", "build"] {
        let _ = std::fs::set_permissions(world.root.join(folder), std::fs::Permissions::from_mode(0o755));
    }
}

/// Rules that deny more than is copied: a session whose commands may run without an overlay does not open. Where that
/// many files come later, no command runs, and file effects work.
fn what_cannot_be_compared_does_not_run() -> Outcome {
    let world = World::new();
    let session = world.open(json!({ "isolation": "none", "policy": rules() }));
    for number in 0..10_001 {
        world.write(&format!("locked/{number}"), "");
    }
    let run = json!({ "session_id": session, "argv": ["touch", "ran"] });
    let receipt = world.client().effect("host.exec", run);
    expect("too many", &receipt, &["error / isolation_unavailable"])?;
    check(!world.root.join("ran").exists(), || "it ran".into())?;
    expect("a write", &world.quiet_agent(&session).write("f", "x"), &["ok"])?;
    let uncaptured = json!({ "exec": { "uncaptured": true } });
    for mode in [
        json!({ "isolation": "none", "policy": rules() }),
        json!({ "capability": uncaptured, "policy": rules() }),
        json!({ "capability": { "cross_mounts": true }, "policy": rules() }),
    ] {
        expect(&mode.to_string(), &world.open_receipt(mode), &["error / isolation_unavailable"])?;
    }
    // Over an overlay, and without commands, nothing is copied.
    for mode in [
        json!({ "policy": rules() }),
        json!({ "isolation": "none", "capability": { "exec": { "allowed": false } }, "policy": rules() }),
    ] {
        expect(&mode.to_string(), &world.open_receipt(mode), &["ready"])?;
    }
    world.finish()
}

/// Commands write straight into folders that are not captured, and the rules of S2 hold there.
fn excluded_folders_are_policed() -> Outcome {
    let mut findings = Findings::default();
    for start in [Start::default(), ordinary()] {
        let params = json!({ "capture_exclude": ["build", "**/out"], "policy": {
            "preset": "permissive",
            "rules": [{ "name": "r", "ops": ["write"], "paths": ["build/secret/**"], "decision": "deny" }],
        } });
        let room = Room::of(World::with(start), params);
        furnish(&room.world);
        room.world.write("build/.mcp.json", "before");
        room.world.write("build/secret/a", "before");
        give_to_owner(&room.world);
        for attack in [
            "echo x > build/.mcp.json",
            "mkdir -p build/.git/hooks; echo x > build/.git/hooks/post-checkout",
            "mkdir -p build/sub/.claude; echo x > build/sub/.claude/settings.json",
            "echo x > build/secret/a; echo x > build/secret/b",
            "rm -rf build/secret; mkdir build/secret; echo x > build/secret/a",
        ] {
            let script = format!("{attack}; echo y > build/through; echo z > captured");
            let receipt = room.sh(&script);
            findings.add(check(receipt["coverage"] == "partial", || format!("{attack}: {receipt}")));
            let (mcp, secret) = (room.world.read("build/.mcp.json"), room.world.read("build/secret/a"));
            let kept = mcp == b"before" && secret == b"before";
            findings.add(check(kept, || format!("{attack}: {mcp:?} {secret:?} {receipt}")));
            for path in
                ["build/.git/hooks/post-checkout", "build/sub/.claude/settings.json", "build/secret/b"]
            {
                let is_there = room.world.root.join(path).exists();
                findings.add(check(!is_there, || format!("{attack}: {path} is there: {receipt}")));
            }
            let _ = std::fs::remove_file(room.world.root.join("captured"));
        }
        let receipt = room.sh("echo y > build/new; mkdir build/more; echo z > captured2");
        findings.add(expect("through", &receipt, &["ok"]));
        let listed = receipt["excluded_paths"] == json!(["build/more", "build/new"]);
        findings.add(check(listed && receipt["coverage"] == "partial", || format!("{receipt}")));
        findings.add(check(receipt["changed_paths"] == json!(["captured2"]), || format!("{receipt}")));
        let dry = json!({ "argv": ["sh", "-c", "echo 1 > build/dry; rm build/new; mkfifo build/pipe"], "dry_run": true });
        let receipt = room.exec(dry);
        findings.add(expect("a dry run", &receipt, &["ok"]));
        let (dry, new) = (room.world.root.join("build/dry"), room.world.root.join("build/new"));
        findings.add(check(!dry.exists() && new.exists(), || format!("a dry run changed it: {receipt}")));
        let receipt = room.sh("echo w > captured2");
        findings.add(check(receipt["coverage"] == "overlay", || format!("{receipt}")));
        room.world_finish()?;
    }
    findings.outcome()
}

fn an_excluded_folder_itself_is_policed() -> Outcome {
    let mut findings = Findings::default();
    for (paths, exception) in [("build", "build/open"), ("**/build/*", "none"), ("deep/build", "none")] {
        let rule = |decision: &str, path: &str| json!({ "name": decision, "ops": ["write"], "paths": [path], "decision": decision });
        let is_denied = |folder: &str| paths == folder;
        let room = Room::of(
            World::with(ordinary()),
            json!({ "capture_exclude": ["build", "deep/build"], "policy": {
                "preset": "permissive", "rules": [rule("allow", exception), rule("deny", paths)] } }),
        );
        room.world.write("build/open", "before");
        room.world.write("deep/build/f", "before");
        give_to_owner(&room.world);
        for folder in ["build", "deep/build"] {
            let mode = || mode_of(&room.world.root.join(folder));
            let before = mode();
            for change in ["chmod 700", "chmod 1777", "chmod 0", "setfacl -m u:0:rwx"] {
                let receipt = room.sh(&format!("{change} {folder}"));
                if is_denied(folder) {
                    let kept = mode() == before;
                    findings.add(check(kept, || format!("{change} {folder}: {:o} {receipt}", mode())));
                    continue;
                }
                findings.add(expect(change, &receipt, &["ok"]));
                let is_listed = mode() == before || receipt["excluded_paths"] == json!([folder]);
                findings.add(check(is_listed, || format!("{change} {folder}: {receipt}")));
                room.sh(&format!("chmod {before:o} {folder}"));
            }
        }
        room.world_finish()?;
    }
    findings.outcome()
}

fn globs_that_reach_what_is_protected_are_invalid() -> Outcome {
    let world = World::new();
    let root = world.root.display().to_string();
    for glob in
        [".", "*", ".git", "build/../.git", "**", ".g*", "", "/", "sub/.claude", &root, &format!("{root}/")]
    {
        let receipt = world.open_receipt(json!({ "capture_exclude": [glob] }));
        expect(glob, &receipt, &["error / invalid_params"])?;
    }
    expect(
        "target",
        &world.open_receipt(json!({ "capture_exclude": ["target", "**/node_modules"] })),
        &["ready"],
    )?;
    world.finish()
}
