//! `aos history` and `aos diff`: a session's turns, their calls, and the lines each call changed.

use std::sync::Arc;

use aos_model::entry::{Entry, Fact};
use aos_model::limits::DIFF_FILE_BYTES_MAX;
use aos_model::policy::Op;
use aos_model::records::{Image, Kind, PathRecord};
use aos_model::refusal::{Code, Refusal};
use aos_model::state::{StepRecord, Turns, step_key, turns_key};
use aos_model::text;
use aos_store::{EntryKind, Manifest, own_rights};
use serde::Serialize;

use crate::host::{Host, decode_state};
use crate::jail::{Found, Last, resolve};
use crate::layer;
use crate::lifecycle;
use crate::policy::check_path;
use crate::session::OpenSession;
use crate::snapshot::{self, Which, finalize};

/// One turn that changed something.
#[derive(Debug, Serialize)]
pub struct Turn {
    pub turn_id: String,
    /// `done`, `undone` after a rollback that can be redone, or `undo`: a rollback or redo that cannot be taken back as
    /// one any more. Its snapshot has what it displaced.
    pub state: &'static str,
    pub calls: Vec<Change>,
}

/// The paths that one journal entry of a turn changed.
#[derive(Debug, Serialize)]
pub struct Change {
    pub seq: u64,
    pub at_ns: u64,
    pub kind: String,
    pub tool_call_id: String,
    /// What the call displaced: `host.fs.restore` takes this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    pub paths: Vec<Touched>,
}

#[derive(Debug, Serialize)]
pub struct Touched {
    pub path: String,
    /// `added`, `changed`, `removed` or `moved`.
    pub change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines_added: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines_removed: Option<u64>,
}

impl Host {
    /// The turns of a session, newest first. Rolled-back turns come before the current ones.
    pub fn history(&self, session_id: &str) -> Result<Vec<Turn>, Refusal> {
        let _own = own_rights();
        let session = lifecycle::find_session(self, session_id)?;
        finalize(self, &session, &Which::All)?;
        let turns: Turns = self.decode(&turns_key(session_id))?.unwrap_or_default();
        let mut shown = Vec::new();
        for step in &turns.undone {
            if let Some(record) = self.decode::<StepRecord>(&step_key(session_id, *step))? {
                shown.push((*step, self.turn(&session, *step, &record, "undone")?));
            }
        }
        let mut next = turns.top;
        while let Some(step) = next {
            let Some(record) = self.decode::<StepRecord>(&step_key(session_id, step))? else { break };
            shown.push((step, self.turn(&session, step, &record, "done")?));
            next = record.previous;
        }
        shown.append(&mut self.past_rolls(&session)?);
        shown.sort_by_key(|(step, _)| std::cmp::Reverse(*step));
        Ok(shown.into_iter().map(|(_, turn)| turn).collect())
    }

    /// The rollbacks and redos that a later change cut off from the stacks, by entry: what they displaced is only in their
    /// snapshots.
    fn past_rolls(&self, session: &Arc<OpenSession>) -> Result<Vec<(u64, Turn)>, Refusal> {
        let current: Vec<u64> = snapshot::rolls(self, session)?.into_iter().map(|roll| roll.seq).collect();
        let mut past = Vec::new();
        for seq in snapshot::all(self, session)?.iter().flat_map(|snapshot| &snapshot.seqs) {
            let Some(bytes) = self.journal.entry(*seq)? else { continue };
            let Ok(entry) = serde_json::from_slice::<Entry<'_>>(&bytes) else { continue };
            let is_roll = entry.facts.iter().any(|fact| matches!(fact, Fact::Rolled { .. }));
            if is_roll && !current.contains(seq) {
                let turn_id = entry.turn_id.as_deref().unwrap_or_default().to_owned();
                let calls = vec![self.change(session, *seq, &entry)];
                past.push((*seq, Turn { turn_id, state: "undo", calls }));
            }
        }
        Ok(past)
    }

    fn decode<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Refusal> {
        Ok(self.journal.state(key)?.and_then(|bytes| decode_state(key, &bytes)))
    }

    fn turn(
        &self,
        session: &Arc<OpenSession>,
        step: u64,
        record: &StepRecord,
        state: &'static str,
    ) -> Result<Turn, Refusal> {
        let mut calls = Vec::new();
        for seq in snapshot::seqs_of_step(self, session, step)? {
            let Some(bytes) = self.journal.entry(seq)? else { continue };
            let Ok(entry) = serde_json::from_slice::<Entry<'_>>(&bytes) else { continue };
            calls.push(self.change(session, seq, &entry));
        }
        Ok(Turn { turn_id: record.turn_id.clone(), state, calls })
    }

    fn change(&self, session: &Arc<OpenSession>, seq: u64, entry: &Entry<'_>) -> Change {
        let (mut paths, mut snapshot_id) = (Vec::new(), None);
        for fact in &entry.facts {
            let Fact::Captured(captured) = fact else { continue };
            snapshot_id = Some(captured.snapshot_id.clone());
            let manifest = self.manifests.read(&session.id, &captured.snapshot_id).ok().flatten();
            for record in &captured.paths {
                let sides = match captured.in_tree {
                    true => self.sides_in_layer(session, record, &entry.facts),
                    false => self.sides(session, manifest.as_ref(), record),
                };
                let lines = sides.ok().and_then(|sides| count_lines(&sides));
                paths.push(Touched {
                    path: record.path.clone(),
                    change: change_kind(record),
                    lines_added: lines.map(|lines| lines.0),
                    lines_removed: lines.map(|lines| lines.1),
                });
            }
        }
        Change {
            seq,
            at_ns: entry.at_ns,
            kind: entry.kind.to_string(),
            tool_call_id: entry.tool_call_id.as_deref().unwrap_or_default().to_owned(),
            snapshot_id,
            paths,
        }
    }

    /// The changes of a tool call as a unified diff.
    pub fn diff(&self, session_id: &str, tool_call_id: &str) -> Result<String, Refusal> {
        let _own = own_rights();
        let session = lifecycle::find_session(self, session_id)?;
        let seqs = snapshot::seqs_of_scope(self, &session, tool_call_id)?;
        if seqs.is_empty() {
            return Err(Refusal::new(
                Code::SnapshotNotFound,
                format!(
                    "this session keeps nothing of a tool call `{}`; `aos history` shows those it does",
                    text::escape(tool_call_id)
                ),
            ));
        }
        let mut out = String::new();
        finalize(self, &session, &Which::Of(&seqs))?;
        for touch in snapshot::touches(self, seqs)? {
            let manifest = self.manifests.read(&session.id, &touch.snapshot_id)?;
            for record in &touch.paths {
                if let Some(to) = &record.moved_to {
                    out.push_str(&format!("moved {} to {to}\n", record.path));
                    continue;
                }
                let sides = match touch.in_tree {
                    true => snapshot::with_entry(self, touch.seq, |entry| {
                        self.sides_in_layer(&session, record, &entry.facts)
                    })?,
                    false => self.sides(&session, manifest.as_ref(), record),
                };
                match sides {
                    Ok(Sides { old, new }) => {
                        out.push_str(&text::diff(&record.path, old.as_deref(), new.as_deref()));
                    }
                    Err(_) if is_folder(record) => {
                        out.push_str(&self.folder_diff(&session, manifest.as_ref(), record));
                    }
                    Err(why) => out.push_str(&format!("{}: {why}\n", record.path)),
                }
            }
        }
        Ok(out)
    }

    /// The diff of a folder: created, mode changed, or removed with its files.
    fn folder_diff(
        &self,
        session: &Arc<OpenSession>,
        manifest: Option<&Manifest>,
        record: &PathRecord,
    ) -> String {
        let path = &record.path;
        let before = match (&record.before, &record.after) {
            (None, _) => return format!("new folder {path}\n"),
            (Some(before), Some(after)) => {
                return format!("mode of {path} {:04o} -> {:04o}\n", before.mode, after.mode);
            }
            (Some(before), None) => before,
        };
        let mut out = format!("removed folder {path}\n");
        let (Some(manifest), Some(preimage)) = (manifest, before.preimage.as_deref()) else { return out };
        for suffix in manifest.below(preimage) {
            let below = format!("{path}{suffix}");
            let Some(kept) =
                manifest.kept(preimage, path, suffix).filter(|kept| kept.kind == EntryKind::File)
            else {
                continue;
            };
            let old = may_read(session, &below).and_then(|_| {
                self.body(kept.body_hash.as_deref()).ok_or("its pre-image is no longer stored")
            });
            out.push_str(&match old {
                Ok(old) => text::diff(&below, Some(&old), None),
                Err(why) => format!("{below}: {why}\n"),
            });
        }
        out
    }

    /// The content of a path in a layer before and after an entry.
    fn sides_in_layer(
        &self,
        session: &Arc<OpenSession>,
        record: &PathRecord,
        facts: &[Fact],
    ) -> Result<Sides, &'static str> {
        let path = &record.path;
        let absolute = layer::absolute(session, path);
        check_path(session, Op::Read, path, &absolute, &absolute, &mut Vec::new())
            .map_err(|_| "the policy does not allow reading it")?;
        let mut deltas = facts.iter().filter_map(|fact| match fact {
            Fact::Tree(change) => change.deltas.iter().find(|delta| delta.path == *path),
            _ => None,
        });
        let delta = deltas.next().ok_or("the journal has no content for it")?;
        let (old, new) = layer::contents_of(session, delta)?;
        Ok(Sides { old, new })
    }

    /// The content of a path on the disk before and after an entry, if both still exist.
    fn sides(
        &self,
        session: &Arc<OpenSession>,
        manifest: Option<&Manifest>,
        record: &PathRecord,
    ) -> Result<Sides, &'static str> {
        let is_file = |image: &Option<Image>| image.as_ref().is_none_or(|image| image.kind == Kind::File);
        if record.moved_to.is_some() || !is_file(&record.before) || !is_file(&record.after) {
            return Err("not a regular file, so it has no lines");
        }
        let found = may_read(session, &record.path)?;
        let kept = manifest.and_then(|manifest| manifest.entries.get(&record.path));
        let old = match (&record.before, kept) {
            (None, _) => None,
            (Some(_), Some(kept)) if kept.kind == EntryKind::File => {
                Some(self.body(kept.body_hash.as_deref()).ok_or("its pre-image is no longer stored")?)
            }
            _ => return Err("its pre-image is no longer stored"),
        };
        let new = match &record.after {
            None => None,
            Some(image) => Some(
                self.content_after(&found, image)
                    .ok_or("the content after the change is no longer stored")?,
            ),
        };
        Ok(Sides { old, new })
    }

    fn body(&self, hash: Option<&str>) -> Option<Vec<u8>> {
        self.blobs.read(hash?, DIFF_FILE_BYTES_MAX as u64).ok().flatten()
    }

    /// The content that a change left: still at the path, or kept when a later change displaced it.
    fn content_after(&self, found: &Found, image: &Image) -> Option<Vec<u8>> {
        let hash = image.hash.as_deref()?;
        if image.size_bytes > DIFF_FILE_BYTES_MAX as u64 {
            return None;
        }
        let here = || {
            let Found::Resolved(place) = found else { return None };
            let (file, meta) = place.open_file().ok()?;
            let bytes = crate::payload::read_whole(place, &file, meta.size).ok()?;
            (aos_model::request::content_hash(&bytes) == hash).then_some(bytes)
        };
        self.body(Some(hash)).or_else(here)
    }
}

/// Resolves a path if the session may read it.
fn may_read(session: &Arc<OpenSession>, path: &str) -> Result<Found, &'static str> {
    let resolved =
        resolve(&session.jail, path, Last::NoLinks).map_err(|_| "outside the session's roots now")?;
    let absolute = resolved.found.absolute();
    check_path(session, Op::Read, path, &resolved.literal, absolute, &mut Vec::new())
        .map_err(|_| "the policy does not allow reading it")?;
    Ok(resolved.found)
}

fn is_folder(record: &PathRecord) -> bool {
    [&record.before, &record.after].into_iter().flatten().all(|image| image.kind == Kind::Dir)
}

struct Sides {
    old: Option<Vec<u8>>,
    new: Option<Vec<u8>>,
}

fn count_lines(sides: &Sides) -> Option<(u64, u64)> {
    let shown = text::diff("f", sides.old.as_deref(), sides.new.as_deref());
    let body = shown.lines().skip_while(|line| !line.starts_with("@@"));
    let (mut added, mut removed) = (0, 0);
    for line in body {
        added += u64::from(line.starts_with('+'));
        removed += u64::from(line.starts_with('-'));
    }
    // The diff is a note instead of lines for binary or large files.
    (shown.is_empty() || shown.contains("@@")).then_some((added, removed))
}

fn change_kind(record: &PathRecord) -> &'static str {
    match (&record.before, &record.after, &record.moved_to) {
        (_, _, Some(_)) => "moved",
        (None, ..) => "added",
        (Some(_), None, None) => "removed",
        (Some(_), Some(_), None) => "changed",
    }
}
