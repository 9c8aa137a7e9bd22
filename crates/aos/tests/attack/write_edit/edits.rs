//! Edits: line ends, empty and repeated texts, punctuation, and limits.

use std::time::Duration;

use aos_testkit::{World, check, expect, timed, tree};
use serde_json::json;

use super::LIMIT;
use crate::Outcome;

pub(super) fn line_ends_stay() -> Outcome {
    let world = World::new();
    let mut agent = world.agent(json!({}));
    let before = "\u{feff}one\r\ntwo\r\nthree\r\nfour";
    // The text to find, its replacement, and the whole file afterwards. Line ends follow the replaced text.
    let edits = [
        ("two", "2", "\u{feff}one\r\n2\r\nthree\r\nfour"),
        ("two\r\n", "2\r\n", "\u{feff}one\r\n2\r\nthree\r\nfour"),
        ("two\n", "2\n", "\u{feff}one\r\n2\r\nthree\r\nfour"),
        ("two\nthree\n", "2\n2b\n3\n", "\u{feff}one\r\n2\r\n2b\r\n3\r\nfour"),
        ("two", "2\n2b", "\u{feff}one\r\n2\r\n2b\r\nthree\r\nfour"),
        ("two\n", "", "\u{feff}one\r\nthree\r\nfour"),
        ("one\ntwo", "1\n2", "\u{feff}1\r\n2\r\nthree\r\nfour"),
        ("one", "1", "\u{feff}1\r\ntwo\r\nthree\r\nfour"),
        ("three\nfour", "3\n4", "\u{feff}one\r\ntwo\r\n3\r\n4"),
    ];
    for (old, new, after) in edits {
        world.write("f", before);
        let receipt = agent.edit("f", old, new);
        expect(&format!("{old:?}"), &receipt, &["ok"])?;
        check(world.read("f") == after.as_bytes(), || {
            format!("{old:?} to {new:?}: {:?}", String::from_utf8_lossy(&world.read("f")))
        })?;
    }
    world.write("f", before);
    expect("a patch", &agent.patch("*** Update File: f\n@@\n one\n-two\n+2\n three\n"), &["ok"])?;
    check(world.read("f") == edits[0].2.as_bytes(), || {
        format!("the patch made {:?}", String::from_utf8_lossy(&world.read("f")))
    })?;
    // Only the edited span changes: mixed line ends, form feeds, NULs and lone CRs elsewhere stay.
    let mixed = "a\r\nb\nc\rd\0\x0ce\r\nmiddle\nf\u{2028}g\r\n\r\n\n\r";
    world.write("mixed", mixed);
    expect("mixed", &agent.edit("mixed", "middle", "changed"), &["ok"])?;
    check(world.read("mixed") == mixed.replace("middle", "changed").as_bytes(), || {
        "something else moved".into()
    })?;
    world.write("binary", b"text\n\xff\xfe\nmore\n");
    expect("no UTF-8", &agent.edit("binary", "text", "TEXT"), &["error / invalid_utf8"])?;
    check(world.read("binary") == b"text\n\xff\xfe\nmore\n", || "the binary was changed".into())?;
    world.finish()
}

pub(super) fn an_empty_old_string() -> Outcome {
    let world = World::new();
    world.write("f", "OLD\n");
    world.write("empty", "");
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    let refused: &[&str] = &["error / invalid_input_empty_old_string"];
    for path in ["f", "empty"] {
        for extra in [json!({}), json!({ "replace_all": true }), json!({ "with_diff": true })] {
            let mut params = json!({ "path": path, "old_string": "", "new_string": "x" });
            params.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap());
            expect(&params.to_string(), &agent.fs("edit_file", params.clone()), refused)?;
        }
        expect("to nothing", &agent.edit(path, "", ""), refused)?;
        let good = json!({ "old_string": "OLD", "new_string": "NEW" });
        let bad = json!({ "old_string": "", "new_string": "x" });
        for edits in [json!([bad]), json!([good, bad]), json!([bad, good])] {
            expect("edits", &agent.fs("edit_file", json!({ "path": path, "edits": edits })), refused)?;
        }
    }
    check(tree(&world.root) == before, || "something was changed".into())?;
    world.finish()
}

pub(super) fn two_matches() -> Outcome {
    let world = World::new();
    let content = "first\nsame\nmiddle\nsame\nlast\n";
    world.write("f", content);
    let mut agent = world.agent(json!({}));
    let ambiguous: &[&str] = &["ambiguous / ambiguous_matches"];
    let refused = agent.edit("f", "same", "other");
    expect("two matches", &refused, ambiguous)?;
    let message = refused["error_message"].as_str().unwrap_or_default();
    check(message.contains('2') && message.contains('4'), || format!("no line numbers: {message}"))?;
    let explicit = json!({ "path": "f", "old_string": "same", "new_string": "other", "replace_all": false });
    expect("replace_all false", &agent.fs("edit_file", explicit), ambiguous)?;
    let edits = json!([{ "old_string": "first", "new_string": "1" }, { "old_string": "same", "new_string": "other" }]);
    expect("all or nothing", &agent.fs("edit_file", json!({ "path": "f", "edits": edits })), ambiguous)?;
    // Matches that differ only in blanks are several matches too.
    world.write("blanks", "a  b\nx\na   b\n");
    expect("by blanks", &agent.edit("blanks", "a b", "c"), ambiguous)?;
    check(world.read("f") == content.as_bytes() && world.read("blanks") == b"a  b\nx\na   b\n", || {
        "an ambiguous edit changed something".into()
    })?;
    let all = json!({ "path": "f", "old_string": "same", "new_string": "other", "replace_all": true });
    let done = agent.fs("edit_file", all);
    check(done["status"] == "ok" && done["replacements"] == 2, || format!("replace_all: {done}"))?;
    check(world.read("f") == content.replace("same", "other").as_bytes(), || {
        "not both were replaced".into()
    })?;
    world.finish()
}

pub(super) fn folded_punctuation() -> Outcome {
    let world = World::new();
    let line = "\tprint(\u{201c}it\u{2019}s\u{a0}1\u{2013}2\u{201d},\tx)";
    let around =
        ["# \u{201c}head\u{201d} \u{2014} stays\u{a0}\r\n", "\n\u{2018}tail\u{2019}\u{2026}\t\u{2013}"];
    let before = format!("{}{line}{}", around[0], around[1]);
    let session = world.open(json!({}));
    let mut seen = Vec::new();
    for number in 0..100 {
        let name = format!("copy{number}");
        world.write(&name, &before);
        let mut agent = world.quiet_agent(&session);
        let receipt = agent.edit(&name, "print(\"it's 1-2\", x)", "print(\"new\")");
        expect(&name, &receipt, &["ok"])?;
        check(receipt["replacements"] == 1 && receipt["match_kind"] == "punctuation", || {
            format!("{receipt}")
        })?;
        seen.push(world.read(&name));
    }
    let after = String::from_utf8_lossy(&seen[0]).into_owned();
    check(seen.iter().all(|bytes| *bytes == seen[0]), || "the copies differ".into())?;
    check(after.starts_with(around[0]) && after.ends_with(around[1]), || format!("around it: {after:?}"))?;
    let middle = &after[around[0].len()..after.len() - around[1].len()];
    check(middle.trim_start() == "print(\"new\")", || format!("in its place: {middle:?}"))?;
    // Folding is the last resort: where the text occurs exactly as given, that match is used.
    world.write("exact", "\u{201c}x\u{201d}\n\"x\"\n");
    let mut agent = world.agent(json!({}));
    let receipt = agent.edit("exact", "\"x\"", "y");
    check(
        receipt["match_kind"] == "exact" && world.read("exact") == "\u{201c}x\u{201d}\ny\n".as_bytes(),
        || format!("the exact one was not taken: {receipt}"),
    )?;
    // Two matches by folding are ambiguous, and different letters never match.
    world.write("twice", "\u{201c}x\u{201d}\n\u{201e}x\u{201d}\n");
    expect("twice", &agent.edit("twice", "\"x\"", "y"), &["ambiguous / ambiguous_matches"])?;
    world.write("alike", "c\u{e0}f\u{e9} \u{430}\n");
    expect("letters", &agent.edit("alike", "cafe a", "y"), &["not_found / edit_target_not_found"])?;
    world.finish()
}

pub(super) fn the_new_text_is_not_searched() -> Outcome {
    let world = World::new();
    let mut agent = world.agent(json!({}));
    for (content, old, new, after, replacements) in [
        ("aa", "a", "aa", "aaaa", 2),
        ("aa", "a", "", "", 2),
        // Matches do not overlap.
        ("aaa", "aa", "a", "aa", 1),
        ("aaaa", "aa", "aaa", "aaaaaa", 2),
        ("ab", "ab", "abab", "abab", 1),
        ("x\nx\n", "x\n", "x\nx\n", "x\nx\nx\nx\n", 2),
        ("\u{e9}\u{e9}", "\u{e9}", "e\u{301}\u{e9}", "e\u{301}\u{e9}e\u{301}\u{e9}", 2),
    ] {
        world.write("f", content);
        let params = json!({ "path": "f", "old_string": old, "new_string": new, "replace_all": true });
        let what = format!("{old:?} to {new:?} in {content:?}");
        let receipt = timed(Duration::from_secs(1), &what, || agent.fs("edit_file", params))?;
        check(receipt["status"] == "ok" && receipt["replacements"] == replacements, || {
            format!("{what}: {receipt}")
        })?;
        check(world.read("f") == after.as_bytes(), || {
            format!("{what}: {:?}", String::from_utf8_lossy(&world.read("f")))
        })?;
    }
    // Replacing a text with itself changes nothing and says so.
    world.write("f", "aa");
    let same = agent
        .fs("edit_file", json!({ "path": "f", "old_string": "a", "new_string": "a", "replace_all": true }));
    expect("a to a", &same, &["ok"])?;
    check(world.read("f") == b"aa", || "a to a changed something".into())?;
    world.finish()
}

pub(super) fn replacements_are_limited() -> Outcome {
    let world = World::new();
    world.write("f", "x x x x\n");
    world.write("three", "x x x\n");
    let mut agent = world.agent(json!({ "capability": { "max_edit_replacements": 3 } }));
    let all = |path: &str| json!({ "path": path, "old_string": "x", "new_string": "y", "replace_all": true });
    expect("four", &agent.fs("edit_file", all("f")), LIMIT)?;
    // The replacements of several edits are counted together.
    let edits = json!([
        { "old_string": "x x", "new_string": "a b" },
        { "old_string": "x", "new_string": "y", "replace_all": true },
        { "old_string": "a", "new_string": "c" },
    ]);
    world.write("summed", "x x x x\n");
    let summed = agent.fs("edit_file", json!({ "path": "summed", "edits": edits }));
    expect("summed", &summed, &["forbidden / limit_exceeded", "ambiguous / ambiguous_matches"])?;
    let edits = json!([
        { "old_string": "x", "new_string": "y", "replace_all": true },
        { "old_string": "end", "new_string": "END" },
    ]);
    world.write("more", "x x x end\n");
    expect("three and one", &agent.fs("edit_file", json!({ "path": "more", "edits": edits })), LIMIT)?;
    check(world.read("f") == b"x x x x\n" && world.read("more") == b"x x x end\n", || {
        "something was changed".into()
    })?;
    let done = agent.fs("edit_file", all("three"));
    check(done["status"] == "ok" && done["replacements"] == 3, || format!("three: {done}"))?;
    world.finish()
}
