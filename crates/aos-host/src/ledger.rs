//! The ledger of a session: the index of its snapshots, by id, by tool call and by journal entry.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use aos_model::entry::Fact;
use aos_model::records::{Coverage, SnapshotRecord};

/// The snapshots of one open session, in the order of capture.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// `None` until it is first read from the journal.
    pub(crate) index: Mutex<Option<SnapshotIndex>>,
    pub(crate) finalizing: Mutex<()>,
}

impl Ledger {
    /// The ledger of a new session, which has no entries to read.
    pub(crate) fn empty() -> Ledger {
        Ledger { index: Mutex::new(Some(SnapshotIndex::default())), finalizing: Mutex::new(()) }
    }
}

/// The snapshots in the order of capture, with their indexes.
#[derive(Debug, Default)]
pub(crate) struct SnapshotIndex {
    /// Keyed by a growing number: later snapshots have higher ones.
    snapshots: BTreeMap<u64, Snapshot>,
    next: u64,
    /// The snapshot that the last change was captured into.
    last: Option<u64>,
    by_id: HashMap<Arc<str>, u64>,
    by_scope: HashMap<Arc<str>, Vec<u64>>,
    /// The number of the snapshot that each journal entry was captured into.
    seqs: BTreeMap<u64, u64>,
    unfinalized: BTreeSet<u64>,
    bytes: u64,
    /// The rollbacks and redos since the last change, in order.
    rolls: Vec<Roll>,
}

/// A rollback or a redo of turns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Roll {
    pub(crate) seq: u64,
    pub(crate) turns: usize,
    pub(crate) again: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) id: Arc<str>,
    pub(crate) scope: Arc<str>,
    pub(crate) turn: Option<Arc<str>>,
    pub(crate) at_ns: u64,
    pub(crate) seqs: Vec<u64>,
    pub(crate) bytes: u64,
    /// The paths with a pre-image in this snapshot since another snapshot was written to: a path is kept once.
    pub(crate) paths: HashSet<Box<str>>,
    last_turn: Option<Arc<str>>,
    pub(crate) coverage: Coverage,
    /// Whether later changes of the same tool call are captured into it.
    open: bool,
}

/// The fields of a journal entry that the index needs.
pub(crate) struct EntryRef<'a> {
    pub(crate) seq: u64,
    pub(crate) at_ns: u64,
    pub(crate) tool_call: Option<&'a str>,
    pub(crate) turn: Option<&'a str>,
}

impl Snapshot {
    fn add(&mut self, entry: &EntryRef<'_>, record: &SnapshotRecord) {
        self.seqs.push(entry.seq);
        self.coverage = self.coverage.min(record.coverage);
        if self.turn.is_none() {
            self.turn = entry.turn.map(Arc::from);
        }
        // A rollback can stop between two turns, so each turn keeps its own pre-image of a path.
        if self.last_turn.as_deref() != entry.turn {
            self.last_turn = if self.turn.as_deref() == entry.turn {
                self.turn.clone()
            } else {
                entry.turn.map(Arc::from)
            };
            self.paths.clear();
        }
        for path in &record.paths {
            if let Some(before) =
                path.before.as_ref().filter(|image| image.preimage.is_some() || record.in_tree)
                && self.paths.insert(path.path.as_str().into())
            {
                self.bytes += before.size_bytes;
            }
        }
    }
}

impl SnapshotIndex {
    /// Updates the index with the facts of a journal entry.
    pub(crate) fn note(&mut self, entry: &EntryRef<'_>, facts: &[Fact]) {
        let is_roll = facts.iter().any(|fact| matches!(fact, Fact::Rolled { .. }));
        for fact in facts {
            match fact {
                Fact::Captured(record) => {
                    self.captured(entry, record);
                    // As the fold of the state does.
                    if !is_roll && !record.explicit && !record.paths.is_empty() {
                        self.rolls.clear();
                    }
                }
                Fact::SnapshotDropped { snapshot_id } => drop(self.forget(snapshot_id)),
                Fact::Rolled { steps, again } => {
                    self.rolls.push(Roll { seq: entry.seq, turns: steps.len(), again: *again });
                }
                Fact::SessionOpened(_)
                | Fact::SessionEnded { .. }
                | Fact::BlobPut { .. }
                | Fact::Tree(_)
                | Fact::TreeKept(_) => {}
            }
        }
    }

    pub(crate) fn rolls(&self) -> &[Roll] {
        &self.rolls
    }

    fn captured(&mut self, entry: &EntryRef<'_>, record: &SnapshotRecord) {
        let number = match self.by_id.get(record.snapshot_id.as_str()) {
            Some(number) => *number,
            None => self.begin(entry, record),
        };
        // A rollback can stop between two tool calls, so each run of one call keeps its own pre-image of a path.
        if let Some(other) = self.last.replace(number).filter(|last| *last != number) {
            self.snapshots.get_mut(&other).into_iter().for_each(|other| other.paths = HashSet::new());
        }
        let snapshot = self.snapshots.get_mut(&number).expect("BUG: `by_id` names a stored snapshot");
        self.bytes -= snapshot.bytes;
        snapshot.add(entry, record);
        self.bytes += snapshot.bytes;
        self.seqs.insert(entry.seq, number);
        self.unfinalized.insert(number);
    }

    fn begin(&mut self, entry: &EntryRef<'_>, record: &SnapshotRecord) -> u64 {
        let number = self.next;
        self.next += 1;
        let scope: Arc<str> = record.scope_id.as_deref().or(entry.tool_call).unwrap_or_default().into();
        let id: Arc<str> = record.snapshot_id.as_str().into();
        self.by_id.insert(id.clone(), number);
        self.by_scope.entry(scope.clone()).or_default().push(number);
        let snapshot = Snapshot {
            id,
            scope,
            turn: None,
            at_ns: entry.at_ns,
            seqs: Vec::new(),
            bytes: 0,
            coverage: record.coverage,
            paths: HashSet::new(),
            last_turn: None,
            open: !record.explicit && !record.own,
        };
        self.snapshots.insert(number, snapshot);
        number
    }

    pub(crate) fn forget(&mut self, snapshot_id: &str) -> Option<Snapshot> {
        let number = self.by_id.remove(snapshot_id)?;
        let snapshot = self.snapshots.remove(&number)?;
        if let Some(of_scope) = self.by_scope.get_mut(&snapshot.scope) {
            of_scope.retain(|other| *other != number);
            if of_scope.is_empty() {
                self.by_scope.remove(&snapshot.scope);
            }
        }
        for seq in &snapshot.seqs {
            self.seqs.remove(seq);
        }
        self.unfinalized.remove(&number);
        self.bytes -= snapshot.bytes;
        Some(snapshot)
    }

    pub(crate) fn get(&self, snapshot_id: &str) -> Option<&Snapshot> {
        self.snapshots.get(self.by_id.get(snapshot_id)?)
    }

    /// The snapshots of a tool call, or those taken explicitly under that scope id.
    pub(crate) fn of_scope(&self, scope: &str) -> impl DoubleEndedIterator<Item = &Snapshot> {
        let numbers = self.by_scope.get(scope).into_iter().flatten();
        numbers.map(|number| &self.snapshots[number])
    }

    /// The snapshot that the next change of a tool call is captured into.
    pub(crate) fn open_of(&self, scope: &str) -> Option<&Snapshot> {
        self.of_scope(scope).rev().find(|snapshot| snapshot.open)
    }

    /// All snapshots, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.values()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The entries from `first` on, in order.
    pub(crate) fn seqs_from(&self, first: u64) -> impl DoubleEndedIterator<Item = u64> {
        self.seqs.range(first..).map(|(seq, _)| *seq)
    }

    /// The snapshot that an entry was captured into.
    pub(crate) fn of_entry(&self, seq: u64) -> Option<&Snapshot> {
        self.snapshots.get(self.seqs.get(&seq)?)
    }

    /// Whether anything was captured between two entries.
    pub(crate) fn is_between(&self, one: u64, other: u64) -> bool {
        self.seqs_from(one + 1).next().is_some_and(|seq| seq < other)
    }

    /// The snapshots that are not finalized yet, oldest first.
    pub(crate) fn unfinalized(&self) -> impl Iterator<Item = &Snapshot> {
        self.unfinalized.iter().map(|number| &self.snapshots[number])
    }

    pub(crate) fn is_unfinalized(&self, snapshot_id: &str) -> bool {
        self.by_id.get(snapshot_id).is_some_and(|number| self.unfinalized.contains(number))
    }

    pub(crate) fn mark_finalized(&mut self, snapshot_id: &str) {
        if let Some(number) = self.by_id.get(snapshot_id) {
            self.unfinalized.remove(number);
        }
    }
}
