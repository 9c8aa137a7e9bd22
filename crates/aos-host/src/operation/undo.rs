//! `host.fs.snapshot`, `restore`, `list_snapshots`, `drop_snapshot`, `rollback`, `redo`: taking back and putting back.

use std::sync::{Arc, Mutex};

use aos_model::entry::Fact;
use aos_model::id::{self, Token};
use aos_model::limits::RECEIPT_PATHS_MAX;
use aos_model::policy::Op;
use aos_model::receipt::{Body, Coverage, ListedSnapshot, Restored, Snapshotted};
use aos_model::refusal::{Code, Detail, Refusal, Status};
use aos_model::request::{DropSnapshot, ListSnapshots, Redo, Restore, Rollback, Snapshot};
use aos_model::state::{SnapshotRecord, StepRecord, Turns, lost_key, step_key, turns_key};
use aos_model::undo::Touch;

use super::{Operation, PlanInput, Proposal};
use crate::host::Host;
use crate::jail::Last;
use crate::layer::{self, TreeRestoration};
use crate::outcome::Done;
use crate::restore::{DiskRestoration, Goals};
use crate::session::OpenSession;
use crate::snapshot::{self};
use crate::steps::{Ending, Outcome, Plan};
use crate::target::Target;

/// Bringing paths back, whoever asked for it.
#[derive(Debug)]
pub(super) struct Restoration {
    goals: Mutex<Option<(Goals, TreeRestoration)>>,
    /// How many targets are the goals' on the disk; the rest are the tree's.
    on_disk: usize,
    force: bool,
    dry_run: bool,
    /// The turns that are taken back or done again, by their steps and their names.
    rolled: Option<Rolled>,
}

#[derive(Debug)]
struct Rolled {
    steps: Vec<u64>,
    turns: Vec<String>,
    again: bool,
}

impl Restoration {
    fn new(
        host: &Host,
        session: &Arc<OpenSession>,
        seqs: &[u64],
        is_meant: impl Fn(&Touch) -> bool,
        only: Option<&[String]>,
        (force, dry_run): (Option<bool>, Option<bool>),
    ) -> Result<Restoration, Refusal> {
        snapshot::finalize_entries(host, session, seqs)?;
        let mut touches = snapshot::touches(host, seqs.iter().copied())?;
        touches.retain(is_meant);
        let seqs: Vec<u64> = touches.iter().map(|touch| touch.seq).collect();
        let unwound = TreeRestoration::read(host, session, &seqs, only)?;
        touches.retain(|touch| !touch.in_tree);
        let only = only.filter(|_| !touches.is_empty());
        let goals = Goals::read(host, session, touches, only)?;
        Ok(Restoration {
            on_disk: goals.targets_count(),
            goals: Mutex::new(Some((goals, unwound))),
            force: force == Some(true),
            dry_run: dry_run == Some(true),
            rolled: None,
        })
    }
}

impl Operation for Restoration {
    fn targets(&self) -> Vec<Target> {
        let goals = self.goals.lock().expect("BUG: asked before it is planned");
        let (goals, unwound) = goals.as_ref().expect("BUG: asked before it is planned");
        let mut targets: Vec<Target> = goals.targets().map(Target::on_disk).collect();
        targets.extend(unwound.targets());
        targets
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let (goals, unwound) =
            self.goals.lock().expect("BUG: planned once").take().expect("BUG: planned once");
        let DiskRestoration { steps, mut restored, mut deleted, mut conflicts } =
            goals.plan(input.host, input.session, &input.found[..self.on_disk], self.force)?;
        let mut staged = unwound.plan(input.host, input.session, self.force)?;
        conflicts.append(&mut staged.conflicts);
        join(&mut restored, staged.restored);
        join(&mut deleted, staged.deleted);
        deleted.retain(|path| restored.binary_search(path).is_err());
        if !conflicts.is_empty() {
            let named: Vec<String> = conflicts
                .iter()
                .take(3)
                .map(|conflict| format!("{} (by {})", conflict.path, conflict.changed_by))
                .collect();
            let message = format!(
                "changed since: {}{}; nothing was touched. Take the later change back first, or set `force` to overwrite it",
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
                if rolled.again { (None, turns) } else { (turns, None) };
            facts.push(Fact::Rolled { steps: rolled.steps.clone(), again: rolled.again });
        }
        if self.dry_run {
            return input.answer(Body::Restored(Box::new(body)));
        }
        let finish = move |outcome: &Outcome<'_>| {
            body.redo_snapshot_id = Some(outcome.snapshot_id.to_owned());
            Body::Restored(Box::new(body))
        };
        let mut ending = Ending {
            warnings: input.warnings,
            finish: Box::new(finish),
            raced: Code::ChangedSince,
            facts,
            own_snapshot: true,
        };
        if input.session.layer.is_none() {
            return Ok(Proposal::Change(Plan { steps, ending }));
        }
        if steps.is_empty() {
            return Ok(Proposal::InTree(staged.deltas, ending));
        }
        // Of a commit: files go back on the disk, and what they were made from into the tree.
        ending.facts.extend(layer::change_of(input.session, staged.deltas));
        Ok(Proposal::OnDisk(Plan { steps, ending }))
    }
}

/// Two lists of paths in order as one.
fn join(paths: &mut Vec<String>, mut more: Vec<String>) {
    paths.append(&mut more);
    paths.sort();
    paths.dedup();
}

pub(super) fn restore(
    host: &Host,
    session: &Arc<OpenSession>,
    request: &Restore,
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
        (request.force, request.dry_run),
    )
}

fn not_found(id: &str) -> Refusal {
    Refusal::new(
        Code::SnapshotNotFound,
        format!(
            "this session keeps no snapshot of `{}`; it may have been dropped or evicted. `host.fs.list_snapshots` shows those there are",
            aos_model::text::escape(id)
        ),
    )
}

fn check_id(name: &str, id: Option<&str>) -> Result<(), Refusal> {
    match id.map(Token::parse) {
        None | Some(Ok(_)) => Ok(()),
        Some(Err(why)) => Err(Refusal::new(Code::InvalidParams, format!("field `{name}`: {why}"))),
    }
}

pub(super) fn rollback(
    host: &Host,
    session: &Arc<OpenSession>,
    request: &Rollback,
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
    rollback_to(host, session, (request.force, request.dry_run), chain, false, oldest)
}

pub(super) fn redo(host: &Host, session: &Arc<OpenSession>, request: &Redo) -> Result<Restoration, Refusal> {
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
    let last_of_it = snapshot::seqs_of_step(host, session, *newest)?.last().copied().unwrap_or(*newest);
    rollback_to(host, session, (request.force, request.dry_run), chain, true, last_of_it + 1)
}

/// Back to a moment of the session: everything it changed from this entry on is taken back, the rolling back and forth
/// included.
fn rollback_to(
    host: &Host,
    session: &Arc<OpenSession>,
    flags: (Option<bool>, Option<bool>),
    chain: Vec<(u64, String)>,
    again: bool,
    first: u64,
) -> Result<Restoration, Refusal> {
    let seqs = snapshot::seqs_from(host, session, first)?;
    let lost = host.journal.state(&lost_key(&session.id))?;
    let lost: Option<u64> = lost.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if lost.is_some_and(|lost| lost >= first) {
        let (code, what) =
            if again { (Code::NothingToRedo, "done again") } else { (Code::NothingToRollBack, "taken back") };
        let turns: Vec<String> = chain.iter().map(|(_, turn)| aos_model::text::escape(turn)).collect();
        return Err(Refusal::new(
            code,
            format!(
                "turn {} cannot be {what}: pre-images on the way were dropped or evicted. `host.fs.list_snapshots` shows what is kept",
                turns.join(", ")
            ),
        ));
    }
    let (steps, turns) = chain.into_iter().unzip();
    let restoration = Restoration::new(host, session, &seqs, |touch| !touch.explicit, None, flags)?;
    Ok(Restoration { rolled: Some(Rolled { steps, turns, again }), ..restoration })
}

fn turns(host: &Host, session: &OpenSession) -> Result<Turns, Refusal> {
    let bytes = host.journal.state(&turns_key(&session.id))?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
}

fn step_record(host: &Host, session: &OpenSession, step: u64) -> Result<StepRecord, Refusal> {
    let bytes = host.journal.state(&step_key(&session.id, step))?;
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(|| {
        Refusal::new(
            Code::IoError,
            format!("the journal is damaged: step {step} is missing; run `aos verify`"),
        )
    })
}

impl Operation for ListSnapshots {
    fn targets(&self) -> Vec<Target> {
        Vec::new()
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let mut snapshots = Vec::new();
        for known in snapshot::all(input.host, input.session)? {
            let touches = snapshot::touches(input.host, known.seqs.iter().copied())?;
            let mut paths: Vec<String> =
                touches.into_iter().flat_map(|touch| touch.paths).map(|record| record.path).collect();
            paths.sort();
            paths.dedup();
            let paths_count = paths.len() as u64;
            paths.truncate(RECEIPT_PATHS_MAX);
            snapshots.push(ListedSnapshot {
                snapshot_id: known.id.to_string(),
                scope_id: known.scope.to_string(),
                turn_id: known.turn.as_deref().map(str::to_owned),
                captured_at_ns: known.at_ns,
                paths,
                paths_count,
                bytes: known.bytes,
                coverage: known.coverage,
            });
        }
        input.answer(Body::Snapshots { snapshots })
    }
}

impl Operation for DropSnapshot {
    fn targets(&self) -> Vec<Target> {
        Vec::new()
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        if !snapshot::is_kept(input.host, input.session, &self.snapshot_id)? {
            return Err(not_found(&self.snapshot_id));
        }
        let mut done = Done::new(Status::Ok, Body::Dropped {}, input.warnings);
        done.facts.push(Fact::SnapshotDropped { snapshot_id: self.snapshot_id.clone() });
        Ok(Proposal::Answer(done))
    }
}

/// What stands at some paths now, kept; or a snapshot that waits for the changes of its tool call.
impl Operation for Snapshot {
    fn targets(&self) -> Vec<Target> {
        self.paths.iter().flatten().map(|path| Target::new(path, Op::Read, Last::Itself)).collect()
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        check_id("scope_id", Some(&self.scope_id))?;
        let (now_ns, random) = ((input.host.machine.now_ns)(), (input.host.machine.random)());
        let snapshot_id = id::make(id::SNAPSHOT, now_ns, random);
        let in_tree = input.session.layer.is_some();
        let (paths, captured, kept) = if in_tree {
            layer::capture(input.host, input.session, &input.found, now_ns)?
        } else {
            let (paths, captured) = snapshot::capture(input.host, input.session, &snapshot_id, &input.found)?;
            (paths, captured, Vec::new())
        };
        let explicit = self.paths.is_some();
        let mode = if explicit { "explicit" } else { "open" };
        let body = Snapshotted { snapshot_id: snapshot_id.clone(), mode, captured };
        let mut done = Done::new(Status::Ok, Body::Snapshotted(body), input.warnings);
        let scope_id = Some(self.scope_id.clone());
        done.facts.extend((!kept.is_empty()).then_some(Fact::TreeKept(kept)));
        done.facts.push(Fact::Captured(Box::new(SnapshotRecord {
            snapshot_id,
            scope_id,
            explicit,
            own: false,
            in_tree,
            coverage: Coverage::Exact,
            paths,
        })));
        Ok(Proposal::Answer(done))
    }
}
