//! JRNL-13, JRNL-14: many records, many clients.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aos_testkit::client::effect_line;
use aos_testkit::time::bound;
use aos_testkit::torture::crowd::{self, Plan};
use aos_testkit::{Client, Random, Start, World, check, full_figure, new_seed, text};
use serde_json::{Value, json};

use crate::Outcome;
use crate::torture::clean;

/// JRNL-13: restarted after a clean stop and after a kill.
pub fn a_million_records() -> Outcome {
    let records = full_figure(1_000_000, 50_000);
    let mut world = World::new();
    make_records(&world, records)?;
    let wal = std::fs::metadata(world.home.join("state/journal.db-wal")).map_or(0, |meta| meta.len());
    println!("JRNL-13: the log stands at {} MiB after {records} records", wal >> 20);
    world.kill9();
    ready_in_time(&mut world, records, "a kill")?;
    world.terminate();
    ready_in_time(&mut world, records, "a clean stop")?;
    let begun = Instant::now();
    let (code, out, err) = world.aos(&["verify"]);
    println!("JRNL-13: verified after {:?}: {}", begun.elapsed(), out.trim());
    check(code == 0, || format!("aos verify: {code}: {out}{err}"))?;
    world.finish()
}

fn ready_in_time(world: &mut World, records: usize, what: &str) -> Outcome {
    let begun = Instant::now();
    world.start_daemon();
    let took = begun.elapsed();
    println!("JRNL-13: {records} records, {what}: ready after {took:?}");
    let status = world.client().rpc("daemon.status", json!({}));
    let seq = status["result"]["seq"].as_u64().unwrap_or(0);
    check(seq == records as u64, || format!("{seq} records of {records} are there"))?;
    check(took < bound(Duration::from_secs(5)), || format!("after {what}: ready after {took:?}"))
}

/// Effects until the journal holds `records`: mostly reads, which are the cheapest, and some writes, which grow the
/// state.
fn make_records(world: &World, records: usize) -> Outcome {
    const BATCH: usize = 100;
    let sessions: Vec<String> = (0..8).map(|_| world.open(json!({}))).collect();
    let left = AtomicUsize::new(records - sessions.len());
    std::thread::scope(|scope| {
        let client = |number: usize| {
            let (left, session) = (&left, sessions[number].as_str());
            scope.spawn(move || -> Outcome {
                let mut client = world.client();
                let take = |n: usize| Some(n - n.min(BATCH));
                while let Ok(before @ 1..) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
                    batch(&mut client, number, session, before.min(BATCH))?;
                }
                Ok(())
            })
        };
        let clients: Vec<_> = (0..sessions.len()).map(client).collect();
        clients.into_iter().try_for_each(|client| client.join().unwrap_or(Err("a client panicked".into())))
    })
}

/// Sends `count` effects together.
fn batch(client: &mut Client, number: usize, session: &str, count: usize) -> Outcome {
    let mut lines = String::new();
    for n in 0..count {
        let path = format!("b{number}");
        let (kind, params) = if n % 10 == 0 {
            let content = text("some text\n");
            ("host.fs.write_file", json!({ "session_id": session, "path": path, "content": content }))
        } else {
            ("host.fs.exists", json!({ "session_id": session, "path": path }))
        };
        let call = json!({ "kind": kind, "params": params });
        lines += &effect_line(n, &call);
    }
    client.send(lines.as_bytes()).map_err(|why| why.to_string())?;
    for _ in 0..count {
        let line = client.line().ok_or("the daemon hung up")?;
        check(line.contains("\"status\":\"ok\""), || line.clone())?;
    }
    Ok(())
}

/// One answered effect.
struct Answered {
    session: usize,
    tool_call: String,
    seq: u64,
    asked: Instant,
    answered: Instant,
}

const CLIENTS: usize = 64;
const SESSIONS: usize = 16;

/// JRNL-14.
pub fn sixty_four_clients() -> Outcome {
    let each = full_figure(100_000, 6_400) / CLIENTS;
    let seed = new_seed();
    let mut world = World::new();
    let sessions: Vec<String> = (0..SESSIONS).map(|_| world.open(json!({}))).collect();
    for n in 0..CLIENTS {
        world.write(&format!("c{n}/start"), "id 0\n");
    }
    let begun = Instant::now();
    let all = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let (world, session) = (&world, sessions[n % SESSIONS].as_str());
                let random = Random::new(seed.wrapping_add(n as u64));
                scope.spawn(move || one_client(world.client(), session, n, each, random))
            })
            .collect();
        let early = read_along(&world);
        let joined =
            clients.into_iter().map(|client| client.join().unwrap_or(Err("a client panicked".into())));
        let answers = joined.collect::<Result<Vec<_>, String>>();
        early.and(answers.map(|answers| answers.into_iter().flatten().collect::<Vec<Answered>>()))
    })
    .map_err(|why| format!("seed {seed}: {why}"))?;
    let wal = std::fs::metadata(world.home.join("state/journal.db-wal")).map_or(0, |meta| meta.len());
    println!("JRNL-14: {} answers in {:?}, log {} MiB", all.len(), begun.elapsed(), wal >> 20);
    whole_log(&world, &sessions, &all).map_err(|why| format!("seed {seed}: {why}"))?;
    orders_hold(&all).map_err(|why| format!("seed {seed}: {why}"))?;
    world.restart(Start::default());
    world.finish()
}

/// A short run of `torture crowd`: every answer is exact, and no client is left waiting.
pub fn a_crowd() -> Outcome {
    let world = World::asleep(Start::default());
    let seconds = |short, full| Duration::from_secs(full_figure(full, short) as u64);
    let plan = Plan {
        seed: new_seed(),
        sessions: full_figure(64, 8),
        clients: full_figure(8, 4),
        time: seconds(3, 600),
        fairness: seconds(2, 60),
    };
    let tally = crowd::torture(&world.setup(), &plan);
    clean("OWN-TORTURE-CROWD", plan.seed, &tally, &tally.complaints)?;
    world.finish()
}

/// A reader beside the writers sees a prefix of the same journal, and finds it intact.
fn read_along(world: &World) -> Outcome {
    world.setup().journal()?;
    for arguments in [&["verify"][..], &["replay", "--verify"]] {
        let (code, out, err) = world.aos(arguments);
        check(code == 0, || format!("aos {arguments:?} beside the writers: {code}: {out}{err}"))?;
    }
    Ok(())
}

fn one_client(
    mut client: Client,
    session: &str,
    number: usize,
    count: usize,
    mut random: Random,
) -> Result<Vec<Answered>, String> {
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        // Sometimes several mutations are sent before the first is answered.
        let burst = if random.one_in(20) { 8.min(count - all.len()) } else { 1 };
        let calls: Vec<(String, Value)> = (0..burst)
            .map(|n| {
                let tool_call = format!("c{number}-{}", all.len() + n);
                let call = any_call(session, number, &mut random, burst > 1);
                (tool_call, call)
            })
            .collect();
        all.extend(ask_all(&mut client, number % SESSIONS, &calls)?);
    }
    Ok(all)
}

/// Sends all calls, then reads all answers. Mutations that are sent together are applied in the order of sending.
fn ask_all(client: &mut Client, session: usize, calls: &[(String, Value)]) -> Result<Vec<Answered>, String> {
    let asked = Instant::now();
    let mut lines = String::new();
    for (tool_call, call) in calls {
        let mut params = call.clone();
        params["tool_call_id"] = json!(tool_call);
        lines += &effect_line(tool_call.as_str(), &params);
    }
    client.send(lines.as_bytes()).map_err(|why| why.to_string())?;
    let mut answers = Vec::new();
    for _ in calls {
        let line = client.line().ok_or("the daemon hung up")?;
        let answer: Value = serde_json::from_str(&line).map_err(|why| why.to_string())?;
        let status = answer["result"]["status"].as_str().unwrap_or_default();
        check(["ok", "not_found", "conflict"].contains(&status), || format!("unexpected: {line}"))?;
        let seq = answer["result"]["seq"].as_u64().ok_or("a receipt without seq")?;
        let tool_call = answer["id"].as_str().unwrap_or_default().to_owned();
        answers.push(Answered { session, tool_call, seq, asked, answered: Instant::now() });
    }
    let mut by_seq: Vec<&Answered> = answers.iter().collect();
    by_seq.sort_by_key(|answer| answer.seq);
    check(by_seq.iter().map(|answer| &answer.tool_call).eq(calls.iter().map(|(call, _)| call)), || {
        let order: Vec<&str> = by_seq.iter().map(|answer| answer.tool_call.as_str()).collect();
        format!("mutations of one session were done in the order {order:?}")
    })?;
    Ok(answers)
}

/// The answers arrive in the order of the journal too when clients send many mutations at a time.
pub fn answers_in_order() -> Outcome {
    let world = World::new();
    let seed = new_seed();
    let sessions: Vec<String> = (0..4).map(|_| world.open(json!({}))).collect();
    std::thread::scope(|scope| {
        let client = |n: usize| {
            let (world, session) = (&world, sessions[n % 4].as_str());
            scope.spawn(move || bursts(world, session, n, Random::new(seed.wrapping_add(n as u64))))
        };
        let clients: Vec<_> = (0..16).map(client).collect();
        clients.into_iter().try_for_each(|client| client.join().unwrap_or(Err("a client panicked".into())))
    })
    .map_err(|why| format!("seed {seed}: {why}"))?;
    world.finish()
}

fn bursts(world: &World, session: &str, number: usize, mut random: Random) -> Outcome {
    let mut client = world.client();
    world.write(&format!("c{number}/start"), "id 0\n");
    for round in 0..full_figure(100, 10) {
        let call = |n| (format!("c{number}-{round}-{n}"), any_call(session, number, &mut random, true));
        let calls: Vec<(String, Value)> = (0..16).map(call).collect();
        let answers = ask_all(&mut client, 0, &calls)?;
        check(answers.is_sorted_by_key(|answer| answer.seq), || {
            let seqs: Vec<u64> = answers.iter().map(|answer| answer.seq).collect();
            format!("the answers to 16 mutations of one session came in the order {seqs:?}")
        })?;
    }
    Ok(())
}

/// Writers that never pause do not grow the write-ahead log forever: a start would have to read all of it.
pub fn log_stays_small() -> Outcome {
    let world = World::new();
    let each = full_figure(10_000, 800);
    let session = world.open(json!({}));
    let largest = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|n| {
                let (world, session) = (&world, session.as_str());
                world.write(&format!("c{n}/start"), "id 0\n");
                scope.spawn(move || one_client(world.client(), session, n, each, Random::new(new_seed())))
            })
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().unwrap_or(Err("a client panicked".into())).map(drop))
    })
    .map(|()| {
        std::fs::metadata(world.home.join("state/journal.db-wal")).map_or(0, |meta| meta.len() >> 20)
    })?;
    println!("OWN-WAL-SIZE: {largest} MiB after {} effects", 8 * each);
    check(largest <= 32, || format!("the write-ahead log has {largest} MiB after {} effects", 8 * each))?;
    world.finish()
}

/// An effect with its params: of any kind, or a mutation.
fn any_call(session: &str, number: usize, random: &mut Random, mutation: bool) -> Value {
    let path = format!("c{number}/{}", random.below(12));
    let (kind, mut params) = match random.below(if mutation { 50 } else { 100 }) {
        0..30 => {
            ("write_file", json!({ "path": path, "content": text(format!("id {}\n", random.number())) }))
        }
        30..38 => ("edit_file", json!({ "path": path, "old_string": "id", "new_string": "id" })),
        38..44 => ("move", json!({ "from": path, "to": format!("c{number}/moved"), "overwrite": true })),
        44..50 => ("remove", json!({ "path": path })),
        50..70 => ("read_file", json!({ "path": path, "with_hash": true })),
        70..80 => ("list_dir", json!({ "path": format!("c{number}") })),
        80..90 => ("exists", json!({ "path": path })),
        _ => ("stat", json!({ "path": path })),
    };
    params["session_id"] = json!(session);
    json!({ "kind": format!("host.fs.{kind}"), "params": params })
}

/// Every answer is in the log under its number, once, and the log holds nothing else.
fn whole_log(world: &World, sessions: &[String], all: &[Answered]) -> Outcome {
    let (code, out, err) = world.aos(&["log", "--json"]);
    check(code == 0, || format!("aos log: {code}: {err}"))?;
    let mut calls = Vec::new();
    for (index, line) in out.lines().enumerate() {
        let entry: Value = serde_json::from_str(line).map_err(|why| why.to_string())?;
        check(entry["seq"] == index as u64 + 1, || {
            format!("seq {} where {} was due", entry["seq"], index + 1)
        })?;
        calls.push((
            entry["tool_call_id"].as_str().unwrap_or_default().to_owned(),
            entry["session_id"].clone(),
        ));
    }
    let expected = all.len() + sessions.len();
    check(calls.len() == expected, || format!("{} entries for {expected} answers", calls.len()))?;
    for answer in all {
        let (tool_call, session) = &calls[answer.seq as usize - 1];
        check(*tool_call == answer.tool_call && *session == sessions[answer.session], || {
            format!("entry {} is {tool_call}, but {} was told that number", answer.seq, answer.tool_call)
        })?;
    }
    let (_, out, _) = world.aos(&["log", "--json", "--session", &sessions[0]]);
    let told = all.iter().filter(|answer| answer.session == 0).count();
    // The entry of the opening may or may not carry the session's id: there is at most one more entry.
    let shown = out.lines().count();
    check(shown == told || shown == told + 1, || format!("{shown} entries of a session with {told} answers"))
}

/// In each session, a request that was answered before another was sent precedes it in the journal.
fn orders_hold(all: &[Answered]) -> Outcome {
    for session in 0..SESSIONS {
        let mut asked: Vec<&Answered> = all.iter().filter(|answer| answer.session == session).collect();
        let mut answered = asked.clone();
        asked.sort_by_key(|answer| answer.asked);
        answered.sort_by_key(|answer| answer.answered);
        let mut earlier = answered.into_iter().peekable();
        let mut newest: Option<&Answered> = None;
        for answer in asked {
            while let Some(done) = earlier.next_if(|done| done.answered < answer.asked) {
                newest = newest.filter(|newest| newest.seq > done.seq).or(Some(done));
            }
            let before = newest.filter(|newest| newest.seq > answer.seq);
            check(before.is_none(), || {
                let before = before.map_or(0, |before| before.seq);
                format!("{} was answered before {} was even asked", before, answer.seq)
            })?;
        }
    }
    Ok(())
}
