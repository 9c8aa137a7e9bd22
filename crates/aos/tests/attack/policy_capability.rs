//! Policy and capability: what is said is what is done, on every door, at the limit and one over.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::world::{
    Bench, Client, Findings, LATER_EXEC, LATER_SEARCH, LATER_TOOL, Start, World, check, expect, is_full,
    patch_params, rand, text, tree, verdict, warning_codes,
};
use crate::{Case, Outcome, policy_torture};

pub fn cases() -> Vec<Case> {
    let plain = |id, run| Case { id, needs: &[], run };
    vec![
        plain("POL-01", each_point_each_decision),
        plain("POL-02", said_and_done),
        plain("POL-03", reads_are_cut),
        plain("POL-04", operations_not_allowed),
        plain("POL-05", rules_by_both_spellings),
        plain("POL-07", roots_of_another_session),
        plain("POL-08", guessed_ids),
        plain("POL-09", policies_that_are_none),
        plain("POL-10", numbers_that_are_none),
        plain("POL-13", inline_or_not_at_all),
        plain("OWN-CAP-PERMISSIVE", nothing_binds),
        plain("OWN-CAP-ALLOWED_FS_OPS", each_operation_alone),
        plain("OWN-CAP-FS_ROOTS", only_the_roots),
        plain("OWN-CAP-FOLLOW_SYMLINKS-DENY", links_denied),
        plain("OWN-CAP-FOLLOW_SYMLINKS-WITHIN_ROOT_ONLY", links_inside),
        plain("OWN-CAP-FOLLOW_SYMLINKS-ALLOW", links_anywhere),
        plain("OWN-CAP-PROTECTED_PATHS", protected_names),
        plain("OWN-CAP-MAX_READ_BYTES", read_limit),
        plain("OWN-CAP-MAX_WRITE_BYTES-WRITE", write_limit_of_writes),
        plain("OWN-CAP-MAX_WRITE_BYTES-EDIT", write_limit_of_edits),
        plain("OWN-CAP-MAX_WRITE_BYTES-PATCH", write_limit_of_patches),
        plain("OWN-CAP-MAX_PATCH_BYTES", patch_limit),
        plain("OWN-CAP-MAX_INLINE_BYTES", inline_limit),
        plain("OWN-CAP-ALLOWED_PATCH_FORMATS", patch_formats),
        plain("OWN-CAP-MAX_CHANGED_FILES", changed_files_limit),
        plain("OWN-CAP-MAX_EDIT_REPLACEMENTS", replacements_limit),
    ]
}

fn capability(capability: Value) -> Value {
    json!({ "capability": capability })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Every file effect on a path, with the operation that it needs. `path` is an existing file with the content
/// `one\n` in an existing folder.
fn effects_on(path: &str) -> Vec<(&'static str, &'static str, Value)> {
    let dir = path.rsplit_once('/').map_or(".", |(dir, _)| dir);
    let sibling = |name: &str| format!("{dir}/{name}");
    let patch = |sections: String| patch_params(&sections);
    vec![
        ("read", "read_file", json!({ "path": path })),
        ("stat", "stat", json!({ "path": path })),
        ("stat", "stat", json!({ "path": path, "no_follow": true })),
        ("stat", "exists", json!({ "path": path })),
        ("list", "list_dir", json!({ "path": dir })),
        ("edit", "edit_file", json!({ "path": path, "old_string": "one", "new_string": "one" })),
        ("write", "write_file", json!({ "path": path, "content": text("one\n") })),
        ("write", "write_file", json!({ "path": sibling("w"), "content": text("x") })),
        ("write", "move", json!({ "from": sibling("w"), "to": sibling("m") })),
        ("write", "remove", json!({ "path": sibling("m") })),
        ("write", "make_dir", json!({ "path": sibling("made") })),
        ("write", "remove", json!({ "path": sibling("made") })),
        ("patch", "apply_patch", patch(format!("*** Update File: {path}\n@@\n one\n"))),
        ("patch", "apply_patch", patch(format!("*** Add File: {}\n+x\n", sibling("p")))),
        ("patch", "apply_patch", patch(format!("*** Delete File: {}\n", sibling("p")))),
    ]
}

fn searches_in(dir: &str) -> [(&'static str, Value); 2] {
    [("grep", json!({ "pattern": "one", "path": dir })), ("glob", json!({ "pattern": "*", "path": dir }))]
}

// ---------------------------------------------------------------------------------------------------- policy

/// A decision point, the code of its risk, and what it is met by.
struct Point {
    name: &'static str,
    code: &'static str,
    met: Met,
}

enum Met {
    /// By a path that the capability allows.
    Path(fn(&World) -> String),
    /// By a command: its argv, and where it would run.
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

/// `$R/in`, a second root, and a third folder that is no root but that a link of `$R` leads to.
fn plant_three(world: &World) {
    world.write("in/f", "one\n");
    for name in ["second", "third"] {
        std::fs::create_dir_all(world.parent.join(name)).unwrap();
        std::fs::write(world.parent.join(name).join("f"), "one\n").unwrap();
    }
    if !world.root.join("third").exists() {
        world.link(world.parent.join("third"), "third");
    }
}

/// All points at `allow` but one.
fn only(point: &str, decision: &str) -> Value {
    let mut access: Value = points().iter().map(|point| (point.name.to_owned(), json!("allow"))).collect();
    access[point] = json!(decision);
    json!({ "host_access": access })
}

fn each_point_each_decision() -> Outcome {
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
            doors_agree(world, point, decision, json!({ "path": path }))?;
            paths_done(&mut client, &session, &path, point, decision)
        }
        Met::Command(command) => {
            let (argv, cwd) = command(world);
            let question = json!({ "argv": argv, "command_cwd": cwd });
            let mut asked = question.clone();
            asked["session_id"] = json!(session);
            evaluated(&mut client, asked, point, decision)?;
            doors_agree(world, point, decision, question)?;
            command_done(&mut client, &session, argv, &cwd, point, decision)
        }
    }
}

/// The evaluation says the decision, names the risk, and is consistent in itself.
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

/// The socket without a session and the command line give one and the same evaluation.
fn doors_agree(world: &World, point: &Point, decision: &str, question: Value) -> Outcome {
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
    if LATER_SEARCH {
        for (kind, params) in searches_in(path.rsplit_once('/').map_or(".", |(dir, _)| dir)) {
            let receipt = client.fs(session, kind, params);
            findings.add(obeyed(kind, &receipt, point.code, decision));
        }
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
    if !LATER_EXEC {
        return Ok(());
    }
    let params = json!({ "session_id": session, "argv": argv, "cwd": cwd });
    let receipt = client.effect("host.exec", params);
    if point.name.ends_with("outside_workspace") && decision != "deny" {
        // Where the capability does not reach, the kernel or the resolver says no; policy must not.
        return check(verdict(&receipt) != "forbidden / policy_denied", || format!("{receipt}"));
    }
    if point.name == "command_cwd_outside_workspace" {
        // The capability is asked before the policy, and has said no already.
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

/// POL-02, the torturer's random policies.
fn said_and_done() -> Outcome {
    let world = World::asleep(Start::default());
    let plan = policy_torture::Plan {
        seed: rand(),
        pairs: if is_full() { 10_000 } else { 1_000 },
        mcp_every: 10,
        cli_every: 50,
        until: None,
    };
    let tally = policy_torture::torture(&crate::journal_crash::bench(&world), &plan, &mut |_| ());
    println!("POL-02: seed {}: {tally}", plan.seed);
    let mut findings = Findings::default();
    // A run in which nothing was denied or nothing was done proves nothing.
    findings.add(check(tally.has_teeth(), || format!("too few were denied or done: {tally}")));
    findings.add(check(tally.is_clean(), || format!("seed {}: {}", plan.seed, tally.complaints.join("\n"))));
    findings.outcome()
}

fn reads_are_cut() -> Outcome {
    let mut bench = Bench::open(capability(json!({ "max_read_bytes": 100 })));
    bench.world.write("f", "0123456789".repeat(100));
    for max_bytes in [json!(1_000_000_000), json!(101), json!(100), json!(u64::MAX)] {
        let receipt = bench.fs("read_file", json!({ "path": "f", "max_bytes": max_bytes }));
        cut_at(&receipt, 0, 100)?;
    }
    cut_at(&bench.fs("read_file", json!({ "path": "f" })), 0, 100)?;
    cut_at(&bench.fs("read_file", json!({ "path": "f", "max_bytes": 99 })), 0, 99)?;
    cut_at(&bench.fs("read_file", json!({ "path": "f", "offset_bytes": 50 })), 50, 100)?;
    let whole = json!({ "path": "f", "output_mode": "require_inline", "with_hash": true });
    cut_at(&bench.fs("read_file", whole), 0, 100)?;
    // By a limit of its own no file can be kept from being read in pieces.
    let mut read = String::new();
    loop {
        let receipt = bench.fs("read_file", json!({ "path": "f", "offset_bytes": read.len() }));
        read.push_str(receipt["content"]["inline_text"]["text"].as_str().unwrap_or_default());
        match receipt["next_offset_bytes"].as_u64() {
            Some(next) => check(next == read.len() as u64 && next < 1_000, || format!("{receipt}"))?,
            None => break,
        }
    }
    check(read.len() == 1_000, || format!("read {} bytes in pieces", read.len()))?;
    bench.finish()
}

fn cut_at(receipt: &Value, offset: u64, bytes: usize) -> Outcome {
    expect("read_file", receipt, &["ok"])?;
    let found = receipt["content"]["inline_text"]["text"].as_str().unwrap_or_default().len();
    let next = json!(offset + bytes as u64);
    check(found == bytes && receipt["truncated"] == true && receipt["next_offset_bytes"] == next, || {
        format!("wanted {bytes} bytes from {offset}, truncated: {receipt}")
    })?;
    check(receipt["size_bytes"] == 1_000, || format!("size_bytes is the whole file's: {receipt}"))
}

fn operations_not_allowed() -> Outcome {
    let mut bench = Bench::open(capability(json!({ "allowed_fs_ops": ["read", "search"] })));
    bench.world.write("d/f", "one\n");
    let before = tree(&bench.world.root);
    let mut findings = Findings::default();
    for (op, kind, mut params) in effects_on("d/f") {
        let allowed: &[&str] = if op == "read" { &["ok"] } else { &["forbidden / op_not_allowed"] };
        let what = format!("{kind} {params}");
        findings.add(expect(&format!("socket: {what}"), &bench.fs(kind, params.clone()), allowed));
        params["session_id"] = json!(bench.session);
        let (code, out, err) = bench.world.aos(&["call", &format!("host.fs.{kind}"), &params.to_string()]);
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
        findings.add(bench.must(kind, params, &["forbidden"]));
    }
    findings.add(tools_not_allowed(&bench));
    if LATER_SEARCH {
        for (kind, params) in searches_in(".") {
            findings.add(bench.must(kind, params, &["ok"]));
        }
    }
    findings.add(check(tree(&bench.world.root) == before, || "the tree changed".into()));
    findings.add(bench.finish());
    findings.outcome()
}

/// The doors for models: the same refusals in words.
fn tools_not_allowed(bench: &Bench) -> Outcome {
    if !LATER_TOOL {
        return Ok(()); // MCP speaks through the same tools: its own cases are RPC-15 and RPC-20.
    }
    for (tool, arguments) in [
        ("write_file", json!({ "path": "d/g", "content": "x" })),
        ("edit_file", json!({ "path": "d/f", "old_string": "one", "new_string": "two" })),
        ("apply_patch", json!({ "patch": "*** Begin Patch\n*** Delete File: d/f\n*** End Patch\n" })),
    ] {
        let arguments = arguments.to_string();
        let (code, out, _) =
            bench.world.aos(&["tool", "call", tool, &arguments, "--session", &bench.session]);
        check(code == 1 && out.contains("does not allow"), || {
            format!("aos tool call {tool}: {code}: {out}")
        })?;
    }
    Ok(())
}

fn rule(name: &str, ops: Value, paths: Value, decision: &str) -> Value {
    json!({ "name": name, "ops": ops, "paths": paths, "decision": decision })
}

fn rules_by_both_spellings() -> Outcome {
    let rules = json!([
        rule("sources", json!(["write"]), json!(["src/**"]), "allow"),
        rule("rest", json!(["write"]), json!(["**"]), "deny"),
    ]);
    let mut bench = Bench::open(json!({ "policy": { "rules": rules } }));
    bench.world.write("src/kept", "one\n");
    bench.world.write("x", "one\n");
    bench.world.link("..", "src/l");
    bench.world.link("../x", "src/to_x");
    bench.world.link("src", "alias");
    let before = tree(&bench.world.root);
    let mut findings = Findings::default();
    let absolute = shown(&bench.world.root.join("x"));
    let spelled = "src/../x src-evil/x src/l/x SRC/x src src/l/new src/to_x x ./x . srcx src/../src/../x src\\x2f../x alias/x";
    for path in spelled.split(' ').chain([absolute.as_str()]) {
        let write = json!({ "path": path, "content": text("two"), "create_parents": true });
        // Outside the alias every one is denied by its literal or its resolved path; the escaped slash is no path.
        let wanted = if path.contains("x2f") { "error / invalid_path" } else { "forbidden / policy_denied" };
        findings.add(expect(&format!("write {path}"), &bench.fs("write_file", write), &[wanted]));
    }
    findings.add(named_rule(&mut bench));
    for (kind, params) in [
        ("make_dir", json!({ "path": "made" })),
        ("move", json!({ "from": "src/kept", "to": "y" })),
        ("move", json!({ "from": "x", "to": "src/y" })),
        ("move", json!({ "from": "src/kept", "to": "src/l/y" })),
        ("make_dir", json!({ "path": "src/l/made" })),
    ] {
        findings.add(bench.must(kind, params, &["forbidden / policy_denied"]));
    }
    findings.add(check(tree(&bench.world.root) == before, || "the tree changed".into()));
    let inside = shown(&bench.world.root.join("src/n4"));
    for path in ["src/n1", "./src/n2", "src//n3", &inside, "src/../src/n5", "src/deep/er/n6"] {
        let write = json!({ "path": path, "content": text("two"), "create_parents": true });
        findings.add(expect(&format!("write {path}"), &bench.fs("write_file", write), &["ok"]));
    }
    findings.add(each_operation_ruled(&bench.world));
    findings.add(patches_ruled(&bench.world));
    findings.add(bench.finish());
    findings.outcome()
}

/// A refusal names the rule that refused.
fn named_rule(bench: &mut Bench) -> Outcome {
    let receipt = bench.fs("write_file", json!({ "path": "x", "content": text("two") }));
    let message = receipt["error_message"].as_str().unwrap_or_default();
    check(message.contains("rest"), || format!("the rule is not named: {receipt}"))
}

/// A rule about one operation binds that one and no other.
fn each_operation_ruled(world: &World) -> Outcome {
    let mut findings = Findings::default();
    for ruled in ["read", "write", "edit", "patch", "list", "stat"] {
        world.write("secret/f", "one\n");
        let rules = json!([rule("closed", json!([ruled]), json!(["secret", "secret/**"]), "deny")]);
        let session = world.open(json!({ "policy": { "rules": rules } }));
        let mut client = world.client();
        for (op, kind, params) in effects_on("secret/f") {
            // Removals have a word of their own in rules; what was not made cannot be moved or removed.
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

/// Every path of a patch is judged, the target of a Move too, and one denial keeps all of it out.
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

fn roots_of_another_session() -> Outcome {
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
    // What a session may do is written down with it: another daemon widens it no more than another session.
    world.restart(Start::default());
    never_widened(&world, &mut world.client(), &a)?;
    served(&mut world.client(), &both, &shown(&world.parent.join("second/f")))?;
    world.finish()
}

/// All that works on an existing file works on this one.
fn served(client: &mut Client, session: &str, path: &str) -> Outcome {
    let mut findings = Findings::default();
    for (_, kind, params) in effects_on(path) {
        findings.add(client.must(session, kind, params, &["ok"]));
    }
    findings.outcome()
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

/// Session A serves its own root and nothing more, and no request can bring a capability along.
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

fn guessed_ids() -> Outcome {
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

/// 64 bits of each id take both values over many ids: they are random, not counted.
fn random_bits(ids: &[String]) -> Outcome {
    check(ids.iter().collect::<BTreeSet<_>>().len() == ids.len(), || "two ids are the same".into())?;
    let bits = |id: &String| u128::from_str_radix(&id[3..], 16).expect("an id ends in hex digits");
    let (mut ever_one, mut ever_zero) = (0_u128, 0_u128);
    for id in ids {
        ever_one |= bits(id);
        ever_zero |= !bits(id);
    }
    // The time's own low bits vary too, so only the bits behind it count.
    let random = (ever_one & ever_zero & u128::from(u64::MAX)).count_ones();
    check(random == 64, || format!("only {random} bits are random: {:?}", &ids[..3]))
}

fn policies_that_are_none() -> Outcome {
    let mut bench = Bench::new();
    bench.world.write("f", "one\n");
    let good = rule("r", json!(["read"]), json!(["**"]), "deny");
    let with = |field: &str, value: Value| {
        let mut rule = good.clone();
        rule[field] = value;
        json!({ "rules": [rule] })
    };
    let without = |field: &str| {
        let mut rule = good.clone();
        rule.as_object_mut().unwrap().remove(field);
        json!({ "rules": [rule] })
    };
    let bad = [
        json!({ "preset": "lax" }),
        json!({ "preset": "STRICT" }),
        json!({ "preset": null }),
        json!({ "preset": 1 }),
        json!({ "presets": "strict" }),
        json!({ "host_access": { "nope": "allow" } }),
        json!({ "host_access": { "absolute_path": "maybe" } }),
        json!({ "host_access": { "absolute_path": null } }),
        json!({ "host_access": ["allow"] }),
        json!({ "rules": {} }),
        json!({ "rules": [1] }),
        json!("strict"),
        json!([]),
        with("ops", json!(["delete"])),
        with("ops", json!(["READ"])),
        with("ops", json!("read")),
        with("decision", json!("ask")),
        with("decision", json!("Deny")),
        with("output", json!("inline_only")),
        with("extra", json!(1)),
        with("name", json!(7)),
        with("paths", json!("**")),
        with("paths", json!(["a[", "b"])),
        with("paths", json!(["{a"])),
        without("name"),
        without("ops"),
        without("paths"),
        without("decision"),
    ];
    let sessions = |client: &mut Client| {
        client.effect("host.session.list", json!({}))["sessions"].as_array().map_or(0, Vec::len)
    };
    let before = sessions(&mut bench.client);
    let mut findings = Findings::default();
    for policy in &bad {
        let receipt = bench.world.open_receipt(json!({ "policy": policy }));
        findings.add(expect(&format!("policy {policy}"), &receipt, &["error / invalid_policy"]));
        findings.add(check(receipt["session_id"].is_null(), || format!("a session all the same: {receipt}")));
    }
    findings.add(check(sessions(&mut bench.client) == before, || "a session was made".into()));
    let journaled = bench.world.journal();
    let count = journaled.iter().filter(|entry| entry["receipt"]["error_code"] == "invalid_policy").count();
    findings.add(check(count == bad.len(), || format!("{count} of {} refusals are journaled", bad.len())));
    let strict = bench.world.open(json!({ "policy": { "rules": [good] } }));
    let read = json!({ "path": "f" });
    findings.add(expect(
        "the stricter",
        &bench.client.fs(&strict, "read_file", read.clone()),
        &["forbidden / policy_denied"],
    ));
    findings.add(bench.must("read_file", read, &["ok"]));
    findings.add(bench.finish());
    findings.outcome()
}

const NUMBERS: &str = "max_read_bytes max_write_bytes max_patch_bytes max_inline_bytes max_grep_results max_glob_results \
                       max_scan_files max_scan_bytes max_changed_files max_edit_replacements exec.max_output_bytes";
const NO_NUMBERS: &str = r#"18446744073709551616 -1 1e308 "10" null 1.5 1e400 [] {} true [1]"#;

fn numbers_that_are_none() -> Outcome {
    let world = World::new();
    let mut client = world.client();
    let mut findings = Findings::default();
    let target = json!({ "local": { "workdir": world.root } });
    let mut open = |capability: &str| {
        client
            .raw_effect("host.session.open", &format!("{{\"target\":{target},\"capability\":{capability}}}"))
    };
    for number in NUMBERS.split(' ') {
        let field = number.rsplit('.').next().unwrap();
        for value in NO_NUMBERS.split(' ') {
            let inner = format!("{{\"{field}\":{value}}}");
            let capability = if number.starts_with("exec") { format!("{{\"exec\":{inner}}}") } else { inner };
            let receipt = open(&capability);
            let what = format!("{number}: {value}");
            findings.add(expect(&what, &receipt, &["error / invalid_capability", "error / invalid_params"]));
            // What is too large for any number is no JSON to most readers, who cannot tell where they stopped.
            let named = receipt["error_message"].as_str().unwrap_or_default().contains(field);
            findings.add(check(named || value == "1e400", || {
                format!("{what}: the field is not named: {receipt}")
            }));
            findings.add(check(receipt["session_id"].is_null(), || format!("{what}: a session: {receipt}")));
        }
    }
    findings.add(other_fields_that_are_none(&mut open));
    // The largest number there is binds nothing and breaks nothing.
    let largest = open("{\"max_read_bytes\":18446744073709551615,\"max_write_bytes\":18446744073709551615}");
    findings.add(expect("2^64-1", &largest, &["ready"]));
    world.write("f", "one\n");
    findings.add(served(&mut world.client(), largest["session_id"].as_str().unwrap_or_default(), "f"));
    findings.add(world.finish());
    findings.outcome()
}

const WRONG_FIELDS: &str = r#"allowed_fs_ops ["delete"]
allowed_fs_ops ["Read"]
allowed_fs_ops "read"
allowed_fs_ops null
fs_roots "/"
fs_roots null
fs_roots [1]
follow_symlinks "Allow"
follow_symlinks true
follow_symlinks null
follow_symlinks {"allow":null}
protected_paths "off"
protected_paths null
protected_paths []
protected_paths {"allow":null}
cross_mounts "true"
cross_mounts 1
cross_mounts null
allowed_patch_formats "v4a"
allowed_patch_formats [1]
exec false
exec null
exec []
exec [false]
exec {"allowed":"no"}
exec {"alowed":false}
exec {"programs":"ls"}
follow_symlink "deny"
max_read_byte 1"#;

fn other_fields_that_are_none(open: &mut impl FnMut(&str) -> Value) -> Outcome {
    let mut findings = Findings::default();
    for line in WRONG_FIELDS.lines() {
        let (field, value) = line.split_once(' ').expect("a field and a value");
        let receipt = open(&format!("{{\"{field}\":{value}}}"));
        let what = format!("{field}: {value}");
        findings.add(expect(&what, &receipt, &["error / invalid_capability", "error / invalid_params"]));
        let named = receipt["error_message"].as_str().unwrap_or_default().contains(field);
        findings.add(check(named, || format!("{what}: the field is not named: {receipt}")));
    }
    for whole in ["[]", "null", "\"x\"", "1", "[[\"read\"]]", "{\"max_read_bytes\":1,\"max_read_bytes\":2}"] {
        let receipt = open(whole);
        findings.add(expect(whole, &receipt, &["error / invalid_capability", "error / invalid_params"]));
    }
    findings.outcome()
}

fn inline_or_not_at_all() -> Outcome {
    let mut bench = Bench::open(capability(json!({ "max_inline_bytes": 1_000 })));
    bench.world.write("over", "x".repeat(1_001));
    let blobs = || tree(&bench.world.home.join("state/blobs"));
    let before = blobs();
    for encoding in ["utf8", "bytes"] {
        let params = json!({ "path": "over", "output_mode": "require_inline", "encoding": encoding });
        let receipt = bench.client.fs(&bench.session, "read_file", params);
        expect("1,001 bytes", &receipt, &["error / inline_required_too_large"])?;
        check(receipt["content"].is_null(), || format!("content all the same: {receipt}"))?;
        check(!receipt.to_string().contains("sha256:"), || format!("a blob all the same: {receipt}"))?;
    }
    check(blobs() == before, || "a blob was stored".into())?;
    let cut = json!({ "path": "over", "output_mode": "require_inline", "max_bytes": 1_000 });
    expect("a cut of 1,000 bytes", &bench.fs("read_file", cut), &["ok"])?;
    bench.finish()
}

// ------------------------------------------------------------------------------------------------ capability

/// What a file is called when its content is `bytes` long.
fn planted(bench: &Bench, bytes: usize) -> String {
    let name = format!("f{bytes}");
    bench.world.write(&name, "x".repeat(bytes));
    name
}

/// The sizes of a payload in a receipt: inline or as a blob.
fn payload_bytes(payload: &Value) -> (Option<usize>, Option<u64>) {
    (payload["inline_text"]["text"].as_str().map(str::len), payload["blob"]["size_bytes"].as_u64())
}

fn nothing_binds() -> Outcome {
    let mut bench = Bench::new();
    let mut findings = Findings::default();
    findings.add(large_writes(&mut bench));
    findings.add(many_changes(&mut bench));
    findings.add(ceilings_that_always_hold(&mut bench));
    // Outside of the roots and behind protected names it is closed all the same.
    let outside = bench.fs("read_file", json!({ "path": "../outside/secret" }));
    findings.add(expect("outside", &outside, &["forbidden / path_outside_roots"]));
    findings.add(bench.finish());
    findings.outcome()
}

fn large_writes(bench: &mut Bench) -> Outcome {
    let large = "0123456789abcde\n".repeat(1 << 20);
    let blob = bench.world.blob(large.as_bytes());
    let by_blob = json!({ "path": "by_blob", "content": { "blob_ref": { "blob_ref": blob } } });
    expect("16 MiB by blob", &bench.fs("write_file", by_blob), &["ok"])?;
    check(bench.world.read("by_blob") == large.as_bytes(), || "the blob was not written".into())?;
    let inline = json!({ "path": "inline", "content": text(&large[..12 << 20]) });
    expect("12 MiB inline", &bench.fs("write_file", inline), &["ok"])?;
    let read = bench.fs("read_file", json!({ "path": "by_blob" }));
    check(payload_bytes(&read["content"]) == (None, Some(16 << 20)), || format!("{read}"))?;
    check(read["truncated"] == false, || format!("{read}"))?;
    for (bytes, inline, blob) in [(16_384, Some(16_384), None), (16_385, None, Some(16_385))] {
        let path = planted(bench, bytes);
        let read = bench.fs("read_file", json!({ "path": path }));
        check(payload_bytes(&read["content"]) == (inline, blob), || format!("{bytes} bytes: {read}"))?;
    }
    Ok(())
}

fn many_changes(bench: &mut Bench) -> Outcome {
    bench.world.write("words", "old ".repeat(20_000));
    let edit = json!({ "path": "words", "old_string": "old", "new_string": "new", "replace_all": true });
    let receipt = bench.fs("edit_file", edit);
    expect("20,000 replacements", &receipt, &["ok"])?;
    check(receipt["replacements"] == 20_000, || format!("{receipt}"))?;
    let adds: String = (0..1_500).map(|n| format!("*** Add File: many/f{n:04}\n+x\n")).collect();
    let receipt = bench.patch(&adds);
    expect("1,500 files", &receipt, &["ok"])?;
    check(receipt["files_changed"] == 1_500, || format!("{}", receipt["files_changed"]))?;
    // Lists of paths are cut at 1,000, with the count beside them.
    check(receipt["changed_paths"].as_array().map(Vec::len) == Some(1_000), || "changed_paths".into())?;
    check(receipt["changed_paths_count"] == 1_500, || format!("{}", receipt["changed_paths_count"]))?;
    let listed = bench.fs("list_dir", json!({ "path": "many" }));
    check(listed["count"] == 1_000 && listed["truncated"] == true, || format!("{listed}"))?;
    let listed = bench.fs("list_dir", json!({ "path": "many", "max_results": 5_000 }));
    check(listed["count"] == 1_500 && listed["truncated"] == false, || format!("{listed}"))?;
    let removed = bench.fs("remove", json!({ "path": "many", "recursive": true }));
    expect("1,500 removals", &removed, &["ok"])?;
    check(removed["removed"] == 1_500, || format!("{removed}"))
}

/// 64 MiB for edits and patches, 256 MiB for a read: limits or not.
fn ceilings_that_always_hold(bench: &mut Bench) -> Outcome {
    let sparse = |name: &str, bytes: u64| {
        std::fs::File::create(bench.world.root.join(name)).unwrap().set_len(bytes).unwrap();
    };
    sparse("over", (64 << 20) + 1);
    let edit = json!({ "path": "over", "old_string": "a", "new_string": "b" });
    expect("edit", &bench.client.fs(&bench.session, "edit_file", edit), &["error / file_too_large"])?;
    let patch = patch_params("*** Update File: over\n@@\n-a\n+b\n");
    expect("patch", &bench.client.fs(&bench.session, "apply_patch", patch), &["error / file_too_large"])?;
    if is_full() {
        sparse("read", (256 << 20) + 1);
        let receipt =
            bench.client.fs(&bench.session, "read_file", json!({ "path": "read", "encoding": "bytes" }));
        expect("read", &receipt, &["ok"])?;
        check(payload_bytes(&receipt["content"]).1 == Some(256 << 20), || format!("{receipt}"))?;
        check(receipt["truncated"] == true, || format!("{receipt}"))?;
        check(receipt["next_offset_bytes"] == 256 << 20, || format!("{receipt}"))?;
    }
    Ok(())
}

fn each_operation_alone() -> Outcome {
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
        if LATER_SEARCH {
            for (kind, params) in searches_in("d") {
                let wanted = if alone == "search" { "ok" } else { "forbidden / op_not_allowed" };
                findings.add(client.must(&session, kind, params, &[wanted]));
            }
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

fn only_the_roots() -> Outcome {
    let world = World::new();
    plant_three(&world);
    world.write("sub/f", "one\n");
    world.write("sub-evil/f", "one\n");
    world.write("f", "one\n");
    world.link("../f", "sub/to_f");
    world.link("../in", "sub/to_in");
    let mut findings = Findings::default();
    let mut client = world.client();
    // A root given relative to the workdir, below it: the workdir itself is outside then.
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
    // Between two roots things may move; a link from one into the other stays inside.
    let both = world.open(capability(json!({ "fs_roots": [world.root.join("sub"), world.root.join("in")] })));
    findings.add(served(&mut client, &both, "sub/to_in/f"));
    let across = json!({ "from": "sub/f", "to": "in/moved" });
    findings.add(client.must(&both, "move", across, &["ok"]));
    // A root itself stays where it is.
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

/// What goes through a link; the link itself can always be looked at and taken away.
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

fn links_denied() -> Outcome {
    let mut bench = Bench::open(capability(json!({ "follow_symlinks": "deny" })));
    plant_links(&bench.world);
    let before = (tree(&bench.world.root), tree(&bench.world.parent.join("third")));
    let mut findings = Findings::default();
    for path in LINKS_INSIDE.into_iter().chain(LINKS_OUTSIDE) {
        for (kind, params) in through(path) {
            findings.add(bench.must(kind, params, &["forbidden / symlink_not_allowed"]));
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
            &bench.fs(kind, params),
            &["forbidden / symlink_not_allowed"],
        ));
    }
    findings.add(check(before == (tree(&bench.world.root), tree(&bench.world.parent.join("third"))), || {
        "something changed".into()
    }));
    findings.add(the_link_itself(&mut bench));
    findings.add(served(&mut bench.client, &bench.session, "in/f"));
    findings.add(bench.finish());
    findings.outcome()
}

/// A link that is not followed is a name like any other.
fn the_link_itself(bench: &mut Bench) -> Outcome {
    let receipt = bench.fs("stat", json!({ "path": "to_f", "no_follow": true }));
    expect("stat no_follow", &receipt, &["ok"])?;
    check(receipt["kind"] == "symlink", || format!("{receipt}"))?;
    let listed = bench.fs("list_dir", json!({}));
    check(
        listed["entries"]["inline_text"]["text"].as_str().is_some_and(|names| names.contains("to_f@")),
        || format!("{listed}"),
    )?;
    expect("move", &bench.fs("move", json!({ "from": "to_f", "to": "renamed" })), &["ok"])?;
    expect("remove", &bench.fs("remove", json!({ "path": "renamed" })), &["ok"])?;
    check(bench.world.read("in/f") == b"one\n", || "the target was touched".into())
}

fn links_inside() -> Outcome {
    let mut findings = Findings::default();
    for extra in [json!({}), capability(json!({ "follow_symlinks": "within_root_only" }))] {
        let mut bench = Bench::open(extra);
        plant_links(&bench.world);
        for path in LINKS_INSIDE {
            for (kind, params) in through(path).into_iter().take(8) {
                bench.world.write("in/f", "one\n");
                findings.add(bench.must(kind, params, &["ok"]));
                let replaced = |name: &&str| !bench.world.root.join(name).is_symlink();
                let replaced = ["to_f", "abs_f", "to_in", "chain"].iter().find(|name| replaced(name));
                findings
                    .add(check(replaced.is_none(), || format!("{kind}: {replaced:?} is no link any more")));
            }
        }
        bench.world.write("in/f", "one\n");
        let before = (tree(&bench.world.root), tree(&bench.world.parent.join("third")));
        for path in LINKS_OUTSIDE {
            for (kind, params) in through(path) {
                findings.add(bench.must(kind, params, &["forbidden / symlink_not_allowed"]));
            }
        }
        let after = (tree(&bench.world.root), tree(&bench.world.parent.join("third")));
        findings.add(check(before == after, || "something changed".into()));
        findings.add(bench.finish());
    }
    findings.outcome()
}

/// The capability follows anywhere; the policy still judges the target.
fn links_anywhere() -> Outcome {
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
    // Not through a link it is outside, and our own state stays out of reach by any way.
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

fn protected_names() -> Outcome {
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

/// All mutations of one protected name; reading it is nobody's harm.
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
        // Where it is denied `away` was never made; the name is judged before that is found out.
        let what = format!("{rule}: {kind} {params}");
        let receipt = client.fs(session, kind, params);
        findings.add(expect(&what, &receipt, &[wanted]));
        let warned = !warning_codes(&receipt).is_empty();
        findings.add(check(warned == (rule == "warn"), || format!("{what}: warned is {warned}: {receipt}")));
    }
    findings.outcome()
}

/// By a link, by its folder, by a folder that is moved there, and where nothing stands yet.
fn ways_around() -> Outcome {
    let mut bench = Bench::new();
    bench.world.write(".git/config", "one\n");
    bench.world.write(".git/hooks/x", "one\n");
    bench.world.write("evil/hooks/pre-commit", "one\n");
    bench.world.write("nested/.mcp.json", "one\n");
    bench.world.link(".git", "g");
    bench.world.link(".git/config", "c");
    let before = tree(&bench.world.root);
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
        let receipt = bench.fs(kind, params);
        // `evil` under a name that is not protected is fine; it is moved back.
        if what.contains("sub.git") {
            findings.add(expect(&what, &receipt, &["ok"]));
            findings.add(bench.must("move", json!({ "from": "sub.git", "to": "evil" }), &["ok"]));
            continue;
        }
        findings.add(expect(&what, &receipt, &["forbidden / protected_path", "not_found"]));
    }
    findings.add(check(tree(&bench.world.root) == before, || "something changed".into()));
    // A whole `.git` made elsewhere and moved into place brings its hooks along.
    bench.world.write("made/hooks/pre-commit", "one\n");
    let receipt = bench.fs("move", json!({ "from": "made", "to": "repo.git" }));
    findings.add(expect("a folder of another name", &receipt, &["ok"]));
    std::fs::create_dir(bench.world.root.join("repo")).unwrap();
    let receipt = bench.fs("move", json!({ "from": "repo.git", "to": "repo/.git" }));
    findings.add(expect("a folder that becomes .git", &receipt, &["forbidden / protected_path"]));
    findings.add(bench.finish());
    findings.outcome()
}

fn read_limit() -> Outcome {
    let mut bench = Bench::open(capability(json!({ "max_read_bytes": 1_000 })));
    let mut findings = Findings::default();
    for (bytes, read, truncated) in [(999, 999, false), (1_000, 1_000, false), (1_001, 1_000, true)] {
        let path = planted(&bench, bytes);
        let receipt = bench.fs("read_file", json!({ "path": path }));
        let found = payload_bytes(&receipt["content"]).0;
        findings.add(check(found == Some(read) && receipt["truncated"] == truncated, || {
            format!("{bytes}: {receipt}")
        }));
        let next = if truncated { json!(1_000) } else { Value::Null };
        findings.add(check(receipt["next_offset_bytes"] == next, || format!("{bytes}: {receipt}")));
    }
    // A character that does not fit whole waits for the next read.
    bench.world.write("wide", format!("{}\u{20ac}\u{20ac}", "x".repeat(998)));
    let receipt = bench.fs("read_file", json!({ "path": "wide" }));
    findings.add(check(receipt["next_offset_bytes"] == 998 && receipt["truncated"] == true, || {
        format!("{receipt}")
    }));
    let rest = bench.fs("read_file", json!({ "path": "wide", "offset_bytes": 998 }));
    findings.add(check(rest["content"] == text("\u{20ac}\u{20ac}") && rest["truncated"] == false, || {
        format!("{rest}")
    }));
    // It binds reads, not edits and patches of a larger file.
    let edit = json!({ "path": "wide", "old_string": "\u{20ac}\u{20ac}", "new_string": "!" });
    findings.add(bench.must("edit_file", edit, &["ok"]));
    let zero = bench.world.open(capability(json!({ "max_read_bytes": 0 })));
    let receipt = bench.client.fs(&zero, "read_file", json!({ "path": "wide" }));
    findings
        .add(check(receipt["content"] == text("") && receipt["truncated"] == true, || format!("{receipt}")));
    findings.add(bench.finish());
    findings.outcome()
}

const WRITE_LIMIT: usize = 1_000;

fn write_limited() -> Bench {
    Bench::open(capability(json!({ "max_write_bytes": WRITE_LIMIT })))
}

/// At the limit `ok`, one over `limit_exceeded`.
fn at_and_over() -> [(usize, &'static str); 2] {
    [(WRITE_LIMIT, "ok"), (WRITE_LIMIT + 1, "forbidden / limit_exceeded")]
}

fn write_limit_of_writes() -> Outcome {
    use base64::Engine as _;
    let mut bench = write_limited();
    let mut findings = Findings::default();
    for (bytes, wanted) in at_and_over() {
        let full = "x".repeat(bytes);
        let base64 = base64::engine::general_purpose::STANDARD.encode(&full);
        let blob = bench.world.blob(full.as_bytes());
        for (name, content) in [
            ("text", text(full.clone())),
            ("bytes", json!({ "inline_bytes": { "bytes": base64 } })),
            ("blob", json!({ "blob_ref": { "blob_ref": blob } })),
        ] {
            for mode in ["overwrite", "create_new", "append"] {
                let path = format!("{bytes}/{name}/{mode}");
                let params =
                    json!({ "path": path, "content": content, "mode": mode, "create_parents": true });
                findings.add(bench.must("write_file", params, &[wanted]));
            }
        }
    }
    // Nothing of a refused write stands, its folders neither.
    findings.add(check(!bench.world.root.join("1001").exists(), || "folders were made".into()));
    bench.world.write("grow", "x".repeat(WRITE_LIMIT - 1));
    for wanted in ["ok", "forbidden / limit_exceeded"] {
        let append = json!({ "path": "grow", "content": text("x"), "mode": "append" });
        findings.add(bench.must("write_file", append, &[wanted]));
        findings.add(check(bench.world.read("grow").len() == WRITE_LIMIT, || "grow has another size".into()));
    }
    bench.world.write("kept", "old");
    let over = json!({ "path": "kept", "content": text("x".repeat(WRITE_LIMIT + 1)) });
    findings.add(bench.must("write_file", over, &["forbidden / limit_exceeded"]));
    findings.add(check(bench.world.read("kept") == b"old", || "kept changed".into()));
    findings.add(bench.finish());
    findings.outcome()
}

fn write_limit_of_edits() -> Outcome {
    let mut bench = write_limited();
    let mut findings = Findings::default();
    for (bytes, wanted) in at_and_over() {
        let old = format!("a{}", "x".repeat(WRITE_LIMIT - 1));
        let grown = "b".repeat(bytes - WRITE_LIMIT + 1);
        bench.world.write("f", &old);
        let one = json!({ "path": "f", "old_string": "a", "new_string": grown });
        findings.add(expect(&format!("edit to {bytes}"), &bench.fs("edit_file", one), &[wanted]));
        let size = bench.world.read("f").len();
        findings.add(check(size == WRITE_LIMIT, || format!("edit to {bytes}: {size} bytes stand")));
        bench.world.write("f", &old);
        let several =
            json!([{ "old_string": "a", "new_string": "c" }, { "old_string": "c", "new_string": grown }]);
        let receipt = bench.fs("edit_file", json!({ "path": "f", "edits": several }));
        findings.add(expect(&format!("edits to {bytes}"), &receipt, &[wanted]));
        let unchanged = bench.world.read("f") == old.as_bytes();
        findings
            .add(check(unchanged == (wanted != "ok"), || format!("edits to {bytes}: unchanged {unchanged}")));
    }
    // A file that is too large already may be edited down to the limit.
    bench.world.write("large", format!("cut{}", "x".repeat(WRITE_LIMIT)));
    let down = json!({ "path": "large", "old_string": "cut", "new_string": "" });
    findings.add(bench.must("edit_file", down, &["ok"]));
    findings.add(bench.finish());
    findings.outcome()
}

fn write_limit_of_patches() -> Outcome {
    let mut bench = write_limited();
    let mut findings = Findings::default();
    for (bytes, wanted) in at_and_over() {
        let line = "x".repeat(bytes - 1); // and its line end
        bench.world.write("u", "old\n");
        bench.world.write("m", "old\n");
        let before = tree(&bench.world.root);
        let _ = std::fs::remove_file(bench.world.root.join("moved"));
        for sections in [
            format!("*** Add File: new\n+{line}\n"),
            format!("*** Update File: u\n@@\n-old\n+{line}\n"),
            format!("*** Update File: m\n*** Move to: moved\n@@\n-old\n+{line}\n"),
            // It is each file's limit: two at the limit pass, one over it keeps the other out.
            format!("*** Add File: one\n+{}\n*** Add File: two\n+{line}\n", "x".repeat(WRITE_LIMIT - 1)),
        ] {
            let what = format!("{bytes}: {sections:.40}");
            findings.add(expect(&what, &bench.patch(&sections), &[wanted]));
        }
        let changed = tree(&bench.world.root) != before;
        findings.add(check(changed == (wanted == "ok"), || format!("{bytes}: changed is {changed}")));
        for name in ["new", "one", "two", "moved"] {
            let _ = std::fs::remove_file(bench.world.root.join(name));
        }
    }
    bench.world.write("large", "x".repeat(WRITE_LIMIT + 1));
    findings.add(expect("a deletion", &bench.patch("*** Delete File: large\n"), &["ok"]));
    findings.add(bench.finish());
    findings.outcome()
}

fn patch_limit() -> Outcome {
    const LIMIT: usize = 1_000;
    let mut bench = Bench::open(capability(json!({ "max_patch_bytes": LIMIT })));
    let mut findings = Findings::default();
    let frame = "*** Begin Patch\n*** Add File: f\n+\n*** End Patch\n";
    for (bytes, wanted) in [(LIMIT, "ok"), (LIMIT + 1, "forbidden / limit_exceeded")] {
        let patch = frame.replace("+\n", &format!("+{}\n", "x".repeat(bytes - frame.len())));
        let blob = bench.world.blob(patch.as_bytes());
        for source in [text(patch), json!({ "blob_ref": { "blob_ref": blob } })] {
            for dry_run in [true, false] {
                let receipt = bench.fs("apply_patch", json!({ "patch": source, "dry_run": dry_run }));
                findings.add(expect(&format!("{bytes} bytes, dry_run {dry_run}"), &receipt, &[wanted]));
            }
            let there = bench.world.root.join("f").exists();
            findings.add(check(there == (wanted == "ok"), || format!("{bytes} bytes: f exists is {there}")));
            let _ = std::fs::remove_file(bench.world.root.join("f"));
        }
    }
    // It counts bytes, not characters; and no white space around makes a patch smaller.
    let wide = frame.replace("+\n", &format!("+{}\n", "\u{20ac}".repeat((LIMIT - frame.len()) / 3 + 1)));
    let receipt = bench.fs("apply_patch", json!({ "patch": text(wide) }));
    findings.add(expect("wide characters", &receipt, &["forbidden / limit_exceeded"]));
    let padded = format!("{frame}{}", "\n".repeat(LIMIT));
    let receipt = bench.fs("apply_patch", json!({ "patch": text(padded) }));
    findings.add(expect("padding", &receipt, &["forbidden / limit_exceeded"]));
    findings.add(bench.finish());
    findings.outcome()
}

fn inline_limit() -> Outcome {
    let mut findings = Findings::default();
    // Below and above the default of 16,384, and none at all.
    for limit in [0_usize, 100, 16_384, 50_000] {
        let mut bench = Bench::open(capability(json!({ "max_inline_bytes": limit })));
        for (bytes, inline) in [(limit, true), (limit + 1, false)] {
            let path = planted(&bench, bytes);
            let receipt = bench.fs("read_file", json!({ "path": path }));
            let wanted = if inline { (Some(bytes), None) } else { (None, Some(bytes as u64)) };
            let found = payload_bytes(&receipt["content"]);
            findings.add(check(found == wanted, || format!("{limit}: {bytes} bytes: {found:?}")));
            let required = bench.fs("read_file", json!({ "path": path, "output_mode": "require_inline" }));
            let wanted = if inline { "ok" } else { "error / inline_required_too_large" };
            findings.add(expect(&format!("{limit}: {bytes} bytes"), &required, &[wanted]));
            findings.add(listing_of(&mut bench, bytes, inline));
        }
        findings.add(bench.finish());
    }
    findings.outcome()
}

/// A folder whose listing is `bytes` long: one name of some length, or two.
fn listing_of(bench: &mut Bench, bytes: usize, inline: bool) -> Outcome {
    let dir = format!("d{bytes}");
    std::fs::create_dir(bench.world.root.join(&dir)).unwrap();
    // Names of 200 and their line ends, then one that fills up; a listing has no line end at its end.
    let (mut left, mut number) = (bytes, 0);
    while left > 0 {
        let length = if left > 402 {
            200
        } else if left > 201 {
            left / 2
        } else {
            left
        };
        bench.world.write(
            &format!("{dir}/{}", format!("{number:03}{}", "n".repeat(length)).get(..length).unwrap()),
            "",
        );
        left = left.saturating_sub(length + 1);
        number += 1;
    }
    let receipt = bench.fs("list_dir", json!({ "path": dir }));
    let (text, blob) = payload_bytes(&receipt["entries"]);
    let size = text.map_or(blob, |bytes| Some(bytes as u64)).unwrap_or_default() as usize;
    check(size == bytes, || format!("the listing has {size} bytes, not {bytes}: the test is wrong"))?;
    check(text.is_some() == inline, || format!("a listing of {bytes} bytes: inline is {}", text.is_some()))?;
    let required = bench.fs("list_dir", json!({ "path": dir, "output_mode": "require_inline" }));
    let wanted = if inline { "ok" } else { "error / inline_required_too_large" };
    expect(&format!("a listing of {bytes} bytes"), &required, &[wanted])
}

fn patch_formats() -> Outcome {
    let mut findings = Findings::default();
    let v4a = patch_params("*** Add File: f\n+x\n");
    for (formats, wanted) in [
        (json!(["v4a"]), "ok"),
        (json!(["unified", "v4a"]), "ok"),
        (json!([]), "error / unsupported_patch_format"),
        (json!(["unified"]), "error / unsupported_patch_format"),
        (json!(["V4A"]), "error / unsupported_patch_format"),
        (json!([""]), "error / unsupported_patch_format"),
    ] {
        let mut bench = Bench::open(capability(json!({ "allowed_patch_formats": formats })));
        findings.add(expect(&format!("{formats}"), &bench.fs("apply_patch", v4a.clone()), &[wanted]));
        let mut named = v4a.clone();
        named["patch_format"] = json!("v4a");
        findings.add(expect(&format!("{formats}, named"), &bench.fs("apply_patch", named), &[wanted]));
        let there = bench.world.root.join("f").exists();
        findings.add(check(there == (wanted == "ok"), || format!("{formats}: f exists is {there}")));
        findings.add(bench.finish());
    }
    findings.outcome()
}

fn changed_files_limit() -> Outcome {
    let mut bench = Bench::open(capability(json!({ "max_changed_files": 3 })));
    let mut findings = Findings::default();
    for (files, wanted) in [(3, "ok"), (4, "forbidden / limit_exceeded")] {
        let dir = format!("d{files}");
        let adds: String = (0..files).map(|n| format!("*** Add File: {dir}/{n}\n+x\n")).collect();
        findings.add(expect(&format!("{files} additions"), &bench.patch(&adds), &[wanted]));
        for n in 0..files {
            bench.world.write(&format!("{dir}/{n}"), "x\n");
        }
        let moves: String =
            (0..files).map(|n| format!("*** Update File: {dir}/{n}\n*** Move to: {dir}/m{n}\n")).collect();
        findings.add(expect(&format!("{files} moves"), &bench.patch(&moves), &[wanted]));
        let name = if wanted == "ok" { "m" } else { "" };
        let deletions: String = (0..files).map(|n| format!("*** Delete File: {dir}/{name}{n}\n")).collect();
        findings.add(expect(&format!("{files} deletions"), &bench.patch(&deletions), &[wanted]));
    }
    // Several sections about one file change one file.
    bench.world.write("f", "1\n");
    let sections: String = (1..6).map(|n| format!("*** Update File: f\n@@\n-{n}\n+{}\n", n + 1)).collect();
    let receipt = bench.patch(&sections);
    findings.add(expect("five sections about one file", &receipt, &["ok"]));
    findings.add(check(receipt["files_changed"] == 1, || format!("{receipt}")));
    // And none is none: not even one change passes.
    let none = bench.world.open(capability(json!({ "max_changed_files": 0 })));
    let receipt = bench.client.fs(&none, "apply_patch", patch_params("*** Delete File: f\n"));
    findings.add(expect("none allowed", &receipt, &["forbidden / limit_exceeded"]));
    findings.add(bench.finish());
    findings.outcome()
}

fn replacements_limit() -> Outcome {
    let mut bench = Bench::open(capability(json!({ "max_edit_replacements": 5 })));
    let mut findings = Findings::default();
    for (count, wanted) in [(5, "ok"), (6, "forbidden / limit_exceeded")] {
        let old = "old ".repeat(count);
        let all = json!({ "path": "f", "old_string": "old", "new_string": "new", "replace_all": true });
        // The rungs below the exact one count the same: here the line ends differ.
        let loose = "a\r\nb\r\n".repeat(count);
        let loosely =
            json!({ "path": "f", "old_string": "a\nb\n", "new_string": "c\n", "replace_all": true });
        let one_by_one: Vec<Value> =
            (0..count).map(|n| json!({ "old_string": format!("<{n}>"), "new_string": "x" })).collect();
        let marks: String = (0..count).map(|n| format!("<{n}>")).collect();
        let twice = json!([
            { "old_string": "old", "new_string": "new", "replace_all": true },
            { "old_string": "one", "new_string": "two" },
        ]);
        let mixed = format!("{}one", "old ".repeat(count - 1));
        for (content, params) in [
            (&old, all),
            (&loose, loosely),
            (&marks, json!({ "path": "f", "edits": one_by_one })),
            (&mixed, json!({ "path": "f", "edits": twice })),
        ] {
            bench.world.write("f", content);
            let what = format!("{count} replacements: {params}");
            let receipt = bench.fs("edit_file", params);
            findings.add(expect(&what, &receipt, &[wanted]));
            let unchanged = bench.world.read("f") == content.as_bytes();
            findings.add(check(unchanged == (wanted != "ok"), || format!("{what}: unchanged {unchanged}")));
        }
    }
    findings.add(bench.finish());
    findings.outcome()
}
