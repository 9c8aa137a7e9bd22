//! Snapshots: which pre-images a session holds, for which tool calls, and how many bytes of them.
//!
//! The journal is the record: each mutation's entry says what it displaced. The ledger here is the live session's
//! index of those entries, read from the journal when it is first needed. What was displaced waits in the bank; it
//! is settled (hashed, shared, listed in a manifest) beside the session's work, and before anybody reads it.

mod build;
mod capture;
mod judge;
mod restore;
mod settle;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use aos_model::entry::{Entry, Fact};
use aos_model::receipt::Coverage;
use aos_model::refusal::{Code, Refusal};
use aos_model::state::{SnapshotRecord, decode_snapshot_key, snapshot_prefix, step_prefix};
use aos_model::undo::Touch;
use aos_store::Fault;

use crate::host::Host;
use crate::session::Live;

pub(crate) use capture::capture;
pub(crate) use restore::{Goals, Restoration};
pub(crate) use settle::{Settler, settle};

/// The snapshots of one live session, in the order of capture.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// `None` until it was read from the journal.
    book: Mutex<Option<Book>>,
    settling: Mutex<()>,
}

#[derive(Debug, Default)]
struct Book {
    snapshots: Vec<Snapshot>,
    unsettled: BTreeSet<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) id: String,
    pub(crate) scope: String,
    pub(crate) turn: Option<String>,
    pub(crate) at_ns: u64,
    pub(crate) seqs: Vec<u64>,
    pub(crate) bytes: u64,
    /// From which something was taken into it, by the first change of each.
    paths: BTreeSet<String>,
    last_turn: Option<String>,
    pub(crate) coverage: Coverage,
    /// Later changes of the same tool call are captured into it.
    open: bool,
}

impl Ledger {
    /// Of a session that was opened just now: there is nothing to read.
    pub(crate) fn empty() -> Ledger {
        Ledger { book: Mutex::new(Some(Book::default())), settling: Mutex::new(()) }
    }
}

impl Snapshot {
    fn add(&mut self, made: &Made<'_>, record: &SnapshotRecord) {
        self.seqs.push(made.seq);
        self.coverage = self.coverage.min(record.coverage);
        if self.turn.is_none() {
            self.turn = made.turn.map(str::to_owned);
        }
        // In another turn the same path is kept once more.
        if self.last_turn.as_deref() != made.turn {
            self.last_turn = made.turn.map(str::to_owned);
            self.paths.clear();
        }
        for path in &record.paths {
            if let Some(before) = path.before.as_ref().filter(|image| image.bank.is_some())
                && self.paths.insert(path.path.clone())
            {
                self.bytes += before.size_bytes;
            }
        }
    }
}

impl Book {
    fn forget(&mut self, snapshot_id: &str) {
        self.snapshots.retain(|snapshot| snapshot.id != snapshot_id);
        self.unsettled.remove(snapshot_id);
    }

    fn of_scope(&mut self, scope: &str) -> Option<&mut Snapshot> {
        self.snapshots.iter_mut().rev().find(|snapshot| snapshot.open && snapshot.scope == scope)
    }

    fn bytes(&self) -> u64 {
        self.snapshots.iter().map(|snapshot| snapshot.bytes).sum()
    }
}

/// The ledger's book, read from the journal when this is the first look.
fn book<'l>(host: &Host, live: &'l Live) -> Result<MutexGuard<'l, Option<Book>>, Fault> {
    let mut book = live.ledger.book.lock().expect("BUG: nobody panics with the book");
    if book.is_none() {
        *book = Some(read_book(host, live)?);
    }
    Ok(book)
}

fn read_book(host: &Host, live: &Live) -> Result<Book, Fault> {
    let mut seqs = Vec::new();
    host.journal.state_below(&snapshot_prefix(&live.id), &mut |key, _| {
        seqs.extend(decode_snapshot_key(key).map(|(_, seq)| seq));
    })?;
    seqs.sort_unstable();
    seqs.dedup();
    let mut book = Book::default();
    for seq in seqs {
        with_entry(host, seq, |entry| {
            let made = Made {
                seq,
                at_ns: entry.at_ns,
                tool_call: entry.tool_call_id.as_deref(),
                turn: entry.turn_id.as_deref(),
            };
            note(&mut book, &made, &entry.facts);
        })?;
    }
    book.unsettled = book.snapshots.iter().map(|snapshot| snapshot.id.clone()).collect();
    settle::tidy(host, live, &book)?;
    Ok(book)
}

fn with_entry<T>(host: &Host, seq: u64, use_it: impl FnOnce(&Entry<'_>) -> T) -> Result<T, Fault> {
    let damaged = |why: String| Fault::Refused(format!("entry {seq} of the journal is damaged: {why}"));
    let bytes = host.journal.entry(seq)?.ok_or_else(|| damaged("it is missing".into()))?;
    let entry: Entry<'_> = serde_json::from_slice(&bytes).map_err(|why| damaged(why.to_string()))?;
    Ok(use_it(&entry))
}

/// Which snapshot a change is captured into; `None` where the session keeps none. Without a scope it is one of its
/// own. `displaced` is what the change takes away from which paths.
pub(crate) fn choose(
    host: &Host,
    live: &Live,
    scope: Option<&str>,
    fresh: &str,
    displaced: &[(&str, u64)],
) -> Result<Option<String>, Refusal> {
    let mut book = book(host, live)?;
    let known = scope.and_then(|scope| book.as_mut().expect("BUG: read above").of_scope(scope));
    let held = known.as_ref().map_or(0, |known| known.bytes);
    let is_new = |path: &str| known.as_ref().is_none_or(|known| !known.paths.contains(path));
    let bytes: u64 = displaced.iter().filter(|(path, _)| is_new(path)).map(|(_, bytes)| bytes).sum();
    let takes_one = live.auto_snapshot || scope.is_none();
    let chosen = known.map(|known| known.id.clone()).or_else(|| takes_one.then(|| fresh.to_owned()));
    if chosen.is_some() && held + bytes > live.snapshot_bytes_max {
        return Err(Refusal::new(
            Code::LimitExceeded,
            format!(
                "with {bytes} bytes more the pre-images of this tool call are over the session's `snapshot_bytes_max` of {}; nothing was changed. Open a session with a higher limit, or with `auto_snapshot` off",
                live.snapshot_bytes_max
            ),
        ));
    }
    Ok(chosen)
}

/// An entry as the ledger sees it.
pub(crate) struct Made<'a> {
    pub(crate) seq: u64,
    pub(crate) at_ns: u64,
    pub(crate) tool_call: Option<&'a str>,
    pub(crate) turn: Option<&'a str>,
}

/// Takes what was just journaled into the ledger, lets the oldest snapshots go that are too many bytes, and has the
/// rest settled beside.
pub(crate) fn remember(host: &Host, live: &Arc<Live>, made: &Made<'_>, facts: &[Fact]) {
    let concerns = |fact: &Fact| matches!(fact, Fact::Captured(_) | Fact::SnapshotDropped { .. });
    if !facts.iter().any(concerns) {
        return;
    }
    // A journal that cannot be read back is the next one's fault to tell: this answer is already written.
    let Ok(mut book) = book(host, live) else { return };
    let book = book.as_mut().expect("BUG: read above");
    let mut written = Vec::new();
    for fact in facts {
        match fact {
            Fact::SnapshotDropped { snapshot_id } => let_go(host, live, book, snapshot_id),
            Fact::Captured(record) => written.push(record.snapshot_id.as_str()),
            _ => {}
        }
    }
    note(book, made, facts);
    while book.bytes() > live.snapshot_bytes_max {
        // The one that was just written stays, however old it is.
        let evictable = book.snapshots.iter().find(|one| !written.contains(&one.id.as_str()));
        let Some(oldest) = evictable.map(|oldest| oldest.id.clone()) else { break };
        let_go(host, live, book, &oldest);
        book.forget(&oldest);
        let fact = Fact::SnapshotDropped { snapshot_id: oldest };
        host.note(
            "host.fs.snapshot_evicted",
            &live.id,
            "the session's `snapshot_bytes_max` is reached",
            fact,
        );
    }
    host.settler.wake(live);
}

/// The manifest of a snapshot goes, and what still waits for it. If it is being settled at this moment, the settler
/// finds it gone from the book and does the same.
fn let_go(host: &Host, live: &Live, book: &Book, snapshot_id: &str) {
    let _ = host.manifests.drop_snapshot(&live.id, snapshot_id);
    if let Some(snapshot) = book.snapshots.iter().find(|snapshot| snapshot.id == snapshot_id) {
        settle::discard(host, live, snapshot);
    }
}

fn note(book: &mut Book, made: &Made<'_>, facts: &[Fact]) {
    for fact in facts {
        match fact {
            Fact::Captured(record) => {
                book.unsettled.insert(record.snapshot_id.clone());
                let known = book.snapshots.iter().position(|known| known.id == record.snapshot_id);
                let index = known.unwrap_or_else(|| {
                    book.snapshots.push(Snapshot {
                        id: record.snapshot_id.clone(),
                        scope: record.scope_id.as_deref().or(made.tool_call).unwrap_or_default().to_owned(),
                        turn: None,
                        at_ns: made.at_ns,
                        seqs: Vec::new(),
                        bytes: 0,
                        coverage: record.coverage,
                        paths: BTreeSet::new(),
                        last_turn: None,
                        open: !record.explicit && !record.own,
                    });
                    book.snapshots.len() - 1
                });
                book.snapshots[index].add(made, record);
            }
            Fact::SnapshotDropped { snapshot_id } => book.forget(snapshot_id),
            Fact::SessionOpened(_)
            | Fact::SessionEnded { .. }
            | Fact::BlobPut { .. }
            | Fact::Rolled { .. } => {}
        }
    }
}

/// All snapshots of a session, oldest first.
pub(crate) fn all(host: &Host, live: &Live) -> Result<Vec<Snapshot>, Refusal> {
    Ok(book(host, live)?.as_ref().expect("BUG: read above").snapshots.clone())
}

/// What the entries of these numbers changed, in order.
pub(crate) fn touches(host: &Host, seqs: impl IntoIterator<Item = u64>) -> Result<Vec<Touch>, Fault> {
    let mut touches = Vec::new();
    for seq in seqs {
        with_entry(host, seq, |entry| {
            for fact in &entry.facts {
                if let Fact::Captured(record) = fact {
                    check_bank_names(seq, record)?;
                    touches.push(Touch {
                        seq,
                        turn_id: entry.turn_id.as_deref().map(str::to_owned),
                        snapshot_id: record.snapshot_id.clone(),
                        explicit: record.explicit,
                        paths: record.paths.clone(),
                    });
                }
            }
            Ok::<(), Fault>(())
        })??;
    }
    Ok(touches)
}

/// A home may come from anywhere: only names that we give are followed into the bank.
fn check_bank_names(seq: u64, record: &SnapshotRecord) -> Result<(), Fault> {
    let mut names = record.paths.iter().filter_map(|path| path.before.as_ref()?.bank.as_deref());
    match names.find(|name| !aos_store::is_bank_name(name)) {
        None => Ok(()),
        Some(_) => {
            Err(Fault::Refused(format!("entry {seq} of the journal names a pre-image that is none of ours")))
        }
    }
}

/// Who made an entry: a tool call's id.
pub(crate) fn author(host: &Host, seq: u64) -> Option<String> {
    with_entry(host, seq, |entry| entry.tool_call_id.as_deref().map(str::to_owned)).ok().flatten()
}

/// The entries that a step of undo is made of, in order.
pub(crate) fn seqs_of_step(host: &Host, live: &Live, step: u64) -> Result<Vec<u64>, Refusal> {
    let mut seqs = Vec::new();
    host.journal.state_below(&step_prefix(&live.id, step), &mut |key, _| {
        seqs.extend(key.rsplit('/').next().and_then(|seq| seq.parse::<u64>().ok()));
    })?;
    Ok(seqs)
}
