//! Patterns: options, exponential ones, other engines' syntax, and invalid ones.

use std::os::unix::fs::PermissionsExt;

use aos_testkit::{World, check, expect, timed, verdict};
use serde_json::json;

use super::{SECOND, glob, grep};
use crate::Outcome;

pub(super) fn options_are_patterns() -> Outcome {
    let world = World::new();
    let evil = world.write("evil", "#!/bin/sh\ntouch \"$(dirname \"$0\")/PWNED\"\n");
    std::fs::set_permissions(&evil, PermissionsExt::from_mode(0o755)).unwrap();
    let option = format!("--pre={}", evil.display());
    world.write("f", format!("x {option} y\n"));
    let mut agent = world.agent(json!({}));
    grep(&mut agent, json!({ "pattern": option }), &[&format!("f:1:x {option} y")])?;
    grep(
        &mut agent,
        json!({ "pattern": option, "fixed_strings": true, "path": "f" }),
        &[&format!("f:1:x {option} y")],
    )?;
    grep(&mut agent, json!({ "pattern": "x", "glob_filter": option }), &[])?;
    let named = agent.fs("grep", json!({ "pattern": "x", "path": option }));
    expect("path", &named, &["not_found / path_not_found"])?;
    for option in
        ["--files", "-e", "--", "--no-ignore", "-f/etc/passwd", "--hostname-bin=./evil", "--pre", "-z"]
    {
        let receipt = agent.fs("grep", json!({ "pattern": option }));
        expect(option, &receipt, &["ok"])?;
        let globbed = agent.fs("glob", json!({ "pattern": option }));
        expect(option, &globbed, &["ok"])?;
        check(globbed["count"] == 0, || format!("glob {option}: {globbed}"))?;
    }
    check(!world.root.join("PWNED").exists(), || "the script ran".into())?;
    world.finish()
}

pub(super) fn dashes_are_names() -> Outcome {
    let world = World::new();
    for name in ["-e", "--files", "--", "-"] {
        world.write(name, "needle\n");
    }
    let mut agent = world.agent(json!({}));
    for name in ["-e", "--files", "--", "-"] {
        grep(&mut agent, json!({ "pattern": "needle", "path": name }), &[&format!("{name}:1:needle")])?;
        glob(&mut agent, json!({ "pattern": name }), &[name])?;
        grep(
            &mut agent,
            json!({ "pattern": "needle", "glob_filter": name }),
            &[&format!("{name}:1:needle")],
        )?;
    }
    world.finish()
}

pub(super) fn patterns_that_explode() -> Outcome {
    let world = World::new();
    world.write("f", "a".repeat(1 << 20) + "b");
    let mut agent = world.agent(json!({}));
    for pattern in
        ["(a+)+$", "(a|a)*$", "(.*){1,50}b", "(a*)*c", "(a|aa)+$", "([a-z]+)*[0-9]", "^(([a-z])+.)+[A-Z]"]
    {
        let receipt = timed(2 * SECOND, pattern, || agent.fs("grep", json!({ "pattern": pattern })))?;
        expect(pattern, &receipt, &["ok", "invalid_regex"])?;
    }
    world.finish()
}

pub(super) fn patterns_that_are_too_large() -> Outcome {
    let world = World::new();
    world.write("f", "aaa\n");
    let mut agent = world.agent(json!({}));
    let before = world.rss();
    let many: Vec<String> = (0..130_000).map(|n| format!("w{n:06}")).collect();
    for (pattern, allowed) in [
        ("((a{1000}){1000}){1000}".to_owned(), &["invalid_regex / invalid_regex"][..]),
        (many.join("|"), &["invalid_regex / invalid_regex", "ok"]),
        ("x".repeat(1 << 20), &["invalid_regex / invalid_regex", "ok"]),
        ("(".repeat(60_000), &["invalid_regex / invalid_regex"]),
        (many[..7_000].join("|"), &["invalid_regex / invalid_regex", "ok"]),
        (r"\pL{1000}{1000}".to_owned(), &["invalid_regex / invalid_regex"]),
        (r"(\w{50}){50}".to_owned(), &["invalid_regex / invalid_regex", "ok"]),
        ("[a-z]{65000}".to_owned(), &["invalid_regex / invalid_regex", "ok"]),
    ] {
        let start: String = pattern.chars().take(30).collect();
        let receipt = timed(SECOND, &start, || agent.fs("grep", json!({ "pattern": pattern })))?;
        expect(&start, &receipt, allowed)?;
        let message = receipt["error_message"].as_str().unwrap_or_default();
        check(message.len() < 2_000, || format!("{start}: a message of {} bytes", message.len()))?;
        let receipt = timed(SECOND, &start, || {
            agent.fs("grep", json!({ "pattern": "a", "glob_filter": format!("*{start}") }))
        })?;
        expect(&start, &receipt, &["ok", "error / invalid_glob_filter"])?;
        let receipt = timed(SECOND, &start, || agent.fs("glob", json!({ "pattern": pattern })))?;
        expect(&start, &receipt, &["ok", "invalid_pattern"])?;
    }
    let grown = world.rss_peak().saturating_sub(before);
    check(grown < 64 << 20, || format!("the daemon grew by {} MiB", grown >> 20))?;
    world.finish()
}

pub(super) fn patterns_of_another_engine() -> Outcome {
    let world = World::new();
    world.write("f", "xaa\n");
    let mut agent = world.agent(json!({}));
    for pattern in [
        "(?=x)",
        r"(a)\1",
        "(?<!a)b",
        "(?>a)",
        r"\Kx",
        "a**b)",
        "[",
        "(?P<n>",
        "a{2,1}",
        r"\p{Nope}",
        r"a\nb",
        "a\nb",
        r"\x00",
    ] {
        let receipt = agent.fs("grep", json!({ "pattern": pattern }));
        expect(pattern, &receipt, &["invalid_regex / invalid_regex"])?;
        let literal = agent.fs("grep", json!({ "pattern": pattern, "fixed_strings": true }));
        let has_line_end = pattern.contains('\n');
        expect(pattern, &literal, if has_line_end { &["invalid_regex"] } else { &["ok"] })?;
    }
    world.finish()
}

pub(super) fn patterns_that_repeat() -> Outcome {
    let world = World::new();
    world.write("abababab", "");
    world.write(&"a".repeat(200), "");
    let mut agent = world.agent(json!({}));
    for pattern in [
        "{a,b}".repeat(40),
        "*".repeat(200),
        "*a".repeat(200),
        "**/".repeat(300) + "x",
        "{a,{b,{c,{d,{e}}}}}".repeat(20),
        "[a-z]".repeat(1_000),
        "?".repeat(5_000),
        "{".repeat(3_000) + &"}".repeat(3_000),
        "*{a,b}*".repeat(60),
    ] {
        let start: String = pattern.chars().take(20).collect();
        let receipt = timed(2 * SECOND, &start, || agent.fs("glob", json!({ "pattern": pattern })))?;
        expect(&start, &receipt, &["ok", "invalid_pattern / invalid_pattern"])?;
        let params = json!({ "pattern": "a", "glob_filter": pattern });
        let receipt = timed(2 * SECOND, &start, || agent.fs("grep", params))?;
        expect(&start, &receipt, &["ok", "error / invalid_glob_filter"])?;
    }
    world.finish()
}

pub(super) fn patterns_that_leave() -> Outcome {
    let world = World::new();
    world.write("f", "x\n");
    let mut agent = world.agent(json!({}));
    for pattern in ["../**", "**/../../*", "..", "a/../../b", "./../*", "{a,..}/../x", "../outside/secret"] {
        let receipt = agent.fs("glob", json!({ "pattern": pattern }));
        expect(pattern, &receipt, &["invalid_pattern / invalid_pattern"])?;
    }
    // However a tricky pattern is read, it shows nothing outside.
    for pattern in
        ["/etc/*", "/**", "{..,a}/*", "[.][.]/*", r"\.\./*", ".[.]/**", "?./**", "{../outside,f}/**", "..//*"]
    {
        let receipt = agent.fs("glob", json!({ "pattern": pattern }));
        check(verdict(&receipt) != "ok" || receipt["count"] == 0, || format!("{pattern}: {receipt}"))?;
    }
    for path in ["../", "..", "/etc", "../outside"] {
        for op in ["grep", "glob"] {
            let receipt = agent.fs(op, json!({ "pattern": "a", "path": path }));
            expect(path, &receipt, &["forbidden / path_outside_roots"])?;
        }
    }
    world.finish()
}

pub(super) fn invalid_patterns() -> Outcome {
    let world = World::new();
    world.write("f", "x\n");
    let mut agent = world.agent(json!({}));
    for pattern in ["[", "[!", "\\", "{a", "", "a[", "**/[z-a]", "}", "a/{b", "{,", "[]", "."] {
        let receipt = agent.fs("glob", json!({ "pattern": pattern }));
        expect(pattern, &receipt, &["invalid_pattern / invalid_pattern"])?;
        let told = receipt["error_message"].as_str().unwrap_or_default();
        check(told.len() > 20, || format!("{pattern:?}: {told}"))?;
    }
    for filter in ["[", "{a", "\\", "!{a"] {
        let receipt = agent.fs("grep", json!({ "pattern": "x", "glob_filter": filter }));
        expect(filter, &receipt, &["error / invalid_glob_filter"])?;
    }
    world.finish()
}
