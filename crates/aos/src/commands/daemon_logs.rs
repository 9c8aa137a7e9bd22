//! `aos daemon logs`: reads the daemon's log, whether it runs or not, and across rotations.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use aos_model::text::escape;
use aos_store::{Home, LogDir, LogPart};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ExitWith;
use crate::Exit;
use crate::cli::DaemonLogs;

/// How often `--follow` looks for new lines.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// The daemon writes shorter lines. A longer line was not written by it and is shown in parts.
const PART_BYTES_MAX: u64 = 64 << 10;

pub(crate) fn run(home: &Home, options: &DaemonLogs) -> anyhow::Result<Exit> {
    let logs = home.logs()?;
    let parts = logs.parts()?;
    if parts.is_empty() {
        let path = home.log_path();
        let none = format!("there is no log at {} yet; a daemon creates it when it starts", path.display());
        if !options.follow {
            return Err(anyhow::anyhow!(none).context(ExitWith(Exit::Failure)));
        }
        eprintln!("aos: {none}");
    }
    let mut reader = LogReader::new(parts);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match options.lines {
        Some(count) => reader.last_lines(count)?.iter().try_for_each(|line| out.write_all(line))?,
        None => reader.each_line(|line| Ok(out.write_all(line)?))?,
    }
    out.flush()?;
    while options.follow && wait_for_reader(FOLLOW_INTERVAL) {
        reader.each_line(|line| Ok(out.write_all(line)?))?;
        if reader.catch_up(&logs)? {
            continue;
        }
        out.flush()?;
    }
    Ok(Exit::Success)
}

/// Waits; false if the reader of our output has closed the pipe, which poll reports without a write.
fn wait_for_reader(pause: Duration) -> bool {
    let stdout = std::io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let pause = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
    match poll(&mut fds, Some(&pause)) {
        Ok(0) | Err(_) => true,
        Ok(_) => !fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
    }
}

/// Reads the files of a log in order, and stays at the end of the newest.
struct LogReader {
    /// Files that are not read yet, oldest first.
    next: VecDeque<LogPart>,
    current: Option<(BufReader<std::fs::File>, (u64, u64))>,
    /// The start of a line whose end is not written yet.
    unfinished: Vec<u8>,
}

impl LogReader {
    fn new(parts: Vec<LogPart>) -> LogReader {
        LogReader { next: parts.into(), current: None, unfinished: Vec::new() }
    }

    /// Calls `each` with every line up to the end of the newest file, escaped and with its newline.
    fn each_line(&mut self, mut each: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        loop {
            if let Some((reader, _)) = &mut self.current {
                let room = PART_BYTES_MAX.saturating_sub(self.unfinished.len() as u64);
                let read = reader
                    .take(room)
                    .read_until(b'\n', &mut self.unfinished)
                    .context("cannot read the log")?;
                let is_whole = self.unfinished.ends_with(b"\n");
                if is_whole || self.unfinished.len() as u64 >= PART_BYTES_MAX {
                    each(escaped_line(&self.unfinished).as_bytes())?;
                    self.unfinished.clear();
                }
                if read > 0 {
                    continue;
                }
            }
            let Some(LogPart { file, id }) = self.next.pop_front() else { return Ok(()) };
            self.current = Some((BufReader::new(file), id));
        }
    }

    /// The last `count` lines; no more are held in memory.
    fn last_lines(&mut self, count: usize) -> anyhow::Result<VecDeque<Vec<u8>>> {
        let mut last = VecDeque::new();
        self.each_line(|line| {
            last.push_back(line.to_vec());
            if last.len() > count {
                last.pop_front();
            }
            Ok(())
        })?;
        Ok(last)
    }

    /// Looks for files that were created since. True if there is more to read now.
    fn catch_up(&mut self, logs: &LogDir) -> anyhow::Result<bool> {
        let mut parts: VecDeque<LogPart> = logs.parts()?.into();
        if let Some((reader, id)) = &mut self.current {
            // Files up to the open one were read. If it was removed, all others are newer.
            if let Some(at) = parts.iter().position(|part| part.id == *id) {
                parts.drain(..=at);
            }
            // A log that could not be rotated was truncated in place.
            let length = reader.get_ref().metadata().context("cannot look at the log")?.len();
            if length < reader.stream_position()? {
                reader.rewind()?;
            }
        }
        self.next = parts;
        Ok(!self.next.is_empty())
    }
}

fn escaped_line(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    escape(text.trim_end_matches('\n')) + "\n"
}

#[cfg(test)]
mod tests {
    use aos_store::{LogLimits, LogWriter};

    use super::*;

    fn read(reader: &mut LogReader) -> Vec<String> {
        let mut lines = Vec::new();
        let each = |line: &[u8]| {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
            Ok(())
        };
        reader.each_line(each).unwrap();
        lines
    }

    fn log(home: &Home) -> (LogDir, LogWriter) {
        let logs = home.logs().unwrap();
        let writer = logs.writer(LogLimits { file_bytes_max: 4, rotated_files_max: 3 }).unwrap();
        (logs, writer)
    }

    #[test]
    fn following_a_rotated_log_neither_loses_nor_repeats_lines() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, writer) = log(&Home::open(dir.path()).unwrap());
        writer.append(b"1\n");
        writer.append(b"2\n");
        let mut reader = LogReader::new(logs.parts().unwrap());
        assert_eq!(read(&mut reader), ["1\n", "2\n"]);
        assert!(!reader.catch_up(&logs).unwrap());
        for line in ["3\n", "4\n", "5\n", "6\n", "7\n"] {
            writer.append(line.as_bytes());
        }
        // "1" and "2" are in a file that was rotated three times since.
        assert_eq!(read(&mut reader), [""; 0]);
        assert!(reader.catch_up(&logs).unwrap());
        assert_eq!(read(&mut reader), ["3\n", "4\n", "5\n", "6\n", "7\n"]);
        for line in ["8\n", "9\n"] {
            writer.append(line.as_bytes());
        }
        assert_eq!(read(&mut reader), ["8\n"]);
        assert!(reader.catch_up(&logs).unwrap());
        assert_eq!(read(&mut reader), ["9\n"]);
    }

    #[test]
    fn the_last_lines_are_those_of_all_files() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, writer) = log(&Home::open(dir.path()).unwrap());
        for line in ["1\n", "2\n", "3\u{1b}\n"] {
            writer.append(line.as_bytes());
        }
        let last = |count| LogReader::new(logs.parts().unwrap()).last_lines(count).unwrap();
        assert_eq!(last(2), [b"2\n".to_vec(), b"3\\u{1b}\n".to_vec()]);
        assert_eq!(last(9).len(), 3);
        assert!(last(0).is_empty());
    }
}
