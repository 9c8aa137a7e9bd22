//! Commands commit under the name of who opened their session.

use std::process::Command;

use aos_testkit::{McpClient, World, check, expect};
use serde_json::{Value, json};

use super::call;
use crate::Outcome;
use crate::exec::room::{Room, ordinary};

const COMMIT: &str = "set -e; rm -rf n; git init -q n; cd n; git commit -q --allow-empty -m 1; git log -1 --format='%an|%ae|%D'";

/// A home with a configuration that includes another one for the folders below the root.
fn caller(world: &World, arguments: &[&str]) -> Command {
    let home = world.root.with_file_name("caller");
    let _ = std::fs::create_dir(&home);
    let conditional = format!("[includeIf \"gitdir:{}/**\"]\n\tpath = work\n", world.root.display());
    let main = "[user]\n\tname = At Home\n\temail = home@example.org\n[init]\n\tdefaultBranch = trunk\n[include]\n\tpath = more\n[core]\n\tpager = secret\n";
    std::fs::write(home.join(".gitconfig"), format!("{main}{conditional}")).expect("the folder was made");
    std::fs::write(home.join("more"), "[user]\n\tname = \"Zo\u{eb} \\\"Q\\\" #1\"\n")
        .expect("the folder was made");
    let mut command = Command::new(&world.programs.aos);
    command.args(arguments).env("AOS_HOME", &world.home).env("HOME", &home).current_dir(&world.root);
    command.env_remove("GIT_CONFIG_GLOBAL").env_remove("XDG_CONFIG_HOME");
    command
}

pub(super) fn commits_have_their_caller() -> Outcome {
    let world = World::new();
    let wanted = "Zo\u{eb} \"Q\" #1|home@example.org|HEAD -> trunk\n";
    let opened = caller(&world, &["session", "open", "."]).output().map_err(|why| why.to_string())?;
    let session = String::from_utf8_lossy(&opened.stdout).trim().to_owned();
    check(opened.status.success(), || format!("{opened:?}"))?;
    let room = Room::of(world, json!({ "policy": { "preset": "permissive" } }));
    let receipt = room.exec_in(&session, json!({ "argv": ["sh", "-c", COMMIT] }));
    check(room.stdout(&receipt) == wanted, || format!("{receipt}"))?;
    // It is the command's own file afterwards, and nothing else of the caller's configuration is in it.
    let own = "set -e; git config --global user.name Other; git config --global --get core.pager || git config --global user.name";
    let receipt = room.exec_in(&session, json!({ "argv": ["sh", "-c", own] }));
    check(room.stdout(&receipt) == "Other\n", || format!("{receipt}"))?;
    let receipt = room.exec_in(&session, json!({ "argv": ["git", "config", "--global", "user.name"] }));
    check(room.stdout(&receipt) == "Other\n", || format!("{receipt}"))?;
    let mut mcp = McpClient::spawn(caller(&room.world, &["mcp", "--root", "."]))?;
    mcp.initialize(json!({}))?;
    let answer = mcp.call("shell", json!({ "command": COMMIT }));
    check(answer.to_string().contains("home@example.org"), || format!("{answer}"))?;
    mcp.close(&room.world);
    let closed =
        room.world.client().effect("host.session.signal", json!({ "session_id": session, "signal": "term" }));
    expect("close", &closed, &["signaled"])?;
    room.finish()?;
    let world = World::with(ordinary());
    let room = Room::of(world, json!({ "policy": { "preset": "permissive" } }));
    let session = room.another(json!({ "local": { "git_identity": { "name": "O", "email": "o@x" } } }));
    let receipt = room.exec_in(&session, json!({ "argv": ["sh", "-c", COMMIT] }));
    check(room.stdout(&receipt).starts_with("O|o@x|"), || format!("{receipt}"))?;
    room.finish()
}

/// A value cannot add a line to the file.
pub(super) fn hostile_values() -> Outcome {
    let room = Room::new();
    let target = |identity: Value| json!({ "target": { "local": { "workdir": room.world.root, "git_identity": identity } } });
    for identity in [
        json!({ "name": "a\n[core]\n\tpager = x" }),
        json!({ "email": "a\u{0}" }),
        json!({ "default_branch": "x".repeat(2_000) }),
        json!({ "name": 1 }),
        json!({ "pager": "x" }),
        json!({ "name": null }),
    ] {
        let receipt = room.world.open_receipt(target(identity));
        expect("hostile", &receipt, &["error / invalid_params"])?;
    }
    for name in ["\\", "a\"; [core] pager = x", "\\\"", " # x ;", "[core]"] {
        let session = room.another(json!({ "local": { "git_identity": { "name": name } } }));
        let receipt = room.exec_in(&session, json!({ "argv": ["git", "config", "--global", "--list"] }));
        check(room.stdout(&receipt) == format!("user.name={name}\n"), || format!("{name}: {receipt}"))?;
    }
    call(&room, "true", &["ok"])?;
    room.finish()
}
