//! The turns of a session that a rollback or a redo takes back: from the state, which has the stacks, and the ledger,
//! which has the rollbacks and redos since the last change.

use std::sync::Arc;

use aos_model::refusal::{Code, Refusal};
use aos_model::state::{self, StepRecord, step_key, turns_key};
use aos_model::undo::{TurnStep, Turns};

use crate::host::{Host, decode_state};
use crate::ledger::Roll;
use crate::session::OpenSession;
use crate::snapshot;

/// What a rollback or a redo takes back.
#[derive(Debug)]
pub(crate) struct Selected {
    /// The ids of the steps, in the order in which they are taken back.
    pub(crate) steps: Vec<u64>,
    pub(crate) turns: Vec<String>,
    /// The entries, see [`Turns`].
    pub(crate) groups: Vec<Vec<u64>>,
}

pub(crate) fn to_roll_back(host: &Host, session: &Arc<OpenSession>, turns: u64) -> Result<Selected, Refusal> {
    let chain = chain(host, session, stacks(host, session)?.top, turns)?;
    if chain.is_empty() {
        return Err(Refusal::new(Code::NothingToRollBack, "no turn of this session changed anything yet"));
    }
    let mut done = Turns::default();
    for (step, record) in chain.iter().rev() {
        done.done.push(turn_step(host, session, *step, record)?);
    }
    let groups = done.to_roll_back(chain.len()).expect("BUG: as many turns are there");
    let (steps, turns) = chain.into_iter().map(|(step, record)| (step, record.turn_id)).unzip();
    let selected = Selected { steps, turns, groups };
    if has_all(host, session, &selected)? {
        return Ok(selected);
    }
    Err(evicted(Code::NothingToRollBack, &selected.turns, "rolled back"))
}

pub(crate) fn to_redo(host: &Host, session: &Arc<OpenSession>, turns: u64) -> Result<Selected, Refusal> {
    let stacks = stacks(host, session)?;
    let turns = usize::try_from(turns).unwrap_or(usize::MAX).min(stacks.undone.len());
    if turns == 0 {
        let why = "nothing was rolled back, or something was changed since";
        return Err(Refusal::new(Code::NothingToRedo, why));
    }
    let mut selected = Selected { steps: Vec::new(), turns: Vec::new(), groups: Vec::new() };
    for step in stacks.undone.iter().rev().take(turns) {
        selected.steps.push(*step);
        selected.turns.push(step_record(host, session, *step)?.turn_id);
    }
    let rolled = folded(host, session, &stacks)?.and_then(|rolled| rolled.to_redo(turns));
    if let Some(groups) = rolled {
        selected.groups = groups;
        if has_all(host, session, &selected)? {
            return Ok(selected);
        }
    }
    Err(evicted(Code::NothingToRedo, &selected.turns, "redone"))
}

/// The stacks with the rollbacks and redos that led to them. `None`: an entry of these was dropped.
fn folded(host: &Host, session: &Arc<OpenSession>, stacks: &state::Turns) -> Result<Option<Turns>, Refusal> {
    let rolls = snapshot::rolls(host, session)?;
    let (mut depth, mut deepest) = (0_usize, 0);
    for Roll { turns, again, .. } in &rolls {
        match again {
            true if *turns > depth => return Ok(None),
            true => depth -= turns,
            false => depth += turns,
        }
        deepest = deepest.max(depth);
    }
    if depth != stacks.undone.len() {
        return Ok(None);
    }
    // Since the last change, turns only went from one stack to the other and back.
    let mut turns = Turns::default();
    let below = chain(host, session, stacks.top, (deepest - depth) as u64)?;
    for (step, record) in below.iter().rev() {
        turns.done.push(turn_step(host, session, *step, record)?);
    }
    for step in stacks.undone.iter().rev() {
        let record = step_record(host, session, *step)?;
        turns.done.push(turn_step(host, session, *step, &record)?);
    }
    for Roll { seq, turns: count, again } in rolls {
        match again {
            _ if count > turns.done.len() && !again => return Ok(None),
            true => turns.redone(seq, count),
            false => turns.rolled_back(seq, count),
        }
    }
    Ok(Some(turns))
}

/// Whether the session still has the snapshots of all entries.
fn has_all(host: &Host, session: &Arc<OpenSession>, selected: &Selected) -> Result<bool, Refusal> {
    Ok(snapshot::are_kept(host, session, selected.groups.iter().flatten().copied())?)
}

fn evicted(code: Code, turns: &[String], what: &str) -> Refusal {
    let turns: Vec<String> = turns.iter().map(|turn| aos_model::text::escape(turn)).collect();
    Refusal::new(
        code,
        format!(
            "turn {} cannot be {what}: pre-images that it needs were dropped or evicted. `host.fs.list_snapshots` shows what is kept",
            turns.join(", ")
        ),
    )
}

/// The newest steps that are not rolled back, newest first.
fn chain(
    host: &Host,
    session: &OpenSession,
    top: Option<u64>,
    turns: u64,
) -> Result<Vec<(u64, StepRecord)>, Refusal> {
    let mut chain = Vec::new();
    let mut next = top;
    while let Some(step) = next
        && (chain.len() as u64) < turns
    {
        let record = step_record(host, session, step)?;
        next = record.previous;
        chain.push((step, record));
    }
    Ok(chain)
}

fn turn_step(
    host: &Host,
    session: &OpenSession,
    step: u64,
    record: &StepRecord,
) -> Result<TurnStep, Refusal> {
    let seqs = snapshot::seqs_of_step(host, session, step)?;
    Ok(TurnStep { turn: record.turn_id.clone(), seqs })
}

fn stacks(host: &Host, session: &OpenSession) -> Result<state::Turns, Refusal> {
    let key = turns_key(&session.id);
    let bytes = host.journal.state(&key)?;
    Ok(bytes.and_then(|bytes| decode_state(&key, &bytes)).unwrap_or_default())
}

fn step_record(host: &Host, session: &OpenSession, step: u64) -> Result<StepRecord, Refusal> {
    let key = step_key(&session.id, step);
    let bytes = host.journal.state(&key)?;
    bytes.and_then(|bytes| decode_state(&key, &bytes)).ok_or_else(|| {
        let why = format!("the journal is damaged: step {step} is missing; run `aos verify`");
        Refusal::new(Code::IoError, why)
    })
}
