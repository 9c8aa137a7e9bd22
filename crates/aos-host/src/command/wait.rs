//! Waiting for a command: its output, its end, its deadline, and the end of everything it started.
//!
//! ```text
//! running ──deadline, signal──▶ asked to end ──grace──▶ killed ──▶ gone
//!    └──────exits──▶ drained for a short while ──────────┘
//! ```

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use aos_model::receipt::Warning;
use aos_sandbox::{ExitReport, LaunchError, LaunchEvent, Running, receive_event};
use aos_store::{Blobs, Spool};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::room::{Room, SAMPLE_EVERY};
use super::watch::Pump;

/// How long output is awaited after the command itself has ended: what it left running may hold the pipe for ever.
const DRAIN: Duration = Duration::from_millis(500);
/// Between asking at a deadline and killing.
const GRACE: Duration = Duration::from_millis(500);
/// How long init may take to end what is left, where there is no namespace.
const LAST_CHANCE: Duration = Duration::from_secs(1);
/// One read of a pipe.
const READ_BYTES: usize = 256 << 10;
/// A pipe that is this full is worth enlarging.
const BUSY_BYTES: usize = 64 << 10;
const PIPE_BYTES: usize = 1 << 20;

/// One stream of a command.
pub(super) struct Stream {
    pub(super) name: &'static str,
    pub(super) pipe: Option<OwnedFd>,
    pub(super) spool: Spool,
    enlarged: bool,
}

impl Stream {
    pub(super) fn new(name: &'static str, pipe: OwnedFd, limit: u64) -> Stream {
        Stream { name, pipe: Some(pipe), spool: Spool::new(limit), enlarged: false }
    }
}

/// How a command ended.
#[derive(Debug, Default)]
pub(super) struct End {
    /// The wait status; none when it was killed with its init.
    pub(super) status: Option<i32>,
    pub(super) failed: Option<LaunchError>,
    pub(super) timed_out: bool,
    /// Which bound on the disk it went over.
    pub(super) exceeded: Option<String>,
    pub(super) gave_back: Option<Warning>,
    /// Processes may have stayed: init did not answer.
    pub(super) unsure: bool,
}

pub(super) struct Wait<'a> {
    pub(super) tool_call_id: &'a str,
    pub(super) running: &'a Running,
    pub(super) streams: [Stream; 2],
    pub(super) blobs: &'a Blobs,
    pub(super) pump: Option<Pump>,
    pub(super) deadline: Option<Instant>,
    /// When the session's own time is over.
    pub(super) session_ends: Option<Instant>,
    pub(super) room: Room<'a>,
}

/// What is known so far.
#[derive(Default)]
struct Known {
    end: End,
    line_closed: bool,
    gone: bool,
    /// When to kill what is left, from this side.
    kill_at: Option<Instant>,
    killed_at: Option<Instant>,
    poll_failed: Cell<bool>,
    buffer: Vec<u8>,
    sample_at: Option<Instant>,
}

impl Wait<'_> {
    /// Waits until nothing of the command is left.
    pub(super) fn wait(mut self) -> (End, [Stream; 2]) {
        let first = Instant::now() + SAMPLE_EVERY;
        let mut known = Known { buffer: vec![0; 64 << 10], sample_at: Some(first), ..Known::default() };
        while !self.is_over(&mut known) {
            let ready = self.poll(&known);
            if ready.line {
                self.listen(&mut known);
            }
            if ready.init {
                known.gone = true;
            }
            if ready.wake {
                let _ = rustix::io::read(&self.running.wake, &mut [0_u8; 8]);
            }
            for index in 0..2 {
                if ready.streams[index] {
                    self.drain(index, &mut known.buffer);
                }
            }
            self.keep_room(&mut known);
            self.keep_time(&mut known);
        }
        if known.end.exceeded.is_none() {
            known.end.exceeded = self.room.exceeded(true);
        }
        if known.end.exceeded.is_some() {
            known.end.gave_back = self.room.give_back();
        }
        // What was written before the end is still in the pipes.
        for index in 0..2 {
            // No more than a pipe can hold: a process out of reach could write for ever.
            for _ in 0..2 * PIPE_BYTES / BUSY_BYTES {
                if !self.drain(index, &mut known.buffer) {
                    break;
                }
            }
        }
        if let Some(pump) = self.pump {
            pump.finish();
        }
        (known.end, self.streams)
    }

    fn is_over(&self, known: &mut Known) -> bool {
        // Without init there is no process to wait for.
        if known.line_closed && self.running.init.get().is_none() {
            known.gone = true;
        }
        if known.gone {
            return true;
        }
        let late = known.killed_at.is_some_and(|at| at.elapsed() > LAST_CHANCE);
        // Init continues to end them by itself.
        known.end.unsure |= late;
        late
    }

    fn poll(&self, known: &Known) -> Ready {
        let mut set = Vec::with_capacity(5);
        let running = self.running;
        let line = (!known.line_closed).then(|| push(&mut set, &running.control));
        let init = running.init.get().map(|init| push(&mut set, init));
        let wake = Some(push(&mut set, &running.wake));
        let streams = [0, 1].map(|index| self.streams[index].pipe.as_ref().map(|pipe| push(&mut set, pipe)));
        let timeout = self.next_event(known).map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            rustix::event::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        if let Err(error) = rustix::event::poll(&mut set, timeout.as_ref()) {
            // Logged once: the next round polls again at once.
            if error != Errno::INTR && !known.poll_failed.replace(true) {
                tracing::error!(tool_call_id = self.tool_call_id, %error, "cannot wait for a command; trying again");
            }
            return Ready::default();
        }
        let is = |index: Option<usize>| index.is_some_and(|index| !set[index].revents().is_empty());
        Ready { line: is(line), init: is(init), wake: is(wake), streams: streams.map(is) }
    }

    /// The earliest moment at which something has to be done.
    fn next_event(&self, known: &Known) -> Option<Instant> {
        if let Some(killed_at) = known.killed_at {
            return Some(killed_at + LAST_CHANCE + Duration::from_millis(1));
        }
        let waiting = known.end.status.is_none() && !known.end.timed_out;
        let deadlines = [self.deadline, self.session_ends].into_iter().filter(|_| waiting);
        deadlines.chain([known.kill_at, self.running.kill_at(), known.sample_at]).flatten().min()
    }

    fn listen(&self, known: &mut Known) {
        match receive_event(&self.running.control) {
            Some(LaunchEvent::InitStarted(init)) => {
                let _ = self.running.init.set(init);
                if self.running.was_killed() {
                    self.running.kill_now();
                }
            }
            Some(LaunchEvent::Failed(trouble)) => {
                known.end.failed.get_or_insert(trouble);
                known.kill_at = Some(Instant::now());
            }
            Some(LaunchEvent::Exited(ExitReport { status, all_exited })) => {
                known.end.status = Some(status);
                known.gone = all_exited;
                let soon = Instant::now() + DRAIN;
                known.kill_at = Some(known.kill_at.map_or(soon, |at| at.min(soon)));
            }
            Some(LaunchEvent::Closed) => known.line_closed = true,
            None => {}
        }
    }

    /// Ends the command when it takes more of the disk than it may.
    fn keep_room(&mut self, known: &mut Known) {
        if known.sample_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        known.end.exceeded = self.room.exceeded(false);
        let is_over = known.end.exceeded.is_some();
        // What it leaves running until it is killed must not write on.
        known.kill_at = if is_over { Some(Instant::now()) } else { known.kill_at };
        known.sample_at = (!is_over).then(|| Instant::now() + SAMPLE_EVERY);
    }

    fn keep_time(&self, known: &mut Known) {
        if known.killed_at.is_some() || known.gone {
            return;
        }
        let now = Instant::now();
        let is_past = |moment: Option<Instant>| moment.is_some_and(|at| at <= now);
        if known.end.status.is_none() && known.kill_at.is_none() {
            let late = is_past(self.deadline);
            if late || is_past(self.session_ends) {
                known.end.timed_out = late;
                known.kill_at = Some(now + GRACE);
                self.running.terminate(GRACE);
            }
        }
        let drained = known.end.status.is_some() && self.streams.iter().all(|stream| stream.pipe.is_none());
        if drained || is_past(known.kill_at) || is_past(self.running.kill_at()) {
            self.running.kill_now();
            known.killed_at = Some(now);
        }
    }

    /// Reads what is there. False when there is nothing now, or nothing more at all.
    fn drain(&mut self, index: usize, buffer: &mut Vec<u8>) -> bool {
        let stream = &mut self.streams[index];
        let Some(pipe) = &stream.pipe else { return false };
        let count = match rustix::io::read(pipe, buffer.as_mut_slice()) {
            Ok(0) => {
                stream.pipe = None;
                return false;
            }
            Ok(count) => count,
            Err(Errno::INTR) => return true,
            Err(Errno::AGAIN) => return false,
            Err(error) => {
                let (tool_call_id, stream_name) = (self.tool_call_id, stream.name);
                tracing::warn!(tool_call_id, stream_name, %error, "cannot read the output of a command");
                stream.pipe = None;
                return false;
            }
        };
        let offset = stream.spool.total_bytes();
        stream.spool.write(self.blobs, &buffer[..count]);
        if let Some(pump) = &mut self.pump {
            pump.send(stream.name, offset, &buffer[..count]);
        }
        if count >= BUSY_BYTES && !stream.enlarged {
            stream.enlarged = true;
            // A user may have only so much in pipes: then they stay as they are.
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
            buffer.resize(READ_BYTES, 0);
        }
        true
    }
}

#[derive(Default)]
struct Ready {
    line: bool,
    init: bool,
    wake: bool,
    streams: [bool; 2],
}

fn push<'a>(set: &mut Vec<PollFd<'a>>, fd: &'a OwnedFd) -> usize {
    set.push(PollFd::new(fd, PollFlags::IN));
    set.len() - 1
}
