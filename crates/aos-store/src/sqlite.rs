//! The journal in SQLite: one writer at a time, many entries a commit.
//!
//! There is no writer thread to hand work to and wait for: who wants to write takes the pen, as `group` says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use aos_model::receipt::Durability;
use aos_model::state::Change;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::checkpoint::Checkpoints;
use crate::file::{MADE, PAGE_BYTES, check_length, check_not_lost, create_or_check};
use crate::group::Group;
use crate::journal::{Append, Journal, OpenIntent};
use crate::state_table::Recent;
use crate::{Fault, Home, disk, wal};

/// How many entries the state table may lag behind the journal: what opening a home folds at most.
const FOLD_EVERY: u64 = 2048;

/// Nobody else writes; readers hold nobody up. This only covers the moment in which a reader recovers the log.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Intents that no receipt has closed. Closed ones make room for the next, and are swept when the state is brought up
/// to date, so that a change pays for one page less.
const OPEN_INTENTS: &str = "SELECT id, body, digest FROM intent WHERE id NOT IN
    (SELECT closes FROM entry WHERE seq > coalesce((SELECT seq FROM folded), 0) AND closes IS NOT NULL) ORDER BY id";

/// The chain value before the first entry.
pub(crate) const GENESIS: [u8; 32] = [0; 32];

/// Ties an entry to its place, to the intent it closes and to all before it.
pub(crate) fn link(previous: &[u8; 32], seq: u64, closes: Option<u64>, body: &[u8]) -> [u8; 32] {
    let place = Sha256::new().chain_update(previous).chain_update(seq.to_le_bytes());
    place.chain_update(closes.unwrap_or(0).to_le_bytes()).chain_update(body).finalize().into()
}

/// The journal of one home, open for writing. There is one of these a home: the daemon's.
#[derive(Debug)]
pub struct SqliteJournal {
    pen: Arc<Mutex<Pen>>,
    recent: Arc<RwLock<Recent>>,
    group: Group<Write>,
    reader: Mutex<Connection>,
    next_intent: AtomicU64,
    head: AtomicU64,
    checkpoints: Arc<Checkpoints>,
    checkpointer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Pen {
    connection: Connection,
    seq: u64,
    chain: [u8; 32],
    recent: Arc<RwLock<Recent>>,
    abandoned: Vec<u64>,
    /// Intents that an entry closed and whose rows still stand. The next intent takes such a row, so that the table
    /// stays on one page and no page is taken and given back for each change.
    closed: Vec<u64>,
    /// A commit failed and may have left pages in the log that belong to nothing.
    leftovers: bool,
}

#[derive(Debug)]
enum Write {
    /// `instead` of one that stands under this number.
    Intent {
        id: u64,
        body: Vec<u8>,
        instead: bool,
    },
    Entry(Append),
}

impl SqliteJournal {
    pub fn open(home: &Home, durability: Durability) -> Result<SqliteJournal, Fault> {
        for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
            disk::check_private(home.state(), name)?;
        }
        check_length(&home.journal_path())?;
        check_not_lost(&home.journal_path())?;
        wal::check(&home.journal_path())?;
        // Made here, so that it is private whatever the umask is; SQLite gives its other files the same mode.
        make_private(home, "journal.db")?;
        let mut connection = Connection::open(home.journal_path())?;
        configure(&connection, durability)?;
        create_or_check(&mut connection)?;
        // A killed daemon may have left the start of a commit in the log. With a log begun anew, whatever stands behind
        // a page that does not fit is damage, and can be told.
        empty_log(&connection);
        make_private(home, MADE)?;
        let last = connection
            .query_row("SELECT seq, chain FROM entry ORDER BY seq DESC LIMIT 1", [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get(1)?))
            })
            .optional()?;
        let (seq, chain) = last.map_or((0, GENESIS), |(seq, chain)| (seq as u64, chain));
        let last_intent: i64 =
            connection.query_row("SELECT coalesce(max(id), 0) FROM intent", [], |row| row.get(0))?;
        let reader = Connection::open_with_flags(home.journal_path(), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let recent = Arc::new(RwLock::new(Recent::load(&connection)?));
        let pen = Arc::new(Mutex::new(Pen {
            connection,
            seq,
            chain,
            recent: recent.clone(),
            abandoned: Vec::new(),
            closed: Vec::new(),
            leftovers: false,
        }));
        let checkpoints = Arc::new(Checkpoints::default());
        let mover = Connection::open(home.journal_path())?;
        mover.busy_timeout(BUSY_TIMEOUT)?;
        let checkpointer = checkpoints.clone().start(mover, pen.clone());
        Ok(SqliteJournal {
            pen,
            recent,
            group: Group::default(),
            reader: Mutex::new(reader),
            next_intent: AtomicU64::new(last_intent as u64 + 1),
            head: AtomicU64::new(seq),
            checkpoints,
            checkpointer: Some(checkpointer),
        })
    }

    fn write(&self, write: Write) -> Result<u64, Fault> {
        self.group.write(write, || self.lock_pen(), |pen, writes| self.commit(pen, writes))
    }

    fn lock_pen(&self) -> MutexGuard<'_, Pen> {
        self.pen.lock().expect("BUG: nobody panics with the pen")
    }

    fn commit(&self, pen: &mut Pen, writes: &[Write]) -> Result<Vec<u64>, Fault> {
        let numbers = pen.commit(writes).inspect_err(|fault| {
            tracing::error!(writes = writes.len(), "a commit failed: {fault}");
            stop_if_unsynced(fault);
        })?;
        self.head.store(pen.seq, Ordering::Release);
        self.checkpoints.wrote(writes.iter().map(Write::bytes).sum());
        Ok(numbers)
    }
}

impl Write {
    fn bytes(&self) -> u64 {
        match self {
            Write::Intent { body, .. } | Write::Entry(Append { body, .. }) => body.len() as u64 + 4096,
        }
    }

    fn closes(&self) -> Option<u64> {
        match self {
            Write::Intent { .. } => None,
            Write::Entry(append) => append.closes,
        }
    }
}

impl Pen {
    /// All of `writes` or none, in order. Returns their numbers: intent ids and sequence numbers.
    fn commit(&mut self, writes: &[Write]) -> Result<Vec<u64>, Fault> {
        let (seq, chain) = (self.seq, self.chain);
        let mut fresh = Vec::new();
        // One statement is a transaction by itself.
        let alone = self.abandoned.is_empty() && writes.len() == 1;
        if !alone {
            self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        }
        let outcome = self.forget_abandoned().and_then(|()| {
            let numbers = writes
                .iter()
                .map(|write| self.put(write, &mut fresh))
                .collect::<Result<Vec<u64>, Fault>>()?;
            if !alone {
                self.connection.prepare_cached("COMMIT")?.execute([])?;
            }
            Ok(numbers)
        });
        if outcome.is_err() {
            (self.seq, self.chain) = (seq, chain);
            // SQLite may have rolled back by itself; then there is nothing to roll back.
            let _ = self.connection.execute_batch("ROLLBACK");
            self.leftovers = true;
            return outcome;
        }
        self.abandoned.clear();
        self.closed.extend(writes.iter().filter_map(Write::closes));
        if self.leftovers {
            // Only now: while the disk is full, emptying the log would make room that is not there for good.
            self.leftovers = !empty_log(&self.connection);
        }
        let mut recent = self.recent.write().expect("BUG: nobody panics folding");
        recent.accept(fresh);
        if recent.lag(self.seq) >= FOLD_EVERY {
            // It can wait: when it fails (a full disk), the next commit tries again.
            match recent.checkpoint(&mut self.connection, self.seq) {
                Ok(()) => self.closed.clear(),
                Err(fault) => tracing::warn!("the state table was not brought up to date: {fault}"),
            }
        }
        outcome
    }

    fn forget_abandoned(&self) -> Result<(), Fault> {
        for id in &self.abandoned {
            self.connection.prepare_cached("DELETE FROM intent WHERE id = ?")?.execute([*id as i64])?;
        }
        Ok(())
    }

    fn put(&mut self, write: &Write, fresh: &mut Vec<Change>) -> Result<u64, Fault> {
        match write {
            Write::Intent { id, body, instead } => {
                let digest: [u8; 32] = Sha256::digest(body).into();
                let id = *id as i64;
                // A row that is taken in a commit that fails is no longer known here, and swept like any other.
                let taken = match if *instead { None } else { self.closed.pop() } {
                    Some(old) => self
                        .connection
                        .prepare_cached("UPDATE intent SET id = ?, body = ?, digest = ? WHERE id = ?")?
                        .execute(params![id, body, digest, old as i64])?,
                    None => 0,
                };
                if taken == 0 {
                    self.connection
                        .prepare_cached("INSERT OR REPLACE INTO intent (id, body, digest) VALUES (?, ?, ?)")?
                        .execute(params![id, body, digest])?;
                }
                Ok(id as u64)
            }
            Write::Entry(append) => self.append(append, fresh),
        }
    }

    fn append(&mut self, append: &Append, fresh: &mut Vec<Change>) -> Result<u64, Fault> {
        let seq = self.seq + 1;
        let chain = link(&self.chain, seq, append.closes, &append.body);
        let mut insert = self
            .connection
            .prepare_cached("INSERT INTO entry (seq, body, chain, closes) VALUES (?, ?, ?, ?)")?;
        insert.execute(params![seq as i64, append.body, chain, append.closes.map(|id| id as i64)])?;
        drop(insert);
        if !append.effects.is_empty() {
            let recent = self.recent.read().expect("BUG: nobody panics folding");
            let changes = recent.fold(fresh, &self.connection, seq, &append.effects);
            fresh.extend(changes);
        }
        (self.seq, self.chain) = (seq, chain);
        Ok(seq)
    }
}

impl Journal for SqliteJournal {
    fn intend(&self, body: Vec<u8>) -> Result<u64, Fault> {
        let id = self.next_intent.fetch_add(1, Ordering::Relaxed);
        self.write(Write::Intent { id, body, instead: false })
    }

    fn intend_instead(&self, intent: u64, body: Vec<u8>) -> Result<(), Fault> {
        self.write(Write::Intent { id: intent, body, instead: true }).map(drop)
    }

    fn append(&self, append: Append) -> Result<u64, Fault> {
        self.write(Write::Entry(append))
    }

    fn abandon(&self, intent: u64) {
        self.pen.lock().expect("BUG: nobody panics with the pen").abandoned.push(intent);
    }

    fn entry(&self, seq: u64) -> Result<Option<Vec<u8>>, Fault> {
        let reader = self.reader.lock().expect("BUG: nobody panics reading");
        let mut select = reader.prepare_cached("SELECT body FROM entry WHERE seq = ?")?;
        Ok(select.query_row([seq as i64], |row| row.get(0)).optional()?)
    }

    fn open_intents(&self) -> Result<Vec<OpenIntent>, Fault> {
        let reader = self.reader.lock().expect("BUG: nobody panics reading");
        let mut select = reader.prepare(OPEN_INTENTS)?;
        let mut rows = select.query([])?;
        let mut intents = Vec::new();
        while let Some(row) = rows.next()? {
            let (id, body, digest): (i64, Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if Sha256::digest(&body).as_slice() != digest {
                return Err(Fault::Refused(format!(
                    "the journal is damaged: intent {id} does not match its digest; run `aos verify`"
                )));
            }
            intents.push(OpenIntent { id: id as u64, body });
        }
        Ok(intents)
    }

    fn state(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        let recent = self.recent.read().expect("BUG: nobody panics folding");
        recent.get(&self.reader.lock().expect("BUG: nobody panics reading"), key)
    }

    fn state_below(&self, prefix: &str, each: &mut dyn FnMut(&str, &[u8])) -> Result<(), Fault> {
        let recent = self.recent.read().expect("BUG: nobody panics folding");
        recent.each_below(&self.reader.lock().expect("BUG: nobody panics reading"), prefix, each)
    }

    fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }
}

impl Drop for SqliteJournal {
    fn drop(&mut self) {
        self.checkpoints.stop();
        if let Some(checkpointer) = self.checkpointer.take() {
            let _ = checkpointer.join();
        }
        if let Ok(mut pen) = self.pen.lock() {
            let Pen { connection, seq, recent, .. } = &mut *pen;
            let folded = recent.write().expect("BUG: nobody panics folding").checkpoint(connection, *seq);
            if let Err(fault) = folded {
                tracing::warn!("the state table was not brought up to date: {fault}");
            }
            empty_log(&pen.connection);
        }
    }
}

/// Moves the whole log into the database and starts it anew. False when a reader or a full disk is in the way.
fn empty_log(connection: &Connection) -> bool {
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)) {
        Ok(busy) => busy == 0,
        Err(why) => {
            tracing::warn!("the write-ahead log could not be moved into the journal: {why}");
            false
        }
    }
}

fn make_private(home: &Home, name: &str) -> Result<(), Fault> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(home.state(), name, flags, disk::PRIVATE_FILE)
        .map(drop)
        .map_err(|why| Fault::io(format!("cannot make {name}"), why))
}

fn configure(connection: &Connection, durability: Durability) -> Result<(), Fault> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(32);
    let synchronous = match durability {
        Durability::Process => "NORMAL",
        Durability::Power => "FULL",
    };
    // Checkpoints are the checkpointer's work: inside a commit they would be somebody's latency.
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 0; PRAGMA temp_store = MEMORY;"
    ))?;
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Fault::Refused(format!(
            "the journal cannot be kept in a write-ahead log here (it is in mode {mode}); is the disk full?"
        )));
    }
    Ok(())
}

/// A failed fsync leaves nobody knowing what is on the disk: stopping is the only honest answer (rule 5).
fn stop_if_unsynced(fault: &Fault) {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    if let Fault::Journal(error) = fault
        && let Some(inner) = error.sqlite_error()
        && matches!(inner.extended_code, SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC)
    {
        let why = format!(
            "the journal could not be synced ({fault}); stopping so that nothing is acknowledged that may be lost"
        );
        tracing::error!("{why}");
        eprintln!("aosd: {why}");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use aos_model::state::Effects;

    use super::*;

    #[test]
    fn intents_take_the_rows_of_closed_ones_and_the_open_ones_stay_known() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path()).unwrap();
        let journal = SqliteJournal::open(&home, Durability::Process).unwrap();
        let close = |intent| {
            let append = Append { body: b"{}".to_vec(), effects: Effects::default(), closes: Some(intent) };
            journal.append(append).unwrap();
        };
        let open = || -> Vec<(u64, Vec<u8>)> {
            journal.open_intents().unwrap().into_iter().map(|intent| (intent.id, intent.body)).collect()
        };
        let stays = journal.intend(b"stays".to_vec()).unwrap();
        for _ in 0..20 {
            let passing = journal.intend(b"passing".to_vec()).unwrap();
            journal.intend_instead(passing, b"otherwise".to_vec()).unwrap();
            assert_eq!(open(), [(stays, b"stays".to_vec()), (passing, b"otherwise".to_vec())]);
            close(passing);
            assert_eq!(open(), [(stays, b"stays".to_vec())]);
        }
        let rows: i64 = journal
            .lock_pen()
            .connection
            .query_row("SELECT count(*) FROM intent", [], |row| row.get(0))
            .unwrap();
        assert_eq!(rows, 2, "one that is open, and one that makes room");
        close(stays);
        let abandoned = journal.intend(b"abandoned".to_vec()).unwrap();
        journal.abandon(abandoned);
        let last = journal.intend(b"last".to_vec()).unwrap();
        assert_eq!(open(), [(last, b"last".to_vec())]);
    }
}
