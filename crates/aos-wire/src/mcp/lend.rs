//! The standard streams: read on a thread for rmcp, or lent to the daemon, which answers plain calls by itself.
//!
//! Two who write to one pipe would mix their lines, so it is lent only while nothing of the protocol is under way: no
//! request that is unanswered, no call that still tells of its progress, no line half written.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, ClientRequest, JsonRpcMessage, ProtocolVersion, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::{AsyncRwTransport, DEFAULT_MAX_LINE_LENGTH};
use rmcp::transport::io::{StdioWriter, stdio_pipes};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::door::Door;
use super::offer::Offer;
use super::pipe::Pipe;
use super::plain::Plain;
use crate::client::ClientError;
use crate::tools;

/// What is on its way to rmcp and not yet read by it.
const ON_THE_WAY_BYTES: usize = 64 << 10;

/// Starts reading; what is to be heard by rmcp comes out of the transport.
pub(super) fn open(door: &Door) -> io::Result<Watched> {
    let pipe =
        Pipe::new(io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?)?;
    let (to_rmcp, from_thread) = tokio::io::duplex(ON_THE_WAY_BYTES);
    let traffic = Arc::new(Traffic::default());
    let reader = Reader {
        door: door.clone(),
        pipe,
        to_rmcp,
        runtime: tokio::runtime::Handle::current(),
        traffic: traffic.clone(),
        line: Vec::new(),
        is_taken: true,
    };
    std::thread::Builder::new().name("reader".into()).spawn(move || {
        // A client whose stream broke has gone away: rmcp sees the end.
        let _ = reader.run();
    })?;
    Ok(Watched { inner: AsyncRwTransport::new(from_thread, stdio_pipes().1), traffic, asks: None })
}

/// What the protocol has under way.
#[derive(Default)]
struct Traffic {
    /// Requests that rmcp got and did not answer yet.
    open: Mutex<HashSet<RequestId>>,
    /// Messages that rmcp is writing.
    writing: AtomicUsize,
    /// Whether the client can ask a person; known when it has said hello, and says so once for all.
    asks: OnceLock<bool>,
}

impl Traffic {
    fn is_idle(&self) -> bool {
        self.writing.load(Ordering::Acquire) == 0 && self.open().is_empty()
    }

    fn open(&self) -> std::sync::MutexGuard<'_, HashSet<RequestId>> {
        self.open.lock().expect("BUG: nobody panics counting")
    }
}

struct Reader {
    door: Door,
    pipe: Pipe,
    to_rmcp: DuplexStream,
    runtime: tokio::runtime::Handle,
    traffic: Arc<Traffic>,
    /// The beginning of a line whose end is still to come, when rmcp has that beginning.
    line: Vec<u8>,
    /// Whether the daemon takes pipes.
    is_taken: bool,
}

impl Reader {
    fn run(mut self) -> io::Result<()> {
        let mut said = Vec::new();
        while self.pipe.read_more(&mut said, None)? {
            if self.may_lend(&said) {
                said = self.lend()?;
            }
            self.pass(&said)?;
            said.clear();
            self.pipe.set_unanswered(&said)?;
        }
        Ok(())
    }

    /// Whether the daemon would take what was read, and nobody else writes.
    fn may_lend(&self, said: &[u8]) -> bool {
        let is_ready = self.is_taken && self.line.is_empty() && self.traffic.asks.get().is_some();
        is_ready && self.traffic.is_idle() && self.door.is_idle() && self.first_plain(said).is_some()
    }

    /// The first line, if it is a plain call, and where it ends.
    fn first_plain<'a>(&self, said: &'a [u8]) -> Option<(Plain<'a>, usize)> {
        let end = said.iter().position(|byte| *byte == b'\n')?;
        Some((Plain::parse(self.door.offer(), &said[..end])?, end))
    }

    /// Lends the pipe with what was read of it. What comes back was read and is not answered.
    fn lend(&mut self) -> io::Result<Vec<u8>> {
        if let Ok(mut client) = self.door.client() {
            let asks = self.traffic.asks.get() == Some(&true);
            let offer = Offer { asks, ..self.door.offer().clone() };
            let offer = serde_json::to_string(&offer).expect("BUG: an offer is JSON");
            match client.hand("mcp.lend", &offer, &self.pipe.parts()) {
                Ok(_) => self.door.keep(client),
                Err(ClientError::Refused { .. }) => self.is_taken = false,
                Err(ended) => return self.after_its_death(&ended),
            }
        }
        Ok(self.pipe.unanswered()?.0)
    }

    /// The daemon died with the pipe: it may have begun with the first line, so that is not asked again.
    fn after_its_death(&self, ended: &ClientError) -> io::Result<Vec<u8>> {
        let (mut said, is_half_said) = self.pipe.unanswered()?;
        if let Some((Plain { id, .. }, end)) = self.first_plain(&said) {
            let gone = tools::refused("daemon_gone", &ended.to_string());
            let mut answer = Plain::answer(id, gone);
            if is_half_said {
                answer.insert(0, b'\n');
            }
            self.pipe.write(&answer, None)?;
            said.drain(..=end);
        }
        Ok(said)
    }

    fn begin_line(&mut self, piece: &[u8]) {
        // rmcp does not answer longer ones.
        let room = DEFAULT_MAX_LINE_LENGTH.saturating_sub(self.line.len());
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    /// To rmcp.
    fn pass(&mut self, mut said: &[u8]) -> io::Result<()> {
        let all = said;
        while let Some(end) = said.iter().position(|byte| *byte == b'\n') {
            self.begin_line(&said[..end]);
            self.traffic.open().extend(request_id(&self.line));
            self.line.clear();
            said = &said[end + 1..];
        }
        self.begin_line(said);
        self.runtime.block_on(self.to_rmcp.write_all(all))
    }
}

/// The id of a line that wants an answer.
fn request_id(line: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Asked {
        id: RequestId,
        #[serde(rename = "method")]
        _method: IgnoredAny,
    }
    serde_json::from_slice::<Asked>(line).ok().map(|asked| asked.id)
}

/// rmcp's own transport, and what passes through it.
pub(super) struct Watched {
    inner: AsyncRwTransport<RoleServer, DuplexStream, StdioWriter>,
    traffic: Arc<Traffic>,
    /// What the greeting said of asking, until it is over.
    asks: Option<bool>,
}

impl Transport<RoleServer> for Watched {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let answers = match &message {
            JsonRpcMessage::Response(answer) => Some(answer.id.clone()),
            JsonRpcMessage::Error(answer) => answer.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let writing = Writing::new(&self.traffic);
        let sent = self.inner.send(message);
        async move {
            let outcome = sent.await;
            if let Some(id) = answers {
                writing.0.open().remove(&id);
            }
            outcome
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.inner.receive().await?;
        match &message {
            JsonRpcMessage::Request(request) => {
                if let ClientRequest::InitializeRequest(hello) = &request.request {
                    let hello = &hello.params;
                    // Clients of later versions say with each call what they can do.
                    let is_once_for_all = hello.protocol_version < ProtocolVersion::V_2026_07_28;
                    self.asks = is_once_for_all.then_some(hello.capabilities.elicitation.is_some());
                }
            }
            JsonRpcMessage::Notification(told) => match &told.notification {
                ClientNotification::InitializedNotification(_) => {
                    if let Some(asks) = self.asks {
                        let _ = self.traffic.asks.set(asks);
                    }
                }
                // It is not answered.
                ClientNotification::CancelledNotification(cancelled) => {
                    if let Some(id) = &cancelled.params.request_id {
                        self.traffic.open().remove(id);
                    }
                }
                _ => {}
            },
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        Some(message)
    }

    async fn close(&mut self) -> io::Result<()> {
        self.inner.close().await
    }
}

/// A message on its way out, until it is written or given up.
struct Writing(Arc<Traffic>);

impl Writing {
    fn new(traffic: &Arc<Traffic>) -> Writing {
        traffic.writing.fetch_add(1, Ordering::AcqRel);
        Writing(traffic.clone())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writing.fetch_sub(1, Ordering::AcqRel);
    }
}
