//! The daemon's log: one line a record, controls escaped, bounded in size.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use rustix::fs::{Mode, OFlags};

/// When the log has grown to this, it becomes `aosd.log.old` and a new one starts.
const LOG_BYTES_MAX: u64 = 8 << 20;
const NAME: &str = "aosd.log";

#[derive(Debug)]
pub(crate) struct LogFile {
    run: OwnedFd,
    file: Mutex<Option<OwnedFd>>,
}

impl LogFile {
    pub(crate) fn open(run: impl AsFd) -> std::io::Result<LogFile> {
        let run = run.as_fd().try_clone_to_owned()?;
        let log = LogFile { file: Mutex::new(None), run };
        *log.file.lock().expect("BUG: nobody panics logging") = log.fresh();
        Ok(log)
    }

    fn fresh(&self) -> Option<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.run, NAME, flags, Mode::from_raw_mode(0o600)).ok()
    }

    pub(crate) fn line(&self, text: &str) {
        let mut file = self.file.lock().expect("BUG: nobody panics logging");
        let is_full = file
            .as_ref()
            .and_then(|file| rustix::fs::fstat(file).ok())
            .is_some_and(|stat| stat.st_size as u64 > LOG_BYTES_MAX);
        if is_full {
            let _ = rustix::fs::renameat(&self.run, NAME, &self.run, "aosd.log.old");
            *file = self.fresh();
        }
        if let Some(file) = file.as_ref() {
            let line = format!("{} {}\n", jiff::Timestamp::now(), aos_model::text::escape(text));
            let _ = rustix::io::write(file, line.as_bytes());
        }
    }
}
