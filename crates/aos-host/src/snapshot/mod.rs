//! Snapshots: the pre-images that a session holds, their tool calls and their size.
//!
//! The journal is the record: the entry of each mutation lists what it displaced. The ledger is the open session's index
//! of those entries, read from the journal on first use. Displaced content waits among the pre-images. The finalizer hashes it,
//! moves it into the blob store and lists it in a manifest, at the latest before it is read.

mod capture;
mod finalize;
mod open_preimage;

use std::sync::{Arc, MutexGuard};

use aos_model::entry::{Entry, Fact};
use aos_model::records::{RecordedChange, SnapshotRecord};
use aos_model::refusal::{Code, Refusal};
use aos_model::state::{decode_snapshot_key, snapshot_prefix, step_prefix};
use aos_store::{Fault, own_rights};

use crate::host::Host;
use crate::leftovers::log_leftover;
use crate::session::OpenSession;

use crate::ledger::{EntryRef, Roll, Snapshot, SnapshotIndex};
pub(crate) use capture::capture;
pub(crate) use finalize::{Which, finalize, preview_manifest, run as run_finalizer};

/// Locks the ledger's index and reads it from the journal on first use.
fn lock_index<'l>(
    host: &Host,
    session: &'l OpenSession,
) -> Result<MutexGuard<'l, Option<SnapshotIndex>>, Fault> {
    let mut index = session.ledger.index.lock().expect("BUG: lock poisoned");
    if index.is_none() {
        *index = Some(read_index(host, session)?);
    }
    Ok(index)
}

fn read_index(host: &Host, session: &OpenSession) -> Result<SnapshotIndex, Fault> {
    let mut seqs = Vec::new();
    host.journal.state_below(&snapshot_prefix(&session.id), &mut |key, _| {
        seqs.extend(decode_snapshot_key(key).map(|(_, seq)| seq));
    })?;
    seqs.sort_unstable();
    seqs.dedup();
    let mut index = SnapshotIndex::default();
    for seq in seqs {
        with_entry(host, seq, |entry| {
            let made = EntryRef {
                seq,
                at_ns: entry.at_ns,
                tool_call: entry.tool_call_id.as_deref(),
                turn: entry.turn_id.as_deref(),
            };
            index.note(&made, &entry.facts);
        })?;
    }
    finalize::tidy(host, session, &index)?;
    Ok(index)
}

pub(crate) fn with_entry<T>(host: &Host, seq: u64, use_it: impl FnOnce(Entry<'_>) -> T) -> Result<T, Fault> {
    let damaged = |why: String| Fault::Refused(format!("entry {seq} of the journal is damaged: {why}"));
    let bytes = host.journal.entry(seq)?.ok_or_else(|| damaged("it is missing".into()))?;
    let entry: Entry<'_> = serde_json::from_slice(&bytes).map_err(|why| damaged(why.to_string()))?;
    Ok(use_it(entry))
}

/// The snapshot that a change is captured into; `None` if the session keeps none. Without a scope the change gets a
/// snapshot of its own. `displaced` lists the paths and the content that the change removes.
pub(crate) fn choose(
    host: &Host,
    session: &OpenSession,
    scope: Option<&str>,
    fresh: &str,
    displaced: &[(&str, u64)],
) -> Result<Option<String>, Refusal> {
    let index = lock_index(host, session)?;
    let known = scope.and_then(|scope| index.as_ref().expect("BUG: read above").open_of(scope));
    let held = known.map_or(0, |known| known.bytes);
    let is_new = |path: &str| known.is_none_or(|known| !known.paths.contains(path));
    let bytes: u64 = displaced.iter().filter(|(path, _)| is_new(path)).map(|(_, bytes)| bytes).sum();
    let makes_new = session.auto_snapshot || scope.is_none();
    let chosen = known.map(|known| known.id.to_string()).or_else(|| makes_new.then(|| fresh.to_owned()));
    if chosen.is_some() && held + bytes > session.snapshot_bytes_max {
        return Err(Refusal::new(
            Code::LimitExceeded,
            format!(
                "with {bytes} bytes more the pre-images of this tool call are over the session's `snapshot_bytes_max` of {}; nothing was changed. Open a session with a higher limit, or with `auto_snapshot` off",
                session.snapshot_bytes_max
            ),
        ));
    }
    Ok(chosen)
}

/// Adds a journaled entry to the ledger, evicts the oldest snapshots over the size limit, and wakes the finalizer for
/// the rest.
pub(crate) fn remember(host: &Host, session: &Arc<OpenSession>, made: &EntryRef<'_>, facts: &[Fact]) {
    let is_relevant = |fact: &Fact| matches!(fact, Fact::Captured(_) | Fact::SnapshotDropped { .. });
    if !facts.iter().any(is_relevant) {
        return;
    }
    // If the journal cannot be read, the next request reports it: the answer of this one is already journaled.
    let Ok(mut index) = lock_index(host, session) else { return };
    let index = index.as_mut().expect("BUG: read above");
    let mut written = Vec::new();
    for fact in facts {
        match fact {
            Fact::SnapshotDropped { snapshot_id } => {
                drop_stored(host, session, snapshot_id, index.get(snapshot_id));
            }
            Fact::Captured(record) => written.push(record.snapshot_id.as_str()),
            _ => {}
        }
    }
    index.note(made, facts);
    while index.bytes() > session.snapshot_bytes_max {
        // The snapshot that was just written is never evicted.
        let evictable = index.all().find(|one| !written.contains(&&*one.id));
        let Some(oldest) = evictable.map(|oldest| oldest.id.clone()) else { break };
        drop_stored(host, session, &oldest, index.forget(&oldest).as_ref());
        let fact = Fact::SnapshotDropped { snapshot_id: oldest.to_string() };
        host.note(
            "host.fs.snapshot_evicted",
            &session.id,
            "the session's `snapshot_bytes_max` is reached",
            Some(fact),
        );
    }
    host.finalizer.wake(session);
}

/// Removes the manifest of a snapshot and its pre-images. If it is being finalized now, the finalizer finds it
/// missing from the index and does the same.
fn drop_stored(host: &Host, session: &OpenSession, snapshot_id: &str, known: Option<&Snapshot>) {
    let _own = own_rights();
    log_leftover("manifest", snapshot_id, host.manifests.drop_snapshot(&session.id, snapshot_id));
    if let Some(snapshot) = known {
        finalize::discard(host, session, snapshot);
    }
}

/// Reads from the ledger's index.
fn with_index<T>(
    host: &Host,
    session: &OpenSession,
    read: impl FnOnce(&SnapshotIndex) -> T,
) -> Result<T, Fault> {
    Ok(read(lock_index(host, session)?.as_ref().expect("BUG: read above")))
}

/// All snapshots of a session, oldest first.
pub(crate) fn all(host: &Host, session: &OpenSession) -> Result<Vec<Snapshot>, Fault> {
    with_index(host, session, |index| index.all().cloned().collect())
}

/// The rollbacks and redos since the last change of a session.
pub(crate) fn rolls(host: &Host, session: &OpenSession) -> Result<Vec<Roll>, Fault> {
    with_index(host, session, |index| index.rolls().to_vec())
}

/// Whether the pre-images of all these entries are kept.
pub(crate) fn are_kept(
    host: &Host,
    session: &OpenSession,
    mut seqs: impl Iterator<Item = u64>,
) -> Result<bool, Fault> {
    with_index(host, session, |index| seqs.all(|seq| index.of_entry(seq).is_some()))
}

pub(crate) fn is_kept(host: &Host, session: &OpenSession, snapshot_id: &str) -> Result<bool, Fault> {
    with_index(host, session, |index| index.get(snapshot_id).is_some())
}

/// The entries that were captured into a snapshot.
pub(crate) fn seqs_of_snapshot(
    host: &Host,
    session: &OpenSession,
    snapshot_id: &str,
) -> Result<Vec<u64>, Fault> {
    with_index(host, session, |index| {
        index.get(snapshot_id).map(|known| known.seqs.clone()).unwrap_or_default()
    })
}

/// The entries of all snapshots of one tool call, in order.
pub(crate) fn seqs_of_scope(host: &Host, session: &OpenSession, scope: &str) -> Result<Vec<u64>, Fault> {
    let mut seqs: Vec<u64> = with_index(host, session, |index| {
        index.of_scope(scope).flat_map(|known| known.seqs.iter().copied()).collect()
    })?;
    seqs.sort_unstable();
    Ok(seqs)
}

/// The capturing entries from `first` on, in order.
pub(crate) fn seqs_from(host: &Host, session: &OpenSession, first: u64) -> Result<Vec<u64>, Fault> {
    with_index(host, session, |index| index.seqs_from(first).collect())
}

/// The changes of these entries, in order.
pub(crate) fn touches(
    host: &Host,
    seqs: impl IntoIterator<Item = u64>,
) -> Result<Vec<RecordedChange>, Fault> {
    let mut touches = Vec::new();
    for seq in seqs {
        with_entry(host, seq, |entry| {
            for fact in entry.facts {
                if let Fact::Captured(record) = fact {
                    check_preimage_names(seq, &record)?;
                    touches.push(RecordedChange {
                        seq,
                        turn_id: entry.turn_id.as_deref().map(str::to_owned),
                        explicit: record.explicit,
                        in_tree: record.in_tree,
                        snapshot_id: record.snapshot_id,
                        paths: record.paths,
                    });
                }
            }
            Ok::<(), Fault>(())
        })??;
    }
    Ok(touches)
}

/// Finalizes what these entries displaced, because an undo reads it.
pub(crate) fn finalize_entries(host: &Host, session: &OpenSession, seqs: &[u64]) -> Result<(), Fault> {
    let unfinalized = finalize(host, session, &Which::Of(seqs))?;
    // A damaged manifest is reported by the operation that needs it.
    unfinalized.into_values().find(|fault| !matches!(fault, Fault::Refused(_))).map_or(Ok(()), Err)
}

/// A home can come from another machine, so only names that we generate are opened.
fn check_preimage_names(seq: u64, record: &SnapshotRecord) -> Result<(), Fault> {
    let mut names = record.paths.iter().filter_map(|path| path.before.as_ref()?.preimage.as_deref());
    match names.find(|name| !aos_store::is_preimage_name(name)) {
        None => Ok(()),
        Some(_) => {
            Err(Fault::Refused(format!("entry {seq} of the journal names a pre-image with an invalid name")))
        }
    }
}

/// The tool call id of an entry.
pub(crate) fn author(host: &Host, seq: u64) -> Option<String> {
    with_entry(host, seq, |entry| entry.tool_call_id.as_deref().map(str::to_owned)).ok().flatten()
}

/// The entries of one undo step, in order.
pub(crate) fn seqs_of_step(host: &Host, session: &OpenSession, step: u64) -> Result<Vec<u64>, Refusal> {
    let mut seqs = Vec::new();
    host.journal.state_below(&step_prefix(&session.id, step), &mut |key, _| {
        seqs.extend(key.rsplit('/').next().and_then(|seq| seq.parse::<u64>().ok()));
    })?;
    Ok(seqs)
}
