//! Something readable at an offset: a file of the disk, or bytes that are at hand.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

#[derive(Debug, Clone)]
pub(crate) enum Source {
    Disk(Arc<OwnedFd>),
    /// A part of a blob that is in memory.
    Memory {
        blob: Arc<Vec<u8>>,
        from: usize,
        len: usize,
    },
}

impl Source {
    pub(crate) fn disk(file: OwnedFd) -> Source {
        Source::Disk(Arc::new(file))
    }

    /// As `pread`: how many bytes were read, none at the end.
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

    /// All of it, where it is in memory.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Source::Disk(_) => None,
            Source::Memory { blob, from, len } => Some(&blob[*from..from + len]),
        }
    }

    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        match self {
            Source::Disk(file) => Some(file),
            Source::Memory { .. } => None,
        }
    }
}
