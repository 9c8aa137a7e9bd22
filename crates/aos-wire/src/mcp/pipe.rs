//! A client's own streams, which `aos mcp` lends to the daemon and gets back.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use aos_model::limits::FRAME_BYTES_FREE;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;

pub(crate) struct Pipe {
    from: File,
    to: File,
    /// What was read and is not answered yet, in memory that outlives whoever holds it: who gets the pipe back, or finds
    /// that its holder died, knows what is left to do. A byte that says whether an answer is half said, a length, the
    /// bytes.
    tray: File,
}

const HEAD_BYTES: usize = 1 + size_of::<u32>();

/// Longer lines are no plain calls.
const UNANSWERED_BYTES_MAX: usize = FRAME_BYTES_FREE;
const READ_BYTES: usize = 16 << 10;
/// How much a descriptor that can be written to takes without making the writer wait.
const PIECE_BYTES: usize = 4096;

impl Pipe {
    pub(crate) const PARTS: usize = 3;

    pub(crate) fn new(from: OwnedFd, to: OwnedFd) -> io::Result<Pipe> {
        let tray = rustix::fs::memfd_create("unanswered", MemfdFlags::CLOEXEC)?;
        let pipe = Pipe { from: from.into(), to: to.into(), tray: tray.into() };
        pipe.set_unanswered(&[])?;
        Ok(pipe)
    }

    /// From the descriptors that came with a message.
    pub(crate) fn of_parts(parts: Vec<OwnedFd>) -> Option<Pipe> {
        let [from, to, tray]: [OwnedFd; Pipe::PARTS] = parts.try_into().ok()?;
        Some(Pipe { from: from.into(), to: to.into(), tray: tray.into() })
    }

    pub(crate) fn parts(&self) -> [BorrowedFd<'_>; Pipe::PARTS] {
        [self.from.as_fd(), self.to.as_fd(), self.tray.as_fd()]
    }

    /// What was read and is not answered yet, and whether the answer to its first line is half said.
    pub(crate) fn unanswered(&self) -> io::Result<(Vec<u8>, bool)> {
        let mut head = [0; HEAD_BYTES];
        self.tray.read_exact_at(&mut head, 0)?;
        let [is_half_said, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        if length > UNANSWERED_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut bytes = vec![0; length];
        self.tray.read_exact_at(&mut bytes, HEAD_BYTES as u64)?;
        Ok((bytes, is_half_said != 0))
    }

    pub(crate) fn set_unanswered(&self, bytes: &[u8]) -> io::Result<()> {
        let mut tray = vec![0; HEAD_BYTES];
        tray[1..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        tray.extend_from_slice(bytes);
        // In one call, so that who finds it finds all of it; and never shorter, which costs a page each time.
        self.tray.write_all_at(&tray, 0)
    }

    pub(crate) fn is_full(unanswered: &[u8]) -> bool {
        unanswered.len() + READ_BYTES > UNANSWERED_BYTES_MAX
    }

    /// Waits for the client and adds what it says to what is `unanswered`. False at its end, and as soon as `meanwhile`
    /// has something to read.
    pub(crate) fn read_more(
        &self,
        unanswered: &mut Vec<u8>,
        meanwhile: Option<BorrowedFd<'_>>,
    ) -> io::Result<bool> {
        let mut bytes = [0; READ_BYTES];
        let read = loop {
            if !wait(self.from.as_fd(), PollFlags::IN, meanwhile)? {
                return Ok(false);
            }
            match (&self.from).read(&mut bytes) {
                Err(why) if is_not_now(&why) => {}
                read => break read?,
            }
        };
        unanswered.extend_from_slice(&bytes[..read]);
        self.set_unanswered(unanswered)?;
        Ok(read > 0)
    }

    /// Writes an answer, unless `meanwhile` has something to read.
    pub(crate) fn write(&self, mut bytes: &[u8], meanwhile: Option<BorrowedFd<'_>>) -> io::Result<()> {
        if bytes.len() > PIECE_BYTES {
            self.tray.write_all_at(&[1], 0)?;
        }
        while !bytes.is_empty() {
            if !wait(self.to.as_fd(), PollFlags::OUT, meanwhile)? {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            match (&self.to).write(&bytes[..bytes.len().min(PIECE_BYTES)]) {
                Err(why) if is_not_now(&why) => {}
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written?..],
            }
        }
        Ok(())
    }
}

/// Waits until `fd` is ready; false as soon as `meanwhile` has something to read, or its other end is gone.
fn wait(fd: BorrowedFd<'_>, what: PollFlags, meanwhile: Option<BorrowedFd<'_>>) -> io::Result<bool> {
    let fd = PollFd::from_borrowed_fd(fd, what);
    let Some(meanwhile) = meanwhile else {
        rustix::io::retry_on_intr(|| poll(&mut [fd.clone()], None))?;
        return Ok(true);
    };
    let mut fds = [fd, PollFd::from_borrowed_fd(meanwhile, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
    Ok(fds[1].revents().is_empty())
}

fn is_not_now(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
