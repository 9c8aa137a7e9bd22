//! Attacks on the MCP front end: RPC-15, RPC-20, and that no argument of any tool widens a session.

mod http;

use std::io::Write as _;

use aos_testkit::{Findings, World, check, signal, tree, wait_for};
use serde_json::{Value, json};

use crate::{Case, Outcome, plain};

use aos_testkit::mcp::{McpClient, said};

pub fn cases() -> Vec<Case> {
    vec![
        plain("RPC-15", before_hello_unknown_and_hints),
        plain("RPC-20", only_frames_on_stdout),
        plain("OWN-MCP-WIDEN", no_argument_widens),
        plain("OWN-MCP-ESCAPE", no_path_leads_out),
        plain("OWN-MCP-NARROW", a_narrow_session_stays_narrow),
        plain("OWN-MCP-STATELESS", without_hello),
        plain("OWN-MCP-CANCEL", one_command_is_cancelled),
        plain("OWN-MCP-GONE", a_client_that_goes_ends_its_commands),
        plain("OWN-MCP-HTTP", http::the_gate),
        plain("OWN-MCP-BLOB", blobs_of_others),
        plain("M3", the_text_is_the_result),
    ]
}

fn before_hello_unknown_and_hints() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    let mut client = McpClient::open(&world, &[]);
    let early = client.request("tools/call", json!({ "name": "read_file", "arguments": { "path": "f" } }));
    check(early["error"].is_object(), || format!("before initialize: {early}"))?;
    drop(client);
    let mut client = McpClient::greeted(&world, &[], json!({}));
    let unknown = client.request("tools/call", json!({ "name": "no_such_tool", "arguments": {} }));
    check(unknown["error"]["code"] == -32602, || format!("unknown tool: {unknown}"))?;
    let unknown = client.request("no/such_method", json!({}));
    check(unknown["error"]["code"] == -32601, || format!("unknown method: {unknown}"))?;
    let listed = client.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().cloned().unwrap_or_default();
    check(tools.len() >= 14, || format!("{listed}"))?;
    const WRITES: [&str; 8] =
        ["write_file", "edit_file", "apply_patch", "remove", "shell", "undo", "redo", "stage_commit"];
    for tool in &tools {
        let (name, hints) = (tool["name"].as_str().unwrap_or_default(), &tool["annotations"]);
        let writes = WRITES.contains(&name);
        check(hints["readOnlyHint"] == !writes, || format!("{name}: {hints}"))?;
        check(hints["destructiveHint"] == writes, || format!("{name}: {hints}"))?;
        check(tool["description"].as_str().is_some_and(|text| text.len() > 20), || format!("{tool}"))?;
        check(tool["inputSchema"]["additionalProperties"] == false, || format!("{tool}"))?;
    }
    client.close(&world);
    world.finish()
}

fn only_frames_on_stdout() -> Outcome {
    let mut world = World::new();
    world.write("f", "one\n");
    let mut client = McpClient::greeted(&world, &[], json!({}));
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let long = "x".repeat(17 << 20);
    for line in [
        "no json at all",
        "{\"jsonrpc\":\"2.0\"}",
        "[]",
        "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/no_such\",\"params\":{}}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":99}}",
        "{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}",
        &deep,
        &long,
    ] {
        client.send(line);
    }
    client.to.as_mut().expect("open").write_all(b"\xff\xfe\n").map_err(|why| why.to_string())?;
    for arguments in [json!(null), json!([]), json!("x"), json!({ "path": 7 }), json!({ "path": "a\u{0}b" })]
    {
        let id = client.ask("tools/call", json!({ "name": "read_file", "arguments": arguments }));
        let _ = id;
    }
    // Output that looks like a frame, and control characters, arrive inside a frame.
    let result = client.call(
        "shell",
        json!({ "command": "printf '{\"jsonrpc\":\"2.0\"}\\n\\033[2J\\000\\377'; echo oops >&2" }),
    );
    check(result["isError"] == false, || format!("{result}"))?;
    // The daemon dies; `aos mcp` reports it on standard error, starts another and continues.
    world.kill9();
    let result = client.call("read_file", json!({ "path": "f" }));
    check(said(&result).contains("one"), || format!("after the daemon died: {result}"))?;
    // `hear` has parsed each line as a frame; any remaining line must be a frame too.
    for line in &client.lines {
        let frame: Value = serde_json::from_str(line).map_err(|why| format!("{why}: {line}"))?;
        check(frame["jsonrpc"] == "2.0", || line.clone())?;
    }
    client.close(&world);
    let (code, _, err) = world.aos(&["daemon", "stop"]);
    check(code == 0, || err)?;
    world.finish()
}

/// Arguments that only the operator may give, and that an agent might try.
fn wider() -> Vec<(&'static str, Value)> {
    vec![
        ("capability", json!({ "fs_roots": ["/"], "allowed_fs_ops": ["read", "write"] })),
        ("policy", json!({ "preset": "permissive" })),
        ("isolation", json!("none")),
        ("capture", json!("none")),
        ("output_mode", json!("require_inline")),
        ("env", json!({ "LD_PRELOAD": "/x" })),
        ("env_patch", json!({ "PATH": "/x" })),
        ("network_mode", json!("full")),
        ("home", json!("host")),
        ("mounts", json!([{ "host_path": "/", "mode": "rw" }])),
        ("fs_roots", json!(["/"])),
        ("follow_symlinks", json!("allow")),
        ("protected_paths", json!("allow")),
        ("cross_mounts", json!(true)),
        ("session_id", json!("hs_0")),
        ("target", json!({ "local": { "workdir": "/" } })),
        ("workdir", json!("/")),
        ("root", json!("/")),
        ("auto_snapshot", json!(false)),
        ("capture_exclude", json!(["**"])),
        ("snapshot_bytes_max", json!(0)),
        ("session_ttl_ns", json!(1)),
        ("on_failure", json!("discard")),
        ("background", json!(true)),
        ("stdin_ref", json!("sha256:0")),
        ("force", json!(true)),
        ("turn_id", json!("x")),
        ("tool_call_id", json!("x")),
        ("argv0", json!("/bin/sh")),
        ("timeout_ns", json!(0)),
        ("max_processes", json!(100_000)),
        ("approved", json!(true)),
        ("_meta", json!({ "policy": "permissive" })),
    ]
}

/// Valid arguments for each tool.
fn good_arguments(tool: &str) -> Value {
    match tool {
        "read_file" | "stat" => json!({ "path": "f" }),
        "remove" => json!({ "path": "gone" }),
        "write_file" => json!({ "path": "new", "content": "x" }),
        "edit_file" => json!({ "path": "f", "old_string": "one", "new_string": "two" }),
        "apply_patch" => json!({ "patch": "*** Begin Patch\n*** Add File: added\n+x\n*** End Patch\n" }),
        "grep" | "glob" => json!({ "pattern": "*" }),
        "shell" => json!({ "command": "echo hello > made" }),
        "diff" => json!({ "tool_call": "tc_0" }),
        "ls" | "list_dir" | "undo" | "redo" | "history" | "stage_diff" | "stage_commit" => json!({}),
        "rm" => json!({ "path": "gone" }),
        other => panic!("a tool that this attack does not know: {other}"),
    }
}

fn no_argument_widens() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    let other = world.client().effect(
        "host.session.open",
        json!({ "target": { "local": { "workdir": world.parent } }, "policy": { "preset": "permissive" } }),
    );
    let mut findings = Findings::default();
    let before = tree(&world.root);
    for profile in ["openai", "anthropic", "gemini", "deepagents"] {
        let mut client = McpClient::greeted(&world, &["--profile", profile], json!({}));
        let listed = client.request("tools/list", json!({}));
        for tool in listed["result"]["tools"].as_array().into_iter().flatten() {
            let name = tool["name"].as_str().unwrap_or_default();
            let good = good_arguments(name);
            for (argument, value) in wider() {
                let taught = &tool["inputSchema"]["properties"][argument];
                findings.add(check(taught.is_null(), || format!("{profile} {name} is taught {argument}")));
                let mut arguments = good.clone();
                arguments[argument] = value;
                let result = client.call(name, arguments);
                let text = said(&result).to_owned();
                findings
                    .add(check(result["isError"] == true && text.contains("there is no argument"), || {
                        format!("{profile} {name} with {argument}: {result}")
                    }));
            }
            // Another client's session, wider than ours, by its real id.
            for handle in [other["session_id"].clone(), json!("hs_0"), json!(7), json!("../x")] {
                let mut arguments = good.clone();
                arguments["session"] = handle;
                let result = client.call(name, arguments);
                findings.add(check(
                    result["isError"] == true && said(&result).contains("no such session"),
                    || format!("{profile} {name} in another session: {result}"),
                ));
            }
        }
        client.close(&world);
    }
    findings.add(check(tree(&world.root) == before, || "a refused call changed something".into()));
    findings.add(world.finish());
    findings.outcome()
}

fn no_path_leads_out() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    world.link(&world.outside, "link");
    let before = tree(&world.root);
    let absolute = world.outside.join("secret").display().to_string();
    let ways = [
        "../outside/secret",
        "./../outside/secret",
        "link/secret",
        &absolute,
        "/proc/self/environ",
        "f/../../outside/secret",
    ];
    let mut client = McpClient::greeted(&world, &[], json!({}));
    let mut findings = Findings::default();
    for way in ways {
        for (tool, arguments) in [
            ("read_file", json!({ "path": way })),
            ("read_file", json!({ "file_path": way })),
            ("write_file", json!({ "path": way, "content": "x" })),
            ("edit_file", json!({ "path": way, "old_string": "C", "new_string": "x" })),
            (
                "apply_patch",
                json!({ "input": format!("*** Begin Patch\n*** Delete File: {way}\n*** End Patch\n") }),
            ),
            ("remove", json!({ "path": way })),
            ("stat", json!({ "path": way })),
            ("grep", json!({ "pattern": "CANARY", "path": way })),
            ("shell", json!({ "command": ["cat", way] })),
            ("shell", json!({ "command": "true", "cwd": format!("{way}/..") })),
        ] {
            let result = client.call(tool, arguments.clone());
            // What the policy allows is stopped by the sandbox: the command itself then fails.
            let failed = result["isError"] == true || !said(&result).contains("exit code 0");
            findings.add(check(failed, || format!("{tool} {arguments}: {result}")));
        }
    }
    client.close(&world);
    findings.add(check(tree(&world.root) == before, || "something changed".into()));
    findings.add(world.finish());
    findings.outcome()
}

fn a_narrow_session_stays_narrow() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    let ceiling = world.parent.join("capability.json");
    std::fs::write(
        &ceiling,
        json!({ "allowed_fs_ops": ["read", "search"], "exec": { "allowed": false } }).to_string(),
    )
    .map_err(|why| why.to_string())?;
    let mut client = McpClient::greeted(
        &world,
        &["--structured", "--capability", &ceiling.display().to_string()],
        json!({}),
    );
    let before = tree(&world.root);
    let mut findings = Findings::default();
    for (tool, code) in [
        ("write_file", "op_not_allowed"),
        ("edit_file", "op_not_allowed"),
        ("apply_patch", "op_not_allowed"),
        ("list_dir", "op_not_allowed"),
        ("stat", "op_not_allowed"),
        ("remove", "op_not_allowed"),
        ("undo", "op_not_allowed"),
        ("shell", "exec_not_allowed"),
    ] {
        let result = client.call(tool, good_arguments(tool));
        let found = &result["structuredContent"]["error_code"];
        findings.add(check(result["isError"] == true && found == code, || format!("{tool}: {result}")));
        findings.add(check(said(&result).contains("\nNext: "), || format!("no next step: {result}")));
    }
    let read = client.call("read_file", json!({ "path": "f" }));
    findings.add(check(read["isError"] == false, || format!("{read}")));
    findings.add(check(tree(&world.root) == before, || "something changed".into()));
    client.close(&world);
    findings.add(world.finish());
    findings.outcome()
}

/// The metadata of a client of 2026-07-28, which never sends `initialize`.
fn meta(capabilities: Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "attack", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

fn without_hello() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    let second = world.open(json!({}));
    let mut client = McpClient::open(&world, &["--structured", "--root", ".", "--session", &second]);
    let found = client.request("server/discover", json!({ "_meta": meta(json!({})) }));
    check(found["result"]["supportedVersions"].to_string().contains("2026-07-28"), || format!("{found}"))?;
    let listed = client.request("tools/list", json!({ "_meta": meta(json!({})) }));
    check(listed["result"]["tools"].as_array().is_some_and(|tools| tools.len() >= 14), || {
        format!("{listed}")
    })?;
    let call =
        |arguments: Value| json!({ "name": "read_file", "arguments": arguments, "_meta": meta(json!({})) });
    let read = client.request("tools/call", call(json!({ "path": "f" })));
    check(said(&read["result"]) == "   1 | one", || format!("{read}"))?;
    let read = client.request("tools/call", call(json!({ "path": "f", "session": second })));
    check(read["result"]["structuredContent"]["session"] == second.as_str(), || format!("{read}"))?;
    client.close(&world);
    world.finish()
}

fn one_command_is_cancelled() -> Outcome {
    let world = World::new();
    let second = world.open(json!({}));
    let mut client = McpClient::greeted(&world, &["--root", ".", "--session", &second], json!({}));
    let start = |client: &mut McpClient, session: Option<&str>, command: &str, token: &str| {
        let mut arguments = json!({ "command": command });
        if let Some(session) = session {
            arguments["session"] = json!(session);
        }
        let meta = json!({ "progressToken": token });
        let id = client.ask("tools/call", json!({ "name": "shell", "arguments": arguments, "_meta": meta }));
        // The command runs once it has written something.
        while client.hear()["params"]["progressToken"] != token {}
        id
    };
    let doomed = start(&mut client, None, "echo begun; sleep 1000", "a");
    // Long enough to still run while the other is cancelled; if it is over by then, the test shows nothing but does not
    // fail.
    let waits = "echo begun; sleep 3; echo finished";
    let spared = start(&mut client, Some(&second), waits, "b");
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": doomed } })
            .to_string(),
    );
    // The session runs commands one at a time: the next one runs because the cancelled one was ended.
    let after = client.call("shell", json!({ "command": "echo after" }));
    check(said(&after).contains("after"), || format!("{after}"))?;
    let result = client.answer(spared)["result"].take();
    check(said(&result).contains("finished"), || format!("the other one was touched too: {result}"))?;
    client.close(&world);
    world.finish()
}

/// Whether the client closes its streams or is killed by a signal.
fn a_client_that_goes_ends_its_commands() -> Outcome {
    let world = World::new();
    for by_signal in [false, true] {
        let mut client = McpClient::greeted(&world, &[], json!({}));
        let meta = json!({ "progressToken": "p" });
        let arguments = json!({ "command": "echo begun; sleep 1000.25" });
        client.ask("tools/call", json!({ "name": "shell", "arguments": arguments, "_meta": meta }));
        while client.hear()["params"]["progressToken"] != "p" {}
        if by_signal {
            signal(client.child.id() as i32, rustix::process::Signal::TERM);
        }
        client.close(&world);
        let ended = if by_signal { 2 } else { 1 };
        let are_over = || world.aos(&["log", "--json"]).1.matches("\"status\":\"signaled\"").count() == ended;
        wait_for("the receipt of a command that was ended", are_over)?;
    }
    world.finish()
}

/// A blob that only another session's receipt named is out of reach, even by its real name.
fn blobs_of_others() -> Outcome {
    let world = World::new();
    world.write("big", "theirs ".repeat(10_000));
    let other = world.open(json!({}));
    let receipt = world.client().effect("host.fs.read_file", json!({ "session_id": other, "path": "big" }));
    let blob = receipt["content"]["blob"]["blob_ref"].as_str().unwrap_or_default().to_owned();
    check(!blob.is_empty(), || format!("{receipt}"))?;
    let mut client = McpClient::greeted(&world, &[], json!({}));
    let result = client.call("read_file", json!({ "path": format!("blob:{blob}") }));
    check(result["isError"] == true && !said(&result).contains("theirs"), || format!("{result}"))?;
    let read = client.request("resources/read", json!({ "uri": format!("aos://blob/{blob}") }));
    check(read["error"].is_object(), || format!("{read}"))?;
    // The session's own blob can be read, as a whole and by pages.
    let result = client.call("shell", json!({ "command": "seq 1 30000" }));
    let link = result["content"][1]["uri"].as_str().unwrap_or_default().to_owned();
    check(link.starts_with("aos://blob/sha256:"), || format!("{}", said(&result).len()))?;
    let read = client.request("resources/read", json!({ "uri": link }));
    let whole = read["result"]["contents"][0]["text"].as_str().unwrap_or_default();
    check(whole.lines().count() == 30_000, || format!("{} lines", whole.lines().count()))?;
    let path = link.replace("aos://blob/", "blob:");
    let page = client.call("read_file", json!({ "path": path, "offset": 29_999 }));
    check(said(&page) == "30000 | 30000", || format!("{page}"))?;
    client.close(&world);
    world.finish()
}

/// Clients show the model `structuredContent` instead of the text, so only `--structured` sends it, and never the text twice.
fn the_text_is_the_result() -> Outcome {
    let world = World::new();
    world.write("f", "one\n");
    let mut client = McpClient::greeted(&world, &[], json!({}));
    for (tool, arguments) in [
        ("read_file", json!({ "path": "f" })),
        ("read_file", json!({ "path": "absent" })),
        ("read_file", json!({ "session": "ses_unknown", "path": "f" })),
        ("shell", json!({ "command": "echo two > f" })),
        ("undo", json!({})),
    ] {
        let result = client.call(tool, arguments);
        check(result.get("structuredContent").is_none(), || format!("{tool}: {result}"))?;
        check(!said(&result).is_empty(), || format!("{tool}: {result}"))?;
    }
    client.close(&world);
    let mut client = McpClient::greeted(&world, &["--structured"], json!({}));
    let result = client.call("read_file", json!({ "path": "f" }));
    check(said(&result) == "   1 | one", || format!("{result}"))?;
    let fields = &result["structuredContent"];
    check(fields["session"].is_string(), || format!("{result}"))?;
    check(!fields.to_string().contains("1 | one"), || format!("the text is there twice: {result}"))?;
    client.close(&world);
    links_by_version(&world)?;
    world.finish()
}

/// `resource_link` exists since 2025-06-18; older clients reject the whole result.
fn links_by_version(world: &World) -> Outcome {
    for (version, links) in [("2024-11-05", 0), ("2025-03-26", 0), ("2025-06-18", 1)] {
        let mut client = McpClient::open(world, &[]);
        let hello = json!({
            "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "old", "version": "1" },
        });
        let answer = client.request("initialize", hello);
        check(answer["result"]["protocolVersion"] == version, || format!("{answer}"))?;
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        let result = client.call("shell", json!({ "command": "seq 1 30000" }));
        let types: Vec<_> =
            result["content"].as_array().into_iter().flatten().map(|block| &block["type"]).collect();
        check(types.iter().filter(|kind| **kind == "resource_link").count() == links, || {
            format!("{version}: {types:?}")
        })?;
        client.close(world);
    }
    Ok(())
}
