//! SNAP-13, SNAP-15, SNAP-24: undo through kills.

use aos_testkit::torture::undo::{self, Plan};
use aos_testkit::{Start, Tracer, World, check, expect, full_figure, new_seed, patch_params, tree};
use serde_json::json;

use super::Stage;
use crate::Outcome;
use crate::torture::clean;

/// SNAP-13: a scope of three files, one edited, one deleted, one created. The daemon is killed at each call of the
/// restore, then at each call of the recovery that follows.
pub fn at_each_call() -> Outcome {
    let mut deaths = 0;
    for call in [
        "renameat2",
        "openat",
        "openat2",
        "unlinkat",
        "mkdirat",
        "fchmod",
        "write",
        "pwrite64",
        "newfstatat",
        "statx",
        "copy_file_range",
        "fsetxattr",
    ] {
        for when in (1..).step_by(full_figure(1, 3)) {
            if !dies_and_recovers(call, when)? {
                break;
            }
            deaths += 1;
            if when > 200 {
                return Err(format!("no end of {call}"));
            }
        }
    }
    println!("SNAP-13: {deaths} deaths");
    check(deaths > 10, || format!("only {deaths} deaths"))
}

/// False when the restore makes fewer such calls.
fn dies_and_recovers(call: &str, when: usize) -> Result<bool, String> {
    let mut world = World::new();
    for name in ["a", "b", "d/c"] {
        world.write(name, format!("{name} one\n"));
    }
    let before = tree(&world.root);
    let session = world.open(json!({}));
    let mut client = world.client();
    let mut params = patch_params(
        "*** Update File: a\n@@\n-a one\n+a two\n*** Delete File: b\n*** Update File: d/c\n*** Move to: e/c\n@@\n-d/c one\n+d/c two\n",
    );
    params["session_id"] = json!(session);
    expect("the patch", &client.effect_of("host.fs.apply_patch", params, Some("tc1")), &["ok"])?;
    let after = tree(&world.root);
    let inject = format!("inject={call}:signal=KILL:when={when}");
    let tracer = Tracer::attach(
        world.daemon_pid(),
        &["-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject],
    )?;
    let restore = json!({ "session_id": session, "scope_id": "tc1" });
    let receipt = world.client().effect("host.fs.restore", restore.clone());
    drop(tracer);
    let died = receipt.is_null();
    if died {
        world.reap();
        world.start_daemon();
        let found = tree(&world.root);
        check(found == before || found == after, || format!("{call} {when}: a mix: {found:?}"))?;
        let receipt = world.client().effect("host.fs.restore", restore);
        expect(&format!("{call} {when}: the second restore"), &receipt, &["ok"])?;
    } else {
        expect("the restore", &receipt, &["ok"])?;
    }
    check(tree(&world.root) == before, || {
        format!("{call} {when}: not the pre-image: {:?}", tree(&world.root))
    })?;
    world.finish()?;
    Ok(died)
}

/// SNAP-15, random walks of the torture test with a kill at every tenth step.
pub fn random_walks() -> Outcome {
    let world = World::asleep(Start::default());
    let mut setup = world.setup();
    let other = tempfile::Builder::new().prefix("aos-attack-").tempdir_in("/dev/shm").ok();
    setup.roots.extend(other.as_ref().map(|other| other.path().to_owned()));
    let plan = Plan {
        seed: new_seed(),
        histories: full_figure(1_000, 8) as u64,
        steps: full_figure(100, 40),
        only: None,
        outside: false,
        shrink: false,
        until: None,
    };
    let tally = undo::torture(&setup, &plan, &mut |_| ());
    clean("SNAP-15", plan.seed, &tally, &tally.complaints)?;
    world.finish()
}

/// SNAP-24.
pub fn after_restarts() -> Outcome {
    let mut stage = Stage::new();
    for n in 0..5 {
        stage.world().write(&format!("f{n}"), format!("file {n}\n"));
    }
    stage.world().write("d/x", "x\n");
    let before = stage.tree();
    stage.must("snapshot", json!({ "scope_id": "by_hand", "paths": ["d", "absent"] }), "ok")?;
    stage.must("snapshot", json!({ "scope_id": "idle" }), "ok")?;
    for n in 0..5 {
        let params = json!({ "path": format!("f{n}"), "content": aos_testkit::text("new\n") });
        stage.in_turn(Some("tc1"), Some("t1"), "write_file", params);
    }
    stage.ok("tc2", "remove", json!({ "path": "d", "recursive": true }))?;
    let snapshots = stage.snapshots()?;
    check(snapshots.len() == 4, || format!("{snapshots:?}"))?;
    for kill in [false, true] {
        if kill {
            stage.fixture.world.kill9();
        } else {
            stage.fixture.world.terminate();
        }
        stage.fixture.world.start_daemon();
        stage.fixture.client = stage.fixture.world.client();
        let now = stage.snapshots()?;
        check(now == snapshots, || format!("kill {kill}: {now:?} is not {snapshots:?}"))?;
    }
    stage.must("restore", json!({ "scope_id": "tc1" }), "ok")?;
    stage.taken_back("tc2", &before)?;
    // An open snapshot still captures.
    let receipt = stage.ok("idle", "remove", json!({ "path": "f0" }))?;
    check(snapshots.iter().any(|one| one["snapshot_id"] == receipt["snapshot_id"]), || receipt.to_string())?;
    stage.taken_back("idle", &before)?;
    stage.finish()
}

/// Another process has a folder open and removes a file in it, after the call that removed the folder was recorded and
/// before its content was stored. The file is gone, and the record does not promise it.
pub fn a_file_removed_from_a_removed_folder() -> Outcome {
    let mut stage = Stage::new();
    stage.world().write("d/gone", "gone\n");
    stage.world().write("d/stays", "stays\n");
    let open = std::fs::File::open(stage.world().root.join("d")).unwrap();
    // A file where the folder of its blob should be: the content of `gone` cannot be stored yet.
    let hash = aos_model::request::content_hash(b"gone\n");
    let in_the_way = stage.world().home.join("state/blobs").join(&hash["sha256:".len()..][..2]);
    std::fs::write(&in_the_way, "").unwrap();
    let receipt = stage.ok("tc", "remove", json!({ "path": "d", "recursive": true }))?;
    stage.manifest(&receipt)?;
    rustix::fs::unlinkat(&open, "gone", rustix::fs::AtFlags::empty()).unwrap();
    stage.fixture.world.kill9();
    std::fs::remove_file(&in_the_way).unwrap();
    stage.fixture.world.start_daemon();
    stage.fixture.client = stage.fixture.world.client();
    stage.must("restore", json!({ "scope_id": "tc" }), "ok")?;
    check(stage.world().read("d/stays") == b"stays\n", || "d/stays".into())?;
    check(!stage.world().root.join("d/gone").exists(), || "d/gone".into())?;
    stage.finish()
}
