//! The policy decision that is reported for a command is the one that is applied.

use aos_testkit::{Findings, check, expect, verdict, warning_codes};
use serde_json::{Value, json};

use super::room::Room;
use crate::Outcome;

/// Whether anything ran that would have written `started`.
fn nothing_started(room: &Room) -> Outcome {
    check(!room.world.root.join("started").exists(), || "it ran".into())
}

pub fn a_cwd_outside() -> Outcome {
    let point = json!({ "host_access": { "command_cwd_outside_workspace": "deny" } });
    let room = Room::open(json!({ "policy": point }));
    room.world.link(&room.world.outside, "d");
    std::fs::create_dir(room.world.root.join("gone")).unwrap();
    std::fs::remove_dir(room.world.root.join("gone")).unwrap();
    let started = room.world.root.join("started").display().to_string();
    let run = |cwd: &str| room.exec(json!({ "argv": ["touch", started], "cwd": cwd }));
    let outside = room.world.outside.display().to_string();
    for cwd in ["..", "/", "d", "d/..", "../outside", &outside, "/etc", "/proc/self/cwd/..", "./.."] {
        expect(cwd, &run(cwd), &["forbidden"])?;
        nothing_started(&room)?;
    }
    for cwd in ["gone", "gone/deeper", "./gone"] {
        expect(cwd, &run(cwd), &["error / cwd_not_found"])?;
        nothing_started(&room)?;
    }
    room.finish()
}

pub fn a_cwd_widens_nothing() -> Outcome {
    let room = Room::permissive();
    let parent = room.world.parent.display().to_string();
    let root = room.world.root.display().to_string();
    let around = |room: &Room| {
        let names = std::fs::read_dir(&room.world.parent).into_iter().flatten().flatten();
        let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    let before = around(&room);
    for cwd in [format!("{root}/.."), "/".into(), "..".into(), parent.clone(), "/tmp".into(), "/etc".into()] {
        let script = format!("echo x > new; echo x > {parent}/new2; echo x > {parent}/outside/new3");
        let receipt = room.exec(json!({ "argv": ["sh", "-c", script], "cwd": cwd }));
        expect(&cwd, &receipt, &["forbidden", "ok", "error / cwd_not_found"])?;
        if receipt["status"] == "ok" {
            check(!warning_codes(&receipt).is_empty(), || format!("{cwd}: no warning: {receipt}"))?;
        }
        check(around(&room) == before, || format!("{cwd}: $P holds {:?}", around(&room)))?;
        for path in ["/new", "/tmp/new", "/etc/new"] {
            check(!std::path::Path::new(path).exists(), || format!("{cwd}: {path} was written"))?;
        }
    }
    room.finish()
}

/// `aos policy command` on these arguments, as the session with `preset` would decide on them.
fn said(room: &Room, preset: &str, argv: &[&str]) -> Result<Value, String> {
    let root = room.world.root.display().to_string();
    let mut words = vec!["policy", "command", "--cwd", &root, "--workspace", &root, "--preset", preset, "--"];
    words.extend(argv);
    let (code, out, err) = room.world.aos(&words);
    check(code == 0, || format!("aos policy command: {code}: {err}"))?;
    serde_json::from_str(&out).map_err(|why| format!("{why}: {out}"))
}

pub fn sixty_harmless_words_first() -> Outcome {
    let room = Room::open(json!({ "policy": { "preset": "strict" } }));
    for many in [1, 49, 50, 60, 1_000] {
        let script = "true; ".repeat(many) + "touch started; cat /etc/passwd";
        let argv = ["sh", "-c", &script];
        expect("cat /etc/passwd", &room.run(&argv), &["forbidden / policy_denied"])?;
        nothing_started(&room)?;
        let evaluation = said(&room, "strict", &argv)?;
        check(evaluation["disposition"] == "deny", || format!("{many}: {evaluation}"))?;
    }
    room.finish()
}

pub fn paths_in_disguise() -> Outcome {
    let point = json!({ "host_access": { "command_external_paths": "warn" } });
    let warning = Room::open(json!({ "policy": point }));
    let allowing = warning.another(json!({ "policy": { "host_access": {
        "command_external_paths": "warn", "command_paths_outside_workspace": "warn" } } }));
    let mut findings = Findings::default();
    for words in [
        json!(["true", "--output=../x"]),
        json!(["true", "-o/tmp/x"]),
        json!(["true", "-o../x"]),
        json!(["true", "of=/tmp/x"]),
        json!(["true", "@/etc/passwd"]),
        json!(["true", "-d@/etc/passwd"]),
        json!(["sh", "-c", "true 2>/tmp/x"]),
        json!(["true", "file:///etc/x"]),
        json!(["true", "~/x"]),
        json!(["true", "$HOME/x"]),
        json!(["true", "--flag=~/x"]),
        json!(["bash", "-c", "true <(cat /etc/passwd)"]),
        json!(["sh", "-c", "true; sh -c 'true ../x'"]),
        json!(["env", "A=/etc/x", "true"]),
    ] {
        for session in [&warning.session, &allowing] {
            findings.add(same_decision(&warning, session, &words));
        }
    }
    findings.add(warning.finish());
    findings.outcome()
}

/// Evaluates the policy, then runs the command, and compares the two decisions.
fn same_decision(room: &Room, session: &str, argv: &Value) -> Outcome {
    let question = json!({ "session_id": session, "argv": argv });
    let evaluation = room.world.client().rpc("policy.evaluate", question)["result"].clone();
    let codes: Vec<&str> =
        evaluation["risk_codes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    check(!codes.is_empty(), || format!("{argv}: no risk is seen: {evaluation}"))?;
    let receipt = room.exec_in(session, json!({ "argv": argv }));
    match evaluation["disposition"].as_str() {
        Some("deny") => expect(&argv.to_string(), &receipt, &["forbidden / policy_denied"]),
        Some("warn") => {
            check(verdict(&receipt) != "forbidden / policy_denied", || format!("{argv}: {receipt}"))?;
            let warned = warning_codes(&receipt);
            check(codes.iter().all(|code| warned.contains(code)), || {
                format!("{argv}: said {codes:?}, warned {warned:?}")
            })
        }
        other => Err(format!("{argv}: {other:?} with risks {codes:?}")),
    }
}

/// The same arguments, checked by `aos policy` and by the command itself, allowed ones too.
pub fn said_and_done() -> Outcome {
    let room = Room::new();
    let mut findings = Findings::default();
    for preset in ["default", "strict", "permissive"] {
        let session = room.another(json!({ "policy": { "preset": preset } }));
        for argv in [
            vec!["echo", "hello"],
            vec!["ls", "."],
            vec!["ls", ".."],
            vec!["cat", "f"],
            vec!["cat", "../f"],
            vec!["cat", "/etc/passwd"],
            vec!["/bin/echo", "x"],
            vec!["/usr/bin/env", "true"],
            vec!["sh", "-c", "echo hi > out.txt"],
            vec!["sh", "-c", "echo hi > /dev/null"],
            vec!["sed", "-n", "s/a/b/p", "f"],
            vec!["true", "https://example.com/x"],
            vec!["./tool"],
            vec!["../tool"],
        ] {
            let evaluation = said(&room, preset, &argv)?;
            let receipt = room.exec_in(&session, json!({ "argv": argv }));
            let denied = verdict(&receipt) == "forbidden / policy_denied";
            findings.add(check(denied == (evaluation["disposition"] == "deny"), || {
                format!("{preset} {argv:?}: said {}, done {receipt}", evaluation["disposition"])
            }));
        }
    }
    findings.add(room.finish());
    findings.outcome()
}

/// Rules match a program as it was written, and the paths among its arguments.
pub fn rules_on_programs() -> Outcome {
    let rule = |name: &str, paths: Value, decision: &str| json!({ "name": name, "ops": ["exec"], "paths": paths, "decision": decision });
    let rules = json!([
        rule("no-curl", json!(["curl", "/usr/bin/curl"]), "deny"),
        rule("look-out", json!(["wc"]), "warn"),
        rule("no-secrets", json!(["secrets/**"]), "deny"),
    ]);
    let room = Room::open(json!({ "policy": { "rules": rules } }));
    room.world.write("secrets/key", "x");
    for argv in [json!(["curl", "x"]), json!(["/usr/bin/curl", "x"]), json!(["cat", "secrets/key"])] {
        expect(&argv.to_string(), &room.exec(json!({ "argv": argv })), &["forbidden / policy_denied"])?;
    }
    let receipt = room.exec(json!({ "argv": ["wc", "-c", "nothing"] }));
    expect("wc", &receipt, &["ok"])?;
    check(!warning_codes(&receipt).is_empty(), || format!("no warning: {receipt}"))?;
    let message = room.run(&["curl", "x"])["error_message"].as_str().unwrap_or_default().to_owned();
    check(message.contains("no-curl"), || format!("the refusal names no rule: {message}"))?;
    room.finish()
}

/// An entry is explained from its request: a command by its arguments, a move by both its paths.
pub fn explained() -> Outcome {
    let room = Room::open(json!({ "policy": { "preset": "strict" } }));
    let second = room.world.outside.join("secret").display().to_string();
    let receipt = room.exec(json!({ "argv": ["cat", second] }));
    expect("a path outside", &receipt, &["forbidden / policy_denied"])?;
    let explain = |receipt: &Value| {
        let (code, out, err) = room.world.aos(&["policy", "explain", &receipt["seq"].to_string()]);
        check(code == 0, || format!("explain: {code}: {err}"))?;
        serde_json::from_str::<Value>(&out).map_err(|why| format!("{why}: {out}"))
    };
    let told = explain(&receipt)?;
    check(told["disposition"] == "deny" && told["should_deny"] == true, || format!("explained as {told}"))?;
    check(told["risk_codes"][0] == "command_references_external_paths", || format!("explained as {told}"))?;
    room.world.write("f", "x");
    let moved = json!({ "session_id": room.session, "from": "f", "to": room.world.root.join("g") });
    let receipt = room.world.client().effect("host.fs.move", moved);
    expect("a move", &receipt, &["ok"])?;
    let told = explain(&receipt)?;
    check(told["risk_codes"][0] == "absolute_path", || format!("explained as {told}"))?;
    room.finish()
}
