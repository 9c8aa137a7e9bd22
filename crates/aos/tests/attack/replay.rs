//! Replay: the journal folded from its beginning gives the same state, on any machine and for any user.

mod blobs;
mod elsewhere;

use aos_model::receipt::Durability;
use aos_store::{Home, SqliteJournal};
use aos_testkit::torture::Setup;
use aos_testkit::torture::load::{Workload, Writer};
use aos_testkit::torture::replay::{Plan, torture};
use aos_testkit::{Client, Random, Start, World, check, expect, full_figure, new_seed};
use serde_json::{Value, json};

use crate::torture::clean;
use crate::{Case, Need, Outcome, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("RPLY-01", match_and_teeth),
        plain("OWN-REPLAY-LIVE", the_daemons_own_sum),
        plain("RPLY-02", elsewhere::other_surroundings),
        plain("OWN-READ-ONLY-COPY", elsewhere::read_only_copies),
        Case { id: "RPLY-03", needs: &[Need::Strace], run: elsewhere::watched },
        Case { id: "OWN-REPLAY-ONLY-READS", needs: &[Need::Strace], run: elsewhere::watched_at_home },
        plain("RPLY-04", blobs::missing),
        plain("OWN-BLOB-REPLACED", blobs::replaced),
        plain("OWN-PUT-BLOB-MISSING", blobs::put_and_missing),
        plain("RPLY-05", blobs::corrupted),
        plain("OWN-BLOB-GET-CORRUPTED", blobs::fetched_corrupted),
        plain("RPLY-08", random_histories),
        plain("RPLY-09", blobs::swept),
        Case { id: "OWN-TORTURE-REPLAY", needs: &[Need::Strace], run: tortured },
    ]
}

/// A world with a recorded history.
struct Recorded {
    world: World,
    seed: u64,
    sessions: Vec<String>,
    /// The blobs that receipts named.
    blobs: Vec<String>,
}

impl Recorded {
    /// A run of `ops` effects: all kinds of changes and refusals, blobs, closed sessions, and a kill in the middle.
    fn new(ops: usize) -> Result<Recorded, String> {
        let seed = new_seed();
        let mut world = World::new();
        let mut random = Random::new(seed);
        let setup = world.setup();
        let mut writers = setup.writers(3, Workload::Mixed, &mut random)?;
        steps(&setup, &mut writers, &mut random, ops / 2)?;
        world.restart(Start::default());
        steps(&setup, &mut writers, &mut random, ops - ops / 2 - 12)?;
        let mut recorded = Recorded { world, seed, sessions: Vec::new(), blobs: Vec::new() };
        recorded.blobs_and_sessions()?;
        Ok(recorded)
    }

    /// Twelve more effects: large reads, sessions that close, and invalid requests.
    fn blobs_and_sessions(&mut self) -> Outcome {
        let mut client = self.world.client();
        for n in 0..3 {
            self.world.write(&format!("large{n}"), format!("a line of a large file {n}\n").repeat(2_000));
            let session = self.world.open(json!({ "labels": { "n": n.to_string() } }));
            let params = json!({ "session_id": session, "path": format!("large{n}") });
            let receipt = client.effect("host.fs.read_file", params);
            expect("a large read", &receipt, &["ok"])?;
            let blob = receipt["content"]["blob"]["blob_ref"].as_str().ok_or("no blob")?;
            self.blobs.push(blob.to_owned());
            self.sessions.push(session);
        }
        let close = json!({ "session_id": self.sessions[2], "signal": "term" });
        expect("a close", &client.effect("host.session.signal", close), &["signaled"])?;
        for nonsense in ["host.fs.read_file", "host.no.such.thing"] {
            let receipt = client.effect(nonsense, json!({ "surprise": "\u{1b}[31m" }));
            expect("nonsense", &receipt, &["error / invalid_params"])?;
        }
        Ok(())
    }

    /// `aos replay --verify` must print MATCH and nothing else.
    fn matches(&self, what: &str) -> Outcome {
        let (code, out, err) = self.world.aos(&["replay", "--verify"]);
        check((code, out.as_str(), err.as_str()) == (0, "MATCH\n", ""), || {
            format!("seed {}: {what}: exit {code}: {out}{err}", self.seed)
        })
    }
}

/// `count` steps, each by a random writer.
fn steps(setup: &Setup, writers: &mut [Writer], random: &mut Random, count: usize) -> Outcome {
    let mut client = Client::connect(&setup.home).map_err(|why| why.to_string())?;
    for _ in 0..count {
        let writer = random.below(writers.len());
        let answered = writers[writer].step(&mut client)?;
        check(answered, || "the daemon hung up".into())?;
    }
    Ok(())
}

/// RPLY-01.
fn match_and_teeth() -> Outcome {
    let mut recorded = Recorded::new(510)?;
    let (_, log, _) = recorded.world.aos(&["log", "--json"]);
    check(log.lines().count() >= 500, || "too few records".into())?;
    recorded.matches("beside the daemon")?;
    for session in &recorded.sessions {
        let (code, out, err) = recorded.world.aos(&["replay", "--session", session, "--verify"]);
        check((code, out.as_str()) == (0, "MATCH\n"), || format!("--session {session}: {code}: {out}{err}"))?;
    }
    recorded.world.terminate();
    recorded.matches("after a clean stop")?;
    recorded.world.start_daemon();
    recorded.world.kill9();
    recorded.matches("after a kill")?;
    differs_when_it_should(&recorded)?;
    recorded.world.finish()
}

/// The daemon folds each entry as it writes it, and stores a checkpoint of the state every two thousand entries. That
/// checkpoint, made from memory, equals the fold of the entries that are read back.
fn the_daemons_own_sum() -> Outcome {
    const ENTRIES: usize = 2_200;
    let world = World::new();
    let session = world.open(json!({}));
    let mut client = world.client();
    for n in 0..ENTRIES {
        let path = format!("f{}", n % 7);
        let (kind, params) = match n % 20 {
            0 => ("host.fs.write_file", json!({ "path": path, "content": aos_testkit::text(n.to_string()) })),
            7 => ("host.fs.rollback", json!({})),
            11 if n % 40 == 11 => ("host.fs.redo", json!({})),
            _ => ("host.fs.exists", json!({ "path": path })),
        };
        let mut params = params;
        params["session_id"] = json!(session);
        let turn = format!("turn-{}", n / 60);
        let call =
            json!({ "kind": kind, "params": params, "tool_call_id": format!("call-{n}"), "turn_id": turn });
        let receipt = &client.rpc("effect.call", call)["result"];
        expect(kind, receipt, &["ok", "nothing_to_roll_back", "nothing_to_redo"])?;
    }
    let (code, out, err) = world.aos(&["replay", "--verify"]);
    check((code, out.as_str()) == (0, "MATCH\n"), || format!("{code}: {out}{err}"))?;
    world.finish()
}

/// One digit of the live state is changed: the fold differs from it, and replay says so.
fn differs_when_it_should(recorded: &Recorded) -> Outcome {
    let home = Home::open(&recorded.world.home).map_err(|why| why.to_string())?;
    drop(SqliteJournal::open(&home, Durability::Process).map_err(|why| why.to_string())?);
    let path = recorded.world.home.join("state/journal.db");
    let whole = std::fs::read(&path).map_err(|why| why.to_string())?;
    let turn = "UPDATE state SET value = CAST(replace(value, '\"started_at_ns\":1', '\"started_at_ns\":2') AS BLOB) WHERE key = ?";
    let database = rusqlite::Connection::open(&path).map_err(|why| why.to_string())?;
    let turned = database
        .execute(turn, [format!("session/{}", recorded.sessions[0])])
        .map_err(|why| why.to_string())?;
    check(turned == 1, || "the session has no row in the state".into())?;
    drop(database);
    let (code, out, err) = recorded.world.aos(&["replay", "--verify"]);
    let (verified, ..) = recorded.world.aos(&["verify"]);
    std::fs::write(&path, whole).map_err(|why| why.to_string())?;
    check(code != 0 && out.trim() == "DIFF" && err.contains(&recorded.sessions[0]), || {
        format!("a turned digit in the state: {code}: {out}{err}")
    })?;
    check(verified != 0, || "aos verify does not see a turned digit in the state".into())
}

/// RPLY-08: three replays of a home, and of a copy of it, print the same.
fn random_histories() -> Outcome {
    let seed = new_seed();
    let mut random = Random::new(seed);
    for number in 0..full_figure(1_000, 10) {
        let own = random.number();
        history(own).map_err(|why| format!("history {number} of seed {seed}, its own {own}: {why}"))?;
    }
    Ok(())
}

fn history(seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let mut world = World::new();
    let setup = world.setup();
    let writer_count = 1 + random.below(3);
    let mut writers = setup.writers(writer_count, Workload::Mixed, &mut random)?;
    for _ in 0..=random.below(3) {
        let count = random.below(40);
        steps(&setup, &mut writers, &mut random, count)?;
        crash_at_work(&mut world, &setup, &mut writers, &mut random);
        world.start_daemon();
        let mut tally = aos_testkit::torture::load::Tally::default();
        aos_testkit::torture::kill::judge(&setup, &mut writers, &mut tally)?;
        check(tally.is_clean(), || tally.complaints.join("\n"))?;
    }
    if random.one_in(2) {
        close_one(&world)?;
    }
    if random.one_in(2) {
        world.kill9();
    }
    let told: Vec<_> = (0..3).map(|_| tell(&world)).collect();
    check(told[0].0 == 0 && told[0].1.starts_with("MATCH\n"), || format!("{:?}", told[0]))?;
    check(told.iter().all(|one| *one == told[0]), || format!("three replays differ: {told:?}"))?;
    world.finish()
}

/// Everything that a replay prints, and the hash of the log.
fn tell(world: &World) -> (i32, String) {
    let (code, matched, complaints) = world.aos(&["replay", "--verify"]);
    let (_, folded, _) = world.aos(&["replay"]);
    let (_, log, _) = world.aos(&["log", "--json"]);
    let hash = aos_model::request::content_hash(log.as_bytes());
    (code, format!("{matched}{complaints}{folded}{hash}"))
}

fn crash_at_work(world: &mut World, setup: &Setup, writers: &mut [Writer], random: &mut Random) {
    let moment = std::time::Duration::from_micros(random.below(10_000) as u64);
    aos_testkit::torture::kill::under_load(&setup.home, writers, || {
        std::thread::sleep(moment);
        world.kill9();
    });
}

/// Closes the session of an extra client, with its snapshots and its references to blobs.
fn close_one(world: &World) -> Outcome {
    let session = world.open(json!({}));
    let mut client = world.client();
    world.write("large", "x".repeat(40_000));
    let read = json!({ "session_id": session, "path": "large" });
    expect("a large read", &client.effect("host.fs.read_file", read), &["ok"])?;
    let write = json!({ "session_id": session, "path": "small", "content": aos_testkit::text("x") });
    expect("a write", &client.effect("host.fs.write_file", write), &["ok"])?;
    let close: Value = json!({ "session_id": session, "signal": "kill" });
    expect("a close", &client.effect("host.session.signal", close), &["signaled"])
}

/// Some histories of the torture test: all requests, in local, virtual and staged sessions.
fn tortured() -> Outcome {
    let world = World::asleep(Start::default());
    let plan = Plan { seed: new_seed(), histories: full_figure(200, 12), steps: 15, strace: true };
    let tally = torture(&world.setup(), &plan);
    clean("OWN-TORTURE-REPLAY", plan.seed, &tally, &tally.complaints)?;
    world.finish()
}
