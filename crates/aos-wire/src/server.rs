//! The socket server: one thread per connection, answers in any order.
//!
//! A request that need not wait runs on the connection's thread: a switch of threads would cost more than most requests
//! take. One that must wait for others of its session gets its own thread, so that `signal` and `list` on the same
//! connection are never blocked by it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use aos_host::{Answer, Call, Host, Job, Watcher};
use aos_model::limits::{
    CONNECTION_REQUESTS_MAX, CONNECTIONS_MAX, FRAME_BYTES_FREE, FRAME_BYTES_MAX, FRAMES_BYTES_MAX,
    WALK_STACK_BYTES,
};
use aos_model::strict;
use rustix::io::Errno;
use serde_json::value::RawValue;

use crate::frame::{Frame, FrameBudget, read_frame};
use crate::methods;
use crate::peer::{PeerError, check_peer};
use crate::polled::Polled;
use crate::rpc::{self, EffectCall, ErrorCode, Line, Message, RpcError};
use crate::writer::{ConnectionWriter, Response};

/// Small, because each of up to a thousand connections allocates it.
const READ_BYTES: usize = 16 << 10;

/// A request that takes longer is logged. Commands are not: they may run as long as their timeout.
const SLOW: Duration = Duration::from_secs(5);

/// The methods that the daemon's own program answers.
pub trait Control: Send + Sync {
    /// The result of `daemon.status`, as JSON.
    fn status(&self) -> String;
    fn stop(&self);
}

/// The socket server of one host.
pub struct Server {
    host: Arc<Host>,
    control: Arc<dyn Control>,
    state: Mutex<State>,
    /// Notified while stopping, when a part of the state that [`Server::stop`] waits for changes.
    changed: Condvar,
    stopping: AtomicBool,
    frames: FrameBudget,
}

#[derive(Default)]
struct State {
    /// Until [`Server::serve`] has returned.
    accepting: bool,
    connections: HashMap<u64, Arc<ConnectionWriter>>,
    next_connection: u64,
    /// Requests that were read and are not answered yet.
    requests: usize,
    /// The time to stop is over: nothing more is answered.
    closed: bool,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("connections", &self.connections()).finish_non_exhaustive()
    }
}

impl Server {
    pub fn new(host: Arc<Host>, control: Arc<dyn Control>) -> Arc<Server> {
        Arc::new(Server {
            host,
            control,
            state: Mutex::new(State { accepting: true, ..State::default() }),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            frames: FrameBudget::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("BUG: lock poisoned")
    }

    /// Changes the state, and wakes [`Server::stop`] if it waits.
    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let outcome = change(&mut self.state());
        if self.stopping.load(Ordering::Acquire) {
            self.changed.notify_all();
        }
        outcome
    }

    pub fn connections(&self) -> usize {
        self.state().connections.len()
    }

    /// Accepts connections until [`Server::stop`]. Called once.
    pub fn serve(self: &Arc<Server>, listener: &UnixListener) -> io::Result<()> {
        let outcome = self.accept_all(listener);
        self.update(|state| state.accepting = false);
        outcome
    }

    fn accept_all(self: &Arc<Server>, listener: &UnixListener) -> io::Result<()> {
        let mut out_of_descriptors = false;
        loop {
            let error = match listener.accept() {
                Ok((stream, _)) => {
                    out_of_descriptors = false;
                    self.admit_connection(stream);
                    continue;
                }
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                // The open connections continue; new ones wait in the listener's queue.
                Some(Errno::MFILE | Errno::NFILE) => {
                    if !std::mem::replace(&mut out_of_descriptors, true) {
                        tracing::warn!(%error, "out of descriptors; new connections wait");
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                Some(Errno::CONNABORTED | Errno::INTR) => {}
                // A listener that was shut down: `accept` has returned all connections of its queue.
                Some(Errno::INVAL) if self.stopping.load(Ordering::Acquire) => return Ok(()),
                _ => return Err(error),
            }
        }
    }

    fn admit_connection(self: &Arc<Server>, stream: UnixStream) {
        if let Err(reason) = check_peer(&self.host, &stream) {
            // A client that only looks whether a daemon is there has often exited by now.
            match reason {
                PeerError::Exited { .. } => tracing::debug!(%reason, "connection refused"),
                _ => tracing::warn!(%reason, "connection refused"),
            }
            return;
        }
        let writer = Arc::new(ConnectionWriter::new(stream));
        let Some(id) = self.update(|state| state.add(&writer)) else {
            tracing::warn!(max = CONNECTIONS_MAX, "connection refused: too many connections");
            return;
        };
        let connection = Connection { server: self.clone(), writer };
        let thread = std::thread::Builder::new().name("connection".into()).stack_size(WALK_STACK_BYTES);
        let spawned = thread.spawn(move || {
            if let Err(error) = connection.run() {
                tracing::debug!(%error, "connection lost");
            }
            connection.server.update(|state| state.connections.remove(&id));
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "connection refused: cannot start a thread");
            self.update(|state| state.connections.remove(&id));
        }
    }

    /// Stops accepting, answers what was received, and closes the connections. False if that took too long.
    ///
    /// Every client either gets its answer or knows that its request was not received. A listener that is shut down
    /// refuses to connect (ECONNREFUSED), and the connections in its queue are still served. On a connection that is
    /// shut down for reading, requests that were sent before are still read, and later writes fail with EPIPE.
    pub fn stop(&self, listener: &UnixListener, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        self.stopping.store(true, Ordering::Release);
        if let Err(error) = rustix::net::shutdown(listener, rustix::net::Shutdown::Read) {
            tracing::warn!(%error, "cannot shut down the listener");
        }
        let state = self.wait_while(self.state(), deadline, |state| state.accepting);
        for connection in state.connections.values() {
            let _ = connection.stream.shutdown(Shutdown::Read);
        }
        let mut state = self.wait_while(state, deadline, State::is_busy);
        state.closed = true;
        !state.is_busy()
    }

    /// Waits a while longer for what [`Server::stop`] left. False if that took too long.
    pub fn wait_for_rest(&self, patience: Duration) -> bool {
        !self.wait_while(self.state(), Instant::now() + patience, State::is_busy).is_busy()
    }

    fn wait_while<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        deadline: Instant,
        condition: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.changed.wait_timeout_while(state, left, condition).expect("BUG: lock poisoned").0
    }

    /// Counts a request, unless the server is closed.
    fn begin_request(self: &Arc<Server>) -> Option<RequestGuard> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.requests += 1;
        Some(RequestGuard(self.clone()))
    }

    fn admit<'a>(&self, params: &'a str) -> Result<(Job, Cow<'a, str>), RpcError> {
        let call: EffectCall<'a> = strict::parse(params).map_err(RpcError::params)?;
        let params = call.params.map_or("{}", RawValue::get);
        let job = self.host.admit(Call {
            kind: &call.kind,
            params,
            tool_call_id: call.tool_call_id.as_deref(),
            turn_id: call.turn_id.as_deref(),
        });
        let job = job.map_err(|why| RpcError::new(ErrorCode::ParseError, why))?;
        Ok((job, call.kind))
    }
}

impl State {
    fn is_busy(&mut self) -> bool {
        self.requests > 0 || !self.connections.is_empty()
    }

    /// `None` if there are too many connections.
    fn add(&mut self, writer: &Arc<ConnectionWriter>) -> Option<u64> {
        if self.connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        self.next_connection += 1;
        self.connections.insert(self.next_connection, writer.clone());
        Some(self.next_connection)
    }
}

/// A request that is not answered yet.
struct RequestGuard(Arc<Server>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.update(|state| state.requests -= 1);
    }
}

struct Connection {
    server: Arc<Server>,
    writer: Arc<ConnectionWriter>,
}

/// The response to a message, or the work that computes it. Notifications have none.
enum Reply {
    Now(Option<Response>),
    OnThread(Work),
}

type Work = Box<dyn FnOnce() -> Option<Response> + Send>;

impl Connection {
    fn run(&self) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(READ_BYTES, Polled(&self.writer.stream));
        let mut line = Vec::new();
        loop {
            let mut share = self.server.frames.share(&self.writer);
            match read_frame(&mut reader, &mut line, &mut share)? {
                Frame::End => return Ok(()),
                Frame::TooLong(bytes) => {
                    tracing::warn!(bytes, "a line is too long; its connection is closed");
                    self.refuse_frame(&format!(
                        "a line is at most {FRAME_BYTES_MAX} bytes, and all long lines together {FRAMES_BYTES_MAX}; send larger content by blob"
                    ));
                    return Ok(());
                }
                Frame::Evicted => {
                    tracing::warn!(
                        "a connection is closed: its unfinished line took the memory that others need"
                    );
                    self.refuse_frame(
                        "the line was not finished while others needed its memory; connect and send it again",
                    );
                    return Ok(());
                }
                Frame::Complete => {}
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let Some(request) = self.server.begin_request() else { return Ok(()) };
            self.handle(&line, request);
            if line.capacity() > FRAME_BYTES_FREE {
                line = Vec::new();
            }
        }
    }

    fn refuse_frame(&self, why: &str) {
        let error = RpcError::new(ErrorCode::InvalidRequest, why);
        self.writer.send(rpc::error(None, &error).into());
        // Closes only our direction first, so that the client can read the answer while it still writes.
        let _ = self.writer.stream.shutdown(Shutdown::Write);
    }

    fn handle(&self, line: &[u8], request: RequestGuard) {
        match rpc::parse_line(line) {
            Line::One(message) => match self.reply(message) {
                Reply::Now(Some(response)) => self.writer.send(response),
                Reply::Now(None) => {}
                Reply::OnThread(work) => self.run_on_thread(work, request),
            },
            Line::Batch(messages) => {
                self.writer.send_batch(messages.into_iter().filter_map(
                    |message| match self.reply(message) {
                        Reply::Now(response) => response,
                        Reply::OnThread(work) => work(),
                    },
                ));
            }
        }
    }

    /// Runs a request on its own thread. If too many run already, or no thread can be started, it runs on this one.
    fn run_on_thread(&self, work: Work, request: RequestGuard) {
        let writer = self.writer.clone();
        let finish = move || {
            if let Some(response) = work() {
                writer.send(response);
            }
            writer.request_threads.fetch_sub(1, Ordering::Relaxed);
            drop(request);
        };
        if self.writer.request_threads.fetch_add(1, Ordering::Relaxed) >= CONNECTION_REQUESTS_MAX {
            return finish();
        }
        // `spawn` drops the closure when it fails, so the work is shared until one of the two takes it.
        let shared = Arc::new(Mutex::new(Some(finish)));
        let for_thread = shared.clone();
        let take = |slot: &Mutex<Option<_>>| slot.lock().expect("BUG: lock poisoned").take();
        let spawned = std::thread::Builder::new()
            .name("request".into())
            .stack_size(WALK_STACK_BYTES)
            .spawn(move || take(&for_thread).map(|finish| finish()));
        if let Err(error) = spawned
            && let Some(finish) = take(&shared)
        {
            tracing::warn!(%error, "cannot start a thread; a request blocks its connection");
            finish();
        }
    }

    fn reply(&self, message: Result<Message<'_>, RpcError>) -> Reply {
        let message = match message {
            Ok(message) => message,
            Err(error) => return Reply::Now(Some(rpc::error(None, &error).into())),
        };
        let started = Instant::now();
        if message.method == "effect.call" {
            return match self.server.admit(message.params) {
                Ok((job, kind)) => self.effect(job, kind, message.id, started),
                Err(error) => Reply::Now(response_to(message.id, Err(error))),
            };
        }
        let outcome = self.call_method(&message.method, message.params);
        let status = if outcome.is_ok() { "answered" } else { "error" };
        warn_if_slow(&message.method, &status, started);
        Reply::Now(response_to(message.id, outcome))
    }

    fn effect(&self, job: Job, kind: Cow<'_, str>, id: Option<&RawValue>, started: Instant) -> Reply {
        if !job.must_wait() {
            let answer = self.server.host.answer(job, None);
            warn_if_slow(&kind, &answer.status, started);
            return Reply::Now(effect_response(id, answer));
        }
        let (host, id, kind) = (self.server.host.clone(), id.map(RawValue::to_owned), kind.into_owned());
        let watcher: Arc<dyn Watcher> = self.writer.clone();
        Reply::OnThread(Box::new(move || {
            let answer = host.answer(job, Some(watcher));
            warn_if_slow(&kind, &answer.status, started);
            effect_response(id.as_deref(), answer)
        }))
    }

    fn call_method(&self, method: &str, params: &str) -> Result<String, RpcError> {
        let host = &self.server.host;
        match method {
            "policy.evaluate" => methods::evaluate(host, params),
            "blob.adopt" => methods::adopt(host, params),
            "store.gc" => methods::no_params(params).map(|()| host.collect_garbage()),
            "session.history" => methods::history(host, params),
            "session.diff" => methods::diff(host, params),
            "effect.foresee" => methods::preview(host, params),
            "blob.read" => methods::read_blob(host, params),
            "exec.cancel" => methods::cancel(host, params),
            "daemon.status" => methods::no_params(params).map(|()| self.server.control.status()),
            "daemon.stop" => {
                methods::no_params(params)?;
                self.server.control.stop();
                Ok("{\"status\":\"ok\"}".to_owned())
            }
            other => {
                let why = format!("no method `{}`", aos_model::text::escape(other));
                Err(RpcError::new(ErrorCode::MethodNotFound, why))
            }
        }
    }
}

fn warn_if_slow(kind: &str, status: &dyn std::fmt::Debug, started: Instant) {
    let elapsed = started.elapsed();
    if elapsed > SLOW && kind != "host.exec" {
        tracing::warn!(kind, ?status, ms = elapsed.as_millis() as u64, "slow request");
    }
}

fn response_to(id: Option<&RawValue>, outcome: Result<String, RpcError>) -> Option<Response> {
    id.map(|id| match outcome {
        Ok(result) => rpc::result(id, &result).into(),
        Err(error) => rpc::error(Some(id), &error).into(),
    })
}

fn effect_response(id: Option<&RawValue>, answer: Answer) -> Option<Response> {
    id.map(|id| Response { answer: rpc::result(id, &answer.receipt), lane: answer.lane })
}
