//! Globs, order, refusals and the effective form of a policy.

use serde_json::{Value, json};

use super::*;

fn policy(spec: Value) -> Policy {
    Policy::compile(serde_json::from_value(spec).expect("the spec reads")).expect("the policy compiles")
}

fn refusal(spec: Value) -> String {
    match serde_json::from_value::<PolicySpec>(spec) {
        Ok(spec) => Policy::compile(spec).expect_err("the policy must be refused").to_string(),
        Err(error) => error.to_string(),
    }
}

fn rule(name: &str, ops: &[&str], paths: &[&str], decision: &str) -> Value {
    json!({"name": name, "ops": ops, "paths": paths, "decision": decision})
}

/// Whether one glob matches one path.
fn glob_matches(glob: &str, path: &str) -> bool {
    policy(json!({"rules": [rule("r", &["read"], &[glob], "deny")]})).rule_for(Op::Read, path).is_some()
}

#[test]
fn globs() {
    for (glob, path, expected) in [
        ("**", "top", true),
        ("**", ".hidden", true),
        ("**", "a/b/.c", true),
        ("**", ".", true),
        ("**", "/other/root/x", true),
        ("**", "line\nbreak", true),
        ("*", "top", true),
        ("*", ".hidden", true),
        ("*", "a/b", false),
        ("*.rs", "a.rs", true),
        ("*.rs", "src/a.rs", false),
        ("**/*.rs", "a.rs", true),
        ("**/*.rs", "src/deep/a.rs", true),
        ("src/**", "src/a", true),
        ("src/**", "src/a/b", true),
        ("src/**", "src", false),
        ("src/**", "src-evil/x", false),
        ("src/**", "SRC/x", false),
        ("src/*/x", "src/a/x", true),
        ("src/*/x", "src/a/b/x", false),
        ("src/", "src", true),
        ("src/", "src/a/b", true),
        ("./src/**", "src/a", true),
        ("./", ".", true),
        (".", ".", true),
        ("a?c", "a/c", false),
        ("{src,docs}/**", "docs/a", true),
        ("secret", "./secret", true),
        ("secret", "x/../secret", true),
        ("secret", "secret/", true),
        ("grün/*", "grün/ä", true),
        ("/other/**", "/other/root/x", true),
        ("**/id_rsa", "/other/id_rsa", true),
        // A path as it is shown, and as its bytes.
        ("key\\xff", "key\\xff", true),
        ("key\\xFF", "key\\xff", true),
        ("key\\xfe", "key\\xff", false),
        ("\\x6bey", "key", true),
        ("caf\\xc3\\xa9", "café", true),
        ("a\\x2a", "a*", true),
        ("a\\x2a", "ab", false),
        ("lit\\x5cx41", "lit\\x5cx41", true),
        ("lit\\\\x41", "lit\\x5cx41", true),
        ("litA", "lit\\x5cx41", false),
        ("key?", "key\\xff", true),
        ("key?", "key\\x0a", true),
        ("key??", "key\\xff", false),
        ("*.\\xff", "a.\\xff", true),
        // One character, of one byte or of several.
        ("key?", "keyä", true),
        ("key?", "key€", true),
        ("key?", "key🔑", true),
        ("key?", "keyää", false),
        ("key?", "key/", false),
        ("key[!a]", "keyä", true),
        ("key[!a]", "keya", false),
        ("?/?", "ä/ö", true),
        ("src//a", "src/a", true),
        ("src/./a", "src/a", true),
        ("/other//x/", "/other/x/y", true),
    ] {
        assert_eq!(glob_matches(glob, path), expected, "{glob} on {path:?}");
    }
}

#[test]
fn first_match_wins_and_both_spellings_are_checked() {
    let policy = policy(json!({"rules": [
        rule("sources", &["write"], &["src/**"], "allow"),
        rule("else", &["write"], &["**"], "deny"),
    ]}));
    for (literal, resolved, decision) in [
        ("src/a", "src/a", Decision::Allow),
        ("./src/a", "src/a", Decision::Allow),
        ("src/../x", "x", Decision::Deny),
        ("src-evil/x", "src-evil/x", Decision::Deny),
        ("src/l/x", "x", Decision::Deny),
        ("x", "src/l", Decision::Deny),
        ("SRC/x", "SRC/x", Decision::Deny),
        ("src", "src", Decision::Deny),
        (".hidden", ".hidden", Decision::Deny),
    ] {
        let verdict = policy.check(Op::Write, literal, resolved);
        assert_eq!(verdict.decision, decision, "{literal} -> {resolved}");
        let name = if decision == Decision::Deny { "else" } else { "sources" };
        assert_eq!(verdict.rule.map(|rule| rule.name.as_str()), Some(name), "{literal} -> {resolved}");
    }
    assert_eq!(policy.check(Op::Read, "x", "x"), Verdict::of(None), "a rule binds only its operations");
}

#[test]
fn the_stricter_spelling_decides_and_either_can_require_a_blob() {
    let policy = policy(json!({"rules": [
        {"name": "keys", "ops": ["read"], "paths": ["*.key"], "decision": "allow", "output": "blob_only"},
        rule("look", &["read"], &["warn/**"], "warn"),
        rule("stop", &["read"], &["deny/**"], "deny"),
    ]}));
    for (literal, resolved, decision, name, blob_only) in [
        ("a", "a", Decision::Allow, None, false),
        ("a.key", "a.key", Decision::Allow, Some("keys"), true),
        ("a", "a.key", Decision::Allow, Some("keys"), true),
        ("a.key", "warn/a", Decision::Warn, Some("look"), true),
        ("warn/a", "a.key", Decision::Warn, Some("look"), true),
        ("warn/a", "deny/a", Decision::Deny, Some("stop"), false),
        ("deny/a", "warn/a", Decision::Deny, Some("stop"), false),
        ("deny/a", "a", Decision::Deny, Some("stop"), false),
    ] {
        let verdict = policy.check(Op::Read, literal, resolved);
        let got = (verdict.decision, verdict.rule.map(|rule| rule.name.as_str()), verdict.blob_only);
        assert_eq!(got, (decision, name, blob_only), "{literal} -> {resolved}");
    }
}

#[test]
fn an_empty_policy_is_the_default_preset() {
    let effective = json!({
        "preset": "default",
        "host_access": {
            "absolute_path": "warn",
            "path_outside_cwd": "warn",
            "path_outside_workspace": "deny",
            "command_cwd_outside_cwd": "warn",
            "command_cwd_outside_workspace": "deny",
            "command_external_paths": "warn",
            "command_paths_outside_workspace": "deny",
        },
        "rules": [],
    });
    assert_eq!(serde_json::to_value(policy(json!({}))).unwrap(), effective);
    assert_eq!(policy(json!({})), Policy::preset(Preset::Default));
}

#[test]
fn the_effective_policy_keeps_its_order_and_recompiles_to_itself() {
    let given = json!({
        "rules": [{"name": "r", "ops": ["exec"], "paths": ["./x/"], "decision": "warn", "reason": "why"}],
        "host_access": {"command_external_paths": "allow", "absolute_path": "deny"},
        "preset": "strict",
    });
    let policy = policy(given);
    assert_eq!(
        serde_json::to_string(&policy).unwrap(),
        r#"{"preset":"strict","host_access":{"absolute_path":"deny","path_outside_cwd":"deny","path_outside_workspace":"deny","command_cwd_outside_cwd":"deny","command_cwd_outside_workspace":"deny","command_external_paths":"allow","command_paths_outside_workspace":"deny"},"rules":[{"name":"r","ops":["exec"],"paths":["./x/"],"decision":"warn","reason":"why"}]}"#
    );
    assert_eq!(Policy::compile(policy.spec()), Ok(policy.clone()));
    let read: PolicySpec = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
    assert_eq!(Policy::compile(read), Ok(policy));
}

#[test]
fn refusals_name_the_field() {
    let with = |second: Value| json!({"rules": [rule("ok", &["read"], &["a"], "deny"), second]});
    let glob = |glob: &str| with(rule("r", &["read"], &["a", glob], "deny"));
    let rules = |count: usize| vec![rule("r", &["read"], &["a"], "deny"); count];
    let long = "a".repeat(GLOB_BYTES_MAX + 1);
    let nested = format!("{}a{}", "{".repeat(1_000), "}".repeat(1_000));
    for (spec, words) in [
        (json!({"preset": "lax"}), "unknown variant `lax`"),
        (json!({"preset": null}), "null"),
        (json!({"rules": null}), "null"),
        (json!({"host_access": null}), "null"),
        (json!({"extra": 1}), "unknown field `extra`"),
        (json!({"host_access": {"absolute_path": null}}), "null"),
        (json!({"host_access": {"nope": "deny"}}), "unknown variant `nope`"),
        (json!({"host_access": {"absolute_path": "ask"}}), "unknown variant `ask`"),
        (with(json!({"name": "r"})), "missing field"),
        (with(rule("r", &["fly"], &["a"], "deny")), "unknown variant `fly`"),
        (with(rule("r", &["read"], &["a"], "ask")), "unknown variant `ask`"),
        (with(rule("", &["read"], &["a"], "deny")), "rules[1].name"),
        (with(rule(" ", &["read"], &["a"], "deny")), "rules[1].name"),
        (with(rule("r", &[], &["a"], "deny")), "rules[1].ops"),
        (with(rule("r", &["read"], &[], "deny")), "rules[1].paths"),
        (glob(""), "rules[1].paths[1]"),
        (glob("a[b"), "rules[1].paths[1]: \"a[b\" is not a glob"),
        (glob("{a"), "rules[1].paths[1]"),
        (glob("a\\"), "rules[1].paths[1]"),
        (glob(&long), "rules[1].paths[1]: is 4097 bytes"),
        (glob(&nested), "rules[1].paths[1]"),
        (json!({"rules": rules(1_001)}), "rules: has 1001"),
        (with(rule("r", &["read"], &["a"; 1_001], "deny")), "rules[1].paths: has 1001"),
        (json!({"rules": vec![rule("r", &["read"], &["a"; 1_000], "deny"); 11]}), "rules[].paths: has 11000"),
    ] {
        let refusal = refusal(spec);
        assert!(refusal.contains(words), "{refusal:?} does not say {words:?}");
    }
}

#[test]
fn a_point_or_a_field_given_twice_is_refused() {
    for text in [
        r#"{"preset":"strict","preset":"default"}"#,
        r#"{"host_access":{"absolute_path":"deny","absolute_path":"allow"}}"#,
    ] {
        let error = serde_json::from_str::<PolicySpec>(text).expect_err(text).to_string();
        assert!(error.contains("duplicate field"), "{error}");
    }
}

#[test]
fn a_policy_at_its_limits_compiles() {
    let rules: Vec<Value> = (0..10)
        .map(|number| {
            let paths: Vec<String> = (0..1_000).map(|glob| format!("dir{number}/*/f{glob}*.x")).collect();
            json!({"name": format!("r{number}"), "ops": ["read"], "paths": paths, "decision": "deny"})
        })
        .collect();
    let policy = policy(json!({"rules": rules}));
    assert_eq!(policy.rule_for(Op::Read, "dir7/a/f999b.x").map(|rule| rule.name.as_str()), Some("r7"));
    assert_eq!(policy.rule_for(Op::Read, "dir7/a/b/f999b.x"), None);
}

#[test]
fn commands_are_checked_by_program_and_paths() {
    let policy = policy(json!({"rules": [
        rule("tools", &["exec"], &["make", "cargo", "src/**"], "allow"),
        rule("ask", &["exec"], &["./run.sh", "docs/**", "/opt/tool"], "warn"),
        rule("else", &["exec"], &["**"], "deny"),
    ]}));
    let cases: &[(&[&str], Decision, &str)] = &[
        (&["make", "all"], Decision::Allow, "tools"),
        (&["./make", "all"], Decision::Deny, "else"),
        (&["cargo", "src/a"], Decision::Allow, "tools"),
        (&["cargo", "docs/a"], Decision::Warn, "ask"),
        (&["cargo", "docs/a", "secret/b"], Decision::Deny, "else"),
        (&["cargo", "--out=secret/b"], Decision::Deny, "else"),
        (&["./run.sh"], Decision::Warn, "ask"),
        (&["/opt/tool"], Decision::Warn, "ask"),
        (&["rm", "src/a"], Decision::Deny, "else"),
        (&["cargo", "link"], Decision::Allow, "tools"),
        (&["cargo", "./link"], Decision::Deny, "else"),
    ];
    for (argv, decision, name) in cases {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let resolve = |path: &str| path.replace("/./link", "/secret/target");
        let query = CommandQuery {
            argv: &argv,
            cwd: "/w",
            workspaces: &["/w"],
            command_cwd: "/w",
            home: None,
            resolve: &resolve,
        };
        let evaluation = policy.host_access().evaluate_command(&query);
        let verdict = policy.check_command(&query, evaluation.references());
        assert_eq!(verdict.decision, *decision, "{argv:?}");
        assert_eq!(verdict.rule.map(|rule| rule.name.as_str()), Some(*name), "{argv:?}");
    }
    let quiet = Policy::preset(Preset::Strict);
    let query = CommandQuery {
        argv: &[],
        cwd: "/w",
        workspaces: &[],
        command_cwd: "/w",
        home: None,
        resolve: &str::to_owned,
    };
    assert_eq!(quiet.check_command(&query, &[]), Verdict::of(None));
}

#[test]
fn absolute_globs_match_in_the_workdir() {
    for (glob, path, expected) in [
        ("/w/secret", "secret", true),
        ("/w/secret", "/other/secret", false),
        ("/w/secret/**", "secret/a", true),
        ("/w/secret/", "secret", true),
        ("/w/./secret//a", "secret/a", true),
        ("/link/secret", "secret", true),
        ("/*/secret", "secret", true),
        ("/**/secret", "a/secret", true),
        ("/", "secret", true),
        ("/w", ".", true),
        ("/w", "secret", false),
        ("{/w,/x}/secret", "secret", true),
        // Only globs that begin with a slash: this one is about folders named `w` inside of the workdir.
        ("**/w/**", "secret", false),
        ("/w/key?", "key\\xff", true),
    ] {
        let policy = policy(json!({"rules": [rule("r", &["read"], &[glob], "deny")]}));
        let policy = policy.in_workdir(vec!["/w".to_owned(), "/link".to_owned()]);
        assert_eq!(policy.rule_for(Op::Read, path).is_some(), expected, "{glob} on {path:?}");
    }
}

#[test]
fn a_glob_that_can_match_nothing_is_refused() {
    for glob in ["../x", "a/../b", "a/..", "/w/../x", "a\\x2fb", "a\\x00", "a\0b", &"n".repeat(256)] {
        let refusal = refusal(json!({"rules": [rule("r", &["read"], &["ok", glob], "deny")]}));
        assert!(
            refusal.starts_with("rules[0].paths[1]:") && refusal.contains("can match no path"),
            "{refusal}"
        );
    }
    for glob in ["[ä]", "[\\xff]", "{/a,b}/c"] {
        let refusal = refusal(json!({"rules": [rule("r", &["read"], &[glob], "deny")]}));
        assert!(refusal.contains("is not a glob"), "{refusal}");
    }
    for (glob, reaches) in [
        ("/w/a", true),
        ("/w", true),
        ("/w/", true),
        ("/", true),
        ("/**", true),
        ("/*/a", true),
        ("/w-evil/a", false),
        ("/etc/**", false),
        ("/w/../etc", true),
        ("relative", true),
        ("/other/r\\xff/**", true),
        ("/other", false),
        ("/other/", true),
    ] {
        let spec = json!({"rules": [rule("r", &["read"], &[glob], "deny")]});
        let spec: PolicySpec = serde_json::from_value(spec).expect("the spec reads");
        let policy = Policy::compile_recorded(spec).expect("a recorded policy compiles");
        assert_eq!(policy.check_reach(&["/w", "/other/r\\xff"]).is_ok(), reaches, "{glob}");
    }
    let spec = policy(json!({"rules": [rule("r", &["exec"], &["/etc/**"], "deny")]}));
    assert_eq!(spec.check_reach(&["/w"]), Ok(()), "a command may name any path");
}
