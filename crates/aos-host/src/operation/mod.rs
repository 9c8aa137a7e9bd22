//! The operations, one file per effect. An operation names its targets and plans what to do; it changes nothing.

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
mod roll_back;
mod snapshots;
mod staged;
mod stat;
mod vfs_latest;
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
use crate::steps::{Completion, Plan};
use crate::target::Target;

/// The implementation of one effect.
pub(crate) trait Operation: Debug + Send {
    /// The paths it uses, for the jail and the policy. It accesses no other path.
    fn targets(&self) -> Vec<Target>;

    /// The argument vector, for operations that run a command.
    fn argv(&self) -> Option<&[String]> {
        None
    }

    /// Reads and computes; changes nothing. `input.found` is in the order of the targets.
    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal>;
}

/// The input of [`Operation::plan`]: the session and the resolved targets.
#[derive(Debug)]
pub(crate) struct PlanInput<'a> {
    pub(crate) host: &'a Host,
    pub(crate) session: &'a Arc<OpenSession>,
    pub(crate) found: Vec<Found>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) blob_only: bool,
}

/// The result of [`Operation::plan`]: an answer, a change, or a command to run.
#[derive(Debug)]
pub(crate) enum Proposal {
    Answer(Done),
    Change(Plan),
    Command(Box<Command>),
    /// A change of the host folder by a session that otherwise changes its layer.
    OnDisk(Plan),
    /// A change of the session's layer, as deltas.
    InTree(Vec<Delta>, Completion),
}

/// The kind of access a request needs. A new effect starts here: the match is exhaustive.
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
        // Commands have their own part of the capability; the others use no user files.
        SessionRequest::Exec(_) | SessionRequest::ListSnapshots(_) | SessionRequest::DropSnapshot(_) => {
            return None;
        }
    })
}

/// Whether a request waits in the session's lane: mutations do, everything else runs concurrently.
pub(crate) fn is_ordered(request: &SessionRequest) -> bool {
    match (access(request), request) {
        (None, SessionRequest::Exec(exec)) => exec.is_ordered(),
        // The set of snapshots must not change while a mutation of the session is in progress.
        (_, SessionRequest::Snapshot(_) | SessionRequest::DropSnapshot(_)) => true,
        (Some(FsOp::Write | FsOp::Edit | FsOp::Patch), _) => true,
        (None | Some(FsOp::Read | FsOp::Search | FsOp::List | FsOp::Stat), _) => false,
    }
}

/// The operation of a request, with its arguments checked. For a preview nothing is written.
pub(crate) fn of(
    host: &Host,
    session: &Arc<OpenSession>,
    request: SessionRequest,
    is_preview: bool,
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
        SessionRequest::Restore(request) => {
            Box::new(roll_back::restore(host, session, &request, is_preview)?)
        }
        SessionRequest::ListSnapshots(request) => Box::new(request),
        SessionRequest::DropSnapshot(request) => Box::new(request),
        SessionRequest::Rollback(request) => {
            Box::new(roll_back::rollback(host, session, &request, is_preview)?)
        }
        SessionRequest::Redo(request) => Box::new(roll_back::redo(host, session, &request, is_preview)?),
        SessionRequest::Exec(request) => Box::new(exec::check(session, request)?),
        SessionRequest::VfsLatest(request) => Box::new(request),
        SessionRequest::StagedDiff(request) => Box::new(request),
        SessionRequest::StagedCommit(request) => Box::new(staged::commit(session, &request)?),
        SessionRequest::StagedDiscard(request) => Box::new(staged::discard(session, &request)?),
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
