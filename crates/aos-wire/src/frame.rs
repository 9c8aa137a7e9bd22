//! Reads frames: one JSON-RPC message or batch per line, of bounded length.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use aos_model::limits::{FRAME_BYTES_FREE, FRAME_BYTES_MAX, FRAMES_BYTES_MAX};

use crate::writer::ConnectionWriter;

pub(crate) enum Frame {
    Complete,
    /// It has at least this many bytes: too many alone, or together with the long frames of other connections.
    TooLong(usize),
    /// Others needed the memory of this frame while it was not finished.
    Evicted,
    End,
}

/// Reads the next frame into `line`. Bytes at the end of the stream without a newline are not a message.
pub(crate) fn read_frame(
    reader: &mut impl BufRead,
    line: &mut Vec<u8>,
    share: &mut BudgetShare<'_>,
) -> io::Result<Frame> {
    line.clear();
    loop {
        share.set_waiting(true);
        let available = reader.fill_buf();
        if share.set_waiting(false) {
            return Ok(Frame::Evicted);
        }
        let available = match available {
            Ok([]) => return Ok(Frame::End),
            Ok(available) => available,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(why),
        };
        let end = memchr::memchr(b'\n', available);
        let taken = end.unwrap_or(available.len());
        if line.len() + taken > FRAME_BYTES_MAX {
            return Ok(Frame::TooLong(line.len() + taken));
        }
        match share.grow_to(line.len() + taken) {
            Grown::Yes => {}
            Grown::No => return Ok(Frame::TooLong(line.len() + taken)),
            Grown::Evicted => return Ok(Frame::Evicted),
        }
        line.extend_from_slice(&available[..taken]);
        reader.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(Frame::Complete);
        }
    }
}

/// A long frame that did not grow for this long is idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// How long a frame waits for memory while the largest one grows; then that one counts as idle too. Its sender could send a
/// byte now and then.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it waits while all memory is used by requests that are being answered; then it is refused.
const BUDGET_TIMEOUT: Duration = Duration::from_secs(30);

/// Bounds the memory of all long frames that are not answered yet. When it is used up, the connection with the largest idle
/// frame is closed, so that senders who do not finish cannot make others fail.
#[derive(Default)]
pub(crate) struct FrameBudget {
    state: Mutex<BudgetState>,
    freed: Condvar,
}

#[derive(Default)]
struct BudgetState {
    used_bytes: usize,
    next_id: u64,
    long_frames: HashMap<u64, LongFrame>,
}

struct LongFrame {
    bytes: usize,
    connection: Arc<ConnectionWriter>,
    /// Since when its reader waits, for the sender or for memory; `None` while it reads or the frame is being answered.
    waiting_since: Option<Instant>,
    is_evicted: bool,
}

/// The part of the budget that one connection uses; returned when it is dropped.
pub(crate) struct BudgetShare<'a> {
    budget: &'a FrameBudget,
    connection: &'a Arc<ConnectionWriter>,
    /// Its number among the long frames, once it is one.
    id: Option<u64>,
    bytes: usize,
}

impl FrameBudget {
    pub(crate) fn share<'a>(&'a self, connection: &'a Arc<ConnectionWriter>) -> BudgetShare<'a> {
        BudgetShare { budget: self, connection, id: None, bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().expect("BUG: lock poisoned")
    }
}

impl BudgetState {
    /// Closes the connection of the largest unfinished frame besides `own`, if it did not grow for `pause`. Its reader gives
    /// the memory back.
    fn evict(&mut self, own: Option<u64>, pause: Duration) {
        let others = self.long_frames.iter_mut().filter(|(id, _)| Some(**id) != own);
        let waiting = others.filter_map(|(_, frame)| frame.waiting_since.map(|since| (frame, since)));
        let largest = waiting.max_by_key(|(frame, since)| (frame.bytes, std::cmp::Reverse(*since)));
        if let Some((frame, since)) = largest
            && since.elapsed() >= pause
        {
            frame.is_evicted = true;
            // Wakes its reader. The connection is gone if this fails, and then the reader is awake.
            let _ = frame.connection.stream.shutdown(Shutdown::Read);
        }
    }
}

/// Whether a frame got the memory that it asked for.
enum Grown {
    Yes,
    /// The budget stays exhausted.
    No,
    Evicted,
}

impl BudgetShare<'_> {
    /// Short frames are not counted.
    fn grow_to(&mut self, bytes: usize) -> Grown {
        if bytes <= FRAME_BYTES_FREE || bytes <= self.bytes {
            return Grown::Yes;
        }
        // By doubling, so that a growing frame locks the shared count rarely.
        let needed = bytes.next_power_of_two().min(FRAME_BYTES_MAX);
        let more = needed - self.bytes;
        let began = Instant::now();
        self.set_waiting(true);
        let mut state = self.budget.lock();
        while state.used_bytes + more > FRAMES_BYTES_MAX {
            if self.id.and_then(|id| state.long_frames.get(&id)).is_some_and(|frame| frame.is_evicted) {
                return Grown::Evicted;
            }
            let waited = began.elapsed();
            if waited > BUDGET_TIMEOUT {
                return Grown::No;
            }
            // One at a time: what was evicted gives its memory back in a moment.
            if !state.long_frames.values().any(|frame| frame.is_evicted) {
                state.evict(self.id, if waited < PATIENCE { IDLE_AFTER } else { Duration::ZERO });
            }
            state = self.budget.freed.wait_timeout(state, IDLE_AFTER / 10).expect("BUG: lock poisoned").0;
        }
        state.used_bytes += more;
        self.bytes = needed;
        let id = *self.id.get_or_insert(state.next_id);
        state.next_id = state.next_id.max(id + 1);
        let connection = self.connection;
        let frame = state.long_frames.entry(id).or_insert_with(|| LongFrame {
            bytes: 0,
            connection: connection.clone(),
            waiting_since: None,
            is_evicted: false,
        });
        frame.bytes = needed;
        frame.waiting_since = None;
        Grown::Yes
    }

    /// Notes whether the frame's reader waits for its sender. Returns whether the frame was evicted.
    fn set_waiting(&mut self, is_waiting: bool) -> bool {
        let Some(id) = self.id else { return false };
        let mut state = self.budget.lock();
        let Some(frame) = state.long_frames.get_mut(&id) else { return false };
        frame.waiting_since = is_waiting.then(Instant::now);
        frame.is_evicted
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let mut state = self.budget.lock();
            state.used_bytes -= self.bytes;
            state.long_frames.remove(&id);
            drop(state);
            self.budget.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Reads one frame of a connection and keeps its memory until `finish` says so.
    fn read_one(budget: &FrameBudget, stream: UnixStream, finish: impl FnOnce()) -> &'static str {
        let connection = Arc::new(ConnectionWriter::new(stream));
        let mut share = budget.share(&connection);
        let mut reader = BufReader::new(&connection.stream);
        let frame = read_frame(&mut reader, &mut Vec::new(), &mut share);
        finish();
        match frame.expect("a socket pair works") {
            Frame::Complete => "complete",
            Frame::TooLong(_) => "too long",
            Frame::Evicted => "evicted",
            Frame::End => "end",
        }
    }

    #[test]
    fn the_largest_idle_frame_makes_room_for_others() {
        let budget = FrameBudget::default();
        let sizes = [16 << 20, 8 << 20, 7 << 20, 6 << 20, 5 << 20, 7 << 20, 3 << 20];
        std::thread::scope(|scope| {
            let mut senders = Vec::new();
            let readers: Vec<_> = sizes
                .iter()
                .map(|bytes| {
                    let (mut ours, theirs) = UnixStream::pair().unwrap();
                    let reader = scope.spawn(|| read_one(&budget, theirs, || {}));
                    ours.write_all(&vec![b'x'; *bytes]).unwrap();
                    senders.push(ours);
                    reader
                })
                .collect();
            // 60 MiB are used; this needs 16 more.
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let other = scope.spawn(|| read_one(&budget, theirs, || {}));
            ours.write_all(&vec![b'x'; 16 << 20]).unwrap();
            ours.write_all(b"\n").unwrap();
            assert_eq!(other.join().unwrap(), "complete");
            senders.iter_mut().for_each(|sender| drop(sender.write_all(b"\n")));
            let ends: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
            let evicted = ends.iter().filter(|end| **end == "evicted").count();
            assert_eq!((ends[0], ends[6], evicted), ("evicted", "complete", 1), "{ends:?}");
        });
        assert_eq!(budget.lock().used_bytes, 0);
    }

    #[test]
    fn a_frame_that_is_being_answered_is_not_evicted() {
        let budget = FrameBudget::default();
        std::thread::scope(|scope| {
            let mut answered = Vec::new();
            for _ in 0..4 {
                let (mut ours, theirs) = UnixStream::pair().unwrap();
                let (finish, finished) = std::sync::mpsc::channel::<()>();
                let budget = &budget;
                let reader = scope.spawn(move || {
                    read_one(budget, theirs, || {
                        let _ = finished.recv();
                    })
                });
                ours.write_all(&[vec![b'x'; 16 << 20], b"\n".to_vec()].concat()).unwrap();
                answered.push((finish, reader));
            }
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let waiting = scope.spawn(|| read_one(&budget, theirs, || {}));
            ours.write_all(&vec![b'x'; 100 << 10]).unwrap();
            // It gets its memory as soon as one of them is answered.
            let (finish, reader) = answered.remove(0);
            drop(finish);
            assert_eq!(reader.join().unwrap(), "complete");
            ours.write_all(b"\n").unwrap();
            assert_eq!(waiting.join().unwrap(), "complete");
            for (finish, reader) in answered {
                drop(finish);
                assert_eq!(reader.join().unwrap(), "complete");
            }
        });
    }
}
