//! Restoring: the steps that bring paths back to what they were, all or none.
//!
//! What the model undo says which paths, and how they were left. Here they are compared with what stands there
//! now, bodies are fetched and checked, and a plan like any other is made of it: judged, armed, applied, undoable.

mod build;
mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aos_model::policy::Op;
use aos_model::refusal::{Code, Conflict, Refusal};
use aos_model::undo::{Expected, Look, Node, Piece, Touch, UndoPlan};
use aos_store::{Kept, Manifest};

use crate::disk::Meta;
use crate::host::Host;
use crate::jail::{Found, Last};
use crate::session::OpenSession;
use crate::steps::Step;
use crate::target::Target;
use build::Builder;
use judge::Judge;

/// What shall go, and what shall be, path by path.
#[derive(Debug)]
pub(crate) struct Goals {
    gone: Vec<Gone>,
    paths: Vec<Goal>,
    /// Repositories that the session's own commands made: what is in them is not protected from it.
    own_repositories: BTreeSet<String>,
}

/// What our changes made at a path.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) path: String,
    expected: Option<Box<Expected>>,
}

#[derive(Debug)]
pub(super) struct Goal {
    /// Where it was, and shall be.
    pub(super) path: String,
    /// Where the folder that will hold it, or the path itself, is at this moment.
    pub(super) now_at: String,
    /// Its folder is one that is made for it: nothing stands there yet.
    pub(super) is_new: bool,
    pub(super) aim: Aim,
    /// How our changes left what stands there now.
    pub(super) expected: Option<Box<Expected>>,
    /// And what comes from the other path.
    pub(super) expected_there: Option<Box<Expected>>,
}

impl Goal {
    /// The path that it is about beside the one where it is now: where it comes from, or where it shall be.
    fn other(&self) -> Option<&str> {
        let other = if let Aim::From { path, .. } = &self.aim { path } else { &self.path };
        (*other != self.now_at).then_some(other.as_str())
    }
}

#[derive(Debug)]
pub(super) enum Aim {
    Kept(Kept),
    /// The folder or file that is at the other path now. A folder may have looked otherwise.
    From {
        path: String,
        look: Option<Look>,
    },
    /// It is in its place, but looked otherwise.
    Look(Look),
}

/// The plan in steps, and what people want to know about it.
#[derive(Debug, Default)]
pub(crate) struct DiskRestoration {
    pub(crate) steps: Vec<Step>,
    pub(crate) restored: Vec<String>,
    pub(crate) deleted: Vec<String>,
    pub(crate) conflicts: Vec<Conflict>,
}

impl Goals {
    /// Reads what is needed to take `touches`, which are finalized, back. With `only`, no other paths than those and what is below them.
    pub(crate) fn read(
        host: &Host,
        session: &Arc<OpenSession>,
        touches: Vec<Touch>,
        only: Option<&[String]>,
    ) -> Result<Goals, Refusal> {
        let undo = UndoPlan::of(&touches);
        let own_repositories = own_repositories(&touches);
        drop(touches);
        let mut manifests = Manifests { host, session, read: BTreeMap::new() };
        let paths = manifests.paths(&undo)?;
        let only =
            only.map(|only| only.iter().map(|path| shown(session, path)).collect::<Result<Vec<_>, _>>());
        let only = only.transpose()?;
        let wanted =
            |path: &str| only.as_ref().is_none_or(|only| only.iter().any(|root| is_or_below(path, root)));
        let leaving = leaving(&undo);
        let mut goals = Vec::new();
        for path in paths.into_iter().filter(|path| wanted(path)) {
            let Some(aim) = manifests.aim(&undo, &leaving, &path)? else { continue };
            let reached = now_at(&undo, &leaving, &path);
            let is_new = reached.is_none();
            let now_at = reached.unwrap_or_else(|| path.clone());
            let expected_there = if let Aim::From { path, .. } = &aim { left(&undo, path) } else { None };
            let expected = if is_new { None } else { left(&undo, &now_at) };
            goals.push(Goal { path, now_at, is_new, aim, expected, expected_there });
        }
        // Where something is put back in its place, that decides what becomes of what stands there.
        let replaced: BTreeSet<&String> = goals
            .iter()
            .filter(|goal| matches!(goal.aim, Aim::Kept(_)) && !goal.is_new)
            .map(|goal| &goal.now_at)
            .collect();
        let gone = undo.gone.iter().filter(|(path, _)| !replaced.contains(path));
        let gone = gone.filter(|(path, made_at)| wanted(path) || wanted(made_at));
        let gone = gone.map(|(path, _)| Gone { path: path.clone(), expected: left(&undo, path) }).collect();
        Ok(Goals { gone, paths: goals, own_repositories })
    }

    /// The paths of what goes and of each goal, for the jail and the policy.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> {
        let named = |text: &str, op| match Target::new(text, op, Last::NoLinks) {
            target if self.own_repositories.iter().any(|own| is_or_below(text, own)) => target.unprotected(),
            target => target,
        };
        let gone = self.gone.iter().map(move |gone| named(&gone.path, Op::Remove));
        let paths = self.paths.iter().flat_map(move |goal| {
            [Some(goal.now_at.as_str()), goal.other()]
                .into_iter()
                .flatten()
                .map(move |path| named(path, Op::Write))
        });
        gone.chain(paths)
    }

    pub(crate) fn targets_count(&self) -> usize {
        self.gone.len() + self.paths.iter().map(|goal| 1 + usize::from(goal.other().is_some())).sum::<usize>()
    }

    /// Compares with what stands there now and makes the steps. `found` is in the order of the targets.
    pub(crate) fn plan(
        self,
        host: &Host,
        session: &Arc<OpenSession>,
        found: &[Found],
        force: bool,
    ) -> Result<DiskRestoration, Refusal> {
        let (found_gone, found) = found.split_at(self.gone.len());
        let mut found = found.iter();
        let gone: Vec<(Gone, &Found)> = self.gone.into_iter().zip(found_gone).collect();
        let tasks: Vec<Task<'_>> = self
            .paths
            .into_iter()
            .map(|goal| {
                let here = found.next().expect("BUG: something was found for each target");
                let other = goal.other().map_or(here, |_| found.next().expect("BUG: the same"));
                Task { goal, here, other }
            })
            .collect();
        let judge = Judge::new(host, session, &gone, &tasks);
        let mut wanted = Vec::new();
        let mut conflicts = Vec::new();
        for (gone, found) in gone.iter().filter(|_| !force) {
            if let Some(now) = standing(found, &gone.path) {
                conflicts.extend(judge.changed(&gone.path, found, Some(now), gone.expected.as_deref())?);
            }
        }
        for task in tasks {
            if judge.is_met(&task)? {
                continue;
            }
            if !force {
                conflicts.extend(judge.conflict(&task)?);
            }
            wanted.push(task);
        }
        if !conflicts.is_empty() {
            conflicts.sort_by(|a, b| a.path.cmp(&b.path));
            conflicts.dedup();
            return Ok(DiskRestoration { conflicts, ..DiskRestoration::default() });
        }
        let gone = gone.iter().map(|(gone, found)| (gone.path.as_str(), *found)).collect();
        Builder::new(host, session, judge.sets).build(gone, wanted)
    }
}

/// The `.git` folders that came or went whole in these changes. Nobody could have removed one that was protected.
fn own_repositories(touches: &[Touch]) -> BTreeSet<String> {
    let records = touches.iter().filter(|touch| !touch.explicit).flat_map(|touch| &touch.paths);
    records
        .filter(|record| record.path == ".git" || record.path.ends_with("/.git"))
        .filter(|record| record.before.is_none() != record.after.is_none())
        .map(|record| record.path.clone())
        .collect()
}

/// A goal, and what was found where it is now and, of what moves, where it comes from.
pub(super) struct Task<'f> {
    pub(super) goal: Goal,
    pub(super) here: &'f Found,
    pub(super) other: &'f Found,
}

impl Task<'_> {
    /// What stands where the goal is now.
    pub(super) fn now(&self) -> Option<Meta> {
        standing(self.here, &self.goal.now_at).filter(|_| !self.goal.is_new)
    }

    /// The path of what is no folder, where a folder above the goal should be.
    pub(super) fn blocker(&self) -> Option<&str> {
        let Found::Below { base, missing, .. } = self.here else { return None };
        base.meta.filter(|_| !self.goal.is_new)?;
        let slashes = self.goal.now_at.rmatch_indices('/').map(|(slash, _)| slash);
        slashes.take(missing.len() - 1).last().map(|slash| &self.goal.now_at[..slash])
    }

    /// What comes from the other path.
    pub(super) fn coming(&self) -> Option<Meta> {
        match &self.goal.aim {
            Aim::From { path, .. } => standing(self.other, path),
            Aim::Kept(_) | Aim::Look(_) => None,
        }
    }
}

/// What stands at a path itself. A place that was reached through a link is another path.
pub(super) fn standing(found: &Found, path: &str) -> Option<Meta> {
    match found {
        Found::Here(place) if place.shown == path => place.meta,
        Found::Here(_) | Found::Below { .. } | Found::Nowhere { .. } => None,
    }
}

/// How our changes left a path. What was captured by hand with its folder is put back whatever stands there.
fn left(undo: &UndoPlan, path: &str) -> Option<Box<Expected>> {
    let above = || {
        let mut above = path.rmatch_indices('/').map(|(slash, _)| &path[..slash]);
        above.find_map(|above| undo.expected.get(above)).filter(|above| above.unconditional)
    };
    undo.expected.get(path).or_else(above).cloned().map(Box::new)
}

/// Paths as they are now whose object was elsewhere. What lies in a folder that leaves does not stay where it is, even
/// if its path does: that is found once the folder is.
fn leaving(undo: &UndoPlan) -> BTreeSet<&str> {
    let mut leaving = BTreeSet::new();
    loop {
        let moved = undo.before.iter().filter_map(|(path, node)| match node {
            Node::Current { path: from, .. } if !stays(undo, &leaving, path, from) => Some(from.as_str()),
            Node::Current { .. } | Node::Kept { .. } | Node::Absent => None,
        });
        let more: Vec<&str> = moved.filter(|from| !leaving.contains(from)).collect();
        if more.is_empty() {
            return leaving;
        }
        leaving.extend(more);
    }
}

/// Where a path of before is reached at this moment: below a folder that moved, that is where the folder is now.
/// `None` below a folder that is to be made anew because the one that is there now goes elsewhere.
fn now_at(undo: &UndoPlan, leaving: &BTreeSet<&str>, path: &str) -> Option<String> {
    let above = path.rmatch_indices('/').find_map(|(slash, _)| {
        let (ancestor, suffix) = path.split_at(slash);
        Some((ancestor, suffix, undo.before.get(ancestor)?))
    });
    match above {
        Some((_, suffix, Node::Current { path, .. })) => Some(format!("{path}{suffix}")),
        Some((ancestor, suffix, Node::Kept { .. })) => {
            let folder = now_at(undo, leaving, ancestor)?;
            let path = format!("{folder}{suffix}");
            let mut above = path.rmatch_indices('/').map(|(slash, _)| &path[..slash]);
            let stays = above.all(|above| above.len() < folder.len() || !leaving.contains(above));
            stays.then_some(path)
        }
        Some((_, _, Node::Absent)) | None => Some(path.to_owned()),
    }
}

/// Whether what is at `from` now is at `path` already, once the folders above are in their places.
fn stays(undo: &UndoPlan, leaving: &BTreeSet<&str>, path: &str, from: &str) -> bool {
    now_at(undo, leaving, path).is_some_and(|now_at| now_at == from)
}

/// A path of the request as receipts show it.
fn shown(session: &Arc<OpenSession>, path: &str) -> Result<String, Refusal> {
    let literal = crate::jail::resolve(&session.jail, path, Last::NoLinks)?.literal;
    Ok(session.jail.shown(&literal))
}

pub(crate) fn is_or_below(path: &str, root: &str) -> bool {
    root == "." || path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

struct Manifests<'a> {
    host: &'a Host,
    session: &'a OpenSession,
    read: BTreeMap<String, Manifest>,
}

impl Manifests<'_> {
    fn get(&mut self, snapshot_id: &str) -> Result<&Manifest, Refusal> {
        if !self.read.contains_key(snapshot_id) {
            let manifest = self
                .host
                .manifests
                .read(&self.session.id, snapshot_id)
                .map_err(|fault| damaged(&fault.to_string()))?
                .ok_or_else(|| damaged(&format!("the manifest of {snapshot_id} is missing")))?;
            self.read.insert(snapshot_id.to_owned(), manifest);
        }
        Ok(&self.read[snapshot_id])
    }

    /// All paths that may have to become something: those that were touched, and those below what is kept.
    fn paths(&mut self, undo: &UndoPlan) -> Result<BTreeSet<String>, Refusal> {
        let mut paths: BTreeSet<String> = undo.before.keys().cloned().collect();
        for (path, node) in &undo.before {
            if let Node::Kept { piece, .. } = node {
                let manifest = self.get(&piece.snapshot_id)?;
                let below =
                    manifest.below(&piece.bank).filter_map(|suffix| suffix.strip_prefix(&piece.suffix));
                let below = below.filter(|rest| rest.starts_with('/'));
                paths.extend(below.map(|rest| format!("{path}{rest}")));
            }
        }
        Ok(paths)
    }

    /// What must be done to a path; `None` where nothing must, or where it only has to be empty.
    fn aim(&mut self, undo: &UndoPlan, leaving: &BTreeSet<&str>, path: &str) -> Result<Option<Aim>, Refusal> {
        Ok(match undo.at(path) {
            Node::Absent => None,
            Node::Kept { piece, look } => self.kept(&piece, look)?.map(Aim::Kept),
            Node::Current { path: from, look } if stays(undo, leaving, path, &from) => look.map(Aim::Look),
            // What lies below a folder that moves goes with it.
            Node::Current { .. } if !undo.before.contains_key(path) => None,
            Node::Current { path, look } => Some(Aim::From { path, look }),
        })
    }

    /// What stood at a path; `None` where nothing did.
    fn kept(&mut self, piece: &Piece, look: Option<Look>) -> Result<Option<Kept>, Refusal> {
        let Piece { snapshot_id, bank, path, suffix } = piece;
        match self.get(snapshot_id)?.kept(bank, path, suffix) {
            Some(kept) => {
                let mut kept = kept.clone();
                if let Some(look) = look {
                    kept.mode = Some(look.mode);
                    kept.xattrs = look.xattrs.unwrap_or(kept.xattrs);
                }
                Ok(Some(kept))
            }
            // Below a folder that is kept, what is not listed was not there. The path itself must be.
            None if !suffix.is_empty() => Ok(None),
            None => Err(damaged(&format!("the pre-image of {path} is missing"))),
        }
    }
}

pub(super) fn damaged(why: &str) -> Refusal {
    Refusal::new(Code::PreimageDamaged, format!("{why}; nothing was changed. `aos verify` says more"))
}
