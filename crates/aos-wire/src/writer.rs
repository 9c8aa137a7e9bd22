//! The writing side of a connection: whole lines from any thread, and no thread waits long for a client that does not
//! read.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use aos_host::{LaneGuard, OutputChunk, Watcher};
use aos_model::request::Base64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;

/// How long a command's output waits for its reader before it is left out; the receipt has it in any case.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct ConnectionWriter {
    pub(crate) stream: UnixStream,
    pending: Mutex<Pending>,
    /// Requests of this connection that run on threads of their own.
    pub(crate) request_threads: AtomicUsize,
    /// The client did not read for [`STALL_TIMEOUT`] once; it gets no more progress.
    stalled: AtomicBool,
}

/// What is to be sent before, and after, the next whole line.
#[derive(Default)]
struct Pending {
    /// The rest of a line that did not fit into the socket's buffer. It is sent before anything else.
    unsent: Vec<u8>,
    /// The array of a batch's answers is being sent. Whole lines wait in `queued` for its end, and progress is left out.
    in_batch: bool,
    queued: Vec<u8>,
}

/// An answer, and the lane of the session that the effect ran in.
pub(crate) struct Response {
    pub(crate) answer: String,
    pub(crate) lane: Option<LaneGuard>,
}

impl From<String> for Response {
    fn from(answer: String) -> Response {
        Response { answer, lane: None }
    }
}

impl ConnectionWriter {
    pub(crate) fn new(stream: UnixStream) -> ConnectionWriter {
        ConnectionWriter {
            stream,
            pending: Mutex::default(),
            request_threads: AtomicUsize::new(0),
            stalled: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("BUG: lock poisoned")
    }

    pub(crate) fn send(&self, response: Response) {
        let Response { mut answer, lane } = response;
        answer.push('\n');
        let mut pending = self.lock();
        if pending.in_batch {
            pending.queued.extend_from_slice(answer.as_bytes());
        } else {
            self.send_after_unsent(&mut pending, answer, lane);
        }
    }

    fn send_after_unsent(&self, pending: &mut Pending, text: String, lane: Option<LaneGuard>) {
        let unsent = std::mem::take(&mut pending.unsent);
        let bytes = if unsent.is_empty() { text.into_bytes() } else { [&unsent, text.as_bytes()].concat() };
        // The answers of a session keep its order while the lane is held. A client that does not read must not block
        // its session, so what does not fit into the socket's buffer is sent after the lane is released.
        let sent = self.send_now(&bytes);
        drop(lane);
        // If the client is gone, the journal still has the answer.
        let _ = (&self.stream).write_all(&bytes[sent..]);
    }

    /// Sends the answers of a batch as one array, each as soon as it is there: together they may be large. Answers to other
    /// requests wait for its end without their lane, which the rest of the batch may need.
    pub(crate) fn send_batch(&self, responses: impl Iterator<Item = Response>) {
        let mut is_open = false;
        for Response { answer, lane } in responses {
            let mut pending = self.lock();
            pending.in_batch = true;
            let separator = if std::mem::replace(&mut is_open, true) { ',' } else { '[' };
            self.send_after_unsent(&mut pending, format!("{separator}{answer}"), lane);
        }
        if is_open {
            let mut pending = self.lock();
            pending.in_batch = false;
            let queued = std::mem::take(&mut pending.queued);
            self.send_after_unsent(&mut pending, "]\n".to_owned(), None);
            let _ = (&self.stream).write_all(&queued);
        }
    }

    /// Sends what fits into the socket's buffer and returns its length.
    fn send_now(&self, bytes: &[u8]) -> usize {
        rustix::net::send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or(0)
    }

    /// Sends a line of progress, unless the rest of an earlier line is still unsent.
    fn try_send(&self, line: &[u8]) -> bool {
        let mut pending = self.lock();
        if pending.in_batch {
            return true;
        }
        if !pending.unsent.is_empty() {
            let sent = self.send_now(&pending.unsent);
            pending.unsent.drain(..sent);
        }
        if !pending.unsent.is_empty() {
            return false;
        }
        let sent = self.send_now(line);
        if sent == 0 {
            return false;
        }
        pending.unsent.extend_from_slice(&line[sent..]);
        true
    }

    fn wait_until_writable(&self, timeout: Duration) {
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let _ = poll(&mut [PollFd::new(&self.stream, PollFlags::OUT)], Some(&timeout));
    }
}

/// Sends a command's output while it runs, as `exec.progress`.
impl Watcher for ConnectionWriter {
    fn output(&self, chunk: OutputChunk<'_>) {
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
            session_id: chunk.session_id,
            tool_call_id: chunk.tool_call_id,
            stream: chunk.stream,
            offset_bytes: chunk.offset_bytes,
            bytes: Base64(chunk.bytes.to_vec()),
        });
        let params = params.expect("BUG: a notification is plain data");
        let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"exec.progress\",\"params\":{params}}}\n");
        let started = Instant::now();
        while !self.try_send(line.as_bytes()) {
            let Some(left) = STALL_TIMEOUT.checked_sub(started.elapsed()) else {
                if !self.stalled.swap(true, Relaxed) {
                    tracing::warn!(
                        session_id = chunk.session_id,
                        tool_call_id = chunk.tool_call_id,
                        "a client does not read the output of its command; it gets no more progress"
                    );
                }
                return;
            };
            self.wait_until_writable(left);
        }
    }
}
