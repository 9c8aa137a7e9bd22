//! Protected names: nothing changes them, in any spelling, through any link, or through the folder around them.

use aos_testkit::{Client, Findings, Fixture, World, check, expect, patch_params, text, tree, warning_codes};
use serde_json::json;

use crate::Outcome;

const PROTECTED: [&str; 16] = [
    ".git/hooks/pre-commit",
    ".git/config",
    ".aos/x",
    ".aos/deep/er",
    ".mcp.json",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".codex/config.toml",
    ".gemini/a/b",
    ".cursor/mcp.json",
    ".GIT/hooks/x",
    ".Git/Config",
    ".MCP.JSON",
    ".Claude/Settings.json",
    "deep/er/.git/config",
    "deep/.codex/x",
];

pub(super) fn protected_names() -> Outcome {
    let world = World::new();
    let mut findings = Findings::default();
    let denied = "forbidden / protected_path";
    for (rule, wanted) in [("deny", denied), ("warn", "ok"), ("allow", "ok"), ("left out", denied)] {
        for (number, path) in PROTECTED.into_iter().enumerate() {
            let dir = world.root.join(format!("{rule}{number}"));
            std::fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
            std::fs::write(dir.join(path), "one\n").unwrap();
            let mut extra = json!({ "target": { "local": { "workdir": dir } } });
            if rule != "left out" {
                extra["capability"] = json!({ "protected_paths": rule });
            }
            let session = world.open(extra);
            findings.add(protected_name(&mut world.client(), &session, rule, path, wanted));
            let kept = std::fs::read(dir.join(path)).is_ok_and(|bytes| bytes == b"one\n");
            findings.add(check(kept || wanted == "ok", || format!("{rule}: {path} changed")));
        }
    }
    findings.add(world.finish());
    findings.add(ways_around());
    findings.outcome()
}

/// All mutations of one protected name; reading it is allowed.
fn protected_name(client: &mut Client, session: &str, rule: &str, path: &str, wanted: &str) -> Outcome {
    let mut findings = Findings::default();
    for kind in ["read_file", "stat", "exists"] {
        findings.add(client.must(session, kind, json!({ "path": path }), &["ok"]));
    }
    for (kind, params) in [
        ("edit_file", json!({ "path": path, "old_string": "one", "new_string": "two" })),
        ("write_file", json!({ "path": path, "content": text("one\n") })),
        ("apply_patch", patch_params(&format!("*** Update File: {path}\n@@\n-one\n+two\n"))),
        ("apply_patch", patch_params(&format!("*** Update File: {path}\n*** Move to: away\n"))),
        ("apply_patch", patch_params(&format!("*** Update File: away\n*** Move to: {path}\n"))),
        ("apply_patch", patch_params(&format!("*** Delete File: {path}\n"))),
        ("apply_patch", patch_params(&format!("*** Add File: {path}\n+one\n"))),
        ("move", json!({ "from": path, "to": "away" })),
        ("move", json!({ "from": "away", "to": path })),
        ("remove", json!({ "path": path })),
        ("make_dir", json!({ "path": path })),
    ] {
        // Where it is denied `away` was never created; the name is checked before that is noticed.
        let what = format!("{rule}: {kind} {params}");
        let receipt = client.fs(session, kind, params);
        findings.add(expect(&what, &receipt, &[wanted]));
        let warned = !warning_codes(&receipt).is_empty();
        findings.add(check(warned == (rule == "warn"), || format!("{what}: warned is {warned}: {receipt}")));
    }
    findings.outcome()
}

/// Through a link, through its folder, by moving a folder there, and where nothing exists yet.
fn ways_around() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write(".git/config", "one\n");
    fixture.world.write(".git/hooks/x", "one\n");
    fixture.world.write("evil/hooks/pre-commit", "one\n");
    fixture.world.write("nested/.mcp.json", "one\n");
    fixture.world.link(".git", "g");
    fixture.world.link(".git/config", "c");
    let before = tree(&fixture.world.root);
    let mut findings = Findings::default();
    for (kind, params) in [
        ("write_file", json!({ "path": "g/config", "content": text("two") })),
        ("write_file", json!({ "path": "c", "content": text("two") })),
        ("edit_file", json!({ "path": "g/hooks/x", "old_string": "one", "new_string": "two" })),
        ("write_file", json!({ "path": "evil/../.git/config", "content": text("two") })),
        ("write_file", json!({ "path": ".git//config", "content": text("two") })),
        ("write_file", json!({ "path": "new/.codex/x", "content": text("two"), "create_parents": true })),
        ("write_file", json!({ "path": ".\\x67it/config", "content": text("two") })),
        ("make_dir", json!({ "path": ".aos" })),
        ("make_dir", json!({ "path": ".codex/a/b", "parents": true })),
        ("remove", json!({ "path": ".git", "recursive": true })),
        ("remove", json!({ "path": "nested", "recursive": true })),
        ("move", json!({ "from": ".git", "to": "git" })),
        ("move", json!({ "from": "nested", "to": "elsewhere" })),
        ("move", json!({ "from": "evil/hooks", "to": ".git/hooks2/../hooks/y" })),
        ("move", json!({ "from": "evil", "to": "sub.git" })),
        ("move", json!({ "from": "evil/hooks/pre-commit", "to": ".git/HOOKS" })),
        ("apply_patch", patch_params("*** Update File: evil/hooks/pre-commit\n*** Move to: g/hooks/y\n")),
        ("apply_patch", patch_params("*** Add File: good\n+x\n*** Add File: .mcp.json\n+{}\n")),
    ] {
        let what = format!("{kind} {params}");
        let receipt = fixture.fs(kind, params);
        // `evil` may have a name that is not protected; it is moved back.
        if what.contains("sub.git") {
            findings.add(expect(&what, &receipt, &["ok"]));
            findings.add(fixture.must("move", json!({ "from": "sub.git", "to": "evil" }), &["ok"]));
            continue;
        }
        findings.add(expect(&what, &receipt, &["forbidden / protected_path", "not_found"]));
    }
    findings.add(check(tree(&fixture.world.root) == before, || "something changed".into()));
    // A whole `.git` that is created elsewhere and moved into place would bring its hooks along.
    fixture.world.write("made/hooks/pre-commit", "one\n");
    let receipt = fixture.fs("move", json!({ "from": "made", "to": "repo.git" }));
    findings.add(expect("a folder of another name", &receipt, &["ok"]));
    std::fs::create_dir(fixture.world.root.join("repo")).unwrap();
    let receipt = fixture.fs("move", json!({ "from": "repo.git", "to": "repo/.git" }));
    findings.add(expect("a folder that becomes .git", &receipt, &["forbidden / protected_path"]));
    findings.add(fixture.finish());
    findings.outcome()
}
