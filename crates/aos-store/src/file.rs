//! The journal's file: what it looks like when it is ours and whole, looked at before SQLite does.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use crate::Fault;

/// The tables. `verify` compares them with what a file really holds.
pub(crate) const SCHEMA: &[(&str, &str)] = &[
    (
        "entry",
        "CREATE TABLE entry (seq INTEGER PRIMARY KEY, body BLOB NOT NULL, chain BLOB NOT NULL, closes INTEGER)",
    ),
    ("state", "CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"),
    ("folded", "CREATE TABLE folded (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL)"),
    ("intent", "CREATE TABLE intent (id INTEGER PRIMARY KEY, body BLOB NOT NULL, digest BLOB NOT NULL)"),
];
/// `aosj`, so that `file` and we know the database for ours.
pub(crate) const APPLICATION_ID: i32 = 0x616f_736a;
pub(crate) const SCHEMA_VERSION: i32 = 1;
/// Several entries fit into a page of this size, so that most commits write one page. Measured: a third faster than
/// 4096 for entries of one to two kilobytes.
pub(crate) const PAGE_BYTES: i64 = 8192;
/// Stands beside the journal from the first day, so that an empty journal is known to be a lost one.
pub(crate) const MADE: &str = "journal.made";

/// Looked at before SQLite is: it throws away the log of an empty journal, and all that is left with it.
pub(crate) fn check_not_lost(journal: &Path) -> Result<(), Fault> {
    let is_empty = rustix::fs::stat(journal).map_or(true, |stat| stat.st_size == 0);
    if is_empty && rustix::fs::lstat(journal.with_file_name(MADE)).is_ok() {
        return Err(Fault::Refused(format!(
            "the journal is lost: {} is missing or empty in a home that was used; restore it from a copy, or choose another AOS_HOME",
            journal.display()
        )));
    }
    Ok(())
}

/// SQLite reads pages past a torn end from the log when it can, so a cut file may look whole. We look first.
pub(crate) fn check_length(path: &Path) -> Result<(), Fault> {
    let length = || rustix::fs::stat(path).map_or(0, |stat| stat.st_size);
    let Some(bytes) = torn_length(length, || std::thread::sleep(LENGTH_PAUSE)) else { return Ok(()) };
    Err(Fault::Refused(format!(
        "the journal is damaged: {} is {bytes} bytes long, which is no whole number of pages; restore it from a copy",
        path.display(),
    )))
}

/// A page that a daemon is just writing makes the file longer piece by piece: who reads beside it looks again.
const LENGTH_TRIES: usize = 50;
const LENGTH_PAUSE: Duration = Duration::from_millis(2);

/// A length that is no whole number of pages, and stays so.
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
        let make = connection.transaction()?;
        for (_, sql) in SCHEMA {
            make.execute_batch(sql)?;
        }
        make.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        ))?;
        return Ok(make.commit()?);
    }
    check_schema(connection)
}

pub(crate) fn check_schema(connection: &Connection) -> Result<(), Fault> {
    let version: i32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if application != APPLICATION_ID || version != SCHEMA_VERSION {
        return Err(Fault::Refused(format!(
            "journal.db is no journal of this aos: application {application:#x} version {version}, expected {APPLICATION_ID:#x} version {SCHEMA_VERSION}"
        )));
    }
    let mut select = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY rowid")?;
    let found: Vec<(String, String)> =
        select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let expected = SCHEMA.iter().map(|(name, sql)| ((*name).to_owned(), (*sql).to_owned()));
    if !found.iter().cloned().eq(expected) {
        return Err(Fault::Refused(
            "the journal is damaged: its tables are not the ones that aos makes".into(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{PAGE_BYTES, torn_length};

    /// A daemon beside the reader adds a page in two pieces; a file that was cut stays as it is.
    #[test]
    fn a_page_that_is_being_written_is_no_damage() {
        let length = Cell::new(3 * PAGE_BYTES - PAGE_BYTES / 2);
        assert_eq!(torn_length(|| length.get(), || length.set(3 * PAGE_BYTES)), None);
        length.set(PAGE_BYTES + 1);
        assert_eq!(torn_length(|| length.get(), || ()), Some(PAGE_BYTES + 1));
    }
}
