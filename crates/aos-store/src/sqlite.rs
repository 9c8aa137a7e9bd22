//! The journal in SQLite: one writer at a time, many entries per commit.
//!
//! There is no writer thread. A thread that wants to write takes the writer lock and commits for itself and for all
//! writes that queued up meanwhile (see [`crate::group`]).

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use aos_model::receipt::Durability;
use aos_model::state::Change;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::chain::{chain_value, check_end};
use crate::checkpoint::Checkpoints;
use crate::fault::{Fault, LOCK_POISONED};
use crate::file::{CREATED_MARKER, PAGE_BYTES, check_length, check_not_lost, create_or_check};
use crate::group::Group;
use crate::home::Home;
use crate::journal::{Append, Journal, OpenIntent};
use crate::own_files::{OwnFiles, data_version};
use crate::reserve::Reserve;
use crate::rights::own_ids;
use crate::slots::IntentSlots;
use crate::state_table::RecentChanges;
use crate::stop::{abort_if_fsync_failed, stop_if_changed};
use crate::{disk, wal};

/// How many entries the state table may lag behind the journal. Opening a home folds at most this many.
const FOLD_EVERY: u64 = 2048;

/// There is one writer, and in WAL mode readers do not block it. The timeout covers the moment in which another
/// connection holds the lock to recover the WAL, and a foreign program that holds it.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout after one that was over, until a commit succeeds: no request waits for the sum of several.
const BUSY_AGAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// Intents that no receipt has closed. The rows of closed intents are reused, and deleted at the next checkpoint of the
/// state: deleting each one in its own commit would write one page more per change.
const OPEN_INTENTS: &str = "SELECT id, body, digest FROM intent WHERE id NOT IN
    (SELECT closes FROM entry WHERE seq > coalesce((SELECT seq FROM folded), 0) AND closes IS NOT NULL) ORDER BY id";

/// The newest intent that left a trace. Ids are not used twice while an entry that closes one is looked at.
const LAST_INTENT: &str =
    "SELECT max((SELECT coalesce(max(id), 0) FROM intent), (SELECT coalesce(max(closes), 0) FROM entry
    WHERE seq > coalesce((SELECT seq FROM folded), 0)))";

/// The intents that the entries since the last checkpoint of the state closed.
const CLOSED_INTENTS: &str =
    "SELECT closes FROM entry WHERE seq > coalesce((SELECT seq FROM folded), 0) AND closes IS NOT NULL";

/// The journal of one home, open for writing. Only the daemon that holds the home's lock opens one.
#[derive(Debug)]
pub struct SqliteJournal {
    writer: Arc<Mutex<Writer>>,
    recent: Arc<RwLock<RecentChanges>>,
    group: Group<Write>,
    reader: Mutex<Connection>,
    slots: Arc<IntentSlots>,
    reserve: Arc<Reserve>,
    durability: Durability,
    next_intent: AtomicU64,
    head: AtomicU64,
    checkpoints: Arc<Checkpoints>,
    checkpointer: Option<JoinHandle<()>>,
}

/// What a thread needs to commit.
#[derive(Debug)]
struct Writer {
    connection: Connection,
    seq: u64,
    chain: [u8; 32],
    recent: Arc<RwLock<RecentChanges>>,
    slots: Arc<IntentSlots>,
    abandoned: Vec<u64>,
    /// Closed intents whose rows still exist. The next intent reuses such a row: the table stays on one page, and
    /// SQLite does not allocate and free a page for each change.
    closed: Vec<u64>,
    /// A commit failed and may have left frames in the WAL that belong to no commit.
    stale_frames: bool,
    /// The last commit waited for a lock in vain.
    was_busy: bool,
    files: OwnFiles,
}

#[derive(Debug)]
enum Write {
    Intent {
        id: u64,
        body: Vec<u8>,
        /// The row of an open intent has this id already, and gets a new body.
        replaces: bool,
    },
    Entry(Append),
}

impl SqliteJournal {
    pub fn open(home: &Home, durability: Durability) -> Result<SqliteJournal, Fault> {
        // First: on a full disk SQLite could not even create the files beside the database.
        let reserve = Arc::new(Reserve::open(home.state_dir())?);
        for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
            disk::check_private(home.state(), name)?;
        }
        check_length(&home.journal_path())?;
        check_not_lost(&home.journal_path())?;
        wal::check(&home.journal_path())?;
        // Created here with mode 0600, whatever the umask is (I11). SQLite gives the WAL and the -shm file the mode of
        // the database file.
        create_private(home, "journal.db")?;
        let mut connection = Connection::open(home.journal_path())?;
        configure(&connection, durability)?;
        create_or_check(&mut connection)?;
        // A killed daemon may have left the start of a commit in the WAL. With a WAL that starts empty, a valid frame
        // after an invalid one is always damage: see `wal::check`.
        truncate_wal(&connection);
        create_private(home, CREATED_MARKER)?;
        let (seq, chain) = check_end(&connection)?;
        let slots = Arc::new(IntentSlots::open(home)?);
        slots.load(&closed_intents(&connection)?)?;
        let last_intent: i64 = connection.query_row(LAST_INTENT, [], |row| row.get(0))?;
        let last_intent = slots.last_id().max(last_intent as u64);
        let reader = Connection::open_with_flags(home.journal_path(), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let recent = Arc::new(RwLock::new(RecentChanges::load(&connection)?));
        let files = OwnFiles::new(home)?;
        let writer = Arc::new(Mutex::new(Writer {
            connection,
            seq,
            chain,
            recent: recent.clone(),
            slots: slots.clone(),
            abandoned: Vec::new(),
            closed: Vec::new(),
            stale_frames: false,
            was_busy: false,
            files,
        }));
        let checkpoints = Arc::new(Checkpoints::default());
        let checkpoint_connection = Connection::open(home.journal_path())?;
        checkpoint_connection.busy_timeout(BUSY_TIMEOUT)?;
        let checkpointer = checkpoints.clone().start(checkpoint_connection, writer.clone());
        Ok(SqliteJournal {
            writer,
            recent,
            group: Group::default(),
            reader: Mutex::new(reader),
            slots,
            reserve,
            durability,
            next_intent: AtomicU64::new(last_intent + 1),
            head: AtomicU64::new(seq),
            checkpoints,
            checkpointer: Some(checkpointer),
        })
    }

    /// What is held back for a full disk.
    pub fn reserve(&self) -> Arc<Reserve> {
        self.reserve.clone()
    }

    fn write(&self, write: Write) -> Result<u64, Fault> {
        // Its files are open and its own: no capabilities are needed.
        let _own = own_ids();
        self.group.write(write, || self.lock_writer(), |writer, writes| self.commit(writer, writes))
    }

    fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().expect(LOCK_POISONED)
    }

    fn lock_reader(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock().expect(LOCK_POISONED)
    }

    fn recent(&self) -> RwLockReadGuard<'_, RecentChanges> {
        self.recent.read().expect(LOCK_POISONED)
    }

    fn commit(&self, writer: &mut Writer, writes: &[Write]) -> Result<Vec<u64>, Fault> {
        stop_if_changed(writer.files.check_before());
        let outcome = match writer.commit(writes) {
            // The reserve makes room for what is under way; what begins from now on is refused.
            Err(fault) if fault.is_full() && self.reserve.give_up() => writer.commit(writes),
            outcome => outcome,
        };
        writer.note_busy(outcome.as_ref().err());
        let numbers = outcome.inspect_err(|fault| {
            tracing::error!(writes = writes.len(), "a commit failed: {fault}");
            abort_if_fsync_failed(fault);
        })?;
        stop_if_changed(writer.files.check_after());
        self.head.store(writer.seq, Ordering::Release);
        self.checkpoints.wrote(writes.iter().map(Write::bytes).sum());
        Ok(numbers)
    }
}

impl Write {
    /// About how many bytes of WAL the write costs.
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

impl Writer {
    /// Commits all of `writes` in order, or none. Returns one number per write: an intent id or a sequence number.
    fn commit(&mut self, writes: &[Write]) -> Result<Vec<u64>, Fault> {
        let (seq, chain) = (self.seq, self.chain);
        let version = data_version(&self.connection)?;
        let mut fresh = Vec::new();
        // A single statement is a transaction by itself, so BEGIN and COMMIT are left out.
        let alone = self.abandoned.is_empty() && writes.len() == 1;
        if !alone {
            self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        }
        let outcome = self.delete_abandoned().and_then(|()| {
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
            // After some errors (SQLITE_FULL, SQLITE_IOERR) SQLite has rolled back already, and ROLLBACK fails.
            let _ = self.connection.execute_batch("ROLLBACK");
            self.stale_frames = true;
            return outcome;
        }
        // Committed: from here on an error would report as failed what is in the journal.
        let after = data_version(&self.connection).unwrap_or(version);
        if after != version.wrapping_add(1) {
            stop_if_changed(Err("another program wrote to it".to_owned()));
        }
        self.abandoned.clear();
        self.closed.extend(writes.iter().filter_map(Write::closes).filter(|id| !self.slots.close(*id)));
        if self.stale_frames {
            // Not before a commit succeeds: on a full disk, truncating the WAL would free space that the next commits
            // need.
            let _ = self.connection.busy_timeout(BUSY_AGAIN_TIMEOUT);
            self.stale_frames = !truncate_wal(&self.connection);
            self.files.wal_truncated();
            let _ = self.connection.busy_timeout(BUSY_TIMEOUT);
        }
        let mut recent = self.recent.write().expect(LOCK_POISONED);
        recent.accept(fresh);
        if recent.lag(self.seq) >= FOLD_EVERY {
            // When the checkpoint fails (a full disk), the next commit tries again.
            match self.slots.erase_closed().and_then(|()| recent.checkpoint(&mut self.connection, self.seq)) {
                Ok(()) => self.closed.clear(),
                Err(fault) => tracing::warn!("the state table is behind the journal: {fault}"),
            }
        }
        outcome
    }

    /// Shortens the wait for a lock that a foreign program holds, and restores it once a commit succeeds.
    fn note_busy(&mut self, failed: Option<&Fault>) {
        let is_busy = failed.map(Fault::is_busy);
        if is_busy.is_some_and(|is_busy| is_busy != self.was_busy) || (failed.is_none() && self.was_busy) {
            self.was_busy = is_busy.unwrap_or(false);
            let timeout = if self.was_busy { BUSY_AGAIN_TIMEOUT } else { BUSY_TIMEOUT };
            let _ = self.connection.busy_timeout(timeout);
        }
    }

    fn delete_abandoned(&self) -> Result<(), Fault> {
        for id in &self.abandoned {
            self.slots.remove(*id)?;
            self.connection.prepare_cached("DELETE FROM intent WHERE id = ?")?.execute([*id as i64])?;
        }
        Ok(())
    }

    fn put(&mut self, write: &Write, fresh: &mut Vec<Change>) -> Result<u64, Fault> {
        match write {
            Write::Intent { id, body, replaces } => {
                let digest: [u8; 32] = Sha256::digest(body).into();
                let id = *id as i64;
                // If this commit fails, the row is no longer in `closed`; the next checkpoint deletes it.
                let reusable = if *replaces { None } else { self.closed.pop() };
                let updated = match reusable {
                    Some(old) => self
                        .connection
                        .prepare_cached("UPDATE intent SET id = ?, body = ?, digest = ? WHERE id = ?")?
                        .execute(params![id, body, digest, old as i64])?,
                    None => 0,
                };
                if updated == 0 {
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
        let chain = chain_value(&self.chain, seq, append.closes, &append.body);
        let mut insert = self
            .connection
            .prepare_cached("INSERT INTO entry (seq, body, chain, closes) VALUES (?, ?, ?, ?)")?;
        insert.execute(params![seq as i64, append.body, chain, append.closes.map(|id| id as i64)])?;
        drop(insert);
        if !append.effects.is_empty() {
            let recent = self.recent.read().expect(LOCK_POISONED);
            let changes = recent.fold(fresh, &self.connection, seq, &append.effects);
            fresh.extend(changes);
        }
        (self.seq, self.chain) = (seq, chain);
        Ok(seq)
    }
}

impl Journal for SqliteJournal {
    fn begin_intent(&self, body: Vec<u8>) -> Result<u64, Fault> {
        self.reserve.check()?;
        let id = self.next_intent.fetch_add(1, Ordering::Relaxed);
        if self.durability == Durability::Process && self.slots.put(id, &body) {
            return Ok(id);
        }
        self.write(Write::Intent { id, body, replaces: false })
    }

    fn replace_intent(&self, intent: u64, body: Vec<u8>) -> Result<(), Fault> {
        self.reserve.check()?;
        let replaces = !self.slots.contains(intent);
        self.write(Write::Intent { id: intent, body, replaces })?;
        // Between the two both exist, and the row counts.
        self.slots.remove(intent).map(drop)
    }

    fn append(&self, append: Append) -> Result<u64, Fault> {
        self.write(Write::Entry(append))
    }

    fn abandon(&self, intent: u64) {
        if !matches!(self.slots.remove(intent), Ok(true)) {
            self.lock_writer().abandoned.push(intent);
        }
    }

    fn entry(&self, seq: u64) -> Result<Option<Vec<u8>>, Fault> {
        let reader = self.lock_reader();
        let mut select = reader.prepare_cached("SELECT body FROM entry WHERE seq = ?")?;
        Ok(select.query_row([seq as i64], |row| row.get(0)).optional()?)
    }

    fn open_intents(&self) -> Result<Vec<OpenIntent>, Fault> {
        let reader = self.lock_reader();
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
        let mut in_slots = self.slots.open_intents()?;
        in_slots.retain(|one| intents.iter().all(|row| row.id != one.id));
        intents.extend(in_slots);
        intents.sort_by_key(|intent| intent.id);
        Ok(intents)
    }

    fn state(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.recent().get(&self.lock_reader(), key)
    }

    fn state_below(&self, prefix: &str, each: &mut dyn FnMut(&str, &[u8])) -> Result<(), Fault> {
        self.recent().each_below(&self.lock_reader(), prefix, each)
    }

    fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    fn fold_now(&self) {
        let mut writer = self.lock_writer();
        let Writer { connection, seq, recent, slots, closed, .. } = &mut *writer;
        let mut recent = recent.write().expect(LOCK_POISONED);
        match slots.erase_closed().and_then(|()| recent.checkpoint(connection, *seq)) {
            Ok(()) => closed.clear(),
            Err(fault) => tracing::warn!("the state table is behind the journal: {fault}"),
        }
    }
}

impl Drop for SqliteJournal {
    fn drop(&mut self) {
        self.checkpoints.stop();
        if let Some(checkpointer) = self.checkpointer.take() {
            let _ = checkpointer.join();
        }
        if !self.writer.is_poisoned() {
            self.fold_now();
            truncate_wal(&self.lock_writer().connection);
        }
    }
}

/// Copies the whole WAL into the database and truncates it to zero bytes. False when a reader still uses the WAL, or
/// the disk is full.
fn truncate_wal(connection: &Connection) -> bool {
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)) {
        Ok(busy) => busy == 0,
        Err(why) => {
            tracing::warn!("the write-ahead log could not be truncated: {why}");
            false
        }
    }
}

fn closed_intents(connection: &Connection) -> Result<HashSet<u64>, Fault> {
    let mut select = connection.prepare(CLOSED_INTENTS)?;
    let ids = select.query_map([], |row| row.get::<_, i64>(0))?;
    Ok(ids.map(|id| id.map(|id| id as u64)).collect::<Result<_, _>>()?)
}

fn create_private(home: &Home, name: &str) -> Result<(), Fault> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(home.state(), name, flags, disk::PRIVATE_FILE)
        .map(drop)
        .map_err(|why| Fault::io(format!("cannot create {name}"), why))
}

fn configure(connection: &Connection, durability: Durability) -> Result<(), Fault> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(32);
    // In WAL mode NORMAL fsyncs the WAL only at a checkpoint: a commit survives the death of any process, but not a
    // power cut. FULL fsyncs the WAL at every commit.
    let synchronous = match durability {
        Durability::Process => "NORMAL",
        Durability::Power => "FULL",
    };
    // By default SQLite checkpoints inside the commit that makes the WAL exceed 1000 pages, and that request would be
    // slow. The checkpoint thread does it instead. `page_size` works only before the first table is created.
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 0; PRAGMA temp_store = MEMORY;"
    ))?;
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Fault::Refused(format!(
            "SQLite cannot use WAL mode for the journal (it reports mode {mode}); check that the disk of AOS_HOME has free space and is not a network file system"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
