//! Hostile clients of the front ends, and hostile files in their way.

mod blobs;
mod http;
mod lines;
mod own_files;
mod programs;
mod unseen;

use aos_testkit::mcp::{McpClient, said};
use aos_testkit::{World, check};
use serde_json::json;

use crate::{Case, Need, Outcome, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![
        plain("S22", nothing_is_asked),
        plain("OWN-S22-STATELESS", nothing_is_asked_without_hello),
        plain("S19", http::strangers_do_not_keep_clients_out),
        plain("OWN-S19-END", http::strangers_end),
        plain("OWN-S19-KNOWN", http::a_known_connection_stays),
        plain("OWN-S19-SESSIONS", http::sessions_are_bounded),
        plain("OWN-S19-SETTINGS", http::weak_settings),
        plain("S29", lines::a_batch_is_bounded),
        plain("OWN-S29-STREAM", lines::answers_of_a_batch_are_not_collected),
        plain("OWN-S29-BESIDE", lines::a_batch_beside_other_requests),
        plain("OWN-S29-IDLE", lines::unfinished_lines_make_room),
        plain("OWN-S29-TRICKLE", lines::lines_that_grow_slowly_make_room),
        plain("S32", own_files::planted_names),
        plain("OWN-S32-TEMPORARY", own_files::planted_temporary_names),
        plain("OWN-S32-KEPT", own_files::owner_and_mode_are_kept),
        Case { id: "OWN-S32-UID", needs: &[Need::Root], run: own_files::homes_of_others },
        plain("OWN-S32-MAN", own_files::manual_pages),
        plain("S35", blobs::only_files_and_pipes),
        plain("OWN-S35-BOUND", blobs::the_bound),
        plain("OWN-S35-KILLED", blobs::killed_puts_leave_nothing),
        plain("S21", unseen::in_the_record),
        plain("OWN-S21-TOOLS", unseen::in_texts_of_tools),
        plain("OWN-S21-NAMES", unseen::shown_names_can_be_used),
        plain("OWN-S21-CONTENT", unseen::content_is_unchanged),
        plain("S13", programs::names_that_load_code),
        plain("OWN-S13-PRELOAD", programs::a_preloaded_library),
        plain("OWN-S13-PLACES", programs::programs_that_the_session_can_write),
        plain("OWN-S13-PATH", programs::a_program_put_on_the_path_later),
    ]
}

/// Whatever a client can ask, it is asked nothing: the effect is done and the warning is in its result. The next message
/// of the server is the answer.
fn nothing_is_asked() -> Outcome {
    let world = World::new();
    let absolute = world.write("f", "one\n").display().to_string();
    let abilities = [
        json!({}),
        json!({ "elicitation": {} }),
        json!({ "elicitation": { "form": {} } }),
        json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} }),
    ];
    for (n, ability) in abilities.into_iter().enumerate() {
        let mut client = McpClient::greeted(&world, &[], ability.clone());
        for (tool, arguments) in [
            ("write_file", json!({ "path": absolute, "content": format!("{n}\n") })),
            ("read_file", json!({ "path": absolute })),
            ("edit_file", json!({ "path": absolute, "old_string": format!("{n}"), "new_string": "edited" })),
            ("shell", json!({ "command": ["cat", absolute] })),
        ] {
            let id = client.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
            let answer = client.hear();
            check(answer["id"] == id && answer["method"].is_null(), || format!("{ability}: {answer}"))?;
            let result = &answer["result"];
            check(result["isError"] == false, || format!("{ability}: {tool}: {result}"))?;
            let warned = tool == "shell" || said(result).contains("Warning: Path is absolute");
            check(warned, || format!("{ability}: {tool}: {result}"))?;
        }
        check(world.read("f") == b"edited\n", || format!("{ability}: {:?}", world.read("f")))?;
        client.close(&world);
    }
    world.finish()
}

/// The same for clients that need no `initialize`; answers to a question that nobody asked change nothing.
fn nothing_is_asked_without_hello() -> Outcome {
    let world = World::new();
    let absolute = world.write("f", "one\n").display().to_string();
    let mut client = McpClient::open(&world, &[]);
    for answers in [json!(null), json!({ "consent": { "action": "decline" } }), json!({ "consent": {} })] {
        let mut call = json!({
            "name": "read_file", "arguments": { "path": absolute }, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "a", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
            },
        });
        if !answers.is_null() {
            call["inputResponses"] = answers.clone();
        }
        let answer = client.request("tools/call", call);
        let text = said(&answer["result"]);
        check(text.contains("   1 | one") && text.contains("Warning: Path is absolute"), || {
            format!("{answers}: {answer}")
        })?;
    }
    client.close(&world);
    world.finish()
}
