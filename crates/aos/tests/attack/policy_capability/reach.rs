//! Operations and roots: a session does only what its capability allows, and no other client can use or widen it.

use std::collections::BTreeSet;

use aos_testkit::{Client, Findings, Fixture, Start, World, check, expect, patch_params, text, tree};
use serde_json::{Value, json};

use super::{capability, effects_on, plant_three, searches_in, served, shown};
use crate::Outcome;

pub(super) fn operations_not_allowed() -> Outcome {
    let mut fixture = Fixture::open(capability(json!({ "allowed_fs_ops": ["read", "search"] })));
    fixture.world.write("d/f", "one\n");
    let before = tree(&fixture.world.root);
    let mut findings = Findings::default();
    for (op, kind, mut params) in effects_on("d/f") {
        let allowed: &[&str] = if op == "read" { &["ok"] } else { &["forbidden / op_not_allowed"] };
        let what = format!("{kind} {params}");
        findings.add(expect(&format!("socket: {what}"), &fixture.fs(kind, params.clone()), allowed));
        params["session_id"] = json!(fixture.session);
        let (code, out, err) = fixture.world.aos(&["call", &format!("host.fs.{kind}"), &params.to_string()]);
        let receipt: Value = serde_json::from_str(&out).map_err(|why| format!("{why}: {out}{err}"))?;
        findings.add(expect(&format!("aos call: {what}"), &receipt, allowed));
        let wanted = i32::from(op != "read");
        findings.add(check(code == wanted, || format!("aos call: {what}: exit {code}, not {wanted}")));
    }
    for (kind, params) in [
        ("write_file", json!({ "path": "../outside/x", "content": text("x") })),
        ("remove", json!({ "path": "d", "recursive": true })),
        ("apply_patch", json!({ "patch": text("no patch at all") })),
        ("apply_patch", json!({ "patch": patch_params("*** Delete File: d/f\n")["patch"], "dry_run": true })),
    ] {
        findings.add(fixture.must(kind, params, &["forbidden"]));
    }
    findings.add(tools_not_allowed(&fixture));
    for (kind, params) in searches_in(".") {
        findings.add(fixture.must(kind, params, &["ok"]));
    }
    findings.add(check(tree(&fixture.world.root) == before, || "the tree changed".into()));
    findings.add(fixture.finish());
    findings.outcome()
}

/// The tools for models give the same refusals as text.
fn tools_not_allowed(fixture: &Fixture) -> Outcome {
    for (tool, arguments) in [
        ("write_file", json!({ "path": "d/g", "content": "x" })),
        ("edit_file", json!({ "path": "d/f", "old_string": "one", "new_string": "two" })),
        ("apply_patch", json!({ "patch": "*** Begin Patch\n*** Delete File: d/f\n*** End Patch\n" })),
    ] {
        let arguments = arguments.to_string();
        let (code, out, _) =
            fixture.world.aos(&["tool", "call", tool, &arguments, "--session", &fixture.session]);
        check(code == 1 && out.contains("does not allow"), || {
            format!("aos tool call {tool}: {code}: {out}")
        })?;
    }
    Ok(())
}

pub(super) fn roots_of_another_session() -> Outcome {
    let mut world = World::new();
    plant_three(&world);
    world.write("sub/f", "one\n");
    world.write("f", "one\n");
    let a = world.open(capability(json!({ "fs_roots": [world.root] })));
    let mut client = world.client();
    for roots in [
        json!(["nope"]),
        json!([""]),
        json!([world.root.join("f")]),
        json!(["f"]),
        json!([world.root, "nope"]),
    ] {
        let receipt = world.open_receipt(capability(json!({ "fs_roots": roots })));
        expect(&format!("fs_roots {roots}"), &receipt, &["error / invalid_capability"])?;
        check(receipt["session_id"].is_null(), || format!("a session all the same: {receipt}"))?;
        never_widened(&world, &mut client, &a)?;
    }
    let echoed =
        world.open_receipt(capability(json!({ "fs_roots": [format!("{}/sub/..", shown(&world.root))] })));
    check(echoed["capability"]["fs_roots"] == json!([world.root]), || format!("not resolved: {echoed}"))?;
    let both = world.open(capability(json!({ "fs_roots": [world.root, world.parent.join("second")] })));
    served(&mut client, &both, "f")?;
    served(&mut client, &both, &shown(&world.parent.join("second/f")))?;
    for path in [shown(&world.outside.join("secret")), "../outside/secret".into(), shown(&world.parent)] {
        expect(
            &path,
            &client.fs(&both, "read_file", json!({ "path": path })),
            &["forbidden / path_outside_roots"],
        )?;
    }
    never_widened(&world, &mut client, &a)?;
    no_roots(&world, &mut client)?;
    never_widened(&world, &mut client, &a)?;
    // The capability is stored with the session: a new daemon does not widen it, and neither does another session.
    world.restart(Start::default());
    never_widened(&world, &mut world.client(), &a)?;
    served(&mut world.client(), &both, &shown(&world.parent.join("second/f")))?;
    world.finish()
}

fn no_roots(world: &World, client: &mut Client) -> Outcome {
    let receipt = world.open_receipt(capability(json!({ "fs_roots": [] })));
    expect("fs_roots []", &receipt, &["ready"])?;
    check(receipt["capability"]["fs_roots"] == json!([]), || format!("{receipt}"))?;
    let session = receipt["session_id"].as_str().unwrap().to_owned();
    for path in ["f".to_owned(), "sub/f".into(), shown(&world.root.join("f"))] {
        for (_, kind, params) in effects_on(&path) {
            let what = format!("no roots: {kind} {params}");
            expect(&what, &client.fs(&session, kind, params), &["forbidden / path_outside_roots"])?;
        }
    }
    expect("list_dir", &client.fs(&session, "list_dir", json!({})), &["forbidden / path_outside_roots"])
}

/// Session A serves only its own root, and no request can carry a capability.
fn never_widened(world: &World, client: &mut Client, a: &str) -> Outcome {
    served(client, a, "f")?;
    for path in
        [shown(&world.parent.join("second/f")), shown(&world.outside.join("secret")), "third/f".into()]
    {
        expect(&format!("A: {path}"), &client.fs(a, "read_file", json!({ "path": path })), &["forbidden"])?;
    }
    for field in ["capability", "fs_roots", "follow_symlinks", "policy"] {
        let mut params = json!({ "path": "f" });
        params[field] = json!({ "fs_roots": ["/"] });
        expect(field, &client.fs(a, "read_file", params), &["error / invalid_params"])?;
    }
    Ok(())
}

pub(super) fn guessed_ids() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    let ids: Vec<String> = (0..64).map(|_| world.open(json!({}))).collect();
    let mut client = world.client();
    let id = &ids[10];
    let shifted = |by: i128| {
        let digits = i128::from_str_radix(&id[3..19], 16).unwrap() + by;
        format!("hs_{digits:016x}{}", &id[19..])
    };
    let tail = |by: u64| {
        let digits = u64::from_str_radix(&id[19..], 16).unwrap().wrapping_add(by);
        format!("{}{digits:016x}", &id[..19])
    };
    let guesses = [
        shifted(1),
        shifted(-1),
        tail(1),
        tail(u64::MAX),
        id.to_uppercase(),
        id[..id.len() - 1].to_owned(),
        id[..19].to_owned(),
        id[3..].to_owned(),
        format!("{id}0"),
        format!("{id}\0"),
        format!(" {id}"),
        format!("{id}\n"),
        format!("{id}/../{}", ids[11]),
        "hs_".into(),
        "hs_%".into(),
        "*".into(),
        String::new(),
        id.replace("hs_", "HS_"),
        "x".repeat(100_000),
    ];
    for guess in &guesses {
        let receipt = client.fs(guess, "read_file", json!({ "path": "f" }));
        expect(&format!("{guess:.60?}"), &receipt, &["error / session_not_found"])?;
        let write = json!({ "path": "g", "content": text("x") });
        expect(
            &format!("{guess:.60?}"),
            &client.fs(guess, "write_file", write),
            &["error / session_not_found"],
        )?;
        let signal = json!({ "session_id": guess, "signal": "kill" });
        let signaled = client.effect("host.session.signal", signal);
        expect(&format!("signal {guess:.60?}"), &signaled, &["not_found"])?;
    }
    check(!world.root.join("g").exists(), || "a guess wrote".into())?;
    served(&mut client, id, "f")?;
    random_bits(&ids)?;
    world.finish()
}

/// 64 bits of each id take both values over many ids: they are random, not counted up.
fn random_bits(ids: &[String]) -> Outcome {
    check(ids.iter().collect::<BTreeSet<_>>().len() == ids.len(), || "two ids are the same".into())?;
    let bits = |id: &String| u128::from_str_radix(&id[3..], 16).expect("an id ends in hex digits");
    let (mut ever_one, mut ever_zero) = (0_u128, 0_u128);
    for id in ids {
        ever_one |= bits(id);
        ever_zero |= !bits(id);
    }
    // The low bits of the time vary too, so only the bits behind it count.
    let random = (ever_one & ever_zero & u128::from(u64::MAX)).count_ones();
    check(random == 64, || format!("only {random} bits are random: {:?}", &ids[..3]))
}

pub(super) fn each_operation_alone() -> Outcome {
    let world = World::new();
    let mut findings = Findings::default();
    for alone in ["read", "write", "edit", "patch", "search", "list", "stat"] {
        world.write("d/f", "one\n");
        let receipt = world.open_receipt(capability(json!({ "allowed_fs_ops": [alone] })));
        findings
            .add(check(receipt["capability"]["allowed_fs_ops"] == json!([alone]), || format!("{receipt}")));
        let session = receipt["session_id"].as_str().unwrap_or_default().to_owned();
        let mut client = world.client();
        for (op, kind, params) in effects_on("d/f") {
            let wanted = if op == alone { "ok" } else { "forbidden / op_not_allowed" };
            let outcome = client.must(&session, kind, params, &[wanted]);
            findings.add(outcome.map_err(|why| format!("only {alone}: {why}")));
        }
        for (kind, params) in searches_in("d") {
            let wanted = if alone == "search" { "ok" } else { "forbidden / op_not_allowed" };
            findings.add(client.must(&session, kind, params, &[wanted]));
        }
    }
    let none = world.open(capability(json!({ "allowed_fs_ops": [] })));
    for (_, kind, params) in effects_on("d/f") {
        let receipt = world.client().fs(&none, kind, params);
        findings.add(expect(&format!("no operation: {kind}"), &receipt, &["forbidden / op_not_allowed"]));
    }
    findings.add(world.finish());
    findings.outcome()
}

pub(super) fn only_the_roots() -> Outcome {
    let world = World::new();
    plant_three(&world);
    world.write("sub/f", "one\n");
    world.write("sub-evil/f", "one\n");
    world.write("f", "one\n");
    world.link("../f", "sub/to_f");
    world.link("../in", "sub/to_in");
    let mut findings = Findings::default();
    let mut client = world.client();
    // A root below the workdir, given relative to it: the workdir itself is then outside.
    let sub = world.open(capability(json!({ "fs_roots": ["sub"] })));
    findings.add(served(&mut client, &sub, "sub/f"));
    findings.add(served(&mut client, &sub, &shown(&world.root.join("sub/f"))));
    for path in ["f", "in/f", "sub-evil/f", "sub/../f", "./f"] {
        for (_, kind, params) in effects_on(path) {
            let receipt = client.fs(&sub, kind, params);
            findings.add(expect(&format!("{kind} {path}"), &receipt, &["forbidden / path_outside_roots"]));
        }
    }
    for path in ["sub/to_f", "sub/to_in/f"] {
        let receipt = client.fs(&sub, "read_file", json!({ "path": path }));
        findings.add(expect(path, &receipt, &["forbidden / symlink_not_allowed"]));
    }
    // A root elsewhere only: relative paths start at the workdir, which is outside.
    let second = world.open(capability(json!({ "fs_roots": [world.parent.join("second")] })));
    findings.add(served(&mut client, &second, &shown(&world.parent.join("second/f"))));
    let receipt = client.fs(&second, "read_file", json!({ "path": "f" }));
    findings.add(expect("f", &receipt, &["forbidden / path_outside_roots"]));
    // Files may move between two roots; a link from one root into the other stays inside.
    let both = world.open(capability(json!({ "fs_roots": [world.root.join("sub"), world.root.join("in")] })));
    findings.add(served(&mut client, &both, "sub/to_in/f"));
    let across = json!({ "from": "sub/f", "to": "in/moved" });
    findings.add(client.must(&both, "move", across, &["ok"]));
    // A root itself cannot be moved or removed.
    for (kind, params) in [
        ("remove", json!({ "path": "in", "recursive": true })),
        ("move", json!({ "from": "in", "to": "sub/in" })),
    ] {
        findings.add(client.must(&both, kind, params, &["forbidden", "error"]));
    }
    findings.add(check(world.root.join("in/f").exists(), || "a root went away".into()));
    findings.add(world.finish());
    findings.outcome()
}
