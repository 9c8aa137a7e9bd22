//! The files of the daemon's log: appended to, rotated by size, bounded in number. What a line says is the caller's.
//!
//! The rotating writers on crates.io work by path and bring chrono and flate2. A home may come from anywhere, so these
//! files are opened below a folder handle, as regular files only, and made private.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::{Fault, disk};

const NAME: &str = "aosd.log";

/// How large the log may become.
#[derive(Debug, Clone, Copy)]
pub struct LogLimits {
    /// A file that would grow beyond this is rotated.
    pub file_bytes_max: u64,
    /// How many rotated files are kept: `aosd.log.1` is the newest of them.
    pub rotated_files_max: u32,
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits { file_bytes_max: 8 << 20, rotated_files_max: 4 }
    }
}

/// The folder `log/` of a home.
#[derive(Debug)]
pub struct LogDir {
    dir: OwnedFd,
}

/// The log, open for appending. There is one per home: the daemon's.
#[derive(Debug)]
pub struct LogWriter {
    dir: OwnedFd,
    limits: LogLimits,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    /// `None` while the file cannot be opened, on a full disk for example. Each line tries again.
    file: Option<OwnedFd>,
    bytes: u64,
    /// Lines that could not be written since the last one that could.
    lost: u64,
}

/// One file of the log, open for reading.
#[derive(Debug)]
pub struct LogPart {
    pub file: File,
    /// Device and inode: a file keeps them when it is rotated.
    pub id: (u64, u64),
}

impl LogDir {
    pub(crate) fn new(dir: OwnedFd) -> LogDir {
        LogDir { dir }
    }

    /// Opens the log for appending, rotating it first when it is full already.
    pub fn writer(&self, limits: LogLimits) -> Result<LogWriter, Fault> {
        let dir = self.dir.try_clone().map_err(|_| Fault::io("cannot open log/", Errno::MFILE))?;
        let current = match open_for_append(&dir) {
            Ok((file, bytes)) => Current { file: Some(file), bytes, lost: 0 },
            // A full disk must not keep the daemon from starting: reading and undoing still work.
            Err(Fault::Io { errno: Errno::NOSPC | Errno::DQUOT, .. }) => {
                Current { file: None, bytes: 0, lost: 0 }
            }
            Err(fault) => return Err(fault),
        };
        Ok(LogWriter { dir, limits, current: Mutex::new(current) })
    }

    /// The files there are, the oldest first. Links and whatever else is not a regular file are left out.
    pub fn parts(&self) -> Result<Vec<LogPart>, Fault> {
        let mut parts: Vec<LogPart> = Vec::new();
        // The newest is opened first: a rotation meanwhile shows a file twice, which can be seen, and hides none.
        for n in 0.. {
            let Some(part) = open_part(&self.dir, &rotated_name(n))? else {
                if n == 0 {
                    continue;
                }
                break;
            };
            if parts.iter().all(|known| known.id != part.id) {
                parts.push(part);
            }
        }
        parts.reverse();
        Ok(parts)
    }
}

impl LogWriter {
    /// Appends one line, its newline included. Nothing here panics or reports an error: a panic is logged here too, and
    /// a log that cannot be written has no other place to say so. Lost lines are counted and the count is written as soon
    /// as a line can be.
    pub fn append(&self, line: &[u8]) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full =
            current.bytes > 0 && current.bytes.saturating_add(line.len() as u64) > self.limits.file_bytes_max;
        if is_full && !self.rotate() {
            // Bounded in any case: where nothing can be renamed, the file starts anew.
            if let Some(file) = &current.file {
                let _ = rustix::fs::ftruncate(file, 0);
            }
            current.bytes = 0;
        } else if is_full {
            current.file = None;
        }
        if current.file.is_none()
            && let Ok((file, bytes)) = open_for_append(&self.dir)
        {
            (current.file, current.bytes) = (Some(file), bytes);
        }
        let Current { file, bytes, lost } = &mut *current;
        let Some(file) = file else {
            *lost += 1;
            return;
        };
        if *lost > 0 {
            let note = format!("({lost} lines before this one could not be written)\n");
            if disk::write_all(&*file, note.as_bytes()).is_ok() {
                *lost = 0;
                *bytes += note.len() as u64;
            }
        }
        match disk::write_all(&*file, line) {
            Ok(()) => *bytes += line.len() as u64,
            Err(_) => *lost += 1,
        }
    }

    /// Gives every file the next number; the last one is replaced. False when the current one could not be moved.
    fn rotate(&self) -> bool {
        let rename = |from: u32| {
            rustix::fs::renameat(&self.dir, rotated_name(from), &self.dir, rotated_name(from + 1)).is_ok()
        };
        if self.limits.rotated_files_max == 0 {
            return false;
        }
        for n in (1..self.limits.rotated_files_max).rev() {
            rename(n);
        }
        rename(0)
    }
}

/// The current file is number 0.
fn rotated_name(n: u32) -> String {
    if n == 0 { NAME.to_owned() } else { format!("{NAME}.{n}") }
}

/// The current file and its size. `O_NONBLOCK` because opening a FIFO without a reader would wait for one.
fn open_for_append(dir: impl AsFd) -> Result<(OwnedFd, u64), Fault> {
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    let other_kind =
        || Fault::Refused(format!("refusing to use log/{NAME}: it is not a regular file; move it away"));
    let file = match rustix::fs::openat(dir, NAME, flags, disk::PRIVATE_FILE) {
        Ok(file) => file,
        Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Err(other_kind()),
        Err(why) => return Err(Fault::io(format!("cannot open log/{NAME}"), why)),
    };
    let cannot = |why| Fault::io(format!("cannot look at log/{NAME}"), why);
    let stat = rustix::fs::fstat(&file).map_err(cannot)?;
    if !is_regular(&stat) {
        return Err(other_kind());
    }
    rustix::fs::fchmod(&file, disk::PRIVATE_FILE)
        .map_err(|why| Fault::io(format!("cannot make log/{NAME} private"), why))?;
    Ok((file, stat.st_size as u64))
}

fn open_part(dir: impl AsFd, name: &str) -> Result<Option<LogPart>, Fault> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(why) => return Err(Fault::io(format!("cannot open log/{name}"), why)),
    };
    let stat =
        rustix::fs::fstat(&file).map_err(|why| Fault::io(format!("cannot look at log/{name}"), why))?;
    Ok(is_regular(&stat).then(|| LogPart { file: file.into(), id: (stat.st_dev, stat.st_ino) }))
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::Home;

    fn text(parts: Vec<LogPart>) -> Vec<String> {
        let read = |mut part: LogPart| {
            let mut text = String::new();
            part.file.read_to_string(&mut text).unwrap();
            text
        };
        parts.into_iter().map(read).collect()
    }

    #[test]
    fn a_full_file_is_rotated_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Home::open(dir.path()).unwrap().logs().unwrap();
        let limits = LogLimits { file_bytes_max: 8, rotated_files_max: 2 };
        let log = logs.writer(limits).unwrap();
        for line in ["one\n", "two\n", "three\n", "four\n", "longer than a file\n", "six\n"] {
            log.append(line.as_bytes());
        }
        assert_eq!(text(logs.parts().unwrap()), ["four\n", "longer than a file\n", "six\n"]);
        // What a daemon before has written counts too.
        drop(log);
        let log = logs.writer(limits).unwrap();
        log.append(b"seven\n");
        assert_eq!(text(logs.parts().unwrap()), ["longer than a file\n", "six\n", "seven\n"]);
    }

    #[test]
    fn the_log_is_private_whatever_it_was_before() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path()).unwrap();
        let mode = |name: &str| {
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::statat(rustix::fs::CWD, dir.path().join(name), flags).unwrap().st_mode & 0o7777
        };
        home.logs().unwrap().writer(LogLimits::default()).unwrap().append(b"x\n");
        assert_eq!((mode("log"), mode("log/aosd.log")), (0o700, 0o600));
        for (name, open) in [("log", 0o755), ("log/aosd.log", 0o644)] {
            rustix::fs::chmod(dir.path().join(name), Mode::from_raw_mode(open)).unwrap();
        }
        home.logs().unwrap().writer(LogLimits::default()).unwrap().append(b"x\n");
        assert_eq!((mode("log"), mode("log/aosd.log")), (0o700, 0o600));
    }

    #[test]
    fn links_and_pipes_are_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Home::open(dir.path()).unwrap().logs().unwrap();
        let log = dir.path().join("log/aosd.log");
        let refused = || match logs.writer(LogLimits::default()) {
            Err(Fault::Refused(why)) => assert!(why.contains("not a regular file"), "{why}"),
            other => panic!("{other:?}"),
        };
        rustix::fs::symlink(dir.path().join("target"), &log).unwrap();
        refused();
        assert!(logs.parts().unwrap().is_empty());
        rustix::fs::unlink(&log).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &log, FileType::Fifo, mode, 0).unwrap();
        refused();
        assert!(logs.parts().unwrap().is_empty());
    }

    #[test]
    fn where_nothing_can_be_renamed_the_file_starts_anew() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Home::open(dir.path()).unwrap().logs().unwrap();
        let log = logs.writer(LogLimits { file_bytes_max: 8, rotated_files_max: 1 }).unwrap();
        rustix::fs::mkdir(dir.path().join("log/aosd.log.1"), Mode::from_raw_mode(0o700)).unwrap();
        log.append(b"first\n");
        log.append(b"second\n");
        assert_eq!(text(logs.parts().unwrap()), ["second\n"]);
    }
}
