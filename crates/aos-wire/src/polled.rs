//! Reads a socket without waking up for nothing.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// A stream that waits in `poll` before it reads.
///
/// A thread that sleeps in `recv` is woken twice for each answer it sends: when the next request arrives, and before
/// that when the peer reads the answer, because the kernel (`unix_write_space`) then wakes every sleeper of the socket,
/// whatever it waits for. Only `poll` says that it waits for input.
#[derive(Debug)]
pub(crate) struct Polled<S>(pub(crate) S);

impl<S: std::borrow::Borrow<UnixStream>> Read for Polled<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.0.borrow();
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        stream.read(buffer)
    }
}
