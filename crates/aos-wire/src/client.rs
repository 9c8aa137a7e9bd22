//! The client of the socket: sends a request, passes progress on, and waits for the answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use aos_model::limits::FRAME_BYTES_MAX;
use aos_tools::{CallError, DaemonApi, Progress, effect_call};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::polled::Polled;

/// How often one request is sent again. The daemon that is started for it may be stopped before it has read it, too.
const RESENDS_MAX: usize = 8;

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<Polled<UnixStream>>,
    next_id: u64,
    /// How long [`Client::call`] waits for the first byte of an answer; without one, until it comes.
    timeout: Option<Duration>,
    pending: Option<PendingCall>,
    reconnect: Option<Reconnect>,
}

/// Connects again after the daemon has stopped.
struct Reconnect(Box<dyn FnMut() -> std::io::Result<UnixStream> + Send>);

impl std::fmt::Debug for Reconnect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reconnect")
    }
}

/// A request that timed out and may still be answered.
#[derive(Debug)]
struct PendingCall {
    method: String,
    params: String,
    request: SentRequest,
}

/// A request that was sent and is not answered.
#[derive(Debug)]
struct SentRequest {
    id: u64,
    line: String,
    /// How often it may still be sent again.
    resends_left: usize,
}

/// Why a call has no result. A message holds its cause, which is therefore not a `source`: a printed chain would show it
/// twice.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "the daemon ended before it answered; see `aos log` for what was done and `aos daemon logs` for why"
    )]
    Closed,
    #[error("the connection to the daemon broke: {0}")]
    Io(std::io::Error),
    #[error("{message} ({code})")]
    Refused { code: i64, message: String },
    #[error("the daemon's answer is not valid JSON-RPC: {0}")]
    InvalidAnswer(serde_json::Error),
    #[error("the daemon has not answered yet")]
    TimedOut,
    #[error(
        "the request is {0} bytes long, and the daemon takes at most {FRAME_BYTES_MAX}; send larger content by blob"
    )]
    TooLong(usize),
}

impl From<std::io::Error> for ClientError {
    fn from(why: std::io::Error) -> ClientError {
        ClientError::Io(why)
    }
}

impl From<serde_json::Error> for ClientError {
    fn from(why: serde_json::Error) -> ClientError {
        ClientError::InvalidAnswer(why)
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    id: Option<u64>,
    /// Only a notification has one.
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<ErrorObject>,
}

#[derive(Deserialize)]
struct ErrorObject {
    code: i64,
    message: String,
}

impl Client {
    pub fn new(stream: UnixStream) -> Client {
        Client {
            reader: BufReader::new(Polled(stream)),
            next_id: 1,
            timeout: None,
            pending: None,
            reconnect: None,
        }
    }

    /// Uses `reconnect`, at most [`RESENDS_MAX`] times for each request, when the daemon has ended without having received
    /// it.
    pub fn with_reconnect(
        self,
        reconnect: impl FnMut() -> std::io::Result<UnixStream> + Send + 'static,
    ) -> Client {
        Client { reconnect: Some(Reconnect(Box::new(reconnect))), ..self }
    }

    fn stream(&self) -> &UnixStream {
        &self.reader.get_ref().0
    }

    /// Whether the connection is open. Between calls the daemon sends nothing, so readable means closed.
    pub fn is_connected(&self) -> bool {
        !self.is_readable_within(Duration::ZERO)
    }

    /// A call that takes longer returns [`ClientError::TimedOut`]. The same call made again is not sent again: it waits
    /// for the answer to the first.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Whether the last call timed out and is not answered yet.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    fn is_readable_within(&self, time: Duration) -> bool {
        let mut fds = [rustix::event::PollFd::new(self.stream(), rustix::event::PollFlags::IN)];
        let time =
            rustix::event::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        !self.reader.buffer().is_empty() || !matches!(rustix::event::poll(&mut fds, Some(&time)), Ok(0))
    }

    /// Sends `params` (JSON) to `method` and waits for the result (JSON).
    pub fn call(&mut self, method: &str, params: &str) -> Result<String, ClientError> {
        self.call_with_progress(method, params, &mut |_| {})
    }

    /// As [`Client::call`]; `on_progress` gets the output of a command while it runs.
    pub fn call_with_progress(
        &mut self,
        method: &str,
        params: &str,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<String, ClientError> {
        let request = match self.pending.take() {
            Some(pending) if pending.method == method && pending.params == params => pending.request,
            _ => self.send(method, params)?,
        };
        if self.timeout.is_some_and(|timeout| !self.is_readable_within(timeout)) {
            let (method, params) = (method.to_owned(), params.to_owned());
            self.pending = Some(PendingCall { method, params, request });
            return Err(ClientError::TimedOut);
        }
        self.wait(request, on_progress)
    }

    fn wait(
        &mut self,
        mut request: SentRequest,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<String, ClientError> {
        loop {
            let mut answer = String::new();
            match self.reader.read_line(&mut answer) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(_) => {}
                Err(error) => {
                    self.send_again(&mut request, error)?;
                    continue;
                }
            }
            let answer: Answer = serde_json::from_str(&answer)?;
            if answer.method.as_deref() == Some("exec.progress") {
                if let Some(params) = &answer.params {
                    on_progress(serde_json::from_str(params.get())?);
                }
                continue;
            }
            // The answer to an earlier call that timed out.
            if answer.id.is_some_and(|other| other != request.id) {
                continue;
            }
            return match (answer.result, answer.error) {
                (Some(result), _) => Ok(result.get().to_owned()),
                (None, Some(error)) => Err(ClientError::Refused { code: error.code, message: error.message }),
                (None, None) => Err(ClientError::Closed),
            };
        }
    }

    fn send(&mut self, method: &str, params: &str) -> Result<SentRequest, ClientError> {
        let id = self.next_id;
        self.next_id += 1;
        let mut line =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}");
        // A message is one line; a newline in the caller's JSON can only be white space between tokens.
        if memchr::memchr2(b'\n', b'\r', line.as_bytes()).is_some() {
            line = line.replace(['\n', '\r'], " ");
        }
        if line.len() > FRAME_BYTES_MAX {
            return Err(ClientError::TooLong(line.len()));
        }
        line.push('\n');
        let mut request = SentRequest { id, line, resends_left: RESENDS_MAX };
        if let Err(error) = self.stream().write_all(request.line.as_bytes()) {
            self.send_again(&mut request, error)?;
        }
        Ok(request)
    }

    /// Sends a request to the next daemon, and the next, if `error` says that this one did not receive it.
    fn send_again(&mut self, request: &mut SentRequest, mut error: std::io::Error) -> std::io::Result<()> {
        while was_not_received(&error) && request.resends_left > 0 {
            let Some(Reconnect(reconnect)) = &mut self.reconnect else { break };
            request.resends_left -= 1;
            self.reader = BufReader::new(Polled(reconnect()?));
            match self.stream().write_all(request.line.as_bytes()) {
                Ok(()) => return Ok(()),
                Err(next) => error = next,
            }
        }
        Err(error)
    }

    /// Calls one effect.
    pub fn effect(
        &mut self,
        kind: &str,
        params: &str,
        tool_call: Option<&str>,
        turn: Option<&str>,
    ) -> Result<String, ClientError> {
        self.call("effect.call", &effect_call(kind, params, tool_call, turn))
    }
}

impl DaemonApi for Client {
    fn call(
        &mut self,
        method: &str,
        params: &str,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<String, CallError> {
        self.call_with_progress(method, params, on_progress).map_err(|why| match why {
            ClientError::TooLong(_) => CallError::TooLong(why.to_string()),
            _ => CallError::NoAnswer(why.to_string()),
        })
    }
}

/// Whether the error says that the daemon ended without having received the request, so that sending it again cannot
/// repeat it. A write fails with EPIPE when the daemon reads no more. A UNIX socket is reset when it is closed before
/// all data was read, and of this client only one request can be unread.
fn was_not_received(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset)
}

/// A new id for a tool call, for front ends whose callers send none.
pub fn new_tool_call_id() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut random = [0; 8];
    // Without random bytes the time alone makes the id unique.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    aos_model::id::make(aos_model::id::TOOL_CALL, since.as_nanos() as u64, u64::from_ne_bytes(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every request of a connection with its own id.
    fn serve(stream: &UnixStream) {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap_or(0) > 0 {
            let request: serde_json::Value = serde_json::from_str(&line).unwrap();
            let answer =
                serde_json::json!({ "jsonrpc": "2.0", "id": request["id"], "result": request["id"] });
            { stream }.write_all(format!("{answer}\n").as_bytes()).unwrap();
            line.clear();
        }
    }

    /// Closes a connection after so many bytes of the first request were read.
    fn close_after(stream: &UnixStream, bytes: usize) {
        let mut buffer = vec![0; bytes];
        rustix::event::poll(&mut [rustix::event::PollFd::new(stream, rustix::event::PollFlags::IN)], None)
            .unwrap();
        std::io::Read::read_exact(&mut &*stream, &mut buffer).unwrap();
    }

    /// A client whose first daemon ends after `bytes` bytes, and how often it connected again.
    fn call_while_the_daemon_ends(bytes: usize, params: &str) -> (Result<String, ClientError>, usize) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let dying = std::thread::spawn(move || close_after(&theirs, bytes));
        let connected = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = connected.clone();
        let mut client = Client::new(ours).with_reconnect(move || {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let (ours, theirs) = UnixStream::pair()?;
            std::thread::spawn(move || serve(&theirs));
            Ok(ours)
        });
        let answer = client.call("m", params);
        dying.join().unwrap();
        (answer, connected.load(std::sync::atomic::Ordering::Relaxed))
    }

    const REQUEST: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{}}\n";

    #[test]
    fn a_request_that_was_not_read_whole_is_sent_again() {
        for bytes in [0, 1, REQUEST.len() - 1] {
            let (answer, connected) = call_while_the_daemon_ends(bytes, "{}");
            assert_eq!((answer.unwrap().as_str(), connected), ("1", 1), "after {bytes} bytes");
        }
        let long = format!("\"{}\"", "x".repeat(4 << 20));
        let (answer, connected) = call_while_the_daemon_ends(100_000, &long);
        assert_eq!((answer.unwrap().as_str(), connected), ("1", 1), "in the middle of a long request");
    }

    #[test]
    fn a_request_that_timed_out_is_sent_again_too() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut client = Client::new(ours).with_reconnect(|| {
            let (ours, theirs) = UnixStream::pair()?;
            std::thread::spawn(move || serve(&theirs));
            Ok(ours)
        });
        client.set_timeout(Some(Duration::from_millis(1)));
        assert!(matches!(client.call("m", "{}"), Err(ClientError::TimedOut)));
        drop(theirs);
        client.set_timeout(None);
        assert_eq!(client.call("m", "{}").unwrap(), "1");
    }

    #[test]
    fn a_request_that_was_read_is_not_sent_again() {
        let (answer, connected) = call_while_the_daemon_ends(REQUEST.len(), "{}");
        assert!(matches!(answer, Err(ClientError::Closed)), "{answer:?}");
        assert_eq!(connected, 0);
    }

    /// A client of daemons of which the first `ending` end before they have read anything, and how often it connected
    /// again.
    fn call_while_daemons_end(ending: usize) -> (Result<String, ClientError>, usize) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || close_after(&theirs, 0));
        let connected = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = connected.clone();
        let mut client = Client::new(ours).with_reconnect(move || {
            let before = 1 + count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let (ours, theirs) = UnixStream::pair()?;
            std::thread::spawn(
                move || if before < ending { close_after(&theirs, 0) } else { serve(&theirs) },
            );
            Ok(ours)
        });
        let answer = client.call("m", "{}");
        (answer, connected.load(std::sync::atomic::Ordering::Relaxed))
    }

    #[test]
    fn a_request_is_sent_until_a_daemon_reads_it() {
        for ending in [1, 2, RESENDS_MAX] {
            let (answer, connected) = call_while_daemons_end(ending);
            assert_eq!((answer.unwrap().as_str(), connected), ("1", ending), "{ending} daemons ended");
        }
        let (answer, connected) = call_while_daemons_end(usize::MAX);
        assert!(matches!(answer, Err(ClientError::Io(_))), "{answer:?}");
        assert_eq!(connected, RESENDS_MAX);
    }
}
