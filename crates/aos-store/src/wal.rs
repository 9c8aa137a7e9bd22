//! The write-ahead log looked at by itself: SQLite stops reading it at the first page that does not fit and says
//! nothing, so a flipped bit would take every later commit away in silence.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::Fault;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// SQLite's smallest page.
const PAGE_BYTES_MIN: usize = 512;
/// The last bit tells the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;

/// Refuses a log in which something stands behind a damaged page. A torn end is no damage: it was never committed.
pub(crate) fn check(journal: &Path) -> Result<(), Fault> {
    let path = journal.with_extension("db-wal");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(&path, flags, Mode::empty()) else { return Ok(()) };
    let damaged = |what: String| {
        Fault::Refused(format!(
            "the journal is damaged: {}: {what}; restore it from a copy, or move it away to go on without what it holds",
            path.display()
        ))
    };
    let mut log = Log { file, at: 0 };
    let Some(header) = log.take(HEADER_BYTES)? else {
        // Fewer bytes than a header: SQLite has not begun it.
        return Ok(());
    };
    let Some(mut sums) = Sums::of_header(&header) else {
        // A header is synced before the first page goes behind it. Where none does, the power went before that: the
        // log holds nothing that was ever committed.
        let nothing_behind = log.take(FRAME_HEADER_BYTES + PAGE_BYTES_MIN)?.is_none();
        return if nothing_behind { Ok(()) } else { Err(damaged("its header does not fit".into())) };
    };
    let page_bytes = number(&header, 8) as usize;
    if !page_bytes.is_power_of_two() || page_bytes > 1 << 16 {
        return Err(damaged("its header names no page size".into()));
    }
    let salt = &header[16..24];
    let (mut frame, mut broken) = (0, None);
    while let Some(bytes) = log.take(FRAME_HEADER_BYTES + page_bytes)? {
        frame += 1;
        // Frames of an earlier round of the log have another salt: the current ones end before them.
        if &bytes[8..16] != salt {
            if broken.is_none() {
                broken = Some(frame);
            }
            continue;
        }
        match broken {
            Some(first) => {
                return Err(damaged(format!(
                    "page {first} does not fit, and {frame} behind it belongs to the same log"
                )));
            }
            None if !sums.take_frame(&bytes) => broken = Some(frame),
            None => {}
        }
    }
    Ok(())
}

struct Log {
    file: OwnedFd,
    at: u64,
}

impl Log {
    /// The next `count` bytes, or `None` when fewer are left.
    fn take(&mut self, count: usize) -> Result<Option<Vec<u8>>, Fault> {
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while filled < count {
            let n = rustix::io::pread(&self.file, &mut bytes[filled..], self.at)
                .map_err(|why| Fault::io("cannot read journal.db-wal", why))?;
            if n == 0 {
                return Ok(None);
            }
            filled += n;
            self.at += n as u64;
        }
        Ok(Some(bytes))
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("BUG: four bytes"))
}

/// SQLite's running checksum of the log.
struct Sums {
    first: u32,
    second: u32,
    big_endian: bool,
}

impl Sums {
    /// Starts from a header that fits itself.
    fn of_header(header: &[u8]) -> Option<Sums> {
        let magic = number(header, 0);
        if magic & !1 != MAGIC {
            return None;
        }
        let mut sums = Sums { first: 0, second: 0, big_endian: magic & 1 == 1 };
        sums.add(&header[..24]);
        sums.stands_at(header, 24).then_some(sums)
    }

    /// Takes a frame in and says whether it carries the right sums.
    fn take_frame(&mut self, frame: &[u8]) -> bool {
        self.add(&frame[..8]);
        self.add(&frame[FRAME_HEADER_BYTES..]);
        self.stands_at(frame, 16)
    }

    fn add(&mut self, bytes: &[u8]) {
        let word = |bytes: &[u8]| {
            let bytes: [u8; 4] = bytes.try_into().expect("BUG: four bytes");
            if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        };
        let (mut first, mut second) = (self.first, self.second);
        for pair in bytes.chunks_exact(8) {
            first = first.wrapping_add(word(&pair[..4])).wrapping_add(second);
            second = second.wrapping_add(word(&pair[4..])).wrapping_add(first);
        }
        (self.first, self.second) = (first, second);
    }

    fn stands_at(&self, bytes: &[u8], at: usize) -> bool {
        (number(bytes, at), number(bytes, at + 4)) == (self.first, self.second)
    }
}
