//! A source that is read at an offset: a file on the disk, or bytes in memory.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

#[derive(Debug, Clone)]
pub(crate) enum Source {
    Disk(Arc<OwnedFd>),
    /// A part of a cached blob.
    Memory {
        blob: Arc<CachedBytes>,
        from: usize,
        len: usize,
    },
}

/// Bytes in memory, with a property that searches need, computed once.
#[derive(Debug)]
pub(crate) struct CachedBytes {
    bytes: Vec<u8>,
    is_plain: OnceLock<bool>,
}

impl CachedBytes {
    pub(crate) fn new(bytes: Vec<u8>) -> CachedBytes {
        CachedBytes { bytes, is_plain: OnceLock::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn is_plain(&self) -> bool {
        let is_wide = || self.bytes.starts_with(b"\xff\xfe") || self.bytes.starts_with(b"\xfe\xff");
        *self.is_plain.get_or_init(|| !is_wide() && memchr::memchr(0, &self.bytes).is_none())
    }
}

impl Source {
    pub(crate) fn disk(file: OwnedFd) -> Source {
        Source::Disk(Arc::new(file))
    }

    /// As `pread`: the number of bytes read, 0 at the end.
    pub(crate) fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
        match self {
            Source::Disk(file) => rustix::io::pread(file, buffer, at),
            Source::Memory { .. } => {
                let bytes = self.bytes().unwrap_or_default();
                let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                let taken = rest.len().min(buffer.len());
                buffer[..taken].copy_from_slice(&rest[..taken]);
                Ok(taken)
            }
        }
    }

    /// The whole content, if it is in memory.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Source::Disk(_) => None,
            Source::Memory { blob, from, len } => Some(&blob.bytes[*from..from + len]),
        }
    }

    /// Whether it is known to contain no NUL and no UTF-16 byte order mark.
    pub(crate) fn is_plain(&self) -> bool {
        match self {
            Source::Disk(_) => false,
            Source::Memory { blob, .. } => blob.is_plain(),
        }
    }

    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        match self {
            Source::Disk(file) => Some(file),
            Source::Memory { .. } => None,
        }
    }
}
