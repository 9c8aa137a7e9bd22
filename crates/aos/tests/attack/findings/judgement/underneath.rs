//! A journal that another program changes while the daemon runs, or between two daemons.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::{Value, json};

use aos_testkit::{World, check, expect};

use crate::Outcome;

fn journal(world: &World) -> PathBuf {
    world.home.join("state/journal.db")
}

fn write(world: &World, session: &str, path: &str) -> Value {
    let content = json!({ "inline_text": { "text": path } });
    world.client().fs(session, "write_file", json!({ "path": path, "content": content }))
}

fn cut(path: &Path, bytes: u64) {
    std::fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(bytes)).unwrap();
}

/// One change of the journal by another program.
type Change = fn(&Path);

fn sql(journal: &Path, statement: &str) {
    Connection::open(journal).unwrap().execute_batch(statement).unwrap();
}

fn replace(path: &Path) {
    let copy = path.with_extension("copy");
    std::fs::copy(path, &copy).unwrap();
    std::fs::rename(copy, path).unwrap();
}

/// Nothing is acknowledged after the journal was changed underneath: the daemon stops and says why.
pub fn noticed_before_acknowledging() -> Outcome {
    let changes: &[(&str, Change)] = &[
        ("unlinked", |journal| std::fs::remove_file(journal).unwrap()),
        ("replaced by a copy", replace),
        ("cut", |journal| cut(journal, 8192)),
        ("emptied", |journal| cut(journal, 0)),
        ("its log unlinked", |journal| std::fs::remove_file(journal.with_extension("db-wal")).unwrap()),
        ("its log replaced", |journal| replace(&journal.with_extension("db-wal"))),
        ("its log emptied", |journal| cut(&journal.with_extension("db-wal"), 0)),
        ("an entry removed", |journal| sql(journal, "DELETE FROM entry WHERE seq = 2")),
        ("an entry inserted", |journal| {
            sql(
                journal,
                "INSERT INTO entry SELECT seq + 7, body, chain, NULL FROM entry ORDER BY seq DESC LIMIT 1",
            );
        }),
        ("an entry changed", |journal| sql(journal, "UPDATE entry SET body = body || ' ' WHERE seq = 2")),
        ("the state changed", |journal| sql(journal, "DELETE FROM folded")),
        ("a link in its place", |journal| {
            let aside = journal.with_extension("aside");
            std::fs::rename(journal, &aside).unwrap();
            std::os::unix::fs::symlink(aside, journal).unwrap();
        }),
    ];
    for (what, change) in changes {
        let mut world = World::new();
        let session = world.open(json!({}));
        for name in ["a", "b", "c"] {
            expect(what, &write(&world, &session, name), &["ok"])?;
        }
        change(&journal(&world));
        let receipt = write(&world, &session, "after");
        check(receipt["status"] != "ok", || format!("{what}: {receipt}"))?;
        world.reap();
        let log = std::fs::read_to_string(world.home.join("log/aosd.log")).unwrap_or_default();
        check(log.contains("changed underneath"), || format!("{what}: the log says {log}"))?;
    }
    Ok(())
}

/// A daemon does not start on a chain that is broken near its end, nor on a state that is ahead of it.
pub fn checked_at_start() -> Outcome {
    let changes: &[(&str, &str)] = &[
        ("an entry removed", "DELETE FROM entry WHERE seq = 3"),
        ("the first entry removed", "DELETE FROM entry WHERE seq = 1"),
        ("the last entries removed", "DELETE FROM entry WHERE seq > 3"),
        ("an entry changed", "UPDATE entry SET body = body || ' ' WHERE seq = 3"),
        ("an intent closed", "UPDATE entry SET closes = 77 WHERE seq = 3"),
        ("a chain value changed", "UPDATE entry SET chain = zeroblob(32) WHERE seq = 3"),
        (
            "an entry added",
            "INSERT INTO entry SELECT seq + 1, body, chain, NULL FROM entry ORDER BY seq DESC LIMIT 1",
        ),
        ("all numbers shifted", "UPDATE entry SET seq = seq + 1000; UPDATE entry SET seq = seq - 999"),
        ("the state ahead", "UPDATE folded SET seq = 1000"),
    ];
    for (what, statement) in changes {
        let mut world = World::new();
        let session = world.open(json!({}));
        for name in ["a", "b", "c", "d"] {
            expect(what, &write(&world, &session, name), &["ok"])?;
        }
        world.terminate();
        sql(&journal(&world), statement);
        match world.try_start_daemon() {
            Ok(()) => return Err(format!("{what}: the daemon starts")),
            Err(said) => {
                check(said.contains("the journal is damaged"), || format!("{what}: it says {said}"))?;
            }
        }
    }
    Ok(())
}

/// A foreign lock fails a write after a bounded time, once for a whole request, and harms nothing.
pub fn a_foreign_lock() -> Outcome {
    let world = World::new();
    let session = world.open(json!({}));
    expect("before", &write(&world, &session, "before"), &["ok"])?;
    let foreign = Connection::open(journal(&world)).map_err(|why| why.to_string())?;
    foreign.execute_batch("BEGIN EXCLUSIVE").map_err(|why| why.to_string())?;
    for path in ["during", "during2"] {
        let begun = Instant::now();
        expect(path, &write(&world, &session, path), &["error / io_error"])?;
        // Three waits would be fifteen seconds.
        check(begun.elapsed() < Duration::from_secs(12), || format!("{:?}", begun.elapsed()))?;
        check(!world.root.join(path).exists(), || format!("{path} was written"))?;
    }
    foreign.execute_batch("ROLLBACK").map_err(|why| why.to_string())?;
    expect("after", &write(&world, &session, "after"), &["ok"])?;
    drop(foreign);
    world.finish()
}

/// Readers, checkpoints and restarts are not changes: a busy daemon goes on.
pub fn readers_are_no_change() -> Outcome {
    let mut world = World::new();
    let session = world.open(json!({}));
    let filling = "x".repeat(16_000);
    for round in 0..3 {
        let mut client = world.client();
        for n in 0..150 {
            let content = json!({ "inline_text": { "text": format!("{filling}{round}-{n}") } });
            client.must(&session, "write_file", json!({ "path": "f", "content": content }), &["ok"])?;
            if n % 50 == 0 {
                let (code, _, err) = world.aos(&["log"]);
                check(code == 0, || format!("aos log: {code}: {err}"))?;
                let (code, out, err) = world.aos(&["replay", "--verify"]);
                check(code == 0, || format!("aos replay: {code}: {out}{err}"))?;
                let foreign = Connection::open(journal(&world)).map_err(|why| why.to_string())?;
                let count = foreign.query_row("SELECT count(*) FROM entry", [], |row| row.get::<_, i64>(0));
                check(count.is_ok_and(|count| count > 0), || "the journal cannot be read".into())?;
            }
        }
        if round == 0 {
            world.kill9();
        } else {
            world.terminate();
        }
        world.start_daemon();
    }
    world.finish()
}
