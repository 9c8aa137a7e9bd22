//! The kinds of damage to the bytes of a file.

use crate::random::Random;

/// The page size of the journal database, which is most of a home.
pub(super) const PAGE: usize = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    Flip {
        at: usize,
        mask: u8,
    },
    Cut {
        to: usize,
    },
    /// A copy of page `from` overwrites page `to`.
    Doubled {
        from: usize,
        to: usize,
    },
    Swapped {
        one: usize,
        other: usize,
    },
    Zeroed {
        page: usize,
    },
    /// A copy of the last page is appended.
    Longer,
}

impl Damage {
    /// All damages: one bit of each byte, then cuts and damaged pages, then all bits and another bit of each byte.
    pub fn all(length: usize, every: usize, patterns: usize, random: &mut Random) -> Vec<Damage> {
        let mut all = Vec::new();
        let first = random.below(every.max(1));
        for pattern in 0..patterns {
            let offsets = (first..length).step_by(every.max(1));
            all.extend(offsets.map(|at| {
                let bit = (at + at / 8 + 3 * pattern) % 8;
                Damage::Flip { at, mask: if pattern == 1 { 0xff } else { 1 << bit } }
            }));
            if pattern == 0 {
                all.extend(Damage::of_pieces(length, random).into_iter().step_by(every.clamp(1, 4)));
            }
        }
        all
    }

    fn of_pieces(length: usize, random: &mut Random) -> Vec<Damage> {
        let pages = length / PAGE;
        let mut all = Vec::new();
        let cuts =
            (0..=pages).flat_map(|page| [page * PAGE, (page * PAGE).saturating_sub(1), page * PAGE + 1]);
        let cuts = cuts.chain([0, 1, length / 2, length.saturating_sub(1), length.saturating_sub(2)]);
        let mut cuts: Vec<usize> = cuts.filter(|to| *to < length).collect();
        cuts.sort_unstable();
        cuts.dedup();
        all.extend(cuts.into_iter().map(|to| Damage::Cut { to }));
        for page in 0..pages {
            let other = random.below(pages);
            all.extend([Damage::Zeroed { page }, Damage::Doubled { from: page, to: (page + 1) % pages }]);
            all.extend([Damage::Doubled { from: page, to: other }, Damage::Swapped { one: page, other }]);
        }
        all.push(Damage::Longer);
        all
    }

    /// The damaged bytes; `None` when the damage changes nothing.
    pub fn of(self, whole: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = whole.to_vec();
        let page = |number: usize| number * PAGE..(number + 1) * PAGE;
        match self {
            Damage::Flip { at, mask } => bytes[at] ^= mask,
            Damage::Cut { to } => bytes.truncate(to),
            Damage::Doubled { from, to } => bytes.copy_within(page(from), to * PAGE),
            Damage::Swapped { one, other } => {
                bytes[page(one)].copy_from_slice(&whole[page(other)]);
                bytes[page(other)].copy_from_slice(&whole[page(one)]);
            }
            Damage::Zeroed { page: number } => bytes[page(number)].fill(0),
            Damage::Longer => bytes.extend_from_slice(&whole[whole.len().saturating_sub(PAGE)..]),
        }
        (bytes != whole).then_some(bytes)
    }
}

/// Where the last commit of a write-ahead log begins and ends. Its frames carry the salt of the log header, and the
/// last frame of a transaction holds the database size. Frames after it are left over from before the log was reset.
pub fn last_commit(wal: &[u8]) -> (usize, usize) {
    const HEADER: usize = 32;
    let number = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().unwrap_or_default());
    let frame = 24 + number(8) as usize;
    let (mut begin, mut end) = (HEADER, HEADER);
    let mut at = HEADER;
    while at + frame <= wal.len() && wal[at + 8..at + 16] == wal[16..24] {
        if number(at + 4) != 0 {
            (begin, end) = (end, at + frame);
        }
        at += frame;
    }
    (begin, end)
}
