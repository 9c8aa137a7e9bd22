//! The policy: every decision of every point and rule is reported before it is applied, and is applied as reported.

use aos_testkit::{
    Client, Findings, Fixture, Start, World, check, expect, is_full, new_seed, patch_params, text, tree,
    verdict, warning_codes,
};
use serde_json::{Value, json};

use super::{effects_on, plant_three, rule, searches_in, shown};
use crate::Outcome;
use crate::torture::clean;
use aos_testkit::torture::policy as policy_torture;

/// A decision point, its risk code, and a request that triggers it.
struct Point {
    name: &'static str,
    code: &'static str,
    met: Met,
}

enum Met {
    /// A path that the capability allows.
    Path(fn(&World) -> String),
    /// A command: its argv, and its cwd.
    Command(fn(&World) -> (Value, String)),
}

fn points() -> [Point; 7] {
    let point = |name, code, met| Point { name, code, met };
    [
        point("absolute_path", "absolute_path", Met::Path(|world| shown(&world.root.join("in/f")))),
        point("path_outside_cwd", "outside_cwd", Met::Path(|world| shown(&world.parent.join("second/f")))),
        point("path_outside_workspace", "outside_workspace", Met::Path(|_| "third/f".into())),
        point(
            "command_cwd_outside_cwd",
            "command_cwd_outside_cwd",
            Met::Command(|world| (json!(["true"]), shown(&world.parent.join("second")))),
        ),
        point(
            "command_cwd_outside_workspace",
            "command_cwd_outside_workspace",
            Met::Command(|world| (json!(["true"]), shown(&world.parent.join("third")))),
        ),
        point(
            "command_external_paths",
            "command_references_external_paths",
            Met::Command(|world| (json!(["cat", world.parent.join("second/f")]), shown(&world.root))),
        ),
        point(
            "command_paths_outside_workspace",
            "command_references_outside_workspace",
            Met::Command(|world| (json!(["cat", world.parent.join("third/f")]), shown(&world.root))),
        ),
    ]
}

/// All points at `allow` except one.
fn only(point: &str, decision: &str) -> Value {
    let mut access: Value = points().iter().map(|point| (point.name.to_owned(), json!("allow"))).collect();
    access[point] = json!(decision);
    json!({ "host_access": access })
}

pub(super) fn each_point_each_decision() -> Outcome {
    let mut findings = Findings::default();
    let world = World::new();
    for point in points() {
        for decision in ["allow", "warn", "deny"] {
            plant_three(&world);
            let outcome = one_point(&world, &point, decision);
            findings.add(outcome.map_err(|why| format!("{} {decision}: {why}", point.name)));
        }
    }
    findings.add(outside_is_outside(&world));
    findings.add(world.finish());
    findings.outcome()
}

fn one_point(world: &World, point: &Point, decision: &str) -> Outcome {
    let roots = json!([world.root, world.parent.join("second")]);
    let session = world.open(json!({
        "capability": { "fs_roots": roots, "follow_symlinks": "allow" },
        "policy": only(point.name, decision),
    }));
    let mut client = world.client();
    match &point.met {
        Met::Path(path) => {
            let path = path(world);
            evaluated(&mut client, json!({ "session_id": session, "path": path }), point, decision)?;
            front_ends_agree(world, point, decision, json!({ "path": path }))?;
            paths_done(&mut client, &session, &path, point, decision)
        }
        Met::Command(command) => {
            let (argv, cwd) = command(world);
            let question = json!({ "argv": argv, "command_cwd": cwd });
            let mut asked = question.clone();
            asked["session_id"] = json!(session);
            evaluated(&mut client, asked, point, decision)?;
            front_ends_agree(world, point, decision, question)?;
            command_done(&mut client, &session, argv, &cwd, point, decision)
        }
    }
}

/// The evaluation reports the decision, names the risk, and is consistent in itself.
fn evaluated(client: &mut Client, question: Value, point: &Point, decision: &str) -> Outcome {
    let answer = client.rpc("policy.evaluate", question);
    let said = &answer["result"];
    check(said["disposition"] == decision, || format!("evaluate says {answer}"))?;
    let codes = said["risk_codes"].as_array().cloned().unwrap_or_default();
    check(codes.contains(&json!(point.code)), || format!("evaluate does not name {}: {said}", point.code))?;
    let listed: Vec<Value> =
        said["risks"].as_array().into_iter().flatten().map(|risk| risk["code"].clone()).collect();
    check(listed == codes && said["primary_risk"]["code"] == codes[0], || format!("risks disagree: {said}"))?;
    let flags = [said["should_warn"] == (decision == "warn"), said["should_deny"] == (decision == "deny")];
    check(flags == [true, true] && said["has_risks"] == true, || format!("flags disagree: {said}"))?;
    let lines = json!([said["headline"], said["message"], said["recommendation"]]);
    check(said["summary_lines"] == lines, || format!("summary_lines disagree: {said}"))
}

/// The socket without a session and the command line give the same evaluation.
fn front_ends_agree(world: &World, point: &Point, decision: &str, question: Value) -> Outcome {
    let policy = world.parent.join("policy.json");
    std::fs::write(&policy, only(point.name, decision).to_string()).unwrap();
    let root = shown(&world.root);
    let ground = ["--cwd", &root, "--workspace", &root, "--policy", policy.to_str().unwrap()];
    let mut asked = question.clone();
    asked["cwd"] = json!(root);
    asked["workspace"] = json!(root);
    asked["policy"] = only(point.name, decision);
    let said = world.client().rpc("policy.evaluate", asked)["result"].clone();
    let mut words: Vec<String> = vec!["policy".into()];
    if let Some(path) = question["path"].as_str() {
        words.extend(["path".into(), path.to_owned()]);
        words.extend(ground.map(str::to_owned));
    } else {
        words.push("command".into());
        words.extend(ground.map(str::to_owned));
        words.extend([
            "--command-cwd".into(),
            question["command_cwd"].as_str().unwrap().to_owned(),
            "--".into(),
        ]);
        words.extend(
            question["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()),
        );
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (code, out, err) = world.aos(&words);
    check(code == 0, || format!("aos {words:?}: exit {code}: {err}"))?;
    let printed: Value = serde_json::from_str(&out).map_err(|why| format!("{why}: {out}"))?;
    check(printed == said, || format!("aos policy says {printed}, the socket {said}"))
}

/// Every file effect obeys the decision; where it is `deny`, nothing changes.
fn paths_done(client: &mut Client, session: &str, path: &str, point: &Point, decision: &str) -> Outcome {
    let mut findings = Findings::default();
    for (_, kind, params) in effects_on(path) {
        let what = format!("{kind} {params}");
        let receipt = client.fs(session, kind, params);
        findings.add(obeyed(&what, &receipt, point.code, decision));
    }
    for (kind, params) in searches_in(path.rsplit_once('/').map_or(".", |(dir, _)| dir)) {
        let receipt = client.fs(session, kind, params);
        findings.add(obeyed(kind, &receipt, point.code, decision));
    }
    findings.outcome()
}

fn obeyed(what: &str, receipt: &Value, code: &str, decision: &str) -> Outcome {
    if decision == "deny" {
        return expect(what, receipt, &["forbidden / policy_denied"]);
    }
    expect(what, receipt, &["ok"])?;
    let warned = warning_codes(receipt).contains(&code);
    check(warned == (decision == "warn"), || format!("{what}: warned is {warned}: {receipt}"))
}

fn command_done(
    client: &mut Client,
    session: &str,
    argv: Value,
    cwd: &str,
    point: &Point,
    decision: &str,
) -> Outcome {
    let params = json!({ "session_id": session, "argv": argv, "cwd": cwd });
    let receipt = client.effect("host.exec", params);
    if point.name.ends_with("outside_workspace") && decision != "deny" {
        // Where the capability does not reach, the kernel or the resolver refuses; the policy must not.
        return check(verdict(&receipt) != "forbidden / policy_denied", || format!("{receipt}"));
    }
    if point.name == "command_cwd_outside_workspace" {
        // The capability is checked before the policy, and has refused already.
        return expect("host.exec", &receipt, &["forbidden"]);
    }
    obeyed("host.exec", &receipt, point.code, decision)
}

/// A plain path outside all roots stays outside, whatever the policy allows.
fn outside_is_outside(world: &World) -> Outcome {
    for decision in ["allow", "warn", "deny"] {
        let session = world.open(json!({ "policy": only("path_outside_workspace", decision) }));
        for path in [shown(&world.parent.join("third/f")), "../third/f".into()] {
            for (_, kind, params) in effects_on(&path) {
                let receipt = world.client().fs(&session, kind, params);
                expect(&format!("{kind} {path}"), &receipt, &["forbidden / path_outside_roots"])?;
            }
        }
    }
    Ok(())
}

/// POL-02, random policies of the torture test.
pub(super) fn said_and_done() -> Outcome {
    let world = World::asleep(Start::default());
    let plan = policy_torture::Plan {
        seed: new_seed(),
        pairs: if is_full() { 10_000 } else { 1_000 },
        mcp_every: 10,
        cli_every: 50,
        until: None,
    };
    let tally = policy_torture::torture(&world.setup(), &plan, &mut |_| ());
    let mut findings = Findings::default();
    // A run in which nothing was denied or nothing succeeded proves nothing.
    findings.add(check(tally.is_meaningful(), || format!("too few were denied or done: {tally}")));
    findings.add(clean("POL-02", plan.seed, &tally, &tally.complaints));
    findings.outcome()
}

pub(super) fn rules_by_both_spellings() -> Outcome {
    let rules = json!([
        rule("sources", json!(["write"]), json!(["src/**"]), "allow"),
        rule("rest", json!(["write"]), json!(["**"]), "deny"),
    ]);
    let mut fixture = Fixture::open(json!({ "policy": { "rules": rules } }));
    fixture.world.write("src/kept", "one\n");
    fixture.world.write("x", "one\n");
    fixture.world.link("..", "src/l");
    fixture.world.link("../x", "src/to_x");
    fixture.world.link("src", "alias");
    let before = tree(&fixture.world.root);
    let mut findings = Findings::default();
    let absolute = shown(&fixture.world.root.join("x"));
    let spelled = "src/../x src-evil/x src/l/x SRC/x src src/l/new src/to_x x ./x . srcx src/../src/../x src\\x2f../x alias/x";
    for path in spelled.split(' ').chain([absolute.as_str()]) {
        let write = json!({ "path": path, "content": text("two"), "create_parents": true });
        // Each one is denied by its literal or its resolved path; the escaped slash is not a valid path.
        let wanted = if path.contains("x2f") { "error / invalid_path" } else { "forbidden / policy_denied" };
        findings.add(expect(&format!("write {path}"), &fixture.fs("write_file", write), &[wanted]));
    }
    findings.add(named_rule(&mut fixture));
    for (kind, params) in [
        ("make_dir", json!({ "path": "made" })),
        ("move", json!({ "from": "src/kept", "to": "y" })),
        ("move", json!({ "from": "x", "to": "src/y" })),
        ("move", json!({ "from": "src/kept", "to": "src/l/y" })),
        ("make_dir", json!({ "path": "src/l/made" })),
    ] {
        findings.add(fixture.must(kind, params, &["forbidden / policy_denied"]));
    }
    findings.add(check(tree(&fixture.world.root) == before, || "the tree changed".into()));
    let inside = shown(&fixture.world.root.join("src/n4"));
    for path in ["src/n1", "./src/n2", "src//n3", &inside, "src/../src/n5", "src/deep/er/n6"] {
        let write = json!({ "path": path, "content": text("two"), "create_parents": true });
        findings.add(expect(&format!("write {path}"), &fixture.fs("write_file", write), &["ok"]));
    }
    findings.add(each_operation_ruled(&fixture.world));
    findings.add(patches_ruled(&fixture.world));
    findings.add(fixture.finish());
    findings.outcome()
}

/// A refusal names the rule that refused.
fn named_rule(fixture: &mut Fixture) -> Outcome {
    let receipt = fixture.fs("write_file", json!({ "path": "x", "content": text("two") }));
    let message = receipt["error_message"].as_str().unwrap_or_default();
    check(message.contains("rest"), || format!("the rule is not named: {receipt}"))
}

/// A rule about one operation applies to that operation only.
fn each_operation_ruled(world: &World) -> Outcome {
    let mut findings = Findings::default();
    for ruled in ["read", "write", "edit", "patch", "list", "stat"] {
        world.write("secret/f", "one\n");
        let rules = json!([rule("closed", json!([ruled]), json!(["secret", "secret/**"]), "deny")]);
        let session = world.open(json!({ "policy": { "rules": rules } }));
        let mut client = world.client();
        for (op, kind, params) in effects_on("secret/f") {
            // Rules have their own operation for removals; what was not created cannot be moved or removed.
            let depends = op == "write" && (kind == "remove" || kind == "move");
            if depends && ruled == "write"
                || op == "patch" && ruled == "patch" && params.to_string().contains("Delete")
            {
                continue;
            }
            let wanted = if op == ruled && kind != "remove" { "forbidden / policy_denied" } else { "ok" };
            let outcome = client.must(&session, kind, params, &[wanted]);
            findings.add(outcome.map_err(|why| format!("deny {ruled}: {why}")));
        }
    }
    world.write("secret/f", "one\n");
    let rules = json!([rule("stays", json!(["remove"]), json!(["secret/**"]), "deny")]);
    let session = world.open(json!({ "policy": { "rules": rules } }));
    let mut client = world.client();
    for params in [json!({ "path": "secret/f" }), json!({ "path": "secret", "recursive": true })] {
        findings.add(client.must(&session, "remove", params, &["forbidden / policy_denied"]));
    }
    findings.add(check(world.read("secret/f") == b"one\n", || "secret/f is gone".into()));
    findings.outcome()
}

/// Every path of a patch is checked, the target of a Move too, and one denial refuses the whole patch.
fn patches_ruled(world: &World) -> Outcome {
    world.write("open/f", "one\n");
    world.write("shut/f", "one\n");
    world.link("../shut", "open/door");
    let rules = json!([rule("shut", json!(["patch"]), json!(["shut/**"]), "deny")]);
    let session = world.open(json!({ "policy": { "rules": rules } }));
    let before = tree(&world.root);
    let mut findings = Findings::default();
    for sections in [
        "*** Add File: shut/new\n+x\n",
        "*** Update File: shut/f\n@@\n-one\n+two\n",
        "*** Delete File: shut/f\n",
        "*** Update File: open/f\n*** Move to: shut/g\n",
        "*** Update File: shut/f\n*** Move to: open/g\n",
        "*** Add File: open/door/new\n+x\n",
        "*** Update File: open/f\n*** Move to: open/door/g\n",
        "*** Update File: open/f\n@@\n-one\n+two\n*** Delete File: shut/f\n",
        "*** Add File: open/../shut/new\n+x\n",
    ] {
        let receipt = world.client().fs(&session, "apply_patch", patch_params(sections));
        findings.add(expect(sections, &receipt, &["forbidden / policy_denied"]));
    }
    findings.add(check(tree(&world.root) == before, || "a denied patch changed the tree".into()));
    findings.outcome()
}
