//! What the log says about crashes and about receipts that cannot be recorded.

use aos_testkit::{Tracer, World, check, expect, text, tree};
use serde_json::{Value, json};

use crate::Outcome;

/// The daemon is killed after a patch was applied and before its receipt is recorded. The next daemon logs what it
/// rolled back, and names the path that another process changed in between.
pub fn recovery() -> Outcome {
    for changed_meanwhile in [false, true] {
        let mut world = World::new();
        let session = world.open(json!({}));
        let receipt = patch_tampered(&world, &session, "signal=KILL:when=3")?;
        check(receipt.is_null(), || format!("the daemon lived: {receipt}"))?;
        world.reap();
        check(world.read("f") == b"new f\n", || "the patch was not applied before the crash".into())?;
        if changed_meanwhile {
            world.write("f", "written by another process\n");
        }
        let before = log(&world).len();
        world.start_daemon();
        let log = log(&world)[before..].to_owned();
        let ids = format!("session_id=\"{session}\" tool_call_id=\"patch\"");
        let left = usize::from(changed_meanwhile);
        let rolled_back = format!(
            "rolled back an unfinished change intent=1 kind=\"host.fs.apply_patch\" {ids} steps=2 not_rolled_back={left}"
        );
        logged(&log, "INFO aos_host::change::recover", &rolled_back)?;
        logged(&log, "INFO aos_host::change::recover", "finished recovery changes=1")?;
        let stayed = format!("paths could not be rolled back {ids} count=1 paths=[\"f\"]");
        if changed_meanwhile {
            logged(&log, "WARN aos_host::change::take_back", &stayed)?;
        } else {
            check(!log.contains("WARN"), || {
                format!("nothing went wrong, but the log has a warning:\n{log}")
            })?;
        }
        says_no_content(&log)?;
        world.finish()?;
    }
    Ok(())
}

/// The commit of a receipt fails: the change is rolled back, and the log says why.
pub fn not_recorded() -> Outcome {
    let world = World::new();
    let session = world.open(json!({}));
    let receipt = patch_tampered(&world, &session, "error=EIO:when=3")?;
    expect("a patch whose receipt cannot be recorded", &receipt, &["error / io_error"])?;
    let found = tree(&world.root);
    check(found.len() == 1 && world.read("f") == b"old f\n", || {
        format!("it was not rolled back: {found:?}")
    })?;
    let log = log(&world);
    let failed = format!(
        "cannot record a receipt; the request is rolled back kind=\"host.fs.apply_patch\" session_id=\"{session}\" tool_call_id=\"patch\" error="
    );
    logged(&log, "ERROR aos_host::record", &failed)?;
    says_no_content(&log)?;
    world.finish()
}

/// A patch of two files, with the third `pwrite64` of its connection tampered with: that write begins the commit of
/// the receipt.
fn patch_tampered(world: &World, session: &str, how: &str) -> Result<Value, String> {
    world.write("f", "old f\n");
    let sections = "*** Update File: f\n@@\n-old f\n+new f\n*** Add File: added\n+added\n";
    let patch = text(format!("*** Begin Patch\n{sections}*** End Patch\n"));
    let _tracer = Tracer::tamper(world.daemon_pid(), "pwrite64", how)?;
    let params = json!({ "session_id": session, "patch": patch });
    Ok(world.client().effect_of("host.fs.apply_patch", params, Some("patch")))
}

fn log(world: &World) -> String {
    std::fs::read_to_string(world.home.join("log/aosd.log")).unwrap_or_default()
}

/// Whether one line has this level, source and text.
fn logged(log: &str, source: &str, event: &str) -> Outcome {
    check(log.lines().any(|line| line.contains(source) && line.contains(event)), || {
        format!("no line of {source} has `{event}`; the log is\n{log}")
    })
}

fn says_no_content(log: &str) -> Outcome {
    let leaked = ["old f", "new f", "Begin Patch"].iter().find(|content| log.contains(**content));
    check(leaked.is_none(), || format!("the log holds content of a request or a file: {leaked:?}\n{log}"))
}
