//! Git folders and protected names: what would run code later does not land.

mod identity;
mod names;
mod ordinary_work;
mod rules;
mod worktrees;

use aos_testkit::World;
use serde_json::{Value, json};

use crate::exec::room::{Room, ordinary};
use crate::{Case, Outcome, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![
        plain("S4", rules::what_runs_code_does_not_land),
        plain("OWN-S4-NEW", rules::new_repositories),
        plain("OWN-S4-COMPLETED", rules::completed_later),
        plain("OWN-S4-EFFECTS", rules::effects_never_configure_git),
        plain("OWN-S4-HOOKS-PATH", rules::hooks_path),
        plain("OWN-S4-HOOKS-PATH-ELSEWHERE", rules::hooks_path_elsewhere),
        plain("OWN-S9-LINKS", rules::links),
        plain("OWN-S9-LED-TO", rules::what_links_lead_to),
        plain("OWN-S4-UNDO", rules::undo),
        plain("OWN-S4-ORDINARY", ordinary_work::ordinary_work),
        plain("M5", identity::commits_have_their_caller),
        plain("OWN-M5-VALUES", identity::hostile_values),
        plain("M19", worktrees::linked_worktrees_have_git),
        plain("OWN-M19-BACK", worktrees::only_what_leads_back),
        plain("M20", ordinary_work::local_clones),
        plain("S9", names::two_tiers),
        plain("OWN-S9-WITHHOLD", names::withhold),
        plain("OWN-S9-MODULES", names::submodules),
        plain("OWN-S9-HOME", names::home),
        plain("OWN-S9-PARENTS", names::parents),
        plain("OWN-S4-BELOW", names::below_a_folder),
        plain("OWN-S9-MCP", names::mcp_withholds),
        plain("OWN-S9-LIST", names::both_lists_are_printed),
    ]
}

/// Both kinds of daemon, each with a repository `.git` in its root that has a commit, a hook and configuration.
fn each_daemon(run: impl Fn(&Room) -> Outcome) -> Outcome {
    for (who, world) in
        [("this user's daemon", World::new()), ("an ordinary user's daemon", World::with(ordinary()))]
    {
        prepare(&world)?;
        let room = Room::of(world, json!({ "policy": { "preset": "permissive" } }));
        run(&room).map_err(|why| format!("{who}: {why}"))?;
        room.finish()?;
    }
    Ok(())
}

const PREPARE: &str = "git init -q -b main . && git config user.name U && git config user.email u@example.org \
    && git config core.editor vi && echo 1 > f && git add f && git commit -q -m 1 \
    && printf '#!/bin/sh\\nexit 0\\n' > .git/hooks/pre-commit && chmod 755 .git/hooks/pre-commit && rm -rf .git/logs/x";

fn prepare(world: &World) -> Outcome {
    run_outside(world, PREPARE)
}

/// Runs a script of the user in the root, outside of the session.
fn run_outside(world: &World, script: &str) -> Outcome {
    use std::os::unix::fs::MetadataExt as _;
    let owner = world.root.metadata().map_err(|why| why.to_string())?;
    let made = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(&world.root)
        .env("HOME", &world.root)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .output()
        .map_err(|why| why.to_string())?;
    aos_testkit::check(made.status.success(), || format!("{made:?}"))?;
    for path in crate::shell_undo::seen(&world.root).keys() {
        std::os::unix::fs::lchown(world.root.join(path), Some(owner.uid()), Some(owner.gid()))
            .map_err(|why| why.to_string())?;
    }
    Ok(())
}

/// The command of a script, which must end as one of `allowed`.
fn call(room: &Room, script: &str, allowed: &[&str]) -> Result<Value, String> {
    let receipt = room.exec(json!({ "argv": ["sh", "-c", script] }));
    aos_testkit::expect(script, &receipt, allowed)?;
    if allowed == ["ok"] {
        aos_testkit::check(receipt["exit_code"] == 0, || format!("{script}: {receipt}"))?;
    }
    Ok(receipt)
}
