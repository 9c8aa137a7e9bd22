//! The client of the socket: sends a request, passes progress on, and waits for the answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use aos_model::limits::FRAME_BYTES_MAX;
use aos_tools::{CallError, DaemonApi, Progress, effect_call};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::polled::Polled;

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
    id: u64,
    method: String,
    params: String,
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

    /// Uses `reconnect` when a request cannot be sent because the daemon has stopped.
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
        let id = match self.pending.take() {
            Some(pending) if pending.method == method && pending.params == params => pending.id,
            _ => self.send(method, params)?,
        };
        if self.timeout.is_some_and(|timeout| !self.is_readable_within(timeout)) {
            self.pending = Some(PendingCall { id, method: method.to_owned(), params: params.to_owned() });
            return Err(ClientError::TimedOut);
        }
        self.wait(id, on_progress)
    }

    fn wait(&mut self, id: u64, on_progress: &mut dyn FnMut(Progress)) -> Result<String, ClientError> {
        loop {
            let mut answer = String::new();
            if self.reader.read_line(&mut answer)? == 0 {
                return Err(ClientError::Closed);
            }
            let answer: Answer = serde_json::from_str(&answer)?;
            if answer.method.as_deref() == Some("exec.progress") {
                if let Some(params) = &answer.params {
                    on_progress(serde_json::from_str(params.get())?);
                }
                continue;
            }
            // The answer to an earlier call that timed out.
            if answer.id.is_some_and(|other| other != id) {
                continue;
            }
            return match (answer.result, answer.error) {
                (Some(result), _) => Ok(result.get().to_owned()),
                (None, Some(error)) => Err(ClientError::Refused { code: error.code, message: error.message }),
                (None, None) => Err(ClientError::Closed),
            };
        }
    }

    fn send(&mut self, method: &str, params: &str) -> Result<u64, ClientError> {
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
        match self.stream().write_all(line.as_bytes()) {
            // The daemon reads no more: it has not received this request, so sending it again cannot repeat it.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => self.send_again(&line, error)?,
            outcome => outcome?,
        }
        Ok(id)
    }

    fn send_again(&mut self, line: &str, error: std::io::Error) -> std::io::Result<()> {
        let Some(Reconnect(reconnect)) = &mut self.reconnect else { return Err(error) };
        self.reader = BufReader::new(Polled(reconnect()?));
        self.stream().write_all(line.as_bytes())
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

/// A new id for a tool call, for front ends whose callers send none.
pub fn new_tool_call_id() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut random = [0; 8];
    // Without random bytes the time alone makes the id unique.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    aos_model::id::make(aos_model::id::TOOL_CALL, since.as_nanos() as u64, u64::from_ne_bytes(random))
}
