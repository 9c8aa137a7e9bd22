//! A spool: the output of a command, of unknown length, until it becomes a payload.
//!
//! Up to 64 KiB stay in memory; more goes to a file without a name. A stream longer than its limit keeps the first half
//! of the limit and the last half, so memory and disk stay bounded (I12).

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::blobs::Blobs;
use crate::fault::Fault;

/// How much of a stream is held in memory.
const MEMORY_BYTES_MAX: u64 = 64 << 10;

/// The first `head` bytes are kept as they are. The rest of the limit is a ring buffer, which later bytes overwrite. Until
/// the ring wraps, the stored bytes are in stream order.
#[derive(Debug)]
pub struct Spool {
    limit: u64,
    /// The number of bytes before the ring.
    head: u64,
    total: u64,
    storage: Storage,
    /// The hash of everything up to the limit.
    hash: Sha256,
    /// The hash of the head alone. The ring of a truncated stream is hashed in stream order at the end.
    head_hash: Option<Sha256>,
    /// The first write error: bytes within the limit are missing.
    lost: Option<Errno>,
}

#[derive(Debug)]
enum Storage {
    Memory(Vec<u8>),
    File(OwnedFd),
}

impl Spool {
    pub fn new(limit: u64) -> Spool {
        Spool {
            limit,
            head: limit.div_ceil(2),
            total: 0,
            storage: Storage::Memory(Vec::new()),
            hash: Sha256::new(),
            head_hash: None,
            lost: None,
        }
    }

    /// The length of the whole stream, kept or not.
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    pub fn kept_bytes(&self) -> u64 {
        self.total.min(self.limit)
    }

    pub fn is_truncated(&self) -> bool {
        self.total > self.limit
    }

    /// The error because of which bytes within the limit are missing.
    pub fn lost(&self) -> Option<Errno> {
        self.lost
    }

    /// Adds the next bytes of the stream. A write error loses output but does not fail the command.
    pub fn write(&mut self, blobs: &Blobs, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let tail = self.limit - self.head;
            let (at, room) = if self.total < self.head {
                (self.total, self.head - self.total)
            } else if tail == 0 {
                self.total += rest.len() as u64;
                return;
            } else {
                let into = (self.total - self.head) % tail;
                (self.head + into, tail - into)
            };
            let now = rest.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            if self.lost.is_none()
                && let Err(why) = self.put(blobs, at, &rest[..now])
            {
                tracing::warn!("output of a command is lost: {why}");
                self.lost = Some(why);
            }
            self.total += now as u64;
            rest = &rest[now..];
        }
    }

    fn put(&mut self, blobs: &Blobs, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let end = at + bytes.len() as u64;
        if let Storage::Memory(memory) = &mut self.storage {
            if end <= MEMORY_BYTES_MAX {
                let at = usize::try_from(at).expect("BUG: an offset below MEMORY_BYTES_MAX");
                let known = bytes.len().min(memory.len() - at);
                memory[at..at + known].copy_from_slice(&bytes[..known]);
                memory.extend_from_slice(&bytes[known..]);
                return Ok(());
            }
            let memory = std::mem::take(memory);
            let file = blobs.open_unnamed()?;
            write_at(&file, 0, &memory)?;
            self.storage = Storage::File(file);
            self.digest(0, &memory);
        }
        let Storage::File(file) = &self.storage else { unreachable!("BUG: the file was created above") };
        write_at(file, at, bytes)?;
        if self.total < self.limit {
            self.digest(at, bytes);
        }
        Ok(())
    }

    /// Hashes bytes in stream order, and saves the hash at the end of the head.
    fn digest(&mut self, at: u64, bytes: &[u8]) {
        let before = usize::try_from(self.head.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
        self.hash.update(&bytes[..before]);
        if at + before as u64 == self.head && self.head_hash.is_none() {
            self.head_hash = Some(self.hash.clone());
        }
        self.hash.update(&bytes[before..]);
    }

    /// The kept bytes in stream order. For streams that are small enough to hold in memory.
    pub fn into_bytes(self) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::with_capacity(self.kept_bytes() as usize);
        self.each(|piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// The first kept bytes, at most `most`.
    pub fn start(&self, most: usize) -> Result<Vec<u8>, Fault> {
        let most = most.min(usize::try_from(self.kept_bytes().min(self.head)).unwrap_or(usize::MAX));
        match &self.storage {
            Storage::Memory(memory) => Ok(memory[..most].to_vec()),
            Storage::File(file) => {
                let mut bytes = vec![0; most];
                let n = read_at(file, 0, &mut bytes)?;
                bytes.truncate(n);
                Ok(bytes)
            }
        }
    }

    /// Stores the kept bytes as a blob and returns its name.
    pub fn into_blob(mut self, blobs: &Blobs) -> Result<String, Fault> {
        if let Some(why) = self.lost {
            return Err(Fault::io("cannot store the output of a command", why));
        }
        if let Storage::File(file) = &self.storage {
            if !self.is_truncated() {
                return blobs.publish(file, std::mem::take(&mut self.hash).finalize().into());
            }
            if let Some(hash) = self.linearize(file) {
                return blobs.publish(file, hash);
            }
        }
        let mut writer = blobs.writer()?;
        self.each(|piece| writer.write(piece))?;
        writer.finish()
    }

    /// Puts the ring in stream order without copying the head. The ring is appended once more in order, then the
    /// original is cut out with `FALLOC_FL_COLLAPSE_RANGE`.
    ///
    /// Only some file systems (ext4, XFS) support that, and only for ranges aligned to their block size. `None` leaves
    /// the file as it was.
    fn linearize(&self, file: &OwnedFd) -> Option<[u8; 32]> {
        let mut hash = self.head_hash.clone()?;
        let mut at = self.limit;
        self.tail(|piece| {
            hash.update(piece);
            write_at(file, at, piece)
                .map_err(|why| Fault::io("cannot store the output of a command", why))?;
            at += piece.len() as u64;
            Ok(())
        })
        .ok()?;
        let ring_bytes = self.limit - self.head;
        let collapse = rustix::fs::FallocateFlags::COLLAPSE_RANGE;
        match rustix::fs::fallocate(file, collapse, self.head, ring_bytes) {
            Ok(()) => Some(hash.finalize().into()),
            Err(_) => {
                let _ = rustix::fs::ftruncate(file, self.limit);
                None
            }
        }
    }

    /// Calls `take` with the kept bytes in stream order.
    fn each(&self, mut take: impl FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        self.span(0, self.head.min(self.kept_bytes()), &mut take)?;
        self.tail(take)
    }

    /// The bytes of the ring in stream order: from the oldest byte to the end of the ring, then from its start.
    fn tail(&self, mut take: impl FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        let kept = self.kept_bytes();
        let start = self.head.min(kept);
        let oldest = if self.is_truncated() && self.limit > self.head {
            self.head + (self.total - self.head) % (self.limit - self.head)
        } else {
            start
        };
        self.span(oldest, kept, &mut take)?;
        self.span(start, oldest, &mut take)
    }

    fn span(
        &self,
        from: u64,
        to: u64,
        take: &mut impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let file = match &self.storage {
            Storage::Memory(memory) => return take(&memory[from as usize..to as usize]),
            Storage::File(file) => file,
        };
        let mut piece = vec![0; 256 << 10];
        let mut at = from;
        while at < to {
            let most = piece.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
            let n = read_at(file, at, &mut piece[..most])?;
            if n == 0 {
                break;
            }
            take(&piece[..n])?;
            at += n as u64;
        }
        Ok(())
    }
}

fn write_at(file: &OwnedFd, mut at: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at) {
            Ok(n) => {
                bytes = &bytes[n..];
                at += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

fn read_at(file: &OwnedFd, at: u64, bytes: &mut [u8]) -> Result<usize, Fault> {
    loop {
        match rustix::io::pread(file, &mut *bytes, at) {
            Err(Errno::INTR) => {}
            outcome => {
                return outcome.map_err(|why| Fault::io("cannot read the stored output of a command", why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aos_model::receipt::Durability;

    fn blobs() -> (tempfile::TempDir, Blobs) {
        let dir = tempfile::tempdir().unwrap();
        let blobs = crate::Home::open(dir.path()).unwrap().blobs(Durability::Process).unwrap();
        (dir, blobs)
    }

    /// What must be kept of a stream, computed the simple way.
    fn expected(stream: &[u8], limit: usize) -> Vec<u8> {
        if stream.len() <= limit {
            return stream.to_vec();
        }
        let (head, tail) = (limit.div_ceil(2), limit / 2);
        [&stream[..head], &stream[stream.len() - tail..]].concat()
    }

    #[test]
    fn a_stream_is_kept_whole_or_by_its_halves_however_it_is_split() {
        let (_dir, blobs) = blobs();
        let stream: Vec<u8> = (0..400_000_u32).map(|n| (n * 7 % 251) as u8).collect();
        for limit in
            [0, 1, 2, 3, 10, 1000, 65_536, 65_537, 100_001, 131_072, 262_144, 399_999, 400_000, 500_000]
        {
            for piece in [1_000, 4_097, 65_536, 400_000] {
                for length in [0, 1, 9, 999, 65_537, 123_456, 400_000] {
                    let mut spool = Spool::new(limit as u64);
                    stream[..length].chunks(piece).for_each(|piece| spool.write(&blobs, piece));
                    assert_eq!(spool.total_bytes(), length as u64);
                    assert_eq!(spool.is_truncated(), length > limit);
                    let want = expected(&stream[..length], limit);
                    let start = spool.start(100).unwrap();
                    assert_eq!(start, &want[..start.len()]);
                    let name = spool.into_blob(&blobs).unwrap();
                    let kept = blobs.read(&name, 1 << 20).unwrap().unwrap();
                    assert!(kept == want, "limit {limit}, pieces of {piece}, {length} bytes");
                }
            }
        }
    }

    #[test]
    fn a_small_stream_is_returned_as_bytes() {
        let (_dir, blobs) = blobs();
        let mut spool = Spool::new(4);
        for piece in [b"ab".as_slice(), b"cdef", b"gh"] {
            spool.write(&blobs, piece);
        }
        assert_eq!(spool.into_bytes().unwrap(), b"abgh");
    }
}
