//! Arming: the intent, with where each pre-image will be, is durable before anything moves (I4).

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};

use aos_model::id;
use aos_model::limits::CHANGED_PATHS_MAX;
use aos_model::path::show;
use aos_model::refusal::Refusal;
use aos_store::own_rights;
use rustix::io::Errno;

use super::hold_open::{Action, HeldDir, HeldId, OPEN_TO_OWNER, actions};
use super::step_intent::{At, Content, Intent, StepIntent};
use crate::disk::{self, Meta};
use crate::host::Host;
use crate::jail::{DirFd, KnownDir};
use crate::lock::Locked;
use crate::outcome::Ids;
use crate::session::OpenSession;
use crate::snapshot;
use crate::stage::DiskChange;
use crate::steps::{Completion, DirAt, Plan, Step, StepTarget};

/// A plan whose intent is on disk.
#[derive(Debug)]
pub(crate) struct Armed<'a> {
    pub(crate) intent: u64,
    /// What temporary names and names of pre-images are made from; a command's overlay is named by it.
    pub(crate) change_id: String,
    pub(crate) ids: Ids,
    /// `None` where the session keeps no pre-images beyond the change itself.
    pub(super) snapshot_id: Option<String>,
    pub(super) own_snapshot: bool,
    pub(crate) session: Arc<OpenSession>,
    pub(super) actions: Vec<Action>,
    /// Folders that steps made, by the action's index.
    pub(super) made: Vec<OnceLock<MadeDir>>,
    pub(super) completion: Mutex<Option<Completion>>,
    /// What is removed after the receipt is recorded.
    pub(super) aside: Mutex<Option<Aside>>,
    _locks: Locked<'a>,
}

impl Armed<'_> {
    /// What the intent says of an action. Made anew for each use: a plan may have very many.
    pub(super) fn step_intent(&self, index: usize) -> StepIntent {
        intent_of(&self.actions[index], index, &self.change_id)
    }

    /// A folder that is held open, or is to be.
    pub(super) fn open_held(&self, held: &HeldDir) -> Result<OwnedFd, Errno> {
        let dir = match held.id {
            HeldId::Known(dev, ino) => {
                let dir = self.session.jail.open_folder(&held.absolute)?;
                return if disk::id_of(&dir)? == (dev, ino) { Ok(dir) } else { Err(Errno::STALE) };
            }
            HeldId::MadeBy(index) => self.made[index].get().expect("BUG: closed after it was made"),
        };
        match dir {
            MadeDir::Held(dir) => disk::hold_dir(dir, b"."),
            MadeDir::Known(known) => known.open(&held.absolute),
        }
    }

    /// The folder of a target; `None` while the step that makes it has not been carried out.
    pub(super) fn dir<'s>(&'s self, target: &'s StepTarget) -> Result<Option<DirFd<'s>>, Errno> {
        let DirAt::Made(index) = &target.dir else { return target.folder() };
        match self.made[*index].get() {
            Some(MadeDir::Held(dir)) => Ok(Some(DirFd::Held(dir.as_fd()))),
            Some(MadeDir::Known(known)) => known.open(target.parent_absolute()).map(DirFd::Opened).map(Some),
            None => Ok(None),
        }
    }

    /// Remembers a folder that a step made at `absolute`. One inside a root is opened again when it is needed.
    pub(super) fn remember_made(&self, index: usize, absolute: &[u8], made: &OwnedFd) -> Result<(), Errno> {
        let jail = &self.session.jail;
        let made = match jail.root_of(absolute) {
            Some(root) => {
                MadeDir::Known(KnownDir::new(&jail.roots[root], &Meta::of(made)?, jail.cross_mounts))
            }
            None => MadeDir::Held(made.try_clone().map_err(|_| Errno::MFILE)?),
        };
        let _ = self.made[index].set(made);
        Ok(())
    }
}

/// Steps whose displaced objects are still under their temporary names, and the intent that says so.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) intent: u64,
    pub(super) steps: Vec<usize>,
}

/// A folder that a step made.
#[derive(Debug)]
pub(super) enum MadeDir {
    Held(OwnedFd),
    Known(KnownDir),
}

/// Removes the pre-images of a change whose session keeps none.
pub(crate) fn forget_displaced(armed: &Armed<'_>) {
    let Ok(preimages) = armed.session.preimages.dir() else { return };
    if armed.snapshot_id.is_none() {
        let _own = own_rights();
        let displaces = |action: &Action| matches!(action, Action::Step { step, .. } if step.displaces());
        for (index, _) in armed.actions.iter().enumerate().filter(|(_, action)| displaces(action)) {
            disk::remove_leftover(preimages, preimage_name(&armed.change_id, index).as_bytes());
        }
    }
}

pub(crate) fn arm<'a>(
    host: &'a Host,
    change: DiskChange<'a>,
    ids: &mut Ids,
    (kind, params): (&str, &str),
) -> Result<Armed<'a>, Refusal> {
    let DiskChange { session, plan, locks, .. } = change;
    let (at_ns, random) = ((host.machine.now_ns)(), (host.machine.random)());
    ids.complete(at_ns, random);
    let change_id = id::make(id::SNAPSHOT, at_ns, random);
    prepare(host, &session, plan, ids, (at_ns, change_id), locks, (kind, params), None)
}

/// As [`arm`], for the change that a command left to be made: its intent replaces the one that announced the
/// command, so that one receipt closes both.
pub(crate) fn arm_command_changes<'a>(
    host: &'a Host,
    change: DiskChange<'a>,
    announced: &Armed<'_>,
    params: &str,
) -> Result<Armed<'a>, Refusal> {
    let DiskChange { session, plan, locks, .. } = change;
    let at = ((host.machine.now_ns)(), announced.change_id.clone());
    prepare(host, &session, plan, &announced.ids, at, locks, (EXEC, params), Some(announced.intent))
}

const EXEC: &str = "host.exec";

#[expect(clippy::too_many_arguments, reason = "what arming needs, gathered by its two callers")]
fn prepare<'a>(
    host: &'a Host,
    session: &Arc<OpenSession>,
    plan: Plan,
    ids: &Ids,
    (at_ns, change_id): (u64, String),
    locks: Locked<'a>,
    (kind, params): (&str, &str),
    instead_of: Option<u64>,
) -> Result<Armed<'a>, Refusal> {
    // A rollback may take back any number of calls, so it has no limit.
    if plan.steps.len() > CHANGED_PATHS_MAX && !plan.completion.own_snapshot {
        return Err(crate::steps::too_many_paths());
    }
    host.memory.note_paths(plan.steps.len());
    // Opened now: when the pre-images cannot be opened, nothing has moved yet.
    session.preimages.dir()?;
    let scope = ids.tool_call.as_deref().expect("BUG: completed above");
    let scope = (!plan.completion.own_snapshot).then_some(scope);
    // A session that was closed while its command ran keeps no snapshots any more.
    let snapshot_id = match session.still_open() {
        Ok(()) => snapshot::choose(host, session, scope, &change_id, &displaced(&plan.steps))?,
        Err(_) => None,
    };
    // Undo, and what a command leaves, work also where a command could: in a folder that only its mode closes.
    let opens_folders = plan.completion.own_snapshot || instead_of.is_some();
    let actions = actions(&session.jail, plan.steps, opens_folders);
    let intent = Intent {
        at_ns,
        kind: kind.to_owned(),
        session_id: session.id.clone(),
        tool_call_id: ids.tool_call.clone().expect("BUG: completed above"),
        turn_id: ids.turn.clone().expect("BUG: completed above"),
        change_id: change_id.clone(),
        params: params.to_owned(),
        steps: IntentsOf { actions: &actions, change_id: &change_id },
    };
    let body = serde_json::to_vec(&intent).expect("BUG: an intent is plain data");
    let number = match instead_of {
        Some(number) => host.journal.replace_intent(number, body).map(|()| number)?,
        None => host.journal.begin_intent(body)?,
    };
    Ok(Armed {
        intent: number,
        change_id,
        ids: ids.clone(),
        snapshot_id,
        own_snapshot: plan.completion.own_snapshot,
        session: session.clone(),
        made: actions.iter().map(|_| OnceLock::new()).collect(),
        actions,
        completion: Mutex::new(Some(plan.completion)),
        aside: Mutex::default(),
        _locks: locks,
    })
}

/// Says on disk that a command is about to run, over an overlay or without one. There is nothing to take back yet.
pub(crate) fn announce_command(
    host: &Host,
    session: &Arc<OpenSession>,
    ids: &mut Ids,
    has_overlay: bool,
    params: &str,
) -> Result<Armed<'static>, Refusal> {
    let (at_ns, random) = ((host.machine.now_ns)(), (host.machine.random)());
    ids.complete(at_ns, random);
    let change_id = if has_overlay { id::make(id::SNAPSHOT, at_ns, random) } else { String::new() };
    let mut announced = Armed {
        intent: 0,
        change_id,
        ids: ids.clone(),
        snapshot_id: None,
        own_snapshot: false,
        session: session.clone(),
        made: Vec::new(),
        actions: Vec::new(),
        completion: Mutex::new(None),
        aside: Mutex::default(),
        _locks: Locked::default(),
    };
    announced.intent = host.journal.begin_intent(announced.announcement(at_ns, params))?;
    Ok(announced)
}

impl Armed<'_> {
    /// The overlay could not be made: the intent must no longer say that what the command did is taken back.
    pub(crate) fn drop_overlay(&mut self, host: &Host, params: &str) -> Result<(), Refusal> {
        self.change_id.clear();
        Ok(host.journal.replace_intent(self.intent, self.announcement((host.machine.now_ns)(), params))?)
    }

    fn announcement(&self, at_ns: u64, params: &str) -> Vec<u8> {
        self.intent_with(EXEC, at_ns, params, Vec::new())
    }

    /// An intent of this change, of some of its steps.
    pub(super) fn intent_with(
        &self,
        kind: &str,
        at_ns: u64,
        params: &str,
        steps: Vec<StepIntent>,
    ) -> Vec<u8> {
        let intent = Intent {
            at_ns,
            kind: kind.to_owned(),
            session_id: self.session.id.clone(),
            tool_call_id: self.ids.tool_call.clone().expect("BUG: completed before"),
            turn_id: self.ids.turn.clone().expect("BUG: completed before"),
            change_id: self.change_id.clone(),
            params: params.to_owned(),
            steps,
        };
        serde_json::to_vec(&intent).expect("BUG: an intent is plain data")
    }
}

/// The paths from which something goes to the pre-images, and how many bytes.
fn displaced(steps: &[Step]) -> Vec<(&str, u64)> {
    let mut displaced = Vec::new();
    for step in steps {
        displaced.extend(match step {
            Step::Put(put) => put.before.map(|meta| (put.at.shown.as_str(), meta.size)),
            Step::Remove { at, bytes, .. } => Some((at.shown.as_str(), *bytes)),
            Step::Rename { to, replaced, .. } => replaced.map(|meta| (to.shown.as_str(), meta.size)),
            Step::MakeDir { .. } | Step::SetMode { .. } => None,
        });
    }
    displaced
}

/// The step intents of a plan, in order.
struct IntentsOf<'a> {
    actions: &'a [Action],
    change_id: &'a str,
}

impl serde::Serialize for IntentsOf<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(
            self.actions.iter().enumerate().map(|(index, action)| intent_of(action, index, self.change_id)),
        )
    }
}

/// The name of the pre-image that a step displaces.
pub(super) fn preimage_name(change_id: &str, index: usize) -> String {
    format!("{change_id}.{index}")
}

fn intent_of(action: &Action, index: usize, change_id: &str) -> StepIntent {
    let (step, is_held) = match action {
        Action::Step { step, is_held } => (step, *is_held),
        Action::HoldOpen(held) => return held_intent(held, (held.mode, held.mode_while_open()), false),
        Action::Close(held) => return held_intent(held, (held.mode_while_open(), held.mode), true),
    };
    let temporary = format!(".aos-tmp-{}-{index}", &change_id[id::SNAPSHOT.len()..]);
    let preimage = preimage_name(change_id, index);
    match step {
        Step::Put(put) => StepIntent::Put {
            at: at(&put.at),
            temporary,
            preimage,
            before: put.before.map(Into::into),
            after: Content {
                hash: put.content.hash(),
                size: put.content.size(),
                mode: put.mode,
                kind: put.content.kind(),
            },
        },
        Step::Remove { at: target, before, .. } => {
            StepIntent::Remove { at: at(target), temporary, preimage, before: (*before).into() }
        }
        Step::MakeDir { at: target, .. } => StepIntent::MakeDir { at: at(target) },
        Step::SetMode { at: target, before, mode, xattrs } => {
            let held = if is_held { OPEN_TO_OWNER } else { 0 };
            StepIntent::SetMode {
                at: at(target),
                before: before.mode | held,
                after: mode | held,
                xattrs: xattrs.clone(),
                closes: false,
            }
        }
        Step::Rename { from, before, to, replaced } => StepIntent::Rename {
            from: at(from),
            to: at(to),
            temporary,
            preimage,
            before: (*before).into(),
            replaced: replaced.map(Into::into),
        },
    }
}

fn held_intent(held: &HeldDir, (before, after): (u32, u32), closes: bool) -> StepIntent {
    let slash = held.absolute.iter().rposition(|b| *b == b'/').unwrap_or_default();
    let (dir, name) = (&held.absolute[..slash], held.absolute.get(slash + 1..).unwrap_or_default());
    StepIntent::SetMode { at: at_path(dir, name, &held.shown), before, after, xattrs: None, closes }
}

fn at(target: &StepTarget) -> At {
    at_path(target.parent_absolute(), &target.name, &target.shown)
}

fn at_path(dir: &[u8], name: &[u8], shown: &str) -> At {
    At {
        dir: if dir.is_empty() { "/".to_owned() } else { show(dir) },
        name: show(name),
        shown: shown.to_owned(),
    }
}
