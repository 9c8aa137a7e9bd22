//! Patches that are too large, change too many files, or are interrupted.

use std::path::Path;
use std::time::{Duration, Instant};

use aos_testkit::time::{bound, in_time};
use aos_testkit::world::DESCRIPTORS_SLACK;
use aos_testkit::{Fixture, World, check, expect, is_full, patch_params, text, tree, wait_for};
use serde_json::json;

use super::crash::journal_agrees;
use super::{names_in, refused_whole};
use crate::Outcome;

pub(super) fn more_files_than_allowed() -> Outcome {
    let mut fixture = Fixture::open(json!({ "capability": { "max_changed_files": 2 } }));
    for name in ["a", "b", "c"] {
        fixture.world.write(name, "one\n");
    }
    let update = |name: &str| format!("*** Update File: {name}\n@@\n-one\n+1\n");
    let refused = [
        format!("{}{}{}", update("a"), update("b"), update("c")),
        format!("{}*** Delete File: b\n*** Add File: new\n+x\n", update("a")),
        format!("{}{}*** Update File: c\n*** Move to: d\n", update("a"), update("b")),
        "*** Add File: x/1\n+x\n*** Add File: x/2\n+x\n*** Add File: x/3\n+x\n".to_owned(),
    ];
    refused_whole(&mut fixture, &refused, &["forbidden / limit_exceeded"])?;
    let moved = format!("{}*** Update File: b\n*** Move to: b2\n@@\n-one\n+1\n", update("a"));
    let receipt = fixture.patch(&moved);
    expect("two updates, one of them a move", &receipt, &["ok"])?;
    check(receipt["files_changed"] == 2, || format!("a move is one changed file: {receipt}"))?;
    check(receipt["changed_paths"] == json!(["a", "b", "b2"]), || format!("{receipt}"))?;
    let moves = "*** Update File: a\n*** Move to: a2\n*** Update File: b2\n*** Move to: b3\n";
    expect("two moves", &fixture.patch(moves), &["ok"])?;
    fixture.finish()
}

pub(super) fn patches_too_large() -> Outcome {
    const LIMIT: usize = 1_000_000;
    let mut fixture = Fixture::open(json!({ "capability": { "max_patch_bytes": LIMIT } }));
    fixture.world.write("a", "one\n");
    let before = tree(&fixture.world.root);
    let huge = format!("*** Begin Patch\n*** Add File: huge\n+{}\n*** End Patch\n", "x".repeat(100_000_000));
    let blob = fixture.world.blob(huge.as_bytes());
    let start_bytes = fixture.world.rss();
    inline_is_cut_off(&fixture, &huge)?;
    let begun = Instant::now();
    let receipt = fixture.fs("apply_patch", json!({ "patch": { "blob_ref": { "blob_ref": blob } } }));
    expect("100 MB by blob_ref", &receipt, &["forbidden / limit_exceeded"])?;
    let nul = fixture.patch("*** Add File: a\0b\n+x\n");
    expect("NUL in a header", &nul, &["parse_error", "error / invalid_path"])?;
    for sections in ["*** Delete File: a\0\n", "*** Update File: a\n*** Move to: b\0c\n"] {
        expect("NUL", &fixture.patch(sections), &["parse_error", "error / invalid_path"])?;
    }
    in_time(begun, Duration::from_secs(2), "patches that are too large")?;
    check(tree(&fixture.world.root) == before, || "the tree changed".into())?;
    let grown = fixture.world.rss_peak().saturating_sub(start_bytes);
    check(grown < 128 << 20, || format!("memory grew by {grown} bytes"))?;
    at_the_limit(&mut fixture, LIMIT)?;
    fixture.finish()
}

/// 100 MB on the socket: one answer, and the connection is closed.
fn inline_is_cut_off(fixture: &Fixture, patch: &str) -> Outcome {
    let mut client = fixture.world.client();
    client.give_up_after(bound(Duration::from_secs(10))).unwrap();
    let params = json!({ "session_id": fixture.session, "patch": text(patch) });
    let call = json!({ "kind": "host.fs.apply_patch", "params": params });
    let begun = Instant::now();
    let sent = client.send_effect(1, &call);
    let answer = client.line().unwrap_or_default();
    check(answer.contains("-32600"), || format!("sent: {sent:?}; answered: {answer:?}"))?;
    check(client.line().is_none(), || "the connection is still open".into())?;
    in_time(begun, Duration::from_secs(2), "a patch that is too large")
}

/// A patch of exactly the limit is accepted, one byte more is not; as text and as a blob.
fn at_the_limit(fixture: &mut Fixture, limit: usize) -> Outcome {
    let of_size = |bytes: usize| {
        let frame = "*** Begin Patch\n*** Add File: big\n+\n*** End Patch\n".len();
        format!("*** Begin Patch\n*** Add File: big\n+{}\n*** End Patch\n", "x".repeat(bytes - frame))
    };
    for (bytes, wanted) in [(limit, "ok"), (limit + 1, "forbidden / limit_exceeded")] {
        let _ = std::fs::remove_file(fixture.world.root.join("big"));
        let receipt = fixture.fs("apply_patch", json!({ "patch": text(of_size(bytes)) }));
        expect(&format!("{bytes} bytes inline"), &receipt, &[wanted])?;
        let _ = std::fs::remove_file(fixture.world.root.join("big"));
        let blob = fixture.world.blob(of_size(bytes).as_bytes());
        let receipt = fixture.fs("apply_patch", json!({ "patch": { "blob_ref": { "blob_ref": blob } } }));
        expect(&format!("{bytes} bytes by blob"), &receipt, &[wanted])?;
    }
    Ok(())
}

const MANY: usize = 200;

fn plant_many(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    for index in 0..MANY {
        std::fs::write(dir.join(format!("f{index:03}")), format!("old\n{index}\n")).unwrap();
    }
}

fn many_updates() -> String {
    (0..MANY).map(|index| format!("*** Update File: f{index:03}\n@@\n-old\n+new\n")).collect()
}

/// Whether all of the many files are new; an error when only some are.
fn many_are_new(dir: &Path) -> Result<bool, String> {
    let count = |age: &str| {
        let is_it = |index: &usize| {
            let found = std::fs::read_to_string(dir.join(format!("f{index:03}"))).unwrap_or_default();
            found == format!("{age}\n{index}\n")
        };
        (0..MANY).filter(is_it).count()
    };
    let (old, new, names) = (count("old"), count("new"), names_in(dir).len());
    check(names == MANY && (old == MANY || new == MANY), || {
        format!("{old} files are old and {new} new; there are {names} names")
    })?;
    Ok(new == MANY)
}

pub(super) fn signaled_or_left_alone() -> Outcome {
    let world = World::new();
    let triggers = if is_full() { (0..MANY).step_by(9).collect() } else { vec![0, 3, MANY / 2, MANY - 2] };
    let descriptors = world.open_descriptors();
    for nth in triggers {
        for leaves in [false, true] {
            interrupted_at(&world, nth, leaves)?;
        }
    }
    wait_for("the descriptors to be closed", || world.open_descriptors() <= descriptors + DESCRIPTORS_SLACK)?;
    world.finish()
}

/// Sends the large patch, waits until its `nth` file is new, and then kills the session or disconnects.
fn interrupted_at(world: &World, nth: usize, leaves: bool) -> Outcome {
    let what = format!("{} at file {nth}", if leaves { "left" } else { "signaled" });
    let (dir, tool_call) = (world.root.join(format!("{leaves}{nth}")), format!("tc_{leaves}{nth}"));
    plant_many(&dir);
    let session = world.open(json!({ "target": { "local": { "workdir": dir } } }));
    let mut params = patch_params(&many_updates());
    params["session_id"] = json!(session);
    let call = json!({ "kind": "host.fs.apply_patch", "params": params, "tool_call_id": tool_call });
    let (mut client, mut other) = (world.client(), world.client());
    client.send_effect(1, &call)?;
    let file = dir.join(format!("f{nth:03}"));
    wait_for("the patch to be under way", || {
        std::fs::read(&file).is_ok_and(|bytes| bytes.starts_with(b"new"))
    })?;
    let signal = json!({ "session_id": session, "signal": "kill" });
    if leaves {
        drop(client);
        wait_for("the receipt", || !world.entries_of(&session, &tool_call).is_empty())?;
        expect("the end", &other.effect("host.session.signal", signal), &["signaled"])?;
    } else {
        expect(&what, &other.effect("host.session.signal", signal), &["signaled"])?;
        let read = other.fs(&session, "read_file", json!({ "path": "f000" }));
        expect(&format!("{what}: afterwards"), &read, &["error / session_closed"])?;
        check(client.line().is_some(), || format!("{what}: no answer"))?;
    }
    let is_new = many_are_new(&dir).map_err(|why| format!("{what}: {why}"))?;
    let entries = world.entries_of(&session, &tool_call);
    check(entries.len() == 1, || format!("{what}: {} receipts", entries.len()))?;
    journal_agrees(&entries, is_new, &what)
}
