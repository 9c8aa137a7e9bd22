//! Checks the write-ahead log for damage that SQLite does not report.
//!
//! SQLite stops reading a WAL at the first frame with a wrong checksum and reports nothing, because a torn last commit
//! looks the same. A flipped bit in the middle would silently lose every later commit. The layout of header and frames
//! and the checksum are those of <https://sqlite.org/fileformat2.html#walformat>.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::fault::Fault;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// SQLite's smallest page size.
const PAGE_BYTES_MIN: usize = 512;
/// The last bit says whether the checksums are computed over big-endian words.
const MAGIC: u32 = 0x377f_0682;

/// The pages that a valid WAL holds.
#[derive(Debug, Default)]
pub(crate) struct WalPages(BTreeSet<u32>);

impl WalPages {
    /// Whether SQLite reads a page of the database from the WAL, whatever the database file has there. Pages are
    /// numbered from 1.
    pub(crate) fn hold(&self, page: u32) -> bool {
        self.0.contains(&page)
    }
}

/// Refuses a WAL in which a frame of the same log follows an invalid one. A torn end is not damage: it was never
/// committed.
pub(crate) fn check(journal: &Path) -> Result<WalPages, Fault> {
    let mut pages = WalPages::default();
    let path = journal.with_extension("db-wal");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(&path, flags, Mode::empty()) else { return Ok(pages) };
    let damaged = |what: String| {
        Fault::Refused(format!(
            "the journal is damaged: {}: {what}; restore it from a copy, or move it away to continue without the entries in it",
            path.display()
        ))
    };
    let mut wal = WalReader { file, at: 0 };
    let Some(header) = wal.read(HEADER_BYTES)? else {
        // Fewer bytes than a header: SQLite has written no frame yet.
        return Ok(pages);
    };
    let Some(mut checksum) = Checksum::of_header(&header) else {
        // SQLite syncs the header before it writes the first frame. Without a frame, the power was cut before that, and
        // nothing was ever committed to this log.
        let has_frame = wal.read(FRAME_HEADER_BYTES + PAGE_BYTES_MIN)?.is_some();
        return if has_frame {
            Err(damaged("the checksum of its header is wrong".into()))
        } else {
            Ok(pages)
        };
    };
    let page_bytes = number(&header, 8) as usize;
    if !page_bytes.is_power_of_two() || page_bytes > 1 << 16 {
        return Err(damaged("the page size in its header is invalid".into()));
    }
    let salt = &header[16..24];
    let (mut frame, mut broken) = (0, None);
    while let Some(bytes) = wal.read(FRAME_HEADER_BYTES + page_bytes)? {
        frame += 1;
        // SQLite restarts a WAL from its beginning with a new salt. Frames with another salt are left over from before.
        if &bytes[8..16] != salt {
            if broken.is_none() {
                broken = Some(frame);
            }
            continue;
        }
        match broken {
            Some(first) => {
                return Err(damaged(format!(
                    "frame {first} is invalid, but frame {frame} after it belongs to the same log"
                )));
            }
            None if !checksum.add_frame(&bytes) => broken = Some(frame),
            None => drop(pages.0.insert(number(&bytes, 0))),
        }
    }
    Ok(pages)
}

struct WalReader {
    file: OwnedFd,
    at: u64,
}

impl WalReader {
    /// The next `count` bytes, or `None` when fewer are left.
    fn read(&mut self, count: usize) -> Result<Option<Vec<u8>>, Fault> {
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

/// SQLite's checksum. It accumulates over the header and all frames.
struct Checksum {
    first: u32,
    second: u32,
    big_endian: bool,
}

impl Checksum {
    /// Starts from a header; `None` when its checksum is wrong.
    fn of_header(header: &[u8]) -> Option<Checksum> {
        let magic = number(header, 0);
        if magic & !1 != MAGIC {
            return None;
        }
        let mut checksum = Checksum { first: 0, second: 0, big_endian: magic & 1 == 1 };
        checksum.add(&header[..24]);
        checksum.equals_at(header, 24).then_some(checksum)
    }

    /// Adds a frame and returns whether the checksum in it is right.
    fn add_frame(&mut self, frame: &[u8]) -> bool {
        self.add(&frame[..8]);
        self.add(&frame[FRAME_HEADER_BYTES..]);
        self.equals_at(frame, 16)
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

    fn equals_at(&self, bytes: &[u8], at: usize) -> bool {
        (number(bytes, at), number(bytes, at + 4)) == (self.first, self.second)
    }
}
