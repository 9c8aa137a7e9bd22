//! The socket in `run/`: reached through a handle on its folder, so that a home may have a path of any length; and
//! descriptors that come along with a message.

use std::io::{self, IoSlice, IoSliceMut, Read, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;

use rustix::cmsg_space;
use rustix::fs::{AtFlags, Mode};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

const NAME: &str = "aosd.sock";

/// `sun_path` holds 108 bytes; this name is short whatever the folder's is.
fn short_path(run: impl AsFd) -> String {
    format!("/proc/self/fd/{}/{NAME}", run.as_fd().as_raw_fd())
}

/// Binds the socket. The caller holds the home's lock, so what stands there is left over from a dead daemon.
pub fn bind(run: impl AsFd) -> io::Result<UnixListener> {
    match rustix::fs::unlinkat(&run, NAME, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(why) => return Err(why.into()),
    }
    let listener = UnixListener::bind(short_path(&run))?;
    // The umask and the folder have kept others out from the first moment; this makes the mode exact.
    rustix::fs::chmodat(&run, NAME, Mode::from_raw_mode(0o600), AtFlags::empty())?;
    Ok(listener)
}

pub fn connect(run: impl AsFd) -> io::Result<UnixStream> {
    UnixStream::connect(short_path(&run))
}

/// How many descriptors may come with a message; the kernel closes those beyond.
const HANDED_MAX: usize = 3;

/// Sends bytes, and descriptors with the first of them.
pub(crate) fn send_with(mut stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(HANDED_MAX))];
    let mut handed = SendAncillaryBuffer::new(&mut space);
    assert!(handed.push(SendAncillaryMessage::ScmRights(fds)), "BUG: more descriptors than are taken");
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut handed, SendFlags::NOSIGNAL)?;
    stream.write_all(&bytes[sent..])
}

/// The reading side of a connection. Keeps the descriptors that came last.
pub(crate) struct Ears<'a> {
    pub(crate) stream: &'a UnixStream,
    pub(crate) handed: &'a Mutex<Vec<OwnedFd>>,
}

impl Read for Ears<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(HANDED_MAX))];
        let mut came = RecvAncillaryBuffer::new(&mut space);
        let read = recvmsg(self.stream, &mut [IoSliceMut::new(buffer)], &mut came, RecvFlags::CMSG_CLOEXEC)?;
        for message in came.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                *self.handed.lock().expect("BUG: nobody panics holding them") = fds.collect();
            }
        }
        Ok(read.bytes)
    }
}
