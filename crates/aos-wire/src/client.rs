//! The client side of the socket: one question, one answer, and what is told meanwhile.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use aos_tools::{CallError, DaemonApi, Progress, effect_call};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
    next_id: u64,
    /// How long an answer may take; left out: as long as it takes.
    patience: Option<Duration>,
    late: Option<Late>,
}

/// A question whose answer is still to come.
#[derive(Debug)]
struct Late {
    id: u64,
    method: String,
    params: String,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the daemon ended before it answered; see `aos log` for what was done")]
    Ended,
    #[error("the connection to the daemon broke: {0}")]
    Broken(#[from] std::io::Error),
    #[error("{message} ({code})")]
    Refused { code: i64, message: String },
    #[error("the daemon answered something else: {0}")]
    Strange(#[from] serde_json::Error),
    #[error("the daemon has not answered yet")]
    Late,
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
    error: Option<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    code: i64,
    message: String,
}

impl Client {
    pub fn new(stream: UnixStream) -> Client {
        Client { reader: BufReader::new(stream), next_id: 1, patience: None, late: None }
    }

    /// Whether the daemon is still at the other end; it says nothing unasked, so anything to read is its end.
    pub fn is_connected(&self) -> bool {
        !self.has_something_within(Duration::ZERO)
    }

    /// With patience a question that takes longer is [`ClientError::Late`]. Asked again, with more patience, it is not
    /// sent again: its answer is waited for.
    pub fn set_patience(&mut self, patience: Option<Duration>) {
        self.patience = patience;
    }

    /// Whether the last question is still to be answered.
    pub fn is_late(&self) -> bool {
        self.late.is_some()
    }

    fn has_something_within(&self, time: Duration) -> bool {
        let mut fds = [rustix::event::PollFd::new(self.reader.get_ref(), rustix::event::PollFlags::IN)];
        let time =
            rustix::event::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        !self.reader.buffer().is_empty() || !matches!(rustix::event::poll(&mut fds, Some(&time)), Ok(0))
    }

    /// Sends `params` (JSON) to `method` and waits for the result (JSON).
    pub fn call(&mut self, method: &str, params: &str) -> Result<String, ClientError> {
        self.watch(method, params, &mut |_| {})
    }

    /// As [`Client::call`]; `each` gets what a command writes while it runs.
    pub fn watch(
        &mut self,
        method: &str,
        params: &str,
        each: &mut dyn FnMut(Progress),
    ) -> Result<String, ClientError> {
        let id = match self.late.take() {
            Some(late) if late.method == method && late.params == params => late.id,
            _ => self.send(method, params)?,
        };
        if self.patience.is_some_and(|patience| !self.has_something_within(patience)) {
            self.late = Some(Late { id, method: method.to_owned(), params: params.to_owned() });
            return Err(ClientError::Late);
        }
        self.wait(id, each)
    }

    fn wait(&mut self, id: u64, each: &mut dyn FnMut(Progress)) -> Result<String, ClientError> {
        loop {
            let mut answer = String::new();
            if self.reader.read_line(&mut answer)? == 0 {
                return Err(ClientError::Ended);
            }
            let answer: Answer = serde_json::from_str(&answer)?;
            if answer.method.as_deref() == Some("exec.progress") {
                if let Some(params) = &answer.params {
                    each(serde_json::from_str(params.get())?);
                }
                continue;
            }
            // The answer to a question that nobody waited for in the end.
            if answer.id.is_some_and(|other| other != id) {
                continue;
            }
            return match (answer.result, answer.error) {
                (Some(result), _) => Ok(result.get().to_owned()),
                (None, Some(problem)) => {
                    Err(ClientError::Refused { code: problem.code, message: problem.message })
                }
                (None, None) => Err(ClientError::Ended),
            };
        }
    }

    fn send(&mut self, method: &str, params: &str) -> std::io::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let mut line =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}");
        // A message is one line; a newline in the caller's JSON can only be white space between tokens.
        if line.contains(['\n', '\r']) {
            line = line.replace(['\n', '\r'], " ");
        }
        line.push('\n');
        self.reader.get_ref().write_all(line.as_bytes())?;
        Ok(id)
    }

    /// Sends one effect. Ids are plain tokens or are refused by the daemon.
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
        watch: &mut dyn FnMut(Progress),
    ) -> Result<String, CallError> {
        self.watch(method, params, watch).map_err(|why| CallError(why.to_string()))
    }
}

/// A new id for a tool call, for doors whose callers bring none.
pub fn new_tool_call_id() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut random = [0; 8];
    // Without randomness the time alone tells calls apart.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    aos_model::id::make(aos_model::id::TOOL_CALL, since.as_nanos() as u64, u64::from_ne_bytes(random))
}
