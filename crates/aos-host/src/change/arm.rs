//! Arming: the intent, with where each pre-image will be, is durable before anything moves (I4).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};

use aos_model::id;
use aos_model::path::show;
use aos_model::refusal::{Code, Refusal};

use super::mark::{At, Content, Intent, Mark};
use super::{DirAt, Ending, Locked, Plan, Spot, Step};
use crate::host::Host;
use crate::session::Live;
use crate::snapshot;
use crate::spine::Ids;

/// A plan whose intent is on disk. It keeps the folders open that it works in, so that taking back needs no path.
#[derive(Debug)]
pub(crate) struct Armed<'a> {
    pub(crate) intent: u64,
    /// `None` where the session keeps no pre-images beyond the change itself.
    pub(super) snapshot_id: Option<String>,
    pub(super) own_snapshot: bool,
    pub(super) live: Arc<Live>,
    pub(super) marks: Vec<Mark>,
    pub(super) steps: Vec<Step>,
    /// Folders that steps made, by the step's index.
    pub(super) made: Vec<OnceLock<OwnedFd>>,
    pub(super) ending: Mutex<Option<Ending>>,
    _locks: Locked<'a>,
}

impl Armed<'_> {
    /// The folder of a spot; `None` while the step that makes it has not been carried out.
    pub(super) fn dir<'s>(&'s self, spot: &'s Spot) -> Option<BorrowedFd<'s>> {
        match &spot.dir {
            DirAt::Pinned(dir) => Some(dir.as_fd()),
            DirAt::Made(index) => self.made[*index].get().map(AsFd::as_fd),
        }
    }
}

/// Throws away what a change displaced that is not to be taken back.
pub(crate) fn forget_displaced(armed: &Armed<'_>) {
    let Ok(bank) = armed.live.bank_dir() else { return };
    if armed.snapshot_id.is_none() {
        for name in armed.marks.iter().filter_map(Mark::bank) {
            let _ = super::remove_any(bank, name.as_bytes());
        }
    }
}

pub(crate) fn arm<'a>(
    host: &'a Host,
    live: &Arc<Live>,
    plan: Plan,
    ids: &mut Ids,
    locks: Locked<'a>,
    kind: &str,
    params: &str,
) -> Result<Armed<'a>, Refusal> {
    if plan.steps.len() > aos_model::limits::CHANGED_PATHS_MAX {
        return Err(Refusal::new(
            Code::LimitExceeded,
            "more paths would change than one effect may touch; split the work",
        ));
    }
    // Opened now: when the bank cannot be had, nothing has moved yet.
    live.bank_dir()?;
    let (at_ns, random) = ((host.machine.now_ns)(), (host.machine.random)());
    ids.complete(at_ns, random);
    let change_id = id::make(id::SNAPSHOT, at_ns, random);
    let scope = ids.tool_call.as_deref().expect("BUG: completed above");
    let scope = (!plan.ending.own_snapshot).then_some(scope);
    let snapshot_id = snapshot::choose(host, live, scope, &change_id, &displaced(&plan.steps))?;
    let marks: Vec<Mark> =
        plan.steps.iter().enumerate().map(|(index, step)| mark(step, index, &change_id)).collect();
    let intent = Intent {
        at_ns,
        kind: kind.to_owned(),
        session_id: live.id.clone(),
        tool_call_id: ids.tool_call.clone().expect("BUG: completed above"),
        turn_id: ids.turn.clone().expect("BUG: completed above"),
        change_id,
        params: params.to_owned(),
        marks,
    };
    let body = serde_json::to_vec(&intent).expect("BUG: an intent is plain data");
    Ok(Armed {
        intent: host.journal.intend(body)?,
        snapshot_id,
        own_snapshot: plan.ending.own_snapshot,
        live: live.clone(),
        marks: intent.marks,
        made: plan.steps.iter().map(|_| OnceLock::new()).collect(),
        steps: plan.steps,
        ending: Mutex::new(Some(plan.ending)),
        _locks: locks,
    })
}

/// Says on disk that a command is about to run. There is nothing to take back: it works without a net.
pub(crate) fn announce(
    host: &Host,
    live: &Arc<Live>,
    ids: &mut Ids,
    kind: &str,
    params: &str,
) -> Result<Armed<'static>, Refusal> {
    let (at_ns, random) = ((host.machine.now_ns)(), (host.machine.random)());
    ids.complete(at_ns, random);
    let intent = Intent {
        at_ns,
        kind: kind.to_owned(),
        session_id: live.id.clone(),
        tool_call_id: ids.tool_call.clone().expect("BUG: completed above"),
        turn_id: ids.turn.clone().expect("BUG: completed above"),
        change_id: String::new(),
        params: params.to_owned(),
        marks: Vec::new(),
    };
    let body = serde_json::to_vec(&intent).expect("BUG: an intent is plain data");
    Ok(Armed {
        intent: host.journal.intend(body)?,
        snapshot_id: None,
        own_snapshot: false,
        live: live.clone(),
        marks: Vec::new(),
        made: Vec::new(),
        steps: Vec::new(),
        ending: Mutex::new(None),
        _locks: Locked::default(),
    })
}

/// The paths from which something goes to the bank, and how many bytes.
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

fn mark(step: &Step, index: usize, change_id: &str) -> Mark {
    let temporary = format!(".aos-tmp-{}-{index}", &change_id[id::SNAPSHOT.len()..]);
    let bank = format!("{change_id}.{index}");
    match step {
        Step::Put(put) => Mark::Put {
            at: at(&put.at),
            temporary,
            bank,
            before: put.before.map(Into::into),
            after: Content {
                hash: put.content.hash(),
                size: put.content.size(),
                mode: put.mode,
                kind: put.content.kind(),
            },
        },
        Step::Remove { at: spot, before, .. } => {
            Mark::Remove { at: at(spot), temporary, bank, before: (*before).into() }
        }
        Step::MakeDir { at: spot, .. } => Mark::MakeDir { at: at(spot) },
        Step::SetMode { at: spot, before, mode, xattrs } => {
            Mark::SetMode { at: at(spot), before: before.mode, after: *mode, xattrs: xattrs.clone() }
        }
        Step::Rename { from, before, to, replaced } => Mark::Rename {
            from: at(from),
            to: at(to),
            temporary,
            bank,
            before: (*before).into(),
            replaced: replaced.map(Into::into),
        },
    }
}

fn at(spot: &Spot) -> At {
    let dir = spot.parent_absolute();
    At {
        dir: if dir.is_empty() { "/".to_owned() } else { show(dir) },
        name: show(&spot.name),
        shown: spot.shown.clone(),
    }
}
