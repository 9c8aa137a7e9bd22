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

pub(crate) use remove::Walk;

use std::fmt::Debug;
use std::sync::Arc;

use aos_model::capability::{FsOp, ProtectedPaths, protected_name};
use aos_model::limits::FOLDERS_DEEP_MAX;
use aos_model::policy::Op;
use aos_model::receipt::{Body, Warning};
use aos_model::refusal::{Code, Refusal, Status};
use aos_model::request::{Content, Request};
use aos_model::state::blob_key;
use aos_model::vfs::Delta;

use crate::change::{Ending, Locked, Plan};
use crate::exec::Command;
use crate::host::Host;
use crate::jail::{Folders, Found, Jail, Last, Meta, Place, Resolved, Source, resolve};
use crate::output::Form;
use crate::rule::PolicyChecked;
use crate::session::OpenSession;
use crate::spine::Done;
use crate::tree::{self, View};

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

/// One path of a request.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// As the request spelled it; without one the workdir is meant.
    text: Option<String>,
    pub(crate) op: Op,
    pub(crate) last: Last,
    /// Whether the names that run code or steer agents are protected here.
    protected: bool,
    /// On the disk, whatever tree the session works in.
    on_disk: bool,
}

impl Target {
    pub(crate) fn new(text: &str, op: Op, last: Last) -> Target {
        Target { text: Some(text.to_owned()), op, last, protected: true, on_disk: false }
    }

    /// A path that may be left out: the workdir then.
    pub(crate) fn or_workdir(text: Option<&str>, op: Op, last: Last) -> Target {
        Target { text: text.map(str::to_owned), ..Target::new(".", op, last) }
    }

    pub(crate) fn on_disk(self) -> Target {
        Target { on_disk: true, ..self }
    }

    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or(".")
    }

    fn resolve(&self, session: &Arc<OpenSession>) -> Result<Resolved, Refusal> {
        match View::now(session).filter(|_| !self.on_disk) {
            Some(view) => tree::resolve(&view, self.text.as_deref(), self.last),
            None => resolve(session, self.text(), self.last),
        }
    }

    /// Of something that the session itself made, whatever it is called.
    pub(crate) fn of_its_own(self) -> Target {
        Target { protected: false, ..self }
    }

    pub(crate) fn changes(&self) -> bool {
        match self.op {
            Op::Write | Op::Edit | Op::Patch | Op::Remove => true,
            Op::Read | Op::Search | Op::List | Op::Stat | Op::Exec => false,
        }
    }
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

/// Names that run code or steer agents are protected under whatever spelling.
pub(crate) fn protect(
    session: &OpenSession,
    absolute: &[u8],
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    if session.capability.protected_paths == ProtectedPaths::Allow {
        return Ok(());
    }
    let Some(pattern) = protected_name(below_roots(&session.jail, absolute)) else { return Ok(()) };
    let message = format!(
        "{} is protected (`{pattern}`): it can run code or steer agents",
        session.jail.shown(absolute)
    );
    if session.capability.protected_paths == ProtectedPaths::Deny {
        return Err(Refusal::new(
            Code::ProtectedPath,
            format!("{message}. Ask the operator, or open a session with `protected_paths` `warn`"),
        ));
    }
    let warning = Warning::new("protected_path", message);
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
    Ok(())
}

/// A tree that is nested too deep is not taken as a whole: somebody can make one that walking would not come to the
/// end of.
pub(crate) fn check_depth(session: &OpenSession, absolute: &[u8]) -> Result<(), Refusal> {
    if is_too_deep(absolute) { Err(too_deep(&session.jail.shown(absolute))) } else { Ok(()) }
}

pub(crate) fn too_deep(shown: &str) -> Refusal {
    let begins = shown.chars().take(100).collect::<String>();
    Refusal::new(
        Code::LimitExceeded,
        format!("{begins}: more than {FOLDERS_DEEP_MAX} folders deep; take what lies deepest first"),
    )
}

pub(crate) fn is_too_deep(path: &[u8]) -> bool {
    path.iter().filter(|b| **b == b'/').count() > FOLDERS_DEEP_MAX
}

/// The part of a path that the session can shape. What lies above its roots is the operator's choice.
fn below_roots<'a>(jail: &Jail, absolute: &'a [u8]) -> &'a [u8] {
    let inside = jail.roots.iter().filter(|root| crate::jail::is_below(absolute, &root.path));
    // A root inside `.git` protects as if it were the whole repository: one name above the root still counts.
    let cut = inside.map(|root| root.path.len()).min().unwrap_or(0);
    let start = absolute[..cut].iter().rposition(|b| *b == b'/').map_or(0, |slash| slash);
    &absolute[start..]
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
        Form::new(self.session, mode, self.blob_only)
    }

    pub(crate) fn answer(self, body: Body) -> Result<Planned, Refusal> {
        Ok(Planned::Answer(Done::new(Status::Ok, body, self.warnings)))
    }
}

/// The bytes of a file that is open.
pub(crate) fn read_whole(place: &Place, file: &Source, size: u64) -> Result<Vec<u8>, Refusal> {
    read_file::whole(place, file, size, aos_model::limits::READ_BYTES_MAX)
}

/// Whether a session may use a blob: one that the operator put, or that a receipt of its own named.
pub(crate) fn may_name(host: &Host, session: &OpenSession, blob_ref: &str) -> Result<bool, Refusal> {
    for session in [None, Some(session.id.as_str())] {
        if host.journal.state(&blob_key(session, blob_ref))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The bytes that a request brings along, inline or by a blob that this session may name.
pub(crate) fn content(
    host: &Host,
    session: &OpenSession,
    content: &Content,
    bytes_max: u64,
) -> Result<Vec<u8>, Refusal> {
    match content {
        Content::InlineText { text } => Ok(text.clone().into_bytes()),
        Content::InlineBytes { bytes } => Ok(bytes.0.clone()),
        Content::BlobRef { blob_ref } => {
            let shown = aos_model::text::escape(blob_ref);
            let unknown = || {
                Refusal::new(
                    Code::BlobNotFound,
                    format!("{shown}: no such blob for this session; make it with `aos blob put`"),
                )
            };
            let known = may_name(host, session, blob_ref)?;
            let size = if known { host.blobs.size_of(blob_ref)? } else { None }.ok_or_else(unknown)?;
            if size > bytes_max {
                return Err(Refusal::new(
                    Code::LimitExceeded,
                    format!("{shown}: {size} bytes are over the limit of {bytes_max}; nothing was changed"),
                ));
            }
            host.blobs.read(blob_ref, bytes_max)?.ok_or_else(unknown)
        }
    }
}
