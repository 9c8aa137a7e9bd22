//! JRNL-07, JRNL-08: power failures, on an ext4 of our own over a loop device.

use aos_testkit::torture::kill::Plan;
use aos_testkit::torture::load::Workload;
use aos_testkit::torture::power::{self, Cut, Disk};
use aos_testkit::{Start, Tracer, World, check, expect, full_figure, new_seed, tree};
use serde_json::json;

use crate::Outcome;
use crate::torture::clean;

/// A world whose home is on one disk and whose root is on the same disk or on another.
fn world_on(home: &Disk, root: &Disk) -> Result<World, String> {
    let mut world = World::asleep(Start { power: true, ..Start::default() });
    world.home = home.at().join("home");
    world.root = root.at().join("ws");
    std::fs::create_dir(&world.root).map_err(|why| why.to_string())?;
    Ok(world)
}

/// JRNL-07.
pub fn cut_under_load() -> Outcome {
    cuts("JRNL-07", &[Disk::new()?], full_figure(200, 6), Workload::Mixed)
}

/// JRNL-08.
pub fn cut_in_patches() -> Outcome {
    cuts("JRNL-08", &[Disk::new()?], full_figure(200, 6), Workload::Patches)
}

/// The same with the root on another disk than the home: pre-images are copied from one to the other, and each disk
/// keeps what was synced to it, in no common order.
pub fn cut_two_disks() -> Outcome {
    cuts("OWN-POWER-TWO-DISKS", &[Disk::new()?, Disk::new()?], full_figure(200, 20), Workload::Patches)
}

/// One disk loses power, the other keeps everything that was written to it: first the home's, then the root's.
pub fn cut_one_of_two() -> Outcome {
    for (number, what) in ["the home", "the root"].into_iter().enumerate() {
        let disks = [Disk::new()?, Disk::new()?];
        let world = world_on(&disks[0], &disks[1])?;
        let plan = plan(full_figure(200, 6), Workload::Patches);
        let cut = Cut { disks: vec![&disks[number]], one_disk: false };
        let tally = power::torture(&world.setup(), &cut, &plan, &mut |_| ());
        clean("OWN-POWER-ONE-KEEPS", plan.seed, &tally, &tally.complaints)
            .map_err(|why| format!("{what}: {why}"))?;
        world.finish()?;
    }
    Ok(())
}

fn plan(cuts: usize, workload: Workload) -> Plan {
    Plan { seed: new_seed(), kills: cuts as u64, writers: 4, workload, verify_every: 1, until: None }
}

/// The home is on the first disk, the root on the last.
fn cuts(id: &str, disks: &[Disk], rounds: usize, workload: Workload) -> Outcome {
    let world = world_on(&disks[0], &disks[disks.len() - 1])?;
    let plan = plan(rounds, workload);
    let cut = Cut { disks: disks.iter().collect(), one_disk: disks.len() == 1 };
    let tally = power::torture(&world.setup(), &cut, &plan, &mut |_| ());
    clean(id, plan.seed, &tally, &tally.complaints)?;
    world.finish()
}

/// The next start removes folders that an interrupted request made, and the journal says so. That record survives a
/// power failure; so must the removal on the root's disk.
pub fn rollback_survives_power_loss() -> Outcome {
    let disks = [Disk::new()?, Disk::new()?];
    let mut world = world_on(&disks[0], &disks[1])?;
    world.start_daemon();
    let session = world.open(json!({}));
    let before = tree(&world.root);
    // Only calls in the made folder count: the store makes folders of its own.
    let made = world.root.join("made");
    let path = made.to_string_lossy();
    let kill = "inject=mkdirat:signal=KILL";
    let words = ["-o", "/dev/null", "-P", &path, "-e", "trace=mkdirat", "-e", kill];
    let tracer = Tracer::attach(world.daemon_pid(), &words)?;
    let params = json!({ "session_id": session, "path": "made/below", "parents": true });
    let receipt = world.client().effect("host.fs.make_dir", params);
    check(receipt.is_null(), || format!("the daemon lived: {receipt}"))?;
    drop(tracer);
    world.reap();
    check(made.exists(), || "nothing was begun".into())?;
    disks.iter().try_for_each(Disk::sync)?;
    world.start_daemon();
    check(tree(&world.root) == before, || "it was not taken back".into())?;
    disks.iter().try_for_each(Disk::cut_power)?;
    world.kill9();
    disks.iter().try_for_each(Disk::restore_power)?;
    world.start_daemon();
    check(tree(&world.root) == before, || {
        format!("what was taken back is there again: {:?}", tree(&world.root))
    })?;
    world.finish()
}

/// Every blob that an answered receipt names is intact after a power failure: file contents, listings, and blobs that
/// the operator put.
pub fn cut_after_blobs() -> Outcome {
    let ways: [(&str, Make); 3] =
        [("read_file", read_large), ("list_dir", list_large), ("aos blob put", put_large)];
    let wrong: Vec<String> = ways
        .into_iter()
        .filter_map(|(what, make)| cut_after(make).err().map(|why| format!("{what}: {why}")))
        .collect();
    check(wrong.is_empty(), || wrong.join("\n"))
}

/// Creates a blob that the daemon acknowledges.
type Make = fn(&World) -> Outcome;

fn cut_after(make: Make) -> Outcome {
    let disk = Disk::new()?;
    let mut world = world_on(&disk, &disk)?;
    for n in 0..900 {
        world.write(&format!("a-name-that-makes-the-listing-large-{n:04}"), "");
    }
    world.write("large", "a line of a large file\n".repeat(4_000));
    disk.sync()?;
    world.start_daemon();
    make(&world)?;
    disk.cut_power()?;
    world.kill9();
    disk.restore_power()?;
    world.start_daemon();
    use_again(&world)?;
    world.finish()
}

fn effect_with_blob(world: &World, kind: &str, path: &str) -> Outcome {
    let session = world.open(json!({}));
    let receipt = world.client().effect(kind, json!({ "session_id": session, "path": path }));
    expect(kind, &receipt, &["ok"])?;
    check(receipt.to_string().contains("sha256:"), || format!("{kind} gave no blob: {receipt}"))
}

fn read_large(world: &World) -> Outcome {
    effect_with_blob(world, "host.fs.read_file", "large")
}

fn list_large(world: &World) -> Outcome {
    effect_with_blob(world, "host.fs.list_dir", ".")
}

fn put_large(world: &World) -> Outcome {
    // A file of the operator's, not on the disk that loses power.
    let path = world.parent.join("put");
    std::fs::write(&path, operators_text()).map_err(|why| why.to_string())?;
    let (code, _, err) = world.aos(&["blob", "put", &path.display().to_string()]);
    check(code == 0, || format!("aos blob put: {err}"))
}

fn operators_text() -> String {
    "what the operator put\n".repeat(3_000)
}

/// A session writes the blob that the operator put, if there is one: the bytes are the same.
fn use_again(world: &World) -> Outcome {
    if !world.parent.join("put").exists() {
        return Ok(());
    }
    let blob_ref = aos_model::request::content_hash(operators_text().as_bytes());
    let session = world.open(json!({}));
    let content = json!({ "blob_ref": { "blob_ref": blob_ref } });
    let params = json!({ "session_id": session, "path": "from-blob", "content": content });
    expect("a write from the blob", &world.client().effect("host.fs.write_file", params), &["ok"])?;
    check(world.read("from-blob") == operators_text().into_bytes(), || "other bytes than were put".into())
}
