//! JRNL-02, JRNL-03: a journal that was truncated or in which a bit was flipped.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aos_model::receipt::Durability;
use aos_store::{Home, Reader, SqliteJournal};
use aos_testkit::torture::corrupt::last_commit;
use aos_testkit::{Client, Random, Start, World, check, expect, full_figure, is_full, new_seed, text};
use serde_json::{Value, json};

use crate::Outcome;

const RECORDS: usize = 1_000;

/// A journal of 1,000 records whose daemon was killed, and copies of it to damage.
struct Recorded {
    world: World,
    /// The home as the kill left it.
    whole: PathBuf,
    log: Vec<String>,
    copies: usize,
}

/// What the daemon and `aos verify` made of a damaged home.
struct Received {
    started: Result<(), String>,
    verify: (i32, String),
}

impl Recorded {
    /// A start empties the write-ahead log. The last daemon writes few enough records that all of them stay in the log,
    /// up to its end.
    fn new() -> Result<Recorded, String> {
        Recorded::with_restarts(&[RECORDS / 3, RECORDS - 80])
    }

    /// The daemon is killed and started again before each of these records.
    fn with_restarts(before: &[usize]) -> Result<Recorded, String> {
        let mut world = World::new();
        let session = world.open(json!({}));
        let mut next = 1;
        for end in before {
            record(&mut world.client(), &session, next..*end)?;
            world.restart(Start::default());
            next = *end;
        }
        record(&mut world.client(), &session, next..RECORDS)?;
        world.kill9();
        let (whole, log) = (world.home.clone(), log_lines(&world));
        check(log.len() == RECORDS, || format!("{} records instead of {RECORDS}", log.len()))?;
        Ok(Recorded { world, whole, log, copies: 0 })
    }

    /// The same with every record in the database file and no log beside it.
    fn checkpointed() -> Result<Recorded, String> {
        let recorded = Recorded::new()?;
        let home = Home::open(&recorded.whole).map_err(|why| why.to_string())?;
        drop(SqliteJournal::open(&home, Durability::Process).map_err(|why| why.to_string())?);
        let left =
            std::fs::metadata(recorded.whole.join("state/journal.db-wal")).map_or(0, |meta| meta.len());
        check(left == 0, || format!("{left} bytes are left in the log"))?;
        Ok(recorded)
    }

    /// A copy of the home with `damage` applied to one of its files.
    fn damaged(&mut self, file: &str, damage: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
        let copy = self.world.parent.join(format!("copy{}", self.copies));
        self.copies += 1;
        copy_tree(&self.whole, &copy).map_err(|why| why.to_string())?;
        let path = copy.join("state").join(file);
        let mut bytes = std::fs::read(&path).map_err(|why| why.to_string())?;
        damage(&mut bytes);
        std::fs::write(&path, bytes).map_err(|why| why.to_string())?;
        self.world.home = copy;
        Ok(())
    }

    /// Starts a daemon on the damaged copy, then runs `aos verify` on it. Neither may panic.
    fn receive(&mut self) -> Result<Received, String> {
        let started = self.world.try_start_daemon();
        let (code, out, err) = self.world.aos(&["verify"]);
        let said = format!("{out}{err}{}", started.as_ref().err().cloned().unwrap_or_default());
        check(!said.contains("panicked"), || format!("a panic: {said}"))?;
        if let Err(said) = &started {
            check(!said.trim().is_empty(), || "the daemon refuses without a word".into())?;
        }
        Ok(Received { started, verify: (code, out + &err) })
    }

    /// Deletes the copy.
    fn discard(&mut self) {
        self.world.kill9();
        let _ = std::fs::remove_dir_all(&self.world.home);
        self.world.home = self.whole.clone();
    }
}

/// Records `numbers`: writes, edits and some reads, so that all tables are in use. The last one is a read, which is a
/// single commit.
fn record(client: &mut Client, session: &str, numbers: std::ops::Range<usize>) -> Outcome {
    let last = numbers.end - 1;
    for n in numbers {
        let path = format!("f{}", n % 40);
        let receipt = if n % 9 == 0 || n == last {
            let params = json!({ "session_id": session, "path": "." });
            client.effect_of("host.fs.list_dir", params, Some(&format!("r-{n}")))
        } else {
            let content = text(format!("record {n}\n"));
            let params = json!({ "session_id": session, "path": path, "content": content });
            client.effect_of("host.fs.write_file", params, Some(&format!("r-{n}")))
        };
        expect("a record", &receipt, &["ok"])?;
    }
    Ok(())
}

fn log_lines(world: &World) -> Vec<String> {
    let (_, out, _) = world.aos(&["log", "--json"]);
    out.lines().map(str::to_owned).collect()
}

fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    std::fs::set_permissions(to, std::fs::metadata(from)?.permissions())?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        } else if kind.is_file() && from.ends_with("state") {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        } else if kind.is_file() {
            // Thousands of pre-images, which never change in place.
            std::fs::hard_link(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// JRNL-02.
pub fn cut_off() -> Outcome {
    let cuts = |fine: &[usize]| -> Vec<usize> { if is_full() { (1..=200).collect() } else { fine.to_vec() } };
    let mut recorded = Recorded::new()?;
    // Within one run the log is checkpointed and restarted: its end may be left over from before.
    let mut one_life = Recorded::with_restarts(&[])?;
    for cut in cuts(&[1, 2, 8, 23, 24, 25, 100, 199, 200]) {
        cut_log(&mut recorded, cut)?;
        cut_log(&mut one_life, cut)?;
    }
    one_life.world.finish()?;
    for cut in cuts(&[1, 7, 8, 100, 199, 200]) {
        cut_database(&mut recorded, cut)?;
    }
    cut_deep(&mut recorded)?;
    last_write_cut_off(&mut recorded)?;
    let mut checkpointed = Recorded::checkpointed()?;
    // Whole pages too: the length alone does not show that they are missing.
    for cut in cuts(&[1, 7, 8, 100, 199, 200]).into_iter().chain([4096, 8192, 16_384, 81_920]) {
        cut_database(&mut checkpointed, cut)?;
    }
    recorded.world.finish()?;
    checkpointed.world.finish()
}

/// The log without its last bytes: all records are unchanged except the one whose commit was cut.
fn cut_log(recorded: &mut Recorded, cut: usize) -> Outcome {
    let mut kept = RECORDS;
    recorded.damaged("journal.db-wal", |wal| {
        if last_commit(wal).1 > wal.len() - cut {
            kept = RECORDS - 1;
        }
        wal.truncate(wal.len() - cut);
    })?;
    let received = recorded.receive()?;
    received.started.map_err(|why| format!("log cut by {cut}: the daemon does not start: {why}"))?;
    let (code, said) = received.verify;
    check(code == 0, || format!("log cut by {cut}: aos verify: {code}: {said}"))?;
    let log = log_lines(&recorded.world);
    check(log == recorded.log[..kept], || {
        format!("log cut by {cut}: {} records are left, expected the first {kept}", log.len())
    })?;
    recorded.discard();
    Ok(())
}

/// Far more than the last commit is cut: the first records are as they were, and nothing else is there.
fn cut_deep(recorded: &mut Recorded) -> Outcome {
    let seed = new_seed();
    let mut random = Random::new(seed);
    for round in 0..full_figure(40, 4) {
        let mut left = 0;
        recorded.damaged("journal.db-wal", |wal| {
            left = if round == 0 { 32 } else { random.below(wal.len()) };
            wal.truncate(left);
        })?;
        let received = recorded.receive()?;
        let what = format!("seed {seed}: log cut to {left} bytes");
        received.started.map_err(|why| format!("{what}: the daemon does not start: {why}"))?;
        check(received.verify.0 == 0, || format!("{what}: aos verify: {}", received.verify.1))?;
        let log = log_lines(&recorded.world);
        // The start closes an intent whose receipt was cut.
        let closed = log.iter().rev().take_while(|line| line.contains("interrupted_rolled_back")).count();
        let kept = log.len() - closed;
        check(closed <= 1 && log[..kept] == recorded.log[..kept], || {
            format!("{what}: the {kept} records that are left are not the first ones")
        })?;
        recorded.discard();
    }
    Ok(())
}

/// The last commit is the receipt of a write: without it the write was never answered, and is rolled back.
fn last_write_cut_off(recorded: &mut Recorded) -> Outcome {
    recorded.world.start_daemon();
    let session = serde_json::from_str::<Value>(&recorded.log[1]).unwrap_or_default()["session_id"].take();
    let before = recorded.world.read("f1");
    let content = text("the last write\n");
    let params = json!({ "session_id": session, "path": "f1", "content": content });
    let receipt = recorded.world.client().effect("host.fs.write_file", params);
    expect("the last write", &receipt, &["ok"])?;
    recorded.world.kill9();
    recorded.damaged("journal.db-wal", |wal| wal.truncate(last_commit(wal).1 - 1))?;
    let received = recorded.receive()?;
    received.started?;
    check(received.verify.0 == 0, || format!("aos verify: {}", received.verify.1))?;
    let last: Value = log_lines(&recorded.world)
        .last()
        .map(|line| serde_json::from_str(line).unwrap_or_default())
        .unwrap_or_default();
    expect("the write that was cut off", &last["receipt"], &["error / interrupted_rolled_back"])?;
    let found = recorded.world.read("f1");
    check(found == before, || format!("f1 holds `{}`", String::from_utf8_lossy(&found)))?;
    recorded.discard();
    Ok(())
}

fn cut_database(recorded: &mut Recorded, cut: usize) -> Outcome {
    let mut length = 0;
    recorded.damaged("journal.db", |database| {
        length = database.len();
        database.truncate(database.len().saturating_sub(cut));
    })?;
    if cut >= length {
        return Ok(()); // an empty file is OWN-EMPTY-JOURNAL
    }
    let received = recorded.receive()?;
    let (code, said) = received.verify;
    check(code != 0, || {
        format!("database cut by {cut} of {length}: aos verify says {said}, daemon {:?}", received.started)
    })?;
    recorded.discard();
    Ok(())
}

/// The journal is empty or missing, beside the blobs, pre-images and log of a home that was in use: starting afresh
/// would silently drop every record.
pub fn emptied() -> Outcome {
    let mut recorded = Recorded::new()?;
    let mut wrong = Vec::new();
    for (what, keep_log, keep_file) in
        [("emptied", true, true), ("emptied, its log gone", false, true), ("removed", true, false)]
    {
        recorded.damaged("journal.db", Vec::clear)?;
        let state = recorded.world.home.join("state");
        if !keep_log {
            let _ = std::fs::remove_file(state.join("journal.db-wal"));
        }
        if !keep_file {
            let _ = std::fs::remove_file(state.join("journal.db"));
        }
        let log = std::fs::read(state.join("journal.db-wal")).ok();
        let received = recorded.receive()?;
        let records = log_lines(&recorded.world).len();
        if std::fs::read(state.join("journal.db-wal")).ok() != log {
            wrong.push(format!("journal.db {what}: its log, which is all that is left, was touched"));
        }
        if received.started.is_ok() && received.verify.0 == 0 && records < RECORDS {
            wrong.push(format!(
                "journal.db {what}: {records} of {RECORDS} records are left and nobody says so"
            ));
        }
        recorded.discard();
    }
    check(wrong.is_empty(), || wrong.join("; "))
}

/// A log whose header was allocated on the disk but never written: the power failed before the first commit.
pub fn begun_log() -> Outcome {
    let mut recorded = Recorded::checkpointed()?;
    let log = recorded.whole.join("state/journal.db-wal");
    let private = std::fs::Permissions::from_mode(0o600);
    let made = std::fs::write(&log, "").and_then(|()| std::fs::set_permissions(&log, private));
    made.map_err(|why| why.to_string())?;
    recorded.damaged("journal.db-wal", |bytes| *bytes = vec![0; 32])?;
    let received = recorded.receive()?;
    check(received.started.is_ok() && received.verify.0 == 0, || {
        format!("{:?}: {}", received.started, received.verify.1)
    })?;
    let found = log_lines(&recorded.world);
    check(found == recorded.log, || format!("{} of {RECORDS} records are there", found.len()))?;
    recorded.discard();
    Ok(())
}

/// JRNL-03: in the database file, which holds all records once the log is checkpointed.
pub fn flipped() -> Outcome {
    let mut recorded = Recorded::checkpointed()?;
    let length =
        std::fs::metadata(recorded.whole.join("state/journal.db")).map_err(|why| why.to_string())?.len();
    let bodies = bodies(&recorded.whole)?;
    let seed = new_seed();
    let mut random = Random::new(seed);
    let header = (0..full_figure(100, 12)).map(|n| if is_full() { n } else { n * 8 + 3 });
    let anywhere = (0..full_figure(200, 30)).map(|_| random.below(length as usize)).collect::<Vec<_>>();
    for offset in header.chain(anywhere) {
        let bit = offset % 8;
        let mut hit = None;
        recorded.damaged("journal.db", |database| {
            hit = record_at(database, offset, &bodies);
            database[offset] ^= 1 << bit;
        })?;
        let what = format!("seed {seed}: bit {bit} of byte {offset} flipped");
        seen_or_harmless(&mut recorded, &what, hit)?;
    }
    recorded.world.finish()
}

/// The same in a write-ahead log that a kill left, and in one that a clean stop left. The last commit is excluded: a
/// torn end is not damage.
pub fn flipped_log() -> Outcome {
    let mut recorded = Recorded::new()?;
    let seed = new_seed();
    let mut random = Random::new(seed);
    for _ in 0..full_figure(200, 10) {
        let mut what = String::new();
        recorded.damaged("journal.db-wal", |wal| {
            let offset = random.below(last_commit(wal).0);
            what = format!("seed {seed}: bit {} of byte {offset} of the log flipped", offset % 8);
            wal[offset] ^= 1 << (offset % 8);
        })?;
        seen_or_harmless(&mut recorded, &what, None)?;
    }
    recorded.world.finish()
}

/// `aos verify` or the start reports the damage and names the record; or nothing is different.
fn seen_or_harmless(recorded: &mut Recorded, what: &str, hit: Option<u64>) -> Outcome {
    let received = recorded.receive()?;
    let (code, said) = received.verify;
    let seen = code != 0 || received.started.is_err();
    if let (Some(seq), true) = (hit, seen) {
        let named = [format!("entry {seq} "), format!("entry {seq}:")];
        check(named.iter().any(|name| said.contains(name)), || {
            format!("{what}, in the body of entry {seq}, which nobody names: {said}")
        })?;
    }
    if !seen {
        let (code, out, err) = recorded.world.aos(&["replay", "--verify"]);
        check(code == 0 && out.trim() == "MATCH", || format!("{what}: replay: {code}: {out}{err}"))?;
        let log = log_lines(&recorded.world);
        check(log == recorded.log, || {
            format!("{what}: {} of {} records are left or changed, silently", log.len(), recorded.log.len())
        })?;
    }
    recorded.discard();
    Ok(())
}

/// The bodies of all entries, by sequence number.
fn bodies(home: &Path) -> Result<Vec<Vec<u8>>, String> {
    let mut bodies = vec![Vec::new()];
    let reader = Reader::open(home).map_err(|why| why.to_string())?;
    let read = reader.entries(0, |row| {
        bodies.push(row.body.clone());
        Ok(true)
    });
    read.map_err(|why| why.to_string())?;
    Ok(bodies)
}

/// The entry whose body covers `offset` of the database file, if one does.
fn record_at(database: &[u8], offset: usize, bodies: &[Vec<u8>]) -> Option<u64> {
    let opening: &[u8] = b"{\"at_ns\":";
    // An entry is within one page, or its first part is.
    let page = u16::from_be_bytes([database[16], database[17]]) as usize;
    let begin = (offset / page * page..=offset).rev().find(|at| database[*at..].starts_with(opening))?;
    let here = &database[begin..];
    let seq = bodies.iter().position(|body| !body.is_empty() && here.starts_with(body))?;
    // State and intents repeat parts of entries; only the row itself is the record.
    (offset < begin + bodies[seq].len()).then_some(seq as u64)
}
