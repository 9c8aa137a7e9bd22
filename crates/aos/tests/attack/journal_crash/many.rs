//! JRNL-13, JRNL-14: many records, many clients.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aos_model::receipt::Durability;
use aos_store::{Append, Home, Journal as _, Reader, SqliteJournal};
use serde_json::{Value, json};

use super::{bench, figure};
use crate::Outcome;
use crate::load::Random;
use crate::world::{Client, Start, World, check, expect, rand, text};

/// JRNL-13. The records are real ones, made over and over with new ids, by the journal's own hand.
pub fn a_million_records() -> Outcome {
    let records = figure(50_000, 1_000_000);
    let mut world = World::new();
    let templates = templates(&mut world)?;
    let killed = world.parent.join("killed");
    multiply(&world.home, &templates, records, &killed)?;
    let stopped = world.home.clone();
    for (what, home) in [("as a clean stop leaves it", stopped.clone()), ("as a kill leaves it", killed)] {
        world.home = home;
        let begun = Instant::now();
        world.start_daemon();
        let took = begun.elapsed();
        println!("JRNL-13: {records} records {what}: ready after {took:?}");
        check(took < Duration::from_secs(5), || format!("{what}: ready after {took:?}"))?;
        let begun = Instant::now();
        let (code, out, err) = world.aos(&["verify"]);
        println!("JRNL-13: verified after {:?}: {}", begun.elapsed(), out.trim());
        check(code == 0 && out.contains(&format!("{records} entries")), || {
            format!("{what}: {code}: {out}{err}")
        })?;
        world.kill9();
    }
    world.home = stopped;
    world.finish()
}

/// The bodies of some real records: writes, an edit, a refusal, a listing.
fn templates(world: &mut World) -> Result<Vec<String>, String> {
    let (session, mut client) = (world.open(json!({})), world.client());
    for n in 0..6 {
        let params =
            json!({ "session_id": session, "path": format!("f{n}"), "content": text("some text\n") });
        expect("a write", &client.effect("host.fs.write_file", params), &["ok"])?;
    }
    let edit = json!({ "session_id": session, "path": "f1", "old_string": "some", "new_string": "more" });
    expect("an edit", &client.effect("host.fs.edit_file", edit), &["ok"])?;
    let missing = json!({ "session_id": session, "path": "missing" });
    expect("a refusal", &client.effect("host.fs.read_file", missing), &["not_found"])?;
    expect("a listing", &client.effect("host.fs.list_dir", json!({ "session_id": session })), &["ok"])?;
    world.kill9();
    let reader = Reader::open(&world.home).map_err(|why| why.to_string())?;
    let mut bodies = Vec::new();
    let read = reader.entries(1, |row| {
        bodies.push(String::from_utf8_lossy(&row.body).into_owned());
        Ok(true)
    });
    read.map_err(|why| why.to_string())?;
    Ok(bodies)
}

/// Appends until the journal holds `records`, then copies the home as it stands before the clean end.
fn multiply(home: &Path, templates: &[String], records: usize, killed: &Path) -> Outcome {
    let opened = Home::open(home).map_err(|why| why.to_string())?;
    let journal = SqliteJournal::open(&opened, Durability::Process).map_err(|why| why.to_string())?;
    let have = journal.head() as usize;
    let next = AtomicUsize::new(have);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= records {
                        return;
                    }
                    let append = renewed(&templates[number % templates.len()], number);
                    journal.append(append).expect("the journal takes a record");
                }
            });
        }
    });
    let wal = std::fs::metadata(home.join("state/journal.db-wal")).map_or(0, |meta| meta.len());
    println!("JRNL-13: the log stands at {} MiB after {records} records", wal >> 20);
    copy_state(home, killed).map_err(|why| why.to_string())
}

/// The same record under a snapshot id of its own, so that the state grows with the journal.
fn renewed(template: &str, number: usize) -> Append {
    let mut body = template.to_owned();
    if let Some(at) = template.find("\"snapshot_id\":\"snap_") {
        let id = &template[at + 15..at + 15 + 5 + 32];
        body = template.replace(id, &format!("snap_{number:032x}"));
    }
    Append { folds: body.contains("\"facts\""), body: body.into_bytes(), closes: None }
}

fn copy_state(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to.join("state"))?;
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        std::fs::copy(from.join("state").join(name), to.join("state").join(name))?;
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
    let each = figure(6_400, 100_000) / CLIENTS;
    let seed = rand();
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

/// Whoever reads along sees a beginning of the same journal, and finds it whole.
fn read_along(world: &World) -> Outcome {
    bench(world).journal()?;
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
        // Now and then several mutations are sent before the first is answered.
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

/// Sends all calls, then reads all answers. Mutations that are sent together are done in the order of sending.
fn ask_all(client: &mut Client, session: usize, calls: &[(String, Value)]) -> Result<Vec<Answered>, String> {
    let asked = Instant::now();
    let mut lines = String::new();
    for (tool_call, call) in calls {
        let mut params = call.clone();
        params["tool_call_id"] = json!(tool_call);
        let message = json!({ "jsonrpc": "2.0", "id": tool_call, "method": "effect.call", "params": params });
        lines += &format!("{message}\n");
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

/// The answers themselves come in the order of the journal too, when clients send many mutations at once.
pub fn answers_in_order() -> Outcome {
    let world = World::new();
    let seed = rand();
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
    for round in 0..figure(10, 100) {
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

/// Writers that never pause do not make the write-ahead log grow for ever: a start would have to read all of it.
pub fn log_stays_small() -> Outcome {
    let world = World::new();
    let each = figure(800, 10_000);
    let session = world.open(json!({}));
    let largest = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|n| {
                let (world, session) = (&world, session.as_str());
                world.write(&format!("c{n}/start"), "id 0\n");
                scope.spawn(move || one_client(world.client(), session, n, each, Random::new(rand())))
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

/// An effect with its params: any, or a mutation.
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

/// Every answer is in the log under its number, once, and nothing else is there.
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
    // The opening is an entry without a session of its own, or with it: either way there is one at most.
    let shown = out.lines().count();
    check(shown == told || shown == told + 1, || format!("{shown} entries of a session with {told} answers"))
}

/// What was answered before something else was asked stands before it, in each session.
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
