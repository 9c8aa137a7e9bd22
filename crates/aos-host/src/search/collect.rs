//! Collects the matches of all threads in path order and cuts them at the same place whatever the number of threads.
//!
//! Once the matches exceed what can be returned, the last file that still counts is a bound: files after it cannot be in
//! the result and are not searched. The bound only moves toward earlier paths.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use aos_model::limits::SEARCH_OUTPUT_BYTES_MAX;

use super::lines::Found;

/// The matches of one grep.
#[derive(Debug)]
pub(super) struct Collector {
    matches_max: u64,
    kept: Mutex<Kept>,
    bounded: AtomicBool,
}

#[derive(Debug, Default)]
struct Kept {
    /// By absolute path.
    files: BTreeMap<Vec<u8>, Found>,
    matches: u64,
    bytes: usize,
}

/// The result.
#[derive(Debug)]
pub(super) struct Collected {
    /// The text of each file, in path order.
    pub(super) files: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) matches: u64,
    /// Whether matches were left out.
    pub(super) more: bool,
    /// Whether a returned line was cut.
    pub(super) line_cut: bool,
    /// Paths after this one were not searched, because they cannot be in the result.
    pub(super) bound: Option<Vec<u8>>,
}

impl Collector {
    pub(super) fn new(matches_max: u64) -> Collector {
        Collector { matches_max, kept: Mutex::default(), bounded: AtomicBool::new(false) }
    }

    pub(super) fn add(&self, path: Vec<u8>, found: Found) {
        let mut kept = self.kept.lock().expect("BUG: lock poisoned");
        kept.matches += found.ends.len() as u64;
        kept.bytes += found.text.len();
        kept.files.insert(path, found);
        while let Some(last) = kept.files.last_entry() {
            let (matches, bytes) = (last.get().ends.len() as u64, last.get().text.len());
            let full_without =
                kept.matches - matches > self.matches_max || kept.bytes - bytes > SEARCH_OUTPUT_BYTES_MAX;
            if !full_without {
                break;
            }
            kept.files.pop_last();
            kept.matches -= matches;
            kept.bytes -= bytes;
        }
        if kept.matches > self.matches_max || kept.bytes > SEARCH_OUTPUT_BYTES_MAX {
            self.bounded.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a path comes after everything that can be returned.
    pub(super) fn is_past(&self, path: impl FnOnce() -> Vec<u8>) -> bool {
        if !self.bounded.load(Ordering::Relaxed) {
            return false;
        }
        let kept = self.kept.lock().expect("BUG: lock poisoned");
        kept.files.last_key_value().is_some_and(|(bound, _)| path() > *bound)
    }

    /// Cuts at the last match that fits.
    pub(super) fn finish(self) -> Collected {
        let kept = self.kept.into_inner().expect("BUG: lock poisoned");
        let bound = kept.files.last_key_value().map(|(path, _)| path.clone());
        let mut collected = Collected {
            files: Vec::with_capacity(kept.files.len()),
            matches: 0,
            more: false,
            line_cut: false,
            bound: bound.filter(|_| self.bounded.into_inner()),
        };
        let mut bytes = 0;
        for (path, mut found) in kept.files {
            let wanted = usize::try_from(self.matches_max - collected.matches).unwrap_or(usize::MAX);
            let fits = |end: &&usize| bytes + **end <= SEARCH_OUTPUT_BYTES_MAX;
            let taken = found.ends.iter().take(wanted).take_while(fits).count();
            let end = taken.checked_sub(1).map_or(0, |last| found.ends[last]);
            collected.more |= taken < found.ends.len();
            collected.line_cut |= found.line_cut;
            collected.matches += taken as u64;
            bytes += end;
            // Context before a match that is not returned is dropped too.
            found.text.truncate(end);
            if taken > 0 {
                collected.files.push((path, found.text));
            }
        }
        collected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: usize) -> Found {
        let text = b"row\n".repeat(rows);
        Found { ends: (1..=rows).map(|row| row * 4).collect(), text, line_cut: false }
    }

    fn run(order: &[(&str, usize)], max: u64) -> (Vec<String>, u64, bool) {
        let collector = Collector::new(max);
        for (path, rows) in order {
            collector.add(path.as_bytes().to_vec(), found(*rows));
        }
        let collected = collector.finish();
        let paths = collected.files.iter().map(|(path, _)| String::from_utf8_lossy(path).into_owned());
        (paths.collect(), collected.matches, collected.more)
    }

    #[test]
    fn the_cut_does_not_depend_on_the_order_of_arrival() {
        let mut files = vec![("a", 2), ("b", 3), ("c", 1), ("d", 4)];
        for max in 0..=11 {
            let first = run(&files, max);
            for _ in 0..files.len() {
                files.rotate_left(1);
                assert_eq!(run(&files, max), first, "at most {max}");
            }
            assert_eq!(first.1, max.min(10));
            assert_eq!(first.2, max < 10);
        }
    }

    #[test]
    fn paths_after_the_bound_are_not_searched() {
        let collector = Collector::new(2);
        collector.add(b"m".to_vec(), found(2));
        assert!(!collector.is_past(|| b"z".to_vec()), "a third match is still wanted");
        collector.add(b"p".to_vec(), found(1));
        assert!(collector.is_past(|| b"q".to_vec()) && !collector.is_past(|| b"o".to_vec()));
        collector.add(b"a".to_vec(), found(1));
        assert!(collector.is_past(|| b"n".to_vec()) && !collector.is_past(|| b"m".to_vec()));
    }
}
