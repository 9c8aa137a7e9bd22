//! JRNL-01, JRNL-16: the daemon is killed, or asked to stop, while it works.

use std::time::{Duration, Instant};

use aos_testkit::client::effect_line;
use aos_testkit::time::in_time;
use aos_testkit::torture::errors::{self, Small};
use aos_testkit::torture::kill::{self, Plan};
use aos_testkit::torture::load::{Tally, Workload};
use aos_testkit::{Random, Start, World, check, expect, full_figure, new_seed, signal, text, wait_for};
use serde_json::{Value, json};

use crate::Outcome;
use crate::torture::clean;

fn plan(kills: usize, workload: Workload) -> Plan {
    Plan { seed: new_seed(), kills: kills as u64, writers: 8, workload, verify_every: 20, until: None }
}

/// A folder on another file system than the home's, where there is one: pre-images are then copied, not moved.
pub fn elsewhere(world: &World) -> Option<tempfile::TempDir> {
    use std::os::unix::fs::MetadataExt as _;
    let dir = tempfile::Builder::new().prefix("aos-attack-").tempdir_in("/dev/shm").ok()?;
    let device = |path: &std::path::Path| path.metadata().map(|meta| meta.dev()).ok();
    (device(dir.path()) != device(&world.home)).then_some(dir)
}

/// JRNL-01, with half of the writers on a root on another file system than the home's.
pub fn under_load() -> Outcome {
    let world = World::asleep(Start::default());
    let mut setup = world.setup();
    let other = elsewhere(&world);
    if let Some(other) = &other {
        let root = other.path().join("ws");
        std::fs::create_dir(&root).map_err(|why| why.to_string())?;
        setup.roots.push(root);
    }
    let plan = plan(full_figure(200, 15), Workload::Mixed);
    let tally = kill::torture(&setup, &plan, false, &mut |_| ());
    clean("JRNL-01", plan.seed, &tally, &tally.complaints)?;
    world.finish()
}

/// The torture test's own short form: five-file patches, and daemons that are killed at chosen system calls.
pub fn at_chosen_calls() -> Outcome {
    let world = World::asleep(Start::default());
    let plan = plan(full_figure(200, 12), Workload::Patches);
    let tally = kill::torture(&world.setup(), &plan, true, &mut |_| ());
    clean("OWN-KILL", plan.seed, &tally, &tally.complaints)?;
    world.finish()
}

/// EIO and ENOSPC at some steps of five-file patches and restores; in the long form at each step.
pub fn errors_at_steps() -> Outcome {
    for power in [false, true] {
        let world = World::asleep(Start::default());
        let plan = errors_plan(power, full_figure(1, 8));
        let tally = errors::torture(&world.setup(), &plan, &mut |_| ());
        told("OWN-TORTURE-ERRORS", &plan, &tally)?;
        check(tally.errors > 20, || format!("only {} errors", tally.errors))?;
        world.finish()?;
    }
    Ok(())
}

/// The same on disks that are really full except for some pages.
pub fn full_disks() -> Outcome {
    for small in [Small::Home, Small::Root, Small::Both] {
        let world = World::asleep(Start::default());
        let plan = errors_plan(false, full_figure(1, 3));
        let tally = errors::full(&world.setup(), small, &plan)?;
        told("OWN-TORTURE-FULL", &plan, &tally)?;
        check(tally.errors > 2, || format!("{small:?}: only {} errors", tally.errors))?;
    }
    Ok(())
}

fn errors_plan(power: bool, stride: usize) -> errors::Plan {
    errors::Plan {
        seed: new_seed(),
        errors: full_figure(2_000, 60) as u64,
        power,
        linked: new_seed().is_multiple_of(2),
        stride,
        until: None,
    }
}

fn told(id: &str, plan: &errors::Plan, tally: &errors::Tally) -> Outcome {
    clean(id, plan.seed, tally, &tally.complaints).map_err(|why| format!("{plan:?}: {why}"))
}

/// JRNL-16.
pub fn asked_to_stop() -> Outcome {
    for twice in [false, true] {
        under_load_asked(twice)?;
        with_a_long_queue(twice)?;
    }
    deaf_clients()?;
    crate::exec::asked_to_stop()?;
    Ok(())
}

fn terminate(pid: i32, twice: bool) -> Instant {
    let asked = Instant::now();
    signal(pid, rustix::process::Signal::TERM);
    if twice {
        signal(pid, rustix::process::Signal::TERM);
    }
    asked
}

fn stopped_in_time(asked: Instant) -> Outcome {
    in_time(asked, Duration::from_secs(5), "the stop")
}

/// Writers at work: each request is answered or was never accepted, and the next start has nothing to roll back.
fn under_load_asked(twice: bool) -> Outcome {
    let seed = new_seed();
    let mut random = Random::new(seed);
    let mut world = World::new();
    let setup = world.setup();
    let mut writers = setup.writers(8, Workload::Mixed, &mut random)?;
    let mut tally = Tally::default();
    for _ in 0..full_figure(20, 3) {
        let pid = world.daemon_pid();
        let moment = Duration::from_millis(random.below(100) as u64);
        let mut asked = Instant::now();
        let heard = kill::under_load(&setup.home, &mut writers, || {
            std::thread::sleep(moment);
            asked = terminate(pid, twice);
            world.reap();
        });
        stopped_in_time(asked)?;
        heard.tell(&mut tally);
        world.start_daemon();
        kill::judge(&setup, &mut writers, &mut tally)?;
    }
    let (late, undone) = (tally.unanswered, tally.rolled_back);
    check(late + undone == 0, || {
        format!(
            "seed {seed}: a clean stop left {late} requests done but unanswered and {undone} to be rolled back"
        )
    })?;
    clean("JRNL-16", seed, &tally, &tally.complaints)?;
    world.finish()
}

/// A large patch is being applied and many requests wait behind it.
fn with_a_long_queue(twice: bool) -> Outcome {
    let mut world = World::new();
    let session = world.open(json!({}));
    let mut client = world.client();
    let sections: String = (0..5)
        .map(|n| format!("*** Add File: big{n}\n{}", "+a line of a large file\n".repeat(100_000)))
        .collect();
    let patch = json!({ "session_id": session, "patch": text(format!("*** Begin Patch\n{sections}*** End Patch\n")) });
    let mut sent = vec![call(0, "host.fs.apply_patch", &patch)];
    for n in 1..50 {
        let params = json!({ "session_id": session, "path": format!("f{n}"), "content": text("queued\n") });
        sent.push(call(n, "host.fs.write_file", &params));
    }
    client.send(sent.concat().as_bytes()).map_err(|why| why.to_string())?;
    wait_for("the patch to begin", || {
        std::fs::read_dir(&world.root).is_ok_and(|mut all| all.next().is_some())
    })?;
    let asked = terminate(world.daemon_pid(), twice);
    let answers: Vec<Value> = std::iter::from_fn(|| client.line())
        .map(|line| serde_json::from_str(&line).unwrap_or_default())
        .collect();
    world.reap();
    stopped_in_time(asked)?;
    world.start_daemon();
    let log = world.setup().journal()?;
    check(log.rolled_back() == 0, || "a clean stop left something to be rolled back".into())?;
    for answer in &answers {
        expect("an answer while stopping", &answer["result"], &["ok", "error / shutting_down"])?;
    }
    let names = std::fs::read_dir(&world.root).map_err(|why| why.to_string())?.count();
    let done = answers.iter().filter(|answer| answer["result"]["status"] == "ok").count();
    let patched = answers.iter().any(|answer| answer["id"] == 0 && answer["result"]["status"] == "ok");
    let expected = done + if patched { 4 } else { 0 };
    check(names == expected, || format!("{done} answers of ok (patch {patched}), but {names} files"))?;
    world.finish()
}

fn call(id: usize, kind: &str, params: &Value) -> String {
    effect_line(id, &json!({ "kind": kind, "params": params }))
}

/// One client never reads its answers, one stops in the middle of a line: neither delays the stop.
fn deaf_clients() -> Outcome {
    let mut world = World::new();
    let session = world.open(json!({}));
    world.write("large", "x".repeat(12_000));
    let mut deaf = world.client();
    let read = json!({ "session_id": session, "path": "large" });
    deaf.stream().set_write_timeout(Some(Duration::from_millis(300))).map_err(|why| why.to_string())?;
    // Until the daemon blocks on this client and reads no more from it.
    while deaf.send(call(1, "host.fs.read_file", &read).repeat(50).as_bytes()).is_ok() {}
    let mut half = world.client();
    half.send(b"{\"jsonrpc\":\"2.0\",\"id\":1,").map_err(|why| why.to_string())?;
    let asked = terminate(world.daemon_pid(), false);
    world.reap();
    stopped_in_time(asked)?;
    world.finish()
}
