//! Planning: the operation reads and computes. A change holds its path locks from here until its receipt is written.

use std::sync::Arc;

use aos_model::refusal::{Refusal, Status};
use aos_model::vfs::Delta;

use super::PolicyChecked;
use super::authorize::Requested;
use crate::command::Command;
use crate::disk::Meta;
use crate::host::Host;
use crate::jail::{Found, ResolvedPath};
use crate::lock::Locked;
use crate::operation::{PlanInput, Proposal};
use crate::outcome::Done;
use crate::policy::check_shown;
use crate::proposed::{ProposedChanges, ProposedPlan};
use crate::protection::protect_steps;
use crate::session::OpenSession;
use crate::steps::{Completion, Plan};
use crate::target::Target;

/// What to do, by where it happens.
#[derive(Debug)]
pub(crate) enum Planned<'a> {
    Done(Done),
    OnDisk(DiskChange<'a>),
    InLayer(LayerChange),
    Command(CommandStart),
}

/// A change of host files. The private field ensures that only [`plan`] makes one.
#[derive(Debug)]
pub(crate) struct DiskChange<'a> {
    pub(crate) session: Arc<OpenSession>,
    pub(crate) plan: Plan,
    pub(crate) locks: Locked<'a>,
    _made_by_plan: (),
}

/// A change of the session's layer: steps, or deltas if they are known already.
#[derive(Debug)]
pub(crate) struct LayerChange {
    pub(crate) session: Arc<OpenSession>,
    pub(crate) work: LayerWork,
    _made_by_plan: (),
}

#[derive(Debug)]
pub(crate) enum LayerWork {
    Steps(Plan),
    Deltas(Vec<Delta>, Completion),
}

/// A command that is allowed to start.
#[derive(Debug)]
pub(crate) struct CommandStart {
    pub(crate) session: Arc<OpenSession>,
    pub(crate) command: Box<Command>,
    _made_by_plan: (),
}

pub(crate) fn plan(host: &Host, checked: PolicyChecked<Requested>) -> Result<Planned<'_>, Refusal> {
    let PolicyChecked { session, subject: Requested { operation, targets }, warnings, blob_only } = checked;
    let changes = targets.iter().any(|(target, _)| target.changes());
    if changes {
        // Planning may store content.
        host.reserve.check()?;
    }
    let is_hidden = |(target, resolved): &(Target, ResolvedPath)| {
        target.reveals && check_shown(&session, &resolved.literal, resolved.found.absolute()).is_err()
    };
    let hides = targets.iter().any(is_hidden);
    let mut found: Vec<Found> = targets.into_iter().map(|(_, resolved)| resolved.found).collect();
    let locks = host.locks.hold(found.iter().filter(|_| changes).map(Found::absolute));
    if changes {
        found.iter_mut().try_for_each(refresh_meta)?;
    }
    let planned = operation.plan(PlanInput { host, session: &session, found, warnings, blob_only });
    let mut proposal = planned.map_err(|refusal| if hides { without_content(&refusal) } else { refusal })?;
    if let Proposal::Change(plan) | Proposal::OnDisk(plan) = &mut proposal {
        protect_steps(&session, &plan.steps, &mut plan.completion.warnings)?;
    }
    let _made_by_plan = ();
    Ok(match proposal {
        Proposal::Answer(done) => Planned::Done(done),
        Proposal::Change(plan) if session.layer.is_some() => {
            Planned::InLayer(LayerChange { session, work: LayerWork::Steps(plan), _made_by_plan })
        }
        Proposal::InTree(deltas, completion) => Planned::InLayer(LayerChange {
            session,
            work: LayerWork::Deltas(deltas, completion),
            _made_by_plan,
        }),
        Proposal::Change(plan) | Proposal::OnDisk(plan) => {
            Planned::OnDisk(DiskChange { session, plan, locks, _made_by_plan })
        }
        Proposal::Command(command) => Planned::Command(CommandStart { session, command, _made_by_plan }),
    })
}

/// A refusal of a change of what a rule forbids to read.
fn without_content(refusal: &Refusal) -> Refusal {
    let why = "not possible on a file that a rule forbids to read, so that nothing of it is shown; nothing was changed";
    Refusal::new(refusal.code, why)
}

/// The plan for a command's changes.
#[derive(Debug)]
pub(crate) enum PlannedChanges<'a> {
    Done(Done),
    OnDisk(DiskChange<'a>),
}

/// The same for a command's changes, whose steps are known since the overlay was read.
pub(crate) fn plan_changes(checked: PolicyChecked<ProposedChanges<'_>>) -> PlannedChanges<'_> {
    let PolicyChecked { session, subject: mut changes, mut warnings, .. } = checked;
    warnings.append(&mut changes.notes);
    match changes.into_plan(warnings) {
        ProposedPlan::Nothing(body, warnings) => PlannedChanges::Done(Done::new(Status::Ok, body, warnings)),
        ProposedPlan::Change(plan, locks) => {
            PlannedChanges::OnDisk(DiskChange { session, plan, locks, _made_by_plan: () })
        }
    }
}

/// Reads the metadata again under the locks: another session may have changed the path before.
fn refresh_meta(found: &mut Found) -> Result<(), Refusal> {
    if let Found::Resolved(place) = found
        && !place.is_root()
        // A layer is changed only by its own session, one request at a time.
        && place.leaf.is_none()
    {
        let meta = place.folder().and_then(|dir| Meta::at(dir, &place.name));
        place.meta = meta.map_err(|why| place.refusal("stat", why))?;
    }
    Ok(())
}
