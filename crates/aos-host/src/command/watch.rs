//! Watchers: who wants to see output while it is made. A slow one misses some of it; the command never waits.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Whoever wants to see the output of a command while it runs. It is called from a thread of its own.
pub trait Watcher: Send + Sync {
    fn output(&self, piece: Piece<'_>);
}

/// Some bytes that a command wrote.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    pub session_id: &'a str,
    pub tool_call_id: &'a str,
    /// `stdout` or `stderr`.
    pub stream: &'static str,
    /// Where in the stream the bytes stand.
    pub offset_bytes: u64,
    pub bytes: &'a [u8],
}

/// How long the answer waits for the watcher to have seen all.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// Pieces that wait for the watcher.
const PIECES_MAX: usize = 64;
/// Of a flood that no watcher keeps up with, a drop is shown now and then.
const DROP_BYTES: usize = 4096;
const DROP_EVERY: Duration = Duration::from_millis(100);

/// Carries pieces to a watcher.
pub(super) struct Pump {
    queue: SyncSender<Carried>,
    gone: Receiver<()>,
    /// When something was left out: from then on only drops are shown. The receipt has all that is kept.
    flooded: Option<Instant>,
}

struct Carried {
    stream: &'static str,
    offset_bytes: u64,
    bytes: Vec<u8>,
}

impl Pump {
    pub(super) fn start(watcher: Arc<dyn Watcher>, session_id: &str, tool_call_id: &str) -> Option<Pump> {
        let (queue, carried) = sync_channel::<Carried>(PIECES_MAX);
        let (going, gone) = sync_channel(1);
        let (session_id, tool_call_id) = (session_id.to_owned(), tool_call_id.to_owned());
        let carry = move || {
            for Carried { stream, offset_bytes, bytes } in carried {
                watcher.output(Piece {
                    session_id: &session_id,
                    tool_call_id: &tool_call_id,
                    stream,
                    offset_bytes,
                    bytes: &bytes,
                });
            }
            let _ = going.send(());
        };
        std::thread::Builder::new().name("watcher".into()).spawn(carry).ok()?;
        Some(Pump { queue, gone, flooded: None })
    }

    /// Hands a piece on, or leaves it out.
    pub(super) fn hand(&mut self, stream: &'static str, offset_bytes: u64, bytes: &[u8]) {
        let now = Instant::now();
        let skipped = match self.flooded {
            None => 0,
            Some(last) if now.duration_since(last) < DROP_EVERY => return,
            Some(_) => bytes.len().saturating_sub(DROP_BYTES),
        };
        let offset_bytes = offset_bytes + skipped as u64;
        let piece = Carried { stream, offset_bytes, bytes: bytes[skipped..].to_vec() };
        if self.queue.try_send(piece).is_err() || self.flooded.is_some() {
            self.flooded = Some(now);
        }
    }

    /// Lets the watcher see what it has not seen yet, so that it sees all before the answer.
    pub(super) fn finish(self) {
        drop(self.queue);
        let _ = self.gone.recv_timeout(LAST_PATIENCE);
    }
}
