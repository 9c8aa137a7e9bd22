//! The operations: one file each. An operation names its targets and computes what it would do; it changes nothing.

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
use aos_model::request::SessionRequest;
use aos_model::vfs::Delta;

use crate::command::Command;
use crate::host::Host;
use crate::jail::Found;
use crate::outcome::Done;
use crate::output::Form;
use crate::session::OpenSession;
use crate::steps::{Ending, Plan};
use crate::target::Target;

/// A tool: what it wants to touch, and what it would do.
pub(crate) trait Operation: Debug + Send {
    /// The paths it names, for the jail and the policy. Nothing else is ever touched.
    fn targets(&self) -> Vec<Target>;

    /// The words of a command, for tools that run one.
    fn words(&self) -> Option<&[String]> {
        None
    }

    /// Reads and computes; changes nothing. What it found stands in the order of its targets.
    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal>;
}

/// Where a tool works: the session, and the places it asked for.
#[derive(Debug)]
pub(crate) struct PlanInput<'a> {
    pub(crate) host: &'a Host,
    pub(crate) session: &'a Arc<OpenSession>,
    pub(crate) found: Vec<Found>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) blob_only: bool,
}

/// What a tool proposes: an answer, a change, or a command to run.
#[derive(Debug)]
pub(crate) enum Proposal {
    Answer(Done),
    Change(Plan),
    Command(Box<Command>),
    /// A change of the host's folder by a session whose changes otherwise stay in its tree.
    OnDisk(Plan),
    /// A change of the session's tree that is known node by node.
    InTree(Vec<Delta>, Ending),
}

/// The kind of access a request needs. Adding a tool begins here: the compiler asks.
pub(crate) fn access(request: &SessionRequest) -> Option<FsOp> {
    Some(match request {
        SessionRequest::ReadFile(_) | SessionRequest::Snapshot(_) => FsOp::Read,
        SessionRequest::VfsLatest(_) | SessionRequest::StagedDiff(_) => FsOp::Read,
        SessionRequest::StagedCommit(_) | SessionRequest::StagedDiscard(_) => FsOp::Write,
        SessionRequest::WriteFile(_)
        | SessionRequest::Remove(_)
        | SessionRequest::Move(_)
        | SessionRequest::MakeDir(_) => FsOp::Write,
        SessionRequest::Restore(_) | SessionRequest::Rollback(_) | SessionRequest::Redo(_) => FsOp::Write,
        SessionRequest::EditFile(_) => FsOp::Edit,
        SessionRequest::ApplyPatch(_) => FsOp::Patch,
        SessionRequest::Stat(_) | SessionRequest::Exists(_) => FsOp::Stat,
        SessionRequest::ListDir(_) => FsOp::List,
        SessionRequest::Grep(_) | SessionRequest::Glob(_) => FsOp::Search,
        // Commands have a part of the capability of their own; the others touch no file of the user's.
        SessionRequest::Exec(_) | SessionRequest::ListSnapshots(_) | SessionRequest::DropSnapshot(_) => {
            return None;
        }
    })
}

/// Whether a request runs in the order of its session: mutations do, everything else runs beside them.
pub(crate) fn is_ordered(request: &SessionRequest) -> bool {
    match (access(request), request) {
        (None, SessionRequest::Exec(exec)) => exec.takes_a_turn(),
        // What is kept and what is dropped must not change while somebody else's change is under way.
        (_, SessionRequest::Snapshot(_) | SessionRequest::DropSnapshot(_)) => true,
        (Some(FsOp::Write | FsOp::Edit | FsOp::Patch), _) => true,
        (None | Some(FsOp::Read | FsOp::Search | FsOp::List | FsOp::Stat), _) => false,
    }
}

/// The operation of a request, its arguments checked.
pub(crate) fn of(
    host: &Host,
    session: &Arc<OpenSession>,
    request: SessionRequest,
) -> Result<Box<dyn Operation>, Refusal> {
    Ok(match request {
        SessionRequest::ReadFile(request) => Box::new(request),
        SessionRequest::WriteFile(request) => Box::new(request),
        SessionRequest::EditFile(request) => Box::new(edit_file::check(request)?),
        SessionRequest::ApplyPatch(request) => Box::new(patch::parse(host, session, request)?),
        SessionRequest::Grep(request) => Box::new(grep::compile(request)?),
        SessionRequest::Glob(request) => Box::new(glob::compile(request)?),
        SessionRequest::Stat(request) => Box::new(request),
        SessionRequest::Exists(request) => Box::new(request),
        SessionRequest::ListDir(request) => Box::new(request),
        SessionRequest::Remove(request) => Box::new(request),
        SessionRequest::Move(request) => Box::new(request),
        SessionRequest::MakeDir(request) => Box::new(request),
        SessionRequest::Snapshot(request) => Box::new(request),
        SessionRequest::Restore(request) => Box::new(undo::restore(host, session, &request)?),
        SessionRequest::ListSnapshots(request) => Box::new(request),
        SessionRequest::DropSnapshot(request) => Box::new(request),
        SessionRequest::Rollback(request) => Box::new(undo::rollback(host, session, &request)?),
        SessionRequest::Redo(request) => Box::new(undo::redo(host, session, &request)?),
        SessionRequest::Exec(request) => Box::new(exec::check(session, request)?),
        SessionRequest::VfsLatest(request) => Box::new(request),
        SessionRequest::StagedDiff(request) => Box::new(request),
        SessionRequest::StagedCommit(request) => Box::new(trees::commit(session, &request)?),
        SessionRequest::StagedDiscard(request) => Box::new(trees::discard(session, &request)?),
    })
}

impl PlanInput<'_> {
    pub(crate) fn form(&self, mode: Option<aos_model::request::OutputMode>) -> Result<Form, Refusal> {
        Form::new(&self.session.capability, mode, self.blob_only)
    }

    pub(crate) fn answer(self, body: Body) -> Result<Proposal, Refusal> {
        Ok(Proposal::Answer(Done::new(Status::Ok, body, self.warnings)))
    }
}
