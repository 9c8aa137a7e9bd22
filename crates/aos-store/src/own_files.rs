//! Notices that the files of the journal are not the ones that were opened any more, or that another program wrote to them.
//!
//! SQLite keeps writing to a file that was unlinked, and reads what another connection committed. Neither may end in an
//! acknowledged receipt.

use std::os::fd::OwnedFd;

use rusqlite::Connection;
use rustix::fs::AtFlags;

use crate::fault::Fault;
use crate::home::Home;

const DATABASE: &str = "journal.db";
const WAL: &str = "journal.db-wal";

/// The database and its write-ahead log, as they were last seen.
#[derive(Debug)]
pub(crate) struct OwnFiles {
    folder: OwnedFd,
    database: Seen,
    wal: Seen,
    /// SQLite's counter of the commits of other connections. Checkpoints and reads do not change it.
    data_version: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    dev: u64,
    ino: u64,
    bytes: i64,
}

impl OwnFiles {
    /// `connection` has written or checkpointed already, so that the log exists.
    pub(crate) fn new(home: &Home, connection: &Connection) -> Result<OwnFiles, Fault> {
        let folder = rustix::io::fcntl_dupfd_cloexec(home.state(), 0)
            .map_err(|why| Fault::io("cannot keep the state folder open", why))?;
        let missing = |name: &str| Fault::Refused(format!("{name} is missing right after it was opened"));
        Ok(OwnFiles {
            database: look(&folder, DATABASE).ok_or_else(|| missing(DATABASE))?,
            wal: look(&folder, WAL).ok_or_else(|| missing(WAL))?,
            data_version: data_version(connection)?,
            folder,
        })
    }

    /// Compares the files with what was seen last. Neither gets shorter, except where `wal_truncated` says so.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        for (name, seen) in [(DATABASE, &mut self.database), (WAL, &mut self.wal)] {
            let Some(now) = look(&self.folder, name) else { return Err(format!("{name} was removed")) };
            if (now.dev, now.ino) != (seen.dev, seen.ino) {
                return Err(format!("{name} was replaced by another file"));
            }
            if now.bytes < seen.bytes {
                return Err(format!("{name} was cut from {} to {} bytes", seen.bytes, now.bytes));
            }
            *seen = now;
        }
        Ok(())
    }

    /// Also asks SQLite whether another connection committed something.
    pub(crate) fn check_after(&mut self, connection: &Connection) -> Result<(), String> {
        self.check()?;
        match data_version(connection) {
            Ok(now) if now == self.data_version => Ok(()),
            Ok(_) => Err("another program wrote to the journal".to_owned()),
            // A lock of another program; the next commit reports it.
            Err(why) => {
                tracing::warn!("the version of the journal could not be read: {why}");
                Ok(())
            }
        }
    }

    /// The log was truncated by this process.
    pub(crate) fn wal_truncated(&mut self) {
        self.wal.bytes = 0;
    }
}

fn look(folder: &OwnedFd, name: &str) -> Option<Seen> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(Seen { dev: stat.st_dev, ino: stat.st_ino, bytes: stat.st_size })
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}
