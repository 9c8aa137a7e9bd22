//! The journal's database file: its schema, and checks that run before SQLite opens it.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use crate::fault::Fault;
use crate::wal;

/// The tables. [`check_schema`] compares them with the ones in the file.
pub(crate) const SCHEMA: &[(&str, &str)] = &[
    (
        "entry",
        "CREATE TABLE entry (seq INTEGER PRIMARY KEY, body BLOB NOT NULL, chain BLOB NOT NULL, closes INTEGER)",
    ),
    ("state", "CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"),
    ("folded", "CREATE TABLE folded (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL)"),
    ("intent", "CREATE TABLE intent (id INTEGER PRIMARY KEY, body BLOB NOT NULL, digest BLOB NOT NULL)"),
];
/// `aosj` in ASCII. `file(1)` and [`check_schema`] recognise the database by it.
pub(crate) const APPLICATION_ID: i32 = 0x616f_736a;
pub(crate) const SCHEMA_VERSION: i32 = 1;
/// Several entries fit into one page of this size, so most commits write one page. Measured: a third faster than
/// SQLite's default of 4096 for entries of one to two kilobytes.
pub(crate) const PAGE_BYTES: i64 = 8192;
/// Created together with the journal. Where this file exists, an empty journal is a lost journal.
pub(crate) const CREATED_MARKER: &str = "journal.made";

/// Refuses an empty or missing journal in a home that was used before. This must run before SQLite opens the file:
/// SQLite deletes the WAL of an empty database, and with it the entries that are left.
pub(crate) fn check_not_lost(journal: &Path) -> Result<(), Fault> {
    let is_empty = rustix::fs::stat(journal).map_or(true, |stat| stat.st_size == 0);
    if is_empty && rustix::fs::lstat(journal.with_file_name(CREATED_MARKER)).is_ok() {
        return Err(Fault::Refused(format!(
            "the journal is lost: {} is missing or empty in a home that was used; restore it from a copy, or choose another AOS_HOME",
            journal.display()
        )));
    }
    Ok(())
}

/// Refuses a database file that was cut inside a page. SQLite reads a page from the WAL when the WAL has it, so it may
/// not notice the cut. A checkpoint on a full disk may end inside a page too: at a block, and the WAL still has the page.
pub(crate) fn check_length(path: &Path) -> Result<(), Fault> {
    let length = || rustix::fs::stat(path).map_or(0, |stat| stat.st_size);
    let Some(bytes) = torn_length(length, || std::thread::sleep(LENGTH_PAUSE)) else { return Ok(()) };
    let in_wal = wal::check(path).unwrap_or_default();
    let page = u32::try_from(bytes / PAGE_BYTES + 1).ok();
    if bytes % BLOCK_BYTES == 0 && page.is_some_and(|page| in_wal.hold(page)) {
        return Ok(());
    }
    Err(Fault::Refused(format!(
        "the journal is damaged: {} is {bytes} bytes long, which is not a multiple of the page size; restore it from a copy",
        path.display(),
    )))
}

/// The smallest block of a file system.
const BLOCK_BYTES: i64 = 512;

/// A checkpoint of a running daemon may extend the file in several writes, so a reader retries.
const LENGTH_TRIES: usize = 50;
const LENGTH_PAUSE: Duration = Duration::from_millis(2);

/// The length of the file if it is not a multiple of the page size and stays so.
fn torn_length(length: impl Fn() -> i64, mut pause: impl FnMut()) -> Option<i64> {
    for _ in 0..LENGTH_TRIES {
        if length() % PAGE_BYTES == 0 {
            return None;
        }
        pause();
    }
    Some(length())
}

pub(crate) fn create_or_check(connection: &mut Connection) -> Result<(), Fault> {
    let version: i32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if version == 0 && application == 0 {
        let creation = connection.transaction()?;
        for (_, sql) in SCHEMA {
            creation.execute_batch(sql)?;
        }
        creation.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        ))?;
        return Ok(creation.commit()?);
    }
    check_schema(connection)
}

pub(crate) fn check_schema(connection: &Connection) -> Result<(), Fault> {
    let version: i32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if application != APPLICATION_ID || version != SCHEMA_VERSION {
        return Err(Fault::Refused(format!(
            "journal.db was not written by this version of aos: application {application:#x} version {version}, expected {APPLICATION_ID:#x} version {SCHEMA_VERSION}"
        )));
    }
    let mut select = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY rowid")?;
    let found: Vec<(String, String)> =
        select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let expected = SCHEMA.iter().map(|(name, sql)| ((*name).to_owned(), (*sql).to_owned()));
    if !found.iter().cloned().eq(expected) {
        return Err(Fault::Refused(
            "the journal is damaged: its tables differ from the ones that aos creates; restore it from a copy"
                .into(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{PAGE_BYTES, torn_length};

    /// A running daemon appends a page in two writes; a file that was cut keeps its length.
    #[test]
    fn a_page_that_is_being_written_is_not_damage() {
        let length = Cell::new(3 * PAGE_BYTES - PAGE_BYTES / 2);
        assert_eq!(torn_length(|| length.get(), || length.set(3 * PAGE_BYTES)), None);
        length.set(PAGE_BYTES + 1);
        assert_eq!(torn_length(|| length.get(), || ()), Some(PAGE_BYTES + 1));
    }
}
