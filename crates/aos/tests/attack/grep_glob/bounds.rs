//! How much a search scans and returns, and in which form.

use std::time::Duration;

use aos_testkit::{World, check, expect, timed};
use serde_json::{Value, json};

use super::{paths, rows};
use crate::{Case, Outcome, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("OWN-SRCH-COUNTS", counts),
        plain("OWN-SRCH-FORMS", forms),
        plain("OWN-SRCH-SCAN-BYTES", bytes_run_out),
        plain("OWN-SRCH-LONG-LINES", long_lines),
        plain("OWN-SRCH-DEEP", deep_trees),
        plain("OWN-SRCH-MEMORY", much_of_everything),
        plain("OWN-SRCH-BESIDE", others_do_not_wait),
    ]
}

fn counts() -> Outcome {
    let world = World::new();
    for file in 0..10 {
        world.write(&format!("f{file}"), "hit\nmiss\nhit\n");
    }
    let capability = json!({ "max_grep_results": 7, "max_glob_results": 3 });
    let (mut free, mut bound) = (world.agent(json!({})), world.agent(json!({ "capability": capability })));
    for (max, returned, truncated) in
        [(0, 0, true), (1, 1, true), (19, 19, true), (20, 20, false), (21, 20, false)]
    {
        let receipt = free.fs("grep", json!({ "pattern": "hit", "max_results": max }));
        check(receipt["match_count"] == returned && rows(&receipt).len() == returned, || {
            format!("{max}: {receipt}")
        })?;
        check(receipt["truncated"] == truncated, || format!("{max}: {receipt}"))?;
        let receipt = bound.fs("grep", json!({ "pattern": "hit", "max_results": max }));
        check(receipt["match_count"] == returned.min(7), || format!("{max}: {receipt}"))?;
    }
    for (max, returned) in [(0, 0), (1, 1), (10, 10), (11, 10)] {
        for op in [
            json!({ "pattern": "hit", "files_only": true, "max_results": max }),
            json!({ "pattern": "*", "max_results": max }),
        ] {
            let (name, count) =
                if op.get("files_only").is_some() { ("grep", "match_count") } else { ("glob", "count") };
            let receipt = free.fs(name, op.clone());
            check(receipt[count] == returned && receipt["truncated"] == (max < 10), || {
                format!("{op}: {receipt}")
            })?;
        }
        let receipt = bound.fs("glob", json!({ "pattern": "*", "max_results": max }));
        check(receipt["count"] == returned.min(3), || format!("{receipt}"))?;
    }
    check(paths(&free.fs("glob", json!({ "pattern": "*", "max_results": u64::MAX }))).len() == 10, || {
        "all".into()
    })?;
    let ends = free.fs("grep", json!({ "pattern": "hit", "max_results": u64::MAX }));
    check(ends["match_count"] == 20, || format!("{ends}"))?;
    for params in [
        json!({}),
        json!({ "pattern": 1 }),
        json!({ "pattern": "a", "max_results": -1 }),
        json!({ "pattern": "a", "nope": 1 }),
        json!({ "pattern": "a", "path": null }),
    ] {
        for op in ["grep", "glob"] {
            expect(op, &free.fs(op, params.clone()), &["error / invalid_params"])?;
        }
    }
    expect(
        "an empty path",
        &free.fs("grep", json!({ "pattern": "a", "path": "" })),
        &["error / invalid_path"],
    )?;
    world.finish()
}

fn forms() -> Outcome {
    let world = World::new();
    world.write("f", "x".repeat(99) + "\n");
    world.write("many", ("y".repeat(99) + "\n").repeat(1_000));
    let mut agent = world.agent(json!({}));
    let small = agent.fs("grep", json!({ "pattern": "x" }));
    check(rows(&small).len() == 1, || format!("{small}"))?;
    let large = agent.fs("grep", json!({ "pattern": "y", "max_results": 1_000 }));
    let blob = large["matches"]["blob"]["blob_ref"].as_str().unwrap_or_default().to_owned();
    let (_, text, _) = world.aos(&["blob", "get", &blob]);
    check(text.lines().count() == 1_000 && !text.ends_with('\n'), || format!("{text:.300}"))?;
    check(text.lines().last() == Some(&format!("many:1000:{}", "y".repeat(99))), || "the last row".into())?;
    check(large["matches"]["blob"]["size_bytes"] == text.len(), || format!("{large}"))?;
    check(large["matches"]["blob"]["preview_bytes"].is_string(), || format!("{large}"))?;
    let params = json!({ "pattern": "y", "max_results": 1_000, "output_mode": "require_inline" });
    expect("inline", &agent.fs("grep", params), &["error / inline_required_too_large"])?;
    let mut tight = world.agent(json!({ "capability": { "max_inline_bytes": 3 } }));
    for (op, field) in [("grep", "matches"), ("glob", "paths")] {
        let receipt = tight.fs(op, json!({ "pattern": if op == "grep" { "[xy]" } else { "*" } }));
        check(receipt[field]["blob"]["blob_ref"].is_string(), || format!("{receipt}"))?;
        let params =
            json!({ "pattern": if op == "grep" { "[xy]" } else { "*" }, "output_mode": "require_inline" });
        expect(op, &tight.fs(op, params), &["error / inline_required_too_large"])?;
    }
    // A session may use a blob that its search named.
    let content = json!({ "blob_ref": { "blob_ref": blob } });
    expect("its own blob", &agent.fs("write_file", json!({ "path": "copy", "content": content })), &["ok"])?;
    world.finish()
}

/// The files that count are the first in path order, whatever other files there are.
pub(super) fn counted_in_path_order(world: &World) -> Outcome {
    for max in [0, 1, 150, 250] {
        let mut agent = world.agent(json!({ "capability": { "max_scan_files": max } }));
        let receipt =
            agent.fs("grep", json!({ "pattern": "some", "files_only": true, "max_results": 10_000 }));
        let found = rows(&receipt);
        let mut all = world.agent(json!({}));
        let all = rows(&all.fs("grep", json!({ "pattern": "some", "files_only": true, "max_results": max })));
        check(found == all && receipt["truncated"] == true, || format!("{max}: {} files", found.len()))?;
        let receipt = agent.fs("glob", json!({ "pattern": "**", "max_results": 100_000 }));
        check(receipt["count"] == max && receipt["truncated"] == true, || format!("{max}: {receipt:.200}"))?;
    }
    Ok(())
}

fn bytes_run_out() -> Outcome {
    let world = World::new();
    for file in ["a", "b", "c"] {
        world.write(file, "hit one\nhit two\n");
    }
    let lines = ["a:1:hit one", "a:2:hit two", "b:1:hit one", "b:2:hit two", "c:1:hit one", "c:2:hit two"];
    for (max, wanted, truncated) in [
        (0, 0, true),
        (7, 0, true),
        (8, 1, true),
        (16, 2, true),
        (17, 2, true),
        (31, 3, true),
        (47, 5, true),
        (48, 6, false),
        (1_000, 6, false),
    ] {
        let mut agent = world.agent(json!({ "capability": { "max_scan_bytes": max } }));
        let receipt = agent.fs("grep", json!({ "pattern": "hit" }));
        expect("grep", &receipt, &["ok"])?;
        check(rows(&receipt) == lines[..wanted] && receipt["truncated"] == truncated, || {
            format!("{max}: {receipt}")
        })?;
    }
    // The limit does not end a line: `$` does not match there.
    let mut agent = world.agent(json!({ "capability": { "max_scan_bytes": 5 } }));
    let receipt = agent.fs("grep", json!({ "pattern": "hit o$", "path": "a" }));
    check(receipt["match_count"] == 0 && receipt["truncated"] == true, || format!("{receipt}"))?;
    let mut agent = world.agent(json!({ "capability": { "max_scan_bytes": 8 } }));
    let receipt = agent.fs("grep", json!({ "pattern": "hit", "path": "a" }));
    check(rows(&receipt) == lines[..1] && receipt["truncated"] == true, || format!("{receipt}"))?;
    let mut agent = world.agent(json!({ "capability": { "max_scan_files": 0 } }));
    let receipt = agent.fs("grep", json!({ "pattern": "hit", "path": "a" }));
    check(receipt["match_count"] == 0 && receipt["truncated"] == true, || format!("{receipt}"))?;
    world.finish()
}

/// Lines longer than a window, with a match near a window's boundary.
fn long_lines() -> Outcome {
    let world = World::new();
    let window = 4 << 20;
    let mut long = vec![b'y'; 3 * window];
    let near_the_border = window - 3;
    long[near_the_border..near_the_border + 6].copy_from_slice(b"needle");
    let mut content = b"first\n".to_vec();
    content.extend_from_slice(&long);
    content.extend_from_slice(b"end\nlast needle\n\nfin");
    world.write("big", &content);
    let mut agent = world.agent(json!({}));
    for path in [".", "big"] {
        for (pattern, lines) in [
            ("needle", &[2, 3][..]),
            ("yend$", &[2]),
            ("^y+n", &[2]),
            ("^needle", &[]),
            ("^yy", &[2]),
            ("y$", &[]),
            (r"y\b", &[]),
            ("^$", &[4]),
            ("fin$", &[5]),
            ("needley{100}", &[2]),
            ("first", &[1]),
        ] {
            let receipt =
                agent.fs("grep", json!({ "pattern": pattern, "path": path, "output_mode": "auto" }));
            expect(pattern, &receipt, &["ok"])?;
            check(receipt["match_count"] == lines.len(), || format!("{pattern} in {path}: {receipt:.300}"))?;
            check(receipt["truncated"] == lines.contains(&2), || format!("{pattern}: {receipt:.300}"))?;
            let text = match receipt["matches"]["blob"]["blob_ref"].as_str() {
                Some(blob) => world.aos(&["blob", "get", blob]).1,
                None => rows(&receipt).join("\n"),
            };
            let numbers: Vec<u64> =
                text.lines().map(|row| row.split(':').nth(1).unwrap().parse().unwrap()).collect();
            check(numbers == lines, || format!("{pattern} in {path}: lines {numbers:?}"))?;
        }
    }
    let receipt = agent.fs("grep", json!({ "pattern": "last", "context_lines": 1 }));
    let blob = receipt["matches"]["blob"]["blob_ref"].as_str().unwrap_or_default();
    let shown: Vec<String> = world.aos(&["blob", "get", blob]).1.lines().map(str::to_owned).collect();
    check(shown.len() == 3 && shown[0].len() == "big-2-".len() + (64 << 10), || format!("{receipt}"))?;
    check(shown[1] == "big:3:last needle" && shown[2] == "big-4-", || format!("{:?}", &shown[1..]))?;
    world.finish()
}

/// Deeper than paths can be written, and deeper than a stack allows.
fn deep_trees() -> Outcome {
    let world = World::new();
    let mut dir =
        rustix::fs::open(&world.root, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o755);
    for level in 0..3_000 {
        if level == 10 || level == 2_500 {
            let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
            let file = rustix::fs::openat(&dir, "f", flags, mode).unwrap();
            rustix::io::write(&file, b"needle\n").unwrap();
        }
        rustix::fs::mkdirat(&dir, "d", mode).unwrap();
        dir = rustix::fs::openat(&dir, "d", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    }
    let mut agent = world.agent(json!({}));
    let descriptors = world.open_descriptors();
    let wanted = "d/".repeat(10) + "f:1:needle";
    let receipt = timed(Duration::from_secs(5), "grep", || agent.fs("grep", json!({ "pattern": "needle" })))?;
    expect("grep", &receipt, &["ok"])?;
    check(rows(&receipt) == [wanted], || format!("{receipt:.500}"))?;
    check(receipt["warnings"].as_array().is_some_and(|all| all.len() == 1), || format!("{receipt:.500}"))?;
    world.expect_descriptors(descriptors)?;
    // The world's own clean-up cannot write these paths.
    let top = world.root.join("d");
    let status = std::process::Command::new("rm").arg("-rf").arg(&top).status();
    check(status.is_ok_and(|status| status.success()), || "the tree stays".into())?;
    world.finish()
}

/// Answers are bounded even where the request gives no bound.
fn much_of_everything() -> Outcome {
    let world = World::new();
    let line = "needle ".repeat(2_000) + "\n";
    for file in 0..40 {
        world.write(&format!("f{file:02}"), line.repeat(200));
    }
    world.write("z/short", "n\n".repeat(3_000_000));
    let mut agent = world.agent(json!({}));
    let receipt = agent.fs("grep", json!({ "pattern": "needle", "max_results": u64::MAX }));
    expect("grep", &receipt, &["ok"])?;
    let size = receipt["matches"]["blob"]["size_bytes"].as_u64().unwrap_or(0);
    check(receipt["truncated"] == true && (60 << 20..=64 << 20).contains(&size), || {
        format!("{receipt:.300}")
    })?;
    for params in [
        json!({ "pattern": "absent", "context_lines": u64::MAX }),
        json!({ "pattern": "^n$", "context_lines": 1_000_000, "path": "z", "max_results": 5 }),
        json!({ "pattern": "^n$", "path": "z", "max_results": u64::MAX }),
    ] {
        expect("grep", &agent.fs("grep", params), &["ok"])?;
    }
    let peak = world.rss_peak();
    check(peak < 256 << 20, || format!("the daemon held {} MiB", peak >> 20))?;
    world.finish()
}

/// A long search does not block others, not even on its own connection.
fn others_do_not_wait() -> Outcome {
    let world = World::new();
    std::fs::File::create(world.root.join("big")).unwrap().set_len(64 << 30).unwrap();
    let mut agent = world.agent(json!({}));
    let session = agent.session.clone();
    let params = json!({ "session_id": session, "pattern": "x", "path": "big" });
    agent.client.send_effect(1, &json!({ "kind": "host.fs.grep", "params": params }))?;
    agent.client.send_effect(2, &json!({ "kind": "host.session.list", "params": {} }))?;
    let first: Value = serde_json::from_str(&agent.client.line().unwrap_or_default()).unwrap_or_default();
    check(first["id"] == 2, || format!("the search was answered first: {first:.300}"))?;
    let second: Value = serde_json::from_str(&agent.client.line().unwrap_or_default()).unwrap_or_default();
    check(second["id"] == 1 && second["result"]["status"] == "ok", || format!("{second:.300}"))?;
    world.finish()
}
