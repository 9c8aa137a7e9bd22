//! Writing and editing: complete or not at all, nothing lost, nothing else touched, whatever fails underneath.

mod attrs;
mod disk;
mod edits;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aos_model::request::content_hash;
use aos_testkit::{Agent, Start, World, check, expect, full_figure, patch_of, text, tree};
use base64::Engine as _;
use serde_json::{Value, json};

use crate::{Case, Need, Outcome};

pub fn cases() -> Vec<Case> {
    let case = |id, needs, run| Case { id, needs, run };
    vec![
        case("WRITE-01", &[], readers_see_one_version),
        case("WRITE-02", &[], attrs::modes_are_kept),
        case("WRITE-06", &[], attrs::hard_links_break),
        case("WRITE-07", &[], attrs::links_inside_are_written_through),
        case("WRITE-08", &[Need::Root], attrs::a_closed_folder),
        case("WRITE-09", &[Need::Root], disk::no_space),
        case("WRITE-10", &[Need::Root], disk::no_inodes),
        case("WRITE-12", &[Need::Strace], disk::fsync_fails),
        case("WRITE-13", &[Need::Strace], disk::writing_fails),
        case("WRITE-15", &[], one_creator_wins),
        case("WRITE-16", &[], creating_at_a_dangling_link),
        case("WRITE-17", &[], no_lost_updates),
        case("WRITE-19", &[], the_limit_is_a_limit),
        case("WRITE-22", &[], edits::line_ends_stay),
        case("WRITE-23", &[], edits::an_empty_old_string),
        case("WRITE-24", &[], edits::two_matches),
        case("WRITE-25", &[], edits::folded_punctuation),
        case("WRITE-27", &[], edits::the_new_text_is_not_searched),
        case("WRITE-28", &[], edits::replacements_are_limited),
        case("WRITE-31", &[], receipts_are_truthful),
    ]
}

const LIMIT: &[&str] = &["forbidden / limit_exceeded"];
const NO_SPACE: &[&str] = &["error / no_space"];
const DENIED: &[&str] = &["error / permission_denied"];

pub(crate) fn mode_of(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn has_warning(receipt: &Value) -> bool {
    receipt["warnings"].as_array().is_some_and(|warnings| !warnings.is_empty())
}

fn readers_see_one_version() -> Outcome {
    const SIZE: usize = 1_000_000;
    let world = World::new();
    let versions = ["A", "B"].map(|letter| letter.repeat(SIZE));
    let names = [content_hash(versions[0].as_bytes()), content_hash(versions[1].as_bytes())];
    let path = world.write("f", &versions[0]);
    let session = world.open(json!({}));
    let inline = world.open(json!({ "capability": { "max_inline_bytes": 2 * SIZE } }));
    let (writes, reads) = (full_figure(10_000, 60), full_figure(100_000, 120));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut writer = world.quiet_agent(&session);
        let versions = &versions;
        let writing = scope.spawn(move || {
            (0..writes).try_for_each(|number| {
                expect("write_file", &writer.write("f", &versions[number % 2]), &["ok"])
            })
        });
        // A reader that does not use the daemon sees complete files too.
        let beside = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let bytes = std::fs::read(&path).unwrap();
                let whole = versions.iter().any(|version| version.as_bytes() == bytes);
                check(whole, || format!("a neighbour read {} bytes of a mixture", bytes.len()))?;
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        let (mut by_blob, mut by_text) = (world.quiet_agent(&session), world.quiet_agent(&inline));
        let reading = (0..reads).try_for_each(|number| {
            // The journal stores inline content, so only some of the hundred thousand reads are inline.
            if number % 16 == 0 && number < 2_000 {
                let read = by_text.way("read_file", "f");
                let content = read["content"]["inline_text"]["text"].as_str().unwrap_or_default();
                return check(versions.iter().any(|version| version == content), || {
                    format!("{} bytes of a mixture were read inline", content.len())
                });
            }
            let read = by_blob.way("read_file", "f");
            let blob = &read["content"]["blob"];
            check(names.iter().any(|name| blob["blob_ref"] == *name) && blob["size_bytes"] == SIZE, || {
                format!("a mixture was read: {read}")
            })
        });
        stop.store(true, Ordering::Relaxed);
        beside.join().expect("the neighbour ends").and(writing.join().expect("the writer ends")).and(reading)
    })?;
    world.finish()
}

/// Runs one request per thread, all at the same time, and returns the receipts in order.
fn at_once(agents: Vec<Agent>, request: impl Fn(usize, &mut Agent) -> Value + Sync) -> Vec<Value> {
    let start = std::sync::Barrier::new(agents.len());
    std::thread::scope(|scope| {
        let running: Vec<_> = agents
            .into_iter()
            .enumerate()
            .map(|(number, mut agent)| {
                let (start, request) = (&start, &request);
                scope.spawn(move || {
                    start.wait();
                    request(number, &mut agent)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("a request ends")).collect()
    })
}

/// Of many requests for the same path one succeeds and the others are refused.
fn one_winner(what: &str, receipts: &[Value]) -> Result<usize, String> {
    let winners: Vec<usize> =
        (0..receipts.len()).filter(|number| receipts[*number]["status"] == "ok").collect();
    check(winners.len() == 1, || format!("{what}: {} of {} won", winners.len(), receipts.len()))?;
    for receipt in receipts.iter().filter(|receipt| receipt["status"] != "ok") {
        expect(what, receipt, &["conflict / file_exists"])?;
    }
    Ok(winners[0])
}

fn one_creator_wins() -> Outcome {
    let world = World::new();
    let one = world.open(json!({}));
    let sessions: Vec<String> = (0..8).map(|_| world.open(json!({}))).collect();
    for (name, sessions) in [("x", std::slice::from_ref(&one)), ("y", &sessions), ("deep/z", &sessions)] {
        let agents =
            || (0..100).map(|number| world.quiet_agent(&sessions[number % sessions.len()])).collect();
        if name.starts_with("deep") {
            std::fs::create_dir(world.root.join("deep")).unwrap();
        }
        let receipts = at_once(agents(), |number, agent| {
            // `create` is an alias.
            let mode = ["create_new", "create"][number % 2];
            let content = text(format!("by {number}\n"));
            agent.fs("write_file", json!({ "path": name, "content": content, "mode": mode }))
        });
        let winner = one_winner(name, &receipts)?;
        check(receipts[winner]["created"] == true, || format!("{name}: {}", receipts[winner]))?;
        check(world.read(name) == format!("by {winner}\n").as_bytes(), || {
            format!("{name} is not the winner's")
        })?;
        let folders =
            at_once(agents(), |_, agent| agent.fs("make_dir", json!({ "path": format!("{name}-dir") })));
        one_winner("make_dir", &folders)?;
        one_mover_wins(&world, agents(), name)?;
    }
    world.finish()
}

fn one_mover_wins(world: &World, agents: Vec<Agent>, name: &str) -> Outcome {
    let source = |number: usize| format!("{name}-from-{number}");
    for number in 0..100 {
        world.write(&source(number), format!("{number}"));
    }
    let to = format!("{name}-to");
    let receipts =
        at_once(agents, |number, agent| agent.fs("move", json!({ "from": source(number), "to": to })));
    let winner = one_winner("move", &receipts)?;
    check(world.read(&to) == winner.to_string().as_bytes(), || "the target is not the winner's".into())?;
    let left = (0..100).filter(|number| world.root.join(source(*number)).exists()).count();
    check(left == 99, || format!("{left} of 99 sources are left"))
}

fn creating_at_a_dangling_link() -> Outcome {
    let world = World::new();
    world.link("nowhere", "dl");
    world.link("missing/er", "deep");
    world.link("dl", "twice");
    world.write("there", "OLD\n");
    world.link("there", "live");
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    let exists: &[&str] = &["conflict / file_exists"];
    for path in ["live", "dl", "twice", "deep"] {
        for mode in ["create_new", "create"] {
            let params = json!({ "path": path, "content": text("x"), "mode": mode });
            expect(&format!("{mode} {path}"), &agent.fs("write_file", params), exists)?;
        }
        let params =
            json!({ "path": path, "content": text("x"), "mode": "create_new", "create_parents": true });
        expect(&format!("create_parents {path}"), &agent.fs("write_file", params), exists)?;
        expect(path, &agent.fs("make_dir", json!({ "path": path })), exists)?;
        let params = json!({ "from": "there", "to": path });
        expect(path, &agent.fs("move", params), exists)?;
        check(tree(&world.root) == before, || format!("{path}: something was changed"))?;
    }
    world.finish()
}

/// Sends all requests before it reads an answer, and returns the receipts in the order of the requests.
fn pipelined(agent: &mut Agent, requests: &[Value]) -> Result<Vec<Value>, String> {
    for (id, request) in requests.iter().enumerate() {
        let mut params = request.clone();
        params["params"]["session_id"] = json!(agent.session);
        agent.client.send_effect(id, &params)?;
    }
    let mut receipts = vec![Value::Null; requests.len()];
    for _ in requests {
        let line = agent.client.line().ok_or("the daemon went away")?;
        let answer: Value = serde_json::from_str(&line).map_err(|why| why.to_string())?;
        let id = answer["id"].as_u64().ok_or("an answer without id")? as usize;
        receipts[id] = answer["result"].clone();
    }
    Ok(receipts)
}

fn no_lost_updates() -> Outcome {
    let world = World::new();
    let one = world.open(json!({}));
    let crowd: Vec<Agent> = (0..10).map(|_| world.quiet_agent(&one)).collect();
    edits_of_a_thousand_lines(&world, "one", crowd, &["ok"])?;
    let crowd: Vec<Agent> = (0..8).map(|_| world.quiet_agent(&world.open(json!({})))).collect();
    edits_of_a_thousand_lines(&world, "eight", crowd, &["ok", "conflict"])?;
    let crowd: Vec<Agent> = (0..8).map(|_| world.quiet_agent(&world.open(json!({})))).collect();
    appends_and_patches(&world, crowd)?;
    world.finish()
}

/// Each line is edited once. Acknowledged edits are in the file, and all other lines are unchanged.
fn edits_of_a_thousand_lines(world: &World, name: &str, crowd: Vec<Agent>, allowed: &[&str]) -> Outcome {
    const LINES: usize = 1_000;
    world.write(name, (0..LINES).map(|line| format!("<{line}> old\n")).collect::<String>());
    let share = LINES / crowd.len();
    let edit = |line: usize| {
        let params = json!({ "path": name, "old_string": format!("<{line}> old"), "new_string": format!("<{line}> new") });
        json!({ "kind": "host.fs.edit_file", "params": params })
    };
    let receipts = at_once(crowd, |number, agent| {
        let requests: Vec<Value> = (number * share..(number + 1) * share).map(edit).collect();
        pipelined(agent, &requests).map_or_else(Value::String, Value::Array)
    });
    let content = String::from_utf8(world.read(name)).map_err(|why| why.to_string())?;
    let lines: Vec<&str> = content.lines().collect();
    check(lines.len() == LINES, || format!("{} lines are left", lines.len()))?;
    let mut done = 0;
    for (line, receipt) in
        receipts.iter().flat_map(|share| share.as_array().cloned().unwrap_or_default()).enumerate()
    {
        expect(name, &receipt, allowed)?;
        let ok = receipt["status"] == "ok";
        done += usize::from(ok);
        let wanted = format!("<{line}> {}", if ok { "new" } else { "old" });
        check(lines[line] == wanted, || format!("line {line} is {:?} after {receipt}", lines[line]))?;
    }
    check(done > 0, || format!("no edit succeeded: {receipts:?}"))
}

/// Other effects that depend on the current content: each acknowledged line is in the file once.
fn appends_and_patches(world: &World, crowd: Vec<Agent>) -> Outcome {
    world.write("log", "begin\n");
    let request = |number: usize, turn: usize| {
        let line = format!("<{number}-{turn}>");
        if turn.is_multiple_of(2) {
            let params = json!({ "path": "log", "content": text(format!("{line}\n")), "mode": "append" });
            return (line, json!({ "kind": "host.fs.write_file", "params": params }));
        }
        let patch = patch_of(&format!("*** Update File: log\n@@\n begin\n+{line}\n"));
        (line, json!({ "kind": "host.fs.apply_patch", "params": { "patch": text(patch) } }))
    };
    let receipts = at_once(crowd, |number, agent| {
        let requests: Vec<Value> = (0..40).map(|turn| request(number, turn).1).collect();
        pipelined(agent, &requests).map_or_else(Value::String, Value::Array)
    });
    let content = String::from_utf8(world.read("log")).map_err(|why| why.to_string())?;
    let mut done = 0;
    for (number, share) in receipts.iter().enumerate() {
        for (turn, receipt) in share.as_array().ok_or_else(|| share.to_string())?.iter().enumerate() {
            expect("append or patch", receipt, &["ok", "conflict", "reject"])?;
            let ok = receipt["status"] == "ok";
            done += usize::from(ok);
            let found = content.lines().filter(|line| *line == request(number, turn).0).count();
            check(found == usize::from(ok), || format!("{found} times in the file: {receipt}"))?;
        }
    }
    check(done > 0 && content.lines().count() == done + 1, || format!("{done} done: {content}"))
}

fn the_limit_is_a_limit() -> Outcome {
    let world = World::new();
    world.write("other", "OLD\n");
    let mut agent = world.agent(json!({ "capability": { "max_write_bytes": 1000 } }));
    let thousand = "a".repeat(1000);
    expect("1000 bytes", &agent.write("f", &thousand), &["ok"])?;
    let before = tree(&world.root);
    let over = "b".repeat(1001);
    let base64 = base64::engine::general_purpose::STANDARD.encode(&over);
    // Bytes count, not characters.
    let accents = "\u{e9}".repeat(501);
    let file = world.parent.join("blob");
    std::fs::write(&file, &over).unwrap();
    let (code, blob_ref, err) = world.aos(&["blob", "put", file.to_str().unwrap()]);
    check(code == 0, || format!("aos blob put: {err}"))?;
    let write = |content: Value| json!({ "path": "f", "content": content });
    let patch = |sections: String| json!({ "patch": text(patch_of(&sections)) });
    for (what, op, params) in [
        ("1001 bytes", "write_file", write(text(&over))),
        ("501 accents", "write_file", write(text(&accents))),
        ("bytes", "write_file", write(json!({ "inline_bytes": { "bytes": base64 } }))),
        ("a blob", "write_file", write(json!({ "blob_ref": { "blob_ref": blob_ref.trim() } }))),
        ("create_new", "write_file", json!({ "path": "new", "content": text(&over), "mode": "create_new" })),
        ("parents", "write_file", json!({ "path": "a/b/c", "content": text(&over), "create_parents": true })),
        ("append", "write_file", json!({ "path": "f", "content": text("b"), "mode": "append" })),
        ("edit", "edit_file", json!({ "path": "other", "old_string": "OLD", "new_string": over })),
        ("patch add", "apply_patch", patch(format!("*** Add File: new\n+{over}\n"))),
        (
            "patch of two",
            "apply_patch",
            patch(format!("*** Update File: other\n@@\n-OLD\n+NEW\n*** Add File: new\n+{over}\n")),
        ),
    ] {
        expect(what, &agent.fs(op, params), LIMIT)?;
        check(tree(&world.root) == before, || format!("{what}: something was changed"))?;
    }
    check(world.read("f") == thousand.as_bytes(), || "f was cut".into())?;
    expect("500 accents", &agent.write("f", &"\u{e9}".repeat(500)), &["ok"])?;
    let mut none = world.agent(json!({ "capability": { "max_write_bytes": 0 } }));
    expect("a byte", &none.write("g", "x"), LIMIT)?;
    expect("no byte", &none.write("g", ""), &["ok"])?;
    world.finish()
}

fn receipts_are_truthful() -> Outcome {
    for power in [false, true] {
        let world = World::with(Start { power, ..Start::default() });
        let mut agent = world.agent(json!({}));
        let bytes = base64::engine::general_purpose::STANDARD.encode([0, 255, 10]);
        let large = "\u{e9}".repeat(100_000);
        for (content, size) in [
            (text("hello\n"), 6),
            (text(""), 0),
            (text(large), 200_000),
            (json!({ "inline_bytes": { "bytes": bytes } }), 3),
        ] {
            for (mode, name) in [("overwrite", "f"), ("overwrite", "f"), ("create_new", "new")] {
                let created = !world.root.join(name).exists();
                let params = json!({ "path": name, "content": content, "mode": mode });
                told_as_it_is(&world, &mut agent, params, created, size)?;
            }
            expect("remove", &agent.way("remove", "new"), &["ok"])?;
        }
        let parents = json!({ "path": "a/b/c", "content": text("x"), "create_parents": true });
        told_as_it_is(&world, &mut agent, parents, true, 1)?;
        appended_as_told(&world, &mut agent)?;
        world.finish()?;
    }
    Ok(())
}

fn told_as_it_is(world: &World, agent: &mut Agent, params: Value, created: bool, size: u64) -> Outcome {
    let path = params["path"].as_str().unwrap().to_owned();
    let receipt = agent.fs("write_file", params);
    expect(&path, &receipt, &["ok"])?;
    let meta = world.root.join(&path).metadata().unwrap();
    let mtime = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
    let looked = agent.way("stat", &path);
    check(receipt["new_mtime_ns"] == mtime && looked["mtime_ns"] == mtime, || {
        format!("{mtime}: {receipt} {looked}")
    })?;
    check(receipt["written_bytes"] == size && looked["size_bytes"] == size && meta.len() == size, || {
        format!("{size} bytes: {receipt} {looked}")
    })?;
    check(receipt["created"] == created, || format!("created should be {created}: {receipt}"))?;
    let named = ["snapshot_id", "tool_call_id", "turn_id", "durability"];
    check(named.iter().all(|name| receipt[*name].is_string()), || format!("a field is missing: {receipt}"))
}

fn appended_as_told(world: &World, agent: &mut Agent) -> Outcome {
    for (name, created) in [("log", true), ("log", false)] {
        let params = json!({ "path": name, "content": text("line\n"), "mode": "append" });
        let receipt = agent.fs("write_file", params);
        let meta = world.root.join(name).metadata().unwrap();
        let mtime = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        check(
            receipt["created"] == created
                && receipt["written_bytes"] == 5
                && receipt["new_mtime_ns"] == mtime,
            || format!("append: {receipt}"),
        )?;
    }
    check(world.read("log") == b"line\nline\n", || "the appended lines are not there".into())
}
