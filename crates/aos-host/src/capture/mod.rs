//! Capture: what a command changes goes to an overlay, and lands in the roots as one change when it has ended.
//!
//! ```text
//! announce ──▶ run over an overlay ──▶ read what is in it ──judge──▶ arm ──▶ apply ──▶ receipt
//!     │                                                        └─ one denial: nothing lands
//!     └─ no overlay can be had: run, and compare the roots before and after (scan)
//! ```
//!
//! The intent says which of the two it was, so that after a crash nobody claims more than is true.

mod scan;
mod show;
mod upper;

use std::sync::Arc;

use aos_model::capability::FsOp;
use aos_model::entry::Fact;
use aos_model::receipt::{Body, Coverage, Trace, Warning};
use aos_model::refusal::{Code, Refusal, Status};
use aos_model::request::{Isolation, OnFailure};

use crate::change::{self, Armed};
use crate::command::{self, Command, NotRun, Ran, Watcher};
use crate::host::Host;
use crate::lock::Locked;
use crate::outcome::{Done, Ids};
use crate::overlay::Overlay;
use crate::session::OpenSession;
use crate::steps::{Ending, Plan};
use scan::Scan;
use upper::Changes;

/// A command that has ended, and what there is to tell what it changed.
#[derive(Debug)]
pub(crate) struct Captured {
    ran: Ran,
    net: Net,
    dry_run: bool,
}

#[derive(Debug)]
enum Net {
    Overlay(Overlay),
    Scan(Scan),
    None,
}

/// Whether the command is to run over an overlay, as far as the session and the machine go.
pub(crate) fn is_wanted(session: &OpenSession, command: &Command) -> Result<bool, Refusal> {
    let possible = command.captured && command.applied.namespaces && Overlay::fits(session);
    if command.dry_run && !possible {
        return Err(no_dry_run("this session's commands run without an overlay"));
    }
    Ok(possible)
}

fn no_dry_run(why: &str) -> Refusal {
    Refusal::new(
        Code::Unsupported,
        format!("`dry_run` needs an overlay over the roots, and none can be had: {why}; nothing was run"),
    )
}

/// Runs the command over an overlay where one can be had, else with its roots compared before and after.
pub(crate) fn run(
    host: &Host,
    session: &OpenSession,
    command: &Command,
    announced: &mut Armed<'_>,
    params: &str,
    watcher: Option<Arc<dyn Watcher>>,
) -> Result<Captured, Refusal> {
    let tool_call = announced.ids.tool_call.clone().unwrap_or_default();
    let mut obstacle = None;
    if !announced.change_id.is_empty() {
        let overlay = Overlay::make(host, session, &announced.change_id);
        let ran = overlay.map_err(NotRun::NoOverlay).and_then(|overlay| {
            let ran = command::run(host, session, command, Some(&overlay), &tool_call, watcher.clone())?;
            Ok((ran, Net::Overlay(overlay)))
        });
        match ran {
            Ok((ran, net)) => return Ok(Captured { ran, net, dry_run: command.dry_run }),
            Err(NotRun::Refused(refusal)) => return Err(refusal),
            Err(NotRun::NoOverlay(why)) if command.dry_run => return Err(no_dry_run(&why)),
            Err(NotRun::NoOverlay(why)) => obstacle = Some(why),
        }
        announced.lose_net(host, params)?;
    }
    let may_write = session.capability.allowed_fs_ops.contains(&FsOp::Write);
    let is_watched = command.captured && may_write && session.exec_config.isolation != Isolation::None;
    let scan = if is_watched { Scan::before(session) } else { None };
    match command::run(host, session, command, None, &tool_call, watcher) {
        Ok(mut ran) => {
            ran.warnings.extend(obstacle.map(|why| Warning::new("no_overlay", why)));
            Ok(Captured { ran, net: scan.map_or(Net::None, Net::Scan), dry_run: false })
        }
        Err(NotRun::Refused(refusal)) => Err(refusal),
        Err(NotRun::NoOverlay(_)) => unreachable!("BUG: none was asked for"),
    }
}

/// Lands what the command changed. Whatever comes of it, the receipt keeps what the command said.
pub(crate) fn commit<'a>(
    host: &'a Host,
    session: &Arc<OpenSession>,
    captured: Captured,
    armed: &mut Option<Armed<'a>>,
    ids: &Ids,
    params: &str,
) -> Done {
    let Captured { mut ran, net, dry_run } = captured;
    let overlay = match net {
        Net::None => return done(ran),
        Net::Scan(scan) => return scan.finish(host, session, ran, ids),
        Net::Overlay(overlay) => overlay,
    };
    ran.executed.coverage = Coverage::Overlay;
    ran.executed.list_changed(Vec::new());
    if ran.was_ended && session.on_failure == OnFailure::Discard {
        let why = "it did not end by itself, and the session's `on_failure` is `discard`: nothing it changed was kept";
        ran.warnings.push(Warning::new("discarded", why));
        return done(ran);
    }
    // Whoever else would change something below these roots waits until this has landed.
    let locks = host.locks.hold(overlay.changed_roots(session));
    let landed = Changes::read(session, &overlay, ran.executed.started_at_ns).and_then(|mut changes| {
        ran.warnings.append(&mut changes.warnings);
        if dry_run {
            ran.executed.diff = Some(show::diff(&changes));
            ran.executed.list_changed(changes.paths);
            return Ok(None);
        }
        if changes.steps.is_empty() {
            changes.touched.iter().for_each(upper::Touched::set);
            return Ok(None);
        }
        Landing { host, session, ran: &ran, ids, params }.land(changes, locks, armed).map(Some)
    });
    match landed {
        Ok(Some(landed)) => landed,
        Ok(None) => Done {
            trace: Some(Trace { snapshot_id: None, durability: host.machine.durability }),
            ..done(ran)
        },
        Err(refusal) => refused(ran, refusal),
    }
}

/// The end of a command of which nothing is to be landed.
fn done(ran: Ran) -> Done {
    let status = ran.fault.as_ref().map_or(Status::Ok, |(code, _)| code.status());
    Done { fault: ran.fault, ..Done::new(status, Body::Executed(Box::new(ran.executed)), ran.warnings) }
}

/// What it said is told; what it did is not kept.
fn refused(ran: Ran, refusal: Refusal) -> Done {
    let message = format!("{}; the command ran, and nothing that it changed was kept", refusal.message);
    let ran = Ran { fault: Some((refusal.code, message)), ..ran };
    Done { detail: Some(refusal.detail), ..done(ran) }
}

struct Landing<'a, 'l> {
    host: &'a Host,
    session: &'l Arc<OpenSession>,
    ran: &'l Ran,
    ids: &'l Ids,
    params: &'l str,
}

impl<'a> Landing<'a, '_> {
    /// One plan, armed under the intent that announced the command, applied.
    fn land(
        self,
        mut changes: Changes,
        locks: Locked<'a>,
        armed: &mut Option<Armed<'a>>,
    ) -> Result<Done, Refusal> {
        let mut executed = self.ran.executed.clone();
        executed.list_changed(std::mem::take(&mut changes.paths));
        let warnings = self.ran.warnings.clone();
        let plan = Plan {
            steps: changes.steps,
            ending: Ending {
                warnings,
                finish: Box::new(move |_| Body::Executed(Box::new(executed))),
                raced: Code::IoError,
                facts: Vec::new(),
                own_snapshot: false,
            },
        };
        let announced = armed.as_ref().expect("BUG: a command is announced before it runs");
        let landing =
            change::arm_announced(self.host, self.session, plan, self.ids, locks, announced, self.params)?;
        let mut done = change::apply(self.host, armed.insert(landing))?;
        changes.touched.iter().for_each(upper::Touched::set);
        for fact in &mut done.facts {
            if let Fact::Captured(record) = fact {
                record.coverage = Coverage::Overlay;
            }
        }
        done.fault = self.ran.fault.clone();
        done.status = done.fault.as_ref().map_or(Status::Ok, |(code, _)| code.status());
        Ok(done)
    }
}
