//! Names that run code or steer agents, in two tiers.

use std::os::unix::fs::MetadataExt as _;

use aos_testkit::mcp::McpClient;
use aos_testkit::{Start, World, check, expect, patch_params, text, warning_codes};
use serde_json::{Value, json};

use super::{call, each_daemon};
use crate::Outcome;
use crate::exec::room::{Room, ordinary};
use crate::shell_undo::{same, seen};

const DENIED: &[&str] = &["forbidden / protected_path"];

const PROTECTED: &[&str] = &[
    ".vscode/mcp.json",
    ".vscode/TASKS.json",
    ".zed/settings.json",
    ".zed/tasks.json",
    "opencode.json",
    "sub/opencode.jsonc",
    ".opencode/x/y",
    ".cursor/mcp.json",
    ".cursor/hooks.json",
    ".claude/settings.json",
    ".claude/hooks/x",
    ".claude/commands/x.md",
    ".claude/agents/x.md",
    ".claude/skills/x/SKILL.md",
    ".claude/plugins/x",
    ".gemini/x",
    ".qwen/x",
    ".crush.json",
    ".crush/x",
    ".goose/x",
    ".amp/x",
    ".kiro/x",
    ".windsurf/x",
    ".continue/x",
    ".Husky/pre-commit",
    "a/b/.lfsconfig",
    ".idea/runConfigurations/x.xml",
];

const SENSITIVE: &[&str] = &[
    "AGENTS.md",
    "sub/agents.MD",
    "CLAUDE.md",
    "GEMINI.md",
    ".cursorrules",
    ".cursor/rules/x.mdc",
    ".github/workflows/ci.yml",
    ".gitlab-ci.yml",
    ".vscode/settings.json",
    ".npmrc",
    ".yarnrc.yml",
    ".cargo/config.toml",
    "mise.toml",
    ".tool-versions",
    ".gitattributes",
    ".gitmodules",
    ".envrc",
    ".pre-commit-config.yaml",
    "lefthook.yml",
    ".devcontainer/devcontainer.json",
];

fn write(path: &str, text: &str) -> Value {
    json!({ "path": path, "content": { "inline_text": { "text": text } }, "create_parents": true })
}

/// By effect and by command, the first tier is refused and the second is warned about; both by default.
pub(super) fn two_tiers() -> Outcome {
    each_daemon(|room| {
        let mut agent = room.world.quiet_agent(&room.session);
        let before = seen(&room.world.root);
        for path in PROTECTED {
            expect(path, &agent.fs("write_file", write(path, "x")), DENIED)?;
            call(room, &format!("mkdir -p $(dirname {path}); echo x > {path}"), DENIED)?;
        }
        same("protected", &seen(&room.world.root), &before)?;
        for (number, path) in SENSITIVE.iter().enumerate() {
            let receipt = match number % 2 {
                0 => agent.fs("write_file", write(path, "x")),
                _ => call(room, &format!("mkdir -p $(dirname {path}); echo x > {path}"), &["ok"])?,
            };
            expect(path, &receipt, &["ok"])?;
            check(warning_codes(&receipt).contains(&"sensitive_path"), || format!("{path}: {receipt}"))?;
        }
        for (rule, wanted) in [("deny", "forbidden / protected_path"), ("allow", "ok")] {
            let session = room.another(json!({ "capability": { "sensitive_paths": rule } }));
            let mut agent = room.world.quiet_agent(&session);
            let receipt = agent.fs("write_file", write("AGENTS.md", rule));
            expect(rule, &receipt, &[wanted])?;
            check(warning_codes(&receipt).is_empty(), || format!("{receipt}"))?;
            let script = json!({ "argv": ["sh", "-c", format!("echo {rule} > GEMINI.md")] });
            expect(rule, &room.exec_in(&session, script), &[wanted])?;
        }
        Ok(())
    })
}

/// One protected path stays out; everything else of the command lands, and undo takes exactly that back.
pub(super) fn withhold() -> Outcome {
    for world in [World::new(), World::with(ordinary())] {
        super::prepare(&world)?;
        let owner = world.root.metadata().map_err(|why| why.to_string())?;
        for path in ["keep/.husky/pre-push", "keep/other"] {
            let made = world.write(path, "user's");
            for above in made.ancestors().take_while(|above| *above != world.root) {
                std::os::unix::fs::lchown(above, Some(owner.uid()), Some(owner.gid()))
                    .map_err(|why| why.to_string())?;
            }
        }
        let room = Room::of(
            world,
            json!({ "capability": { "protected_paths": "withhold" }, "policy": { "preset": "permissive" } }),
        );
        let before = seen(&room.world.root);
        let script = "mkdir -p .husky/_ node_modules/x src; echo h > .husky/_/pre-commit; echo m > node_modules/x/m; \
            git config core.hooksPath .husky/_; echo s > src/s; rm -rf keep; echo e >> .git/hooks/pre-commit; echo 9 > f";
        let receipt = room.call("tc_npm", script);
        expect("withheld", &receipt, &["ok"])?;
        check(warning_codes(&receipt).contains(&"protected_withheld"), || format!("{receipt}"))?;
        let withheld = receipt["withheld_paths"].to_string();
        for path in [".husky/_/pre-commit", ".git/config", ".git/hooks/pre-commit", "keep/.husky/pre-push"] {
            check(withheld.contains(&format!("\"{path}\"")), || format!("{path}: {withheld}"))?;
        }
        let after = seen(&room.world.root);
        for (path, lands) in [
            ("node_modules/x/m", true),
            ("src/s", true),
            (".husky", false),
            ("keep/.husky/pre-push", true),
            ("keep/other", true),
        ] {
            check(room.world.root.join(path).exists() == lands, || format!("{path}: {lands}"))?;
        }
        for path in [".git/config", ".git/hooks/pre-commit"] {
            let path = std::path::Path::new(path);
            check(after.get(path) == before.get(path), || format!("{}", path.display()))?;
        }
        check(room.world.read("f") == b"9\n", || "f did not land".into())?;
        let mut agent = room.world.quiet_agent(&room.session);
        expect("an effect", &agent.fs("write_file", write(".husky/x", "x")), DENIED)?;
        expect("undo", &room.undo("tc_npm"), &["ok"])?;
        same("undone", &seen(&room.world.root), &before)?;
        // Nothing but protected paths: nothing lands, and there is nothing to undo.
        let receipt = room.call("tc_all", "echo x > .mcp.json");
        expect("all of it", &receipt, &["ok"])?;
        check(receipt["changed_paths"] == json!([]), || format!("{receipt}"))?;
        same("all of it", &seen(&room.world.root), &before)?;
        room.finish()?;
    }
    Ok(())
}

/// `.gitmodules` is judged by content.
pub(super) fn submodules() -> Outcome {
    each_daemon(|room| {
        let mut agent = room.world.quiet_agent(&room.session);
        for line in ["url = -u./x", "url = ext::sh -c x", "update = !sh", "url = \"ext:\\\n:x\""] {
            let text = format!("[submodule \"a\"]\n\tpath = a\n\t{line}\n");
            expect(line, &agent.fs("write_file", write(".gitmodules", &text)), DENIED)?;
            expect(line, &agent.fs("write_file", write("plain", &text)), &["ok"])?;
            expect(line, &agent.fs("move", json!({ "from": "plain", "to": ".gitmodules" })), DENIED)?;
            call(room, "cp plain .gitmodules", DENIED)?;
        }
        let text = "[submodule \"a\"]\n\tpath = a\n\turl = ../a\n\tupdate = rebase\n";
        let receipt = agent.fs("write_file", write(".gitmodules", text));
        expect("harmless", &receipt, &["ok"])?;
        let edit = json!({ "path": ".gitmodules", "old_string": "../a", "new_string": "ext::a" });
        expect(
            "edit",
            &agent.fs("edit_file", edit),
            &["forbidden / protected_path", "error / invalid_params"],
        )?;
        check(room.world.read(".gitmodules") == text.as_bytes(), || "it was changed".into())
    })
}

/// In a home folder more names are protected.
pub(super) fn home() -> Outcome {
    let paths = [
        ".ssh/authorized_keys",
        ".gnupg/x",
        ".aws/credentials",
        ".netrc",
        ".gitconfig",
        ".config/git/config",
        ".BASHRC",
        ".profile",
        ".zshenv",
        ".config/systemd/user/x.service",
        ".config/autostart/x.desktop",
    ];
    for is_home in [true, false] {
        let mut world = World::asleep(Start::default());
        let home = if is_home { world.root.clone() } else { world.home.clone() };
        world.set_start(Start { env: vec![("HOME".into(), home.display().to_string())], ..Start::default() });
        world.start_daemon();
        let room = Room::of(world, json!({}));
        let mut agent = room.world.quiet_agent(&room.session);
        let wanted = if is_home { "forbidden / protected_path" } else { "ok" };
        for path in paths {
            expect(path, &agent.fs("write_file", write(path, "x")), &[wanted])?;
            call(&room, &format!("mkdir -p $(dirname {path}); echo y > {path}"), &[wanted])?;
        }
        room.finish()?;
    }
    Ok(())
}

/// `aos mcp` opens its sessions so that one protected file does not lose everything else.
pub(super) fn mcp_withholds() -> Outcome {
    let world = World::new();
    let mut mcp = McpClient::greeted(&world, &["--root", "."], json!({}));
    let answer = mcp.call("shell", json!({ "command": "echo x > .mcp.json; echo y > kept" }));
    check(world.read("kept") == b"y\n", || format!("{answer}"))?;
    check(!world.root.join(".mcp.json").exists(), || format!("{answer}"))?;
    mcp.close(&world);
    world.finish()
}

pub(super) fn both_lists_are_printed() -> Outcome {
    let world = World::new();
    let (code, out, err) = world.aos(&["policy", "protected"]);
    check(code == 0, || err)?;
    let printed: Value = serde_json::from_str(&out).map_err(|why| format!("{why}: {out}"))?;
    for (list, name) in [
        ("protected_paths", ".mcp.json"),
        ("sensitive_paths", "AGENTS.md"),
        ("protected_paths_in_home", ".netrc"),
    ] {
        check(printed[list].as_array().is_some_and(|names| names.contains(&json!(name))), || out.clone())?;
    }
    world.finish()
}

/// A folder that is made with a file has a name too.
pub fn parents() -> Outcome {
    let world = World::new();
    let rule = json!({ "name": "r", "ops": ["write"], "paths": ["sub/closed"], "decision": "deny" });
    let mut agent = world.agent(json!({ "policy": { "preset": "permissive", "rules": [rule] } }));
    for (folder, code) in [
        (".mcp.json", "forbidden / protected_path"),
        ("a/.Jj/repo/config.toml", "forbidden / protected_path"),
        ("sub/closed", "forbidden / policy_denied"),
    ] {
        let path = format!("{folder}/x/y");
        let write = json!({ "path": path, "content": text("x"), "create_parents": true });
        let add = patch_params(&format!("*** Add File: {path}\n+x\n"));
        let moved = patch_params(&format!("*** Update File: donor\n*** Move to: {path}\n@@\n-OLD\n+x\n"));
        for (op, params) in [
            ("make_dir", json!({ "path": path, "parents": true })),
            ("write_file", write),
            ("apply_patch", add),
            ("apply_patch", moved),
        ] {
            world.write("donor", "OLD\n");
            expect(&format!("{op} {params}"), &agent.fs(op, params), &[code])?;
            check(!world.root.join(folder).exists(), || format!("{op}: {folder} is there"))?;
        }
    }
    let write = json!({ "path": "a/b/c", "content": text("x"), "create_parents": true });
    expect("others", &agent.fs("write_file", write), &["ok"])?;
    world.finish()
}

/// A git folder of any name, in a folder that an effect removes or moves.
pub fn below_a_folder() -> Outcome {
    let world = World::new();
    for (path, content) in [("HEAD", "ref: refs/heads/main\n"), ("config", "[core]\n\tpager = x\n")] {
        world.write(&format!("a/store/{path}"), content);
    }
    for folder in ["objects", "refs"] {
        std::fs::create_dir_all(world.root.join("a/store").join(folder)).unwrap();
    }
    let mut agent = world.agent(json!({}));
    for folder in ["a/store", "a"] {
        expect(folder, &agent.fs("remove", json!({ "path": folder, "recursive": true })), DENIED)?;
        expect(folder, &agent.fs("move", json!({ "from": folder, "to": "b" })), DENIED)?;
    }
    world.finish()
}
