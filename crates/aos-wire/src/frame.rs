//! Reads frames: one JSON-RPC message or batch per line, of bounded length.

use std::io::{self, BufRead};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use aos_model::limits::{FRAME_BYTES_FREE, FRAME_BYTES_MAX, FRAMES_BYTES_MAX};

/// How long a long frame waits for memory that others hold before it is refused.
const BUDGET_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) enum Frame {
    Complete,
    /// It has at least this many bytes: too many alone, or together with the long frames of other connections.
    TooLong(usize),
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
        let available = match reader.fill_buf() {
            Ok([]) => return Ok(Frame::End),
            Ok(available) => available,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(why),
        };
        let end = memchr::memchr(b'\n', available);
        let taken = end.unwrap_or(available.len());
        if line.len() + taken > FRAME_BYTES_MAX || !share.grow_to(line.len() + taken) {
            return Ok(Frame::TooLong(line.len() + taken));
        }
        line.extend_from_slice(&available[..taken]);
        reader.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(Frame::Complete);
        }
    }
}

/// Bounds the memory of all long frames that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct FrameBudget {
    used_bytes: Mutex<usize>,
    freed: Condvar,
}

/// The part of the budget that one connection uses; returned when it is dropped.
pub(crate) struct BudgetShare<'a> {
    budget: &'a FrameBudget,
    bytes: usize,
}

impl FrameBudget {
    pub(crate) fn share(&self) -> BudgetShare<'_> {
        BudgetShare { budget: self, bytes: 0 }
    }
}

impl BudgetShare<'_> {
    /// Short frames are not counted. False if the budget stays exhausted.
    fn grow_to(&mut self, bytes: usize) -> bool {
        if bytes <= FRAME_BYTES_FREE || bytes <= self.bytes {
            return true;
        }
        // By doubling, so that a growing frame locks the shared count rarely.
        let needed = bytes.next_power_of_two().min(FRAME_BYTES_MAX);
        let more = needed - self.bytes;
        let used = self.budget.used_bytes.lock().expect("BUG: lock poisoned");
        let exhausted = |used: &mut usize| *used + more > FRAMES_BYTES_MAX;
        let (mut used, _) = self
            .budget
            .freed
            .wait_timeout_while(used, BUDGET_TIMEOUT, exhausted)
            .expect("BUG: lock poisoned");
        if *used + more > FRAMES_BYTES_MAX {
            return false;
        }
        *used += more;
        self.bytes = needed;
        true
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.budget.used_bytes.lock().expect("BUG: lock poisoned") -= self.bytes;
            self.budget.freed.notify_all();
        }
    }
}
