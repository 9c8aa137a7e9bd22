//! What a rule forbids to read is masked for commands too.

use aos_testkit::{Findings, Start, World, check, expect, patch_params, text, uncaptured};
use serde_json::{Value, json};

use crate::exec::isolation::no_namespaces;
use crate::exec::room::{Room, ordinary};
use crate::{Case, Outcome, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![
        plain("S14", what_a_rule_forbids_to_read_is_masked),
        plain("OWN-S14-SHOWN", no_other_effect_shows_it),
        plain("OWN-S14-BOTH", what_may_not_be_written_either_stays_masked),
        plain("OWN-S14-EXCEPTIONS", exceptions_stay_readable),
        plain("OWN-S14-LATER", what_appears_between_commands_is_masked),
        plain("OWN-S14-NO-MOUNTS", without_mounts_no_command_runs),
    ]
}

fn denying(globs: &[&str], more: &[Value]) -> Value {
    let deny = json!({ "name": "secrets", "ops": ["read"], "paths": globs, "decision": "deny" });
    let rules: Vec<Value> = more.iter().cloned().chain([deny]).collect();
    uncaptured(json!({ "policy": { "preset": "permissive", "rules": rules } }))
}

fn furnish(world: &World) {
    world.write(".env", "CANARY-1");
    world.write(".gitignore", ".env\nignored/\n");
    world.write("ignored/.hidden/.env", "CANARY-2");
    world.write("keys/a/b.pem", "CANARY-3");
    world.write("vault/x", "CANARY-4");
    world.write("plain.txt", "plain");
    world.write("real.txt", "CANARY-5");
    world.link("real.txt", "sub.env");
    if let (Some(uid), true) = (ordinary().uid, world.root.exists()) {
        let _ = std::process::Command::new("chown").args(["-R", &uid.to_string()]).arg(&world.root).status();
    }
}

/// Ways to read something, to move it to a name that no rule matches, or to replace its mask.
const WAYS: &[&str] = &[
    "cat .env ignored/.hidden/.env keys/a/b.pem vault/x sub.env real.txt",
    "cat ./keys/../.env; cat $PWD/.env; cat //$PWD/vault/x",
    "cp .env copy; cat copy",
    "ln .env hard; cat hard",
    "ln -s .env soft; cat soft",
    "mv .env moved; cat moved",
    "mv keys moved; cat moved/a/b.pem",
    "mv ignored moved; cat moved/.hidden/.env",
    "mv vault moved; cat moved/x",
    "chmod 644 .env; cat .env; chmod -R 755 vault; cat vault/x",
    "rm -f .env; rm -rf vault; cat .env vault/x",
    "tar c . | tr -d '\\0'",
    "grep -r CANARY .",
    "python3 -c \"import os; print(os.open('.env', os.O_PATH)); print(open('/proc/self/fd/3').read())\"",
    "python3 -c \"import os; os.truncate('.env', 0)\"; python3 -c \"open('.env','r+')\"",
    "exec 9< .env; cat <&9",
    "cd vault && cat x; ls vault",
    "mount --bind / /mnt; umount .env; umount -l vault; cat .env vault/x",
    "find / -name '*.pem' -exec cat {} + 2>/dev/null",
    "sh -c 'sleep 0.1; cat .env' & wait",
];

fn what_a_rule_forbids_to_read_is_masked() -> Outcome {
    let mut findings = Findings::default();
    let globs = ["**/.env", "keys/**", "vault/", "*.env"];
    for (start, capture) in
        [(Start::default(), "auto"), (Start::default(), "none"), (ordinary(), "auto"), (ordinary(), "none")]
    {
        let world = World::with(start);
        furnish(&world);
        let room = Room::of(world, denying(&globs, &[]));
        for way in WAYS {
            let receipt = room.exec(json!({ "argv": ["sh", "-c", way], "capture": capture }));
            let said = receipt.to_string();
            findings.add(check(!said.contains("CANARY"), || format!("{capture}: {way}: {said}")));
        }
        let shown = room.exec(json!({ "argv": ["sh", "-c", "stat -c %a%s .env; ls -A | grep -c env; cat plain.txt; echo x > .env || echo refused; rmdir vault || echo busy"], "capture": capture }));
        let said = room.stdout(&shown);
        findings.add(check(said == "00\n2\nplainrefused\nbusy\n", || format!("{capture}: {said} {shown}")));
        for (name, content) in [(".env", "CANARY-1"), ("vault/x", "CANARY-4"), ("keys/a/b.pem", "CANARY-3")] {
            let kept = room.world.root.join(name);
            let now = std::fs::read_to_string(&kept).unwrap_or_default();
            findings.add(check(now == content, || format!("{capture}: {name} is {now:?}")));
        }
        room.finish()?;
    }
    findings.outcome()
}

/// Without an overlay, a file that a rule also forbids to write is mounted on itself, and its folder still cannot be
/// renamed.
fn what_may_not_be_written_either_stays_masked() -> Outcome {
    let rule = json!({ "name": "r", "ops": ["read", "write", "remove"], "paths": ["keys/a/b.pem"], "decision": "deny" });
    let policy = json!({ "preset": "permissive", "rules": [rule] });
    for start in [Start::default(), ordinary()] {
        let world = World::with(start);
        furnish(&world);
        let room = Room::of(world, uncaptured(json!({ "policy": policy })));
        for way in ["mv keys moved; cat moved/a/b.pem", "mv keys/a moved; cat moved/b.pem"] {
            let receipt = room.exec(json!({ "argv": ["sh", "-c", way], "capture": "none" }));
            check(!receipt.to_string().contains("CANARY"), || format!("{way}: {receipt}"))?;
            // `mv` copies what it cannot rename, as far as it can read it.
            let kept = room.world.read("keys/a/b.pem") == b"CANARY-3";
            check(kept, || format!("{way}: it was moved: {receipt}"))?;
        }
        room.finish()?;
    }
    Ok(())
}

/// Effects that are not called `read` show no content either, and bring none to a name that may be read.
fn no_other_effect_shows_it() -> Outcome {
    let world = World::new();
    furnish(&world);
    let mut agent = world.agent(denying(&["**/.env", "keys/**", "vault/"], &[]));
    let patch = |body: &str| {
        let mut params = patch_params(body);
        params["with_diff"] = json!(true);
        params
    };
    for (op, params) in [
        ("edit_file", json!({ "path": ".env", "old_string": "CAN", "new_string": "x", "with_diff": true })),
        ("write_file", json!({ "path": ".env", "content": text("x"), "with_diff": true })),
        ("apply_patch", patch("*** Update File: .env\n@@\n-CANARY\n+x\n")),
        ("apply_patch", patch_params("*** Update File: .env\n*** Move to: readable\n")),
        ("apply_patch", patch("*** Delete File: .env\n")),
        ("apply_patch", patch("*** Add File: .env\n+x\n")),
        ("apply_patch", patch("*** Update File: plain.txt\n*** Move to: .env\n@@\n-plain\n+x\n")),
        ("move", json!({ "from": ".env", "to": "readable" })),
        ("move", json!({ "from": "keys/a", "to": "readable" })),
        ("move", json!({ "from": "ignored", "to": "vault.old" })),
        ("move", json!({ "from": "vault", "to": "readable" })),
    ] {
        let receipt = agent.fs(op, params.clone());
        if params["from"] == "ignored" {
            // The rule matches under the new name too.
            expect("moved", &receipt, &["ok"])?;
            continue;
        }
        expect(&format!("{op} {params}"), &receipt, &["forbidden / policy_denied"])?;
        check(!receipt.to_string().contains("CANARY"), || format!("{op} {params}: {receipt}"))?;
    }
    // A rule about one operation leaves the others, as far as they show nothing.
    let missed = json!({ "path": ".env", "old_string": "CANARX", "new_string": "x" });
    for (op, params, wanted) in [
        ("edit_file", missed, "not_found / edit_target_not_found"),
        ("apply_patch", patch_params("*** Update File: .env\n@@\n-CANARX\n+x\n"), "reject"),
        ("edit_file", json!({ "path": ".env", "old_string": "-1", "new_string": "-2" }), "ok"),
        ("write_file", json!({ "path": ".env", "content": text("x") }), "ok"),
    ] {
        let receipt = agent.fs(op, params);
        expect(op, &receipt, &[wanted])?;
        check(!receipt.to_string().contains("CANARY"), || format!("{op}: {receipt}"))?;
    }
    world.finish()
}

/// What an earlier rule allows is readable, in folders that a later one denies.
fn exceptions_stay_readable() -> Outcome {
    let world = World::new();
    furnish(&world);
    world.write("vault/public/readme", "open");
    let allow = json!({ "name": "open", "ops": ["read"], "paths": ["vault/public/**", "plain.txt"], "decision": "allow" });
    let room = Room::of(world, denying(&["**"], &[allow]));
    let said =
        room.says("cat plain.txt vault/public/readme; cat .env vault/x keys/a/b.pem 2>/dev/null; true")?;
    check(said == "plainopen", || said.clone())?;
    room.finish()
}

/// The folders that were listed for an earlier command are listed again when they changed.
fn what_appears_between_commands_is_masked() -> Outcome {
    let world = World::new();
    furnish(&world);
    let room = Room::of(world, denying(&["**/*.pem"], &[]));
    // A folder that changed within two seconds is listed each time; after that, what it contained is kept.
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    for round in 0..20 {
        let receipt = room.exec(json!({ "argv": ["sh", "-c", "find . -name '*.pem' -exec cat {} +"] }));
        check(!receipt.to_string().contains("CANARY"), || format!("round {round}: {receipt}"))?;
        room.world.write(&format!("keys/{round}/new.pem"), "CANARY-6");
        room.world.write(&format!("keys/{round}.pem"), "CANARY-7");
        let moved = room.world.root.join("keys/0/new.pem");
        let _ = std::fs::rename(&moved, room.world.root.join(format!("keys/moved{round}.pem")));
    }
    room.finish()
}

/// Where nothing can be masked, a session with such a rule runs no commands, and file effects work.
fn without_mounts_no_command_runs() -> Outcome {
    let reduced = {
        let mut params = denying(&["**/.env"], &[]);
        params["allow_reduced"] = json!(true);
        params
    };
    let mut none = denying(&["**/.env"], &[]);
    none["isolation"] = json!("none");
    for (start, params) in [(Start::default(), none), (no_namespaces(), reduced)] {
        let world = World::with(start);
        furnish(&world);
        let session = world.open(params);
        let run = json!({ "session_id": session, "argv": ["cat", ".env"] });
        expect("a command", &world.client().effect("host.exec", run), &["error / isolation_unavailable"])?;
        let mut agent = world.quiet_agent(&session);
        expect("a read", &agent.fs("read_file", json!({ "path": "plain.txt" })), &["ok"])?;
        let denied = agent.fs("read_file", json!({ "path": ".env" }));
        expect("a denied read", &denied, &["forbidden / policy_denied"])?;
        world.finish()?;
    }
    Ok(())
}
