//! Notices that the files of the journal are not the ones that were opened any more, or that another program wrote to them.
//!
//! SQLite keeps writing to a file that was unlinked, and reads what another connection committed. Neither may end in an
//! acknowledged receipt.

use std::os::fd::OwnedFd;

use rusqlite::{Connection, FileControl};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};

use crate::fault::Fault;
use crate::home::Home;

const DATABASE: &str = "journal.db";
const WAL: &str = "journal.db-wal";

/// The database and its write-ahead log, as they were last seen.
#[derive(Debug)]
pub(crate) struct OwnFiles {
    folder: OwnedFd,
    /// The log that is written to, whatever has its name. O_PATH: closing it drops no POSIX lock.
    open_wal: OwnedFd,
    database: Seen,
    wal: Seen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    dev: u64,
    ino: u64,
    bytes: i64,
}

impl OwnFiles {
    /// The log exists, because a connection has written or checkpointed already.
    pub(crate) fn new(home: &Home) -> Result<OwnFiles, Fault> {
        let folder = rustix::io::fcntl_dupfd_cloexec(home.state(), 0)
            .map_err(|why| Fault::io("cannot keep the state folder open", why))?;
        let missing = |name: &str| Fault::Refused(format!("{name} is missing right after it was opened"));
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(OwnFiles {
            open_wal: rustix::fs::openat(&folder, WAL, flags, Mode::empty()).map_err(|_| missing(WAL))?,
            database: look(&folder, DATABASE).ok_or_else(|| missing(DATABASE))?,
            wal: look(&folder, WAL).ok_or_else(|| missing(WAL))?,
            folder,
        })
    }

    /// Before a commit, because writing makes a log that was cut long again.
    pub(crate) fn check_before(&mut self) -> Result<(), String> {
        let now = rustix::fs::fstat(&self.open_wal).map_err(|why| format!("{WAL}: {why}"))?;
        self.wal.compare(WAL, Seen::from(now))
    }

    /// After a commit: what has the names of the journal's files is what was written. Neither gets shorter, except where
    /// `wal_truncated` says so.
    pub(crate) fn check_after(&mut self) -> Result<(), String> {
        for (name, seen) in [(DATABASE, &mut self.database), (WAL, &mut self.wal)] {
            let now = look(&self.folder, name).ok_or_else(|| format!("{name} was removed"))?;
            seen.compare(name, now)?;
        }
        Ok(())
    }

    /// The log was truncated by this process.
    pub(crate) fn wal_truncated(&mut self) {
        self.wal.bytes = 0;
    }
}

impl Seen {
    fn compare(&mut self, name: &str, now: Seen) -> Result<(), String> {
        if (now.dev, now.ino) != (self.dev, self.ino) {
            return Err(format!("{name} was replaced by another file"));
        }
        if now.bytes < self.bytes {
            return Err(format!("{name} was cut from {} to {} bytes", self.bytes, now.bytes));
        }
        *self = now;
        Ok(())
    }
}

impl From<Stat> for Seen {
    fn from(stat: Stat) -> Seen {
        Seen { dev: stat.st_dev, ino: stat.st_ino, bytes: stat.st_size }
    }
}

fn look(folder: &OwnedFd, name: &str) -> Option<Seen> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(Seen::from)
}

/// Counts the commits of this connection, and each time that it finds a commit of another one, which it does when a
/// transaction begins. So it grows by one in a commit that nothing preceded. Checkpoints and reads do not change it.
/// `PRAGMA data_version` says the same, but needs a transaction of its own for it.
pub(crate) fn data_version(connection: &Connection) -> rusqlite::Result<u32> {
    let mut version = 0;
    connection.file_control(None::<&str>, FileControl::DataVersion(&mut version))?;
    Ok(version)
}
