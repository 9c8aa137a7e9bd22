//! Reads a home's journal from outside the daemon: it never writes and never blocks the daemon (I8).

use std::path::Path;

use aos_model::entry::Entry;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use crate::fault::Fault;
use crate::state_table::RecentChanges;
use crate::{file, home, read_only};

/// A read-only view of a journal, with or without a running daemon.
#[derive(Debug)]
pub struct Reader {
    pub(crate) connection: Connection,
}

/// One entry with its sequence number.
#[derive(Debug)]
pub struct Row {
    pub seq: u64,
    pub body: Vec<u8>,
    pub(crate) chain: Vec<u8>,
    pub(crate) closes: Option<u64>,
}

impl Row {
    pub fn entry(&self) -> Result<Entry<'_>, Fault> {
        serde_json::from_slice(&self.body)
            .map_err(|why| Fault::Refused(format!("entry {} is damaged: {why}", self.seq)))
    }
}

impl Reader {
    pub fn open(home_path: &Path) -> Result<Reader, Fault> {
        let path = home::journal_path(home_path);
        file::check_not_lost(&path)?;
        if rustix::fs::stat(&path).map_or(true, |stat| stat.st_size == 0) {
            return Err(Fault::Refused(format!(
                "{} has no journal yet; open a session first",
                home_path.display()
            )));
        }
        file::check_length(&path)?;
        let connection = open_read_only(&path)?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        connection.set_prepared_statement_cache_capacity(16);
        Ok(Reader { connection })
    }

    /// Starts a read transaction: everything that is read from here on comes from one snapshot of the journal.
    pub fn hold(&self) -> Result<(), Fault> {
        self.connection.execute_batch("BEGIN")?;
        Ok(())
    }

    pub fn head(&self) -> Result<u64, Fault> {
        let head: Option<i64> = self
            .connection
            .query_row("SELECT max(seq) FROM entry", [], |row| row.get(0))
            .optional()?
            .flatten();
        Ok(head.unwrap_or(0) as u64)
    }

    /// Entries after `after`, in order. `each` returns false to stop.
    pub fn entries(
        &self,
        after: u64,
        mut each: impl FnMut(&Row) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let mut select = self
            .connection
            .prepare("SELECT seq, body, chain, closes FROM entry WHERE seq > ? ORDER BY seq")?;
        let mut rows = select.query([after as i64])?;
        while let Some(row) = rows.next()? {
            let closes = row.get::<_, Option<i64>>(3)?.map(|id| id as u64);
            let row =
                Row { seq: row.get::<_, i64>(0)? as u64, body: row.get(1)?, chain: row.get(2)?, closes };
            if !each(&row)? {
                break;
            }
        }
        Ok(())
    }

    pub fn entry(&self, seq: u64) -> Result<Option<Row>, Fault> {
        let mut found = None;
        self.entries(seq.saturating_sub(1), |row| {
            found = (row.seq == seq).then(|| Row {
                seq,
                body: row.body.clone(),
                chain: row.chain.clone(),
                closes: row.closes,
            });
            Ok(false)
        })?;
        Ok(found)
    }

    pub fn state(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        RecentChanges::load(&self.connection)?.get(&self.connection, key)
    }

    pub fn state_below(&self, prefix: &str, each: &mut dyn FnMut(&str, &[u8])) -> Result<(), Fault> {
        RecentChanges::load(&self.connection)?.each_below(&self.connection, prefix, each)
    }
}

/// Opens the database, its WAL and its WAL index (`-shm`) read-only.
///
/// `readonly_shm=1` needs an existing `-shm` file. Without one, SQLite cannot read a WAL without write access and fails
/// with `SQLITE_CANTOPEN`. If the WAL is empty or missing (a clean stop, a copy), the database alone is complete, and
/// `immutable=1` reads it without any WAL.
fn open_read_only(path: &Path) -> Result<Connection, Fault> {
    if !read_only::register() {
        return Err(Fault::Refused("SQLite has no default VFS on this system".into()));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let uri = |options: &str| format!("file:{}?{options}", percent_encode(path));
    let wal_is_empty =
        || rustix::fs::stat(path.with_extension("db-wal")).map_or(true, |stat| stat.st_size == 0);
    let connection =
        Connection::open_with_flags_and_vfs(uri("mode=ro&readonly_shm=1"), flags, read_only::NAME)?;
    match connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())) {
        Ok(()) => Ok(connection),
        Err(error) if error.sqlite_error_code() != Some(rusqlite::ErrorCode::CannotOpen) => Err(error.into()),
        Err(_) if wal_is_empty() => {
            Ok(Connection::open_with_flags_and_vfs(uri("mode=ro&immutable=1"), flags, read_only::NAME)?)
        }
        Err(_) => open_and_rebuild_index(path),
    }
}

/// A copy of a home may lack `journal.db-shm`, the index of the WAL. SQLite rebuilds it where the folder is writable.
fn open_and_rebuild_index(path: &Path) -> Result<Connection, Fault> {
    let opened = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    match opened.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())) {
        Ok(()) => Ok(opened),
        Err(_) => Err(Fault::Refused(format!(
            "{} has a WAL whose index, journal.db-shm, is missing and cannot be created here; copy the home to a folder that you can write to",
            path.display()
        ))),
    }
}

fn percent_encode(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'-' | b'_');
    let encode = |b: &u8| if plain(*b) { (*b as char).to_string() } else { format!("%{b:02X}") };
    path.as_os_str().as_bytes().iter().map(encode).collect()
}
