//! The jail: turns a path as a request spelled it into a pinned folder and one plain name inside a root.
//!
//! Containment is a descriptor, never a string (I3). A path is first made link-free as text, which another process may
//! change at any moment; then its folder is opened beneath the pinned root with links forbidden, and from there on
//! only that descriptor is used. Only what policy checked is ever opened.

mod layered;
mod own;
mod place;
mod resolve;

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use aos_model::capability::FollowSymlinks;
use aos_model::path::is_below;
use aos_model::records::RootRecord;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::disk::Meta;

pub(crate) use layered::{Layer, Leaf, View};
pub(crate) use own::OwnFolders;
pub(crate) use place::{Dir, DirFd, Folders, Found, KnownDir, Place, PlaceDir};
pub(crate) use resolve::{
    Last, ResolvedPath, follow_text, follow_text_past_missing, link_refused, outside, resolve,
};

/// A folder that a session may work in, held open for the session's life.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) fd: OwnedFd,
    /// Absolute and link-free, without a slash at the end; empty for `/`.
    pub(crate) path: Vec<u8>,
    pub(crate) meta: Meta,
}

impl Root {
    /// Pins the folder at `path`, links resolved.
    pub(crate) fn pin(path: &Path) -> Result<Root, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let meta = Meta::of(&fd)?;
        // The kernel knows by which link-free path the descriptor was reached.
        let canonical = rustix::fs::readlink(format!("/proc/self/fd/{}", raw(&fd)), Vec::new())?.into_bytes();
        let path = if canonical == b"/" { Vec::new() } else { canonical };
        Ok(Root { fd, path, meta })
    }

    /// Pins the same folder again after a restart; anything else at its path is not it.
    pub(crate) fn pin_again(record: &RootRecord) -> Result<Root, Errno> {
        let bytes = aos_model::path::RequestPath::parse(&record.path).map_err(|_| Errno::INVAL)?;
        let root = Root::pin(Path::new(std::ffi::OsStr::from_bytes(bytes.as_bytes())))?;
        if root.record() != *record {
            return Err(Errno::STALE);
        }
        Ok(root)
    }

    pub(crate) fn record(&self) -> RootRecord {
        RootRecord { path: self.display(), dev: self.meta.dev, ino: self.meta.ino }
    }

    pub(crate) fn display(&self) -> String {
        if self.path.is_empty() { "/".to_owned() } else { aos_model::path::show(&self.path) }
    }
}

fn raw(fd: &OwnedFd) -> i32 {
    use std::os::fd::AsRawFd as _;
    fd.as_raw_fd()
}

/// The boundary of one session.
#[derive(Debug)]
pub(crate) struct Jail {
    pub(crate) roots: Vec<Arc<Root>>,
    /// Where relative paths start: absolute, link-free.
    pub(crate) workdir: Vec<u8>,
    /// The workdir as the opener spelled it, when that went through a link: absolute requests may use it too.
    pub(crate) workdir_alias: Option<Vec<u8>>,
    pub(crate) follow: FollowSymlinks,
    pub(crate) cross_mounts: bool,
    /// Never inside, whatever the roots say: our own state, our own /proc entries.
    pub(crate) hidden: Vec<Vec<u8>>,
    /// Our own state, by device and inode.
    pub(crate) own: Arc<OwnFolders>,
}

impl Jail {
    /// The path as receipts show it: relative to the workdir when under it, else absolute.
    pub(crate) fn display(&self, absolute: &[u8]) -> String {
        aos_model::path::show(self.relative(absolute))
    }

    pub(crate) fn relative<'a>(&self, absolute: &'a [u8]) -> &'a [u8] {
        match absolute.strip_prefix(self.workdir.as_slice()) {
            Some([]) => b".",
            Some([b'/', rest @ ..]) => rest,
            _ if absolute.is_empty() => b"/",
            _ => absolute,
        }
    }

    /// Whether an entry that a walk finds is never inside, by its path or by what it is.
    pub(crate) fn hides(&self, absolute: &[u8], meta: &Meta) -> bool {
        self.own.is(meta) || self.is_hidden(absolute)
    }

    pub(crate) fn is_hidden(&self, absolute: &[u8]) -> bool {
        // A virtual tree has nothing to hide: its `/proc` is not the machine's.
        !self.hidden.is_empty()
            && (self.hidden.iter().any(|hidden| is_below(absolute, hidden)) || is_own_thread(absolute))
    }
}

/// `/proc/N` for a thread of ours: the same secrets under another number.
fn is_own_thread(absolute: &[u8]) -> bool {
    let Some(rest) = absolute.strip_prefix(b"/proc/") else { return false };
    let number = rest.split(|b| *b == b'/').next().unwrap_or_default();
    let Ok(number) = std::str::from_utf8(number) else { return false };
    number.bytes().all(|b| b.is_ascii_digit())
        && rustix::fs::stat(format!("/proc/self/task/{number}")).is_ok()
}

/// An absolute path as people read it: `/` for the empty one.
pub(crate) fn absolute_shown(path: &[u8]) -> String {
    if path.is_empty() { "/".to_owned() } else { aos_model::path::show(path) }
}
