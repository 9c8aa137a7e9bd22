//! Watchers: receive output while a command runs. A slow watcher misses some of it; the command never waits.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Receives the output of a command while it runs. It is called on its own thread.
pub trait Watcher: Send + Sync {
    fn output(&self, chunk: OutputChunk<'_>);
}

/// Some bytes that a command wrote.
#[derive(Debug, Clone, Copy)]
pub struct OutputChunk<'a> {
    pub session_id: &'a str,
    pub tool_call_id: &'a str,
    /// `stdout` or `stderr`.
    pub stream: &'static str,
    /// The offset of the bytes in the stream.
    pub offset_bytes: u64,
    pub bytes: &'a [u8],
}

/// How long the answer waits for the watcher to receive everything.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);
/// Pieces that wait for the watcher.
const PIECES_MAX: usize = 64;
/// Under heavy output that the watcher cannot keep up with, only samples are streamed.
const SAMPLE_BYTES: usize = 4096;
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Carries pieces to a watcher.
pub(super) struct Pump {
    session_id: String,
    tool_call_id: String,
    queue: SyncSender<QueuedPiece>,
    gone: Receiver<()>,
    /// When output was first left out: from then on only samples are streamed. The receipt has all that is kept.
    sampling_since: Option<Instant>,
}

struct QueuedPiece {
    stream: &'static str,
    offset_bytes: u64,
    bytes: Vec<u8>,
}

impl Pump {
    pub(super) fn start(watcher: Arc<dyn Watcher>, session_id: &str, tool_call_id: &str) -> Option<Pump> {
        let (queue, carried) = sync_channel::<QueuedPiece>(PIECES_MAX);
        let (going, gone) = sync_channel(1);
        let (session_id, tool_call_id) = (session_id.to_owned(), tool_call_id.to_owned());
        let ids = (session_id.clone(), tool_call_id.clone());
        let carry = move || {
            for QueuedPiece { stream, offset_bytes, bytes } in carried {
                watcher.output(OutputChunk {
                    session_id: &ids.0,
                    tool_call_id: &ids.1,
                    stream,
                    offset_bytes,
                    bytes: &bytes,
                });
            }
            let _ = going.send(());
        };
        std::thread::Builder::new()
            .name("watcher".into())
            .spawn(carry)
            .inspect_err(|error| tracing::warn!(%error, "cannot start a thread; output is not streamed"))
            .ok()?;
        Some(Pump { session_id, tool_call_id, queue, gone, sampling_since: None })
    }

    /// Sends a piece, or leaves it out.
    pub(super) fn send(&mut self, stream: &'static str, offset_bytes: u64, bytes: &[u8]) {
        let now = Instant::now();
        let skipped = match self.sampling_since {
            None => 0,
            Some(last) if now.duration_since(last) < SAMPLE_EVERY => return,
            Some(_) => bytes.len().saturating_sub(SAMPLE_BYTES),
        };
        let offset_bytes = offset_bytes + skipped as u64;
        let chunk = QueuedPiece { stream, offset_bytes, bytes: bytes[skipped..].to_vec() };
        let is_full = self.queue.try_send(chunk).is_err();
        if is_full && self.sampling_since.is_none() {
            let Pump { session_id, tool_call_id, .. } = self;
            tracing::debug!(session_id, tool_call_id, stream, "a watcher is slow; only samples are streamed");
        }
        if is_full || self.sampling_since.is_some() {
            self.sampling_since = Some(now);
        }
    }

    /// Waits until the watcher has received everything, so that it does before the answer.
    pub(super) fn finish(self) {
        drop(self.queue);
        if self.gone.recv_timeout(FINISH_TIMEOUT).is_err() {
            let Pump { session_id, tool_call_id, .. } = self;
            tracing::warn!(session_id, tool_call_id, "a watcher did not receive all streamed output in time");
        }
    }
}
