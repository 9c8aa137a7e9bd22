//! Ignore files are part of an untrusted repository: what they cost is bounded, and the bound is reported.

use serde_json::{Value, json};

use aos_testkit::{World, check, warning_codes};

use crate::Outcome;

/// Rules that cost the most memory for their length.
fn costly(bytes: usize) -> String {
    "*a*b*c*d*e*\n".repeat(bytes / 12)
}

fn skipped(receipt: &Value) -> bool {
    warning_codes(receipt).contains(&"ignore_rules_skipped")
}

pub fn hostile_ignore_files() -> Outcome {
    let world = World::new();
    world.write("found", "needle");
    world.write(".git/HEAD", "");
    for name in [".gitignore", ".ignore", ".rgignore", ".git/info/exclude"] {
        world.write(name, costly(4 << 20));
    }
    for folder in 0..200 {
        for name in [".gitignore", ".ignore", ".rgignore"] {
            world.write(&format!("d{folder}/{name}"), costly(64 << 10));
        }
        world.write(&format!("d{folder}/found"), "needle");
    }
    let mut deep = String::new();
    for level in 0..60 {
        deep.push_str(&format!("n{level}/"));
        world.write(&format!("{deep}.ignore"), format!("*{level}*x*y*\n[{level}a]?b\n"));
    }
    let session = world.open(json!({}));
    let clients: Vec<_> = (0..6)
        .map(|_| {
            let (mut client, session) = (world.client(), session.clone());
            std::thread::spawn(move || {
                client.fs(&session, "grep", json!({ "pattern": "needle", "max_results": 1000 }))
            })
        })
        .collect();
    let receipts: Vec<Value> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    for receipt in &receipts {
        check(receipt["match_count"] == 201 && skipped(receipt), || format!("{:.600}", receipt.to_string()))?;
        check(receipt["warnings"] == receipts[0]["warnings"], || {
            format!("{:.600}", receipt["warnings"].to_string())
        })?;
    }
    let globbed = world.client().fs(&session, "glob", json!({ "pattern": "**/found" }));
    check(globbed["count"] == 201 && skipped(&globbed), || format!("{:.600}", globbed.to_string()))?;
    let peak = world.rss_peak();
    check(peak < 200 << 20, || format!("the daemon took {peak} bytes"))?;
    world.finish()
}

/// Rules count up to the limit, in the order of the file, and ordinary files meet no limit.
pub fn rules_up_to_the_limit() -> Outcome {
    let world = World::new();
    world.write("d/last", "needle");
    world.write("d/over", "needle");
    world.write("d/debug.log", "needle");
    let session = world.open(json!({}));
    let mut client = world.client();
    let mut names = |what: &str, rules: &str| {
        std::fs::write(world.root.join(".ignore"), rules).unwrap();
        let receipt = client.fs(&session, "grep", json!({ "pattern": "needle", "files_only": true }));
        let found = receipt["matches"]["inline_text"]["text"].as_str().unwrap_or_default().to_owned();
        println!("{what}: {found:?}");
        (found, skipped(&receipt))
    };
    let fill = |count: usize| (0..count).map(|n| format!("name{n}\n")).collect::<String>();
    let comments = "# comment\n\n".repeat(3_000);
    let ordinary = format!("{comments}{}*.log\n[Ll]ast\n/d/ov*\n", fill(100));
    check(names("ordinary", &ordinary) == (String::new(), false), || "ordinary rules were skipped".into())?;
    let (found, cut) = names("2 000", &format!("{}last\n", fill(1_999)));
    check(!found.contains("last") && !cut, || format!("2 000 rules: {found}, {cut}"))?;
    let (found, cut) = names("2 001", &format!("{}over\n", fill(2_000)));
    check(found.contains("over") && cut, || format!("2 001 rules: {found}, {cut}"))?;
    let (found, cut) = names("64 KiB", &format!("{}\nover\n", "#".repeat(64 << 10)));
    check(found.contains("over") && cut, || format!("a long file: {found}, {cut}"))?;
    // A line that the limit cuts is not a rule: its first part would mean something else.
    let (found, cut) = names("a cut line", &format!("{}\nd/la*-nothing\n", "#".repeat((64 << 10) - 6)));
    check(found.contains("last") && cut, || format!("a cut line: {found}, {cut}"))?;
    // What the folders above use is not left for those below.
    world.write("d/.ignore", "over\n");
    let (found, cut) = names("from above", &fill(2_000));
    check(found.contains("over") && cut, || format!("from above: {found}, {cut}"))?;
    let (found, cut) = names("some from above", &fill(1_999));
    check(!found.contains("over") && !cut, || format!("some from above: {found}, {cut}"))?;
    world.finish()
}

/// Folders beside each other do not take from each other: the answer is that of one thread in path order.
pub fn no_order_of_threads() -> Outcome {
    let world = World::new();
    for folder in 0..40 {
        let rules: String = (0..1_500).map(|n| format!("f{folder}-{n}\n")).collect();
        world.write(&format!("d{folder}/.ignore"), format!("{rules}hidden\n"));
        world.write(&format!("d{folder}/below/.ignore"), format!("{rules}seen\n"));
        for name in ["hidden", "seen", "below/seen", "below/hidden"] {
            world.write(&format!("d{folder}/{name}"), "needle");
        }
    }
    let params = json!({ "pattern": "needle", "max_results": 1000 });
    let in_order = world.open(json!({ "capability": { "max_scan_files": 1_000_000 } }));
    let expected = world.client().fs(&in_order, "grep", params.clone());
    check(expected["match_count"] == 80, || format!("{:.600}", expected.to_string()))?;
    let session = world.open(json!({}));
    for _ in 0..10 {
        let receipt = world.client().fs(&session, "grep", params.clone());
        for field in ["matches", "warnings", "summary_text"] {
            check(receipt[field] == expected[field], || format!("{field}: {:.600}", receipt.to_string()))?;
        }
    }
    world.finish()
}
