//! `host.fs.restore`, `host.fs.rollback` and `host.fs.redo`: restore paths to earlier content.

use std::sync::{Arc, Mutex};

use aos_model::entry::{Entry, Fact};
use aos_model::id::Token;
use aos_model::limits::RECEIPT_PATHS_MAX;
use aos_model::receipt::{Body, Restored};
use aos_model::records::RecordedChange;
use aos_model::refusal::{Code, Conflict, Detail, Refusal};
use aos_model::request::{Redo, Restore, Rollback};

use super::{Operation, PlanInput, Proposal};
use crate::host::Host;
use crate::layer::{self, LayerRestoration};
use crate::restore::{DiskRestoration, DiskUndo};
use crate::session::OpenSession;
use crate::snapshot;
use crate::steps::{Completion, Outcome, Plan};
use crate::target::Target;
use crate::turns::{self, Selected};

/// The restoration of paths, on the disk and in the layer.
#[derive(Debug)]
pub(super) struct Restoration {
    on_disk: DiskUndo,
    in_layer: Mutex<Option<LayerRestoration>>,
    force: bool,
    dry_run: bool,
    /// The turns that are rolled back or redone.
    rolled: Option<Rolled>,
}

#[derive(Debug)]
struct Rolled {
    steps: Vec<u64>,
    turns: Vec<String>,
    is_redo: bool,
}

#[derive(Debug, Clone, Copy)]
struct Flags {
    force: bool,
    dry_run: bool,
    is_preview: bool,
}

impl Flags {
    fn new(force: Option<bool>, dry_run: Option<bool>, is_preview: bool) -> Flags {
        Flags { force: force == Some(true), dry_run: dry_run == Some(true), is_preview }
    }
}

impl Restoration {
    /// Undoes these entries. Those of a group are undone as one; within it the last one was made last.
    fn new(
        host: &Host,
        session: &Arc<OpenSession>,
        groups: &[Vec<u64>],
        only: Option<&[String]>,
        flags: Flags,
    ) -> Result<Restoration, Refusal> {
        if !flags.is_preview {
            snapshot::finalize_entries(host, session, &groups.concat())?;
        }
        let in_layer = LayerRestoration::read(host, session, groups, only)?;
        let changes = |group: &Vec<u64>| -> Result<Vec<RecordedChange>, Refusal> {
            let mut changes = snapshot::touches(host, group.iter().copied())?;
            changes.retain(|change| !change.in_tree);
            Ok(changes)
        };
        let groups = groups.iter().map(changes).collect::<Result<_, _>>()?;
        Ok(Restoration {
            on_disk: DiskUndo::of(host, session, groups, only, flags.is_preview)?,
            in_layer: Mutex::new(Some(in_layer)),
            force: flags.force,
            dry_run: flags.dry_run,
            rolled: None,
        })
    }

    fn of_turns(
        host: &Host,
        session: &Arc<OpenSession>,
        selected: Selected,
        is_redo: bool,
        flags: Flags,
    ) -> Result<Restoration, Refusal> {
        let Selected { steps, turns, groups } = selected;
        let restoration = Restoration::new(host, session, &groups, None, flags)?;
        Ok(Restoration { rolled: Some(Rolled { steps, turns, is_redo }), ..restoration })
    }
}

impl Operation for Restoration {
    fn targets(&self) -> Vec<Target> {
        let mut targets: Vec<Target> = self.on_disk.targets().map(Target::on_disk).collect();
        let in_layer = self.in_layer.lock().expect("BUG: lock poisoned");
        targets.extend(in_layer.iter().flat_map(LayerRestoration::targets));
        targets
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let in_layer = self.in_layer.lock().expect("BUG: lock poisoned").take().expect("BUG: planned once");
        let DiskRestoration { steps, mut restored, mut deleted, mut conflicts } =
            self.on_disk.plan(input.host, input.session, self.force)?;
        let mut layer_plan = in_layer.plan(input.host, input.session, self.force)?;
        conflicts.append(&mut layer_plan.conflicts);
        merge(&mut restored, layer_plan.restored);
        merge(&mut deleted, layer_plan.deleted);
        deleted.retain(|path| restored.binary_search(path).is_err());
        if !conflicts.is_empty() {
            return Err(changed_since(conflicts));
        }
        let mut body = Restored {
            restored_paths_count: restored.len() as u64,
            restored_paths: restored.into_iter().take(RECEIPT_PATHS_MAX).collect(),
            deleted_paths_count: deleted.len() as u64,
            deleted_paths: deleted.into_iter().take(RECEIPT_PATHS_MAX).collect(),
            ..Restored::default()
        };
        let mut facts = Vec::new();
        if let Some(rolled) = &self.rolled {
            let turns = Some(rolled.turns.clone());
            (body.rolled_back_turns, body.redone_turns) =
                if rolled.is_redo { (None, turns) } else { (turns, None) };
            facts.push(Fact::Rolled { steps: rolled.steps.clone(), again: rolled.is_redo });
        }
        if self.dry_run {
            return input.answer(Body::Restored(Box::new(body)));
        }
        let finish = move |outcome: &Outcome<'_>| {
            body.redo_snapshot_id = Some(outcome.snapshot_id.to_owned());
            Body::Restored(Box::new(body))
        };
        let mut completion = Completion {
            warnings: input.warnings,
            finish: Box::new(finish),
            raced: Code::ChangedSince,
            facts,
            own_snapshot: true,
        };
        if input.session.layer.is_none() {
            return Ok(Proposal::Change(Plan { steps, completion }));
        }
        if steps.is_empty() {
            return Ok(Proposal::InTree(layer_plan.deltas, completion));
        }
        // Undo of a commit: the files are restored on the disk and staged again in the layer, in one entry.
        completion.facts.extend(layer::change_of(input.session, layer_plan.deltas));
        Ok(Proposal::OnDisk(Plan { steps, completion }))
    }
}

fn changed_since(mut conflicts: Vec<Conflict>) -> Refusal {
    let named = |Conflict { path, changed_by, between }: &Conflict| match between {
        Some([first, second]) => format!("{path} (by {changed_by}, between {first} and {second})"),
        None => format!("{path} (by {changed_by})"),
    };
    let message = format!(
        "changed since: {}{}; nothing was changed. Undo the later change first, or set `force` to overwrite it",
        conflicts.iter().take(3).map(named).collect::<Vec<_>>().join(", "),
        if conflicts.len() > 3 { ", …" } else { "" }
    );
    let conflicts_count = Some(conflicts.len() as u64);
    conflicts.truncate(RECEIPT_PATHS_MAX);
    Refusal::new(Code::ChangedSince, message).with(Detail { conflicts, conflicts_count, ..Detail::default() })
}

/// Merges two sorted lists of paths.
fn merge(paths: &mut Vec<String>, mut more: Vec<String>) {
    paths.append(&mut more);
    paths.sort();
    paths.dedup();
}

pub(super) fn restore(
    host: &Host,
    session: &Arc<OpenSession>,
    request: &Restore,
    is_preview: bool,
) -> Result<Restoration, Refusal> {
    for (name, id) in [("scope_id", &request.scope_id), ("snapshot_id", &request.snapshot_id)] {
        check_id(name, id.as_deref())?;
    }
    let (id, seqs) = match (&request.scope_id, &request.snapshot_id) {
        (Some(scope), None) => (scope, snapshot::seqs_of_scope(host, session, scope)?),
        (None, Some(id)) => (id, snapshot::seqs_of_snapshot(host, session, id)?),
        _ => {
            return Err(Refusal::new(
                Code::InvalidParams,
                "give either field `scope_id` (a tool call's id) or field `snapshot_id`",
            ));
        }
    };
    if seqs.is_empty() {
        return Err(not_found(id));
    }
    let groups = groups_of_call(host, session, id, &seqs)?;
    let flags = Flags::new(request.force, request.dry_run, is_preview);
    Restoration::new(host, session, &groups, request.paths.as_deref(), flags)
}

/// The changes of a tool call or a snapshot, each by itself: between any two somebody else may have written. A restore of
/// the call is taken together with the changes before it, because it took them back.
fn groups_of_call(
    host: &Host,
    session: &Arc<OpenSession>,
    call: &str,
    seqs: &[u64],
) -> Result<Vec<Vec<u64>>, Refusal> {
    let [first, .., last] = seqs else { return Ok(vec![seqs.to_vec()]) };
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    for seq in snapshot::seqs_from(host, session, *first)?.into_iter().take_while(|seq| seq <= last) {
        if seqs.binary_search(&seq).is_ok() {
            group.push(seq);
        } else if snapshot::with_entry(host, seq, |entry| is_restore_of(&entry, call))? {
            group.push(seq);
            groups.push(std::mem::take(&mut group));
        }
    }
    groups.extend(group.into_iter().map(|seq| vec![seq]));
    Ok(groups)
}

fn is_restore_of(entry: &Entry<'_>, call: &str) -> bool {
    let request = || serde_json::from_str::<Restore>(entry.params.get());
    let is_it = |request: Restore| request.paths.is_none() && request.scope_id.as_deref() == Some(call);
    entry.kind == "host.fs.restore" && request().is_ok_and(is_it)
}

pub(super) fn not_found(id: &str) -> Refusal {
    Refusal::new(
        Code::SnapshotNotFound,
        format!(
            "this session has no snapshot for `{}`; it may have been dropped or evicted. `host.fs.list_snapshots` lists them",
            aos_model::text::escape(id)
        ),
    )
}

pub(super) fn check_id(name: &str, id: Option<&str>) -> Result<(), Refusal> {
    match id.map(Token::parse) {
        None | Some(Ok(_)) => Ok(()),
        Some(Err(why)) => Err(Refusal::new(Code::InvalidParams, format!("field `{name}`: {why}"))),
    }
}

pub(super) fn rollback(
    host: &Host,
    session: &Arc<OpenSession>,
    request: &Rollback,
    is_preview: bool,
) -> Result<Restoration, Refusal> {
    let flags = Flags::new(request.force, request.dry_run, is_preview);
    let selected = turns::to_roll_back(host, session, request.turns.unwrap_or(1))?;
    Restoration::of_turns(host, session, selected, false, flags)
}

pub(super) fn redo(
    host: &Host,
    session: &Arc<OpenSession>,
    request: &Redo,
    is_preview: bool,
) -> Result<Restoration, Refusal> {
    let flags = Flags::new(request.force, request.dry_run, is_preview);
    let selected = turns::to_redo(host, session, request.turns.unwrap_or(1))?;
    Restoration::of_turns(host, session, selected, true, flags)
}
