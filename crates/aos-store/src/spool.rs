//! A spool: a stream of unknown length on its way to become a payload. Small ones stay in memory, larger ones go to a
//! file without a name; of one that is longer than its limit the first and the last half are kept.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::{Blobs, Fault};

/// What a stream may hold in memory.
const MEMORY_BYTES_MAX: u64 = 64 << 10;

/// The first `head` bytes stand at their place; what follows fills the rest of the limit and then, round and round,
/// overwrites it. While nothing was overwritten, the stream stands as it came.
#[derive(Debug)]
pub struct Spool {
    limit: u64,
    /// How many bytes are never overwritten.
    head: u64,
    total: u64,
    kept: Kept,
    /// Of everything up to the limit, and of the head alone: a long stream's tail is hashed in its order at the end.
    hash: Sha256,
    hash_of_head: Option<Sha256>,
    lost: Option<Errno>,
}

#[derive(Debug)]
enum Kept {
    Memory(Vec<u8>),
    File(OwnedFd),
}

impl Spool {
    pub fn new(limit: u64) -> Spool {
        Spool {
            limit,
            head: limit.div_ceil(2),
            total: 0,
            kept: Kept::Memory(Vec::new()),
            hash: Sha256::new(),
            hash_of_head: None,
            lost: None,
        }
    }

    /// All that came, kept or not.
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    pub fn kept_bytes(&self) -> u64 {
        self.total.min(self.limit)
    }

    pub fn is_truncated(&self) -> bool {
        self.total > self.limit
    }

    /// Why bytes were lost that the limit would have kept.
    pub fn lost(&self) -> Option<Errno> {
        self.lost
    }

    /// Takes the next bytes in. A disk that fails costs output, never the stream.
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
        if let Kept::Memory(memory) = &mut self.kept {
            if end <= MEMORY_BYTES_MAX {
                let at = usize::try_from(at).expect("BUG: memory is small");
                let known = bytes.len().min(memory.len() - at);
                memory[at..at + known].copy_from_slice(&bytes[..known]);
                memory.extend_from_slice(&bytes[known..]);
                return Ok(());
            }
            let memory = std::mem::take(memory);
            let file = blobs.nameless()?;
            write_at(&file, 0, &memory)?;
            self.kept = Kept::File(file);
            self.digest(0, &memory);
        }
        let Kept::File(file) = &self.kept else { unreachable!("BUG: it was made above") };
        write_at(file, at, bytes)?;
        if self.total < self.limit {
            self.digest(at, bytes);
        }
        Ok(())
    }

    /// Hashes bytes in their order, and remembers the hash at the end of the head.
    fn digest(&mut self, at: u64, bytes: &[u8]) {
        let before = usize::try_from(self.head.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
        self.hash.update(&bytes[..before]);
        if at + before as u64 == self.head && self.hash_of_head.is_none() {
            self.hash_of_head = Some(self.hash.clone());
        }
        self.hash.update(&bytes[before..]);
    }

    /// The kept bytes in their order, when they are few enough to hold.
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
        match &self.kept {
            Kept::Memory(memory) => Ok(memory[..most].to_vec()),
            Kept::File(file) => {
                let mut bytes = vec![0; most];
                let n = read_at(file, 0, &mut bytes)?;
                bytes.truncate(n);
                Ok(bytes)
            }
        }
    }

    /// Makes a blob of what was kept, and names it.
    pub fn into_blob(mut self, blobs: &Blobs) -> Result<String, Fault> {
        if let Some(why) = self.lost {
            return Err(Fault::io("cannot keep the output of a command", why));
        }
        if let Kept::File(file) = &self.kept {
            if !self.is_truncated() {
                return blobs.publish(file, std::mem::take(&mut self.hash).finalize().into());
            }
            if let Some(hash) = self.straighten(file) {
                return blobs.publish(file, hash);
            }
        }
        let mut writer = blobs.writer()?;
        self.each(|piece| writer.write(piece))?;
        writer.finish()
    }

    /// Puts the tail of a long stream in its order without copying the head: written once more behind everything, then
    /// the crooked one is cut out. Not every file system can cut; `None` leaves the file as it was.
    fn straighten(&self, file: &OwnedFd) -> Option<[u8; 32]> {
        let mut hash = self.hash_of_head.clone()?;
        let mut at = self.limit;
        self.tail(|piece| {
            hash.update(piece);
            write_at(file, at, piece).map_err(|why| Fault::io("cannot keep output", why))?;
            at += piece.len() as u64;
            Ok(())
        })
        .ok()?;
        let crooked = self.limit - self.head;
        let cut = rustix::fs::FallocateFlags::COLLAPSE_RANGE;
        match rustix::fs::fallocate(file, cut, self.head, crooked) {
            Ok(()) => Some(hash.finalize().into()),
            Err(_) => {
                let _ = rustix::fs::ftruncate(file, self.limit);
                None
            }
        }
    }

    /// Hands out the kept bytes piece by piece, in their order.
    fn each(&self, mut take: impl FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        self.span(0, self.head.min(self.kept_bytes()), &mut take)?;
        self.tail(take)
    }

    /// Those behind the head. The oldest one stands after the newest.
    fn tail(&self, mut take: impl FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        let kept = self.kept_bytes();
        let start = self.head.min(kept);
        let turn = if self.is_truncated() && self.limit > self.head {
            self.head + (self.total - self.head) % (self.limit - self.head)
        } else {
            start
        };
        self.span(turn, kept, &mut take)?;
        self.span(start, turn, &mut take)
    }

    fn span(
        &self,
        from: u64,
        to: u64,
        take: &mut impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let file = match &self.kept {
            Kept::Memory(memory) => return take(&memory[from as usize..to as usize]),
            Kept::File(file) => file,
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
            outcome => return outcome.map_err(|why| Fault::io("cannot read kept output", why)),
        }
    }
}

/// A file that nobody can name, in a folder of ours: gone with its last descriptor.
pub(crate) fn nameless(dir: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, Mode::from_raw_mode(0o600))
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

    /// What must be kept of a stream, said the simple way.
    fn expected(stream: &[u8], limit: usize) -> Vec<u8> {
        if stream.len() <= limit {
            return stream.to_vec();
        }
        let (head, tail) = (limit.div_ceil(2), limit / 2);
        [&stream[..head], &stream[stream.len() - tail..]].concat()
    }

    #[test]
    fn a_stream_is_kept_whole_or_by_its_halves_whatever_its_pieces() {
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
    fn what_is_small_is_handed_back() {
        let (_dir, blobs) = blobs();
        let mut spool = Spool::new(4);
        for piece in [b"ab".as_slice(), b"cdef", b"gh"] {
            spool.write(&blobs, piece);
        }
        assert_eq!(spool.into_bytes().unwrap(), b"abgh");
    }
}
