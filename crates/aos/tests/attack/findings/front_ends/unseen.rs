//! S21: characters that cannot be seen, or that reorder what is seen, in names and contents.

use aos_testkit::mcp::{McpClient, said};
use aos_testkit::{Findings, World, check, text};
use serde_json::{Value, json};

use crate::Outcome;

/// Zero-width, bidi, tag and filler characters, and control characters that every name may have.
const UNSEEN: &str = "\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}\u{ad}\u{202e}\u{2066}\u{200f}\u{61c}\u{e0041}\u{e007f}\u{e0100}\u{3164}\u{34f}\u{180e}\u{1b}\u{7}\u{9b}";

fn is_clean(what: &str, shown: &str) -> Outcome {
    let found = shown.chars().find(|c| UNSEEN.contains(*c));
    check(found.is_none(), || format!("{what} shows {found:?}: {:.400}", shown.escape_debug().to_string()))
}

/// Log, show, diff and history escape them in names, contents and ids; what they print as JSON has the same values.
pub(super) fn in_the_record() -> Outcome {
    let world = World::new();
    let session = world.open(json!({ "labels": { "l": "a\u{200b}b" } }));
    let name = format!("a{UNSEEN}z");
    let content = format!("one {UNSEEN} two\n");
    let mut client = world.client();
    let write = json!({ "session_id": session, "path": name, "content": text(&content) });
    let call =
        json!({ "kind": "host.fs.write_file", "params": write, "tool_call_id": "write", "turn_id": "t" });
    let written = client.rpc("effect.call", call);
    check(written["result"]["status"] == "ok", || format!("{written}"))?;
    let grep = json!({ "session_id": session, "pattern": UNSEEN, "fixed_strings": true });
    client.effect("host.fs.grep", grep);
    client.effect("host.exec", json!({ "session_id": session, "argv": ["echo", UNSEEN] }));
    let mut findings = Findings::default();
    let entries = world.journal();
    let last = entries.len();
    let mut asks = vec![
        vec!["log".to_owned()],
        vec!["log".into(), "--json".into()],
        vec!["history".into(), "-s".into(), session.clone()],
        vec!["history".into(), "--json".into(), "-s".into(), session.clone()],
        vec!["diff".into(), "write".into(), "-s".into(), session.clone()],
        vec!["diff".into(), "write".into(), "--json".into(), "-s".into(), session.clone()],
        vec!["session".into(), "list".into()],
        vec!["undo".into(), "--dry-run".into(), "-s".into(), session.clone()],
    ];
    asks.extend((1..=last).map(|seq| vec!["show".to_owned(), seq.to_string()]));
    for words in asks {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, out, err) = world.aos(&words);
        findings.add(check(code == 0 && !out.is_empty(), || format!("{words:?}: {code} {err}")));
        findings.add(is_clean(&format!("aos {words:?}"), &out));
    }
    let shown: Value = (1..=last)
        .map(|seq| serde_json::from_str(&world.aos(&["show", &seq.to_string()]).1).unwrap_or_default())
        .find(|entry: &Value| entry["tool_call_id"] == "write")
        .unwrap_or_default();
    let same = shown["params"]["content"]["inline_text"]["text"] == content.as_str();
    findings.add(check(same, || format!("another value: {shown}")));
    findings.add(world.finish());
    findings.outcome()
}

/// The texts of tools escape them, in success and in failure; so do names with a line end.
pub(super) fn in_texts_of_tools() -> Outcome {
    let world = World::new();
    let mut findings = Findings::default();
    for profile in ["anthropic", "deepagents"] {
        let mut client = McpClient::greeted(&world, &["--profile", profile], json!({}));
        // The `deepagents` tools take ASCII names only.
        let unseen = if profile == "deepagents" { "\u{1b}[8m\u{7}" } else { UNSEEN };
        let name = format!("a{unseen}\nFORGED {profile}");
        let path = if profile == "deepagents" { "file_path" } else { "path" };
        let pattern = format!("*{unseen}*");
        for (tool, mut arguments, file) in [
            ("write_file", json!({ "content": format!("x{UNSEEN}y\n") }), true),
            ("edit_file", json!({ "old_string": "x", "new_string": format!("{UNSEEN}!") }), true),
            ("edit_file", json!({ "old_string": "not there", "new_string": "" }), true),
            ("stat", json!({ "path": name }), false),
            ("list_dir", json!({}), false),
            ("ls", json!({ "path": "/" }), false),
            ("glob", json!({ "pattern": pattern }), false),
            ("glob", json!({ "pattern": "**" }), false),
            ("history", json!({}), false),
            ("shell", json!({ "command": ["sh", "-c", "cp a* b\u{200b}$(printf '\\033')b"] }), false),
            ("undo", json!({}), false),
            ("undo", json!({ "tool_call": unseen }), false),
            ("diff", json!({ "tool_call": unseen }), false),
            (
                "apply_patch",
                json!({ "patch": format!("*** Begin Patch\n*** Add File: p{unseen}\n+{UNSEEN}\n*** End Patch") }),
                false,
            ),
            (
                "apply_patch",
                json!({ "patch": format!("*** Begin Patch\n*** Delete File: none{unseen}\n*** End Patch") }),
                false,
            ),
            ("read_file", json!({ "path": format!("none{unseen}\nFORGED {profile}") }), false),
            ("grep", json!({ "pattern": format!("none{unseen}") }), false),
            ("remove", json!({ "path": name }), false),
            ("rm", json!({ "path": name }), false),
        ] {
            if file {
                arguments[path] = json!(name);
            }
            let result = client.call(tool, arguments);
            // A tool that the profile does not have is an error of the protocol.
            let shown = said(&result);
            findings.add(is_clean(&format!("{profile} {tool}"), shown));
            findings.add(check(!shown.contains("\nFORGED"), || format!("{profile} {tool}: {shown:?}")));
        }
        client.close(&world);
    }
    let made = !aos_testkit::tree(&world.root).is_empty();
    findings.add(check(made, || "no tool wrote a file, so nothing was tried".into()));
    findings.add(world.finish());
    findings.outcome()
}

/// A name as a tool shows it names the same file in the next call.
pub(super) fn shown_names_can_be_used() -> Outcome {
    let world = World::new();
    let mut findings = Findings::default();
    let mut client = McpClient::greeted(&world, &[], json!({}));
    for name in [
        "zero\u{200b}width",
        "bidi\u{202e}txt.exe",
        "tag\u{e0041}",
        "bell\u{7}",
        "lit\\x41",
        "emoji❤\u{fe0f}",
    ] {
        world.write(name, format!("content of {}\n", name.len()));
        let listed = client.call("glob", json!({ "pattern": format!("{}*", &name[..3]) }));
        let shown = said(&listed).to_owned();
        let read = client.call("read_file", json!({ "path": shown }));
        findings.add(check(said(&read).contains(&format!("content of {}", name.len())), || {
            format!("{name:?} is shown as {shown:?}: {read}")
        }));
        let renamed = client.call("remove", json!({ "path": shown }));
        findings.add(check(!world.root.join(name).exists(), || format!("{name:?}: {renamed}")));
    }
    client.close(&world);
    findings.add(world.finish());
    findings.outcome()
}

/// What `read_file`, `grep` and `shell` show of a file is what an edit must match.
pub(super) fn content_is_unchanged() -> Outcome {
    let world = World::new();
    let line = "family 👨\u{200d}👩\u{200d}👧 zero\u{200b}width tag\u{e0041}";
    world.write("f", format!("{line}\n"));
    let mut client = McpClient::greeted(&world, &[], json!({}));
    for (tool, arguments) in [
        ("read_file", json!({ "path": "f" })),
        ("grep", json!({ "pattern": "family" })),
        ("shell", json!({ "command": ["cat", "f"] })),
    ] {
        let result = client.call(tool, arguments);
        check(said(&result).contains(line), || format!("{tool}: {result}"))?;
    }
    let edited = client.call("edit_file", json!({ "path": "f", "old_string": line, "new_string": "plain" }));
    check(edited["isError"] == false && world.read("f") == b"plain\n", || format!("{edited}"))?;
    client.close(&world);
    world.finish()
}
