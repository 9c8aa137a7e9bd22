//! Grep: searches every file of a walk, or one named file, with ripgrep's engine.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};

use aos_model::limits::{GREP_WINDOW_BYTES, PATTERN_COMPILED_BYTES_MAX};
use aos_model::receipt::Warning;
use aos_model::refusal::Refusal;
use encoding_rs_io::DecodeReaderBytesBuilder;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use rustix::io::Errno;

use super::Deadline;
use super::collect::Collector;
use super::lines::{Lines, Style};
use super::listing::ListedEntry;
use super::long_lines::LongLineSearch;
use super::skipped::SkippedPaths;
use super::walk::{Options, Visitor, Walk, WalkControl};
use crate::content::Source;
use crate::jail::{Jail, Place};
use crate::machine::Machine;
use crate::session::OpenSession;

/// The compiled parameters of a grep.
#[derive(Debug, Clone)]
pub(crate) struct GrepQuery {
    pub(crate) matcher: RegexMatcher,
    pub(crate) filter: Option<Override>,
    pub(crate) context: u64,
    pub(crate) files_only: bool,
    pub(crate) ignored_too: bool,
    pub(crate) matches_max: u64,
}

/// The result of a grep.
#[derive(Debug)]
pub(crate) struct Grepped {
    /// Absolute paths and their rows, in path order.
    pub(crate) files: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) matches: u64,
    /// Whether there are more matches, or files that were not searched.
    pub(crate) more: bool,
    pub(crate) line_cut: bool,
    pub(crate) warnings: Vec<Warning>,
}

/// Compiles a pattern as ripgrep does, with a smaller memory limit. The error is a sentence.
pub(crate) fn compile_regex(pattern: &str, fixed: bool, ignore_case: bool) -> Result<RegexMatcher, String> {
    RegexMatcherBuilder::new()
        .multi_line(true)
        .line_terminator(Some(b'\n'))
        .ban_byte(Some(0))
        .fixed_strings(fixed)
        .case_insensitive(ignore_case)
        .size_limit(PATTERN_COMPILED_BYTES_MAX)
        .dfa_size_limit(PATTERN_COMPILED_BYTES_MAX)
        .build(pattern)
        .map_err(|why| reason(&why.to_string()))
}

/// The last line of a regex error is the reason; the lines before it repeat the pattern.
fn reason(why: &str) -> String {
    let last = why.lines().last().unwrap_or_default();
    let short: String = last.strip_prefix("error: ").unwrap_or(last).chars().take(300).collect();
    aos_model::text::escape(&short)
}

/// A filter as `rg -g` takes it; `None` when it is empty.
pub(crate) fn compile_filter(glob: &str) -> Result<Option<Override>, String> {
    let mut builder = OverrideBuilder::new("");
    builder.add(glob).map_err(|why| reason(&why.to_string()))?;
    let filter = builder.build().map_err(|why| reason(&why.to_string()))?;
    Ok(Some(filter).filter(|filter| !filter.is_empty()))
}

impl GrepQuery {
    /// Searches everything below a folder.
    pub(crate) fn below(
        &self,
        machine: &Machine,
        session: &OpenSession,
        place: &Place,
    ) -> Result<Grepped, Refusal> {
        let (deadline, skipped) = (Deadline::new(machine), SkippedPaths::default());
        let options =
            Options { ignored_too: self.ignored_too, overrides: self.filter.as_ref(), ..Options::default() };
        let mut walk = Walk::new(session, place, options, &deadline, &skipped, machine.cores);
        walk.in_order |= session.capability.max_scan_bytes.is_some();
        let grep = self.start(session, &deadline, &skipped);
        let cut = walk.run(&grep, place)?;
        Ok(finish(grep.collector, cut, &session.jail, &deadline, skipped))
    }

    /// Searches one named file: completely, and as text.
    pub(crate) fn file(
        &self,
        machine: &Machine,
        session: &OpenSession,
        place: &Place,
    ) -> Result<Grepped, Refusal> {
        let (deadline, skipped) = (Deadline::new(machine), SkippedPaths::default());
        let (file, meta) = place.open_file()?;
        let grep = self.start(session, &deadline, &skipped);
        let shown = || place.shown.clone();
        let mut lines = Lines::new(grep.style(), &shown);
        let task = Task { file: &file, size: meta.size, named: true };
        let cut = if session.capability.max_scan_files == Some(0) {
            true
        } else {
            let (control, outcome) = grep.search(&mut grep.new_worker(), &task, &mut lines);
            outcome.map_err(|why| place.refusal("read", why))?;
            control == WalkControl::LimitReached
        };
        grep.keep(place.absolute.clone(), lines);
        Ok(finish(grep.collector, cut, &session.jail, &deadline, skipped))
    }

    fn start<'a>(
        &'a self,
        session: &'a OpenSession,
        deadline: &'a Deadline,
        skipped: &'a SkippedPaths,
    ) -> Grep<'a> {
        Grep {
            query: self,
            jail: &session.jail,
            collector: Collector::new(self.matches_max),
            bytes_left: session.capability.max_scan_bytes.map(AtomicU64::new),
            deadline,
            skipped,
        }
    }
}

fn finish(
    collector: Collector,
    cut: bool,
    jail: &Jail,
    deadline: &Deadline,
    skipped: SkippedPaths,
) -> Grepped {
    let collected = collector.finish();
    let mut warnings = skipped.warnings(jail, collected.bound.as_deref());
    warnings.extend(deadline.warning());
    Grepped {
        more: collected.more || cut || deadline.has_passed(),
        line_cut: collected.line_cut,
        files: collected.files,
        matches: collected.matches,
        warnings,
    }
}

/// A running grep.
#[derive(Debug)]
struct Grep<'a> {
    query: &'a GrepQuery,
    jail: &'a Jail,
    collector: Collector,
    /// The remaining byte limit of the scan.
    bytes_left: Option<AtomicU64>,
    deadline: &'a Deadline,
    skipped: &'a SkippedPaths,
}

/// The state of one thread.
struct Worker {
    matcher: RegexMatcher,
    searcher: Searcher,
    buffer: Vec<u8>,
}

/// A file to search.
struct Task<'a> {
    file: &'a Source,
    size: u64,
    /// Named by the request, so it is searched even if it is binary.
    named: bool,
}

/// Files up to this size are read and searched in memory at once.
const PIECE_BYTES: usize = 1 << 20;
/// ripgrep looks for a NUL in this many bytes to detect binary files.
const BINARY_CHECK_BYTES: usize = 64 << 10;
/// ripgrep reads this many bytes first, to detect a byte order mark.
const MARK_BYTES: usize = 3;

impl Visitor for Grep<'_> {
    type Worker = Worker;

    fn new_worker(&self) -> Worker {
        Worker {
            matcher: self.query.matcher.clone(),
            searcher: self.searcher(BinaryDetection::none()),
            buffer: vec![0; PIECE_BYTES],
        }
    }

    fn finish_worker(&self, _: Worker) {}

    fn enters(&self, _: &[u8]) -> bool {
        true
    }

    fn wants(&self, _: &[u8]) -> bool {
        true
    }

    fn visit(&self, worker: &mut Worker, item: ListedEntry<'_>) -> WalkControl {
        let (file, size) = match item.folder().merged.open(item.name(), item.own()) {
            Ok(Some(opened)) => opened,
            Ok(None) => return WalkControl::Continue,
            Err(why) => {
                self.skipped.add(&item.path(), why);
                return WalkControl::Continue;
            }
        };
        let shown = || self.jail.display(&item.path());
        let mut lines = Lines::new(self.style(), &shown);
        let task = Task { file: &file, size, named: false };
        let (control, outcome) = self.search(worker, &task, &mut lines);
        if let Err(why) = outcome {
            self.skipped.add(&item.path(), why);
        }
        self.keep(item.path(), lines);
        control
    }

    fn is_past(&self, item: &ListedEntry<'_>) -> bool {
        self.collector.is_past(|| item.path())
    }
}

impl Grep<'_> {
    fn searcher(&self, binary: BinaryDetection) -> Searcher {
        let context = usize::try_from(self.query.context).unwrap_or(usize::MAX);
        SearcherBuilder::new()
            .line_number(!self.query.files_only)
            .before_context(context)
            .after_context(context)
            .heap_limit(Some(GREP_WINDOW_BYTES))
            .binary_detection(binary)
            .build()
    }

    fn style(&self) -> Style {
        Style {
            matches_max: self.query.matches_max.saturating_add(1),
            files_only: self.query.files_only,
            context: self.query.context > 0 && !self.query.files_only,
        }
    }

    fn keep(&self, path: Vec<u8>, lines: Lines<'_>) {
        if !lines.found.ends.is_empty() {
            self.collector.add(path, lines.found);
        }
    }

    /// Searches a file within the byte limit of the scan.
    fn search(
        &self,
        worker: &mut Worker,
        task: &Task<'_>,
        lines: &mut Lines<'_>,
    ) -> (WalkControl, Result<(), Errno>) {
        let Some(bytes_left) = &self.bytes_left else {
            return (WalkControl::Continue, self.search_all(worker, task, lines));
        };
        // With a byte limit the walk is in order and has one thread.
        let left = bytes_left.load(Ordering::Relaxed);
        bytes_left.store(left.saturating_sub(task.size), Ordering::Relaxed);
        if task.size <= left {
            return (WalkControl::Continue, self.search_all(worker, task, lines));
        }
        (WalkControl::LimitReached, self.search_by_line(worker, task, lines, Some(left)))
    }

    fn search_all(&self, worker: &mut Worker, task: &Task<'_>, lines: &mut Lines<'_>) -> Result<(), Errno> {
        let (text, whole) = match task.file.bytes() {
            Some(bytes) => (bytes, true),
            None => {
                let (len, whole) = fill(task, &mut worker.buffer)?;
                (&worker.buffer[..len], whole)
            }
        };
        let mut source = self.reader(task, text.len());
        let start = if task.file.is_plain() { FileStart::Text } else { inspect_start(text, task.named) };
        let outcome = match start {
            FileStart::Binary => return Ok(()),
            FileStart::Text if whole => worker.searcher.search_slice(&worker.matcher, text, &mut *lines),
            FileStart::Text | FileStart::Unsure => {
                let binary = if task.named { BinaryDetection::none() } else { BinaryDetection::quit(0) };
                // A new searcher per file: a buffer that grew for one file would search for NUL further in the next.
                let mut searcher = self.searcher(binary);
                searcher.search_reader(&worker.matcher, text.chain(&mut source), &mut *lines)
            }
        };
        match (outcome, source.failed) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(Failed::Deadline)) => Ok(()),
            (Err(_), Some(Failed::Errno(why))) => Err(why),
            // A line, or its context, exceeds the heap limit.
            (Err(_), None) => {
                lines.restart();
                self.search_by_line(worker, task, lines, None)
            }
        }
    }

    /// Reads a file from `at` on.
    fn reader<'a>(&'a self, task: &Task<'a>, at: usize) -> Reader<'a> {
        Reader { file: task.file, at: at as u64, deadline: self.deadline, failed: None }
    }

    /// The slow search in bounded memory, from the start of the file.
    fn search_by_line(
        &self,
        worker: &Worker,
        task: &Task<'_>,
        lines: &mut Lines<'_>,
        bytes_max: Option<u64>,
    ) -> Result<(), Errno> {
        let mut source = self.reader(task, 0);
        let search = LongLineSearch {
            matcher: &worker.matcher,
            lines,
            context: if self.query.files_only { 0 } else { self.query.context },
            stop_at_nul: !task.named,
            cut_at_end: bytes_max.is_some(),
        };
        let limited = (&mut source).take(bytes_max.unwrap_or(u64::MAX));
        let mut decoded = DecodeReaderBytesBuilder::new()
            .utf8_passthru(true)
            .strip_bom(true)
            .bom_override(true)
            .build(limited);
        match (search.search(&mut decoded), source.failed) {
            (Ok(()), _) | (Err(_), Some(Failed::Deadline)) => Ok(()),
            (Err(_), Some(Failed::Errno(why))) => Err(why),
            (Err(_), None) => Err(Errno::IO),
        }
    }
}

/// What the first bytes of a file show.
#[derive(Debug, PartialEq, Eq)]
enum FileStart {
    Text,
    Binary,
    /// It has a NUL further on, or is UTF-16, which contains NULs.
    Unsure,
}

fn inspect_start(text: &[u8], named: bool) -> FileStart {
    if named {
        return FileStart::Text;
    }
    if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
        return FileStart::Unsure;
    }
    let line_in_mark = text[..text.len().min(MARK_BYTES)].contains(&b'\n');
    match memchr::memchr(0, text) {
        None => FileStart::Text,
        Some(at) if at < BINARY_CHECK_BYTES && !line_in_mark => FileStart::Binary,
        Some(_) => FileStart::Unsure,
    }
}

/// Reads as much of a file as fits. Returns true if that is all of it.
fn fill(task: &Task<'_>, buffer: &mut [u8]) -> Result<(usize, bool), Errno> {
    let mut len = 0;
    while len < buffer.len() {
        // One byte more than the size: a short read shows the end without another call.
        let wanted = if task.size == 0 { buffer.len() } else { buffer.len().min(task.size as usize + 1) };
        match task.file.read_at(&mut buffer[len..wanted.max(len + 1)], len as u64) {
            Ok(0) => return Ok((len, true)),
            Ok(n) => len += n,
            Err(Errno::INTR) => continue,
            Err(why) => return Err(why),
        }
        if len as u64 == task.size {
            return Ok((len, true));
        }
    }
    Ok((len, false))
}

/// Reads a file until the deadline.
struct Reader<'a> {
    file: &'a Source,
    at: u64,
    deadline: &'a Deadline,
    failed: Option<Failed>,
}

#[derive(Debug, Clone, Copy)]
enum Failed {
    Deadline,
    Errno(Errno),
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.deadline.is_over() {
            self.failed = Some(Failed::Deadline);
            return Err(io::ErrorKind::TimedOut.into());
        }
        let read = self.file.read_at(buffer, self.at).map_err(|why| {
            if why != Errno::INTR {
                self.failed = Some(Failed::Errno(why));
            }
            io::Error::from(why)
        })?;
        self.at += read as u64;
        Ok(read)
    }
}
