//! The server: a thread a connection, answers in any order, nobody waits for a neighbour.
//!
//! A request that need not wait runs where it was read: handing it to another thread would cost more than most of
//! them take. One that must wait for others of its session gets a thread of its own, so that `signal` and `list`
//! on the same connection never stand behind it.

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use aos_host::{Answer, Call, Host, Job, Watcher};
use aos_model::limits::{
    CONNECTION_REQUESTS_MAX, CONNECTIONS_MAX, FRAME_BYTES_FREE, FRAME_BYTES_MAX, FRAMES_BYTES_MAX,
    WALK_STACK_BYTES,
};
use aos_model::strict;
use serde_json::value::RawValue;

use crate::methods;
use crate::out::{Out, Response};
use crate::peer::may_speak;
use crate::rpc::{self, EffectCall, ErrorCode, Line, Message, RpcError};

/// How long a long line waits for others to be answered before it is refused.
const FRAME_PATIENCE: Duration = Duration::from_secs(1);

/// All of it is touched with the first read of a connection, and there may be a thousand of them.
const READ_BYTES: usize = 16 << 10;

/// What only the operator's program can answer: how the daemon is, and that it shall stop.
pub trait Control: Send + Sync {
    /// The result of `daemon.status`, as JSON.
    fn status(&self) -> String;
    fn stop(&self);
}

/// The socket server of one host.
pub struct Server {
    pub(crate) host: Arc<Host>,
    control: Arc<dyn Control>,
    connections: AtomicUsize,
    /// Requests that were taken in and are not answered yet.
    under_way: Mutex<usize>,
    all_answered: Condvar,
    stopping: AtomicBool,
    unfinished: Budget,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("connections", &self.connections).finish_non_exhaustive()
    }
}

impl Server {
    pub fn new(host: Arc<Host>, control: Arc<dyn Control>) -> Arc<Server> {
        Arc::new(Server {
            host,
            control,
            connections: AtomicUsize::new(0),
            under_way: Mutex::new(0),
            all_answered: Condvar::new(),
            stopping: AtomicBool::new(false),
            unfinished: Budget::default(),
        })
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Accepts for ever. The process ends when somebody called [`Server::drain`] and then exits.
    pub fn serve(self: &Arc<Server>, listener: &UnixListener) -> io::Result<()> {
        for stream in listener.incoming() {
            let stream = match stream {
                Ok(stream) => stream,
                // Out of descriptors: those that are open go on; new ones wait a little.
                Err(why) if matches!(why.raw_os_error(), Some(23 | 24)) => {
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
                Err(why)
                    if why.kind() == io::ErrorKind::ConnectionAborted
                        || why.kind() == io::ErrorKind::Interrupted =>
                {
                    continue;
                }
                Err(why) => return Err(why),
            };
            if !may_speak(&self.host, &stream)
                || self.connections() >= CONNECTIONS_MAX
                || self.stopping.load(Ordering::Acquire)
            {
                continue;
            }
            self.connections.fetch_add(1, Ordering::Relaxed);
            let server = self.clone();
            let thread = std::thread::Builder::new().name("connection".into()).stack_size(WALK_STACK_BYTES);
            let spawned = thread.spawn(move || {
                let _ = Connection::new(&server, stream).run();
                server.connections.fetch_sub(1, Ordering::Relaxed);
            });
            if spawned.is_err() {
                self.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Takes no more requests in and waits until those under way are answered. False when time ran out.
    pub fn drain(&self, patience: Duration) -> bool {
        self.stopping.store(true, Ordering::Release);
        let under_way = self.under_way.lock().expect("BUG: nobody panics counting");
        let (left, _) = self
            .all_answered
            .wait_timeout_while(under_way, patience, |n| *n > 0)
            .expect("BUG: nobody panics counting");
        *left == 0
    }

    /// Counts a request in, unless the daemon is stopping.
    pub(crate) fn enter(self: &Arc<Server>) -> Option<Entered> {
        let mut under_way = self.under_way.lock().expect("BUG: nobody panics counting");
        if self.stopping.load(Ordering::Acquire) {
            return None;
        }
        *under_way += 1;
        Some(Entered(self.clone()))
    }

    pub(crate) fn admit(&self, params: &str) -> Result<Job, RpcError> {
        let call: EffectCall<'_> = strict::parse(params).map_err(RpcError::params)?;
        let params = call.params.map_or("{}", RawValue::get);
        let call = Call {
            kind: &call.kind,
            params,
            tool_call_id: call.tool_call_id.as_deref(),
            turn_id: call.turn_id.as_deref(),
        };
        self.host.admit(call).map_err(|why| RpcError::new(ErrorCode::ParseError, why))
    }
}

pub(crate) struct Entered(Arc<Server>);

impl Drop for Entered {
    fn drop(&mut self) {
        let mut under_way = self.0.under_way.lock().expect("BUG: nobody panics counting");
        *under_way -= 1;
        if *under_way == 0 && self.0.stopping.load(Ordering::Acquire) {
            self.0.all_answered.notify_all();
        }
    }
}

struct Connection {
    server: Arc<Server>,
    out: Arc<Out>,
}

/// What is to be sent, now or later. Notifications get nothing.
enum Reply {
    Now(Option<Response>),
    /// Runs on a thread of its own.
    Apart(Later),
}

type Later = Box<dyn FnOnce() -> Option<Response> + Send>;

impl Connection {
    fn new(server: &Arc<Server>, stream: UnixStream) -> Connection {
        Connection { server: server.clone(), out: Arc::new(Out::new(stream)) }
    }

    fn run(&self) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(READ_BYTES, &self.out.stream);
        let mut line = Vec::new();
        loop {
            let mut held = Held { budget: &self.server.unfinished, bytes: 0 };
            match read_line(&mut reader, &mut line, &mut held)? {
                Read::End => return Ok(()),
                Read::TooLong => {
                    let error = RpcError::new(
                        ErrorCode::InvalidRequest,
                        format!(
                            "a line is at most {FRAME_BYTES_MAX} bytes, and all long lines together {FRAMES_BYTES_MAX}; send larger content by blob"
                        ),
                    );
                    self.out.send(rpc::error(None, &error).into());
                    // Reading on a little lets the other side see the answer before the connection breaks.
                    let _ = self.out.stream.shutdown(std::net::Shutdown::Write);
                    return Ok(());
                }
                Read::Line => {}
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let Some(entered) = self.server.enter() else { return Ok(()) };
            self.line(&line, entered);
            if line.capacity() > 1 << 20 {
                line = Vec::new();
            }
        }
    }

    fn line(&self, line: &[u8], entered: Entered) {
        match rpc::parse_line(line) {
            Line::One(message) => match self.reply(message) {
                Reply::Now(answer) => {
                    if let Some(answer) = answer {
                        self.out.send(answer);
                    }
                }
                Reply::Apart(run) => self.apart(run, entered),
            },
            Line::Batch(messages) => {
                let answers: Vec<String> = messages
                    .into_iter()
                    .filter_map(|message| match self.reply(message) {
                        Reply::Now(answer) => answer,
                        Reply::Apart(run) => run(),
                    })
                    .map(|response| response.answer)
                    .collect();
                if !answers.is_empty() {
                    self.out.send(format!("[{}]", answers.join(",")).into());
                }
            }
        }
    }

    /// Runs a waiting request beside the connection; when too many wait already, the connection waits with them.
    fn apart(&self, run: Later, entered: Entered) {
        let out = self.out.clone();
        let finish = move || {
            if let Some(answer) = run() {
                out.send(answer);
            }
            out.apart.fetch_sub(1, Ordering::Relaxed);
            drop(entered);
        };
        if self.out.apart.fetch_add(1, Ordering::Relaxed) >= CONNECTION_REQUESTS_MAX {
            return finish();
        }
        let shared = Arc::new(Mutex::new(Some(finish)));
        let theirs = shared.clone();
        let take = |slot: &Mutex<Option<_>>| slot.lock().expect("BUG: taken once").take();
        let spawned = std::thread::Builder::new()
            .name("request".into())
            .stack_size(WALK_STACK_BYTES)
            .spawn(move || take(&theirs).map(|finish| finish()));
        if spawned.is_err()
            && let Some(finish) = take(&shared)
        {
            finish();
        }
    }

    fn reply(&self, message: Result<Message<'_>, RpcError>) -> Reply {
        let message = match message {
            Ok(message) => message,
            Err(error) => return Reply::Now(Some(rpc::error(None, &error).into())),
        };
        let outcome = match &*message.method {
            "effect.call" => match self.server.admit(message.params) {
                Ok(job) if job.must_wait() => return self.later(job, message.id),
                Ok(job) => return Reply::Now(response(message.id, self.server.host.answer(job, None))),
                Err(error) => Err(error),
            },
            "policy.evaluate" => methods::evaluate(&self.server.host, message.params),
            "blob.adopt" => methods::adopt(&self.server.host, message.params),
            "store.gc" => Ok(self.server.host.collect_garbage()),
            "session.history" => methods::history(&self.server.host, message.params),
            "session.diff" => methods::diff(&self.server.host, message.params),
            "effect.foresee" => methods::preview(&self.server.host, message.params),
            "blob.read" => methods::read_blob(&self.server.host, message.params),
            "exec.cancel" => methods::cancel(&self.server.host, message.params),
            "daemon.status" => Ok(self.server.control.status()),
            "daemon.stop" => {
                self.server.control.stop();
                Ok("{\"status\":\"ok\"}".to_owned())
            }
            other => {
                let why = format!("no method `{}`", aos_model::text::escape(other));
                Err(RpcError::new(ErrorCode::MethodNotFound, why))
            }
        };
        Reply::Now(answered(message.id, outcome))
    }

    fn later(&self, job: Job, id: Option<&RawValue>) -> Reply {
        let (host, id) = (self.server.host.clone(), id.map(RawValue::to_owned));
        let watcher: Arc<dyn Watcher> = self.out.clone();
        Reply::Apart(Box::new(move || response(id.as_deref(), host.answer(job, Some(watcher)))))
    }
}

fn answered(id: Option<&RawValue>, outcome: Result<String, RpcError>) -> Option<Response> {
    id.map(|id| match outcome {
        Ok(result) => rpc::result(id, &result).into(),
        Err(error) => rpc::error(Some(id), &error).into(),
    })
}

fn response(id: Option<&RawValue>, answer: Answer) -> Option<Response> {
    id.map(|id| Response { answer: rpc::result(id, &answer.receipt), turn: answer.turn })
}

enum Read {
    Line,
    TooLong,
    End,
}

/// One line, of bounded length. What follows no newline at the end is no message.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>, held: &mut Held<'_>) -> io::Result<Read> {
    line.clear();
    loop {
        let available = match reader.fill_buf() {
            Ok([]) => return Ok(Read::End),
            Ok(available) => available,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(why),
        };
        let end = available.iter().position(|b| *b == b'\n');
        let taken = end.unwrap_or(available.len());
        if line.len() + taken > FRAME_BYTES_MAX || !held.grow_to(line.len() + taken) {
            return Ok(Read::TooLong);
        }
        line.extend_from_slice(&available[..taken]);
        reader.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(Read::Line);
        }
    }
}

/// What all connections together may hold of lines that are long and not answered yet.
#[derive(Debug, Default)]
struct Budget {
    held_bytes: Mutex<usize>,
    freed: Condvar,
}

/// One connection's share, given back when its line is answered.
struct Held<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl Held<'_> {
    /// Small lines are free. False when the others did not make room in time.
    fn grow_to(&mut self, bytes: usize) -> bool {
        if bytes <= FRAME_BYTES_FREE || bytes <= self.bytes {
            return true;
        }
        // By doubling, so that a line grows with few looks at the shared count.
        let wanted = bytes.next_power_of_two().min(FRAME_BYTES_MAX);
        let more = wanted - self.bytes;
        let held = self.budget.held_bytes.lock().expect("BUG: nobody panics counting");
        let full = |held: &mut usize| *held + more > FRAMES_BYTES_MAX;
        let (mut held, _) = self
            .budget
            .freed
            .wait_timeout_while(held, FRAME_PATIENCE, full)
            .expect("BUG: nobody panics counting");
        if *held + more > FRAMES_BYTES_MAX {
            return false;
        }
        *held += more;
        self.bytes = wanted;
        true
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.budget.held_bytes.lock().expect("BUG: nobody panics counting") -= self.bytes;
            self.budget.freed.notify_all();
        }
    }
}
