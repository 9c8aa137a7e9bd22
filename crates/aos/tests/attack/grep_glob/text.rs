//! What a search finds in a file, and how lines are shown.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use aos_testkit::{World, check, expect};
use serde_json::json;

use super::{grep, rows};
use crate::{Case, Outcome, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("OWN-SRCH-TEXT", texts),
        plain("OWN-SRCH-BINARY", what_is_no_text),
        plain("OWN-SRCH-ENCODING", marks_and_encodings),
        plain("OWN-SRCH-CONTEXT", context),
        plain("OWN-SRCH-NAMES", odd_names),
    ]
}

fn texts() -> Outcome {
    let world = World::new();
    world.write("crlf", "one\r\ntwo\r\n");
    world.write("end", "last line has no end");
    world.write("empty", "");
    world.write("lines", "a\n\nb a\n\n");
    world.write("uni", "Straße ÄÖÜ\nκόσμος\n");
    world.write("x", "a.b\na+b\n(a)\n");
    let mut agent = world.agent(json!({}));
    let within = |path: &str, pattern: &str| json!({ "pattern": pattern, "path": path });
    // A carriage return is text, as it is for ripgrep.
    grep(&mut agent, within("crlf", "one"), &["crlf:1:one\r"])?;
    grep(&mut agent, within("crlf", "one$"), &[])?;
    grep(&mut agent, within("crlf", "one\r$"), &["crlf:1:one\r"])?;
    grep(&mut agent, within("end", "end$"), &["end:1:last line has no end"])?;
    grep(&mut agent, within("empty", ""), &[])?;
    grep(&mut agent, within("empty", "^$"), &[])?;
    grep(&mut agent, within("lines", "^$"), &["lines:2:", "lines:4:"])?;
    grep(&mut agent, within("lines", ""), &["lines:1:a", "lines:2:", "lines:3:b a", "lines:4:"])?;
    grep(&mut agent, within("lines", "a$"), &["lines:1:a", "lines:3:b a"])?;
    grep(&mut agent, within("lines", "^a"), &["lines:1:a"])?;
    grep(&mut agent, within("lines", r"\Aa"), &["lines:1:a"])?;
    grep(&mut agent, within("lines", r"a\s+b"), &[])?;
    grep(&mut agent, within("uni", "äöü"), &[])?;
    let folded = json!({ "pattern": "äöü|ΚΌΣΜΟΣ", "path": "uni", "case_insensitive": true });
    grep(&mut agent, folded, &["uni:1:Straße ÄÖÜ", "uni:2:κόσμος"])?;
    grep(&mut agent, within("uni", r"\bStra.e\b"), &["uni:1:Straße ÄÖÜ"])?;
    for literal in ["a.b", "a+b", "(a)"] {
        let params = json!({ "pattern": literal, "path": "x", "fixed_strings": true });
        let receipt = agent.fs("grep", params);
        check(receipt["match_count"] == 1 && rows(&receipt)[0].ends_with(literal), || format!("{receipt}"))?;
    }
    let folded = json!({ "pattern": "A.B", "path": "x", "fixed_strings": true, "case_insensitive": true });
    grep(&mut agent, folded, &["x:1:a.b"])?;
    // Two matches in one line give one row.
    grep(&mut agent, within("x", "a"), &["x:1:a.b", "x:2:a+b", "x:3:(a)"])?;
    world.finish()
}

fn what_is_no_text() -> Outcome {
    let world = World::new();
    world.write("bin", b"needle\n\0\x01needle\n");
    world.write("late", [b"needle\n".repeat(20_000).as_slice(), b"\0needle\n"].concat());
    world.write("mark", b"x\nneedle \0 needle\n");
    world.write("bad", b"needle \xff\xfe\xe9\n");
    let mut agent = world.agent(json!({}));
    let found =
        agent.fs("grep", json!({ "pattern": "needle", "max_results": 1_000_000, "glob_filter": "!late" }));
    check(rows(&found) == ["bad:1:needle \u{fffd}\u{fffd}\u{fffd}"], || format!("{found}"))?;
    // A NUL beyond the first buffer ends the search of that file; earlier matches are kept.
    let found =
        agent.fs("grep", json!({ "pattern": "needle", "max_results": 1_000_000, "glob_filter": "late" }));
    let count = found["match_count"].as_u64().unwrap_or(0);
    check((1..20_000).contains(&count), || format!("{count} matches"))?;
    // A file that is named is searched even if it is binary.
    grep(
        &mut agent,
        json!({ "pattern": "needle", "path": "bin" }),
        &["bin:1:needle", "bin:2:\0\u{1}needle"],
    )?;
    let found = agent.fs("grep", json!({ "pattern": "needle", "path": "late", "max_results": 1_000_000 }));
    check(found["match_count"] == 20_001, || format!("{found:.200}"))?;
    world.finish()
}

fn marks_and_encodings() -> Outcome {
    let world = World::new();
    let utf16 = |text: &str, big: bool| -> Vec<u8> {
        let mark = std::iter::once(0xfeff_u16);
        let units = mark.chain(text.encode_utf16());
        units.flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    };
    world.write("be", utf16("one\nneedle é\n", true));
    world.write("le", utf16("one\nneedle é\n", false));
    world.write("u8", b"\xef\xbb\xbfneedle\nneedle\n");
    let mut agent = world.agent(json!({}));
    let wanted = ["be:2:needle é", "le:2:needle é", "u8:1:needle", "u8:2:needle"];
    grep(&mut agent, json!({ "pattern": "^needle" }), &wanted)?;
    for row in wanted {
        let name = row.split(':').next().unwrap();
        let receipt = agent.fs("grep", json!({ "pattern": "^needle", "path": name }));
        check(rows(&receipt).contains(&row.to_owned()), || format!("{name}: {receipt}"))?;
    }
    world.finish()
}

fn context() -> Outcome {
    let world = World::new();
    let lines: String =
        (1..=20).map(|n| if n % 7 == 3 { format!("hit {n}\n") } else { format!("row {n}\n") }).collect();
    world.write("a", &lines);
    world.write("b", "hit\n");
    let mut agent = world.agent(json!({}));
    let one = [
        "a-2-row 2",
        "a:3:hit 3",
        "a-4-row 4",
        "--",
        "a-9-row 9",
        "a:10:hit 10",
        "a-11-row 11",
        "--",
        "a-16-row 16",
        "a:17:hit 17",
        "a-18-row 18",
        "--",
        "b:1:hit",
    ];
    grep(&mut agent, json!({ "pattern": "hit", "context_lines": 1 }), &one)?;
    // The limit keeps the context of the last returned match, and drops that of the next.
    for (max, rows_wanted) in [(1, 3), (2, 7), (3, 11)] {
        let receipt = agent.fs("grep", json!({ "pattern": "hit", "context_lines": 1, "max_results": max }));
        check(rows(&receipt) == one[..rows_wanted] && receipt["match_count"] == max, || {
            format!("{receipt:#}")
        })?;
        check(receipt["truncated"] == true, || format!("{receipt}"))?;
    }
    let four =
        agent.fs("grep", json!({ "pattern": "hit", "context_lines": 4, "path": "a", "max_results": 1 }));
    check(rows(&four).len() == 7 && rows(&four)[6] == "a-7-row 7", || format!("{four:#}"))?;
    // More context than there are lines.
    for many in [100_u64, u64::from(u32::MAX), u64::MAX] {
        let receipt = agent.fs("grep", json!({ "pattern": "hit 10", "context_lines": many }));
        check(rows(&receipt).len() == 20 && receipt["match_count"] == 1, || format!("{many}: {receipt}"))?;
    }
    grep(&mut agent, json!({ "pattern": "hit", "context_lines": 3, "files_only": true }), &["a", "b"])?;
    let receipt = agent.fs("grep", json!({ "pattern": "hit", "context_lines": -1 }));
    expect("a negative context", &receipt, &["error / invalid_params"])?;
    world.finish()
}

fn odd_names() -> Outcome {
    let world = World::new();
    let names: &[(&[u8], &str)] = &[
        (b"a:1:fake\nb", "a:1:fake\\x0ab"),
        (b"lit\\x41", "lit\\x5cx41"),
        (b"n\xff\xfe", "n\\xff\\xfe"),
        (b"tab\there", "tab\\x09here"),
    ];
    for (name, _) in names {
        std::fs::write(world.root.join(OsStr::from_bytes(name)), "needle\n").unwrap();
    }
    let mut agent = world.agent(json!({}));
    let wanted: Vec<String> = names.iter().map(|(_, shown)| format!("{shown}:1:needle")).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    grep(&mut agent, json!({ "pattern": "needle" }), &wanted)?;
    for (_, shown) in names {
        grep(&mut agent, json!({ "pattern": "needle", "path": shown }), &[&format!("{shown}:1:needle")])?;
    }
    let receipt = agent.fs("glob", json!({ "pattern": "*" }));
    check(receipt["count"] == names.len(), || format!("{receipt}"))?;
    world.finish()
}
