//! Links: followed as the capability says: never, inside the roots, or anywhere.

use aos_testkit::{Findings, Fixture, World, check, expect, patch_params, text, tree, warning_codes};
use serde_json::{Value, json};

use super::{capability, plant_three, served};
use crate::Outcome;

/// A file, a folder, and links to them: relative, absolute, in a chain, and to the outside.
fn plant_links(world: &World) {
    plant_three(world);
    world.link("in/f", "to_f");
    world.link(world.root.join("in/f"), "abs_f");
    world.link("in", "to_in");
    world.link("to_f", "chain");
    world.link(world.parent.join("third/f"), "third_f");
    world.link(world.root.join("../third"), "dotted");
}

const LINKS_INSIDE: [&str; 5] = ["to_f", "abs_f", "to_in/f", "chain", "in/../to_f"];
const LINKS_OUTSIDE: [&str; 3] = ["third/f", "third_f", "dotted/f"];

/// Effects that follow a link; the link itself can always be read and removed.
fn through(path: &str) -> Vec<(&'static str, Value)> {
    let moved = format!("*** Update File: in/f\n*** Move to: {path}\n");
    vec![
        ("read_file", json!({ "path": path })),
        ("stat", json!({ "path": path })),
        ("exists", json!({ "path": path })),
        ("edit_file", json!({ "path": path, "old_string": "one", "new_string": "two" })),
        ("write_file", json!({ "path": path, "content": text("two\n") })),
        ("write_file", json!({ "path": path, "content": text("two\n"), "mode": "append" })),
        ("apply_patch", patch_params(&format!("*** Update File: {path}\n@@\n-one\n+two\n"))),
        ("apply_patch", patch_params(&format!("*** Add File: {path}\n+two\n"))),
        ("apply_patch", patch_params(&moved)),
    ]
}

pub(super) fn links_denied() -> Outcome {
    let mut fixture = Fixture::open(capability(json!({ "follow_symlinks": "deny" })));
    plant_links(&fixture.world);
    let before = (tree(&fixture.world.root), tree(&fixture.world.parent.join("third")));
    let mut findings = Findings::default();
    for path in LINKS_INSIDE.into_iter().chain(LINKS_OUTSIDE) {
        for (kind, params) in through(path) {
            findings.add(fixture.must(kind, params, &["forbidden / symlink_not_allowed"]));
        }
    }
    for (kind, params) in [
        ("list_dir", json!({ "path": "to_in" })),
        ("make_dir", json!({ "path": "to_in/made" })),
        ("move", json!({ "from": "in/f", "to": "to_in/g" })),
        ("remove", json!({ "path": "to_in/f" })),
    ] {
        findings.add(expect(
            &format!("{kind} {params}"),
            &fixture.fs(kind, params),
            &["forbidden / symlink_not_allowed"],
        ));
    }
    findings
        .add(check(before == (tree(&fixture.world.root), tree(&fixture.world.parent.join("third"))), || {
            "something changed".into()
        }));
    findings.add(the_link_itself(&mut fixture));
    findings.add(served(&mut fixture.client, &fixture.session, "in/f"));
    findings.add(fixture.finish());
    findings.outcome()
}

/// A link that is not followed is an ordinary name.
fn the_link_itself(fixture: &mut Fixture) -> Outcome {
    let receipt = fixture.fs("stat", json!({ "path": "to_f", "no_follow": true }));
    expect("stat no_follow", &receipt, &["ok"])?;
    check(receipt["kind"] == "symlink", || format!("{receipt}"))?;
    let listed = fixture.fs("list_dir", json!({}));
    check(
        listed["entries"]["inline_text"]["text"].as_str().is_some_and(|names| names.contains("to_f@")),
        || format!("{listed}"),
    )?;
    expect("move", &fixture.fs("move", json!({ "from": "to_f", "to": "renamed" })), &["ok"])?;
    expect("remove", &fixture.fs("remove", json!({ "path": "renamed" })), &["ok"])?;
    check(fixture.world.read("in/f") == b"one\n", || "the target was touched".into())
}

pub(super) fn links_inside() -> Outcome {
    let mut findings = Findings::default();
    for extra in [json!({}), capability(json!({ "follow_symlinks": "within_root_only" }))] {
        let mut fixture = Fixture::open(extra);
        plant_links(&fixture.world);
        for path in LINKS_INSIDE {
            for (kind, params) in through(path).into_iter().take(8) {
                fixture.world.write("in/f", "one\n");
                findings.add(fixture.must(kind, params, &["ok"]));
                let replaced = |name: &&str| !fixture.world.root.join(name).is_symlink();
                let replaced = ["to_f", "abs_f", "to_in", "chain"].iter().find(|name| replaced(name));
                findings
                    .add(check(replaced.is_none(), || format!("{kind}: {replaced:?} is no link any more")));
            }
        }
        fixture.world.write("in/f", "one\n");
        let before = (tree(&fixture.world.root), tree(&fixture.world.parent.join("third")));
        for path in LINKS_OUTSIDE {
            for (kind, params) in through(path) {
                findings.add(fixture.must(kind, params, &["forbidden / symlink_not_allowed"]));
            }
        }
        let after = (tree(&fixture.world.root), tree(&fixture.world.parent.join("third")));
        findings.add(check(before == after, || "something changed".into()));
        findings.add(fixture.finish());
    }
    findings.outcome()
}

/// The capability follows links anywhere; the policy still checks the target.
pub(super) fn links_anywhere() -> Outcome {
    let world = World::new();
    plant_links(&world);
    let allow = json!({ "follow_symlinks": "allow" });
    let judged = world.open(capability(allow.clone()));
    let open = world.open(json!({ "capability": allow, "policy": { "preset": "permissive" } }));
    let mut client = world.client();
    let mut findings = Findings::default();
    for path in LINKS_OUTSIDE {
        for (kind, params) in through(path).into_iter().take(8) {
            let what = format!("{kind} {params}");
            let receipt = client.fs(&judged, kind, params.clone());
            findings.add(expect(
                &format!("default policy: {what}"),
                &receipt,
                &["forbidden / policy_denied"],
            ));
            std::fs::write(world.parent.join("third/f"), "one\n").unwrap();
            let receipt = client.fs(&open, kind, params);
            findings.add(expect(&format!("permissive policy: {what}"), &receipt, &["ok"]));
            let warned = warning_codes(&receipt).contains(&"outside_workspace");
            findings.add(check(warned, || format!("{what}: no warning: {receipt}")));
        }
    }
    for path in LINKS_INSIDE {
        findings.add(client.must(&judged, "read_file", json!({ "path": path }), &["ok"]));
    }
    // Without a link the path is outside the roots, and our own state is out of reach either way.
    let plain = client.fs(&open, "read_file", json!({ "path": "../third/f" }));
    findings.add(expect("no link", &plain, &["forbidden / path_outside_roots"]));
    world.link(world.home.join("state/journal.db"), "journal");
    world.link(&world.home, "home");
    for path in ["journal", "home/state/journal.db", "home/run"] {
        let receipt = client.fs(&open, "stat", json!({ "path": path }));
        findings.add(expect(path, &receipt, &["forbidden / path_outside_roots"]));
    }
    findings.add(world.finish());
    findings.outcome()
}
