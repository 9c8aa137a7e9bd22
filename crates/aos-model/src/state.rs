//! The state: a pure fold of the journal, kept as a map from keys to bytes (I7).
//!
//! The store keeps the same map as a table, a checkpoint that it updates from time to time, so opening a home folds only
//! the entries after it. `replay --verify` folds from the first entry and compares both maps byte for byte. Large
//! values stay in their entry, and the map holds the number of the entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, Fact};
use crate::records::{SessionRecord, SessionState};
use crate::vfs::{self, TreeChange};

/// A change of the map: a new value, or `None` to remove the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    pub value: Option<Vec<u8>>,
}

pub fn session_key(session_id: &str) -> String {
    format!("session/{session_id}")
}

/// The prefix of the keys `<snapshot>/<entry>`, one for each entry that captured something into the snapshot.
pub fn snapshot_prefix(session_id: &str) -> String {
    format!("snapshot/{session_id}/")
}

/// The value of such a key if the entry changed something. Undoing past that entry needs its pre-images.
const CHANGED: &[u8] = b"1";

/// The key of the newest change of a session whose pre-images were dropped.
pub fn dropped_key(session_id: &str) -> String {
    format!("lost/{session_id}")
}

/// The snapshot id and the entry number in a key below [`snapshot_prefix`].
pub fn decode_snapshot_key(key: &str) -> Option<(&str, u64)> {
    let (rest, seq) = key.rsplit_once('/')?;
    Some((rest.rsplit_once('/')?.1, seq.parse().ok()?))
}

/// The undo and redo stacks of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turns {
    /// The newest step that is not rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<u64>,
    /// The steps that are rolled back; the last one is redone first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<u64>,
}

/// One undo step: consecutive changes of one turn. Its id is the number of its first entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRecord {
    pub turn_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
}

pub fn turns_key(session_id: &str) -> String {
    format!("turns/{session_id}")
}

pub fn step_key(session_id: &str, step: u64) -> String {
    format!("step/{session_id}/{step:020}")
}

/// The prefix of the keys of the entries of a step.
pub fn step_prefix(session_id: &str, step: u64) -> String {
    format!("change/{session_id}/{step:020}/")
}

/// A blob that the operator put is usable in every session; a blob that a receipt named, in its own session.
pub fn blob_key(session_id: Option<&str>, blob_ref: &str) -> String {
    format!("blob/{}/{blob_ref}", session_id.unwrap_or("*"))
}

/// The prefix of the paths of a session's tree. The value of such a key is the node.
pub fn tree_prefix(session_id: &str) -> String {
    format!("tree/{session_id}/")
}

/// The key of the current version of a session's tree.
pub fn tree_version_key(session_id: &str) -> String {
    format!("tree_version/{session_id}")
}

/// The prefix of the versions of a session's tree. The value is the number of the entry that published the version.
pub fn tree_versions_prefix(session_id: &str) -> String {
    format!("tree_versions/{session_id}/")
}

/// Reads the map as it is before an entry.
pub trait StateReader {
    fn get(&self, key: &str) -> Option<Vec<u8>>;
    fn keys_with_prefix(&self, prefix: &str) -> Vec<String>;
}

/// The part of an entry that the fold reads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FoldInput {
    pub session_id: Option<String>,
    pub turn_id: Option<String>,
    pub blobs: Vec<String>,
    /// Shared, because a change may have very many paths.
    pub facts: Arc<Vec<Fact>>,
}

impl FoldInput {
    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty() && self.facts.is_empty()
    }

    /// Every blob that the entry names: those of its receipt, those that the operator put, those of a tree.
    pub fn blob_refs(&self) -> impl Iterator<Item = &str> {
        let put = self.facts.iter().flat_map(|fact| match fact {
            Fact::BlobPut { blob_ref } => vec![blob_ref.as_str()],
            Fact::Tree(change) => change.blob_refs().collect(),
            Fact::TreeKept(kept) => {
                vfs::blob_refs(kept.iter().filter_map(|kept| kept.node.as_deref())).collect()
            }
            Fact::SessionOpened(_)
            | Fact::SessionEnded { .. }
            | Fact::Captured(_)
            | Fact::SnapshotDropped { .. }
            | Fact::Rolled { .. } => Vec::new(),
        });
        self.blobs.iter().map(String::as_str).chain(put)
    }
}

impl From<Entry<'_>> for FoldInput {
    fn from(entry: Entry<'_>) -> FoldInput {
        FoldInput {
            session_id: entry.session_id.map(Into::into),
            turn_id: entry.turn_id.map(Into::into),
            blobs: entry.blobs.into_iter().map(Into::into).collect(),
            facts: Arc::new(entry.facts),
        }
    }
}

/// What entry `seq` changes. Facts that contradict the state, such as a session that was never opened, change nothing:
/// `verify` also folds damaged journals.
pub fn fold(before: &impl StateReader, seq: u64, effects: &FoldInput) -> Vec<Change> {
    let mut changes = Vec::new();
    let session_id = effects.session_id.as_deref();
    for blob_ref in &effects.blobs {
        changes.push(put(blob_key(session_id, blob_ref), Vec::new()));
    }
    for fact in effects.facts.iter() {
        match fact {
            Fact::SessionOpened(record) => changes.push(put(session_key(&record.session_id), encode(record))),
            Fact::SessionEnded { session_id, state } => end_session(before, session_id, *state, &mut changes),
            Fact::Captured(snapshot) => {
                let session_id = session_id.unwrap_or_default();
                let key = format!("{}{}/{seq:020}", snapshot_prefix(session_id), snapshot.snapshot_id);
                let changed = !snapshot.explicit && !snapshot.paths.is_empty();
                changes.push(put(key, if changed { CHANGED.to_vec() } else { Vec::new() }));
                let rolled = effects.facts.iter().any(|fact| matches!(fact, Fact::Rolled { .. }));
                if changed && !rolled {
                    let turn_id = effects.turn_id.as_deref().unwrap_or_default();
                    add_to_turn(before, session_id, turn_id, seq, &mut changes);
                }
            }
            Fact::SnapshotDropped { snapshot_id } => {
                drop_snapshot(before, session_id.unwrap_or_default(), snapshot_id, &mut changes);
            }
            Fact::Rolled { steps, again } => {
                roll(before, session_id.unwrap_or_default(), steps, *again, &mut changes);
            }
            Fact::BlobPut { blob_ref } => changes.push(put(blob_key(None, blob_ref), Vec::new())),
            Fact::Tree(change) => change_tree(session_id.unwrap_or_default(), seq, change, &mut changes),
            Fact::TreeKept(_) => {}
        }
    }
    changes
}

/// One row per path, so a write costs what it changes and not the size of the tree.
fn change_tree(session_id: &str, seq: u64, change: &TreeChange, changes: &mut Vec<Change>) {
    let prefix = tree_prefix(session_id);
    for delta in &change.deltas {
        let value = delta.after.as_deref().map(encode);
        changes.push(Change { key: format!("{prefix}{}", delta.path), value });
    }
    changes.push(put(tree_version_key(session_id), encode(&change.version)));
    let version = format!("{}{:020}", tree_versions_prefix(session_id), change.version);
    changes.push(put(version, encode(&seq)));
}

/// Removes a snapshot. Changes without pre-images cannot be undone, so the newest of them is recorded.
fn drop_snapshot(before: &impl StateReader, session_id: &str, snapshot_id: &str, changes: &mut Vec<Change>) {
    let keys = before.keys_with_prefix(&format!("{}{snapshot_id}/", snapshot_prefix(session_id)));
    let is_change = |key: &&String| before.get(key).is_some_and(|value| value == CHANGED);
    let newest = keys.iter().filter(is_change).filter_map(|key| Some(decode_snapshot_key(key)?.1)).max();
    let known: Option<u64> = decode(before, &dropped_key(session_id));
    if newest > known {
        changes.push(put(dropped_key(session_id), encode(&newest)));
    }
    changes.extend(keys.into_iter().map(|key| Change { key, value: None }));
}

/// Closes a session and removes its snapshots, its tree and its references to blobs.
fn end_session(before: &impl StateReader, session_id: &str, state: SessionState, changes: &mut Vec<Change>) {
    let key = session_key(session_id);
    let Some(mut record) = before.get(&key).and_then(|bytes| decode_session(&bytes)) else { return };
    record.state = state;
    changes.push(put(key, encode(&record)));
    let prefix_of = |kind: &str| format!("{kind}/{session_id}/");
    for prefix in [
        snapshot_prefix(session_id),
        blob_key(Some(session_id), ""),
        prefix_of("step"),
        prefix_of("change"),
        tree_prefix(session_id),
        tree_versions_prefix(session_id),
    ] {
        remove_below(before, &prefix, changes);
    }
    for key in [turns_key(session_id), dropped_key(session_id), tree_version_key(session_id)] {
        if before.get(&key).is_some() {
            changes.push(Change { key, value: None });
        }
    }
}

fn remove_below(before: &impl StateReader, prefix: &str, changes: &mut Vec<Change>) {
    changes.extend(before.keys_with_prefix(prefix).into_iter().map(|key| Change { key, value: None }));
}

/// Adds a change to the step of the current turn, or starts a new step for another turn. Both clear the redo stack.
fn add_to_turn(
    before: &impl StateReader,
    session_id: &str,
    turn_id: &str,
    seq: u64,
    changes: &mut Vec<Change>,
) {
    let turns: Turns = decode(before, &turns_key(session_id)).unwrap_or_default();
    for step in &turns.undone {
        changes.push(Change { key: step_key(session_id, *step), value: None });
        remove_below(before, &step_prefix(session_id, *step), changes);
    }
    let current = turns.top.filter(|top| {
        decode(before, &step_key(session_id, *top)).is_some_and(|step: StepRecord| step.turn_id == turn_id)
    });
    let step = current.unwrap_or(seq);
    if current.is_none() {
        let record = StepRecord { turn_id: turn_id.to_owned(), previous: turns.top };
        changes.push(put(step_key(session_id, seq), encode(&record)));
    }
    changes.push(put(format!("{}{seq:020}", step_prefix(session_id, step)), Vec::new()));
    let now = Turns { top: Some(step), undone: Vec::new() };
    if now != turns {
        changes.push(put(turns_key(session_id), encode(&now)));
    }
}

fn roll(before: &impl StateReader, session_id: &str, steps: &[u64], again: bool, changes: &mut Vec<Change>) {
    let mut turns: Turns = decode(before, &turns_key(session_id)).unwrap_or_default();
    for step in steps {
        if again {
            turns.undone.pop();
            turns.top = Some(*step);
        } else {
            turns.undone.push(*step);
            turns.top =
                decode(before, &step_key(session_id, *step)).and_then(|step: StepRecord| step.previous);
        }
    }
    changes.push(put(turns_key(session_id), encode(&turns)));
}

fn decode<T: serde::de::DeserializeOwned>(before: &impl StateReader, key: &str) -> Option<T> {
    serde_json::from_slice(&before.get(key)?).ok()
}

pub fn decode_session(bytes: &[u8]) -> Option<SessionRecord> {
    serde_json::from_slice(bytes).ok()
}

fn put(key: String, value: Vec<u8>) -> Change {
    Change { key, value: Some(value) }
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("BUG: a state record did not serialize")
}

/// The whole map in memory, for replay.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct State {
    map: BTreeMap<String, Vec<u8>>,
}

impl State {
    pub fn apply(&mut self, seq: u64, effects: &FoldInput) {
        for change in fold(self, seq, effects) {
            match change.value {
                Some(value) => self.map.insert(change.key, value),
                None => self.map.remove(&change.key),
            };
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.map.iter().map(|(key, value)| (key.as_str(), value.as_slice()))
    }
}

impl StateReader for State {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.map.get(key).cloned()
    }

    fn keys_with_prefix(&self, prefix: &str) -> Vec<String> {
        let from = prefix.to_owned();
        self.map
            .range(from..)
            .map(|(key, _)| key)
            .take_while(|key| key.starts_with(prefix))
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Delta, Node, NodeKind};

    #[test]
    fn a_tree_change_has_frozen_bytes_and_folds_to_one_row_per_path() {
        let folder = Node {
            what: NodeKind::Dir,
            mode: 0o755,
            version: 1,
            created_at_ns: 1,
            updated_at_ns: 1,
            base: None,
        };
        let change = |version, before: Option<&Node>, after: Option<&Node>| {
            let [before, after] = [before, after].map(|node| node.cloned().map(Box::new));
            Fact::Tree(TreeChange { version, deltas: vec![Delta { path: "d".into(), before, after }] })
        };
        let made = change(1, None, Some(&folder));
        let json = serde_json::to_string(&made).unwrap();
        let node = r#"{"what":"dir","mode":493,"version":1,"created_at_ns":1,"updated_at_ns":1}"#;
        assert_eq!(json, format!(r#"{{"tree":{{"version":1,"deltas":[{{"path":"d","after":{node}}}]}}}}"#));
        assert_eq!(serde_json::from_str::<Fact>(&json).unwrap(), made);
        let mut state = State::default();
        let mut apply = |seq, fact| {
            let effects = FoldInput {
                session_id: Some("hs_1".into()),
                facts: vec![fact].into(),
                ..FoldInput::default()
            };
            state.apply(seq, &effects);
            (state.get("tree/hs_1/d"), state.keys_with_prefix(&tree_versions_prefix("hs_1")).len())
        };
        assert_eq!(apply(7, made), (Some(node.as_bytes().to_vec()), 1));
        assert_eq!(apply(8, change(2, Some(&folder), None)), (None, 2));
        assert_eq!(tree_prefix("hs_1"), "tree/hs_1/");
    }
}
