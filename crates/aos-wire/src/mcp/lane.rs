//! The quick lane: a plain call of a quick tool is answered where its line is read, before the protocol's machinery.
//!
//! That machinery costs as much as the call itself. Only what is understood to the last field goes this way; every other
//! byte passes through unchanged, and rmcp answers it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};

use rmcp::model::{CallToolResult, RequestId};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::door::Door;
use super::handler::result;
use crate::tools::Outcome;

/// The two ends of a connection, for rmcp.
pub(super) fn open<R, W>(door: Door, from: R, to: W) -> (Incoming<R, W>, Outgoing<W>) {
    let out = Arc::new(Mutex::new(Out::new(to)));
    let incoming = Incoming { door, from, out: out.clone(), is_between_lines: true, client: Client::Unknown };
    (incoming, Outgoing(out))
}

pub(super) struct Incoming<R, W> {
    door: Door,
    from: R,
    out: Arc<Mutex<Out<W>>>,
    is_between_lines: bool,
    client: Client,
}

/// Clients of this version and later say with each call what they can do: rmcp knows how to read it.
const NEWER: &str = "2026-07-28";

/// What is known of who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Unknown,
    /// It says hello, and cannot ask a person.
    Greeting,
    Plain,
}

/// What rmcp and the lane both write to, a line at a time.
struct Out<W> {
    to: W,
    /// Lines of the lane that are still to be written.
    waiting: Vec<u8>,
    /// Whether rmcp's last line was written to its end.
    is_between_lines: bool,
    /// Of rmcp, when it could not write: the stream forgets it when the lane asks after it.
    blocked: Option<Waker>,
}

pub(super) struct Outgoing<W>(Arc<Mutex<Out<W>>>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    method: &'a str,
    params: Call<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call<'a> {
    name: &'a str,
    #[serde(default)]
    arguments: Map<String, Value>,
    #[serde(default, rename = "_meta")]
    _meta: Option<Meta>,
}

/// A quick tool has no progress to tell.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    #[serde(default, rename = "progressToken")]
    _progress_token: IgnoredAny,
}

#[derive(Serialize)]
struct Answer<'a> {
    jsonrpc: &'a str,
    id: &'a RawValue,
    result: CallToolResult,
}

impl<R, W: AsyncWrite + Unpin> Incoming<R, W> {
    /// Answers the line if it is a plain call of a quick tool; `false` leaves it to rmcp.
    fn answers(&mut self, line: &[u8]) -> bool {
        if self.client != Client::Plain || !lock(&self.out).waiting.is_empty() {
            return false;
        }
        let Ok(Line { jsonrpc: "2.0", id, method: "tools/call", params }) = serde_json::from_slice(line)
        else {
            return false;
        };
        let Ok(number) = serde_json::from_str::<RequestId>(id.get()) else { return false };
        let tool = self.door.tools().into_iter().find(|tool| tool.name == params.name && tool.is_quick());
        let Some(tool) = tool else { return false };
        let order = match self.door.order(tool, params.arguments) {
            Ok(order) => order,
            Err(refused) => return self.say(id, refused),
        };
        match self.door.call_at_once(&order) {
            Ok(outcome) => self.say(id, outcome),
            Err(client) => {
                self.door.leave_asked(number, order, client);
                false
            }
        }
    }

    fn say(&self, id: &RawValue, outcome: Outcome) -> bool {
        let mut result = result(outcome);
        // Protocols before `NEWER` do not know it.
        result.result_type = None;
        let answer = Answer { jsonrpc: "2.0", id, result };
        let mut out = lock(&self.out);
        serde_json::to_writer(&mut out.waiting, &answer).expect("BUG: a result is JSON");
        out.waiting.push(b'\n');
        true
    }

    /// Watches for the greeting, which rmcp answers. One that comes in pieces is missed, and rmcp answers everything.
    fn overhear(&mut self, read: &[u8]) {
        for said in
            read.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        {
            let (version, can) = (&said["params"]["protocolVersion"], &said["params"]["capabilities"]);
            let is_plain =
                version.as_str().is_some_and(|version| version < NEWER) && can["elicitation"].is_null();
            self.client = match (self.client, said["method"].as_str()) {
                (Client::Unknown, Some("initialize")) if is_plain => Client::Greeting,
                (Client::Greeting, Some("notifications/initialized")) => Client::Plain,
                (client, _) => client,
            };
        }
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> AsyncRead for Incoming<R, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        loop {
            // What cannot be written now does not keep us from reading; who broke the pipe is seen there.
            let _ = lock(&self.out).poll_drain(context);
            ready!(Pin::new(&mut self.from).poll_read(context, buffer))?;
            let read = &buffer.filled()[before..];
            if read.is_empty() {
                // The client says no more; what it asked is still answered.
                return lock(&self.out).poll_drain(context);
            }
            let ends_at = read.iter().position(|byte| *byte == b'\n');
            let is_line = self.is_between_lines && ends_at == Some(read.len() - 1);
            if is_line && self.answers(read) {
                buffer.set_filled(before);
                continue;
            }
            if self.client != Client::Plain {
                self.overhear(read);
            }
            self.is_between_lines = read.ends_with(b"\n");
            return Poll::Ready(Ok(()));
        }
    }
}

impl<W> Out<W> {
    fn new(to: W) -> Out<W> {
        Out { to, waiting: Vec::new(), is_between_lines: true, blocked: None }
    }
}

impl<W: AsyncWrite + Unpin> Out<W> {
    /// Writes what waits, unless a line of rmcp's is half written: then it follows that line.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.is_between_lines && !self.waiting.is_empty() {
            let written = ready!(Pin::new(&mut self.to).poll_write(context, &self.waiting))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.drain(..written);
            if self.waiting.is_empty()
                && let Some(blocked) = self.blocked.take()
            {
                blocked.wake();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Outgoing<W> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut out = lock(&self.0);
        ready!(out.poll_drain(context))?;
        let outcome = Pin::new(&mut out.to).poll_write(context, bytes);
        match outcome {
            Poll::Pending => out.blocked = Some(context.waker().clone()),
            Poll::Ready(Ok(written)) if written > 0 => {
                out.is_between_lines = bytes[..written].ends_with(b"\n");
            }
            Poll::Ready(_) => {}
        }
        outcome
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut out = lock(&self.0);
        ready!(out.poll_drain(context))?;
        Pin::new(&mut out.to).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut out = lock(&self.0);
        ready!(out.poll_drain(context))?;
        Pin::new(&mut out.to).poll_shutdown(context)
    }
}

fn lock<W>(out: &Mutex<Out<W>>) -> MutexGuard<'_, Out<W>> {
    out.lock().expect("BUG: nobody panics while writing")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A stream remembers one waker: who asks last is woken, and must wake the other.
    #[test]
    fn nobody_is_left_waiting_at_a_full_pipe() {
        let told = super::super::runtime().expect("a runtime").block_on(async {
            let (near, mut far) = tokio::io::duplex(4);
            let out = Arc::new(Mutex::new(Out::new(near)));
            let mut rmcp = Outgoing(out.clone());
            rmcp.write_all(b"one\n").await.expect("there is room");
            let second = tokio::spawn(async move { rmcp.write_all(b"two\n").await });
            tokio::task::yield_now().await;
            lock(&out).waiting.extend(b"ours\n");
            let ours = tokio::spawn(std::future::poll_fn(move |context| lock(&out).poll_drain(context)));
            tokio::task::yield_now().await;
            let mut told = [0; 13];
            let read = tokio::time::timeout(Duration::from_secs(20), far.read_exact(&mut told)).await;
            read.expect("somebody is left waiting").expect("all was written");
            second.await.expect("no panic").expect("written");
            ours.await.expect("no panic").expect("written");
            told
        });
        assert_eq!(told, *b"one\nours\ntwo\n");
    }
}
