//! `host.fs.restore`, `host.fs.rollback` and `host.fs.redo`: restore paths to earlier content.

use std::sync::{Arc, Mutex};

use aos_model::entry::Fact;
use aos_model::id::Token;
use aos_model::limits::RECEIPT_PATHS_MAX;
use aos_model::plan_undo::RecordedChange;
use aos_model::receipt::{Body, Restored};
use aos_model::refusal::{Code, Detail, Refusal};
use aos_model::request::{Redo, Restore, Rollback};
use aos_model::state::{StepRecord, Turns, dropped_key, step_key, turns_key};

use super::{Operation, PlanInput, Proposal};
use crate::host::{Host, decode_state};
use crate::layer::{self, LayerRestoration};
use crate::restore::{DiskGoals, DiskRestoration};
use crate::session::OpenSession;
use crate::snapshot;
use crate::steps::{Completion, Outcome, Plan};
use crate::target::Target;

/// The restoration of paths, on the disk and in the layer.
#[derive(Debug)]
pub(super) struct Restoration {
    goals: Mutex<Option<(DiskGoals, LayerRestoration)>>,
    /// The number of targets on the disk; the other targets are in the layer.
    on_disk: usize,
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
    fn new(
        host: &Host,
        session: &Arc<OpenSession>,
        seqs: &[u64],
        includes: impl Fn(&RecordedChange) -> bool,
        only: Option<&[String]>,
        flags: Flags,
    ) -> Result<Restoration, Refusal> {
        if !flags.is_preview {
            snapshot::finalize_entries(host, session, seqs)?;
        }
        let mut touches = snapshot::touches(host, seqs.iter().copied())?;
        touches.retain(includes);
        let seqs: Vec<u64> = touches.iter().map(|touch| touch.seq).collect();
        let in_layer = LayerRestoration::read(host, session, &seqs, only)?;
        touches.retain(|touch| !touch.in_tree);
        let only = only.filter(|_| !touches.is_empty());
        let goals = DiskGoals::read(host, session, touches, only, flags.is_preview)?;
        Ok(Restoration {
            on_disk: goals.targets_count(),
            goals: Mutex::new(Some((goals, in_layer))),
            force: flags.force,
            dry_run: flags.dry_run,
            rolled: None,
        })
    }
}

impl Operation for Restoration {
    fn targets(&self) -> Vec<Target> {
        let goals = self.goals.lock().expect("BUG: targets are read before the plan is made");
        let (goals, in_layer) = goals.as_ref().expect("BUG: targets are read before the plan is made");
        let mut targets: Vec<Target> = goals.targets().map(Target::on_disk).collect();
        targets.extend(in_layer.targets());
        targets
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let (goals, in_layer) =
            self.goals.lock().expect("BUG: planned once").take().expect("BUG: planned once");
        let DiskRestoration { steps, mut restored, mut deleted, mut conflicts } =
            goals.plan(input.host, input.session, &input.found[..self.on_disk], self.force)?;
        let mut layer_plan = in_layer.plan(input.host, input.session, self.force)?;
        conflicts.append(&mut layer_plan.conflicts);
        merge(&mut restored, layer_plan.restored);
        merge(&mut deleted, layer_plan.deleted);
        deleted.retain(|path| restored.binary_search(path).is_err());
        if !conflicts.is_empty() {
            let named: Vec<String> = conflicts
                .iter()
                .take(3)
                .map(|conflict| format!("{} (by {})", conflict.path, conflict.changed_by))
                .collect();
            let message = format!(
                "changed since: {}{}; nothing was changed. Undo the later change first, or set `force` to overwrite it",
                named.join(", "),
                if conflicts.len() > 3 { ", …" } else { "" }
            );
            let conflicts_count = Some(conflicts.len() as u64);
            let mut detail = Detail { conflicts, conflicts_count, ..Detail::default() };
            detail.conflicts.truncate(RECEIPT_PATHS_MAX);
            return Err(Refusal::new(Code::ChangedSince, message).with(detail));
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
    Restoration::new(
        host,
        session,
        &seqs,
        |_| true,
        request.paths.as_deref(),
        Flags::new(request.force, request.dry_run, is_preview),
    )
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
    let turns = turns(host, session)?;
    let mut chain = Vec::new();
    let mut next = turns.top;
    while let Some(step) = next
        && (chain.len() as u64) < request.turns.unwrap_or(1)
    {
        let record = step_record(host, session, step)?;
        next = record.previous;
        chain.push((step, record.turn_id));
    }
    let Some(oldest) = chain.last() else {
        return Err(Refusal::new(Code::NothingToRollBack, "no turn of this session changed anything yet"));
    };
    let oldest = oldest.0;
    restore_state_before(
        host,
        session,
        Flags::new(request.force, request.dry_run, is_preview),
        chain,
        false,
        oldest,
    )
}

pub(super) fn redo(
    host: &Host,
    session: &Arc<OpenSession>,
    request: &Redo,
    is_preview: bool,
) -> Result<Restoration, Refusal> {
    let turns = turns(host, session)?;
    let mut chain = Vec::new();
    for step in turns.undone.iter().rev().take(request.turns.unwrap_or(1) as usize) {
        chain.push((*step, step_record(host, session, *step)?.turn_id));
    }
    let Some((newest, _)) = chain.last() else {
        return Err(Refusal::new(
            Code::NothingToRedo,
            "nothing was rolled back, or something was changed since",
        ));
    };
    let last_entry = snapshot::seqs_of_step(host, session, *newest)?.last().copied().unwrap_or(*newest);
    restore_state_before(
        host,
        session,
        Flags::new(request.force, request.dry_run, is_preview),
        chain,
        true,
        last_entry + 1,
    )
}

/// Restores the state before entry `first`: undoes every later change of the session, earlier rollbacks and redos
/// included.
fn restore_state_before(
    host: &Host,
    session: &Arc<OpenSession>,
    flags: Flags,
    chain: Vec<(u64, String)>,
    is_redo: bool,
    first: u64,
) -> Result<Restoration, Refusal> {
    let seqs = snapshot::seqs_from(host, session, first)?;
    let lost = host.journal.state(&dropped_key(&session.id))?;
    let lost: Option<u64> = lost.and_then(|bytes| decode_state(&dropped_key(&session.id), &bytes));
    if lost.is_some_and(|lost| lost >= first) {
        let (code, what) =
            if is_redo { (Code::NothingToRedo, "redone") } else { (Code::NothingToRollBack, "rolled back") };
        let turns: Vec<String> = chain.iter().map(|(_, turn)| aos_model::text::escape(turn)).collect();
        return Err(Refusal::new(
            code,
            format!(
                "turn {} cannot be {what}: pre-images that it needs were dropped or evicted. `host.fs.list_snapshots` shows what is kept",
                turns.join(", ")
            ),
        ));
    }
    let (steps, turns) = chain.into_iter().unzip();
    let restoration = Restoration::new(host, session, &seqs, |touch| !touch.explicit, None, flags)?;
    Ok(Restoration { rolled: Some(Rolled { steps, turns, is_redo }), ..restoration })
}

fn turns(host: &Host, session: &OpenSession) -> Result<Turns, Refusal> {
    let key = turns_key(&session.id);
    let bytes = host.journal.state(&key)?;
    Ok(bytes.and_then(|bytes| decode_state(&key, &bytes)).unwrap_or_default())
}

fn step_record(host: &Host, session: &OpenSession, step: u64) -> Result<StepRecord, Refusal> {
    let key = step_key(&session.id, step);
    let bytes = host.journal.state(&key)?;
    bytes.and_then(|bytes| decode_state(&key, &bytes)).ok_or_else(|| {
        Refusal::new(
            Code::IoError,
            format!("the journal is damaged: step {step} is missing; run `aos verify`"),
        )
    })
}
