//! Restoring: the steps that bring paths back to what they were, all or none.
//!
//! What the model unwound says which paths, and how they were left. Here they are compared with what stands there
//! now, bodies are fetched and checked, and a plan like any other is made of it: judged, armed, applied, undoable.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use aos_model::policy::Op;
use aos_model::receipt::Kind;
use aos_model::refusal::{Code, Conflict, Refusal};
use aos_model::state::{Attributes, Image, PathRecord};
use aos_model::undo::{Expected, Look, Node, Piece, Touch, Unwound};
use aos_store::{Fault, Kept, KeptKind, Manifest};
use rustix::io::Errno;

use super::build::Builder;
use super::{author, settle};
use crate::change::{Step, attributes, hash_of, names_in, open_dir};
use crate::host::Host;
use crate::jail::{Found, Last, Meta, Place};
use crate::operation::Target;
use crate::session::Live;

/// What shall go, and what shall be, path by path.
#[derive(Debug)]
pub(crate) struct Goals {
    gone: Vec<Gone>,
    paths: Vec<Goal>,
}

/// What our changes made at a path.
#[derive(Debug)]
struct Gone {
    path: String,
    expected: Option<Expected>,
}

#[derive(Debug)]
pub(super) struct Goal {
    /// Where it was, and shall be.
    pub(super) path: String,
    /// Where the folder that will hold it, or the path itself, is at this moment.
    pub(super) now_at: String,
    /// Its folder is one that is made for it: nothing stands there yet.
    is_new: bool,
    pub(super) aim: Aim,
    /// How our changes left what stands there now.
    expected: Option<Expected>,
    /// And what comes from the other path.
    expected_there: Option<Expected>,
}

#[derive(Debug)]
pub(super) enum Aim {
    Kept(Kept),
    /// The folder or file that is at the other path now.
    From(String),
    /// It is in its place, but looked otherwise.
    Look(Look),
}

/// The plan in steps, and what people want to know about it.
#[derive(Debug, Default)]
pub(crate) struct Restoration {
    pub(crate) steps: Vec<Step>,
    pub(crate) restored: Vec<String>,
    pub(crate) deleted: Vec<String>,
    pub(crate) conflicts: Vec<Conflict>,
}

impl Goals {
    /// Reads what is needed to take `touches` back. With `only`, no other paths than those and what is below them.
    pub(crate) fn read(
        host: &Host,
        live: &Arc<Live>,
        touches: &[Touch],
        only: Option<&[String]>,
    ) -> Result<Goals, Refusal> {
        let mut unsettled = settle(host, live)?;
        // A damaged manifest is told by what needs it, and by nothing else.
        let needed = touches.iter().find_map(|touch| unsettled.remove(&touch.snapshot_id));
        if let Some(fault) = needed.filter(|fault| !matches!(fault, Fault::Refused(_))) {
            return Err(fault.into());
        }
        let unwound = Unwound::of(touches);
        let mut manifests = Manifests { host, live, read: BTreeMap::new() };
        let mut paths: BTreeSet<String> = unwound.before.keys().cloned().collect();
        for (path, node) in &unwound.before {
            if let Node::Kept { piece, .. } = node {
                let manifest = manifests.get(&piece.snapshot_id)?;
                let below =
                    manifest.below(&piece.bank).filter_map(|suffix| suffix.strip_prefix(&piece.suffix));
                let below = below.filter(|rest| rest.starts_with('/'));
                paths.extend(below.map(|rest| format!("{path}{rest}")));
            }
        }
        let only = only.map(|only| only.iter().map(|path| shown(live, path)).collect::<Result<Vec<_>, _>>());
        let only = only.transpose()?;
        let wanted =
            |path: &str| only.as_ref().is_none_or(|only| only.iter().any(|root| is_or_below(path, root)));
        // What was captured by hand with its folder is put back whatever stands there.
        let above = |path: &str| {
            let mut above = path.rmatch_indices('/').map(|(slash, _)| &path[..slash]);
            above.find_map(|above| unwound.expected.get(above)).filter(|above| above.unconditional).cloned()
        };
        let left = |path: &str| unwound.expected.get(path).cloned().or_else(|| above(path));
        let leaving: BTreeSet<&str> = unwound
            .before
            .iter()
            .filter_map(|(path, node)| match node {
                Node::Current { path: from, .. } if !stays(&unwound, path, from) => Some(from.as_str()),
                _ => None,
            })
            .collect();
        let mut goals = Vec::new();
        for path in paths.into_iter().filter(|path| wanted(path)) {
            let aim = match unwound.at(&path) {
                Node::Absent => continue,
                Node::Kept { piece, look } => {
                    let Some(kept) = manifests.kept(&piece, look)? else { continue };
                    Aim::Kept(kept)
                }
                Node::Current { path: from, look } if stays(&unwound, &path, &from) => match look {
                    Some(look) => Aim::Look(look),
                    None => continue,
                },
                // What lies below a folder that moves goes with it.
                Node::Current { .. } if !unwound.before.contains_key(&path) => continue,
                Node::Current { path: from, .. } => Aim::From(from),
            };
            let reached = now_at(&unwound, &leaving, &path);
            let is_new = reached.is_none();
            let now_at = reached.unwrap_or_else(|| path.clone());
            let expected_there = if let Aim::From(from) = &aim { left(from) } else { None };
            let expected = if is_new { None } else { left(&now_at) };
            goals.push(Goal { path, now_at, is_new, aim, expected, expected_there });
        }
        // Where something is put back in its place, that decides what becomes of what stands there.
        let replaced: BTreeSet<&String> = goals
            .iter()
            .filter(|goal| matches!(goal.aim, Aim::Kept(_)) && !goal.is_new)
            .map(|goal| &goal.now_at)
            .collect();
        let gone = unwound.gone.iter().filter(|(path, _)| !replaced.contains(path));
        let gone = gone.filter(|(path, made_at)| wanted(path) || wanted(made_at));
        let gone = gone.map(|(path, _)| Gone { path: path.clone(), expected: left(path) }).collect();
        Ok(Goals { gone, paths: goals })
    }

    /// The paths of what goes and of each goal, for the jail and the policy.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let mut targets: Vec<Target> =
            self.gone.iter().map(|gone| Target::new(&gone.path, Op::Remove, Last::Itself)).collect();
        for goal in &self.paths {
            let other = if let Aim::From(from) = &goal.aim { from } else { &goal.path };
            for path in [&goal.now_at, other] {
                targets.push(Target::new(path, Op::Write, Last::Itself));
            }
        }
        targets
    }

    /// Compares with what stands there now and makes the steps. `found` is in the order of the targets.
    pub(crate) fn plan(
        self,
        host: &Host,
        live: &Arc<Live>,
        found: &[Found],
        force: bool,
    ) -> Result<Restoration, Refusal> {
        let (found_gone, found) = found.split_at(self.gone.len());
        let gone: Vec<(Gone, &Found)> = self.gone.into_iter().zip(found_gone).collect();
        let tasks: Vec<Task<'_>> = self
            .paths
            .into_iter()
            .zip(found.chunks_exact(2))
            .map(|(goal, found)| Task { goal, here: &found[0], other: &found[1] })
            .collect();
        let judge = Judge::new(host, live, &gone, &tasks);
        let mut wanted = Vec::new();
        let mut conflicts = Vec::new();
        for (gone, found) in gone.iter().filter(|_| !force) {
            if let Some(now) = standing(found, &gone.path) {
                conflicts.extend(judge.changed(&gone.path, found, Some(now), gone.expected.as_ref())?);
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
            return Ok(Restoration { conflicts, ..Restoration::default() });
        }
        let gone = gone.iter().map(|(gone, found)| (gone.path.as_str(), *found)).collect();
        Builder::new(host, live, judge.sets).build(gone, wanted)
    }
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
        base.meta?;
        let slashes = self.goal.now_at.rmatch_indices('/').map(|(slash, _)| slash);
        slashes.take(missing.len() - 1).last().map(|slash| &self.goal.now_at[..slash])
    }

    /// What comes from the other path.
    fn coming(&self) -> Option<Meta> {
        match &self.goal.aim {
            Aim::From(from) => standing(self.other, from),
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

/// Where a path of before is reached at this moment: below a folder that moved, that is where the folder is now.
/// `None` below a folder that is to be made anew because the one that is there now goes elsewhere.
fn now_at(unwound: &Unwound, leaving: &BTreeSet<&str>, path: &str) -> Option<String> {
    let above = path.rmatch_indices('/').find_map(|(slash, _)| {
        let (ancestor, suffix) = path.split_at(slash);
        Some((ancestor, suffix, unwound.before.get(ancestor)?))
    });
    match above {
        Some((_, suffix, Node::Current { path, .. })) => Some(format!("{path}{suffix}")),
        Some((ancestor, suffix, Node::Kept { .. })) => {
            let folder = now_at(unwound, leaving, ancestor)?;
            (!leaving.contains(folder.as_str())).then(|| format!("{folder}{suffix}"))
        }
        Some((_, _, Node::Absent)) | None => Some(path.to_owned()),
    }
}

/// Whether what is at `from` now is at `path` already, once the folders above are in their places.
fn stays(unwound: &Unwound, path: &str, from: &str) -> bool {
    now_at(unwound, &BTreeSet::new(), path).is_some_and(|now_at| now_at == from)
}

/// A path of the request as receipts show it.
fn shown(live: &Arc<Live>, path: &str) -> Result<String, Refusal> {
    let literal = crate::jail::resolve(live, path, Last::Itself)?.literal;
    Ok(live.jail.shown(&literal))
}

fn is_or_below(path: &str, root: &str) -> bool {
    root == "." || path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

struct Manifests<'a> {
    host: &'a Host,
    live: &'a Live,
    read: BTreeMap<String, Manifest>,
}

impl Manifests<'_> {
    fn get(&mut self, snapshot_id: &str) -> Result<&Manifest, Refusal> {
        if !self.read.contains_key(snapshot_id) {
            let manifest = self
                .host
                .manifests
                .read(&self.live.id, snapshot_id)
                .map_err(|fault| damaged(&fault.to_string()))?
                .ok_or_else(|| damaged(&format!("the manifest of {snapshot_id} is missing")))?;
            self.read.insert(snapshot_id.to_owned(), manifest);
        }
        Ok(&self.read[snapshot_id])
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

/// Compares what is with what was left, and finds whose work would be lost.
struct Judge<'a> {
    host: &'a Host,
    live: &'a Arc<Live>,
    sets: Sets,
}

/// Paths as they are now: those that something is taken away from, and those that something moves away from.
#[derive(Debug, Default)]
pub(super) struct Sets {
    pub(super) removed: BTreeSet<String>,
    pub(super) leaving: BTreeSet<String>,
    /// And those that something else is put in the place of.
    replaced: BTreeSet<String>,
}

impl Sets {
    pub(super) fn goes(&self, path: &str) -> bool {
        self.removed.contains(path) || self.leaving.contains(path)
    }

    /// Whether a folder holds anything that neither goes nor leaves.
    pub(super) fn holds_others(&self, place: &Place, path: &str) -> Result<bool, Refusal> {
        let fail = |why| place.fault("look into", why);
        let dir = place.open_dir().map_err(fail)?;
        self.holds(&dir, path).map_err(fail)
    }

    fn holds(&self, dir: &OwnedFd, path: &str) -> Result<bool, Errno> {
        for name in names_in(dir)? {
            let below = format!("{path}/{}", aos_model::path::show(&name));
            if self.leaving.contains(&below) {
                continue;
            }
            if !self.removed.contains(&below) {
                return Ok(true);
            }
            let is_folder = Meta::at(dir, &name)?.is_some_and(|meta| meta.kind == Kind::Dir);
            if is_folder && self.holds(&open_dir(dir, &name)?, &below)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<'a> Judge<'a> {
    fn new(host: &'a Host, live: &'a Arc<Live>, gone: &[(Gone, &Found)], tasks: &[Task<'_>]) -> Judge<'a> {
        let removed = gone.iter().map(|(gone, _)| gone.path.clone()).collect();
        let leaving = tasks.iter().filter_map(|task| match &task.goal.aim {
            Aim::From(from) if task.coming().is_some() => Some(from.clone()),
            Aim::From(_) | Aim::Kept(_) | Aim::Look(_) => None,
        });
        let kept = tasks.iter().filter(|task| matches!(task.goal.aim, Aim::Kept(_)) && !task.goal.is_new);
        let replaced = kept.map(|task| task.goal.now_at.clone()).collect();
        Judge { host, live, sets: Sets { removed, leaving: leaving.collect(), replaced } }
    }

    /// Whether the path already is what it shall be.
    fn is_met(&self, task: &Task<'_>) -> Result<bool, Refusal> {
        let goal = &task.goal;
        // What moves away from here will be gone, however well it fits.
        let now = task.now().filter(|_| !self.sets.leaving.contains(&goal.now_at));
        Ok(match &goal.aim {
            Aim::Look(look) => match (task.here, now) {
                (Found::Here(place), Some(now)) => {
                    let worn = look.xattrs.as_ref();
                    now.mode == look.mode && worn.map_or(Ok(true), |worn| wears(place, Kind::Dir, worn))?
                }
                _ => true,
            },
            // It went back already: nothing at the other place, and here what was left there.
            Aim::From(_) => {
                let image = goal.expected_there.as_ref().and_then(|expected| expected.image.as_ref());
                task.coming().is_none() && image.is_some() && self.is_as_left(task.here, now, image)?
            }
            Aim::Kept(kept) => match (task.here, now) {
                (Found::Here(place), Some(now)) => is_kept(place, &now, kept)?,
                _ => false,
            },
        })
    }

    /// Whose work would be lost, if anybody's.
    fn conflict(&self, task: &Task<'_>) -> Result<Option<Conflict>, Refusal> {
        let goal = &task.goal;
        if self.buries_others(task)? {
            return Ok(Some(outside(&goal.now_at)));
        }
        if let Some(blocker) =
            task.blocker().filter(|path| !self.sets.goes(path) && !self.sets.replaced.contains(*path))
        {
            return self.newest(blocker, 0, |record| Ok(record.after.is_some())).map(Some);
        }
        if let Aim::From(from) = &goal.aim {
            let coming = self.changed(from, task.other, task.coming(), goal.expected_there.as_ref())?;
            if coming.is_some() {
                return Ok(coming);
            }
        }
        let goes = self.sets.goes(&goal.now_at);
        let now = task.now();
        let moves = matches!(goal.aim, Aim::From(_));
        if moves && (goes || now.is_none()) {
            return Ok(None);
        }
        if goal.expected.is_none() && (goes || now.is_none_or(|now| now.kind == Kind::Dir)) {
            return Ok(None);
        }
        self.changed(&goal.now_at, task.here, now, goal.expected.as_ref())
    }

    /// Who changed a path since our change left it. Of what nobody left there that we know of, nobody knows.
    fn changed(
        &self,
        path: &str,
        found: &Found,
        now: Option<Meta>,
        expected: Option<&Expected>,
    ) -> Result<Option<Conflict>, Refusal> {
        let Some(expected) = expected else { return Ok(Some(outside(path))) };
        if expected.unconditional || self.is_as_left(found, now, expected.image.as_ref())? {
            return Ok(None);
        }
        self.blame(path, found, now, expected.seq).map(Some)
    }

    /// Whether a folder would go, or be replaced, that holds what others put there.
    fn buries_others(&self, task: &Task<'_>) -> Result<bool, Refusal> {
        let replaces = match &task.goal.aim {
            Aim::Kept(kept) => kept.kind != KeptKind::Dir,
            Aim::From(_) => true,
            Aim::Look(_) => false,
        };
        let is_folder = task.now().is_some_and(|now| now.kind == Kind::Dir);
        match task.here {
            Found::Here(place) if replaces && is_folder && !self.sets.leaving.contains(&task.goal.now_at) => {
                self.sets.holds_others(place, &task.goal.now_at)
            }
            _ => Ok(false),
        }
    }

    /// Whether a path stands as our change left it.
    fn is_as_left(&self, found: &Found, now: Option<Meta>, image: Option<&Image>) -> Result<bool, Refusal> {
        let (now, image) = match (now, image) {
            (None, None) => return Ok(true),
            (Some(now), Some(image)) if now.kind == image.kind => (now, image),
            _ => return Ok(false),
        };
        if now.kind == Kind::Dir {
            return Ok(true);
        }
        if now.mode != image.mode && now.kind == Kind::File {
            return Ok(false);
        }
        let Found::Here(place) = found else { return Ok(false) };
        if now.size != image.size_bytes {
            return Ok(false);
        }
        let looks_the_same = image
            .identity
            .is_some_and(|id| (id.dev, id.ino, id.mtime_ns) == (now.dev, now.ino, now.mtime_ns));
        let Some(hash) = &image.hash else { return Ok(looks_the_same) };
        // The content says it: a time can be set back. Where we may not read it, there is nothing better.
        Ok(hash_at(place, now.kind)?.map_or(looks_the_same, |found| found == *hash))
    }

    /// The newest tool call after `seq` that left the path as it stands; else somebody outside.
    fn blame(&self, path: &str, found: &Found, now: Option<Meta>, seq: u64) -> Result<Conflict, Refusal> {
        self.newest(path, seq, |record| self.is_as_left(found, now, record.after.as_ref()))
    }

    /// The newest tool call after `seq` whose record of the path fits.
    fn newest(
        &self,
        path: &str,
        seq: u64,
        fits: impl Fn(&PathRecord) -> Result<bool, Refusal>,
    ) -> Result<Conflict, Refusal> {
        for snapshot in super::all(self.host, self.live)?.iter().rev() {
            let later = snapshot.seqs.iter().copied().filter(|later| *later > seq);
            for touch in super::touches(self.host, later)?.iter().rev() {
                let left = touch.paths.iter().rev().find(|record| record.path == path);
                if let Some(record) = left
                    && fits(record)?
                {
                    let by = author(self.host, touch.seq).unwrap_or_else(|| "outside".to_owned());
                    return Ok(Conflict { path: path.to_owned(), changed_by: by });
                }
            }
        }
        Ok(outside(path))
    }
}

fn outside(path: &str) -> Conflict {
    Conflict { path: path.to_owned(), changed_by: "outside".to_owned() }
}

/// Of the content; `None` where we may not read it.
fn hash_at(place: &Place, kind: Kind) -> Result<Option<String>, Refusal> {
    match hash_of(&place.dir, &place.name, kind) {
        Ok(hash) => Ok(Some(hash)),
        Err(Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(why) => Err(place.fault("read", why)),
    }
}

/// Content, kind, mode and attributes, all as the manifest keeps them.
fn is_kept(place: &Place, now: &Meta, kept: &Kept) -> Result<bool, Refusal> {
    let fail = |why| place.fault("look at", why);
    let same_mode = kept.mode.is_none_or(|mode| mode == now.mode);
    Ok(match (kept.kind, now.kind) {
        (KeptKind::Dir, Kind::Dir) => same_mode && wears(place, Kind::Dir, &kept.xattrs)?,
        (KeptKind::Symlink, Kind::Symlink) => {
            let target =
                rustix::fs::readlinkat(&place.dir, place.name.as_slice(), Vec::new()).map_err(fail)?;
            kept.target.as_deref() == Some(aos_model::path::show(target.as_bytes()).as_str())
        }
        (KeptKind::File, Kind::File) => {
            if !same_mode || kept.size_bytes != Some(now.size) {
                return Ok(false);
            }
            let hash = hash_at(place, Kind::File)?;
            hash.is_some() && hash == kept.body_hash && wears(place, Kind::File, &kept.xattrs)?
        }
        _ => false,
    })
}

/// Whether a file or a folder has exactly these attributes.
fn wears(place: &Place, kind: Kind, kept: &Attributes) -> Result<bool, Refusal> {
    Ok(worn(place, kind)? == *kept)
}

pub(super) fn worn(place: &Place, kind: Kind) -> Result<Attributes, Refusal> {
    let fail = |why| place.fault("look at", why);
    let file = if kind == Kind::Dir { place.open_dir().map_err(fail)? } else { place.open_file()?.0 };
    attributes(&file).map_err(fail)
}
