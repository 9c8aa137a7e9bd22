//! Protected names: in upper and lower case, behind links, and as the target of moves.

use aos_testkit::ways::MUTATIONS;
use aos_testkit::{Agent, World, check, expect, tree};
use serde_json::json;

use super::{each, furnished, shown};
use crate::Outcome;

const PROTECTED: &[&str] = &["forbidden / protected_path"];

pub(super) fn protected_names_in_any_case() -> Outcome {
    let world = furnished();
    let mut agent = world.agent(json!({}));
    for path in [".GIT/hooks/pre-commit", ".Git/config", ".AOS/policy.yaml"] {
        expect(path, &agent.way("write_file", path), PROTECTED)?;
    }
    let absolute = shown(&world.root.join(".git/config"));
    for path in [
        ".GIT/hooks/pre-commit",
        ".Git/config",
        ".AOS/policy.yaml",
        ".git/hooks/pre-commit",
        ".git/HOOKS/deep/er",
        ".git/CONFIG",
        "sub/deep/.gIt/CoNfIg",
        ".mcp.json",
        "sub/.MCP.Json",
        ".claude/settings.json",
        ".Claude/Settings.Local.JSON",
        ".codex/config.toml",
        ".CODEX/a/b/c",
        ".Gemini/settings.json",
        ".cursor/Mcp.json",
        ".//.git//./config",
        "sub/../.git/config",
        "\\x2egit/config",
        &absolute,
        // Other letters that fold to the same: the Kelvin sign, also behind a name that is not UTF-8.
        ".git/hoo\u{212a}s/pre-commit",
        "x\\xff/.GIT/config",
    ] {
        each(&mut agent, MUTATIONS, path, PROTECTED)?;
    }
    check(tree(&world.root).len() == 3, || "something protected was made".into())?;
    protected_behind_links(&world, &mut agent)?;
    protected_by_moving(&world, &mut agent)?;
    // The long s folds to s: a folder with case folding opens `hooks` by this name.
    for path in [".git/hook\u{17f}/pre-commit", ".claude/\u{17f}ettings.json", "x\\xff/.git/hoo\u{212a}s/y"] {
        each(&mut agent, MUTATIONS, path, PROTECTED)?;
    }
    world.finish()
}

fn protected_behind_links(world: &World, agent: &mut Agent) -> Outcome {
    world.link(".git/hooks", "h");
    world.link(".git", "g");
    world.link(".git/config", "c");
    world.link("g/config", "cc");
    for path in ["h/pre-commit", "g/config", "g/HOOKS/pre-commit"] {
        each(agent, MUTATIONS, path, PROTECTED)?;
    }
    for path in ["c", "cc"] {
        each(
            agent,
            &["write_file", "create_new", "append", "edit_file", "patch_add", "patch_update"],
            path,
            PROTECTED,
        )?;
    }
    check(!world.root.join(".git").exists(), || ".git was made".into())
}

/// What may not be written may not be removed or moved away either, nor created by a move.
fn protected_by_moving(world: &World, agent: &mut Agent) -> Outcome {
    world.write("repo/.git/config", "[core]\n");
    world.write("repo/.git/hooks/pre-commit", "#!\n");
    world.write("fake/hooks/pre-commit", "#!\n");
    world.write("fake/config", "[core]\n");
    std::fs::create_dir(world.root.join("empty")).unwrap();
    let before = tree(&world.root);
    for path in ["repo/.git", "repo/.git/hooks", "repo/.GIT/hooks", "repo"] {
        expect(&format!("remove {path}"), &agent.way("remove", path), PROTECTED)?;
    }
    expect("move .git away", &agent.way("move_from", "repo/.git"), PROTECTED)?;
    for (from, to) in [
        ("fake", ".git"),
        ("fake", "empty/.Git"),
        ("fake/hooks", "repo/.git/hooks"),
        ("fake/config", ".mcp.json"),
    ] {
        let moved = agent.fs("move", json!({ "from": from, "to": to, "overwrite": true }));
        expect(&format!("move {from} {to}"), &moved, PROTECTED)?;
    }
    expect("reading is free", &agent.way("read_file", "repo/.git/config"), &["ok"])?;
    check(tree(&world.root) == before, || "something protected was touched".into())
}
