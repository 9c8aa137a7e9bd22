//! The tools for models as a model uses them, through `aos tool`; and `aos setup` in a home of its own.
#![allow(
    clippy::disallowed_methods,
    reason = "a test prepares and inspects the disk behind the product's back"
)]
#![allow(clippy::needless_pass_by_value, reason = "a `json!` value is passed as it is")]

use std::process::{Command, Stdio};

use aos_testkit::{Programs, World};
use serde_json::{Value, json};

/// A world with a session.
struct Model {
    world: World,
    session: String,
    profile: &'static str,
}

impl Model {
    fn new(profile: &'static str) -> Model {
        let world = World::new();
        let session = world.open(json!({}));
        Model { world, session, profile }
    }

    fn call(&self, tool: &str, arguments: Value) -> (i32, String) {
        let words =
            ["tool", "call", tool, &arguments.to_string(), "-s", &self.session, "--profile", self.profile];
        let (code, out, err) = self.world.aos(&words);
        assert_eq!(err, "", "nothing but the text is said");
        (code, out.strip_suffix('\n').expect("a line end").to_owned())
    }

    fn works(&self, tool: &str, arguments: Value) -> String {
        let (code, text) = self.call(tool, arguments);
        assert_eq!(code, 0, "{tool}: {text}");
        text
    }

    fn fails(&self, tool: &str, arguments: Value) -> String {
        let (code, text) = self.call(tool, arguments);
        assert_eq!(code, 1, "{tool}: {text}");
        text
    }

    fn finish(self) {
        self.world.finish().unwrap();
    }
}

const PROFILES: [&str; 4] = ["openai", "anthropic", "gemini", "deepagents"];

#[test]
fn each_profile_lists_its_tools_in_its_own_order_and_shape() {
    let world = World::new();
    for profile in PROFILES {
        let (code, out, _) = world.aos(&["tool", "list", "--profile", profile]);
        let tools: Vec<Value> = serde_json::from_str(&out).unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let place = |name: &str| names.iter().position(|known| *known == name);
        let schema = if ["openai", "gemini"].contains(&profile) { "parameters" } else { "input_schema" };
        assert_eq!(code, 0);
        for tool in &tools {
            assert_eq!(tool[schema]["type"], "object", "{tool}");
            let needed = tool[schema]["required"].as_array().cloned().unwrap_or_default();
            assert!(
                needed.iter().all(|name| tool[schema]["properties"].get(name.as_str().unwrap()).is_some())
            );
        }
        match profile {
            "deepagents" => {
                assert_eq!(names, ["ls", "read_file", "write_file", "edit_file", "glob", "grep", "rm"]);
            }
            "openai" => assert!(place("apply_patch") < place("edit_file"), "{names:?}"),
            _ => assert!(place("edit_file") < place("apply_patch"), "{names:?}"),
        }
        assert!(!names.contains(&"stage_commit"), "only staged sessions have it");
    }
    let (_, out, _) = world.aos(&["tool", "list", "--staged"]);
    assert!(out.contains("stage_diff") && out.contains("stage_commit"));
    assert_eq!(world.aos(&["tool", "list", "--profile", "nobody"]).0, 2);
    world.finish().unwrap();
}

#[test]
fn every_profile_reads_by_lines_and_numbers_them() {
    for profile in PROFILES {
        let model = Model::new(profile);
        let long: String =
            (1..=5_000).map(|n| format!("line {n} of a file that is longer than a piece\n")).collect();
        model.world.write("long", long);
        model.world.write("short", "a\r\nb");
        let read = |path: &str, offset: u64, limit: u64| {
            let text =
                model.works("read_file", json!({ "file_path": path, "offset": offset, "limit": limit }));
            let is_line = |line: &&str| line.contains(" | ");
            text.lines().filter(is_line).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(read("short", 0, 10), ["   1 | a", "   2 | b"], "{profile}");
        assert_eq!(read("long", 2, 2)[1], "   4 | line 4 of a file that is longer than a piece");
        assert_eq!(read("long", 4_999, 10), ["5000 | line 5000 of a file that is longer than a piece"]);
        assert!(read("long", 5_000, 10).is_empty());
        assert!(read("long", 0, 100_000).len() <= 2_000);
        model.finish();
    }
}

#[test]
fn a_long_file_is_read_page_by_page_without_a_gap() {
    let model = Model::new("anthropic");
    let lines: Vec<String> = (0..7_000).map(|n| format!("{n} {}", "é".repeat(n % 90))).collect();
    model.world.write("f", lines.join("\n"));
    let (mut seen, mut offset) = (Vec::new(), 0_usize);
    loop {
        let text = model.works("read_file", json!({ "path": "f", "offset": offset }));
        assert!(text.len() < 60_000, "a page fits: {}", text.len());
        seen.extend(text.lines().filter_map(|line| line.split_once(" | ")).map(|(_, line)| line.to_owned()));
        match text.rsplit_once("continue with offset=") {
            Some((_, next)) => offset = next.trim_end_matches(')').parse().unwrap(),
            None => break,
        }
    }
    assert_eq!(seen, lines);
    model.finish();
}

#[test]
fn what_is_too_large_is_cut_and_says_how_to_go_on() {
    let model = Model::new("anthropic");
    model.world.write("wide", "x".repeat(3 << 20) + "\nsecond\n");
    let text = model.works("read_file", json!({ "path": "wide" }));
    assert!(
        text.len() < 5_000 && text.contains("bytes more in this line") && text.ends_with("   2 | second")
    );
    let text = model.works("shell", json!({ "command": "seq 1 200000" }));
    assert!(
        text.len() < 50_000 && text.starts_with("1\n2\n") && text.contains("\n200000\n"),
        "{}",
        text.len()
    );
    let handle = text.split("\"path\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let text = model.works("read_file", json!({ "path": handle, "offset": 123_455, "limit": 1 }));
    assert!(text.starts_with("123456 | 123456"), "{text}");
    let many: String = (0..3_000).map(|n| format!("hit {n} {}\n", "y".repeat(60))).collect();
    model.world.write("many", many);
    let text = model.works("grep", json!({ "pattern": "hit", "max_results": 3_000 }));
    assert!(
        text.len() < 50_000
            && text.contains("hit 0 ")
            && text.contains("hit 2999 ")
            && text.contains("left out")
    );
    model.finish();
}

#[test]
fn a_failure_is_marked_and_says_the_next_step() {
    let model = Model::new("anthropic");
    model.world.write("f", "one\none\n");
    model.world.write("bytes", [0xff, 0xfe, 0x00]);
    for (tool, arguments, code) in [
        ("read_file", json!({ "path": "missing" }), "path_not_found"),
        ("read_file", json!({ "path": "." }), "is_directory"),
        ("read_file", json!({ "path": "bytes" }), "invalid_utf8"),
        ("read_file", json!({ "path": "../f" }), "path_outside_roots"),
        ("read_file", json!({}), "invalid_params"),
        ("read_file", json!({ "path": "f", "offset": -1 }), "invalid_params"),
        ("read_file", json!({ "path": "f", "offset_bytes": 1 }), "invalid_params"),
        ("write_file", json!({ "path": "f", "content": "x", "mode": "create_new" }), "file_exists"),
        ("edit_file", json!({ "path": "f", "old_string": "one", "new_string": "two" }), "ambiguous_matches"),
        (
            "edit_file",
            json!({ "path": "f", "old_string": "three", "new_string": "x" }),
            "edit_target_not_found",
        ),
        ("apply_patch", json!({ "patch": "no patch" }), "patch_parse_error"),
        ("remove", json!({ "path": ".git/hooks/x" }), "protected_path"),
        ("grep", json!({ "pattern": "(" }), "invalid_regex"),
        ("glob", json!({ "pattern": "../*" }), "invalid_pattern"),
        ("shell", json!({ "command": [] }), "argv_empty"),
        ("shell", json!({ "command": "true", "env": {} }), "invalid_params"),
        ("shell", json!({ "command": "sleep 100", "timeout_ms": 50 }), "timeout"),
        ("undo", json!({ "tool_call": "tc_none" }), "snapshot_not_found"),
        ("undo", json!({}), "nothing_to_roll_back"),
        ("redo", json!({}), "nothing_to_redo"),
        ("diff", json!({ "tool_call": "tc_none" }), "snapshot_not_found"),
        ("no_such_tool", json!({}), "invalid_params"),
    ] {
        let text = model.fails(tool, arguments.clone());
        assert!(
            text.contains("Error: ") && text.contains(&format!("[{code}]\nNext: ")),
            "{tool} {arguments}: {text}"
        );
    }
    let usage =
        |arguments: &str| model.world.aos(&["tool", "call", "read_file", arguments, "-s", &model.session]).0;
    assert_eq!([usage("[]"), usage("no json"), usage("{\"path\":\"f\",\"path\":\"f\"}")], [2, 2, 2]);
    model.finish();
}

#[test]
fn changes_are_told_shown_and_taken_back() {
    let model = Model::new("openai");
    assert_eq!(
        model.works("write_file", json!({ "path": "a/b.txt", "content": "one\n" })),
        "Created a/b.txt (4 bytes)."
    );
    let text =
        model.works("edit_file", json!({ "file_path": "a/b.txt", "old_string": "one", "new_string": "two" }));
    assert!(text.contains("-one\n+two"), "{text}");
    let patch =
        "*** Begin Patch\n*** Update File: a/b.txt\n@@\n-two\n+three\n*** Add File: c\n+new\n*** End Patch\n";
    assert!(model.works("apply_patch", json!({ "input": patch })).contains("a/b.txt"));
    let history = model.works("history", json!({}));
    let ids: Vec<&str> = history.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(ids.len(), 3, "{history}");
    assert!(model.works("diff", json!({ "tool_call": ids[1] })).contains("-one\n+two"));
    assert!(model.works("undo", json!({})).contains("restored a/b.txt"));
    assert_eq!((model.world.read("a/b.txt"), model.world.read("c")), (b"two\n".to_vec(), Vec::new()));
    assert!(model.works("redo", json!({})).contains("restored"));
    assert_eq!(model.world.read("c"), b"new\n");
    model.works("undo", json!({}));
    let why = model.fails("undo", json!({ "tool_call": ids[2] }));
    assert!(why.contains("[changed_since]") && why.contains("a/b.txt was changed by tc_"), "{why}");
    model.works("undo", json!({ "tool_call": ids[1] }));
    assert_eq!(model.world.read("a/b.txt"), b"one\n");
    model.finish();
}

#[test]
fn a_command_is_a_line_or_words() {
    let model = Model::new("anthropic");
    model.world.write("d/f", "here\n");
    assert!(
        model
            .works("shell", json!({ "command": "cat f | tr e 3", "cwd": "d" }))
            .starts_with("h3r3\n[exit code 0")
    );
    assert!(model.works("shell", json!({ "command": ["printf", "%s", "a b"] })).starts_with("a b\n"));
    let text = model.works("shell", json!({ "command": "echo out; echo err >&2; exit 3" }));
    assert!(text.starts_with("out\n[stderr]\nerr\n[exit code 3"), "{text}");
    model.finish();
}

/// Texts that existing users match on exactly.
#[test]
fn the_deepagents_profile_keeps_its_words() {
    let model = Model::new("deepagents");
    model.world.write("top.py", "print(1)\n");
    model.world.write("lib/deep/x.py", "HIT\n");
    model.world.write("empty", "");
    for (tool, arguments, wanted) in [
        ("ls", json!({}), "Listed directory / (1 subdir, 2 files).\nempty\nlib/\ntop.py"),
        ("ls", json!({ "path": "/lib" }), "Listed directory lib (1 subdir, 0 files).\ndeep/"),
        (
            "write_file",
            json!({ "file_path": "src/a.py", "content": "HIT = \"one\"\n\n" }),
            "Created src/a.py (13 bytes).",
        ),
        (
            "read_file",
            json!({ "file_path": "/src/a.py" }),
            "Read file src/a.py (lines 1-2).\n   1 | HIT = \"one\"\n   2 | ",
        ),
        ("read_file", json!({ "file_path": "empty" }), "Read file empty (no lines returned)."),
        ("read_file", json!({ "file_path": "top.py", "offset": 9 }), "Read file top.py (no lines returned)."),
        (
            "edit_file",
            json!({ "file_path": "src/a.py", "old_string": "n", "new_string": "m" }),
            "Replaced 1 occurrence in src/a.py.",
        ),
        (
            "edit_file",
            json!({ "file_path": "src/a.py", "old_string": "\n", "new_string": "", "replace_all": true }),
            "Replaced 2 occurrences in src/a.py.",
        ),
        ("glob", json!({ "pattern": "*.py" }), "Found 1 match under / for pattern '*.py'.\ntop.py"),
        (
            "glob",
            json!({ "pattern": "**/*.py" }),
            "Found 3 matches under / for pattern '**/*.py'.\nlib/deep/x.py\nsrc/a.py\ntop.py",
        ),
        (
            "grep",
            json!({ "pattern": "HIT" }),
            "Found 2 matches for pattern 'HIT'.\nlib/deep/x.py:1:HIT\nsrc/a.py:1:HIT = \"ome\"",
        ),
        (
            "grep",
            json!({ "pattern": "HIT", "glob": "x.*" }),
            "Found 1 match for pattern 'HIT'.\nlib/deep/x.py:1:HIT",
        ),
        ("grep", json!({ "pattern": "nowhere" }), "Found 0 matches for pattern 'nowhere'."),
        ("rm", json!({ "path": "src/a.py" }), "Deleted 1 entry under src/a.py."),
        ("rm", json!({ "path": "/lib" }), "Deleted 1 entry under lib."),
    ] {
        assert_eq!(model.works(tool, arguments.clone()), wanted, "{tool} {arguments}");
    }
    the_deepagents_refusals(&model);
    model.finish();
}

fn the_deepagents_refusals(model: &Model) {
    let deep = "d/".repeat(17);
    for (tool, arguments, wanted) in [
        ("read_file", json!({}), "file_path is required."),
        ("read_file", json!({ "file_path": " " }), "file_path must not be empty."),
        ("read_file", json!({ "file_path": "//" }), "file_path must reference a file or directory."),
        ("read_file", json!({ "file_path": deep }), "Path depth exceeds the allowed limit (16 segments)."),
        ("read_file", json!({ "file_path": "a/../b" }), "Path segments may not include '.' or '..'."),
        (
            "read_file",
            json!({ "file_path": "x".repeat(81) }),
            "Path segments must be 80 characters or fewer.",
        ),
        ("read_file", json!({ "file_path": "é" }), "Path segment must be ASCII text."),
        ("read_file", json!({ "file_path": "missing" }), "File does not exist in the virtual filesystem."),
        ("read_file", json!({ "file_path": "top.py", "offset": -1 }), "offset must be non-negative."),
        ("read_file", json!({ "file_path": "top.py", "limit": 0 }), "limit must be a positive integer."),
        ("ls", json!({ "path": "missing" }), "File does not exist in the virtual filesystem."),
        ("ls", json!({ "path": "top.py" }), "Cannot list a file path; provide a directory."),
        (
            "write_file",
            json!({ "file_path": "top.py", "content": "x" }),
            "File already exists; use edit_file to modify existing content.",
        ),
        (
            "write_file",
            json!({ "file_path": "big", "content": "é".repeat(48_001) }),
            "Content exceeds maximum length of 48,000 characters.",
        ),
        (
            "edit_file",
            json!({ "file_path": "top.py", "old_string": "", "new_string": "x" }),
            "old_string must not be empty.",
        ),
        (
            "edit_file",
            json!({ "file_path": "top.py", "old_string": "print( 1)", "new_string": "x" }),
            "old_string not found in the target file.",
        ),
        (
            "edit_file",
            json!({ "file_path": "top.py", "old_string": "p", "new_string": "x".repeat(48_001) }),
            "Replacement strings must be 48,000 characters or fewer.",
        ),
        ("glob", json!({ "pattern": " " }), "Pattern must not be empty."),
        ("rm", json!({ "path": "missing" }), "No files matched the provided path."),
        ("rm", json!({ "path": "/" }), "path must reference a file or directory."),
    ] {
        assert_eq!(model.fails(tool, arguments.clone()), wanted, "{tool} {arguments}");
    }
    assert!(model.fails("grep", json!({ "pattern": "(" })).starts_with("Invalid regular expression: "));
    model.world.write("twice", "pp");
    let why = model.fails("edit_file", json!({ "file_path": "twice", "old_string": "p", "new_string": "q" }));
    assert_eq!(why, "old_string must match exactly once unless replace_all is true.");
}

#[test]
fn the_prompt_teaches_nine_points_and_names_the_mounts() {
    let model = Model::new("anthropic");
    for profile in PROFILES {
        let (code, out, _) =
            model.world.aos(&["tool", "prompt", "--session", &model.session, "--profile", profile]);
        assert_eq!(code, 0);
        assert!((1..=9).all(|n| out.contains(&format!("\n{n}. "))), "{out}");
        assert!(out.contains("Configured host mounts:"), "{out}");
    }
    assert_eq!(model.world.aos(&["tool", "prompt", "--session", "hs_none"]).0, 1);
    model.finish();
}

#[test]
fn each_agent_is_set_up_once_and_its_other_settings_stay() {
    let home = tempfile::tempdir().unwrap();
    let setup = |words: &[&str]| {
        let output = Command::new(&Programs::built().aos)
            .arg("setup")
            .args(words)
            .env_clear()
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    for (agent, file, seed, kept) in [
        (
            "claude-code",
            ".claude.json",
            "{\"theme\": \"dark\",\"mcpServers\":{\"other\":{\"command\":\"x\"}}}",
            "\"other\": {\"command\":\"x\"}",
        ),
        ("codex", ".codex/config.toml", "model = \"m\" # mine\n", "model = \"m\" # mine\n"),
        ("gemini", ".gemini/settings.json", "{\"z\":1,\"a\":2}", "\"z\": 1,\n  \"a\": 2"),
        ("cursor", ".cursor/mcp.json", "{}", "mcpServers"),
        ("vscode", ".config/Code/User/mcp.json", "{\"inputs\":[]}", "\"inputs\": []"),
        ("zed", ".config/zed/settings.json", "{\"vim_mode\":true}", "\"vim_mode\": true"),
        ("opencode", ".config/opencode/opencode.json", "{\"$schema\":\"s\"}", "\"$schema\": \"s\""),
    ] {
        let path = home.path().join(file);
        let (code, shown, _) = setup(&[agent]);
        assert_eq!(code, Some(0));
        assert!(shown.contains(file) && shown.contains("mcp"), "{agent}: {shown}");
        assert!(!path.exists(), "{agent}: shown is not written");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, seed).unwrap();
        let (code, shown, err) = setup(&[agent, "--write"]);
        assert_eq!(code, Some(0), "{agent}: {err}");
        assert!(shown.contains("+++ ") && shown.contains("wrote"), "{agent}: {shown}");
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written.contains(kept) && written.contains("\"mcp\""), "{agent}: {written}");
        let (_, shown, _) = setup(&[agent, "--write"]);
        assert!(shown.contains("already"), "{agent}: {shown}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
        if file.ends_with("json") {
            std::fs::write(&path, "{ // mine\n}").unwrap();
            let (code, _, err) = setup(&[agent, "--write"]);
            assert_eq!(code, Some(1), "a file with comments is left alone");
            assert!(err.contains("by hand"), "{err}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "{ // mine\n}");
        }
        std::fs::remove_file(&path).unwrap();
        setup(&[agent, "--write"]);
        assert!(path.exists(), "{agent}: made where there was none");
    }
    assert_eq!(setup(&["nobody"]).0, Some(2));
}

/// The same suite on a tree that is not on the disk, and on one that is not committed yet.
#[test]
fn the_tools_work_on_virtual_and_staged_trees() {
    let mut model = Model::new("deepagents");
    let docs = model.world.root.join("docs");
    std::fs::create_dir(&docs).unwrap();
    std::fs::write(docs.join("guide.md"), "# guide\n").unwrap();
    let vfs = json!({ "vfs": { "allowed_roots": [model.world.root], "mounts": [{ "host_path": "docs" }] } });
    model.session = model.world.open(json!({ "target": vfs }));
    assert_eq!(model.works("ls", json!({ "path": "/" })), "Listed directory / (1 subdir, 0 files).\ndocs/");
    assert_eq!(
        model.works("write_file", json!({ "path": "src/a.py", "content": "print('hi')\n" })),
        "Created src/a.py (12 bytes)."
    );
    assert!(
        model.works("grep", json!({ "pattern": "guide" })).starts_with("Found 1 match for pattern 'guide'.")
    );
    assert!(model.works("glob", json!({ "pattern": "**/*.py" })).ends_with("src/a.py"));
    let (code, prompt, _) = model.world.aos(&["tool", "prompt", "-s", &model.session]);
    assert!(
        code == 0 && prompt.contains("- Host `docs` mounted at `docs`.\n  Contents: `guide.md`"),
        "{prompt}"
    );
    model.profile = "anthropic";
    assert!(model.works("list_dir", json!({ "path": "." })).contains("docs/"));
    model.fails("shell", json!({ "command": "true" }));
    model.session = model.world.open(json!({ "target": { "staged": { "workdir": model.world.root } } }));
    model
        .works("edit_file", json!({ "path": "docs/guide.md", "old_string": "guide", "new_string": "Guide" }));
    assert_eq!(std::fs::read(docs.join("guide.md")).unwrap(), b"# guide\n");
    let (code, diff, _) = model.world.aos(&["stage", "diff", "-s", &model.session]);
    assert!(code == 0 && diff.contains("+# Guide"), "{diff}");
    model.world.finish().unwrap();
}
