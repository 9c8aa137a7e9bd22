//! The writing side of a connection: whole lines, whoever writes them, and nobody held up by one that does not read.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use aos_host::{LaneGuard, Piece, Watcher};
use aos_model::request::Base64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;

/// How long a command's output waits for its reader before it is left out; the receipt has it in any case.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Out {
    pub(crate) stream: UnixStream,
    /// The rest of a line that did not fit into the socket. It goes out before anything else.
    rest: Mutex<Vec<u8>>,
    /// Requests of this connection that run on threads of their own.
    pub(crate) apart: AtomicUsize,
    /// The reader was waited for once and did not read; it is told no more.
    stalled: AtomicBool,
}

/// An answer, and the turn of the session that it was made in.
pub(crate) struct Response {
    pub(crate) answer: String,
    pub(crate) turn: Option<LaneGuard>,
}

impl From<String> for Response {
    fn from(answer: String) -> Response {
        Response { answer, turn: None }
    }
}

impl Out {
    pub(crate) fn new(stream: UnixStream) -> Out {
        Out { stream, rest: Mutex::default(), apart: AtomicUsize::new(0), stalled: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.rest.lock().expect("BUG: nobody panics writing")
    }

    pub(crate) fn send(&self, reply: Response) {
        let Response { mut answer, turn } = reply;
        answer.push('\n');
        let mut rest = self.lock();
        let bytes = if rest.is_empty() { answer.into_bytes() } else { [&rest, answer.as_bytes()].concat() };
        rest.clear();
        // While the turn is held, answers of a session keep its order; but a caller that does not read must not
        // hold up its session, so what does not fit into the socket now is sent without it.
        let sent = self.send_now(&bytes);
        drop(turn);
        // Who went away does not hear the answer; the journal has it.
        let _ = (&self.stream).write_all(&bytes[sent..]);
    }

    /// Sends what fits and says how much that was.
    fn send_now(&self, bytes: &[u8]) -> usize {
        rustix::net::send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or(0)
    }

    /// Sends a line unless the rest of an earlier one is still waiting.
    fn try_send(&self, line: &[u8]) -> bool {
        let mut rest = self.lock();
        if !rest.is_empty() {
            let sent = self.send_now(&rest);
            rest.drain(..sent);
        }
        if !rest.is_empty() {
            return false;
        }
        let sent = self.send_now(line);
        if sent == 0 {
            return false;
        }
        rest.extend_from_slice(&line[sent..]);
        true
    }

    fn wait_until_it_takes_more(&self, patience: Duration) {
        let timeout = Timespec::try_from(patience).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let _ = poll(&mut [PollFd::new(&self.stream, PollFlags::OUT)], Some(&timeout));
    }
}

/// What a command writes is told while it runs, as `exec.progress`.
impl Watcher for Out {
    fn output(&self, piece: Piece<'_>) {
        use std::sync::atomic::Ordering::Relaxed;
        #[derive(serde::Serialize)]
        struct Params<'a> {
            session_id: &'a str,
            tool_call_id: &'a str,
            stream: &'a str,
            offset_bytes: u64,
            bytes: Base64,
        }
        if self.stalled.load(Relaxed) {
            return;
        }
        let params = serde_json::to_string(&Params {
            session_id: piece.session_id,
            tool_call_id: piece.tool_call_id,
            stream: piece.stream,
            offset_bytes: piece.offset_bytes,
            bytes: Base64(piece.bytes.to_vec()),
        });
        let params = params.expect("BUG: a notification is plain data");
        let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"exec.progress\",\"params\":{params}}}\n");
        let began = Instant::now();
        while !self.try_send(line.as_bytes()) {
            let Some(left) = PATIENCE.checked_sub(began.elapsed()) else {
                self.stalled.store(true, Relaxed);
                return;
            };
            self.wait_until_it_takes_more(left);
        }
    }
}
