//! Capture: what a command changes goes to an overlay, and is applied to the roots as one change when it has ended.
//!
//! ```text
//! announce ──▶ run over an overlay ──▶ read what is in it ──check──▶ arm ──▶ apply ──▶ receipt
//!     │                                                        └─ one denial: nothing is applied
//!     └─ no overlay can be mounted: run, and compare the roots before and after (scan)
//! ```
//!
//! The intent says which of the two it was, so that after a crash no receipt claims more than is true.

mod compare;
mod copier;
mod guard;
mod noticed;
mod paths;
mod recover;
mod scan;
mod set_ids;
mod trees;
mod upper;

use std::sync::Arc;

use aos_model::capability::FsOp;
use aos_model::entry::Fact;
use aos_model::receipt::{Body, MutationFields, Warning};
use aos_model::records::Coverage;
use aos_model::refusal::{Code, Refusal, Status};
use aos_model::request::{Isolation, OnFailure};

use crate::change::Armed;
use crate::command::{self, Command, Ran, Roots, Watcher};
use crate::host::Host;
use crate::outcome::{Done, Ids};
use crate::overlay::{NotRun, Overlay};
use crate::proposed::ProposedChanges;
use crate::session::OpenSession;
use aos_sandbox::BindMount;
use guard::Guard;
pub(crate) use recover::recover;
use scan::Scan;

/// A command that has ended, and what shows what it changed.
#[derive(Debug)]
pub(crate) struct Captured {
    ran: Ran,
    capture: Capture,
    /// What must be as before where there is no overlay.
    guard: Option<Guard>,
    dry_run: bool,
}

#[derive(Debug)]
enum Capture {
    Overlay(Overlay),
    Scan(Scan),
    None,
}

/// Whether the command is to run over an overlay, as far as the session and the machine allow it.
pub(crate) fn needs_overlay(session: &OpenSession, command: &Command) -> Result<bool, Refusal> {
    let possible = command.captured && command.applied.namespaces && Overlay::fits(session);
    if command.dry_run && !possible {
        return Err(no_dry_run("this session's commands run without an overlay"));
    }
    Ok(possible)
}

/// Refuses to open a session whose rules its commands could not be held to: without an overlay, what they deny is copied
/// before each command.
pub(crate) fn check_denied(session: &OpenSession) -> Result<(), Refusal> {
    let exec = &session.capability.exec;
    let may_run_without_overlay = exec.uncaptured
        || session.exec_config.isolation == Isolation::None
        || session.capability.cross_mounts;
    let runs_commands = session.layer.is_none() && exec.allowed;
    if runs_commands && may_run_without_overlay { Guard::check_denied(session) } else { Ok(()) }
}

fn no_dry_run(why: &str) -> Refusal {
    Refusal::new(
        Code::Unsupported,
        format!("`dry_run` needs an overlay over the roots, and none can be mounted: {why}; nothing was run"),
    )
}

/// Runs the command over an overlay where one can be mounted, else with its roots compared before and after.
pub(crate) fn run(
    host: &Host,
    session: &Arc<OpenSession>,
    command: &Command,
    announced: &mut Armed<'_>,
    params: &str,
    watcher: Option<Arc<dyn Watcher>>,
) -> Result<Captured, Refusal> {
    let tool_call = announced.ids.tool_call.clone().unwrap_or_default();
    let mut no_overlay = None;
    if !announced.change_id.is_empty() {
        let in_user_namespace = command.applied.user_namespace;
        let overlay = Overlay::make(host, session, &announced.change_id, in_user_namespace, command.dry_run);
        let ran = overlay.and_then(|overlay| {
            let excluded = overlay.excluded_folders();
            let guard = Guard::before(host, session, &tool_call, excluded.clone())?;
            let roots = Roots { overlay: Some(&overlay), more: binds(session, command, guard.as_ref())? };
            let mut ran = command::run(host, session, command, roots, &tool_call, watcher.clone())?;
            ran.warnings.extend(set_ids::drop_since(session, &excluded, ran.executed.started_at_ns));
            Ok((ran, Capture::Overlay(overlay), guard))
        });
        match ran {
            Ok((ran, capture, guard)) => {
                return Ok(Captured { ran, capture, guard, dry_run: command.dry_run });
            }
            Err(NotRun::Refused(refusal)) => return Err(refusal),
            Err(NotRun::NoOverlay(why)) if command.dry_run => return Err(no_dry_run(&why)),
            Err(NotRun::NoOverlay(why)) => no_overlay = Some(why),
        }
        announced.drop_overlay(host, params)?;
    }
    let may_write = session.capability.allowed_fs_ops.contains(&FsOp::Write);
    let is_watched = command.captured && may_write && session.exec_config.isolation != Isolation::None;
    let scan = if is_watched { Scan::before(session) } else { None };
    // In a view, a root that the capability does not let be written is read-only.
    let is_writable = may_write || !command.applied.namespaces;
    let folders = session.jail.roots.iter().filter(|_| is_writable).map(|root| root.path.clone());
    let folders: Vec<Vec<u8>> = folders.collect();
    let guarded = if Guard::is_needed(session) { folders.clone() } else { Vec::new() };
    let guard = Guard::before(host, session, &tool_call, guarded)?;
    let roots = Roots { overlay: None, more: binds(session, command, guard.as_ref())? };
    match command::run(host, session, command, roots, &tool_call, watcher) {
        Ok(mut ran) => {
            ran.warnings.extend(no_overlay.map(|why| Warning::new("no_overlay", why)));
            ran.warnings.extend(set_ids::drop_since(session, &folders, ran.executed.started_at_ns));
            let capture = scan.map_or(Capture::None, Capture::Scan);
            Ok(Captured { ran, capture, guard, dry_run: false })
        }
        Err(NotRun::Refused(refusal)) => Err(refusal),
        Err(NotRun::NoOverlay(_)) => unreachable!("BUG: none was asked for"),
    }
}

/// What is bound on itself in the command's view, so that it cannot be changed.
fn binds(session: &OpenSession, command: &Command, guard: Option<&Guard>) -> Result<Vec<BindMount>, Refusal> {
    match guard.filter(|_| command.applied.namespaces) {
        Some(guard) => guard.binds(session),
        None => Ok(Vec::new()),
    }
}

/// What a command that has ended proposes to change.
pub(crate) enum Proposed<'a> {
    /// Nothing: the receipt is complete.
    Nothing(Done),
    /// Its changes, or why they cannot be read. In each case the receipt keeps the command's output.
    Changes(Box<Ran>, Result<Box<ProposedChanges<'a>>, Refusal>),
}

/// Reads what the command changed. Checks nothing and moves nothing.
pub(crate) fn propose<'a>(
    host: &'a Host,
    session: &Arc<OpenSession>,
    captured: Captured,
    ids: &Ids,
) -> Proposed<'a> {
    let Captured { mut ran, capture, guard, dry_run } = captured;
    let rest = match capture {
        Capture::Overlay(_) => "and nothing that it changed in the overlay was kept",
        Capture::Scan(_) | Capture::None => "everything else is as the command left it",
    };
    let (past_overlay, is_denied) =
        match guard.map(|guard| guard.after(host, session, &mut ran, rest)).transpose() {
            Ok(changed) => changed.unwrap_or_default(),
            Err(refusal) => return Proposed::Nothing(refused(ran, refusal)),
        };
    let overlay = match capture {
        Capture::Overlay(_) if is_denied => {
            ran.executed.coverage = Coverage::Partial;
            return Proposed::Nothing(done(ran));
        }
        Capture::None => return Proposed::Nothing(done(ran)),
        Capture::Scan(scan) => return Proposed::Nothing(scan.finish(host, session, ran, ids)),
        Capture::Overlay(overlay) => overlay,
    };
    ran.executed.coverage = if past_overlay.is_empty() { Coverage::Overlay } else { Coverage::Partial };
    ran.executed.list_excluded(past_overlay);
    ran.executed.list_changed(Vec::new());
    if ran.was_ended && session.on_failure == OnFailure::Discard {
        let why = "it did not end by itself, and the session's `on_failure` is `discard`: nothing it changed was kept";
        ran.warnings.push(Warning::new("discarded", why));
        return Proposed::Nothing(done(ran));
    }
    if matches!(ran.fault, Some((Code::LimitExceeded, _))) {
        return Proposed::Nothing(done(ran));
    }
    // Every other change below these roots waits until this one is applied.
    let locks = host.locks.hold(overlay.changed_roots(session));
    let changes = upper::read(session, &overlay, ran.executed.started_at_ns).map(|read| {
        Box::new(ProposedChanges {
            session: session.clone(),
            paths: read.paths,
            steps: read.steps,
            files: read.files,
            touched: read.touched,
            notes: read.notes,
            warnings: ran.warnings.clone(),
            executed: ran.executed.clone(),
            dry_run,
            locks,
            overlay,
        })
    });
    Proposed::Changes(Box::new(ran), changes)
}

/// The result of a command whose changes were applied or refused.
pub(crate) fn finish(host: &Host, ran: Ran, applied: Result<Done, Refusal>) -> Done {
    let mut done = match applied {
        Ok(done) => done,
        Err(refusal) => return refused(ran, refusal),
    };
    for fact in &mut done.facts {
        if let Fact::Captured(record) = fact {
            record.coverage = ran.executed.coverage;
        }
    }
    done.trace.get_or_insert(MutationFields { snapshot_id: None, durability: host.machine.durability });
    done.fault = ran.fault;
    done.status = done.fault.as_ref().map_or(Status::Ok, |(code, _)| code.status());
    done
}

/// The result of a command of which nothing is applied.
fn done(ran: Ran) -> Done {
    let status = ran.fault.as_ref().map_or(Status::Ok, |(code, _)| code.status());
    Done { fault: ran.fault, ..Done::new(status, Body::Executed(Box::new(ran.executed)), ran.warnings) }
}

/// Its output is kept; its changes are not.
fn refused(ran: Ran, refusal: Refusal) -> Done {
    let message = format!("{}; the command ran, and nothing that it changed was kept", refusal.message);
    let ran = Ran { fault: Some((refusal.code, message)), ..ran };
    Done { detail: Some(refusal.detail), ..done(ran) }
}
