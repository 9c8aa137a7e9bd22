//! Watchers: who wants to see output while it is made. A slow one slows the command down for a while, never for ever.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
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

/// How long a command waits for its watcher, altogether. After that it is not watched any more.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the answer waits for the watcher to have seen all.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// Pieces that wait for the watcher.
const PIECES_MAX: usize = 16;

/// Carries pieces to a watcher.
pub(super) struct Pump {
    queue: SyncSender<Carried>,
    gone: Receiver<()>,
    waited: Duration,
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
        Some(Pump { queue, gone, waited: Duration::ZERO })
    }

    /// Hands a piece on. False when the watcher has had its chance: nobody waits for it any longer.
    pub(super) fn hand(
        &mut self,
        stream: &'static str,
        offset_bytes: u64,
        bytes: &[u8],
        must_go_on: impl Fn() -> bool,
    ) -> bool {
        let mut piece = Carried { stream, offset_bytes, bytes: bytes.to_vec() };
        loop {
            piece = match self.queue.try_send(piece) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(piece)) => piece,
            };
            if self.waited >= PATIENCE || must_go_on() {
                return false;
            }
            let began = Instant::now();
            std::thread::sleep(Duration::from_millis(2));
            self.waited += began.elapsed();
        }
    }

    /// Lets the watcher see what it has not seen yet, so that it sees all before the answer.
    pub(super) fn finish(self) {
        let left = PATIENCE.saturating_sub(self.waited).min(LAST_PATIENCE);
        drop(self.queue);
        let _ = self.gone.recv_timeout(left);
    }
}
