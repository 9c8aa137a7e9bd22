//! The tools: one file each. This one says what they have in common and lets none act before it was judged.

mod edit_file;
mod exec;
mod glob;
mod grep;
mod list_dir;
mod make_dir;
mod move_path;
mod patch;
mod read_file;
mod remove;
mod stat;
mod trees;
mod undo;
mod write_file;

use std::fmt::Debug;
use std::sync::Arc;

use aos_model::capability::FsOp;
use aos_model::receipt::{Body, Warning};
use aos_model::refusal::{Refusal, Status};
use aos_model::request::Request;
use aos_model::vfs::Delta;

use crate::change::{Ending, Plan};
use crate::command::Command;
use crate::disk::Meta;
use crate::host::Host;
use crate::jail::{Folders, Found, Resolved};
use crate::lock::Locked;
use crate::outcome::Done;
use crate::output::Form;
use crate::rule::PolicyChecked;
use crate::session::OpenSession;
use crate::target::{Target, protect};

/// A tool: what it wants to touch, and what it would do.
pub(crate) trait Operation: Debug + Send {
    /// The paths it names, for the jail and the policy. Nothing else is ever touched.
    fn targets(&self) -> Vec<Target>;

    /// The words of a command, for tools that run one.
    fn words(&self) -> Option<&[String]> {
        None
    }

    /// Reads and computes; changes nothing. What it found stands in the order of its targets.
    fn plan(&self, scene: Scene<'_>) -> Result<Planned, Refusal>;
}

/// Where a tool works: the session, and the places it asked for.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) host: &'a Host,
    pub(crate) session: &'a Arc<OpenSession>,
    pub(crate) found: Vec<Found>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) blob_only: bool,
}

/// What a tool came to: an answer, a change to be made, or a command to be run.
#[derive(Debug)]
pub(crate) enum Planned {
    Answer(Done),
    Change(Plan),
    Command(Box<Command>),
    /// A change of the host's folder by a session whose changes otherwise stay in its tree.
    OnDisk(Plan),
    /// A change of the session's tree that is known node by node.
    InTree(Vec<Delta>, Ending),
}

/// A request inside its ceiling: the operation is allowed and its paths are pinned in the roots.
#[derive(Debug)]
pub(crate) struct Authorized {
    pub(crate) session: Arc<OpenSession>,
    pub(crate) operation: Box<dyn Operation>,
    pub(crate) targets: Vec<(Target, Resolved)>,
    pub(crate) warnings: Vec<Warning>,
}

/// The kind of access a request needs. Adding a tool begins here: the compiler asks.
fn needs(request: &Request) -> Option<FsOp> {
    Some(match request {
        Request::ReadFile(_) | Request::Snapshot(_) => FsOp::Read,
        Request::VfsLatest(_) | Request::StagedDiff(_) => FsOp::Read,
        Request::StagedCommit(_) | Request::StagedDiscard(_) => FsOp::Write,
        Request::WriteFile(_) | Request::Remove(_) | Request::Move(_) | Request::MakeDir(_) => FsOp::Write,
        Request::Restore(_) | Request::Rollback(_) | Request::Redo(_) => FsOp::Write,
        Request::EditFile(_) => FsOp::Edit,
        Request::ApplyPatch(_) => FsOp::Patch,
        Request::Stat(_) | Request::Exists(_) => FsOp::Stat,
        Request::ListDir(_) => FsOp::List,
        Request::Grep(_) | Request::Glob(_) => FsOp::Search,
        // Commands have a part of the capability of their own; the others touch no file of the user's.
        Request::Exec(_) | Request::ListSnapshots(_) | Request::DropSnapshot(_) => return None,
        Request::SessionOpen(_) | Request::SessionList(_) | Request::SessionSignal(_) => {
            unreachable!("BUG: these are answered outside of a session")
        }
    })
}

/// Mutations take turns in their session; the rest runs beside them.
pub(crate) fn mutates(request: &Request) -> bool {
    match (needs(request), request) {
        (None, Request::Exec(exec)) => exec.takes_a_turn(),
        // What is kept and what is dropped must not change while somebody else's change is under way.
        (_, Request::Snapshot(_) | Request::DropSnapshot(_)) => true,
        (Some(FsOp::Write | FsOp::Edit | FsOp::Patch), _) => true,
        (None | Some(FsOp::Read | FsOp::Search | FsOp::List | FsOp::Stat), _) => false,
    }
}

fn operation(
    host: &Host,
    session: &Arc<OpenSession>,
    request: Request,
) -> Result<Box<dyn Operation>, Refusal> {
    Ok(match request {
        Request::ReadFile(request) => Box::new(request),
        Request::WriteFile(request) => Box::new(request),
        Request::EditFile(request) => Box::new(edit_file::check(request)?),
        Request::ApplyPatch(request) => Box::new(patch::parse(host, session, request)?),
        Request::Grep(request) => Box::new(grep::compile(request)?),
        Request::Glob(request) => Box::new(glob::compile(request)?),
        Request::Stat(request) => Box::new(request),
        Request::Exists(request) => Box::new(request),
        Request::ListDir(request) => Box::new(request),
        Request::Remove(request) => Box::new(request),
        Request::Move(request) => Box::new(request),
        Request::MakeDir(request) => Box::new(request),
        Request::Snapshot(request) => Box::new(request),
        Request::Restore(request) => Box::new(undo::restore(host, session, &request)?),
        Request::ListSnapshots(request) => Box::new(request),
        Request::DropSnapshot(request) => Box::new(request),
        Request::Rollback(request) => Box::new(undo::rollback(host, session, &request)?),
        Request::Redo(request) => Box::new(undo::redo(host, session, &request)?),
        Request::Exec(request) => Box::new(exec::check(session, request)?),
        Request::VfsLatest(request) => Box::new(request),
        Request::StagedDiff(request) => Box::new(request),
        Request::StagedCommit(request) => Box::new(trees::commit(session, &request)?),
        Request::StagedDiscard(request) => Box::new(trees::discard(session, &request)?),
        Request::SessionOpen(_) | Request::SessionList(_) | Request::SessionSignal(_) => {
            unreachable!("BUG: these are answered outside of a session")
        }
    })
}

/// The capability: allowed operations, roots, links, protected names.
pub(crate) fn cap(host: &Host, session: &Arc<OpenSession>, request: Request) -> Result<Authorized, Refusal> {
    if let Some(op) = needs(&request) {
        session.capability.allows(op)?;
    }
    let operation = operation(host, session, request)?;
    let mut warnings = Vec::new();
    let mut targets = Vec::new();
    let mut folders = Folders::default();
    let wanted = operation.targets();
    host.memory.needed_for(wanted.len());
    for target in wanted {
        let mut resolved = target.resolve(session)?;
        folders.share(&mut resolved.found)?;
        if target.changes() && target.protected {
            protect(session, &resolved.literal, &mut warnings)?;
            protect(session, resolved.found.absolute(), &mut warnings)?;
        }
        targets.push((target, resolved));
    }
    Ok(Authorized { session: session.clone(), operation, targets, warnings })
}

/// Lets the tool read and compute. A mutation holds its paths from here until its receipt is written.
pub(crate) fn plan(host: &Host, checked: PolicyChecked) -> Result<(Planned, Locked<'_>), Refusal> {
    let PolicyChecked { session, operation, mut found, changes, warnings, blob_only } = checked;
    let locks = host.locks.hold(found.iter().filter(|_| changes).map(Found::absolute));
    if changes {
        found.iter_mut().try_for_each(look_again)?;
    }
    let planned = operation.plan(Scene { host, session: &session, found, warnings, blob_only })?;
    Ok((planned, locks))
}

/// Before the lock was ours, another session may have changed what stands there.
fn look_again(found: &mut Found) -> Result<(), Refusal> {
    if let Found::Here(place) = found
        && !place.is_root()
        // A tree is changed by its own session alone, and that takes turns.
        && place.leaf.is_none()
    {
        place.meta = Meta::at(&place.dir, &place.name).map_err(|why| place.fault("look at", why))?;
    }
    Ok(())
}

impl Scene<'_> {
    pub(crate) fn form(&self, mode: Option<aos_model::request::OutputMode>) -> Result<Form, Refusal> {
        Form::new(&self.session.capability, mode, self.blob_only)
    }

    pub(crate) fn answer(self, body: Body) -> Result<Planned, Refusal> {
        Ok(Planned::Answer(Done::new(Status::Ok, body, self.warnings)))
    }
}
