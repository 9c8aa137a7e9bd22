//! Restoring: the steps that bring paths back to what they were, all or none.
//!
//! What the model unwound says which paths, and how they were left. Here they are compared with what stands there
//! now, bodies are fetched and checked, and a plan like any other is made of it: judged, armed, applied, undoable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aos_model::path::Spelled;
use aos_model::policy::Op;
use aos_model::receipt::Kind;
use aos_model::refusal::{Code, Conflict, Refusal};
use aos_model::state::Image;
use aos_model::undo::{Expected, Node, Touch, Unwound};
use aos_store::{Kept, KeptKind, Manifest};

use super::{author, settle};
use crate::change::{
    Content, Dress, Parents, Put, Spot, Step, TEMPORARY_PREFIX, attributes, hash_of, names_in,
};
use crate::host::Host;
use crate::jail::{Found, Last, Meta, Place};
use crate::operation::Target;
use crate::session::Live;

/// What shall be, path by path.
#[derive(Debug)]
pub(crate) struct Goals {
    paths: Vec<Goal>,
    /// Repositories that the session's own commands made: what is in them is not protected from it.
    own_repositories: BTreeSet<String>,
}

#[derive(Debug)]
struct Goal {
    /// Where it was, and shall be.
    path: String,
    /// Where the folder that will hold it, or the path itself, is at this moment.
    now_at: String,
    aim: Aim,
    /// How our changes left what goes: what stands there, or at the other path what comes from there.
    expected: Option<Expected>,
}

#[derive(Debug)]
enum Aim {
    Absent,
    Kept(Kept),
    /// The folder or file that is at the other path now.
    From(String),
    /// It is in its place; only its mode was another.
    Mode(u32),
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
        live: &Live,
        touches: &[Touch],
        only: Option<&[String]>,
    ) -> Result<Goals, Refusal> {
        settle(host, live)?;
        let unwound = Unwound::of(touches);
        let mut manifests = Manifests { host, live, read: BTreeMap::new() };
        let mut paths: BTreeSet<String> =
            unwound.before.keys().chain(unwound.expected.keys()).cloned().collect();
        for (path, node) in &unwound.before {
            if let Node::Kept { snapshot_id, path: kept_as, .. } = node {
                let below = manifests.below(snapshot_id, kept_as)?;
                paths.extend(below.into_iter().map(|suffix| format!("{path}{suffix}")));
            }
        }
        // What leaves a path, or leaves with a folder above it, need not be removed from there.
        let leaving: BTreeSet<String> = unwound
            .before
            .iter()
            .filter_map(|(path, node)| match node {
                Node::Current { path: from, .. } if from != path => Some(from.clone()),
                _ => None,
            })
            .collect();
        let wanted = |path: &str| only.is_none_or(|only| only.iter().any(|root| is_or_below(path, root)));
        let mut goals = Vec::new();
        for path in paths.into_iter().filter(|path| wanted(path)) {
            let aim = match unwound.at(&path) {
                Node::Absent if leaving.iter().any(|from| is_or_below(&path, from)) => continue,
                Node::Absent => Aim::Absent,
                Node::Kept { snapshot_id, path: kept_as, mode } => {
                    manifests.aim(&snapshot_id, &kept_as, mode)?
                }
                Node::Current { path: from, mode: Some(mode) } if from == path => Aim::Mode(mode),
                Node::Current { path: from, .. } if from == path => continue,
                // What lies below a folder that moves goes with it.
                Node::Current { .. } if !unwound.before.contains_key(&path) => continue,
                Node::Current { path: from, .. } => Aim::From(from),
            };
            let now_at = now_at(&unwound, &path);
            let left_at = if let Aim::From(from) = &aim { from } else { &now_at };
            let expected = unwound.expected.get(left_at).cloned();
            goals.push(Goal { path, now_at, aim, expected });
        }
        Ok(Goals { paths: goals, own_repositories: own_repositories(touches) })
    }

    /// Each goal's paths, for the jail and the policy.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        for goal in &self.paths {
            let op = if matches!(goal.aim, Aim::Absent) { Op::Remove } else { Op::Write };
            let is_own = self.own_repositories.iter().any(|own| is_or_below(&goal.path, own));
            let named = |text: &str, op| match Target::new(text, op, Last::Itself) {
                target if is_own => target.of_its_own(),
                target => target,
            };
            targets.push(named(&goal.now_at, op));
            let other = match &goal.aim {
                Aim::From(from) => from.as_str(),
                _ => goal.path.as_str(),
            };
            targets.push(named(other, Op::Write));
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
        let (mut removed, mut leaving) = (BTreeSet::new(), BTreeSet::new());
        for goal in &self.paths {
            match &goal.aim {
                Aim::Absent => removed.insert(goal.now_at.clone()),
                Aim::From(from) => leaving.insert(from.clone()),
                Aim::Kept(_) | Aim::Mode(_) => false,
            };
        }
        let mut plan = Planner {
            host,
            live,
            removed,
            leaving,
            folder_mode: 0o777 & !host.machine.umask,
            out: Restoration::default(),
            parents: Parents::default(),
        };
        let mut removals = Vec::new();
        let (mut moves, mut puts) = (Vec::new(), Vec::new());
        for (goal, found) in self.paths.into_iter().zip(found.chunks_exact(2)) {
            let here = &found[0];
            let leaves = !matches!(goal.aim, Aim::From(_)) && plan.leaving.contains(&goal.now_at);
            if !leaves && plan.is_met(&goal, here, &found[1])? {
                continue;
            }
            if !force
                && !leaves
                && let Some(conflict) = plan.conflict(&goal, here, &found[1])?
            {
                plan.out.conflicts.push(conflict);
            }
            match &goal.aim {
                Aim::Absent => removals.push((goal, here)),
                Aim::From(_) => moves.push((goal, here, Leaving::of(&found[1]))),
                Aim::Kept(_) | Aim::Mode(_) => puts.push((goal, here)),
            }
        }
        plan.remove(removals)?;
        // Below a folder that goes back, things are put right while it is still where it is.
        let (below_moves, others): (Vec<_>, Vec<_>) =
            puts.into_iter().partition(|(goal, _): &(Goal, &Found)| goal.now_at != goal.path);
        for (goal, here) in below_moves {
            plan.put(goal, here)?;
        }
        plan.rename(moves)?;
        for (goal, here) in others {
            plan.put(goal, here)?;
        }
        let mut out = plan.out;
        out.restored.sort();
        out.deleted.sort();
        Ok(out)
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

/// Where a path of before is reached at this moment: below a folder that moved, that is where the folder is now.
fn now_at(unwound: &Unwound, path: &str) -> String {
    let above = path.rmatch_indices('/').find_map(|(slash, _)| {
        let (ancestor, suffix) = path.split_at(slash);
        match unwound.before.get(ancestor)? {
            Node::Current { path, .. } => Some(format!("{path}{suffix}")),
            Node::Kept { .. } | Node::Absent => Some(path.to_owned()),
        }
    });
    above.unwrap_or_else(|| path.to_owned())
}

fn is_or_below(path: &str, root: &str) -> bool {
    let root = root.trim_end_matches('/');
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

    /// What is kept below a path, as suffixes that begin with a slash.
    fn below(&mut self, snapshot_id: &str, path: &str) -> Result<Vec<String>, Refusal> {
        let prefix = format!("{path}/");
        let entries = &self.get(snapshot_id)?.entries;
        let below = entries.range(prefix.clone()..).map(|(kept, _)| kept);
        let below = below.take_while(|kept| kept.starts_with(&prefix));
        Ok(below.map(|kept| kept[path.len()..].to_owned()).collect())
    }

    fn aim(&mut self, snapshot_id: &str, path: &str, mode: Option<u32>) -> Result<Aim, Refusal> {
        let manifest = self.get(snapshot_id)?;
        let Some(kept) = manifest.entries.get(path) else {
            // Below a folder that is kept, what is not listed was not there. The path itself must be.
            let above = path.rmatch_indices('/').any(|(at, _)| manifest.entries.contains_key(&path[..at]));
            if above {
                return Ok(Aim::Absent);
            }
            return Err(damaged(&format!("the pre-image of {path} is missing")));
        };
        if kept.kind == KeptKind::Absent {
            return Ok(Aim::Absent);
        }
        Ok(Aim::Kept(Kept { mode: mode.or(kept.mode), ..kept.clone() }))
    }
}

fn damaged(why: &str) -> Refusal {
    Refusal::new(Code::PreimageDamaged, format!("{why}; nothing was changed. `aos verify` says more"))
}

/// Something that goes to where it was: its goal, where that is, and where it leaves from.
type Moving<'f> = (Goal, &'f Found, Option<Leaving>);

struct Leaving {
    at: Spot,
    before: Meta,
}

impl Leaving {
    fn of(found: &Found) -> Option<Leaving> {
        match found {
            Found::Here(place) => place.meta.map(|before| Leaving { at: Spot::of(place), before }),
            Found::Below { .. } | Found::Nowhere { .. } => None,
        }
    }
}

struct Planner<'a> {
    host: &'a Host,
    live: &'a Arc<Live>,
    /// Paths that something is taken away from, and those that something moves away from.
    removed: BTreeSet<String>,
    leaving: BTreeSet<String>,
    /// Of folders that nobody kept.
    folder_mode: u32,
    out: Restoration,
    parents: Parents,
}

fn meta_of(found: &Found) -> Option<Meta> {
    match found {
        Found::Here(place) => place.meta,
        Found::Below { .. } | Found::Nowhere { .. } => None,
    }
}

impl Planner<'_> {
    /// Whether the path already is what it shall be.
    fn is_met(&self, goal: &Goal, here: &Found, other: &Found) -> Result<bool, Refusal> {
        let now = meta_of(here);
        Ok(match &goal.aim {
            Aim::Absent => now.is_none(),
            Aim::Mode(mode) => now.is_none_or(|now| now.mode == *mode),
            // It went back already: nothing at the other place, and here what was left there.
            Aim::From(_) => {
                let image = goal.expected.as_ref().and_then(|expected| expected.image.as_ref());
                meta_of(other).is_none() && image.is_some() && self.is_as_left(here, image)?
            }
            Aim::Kept(kept) => match (here, now) {
                (Found::Here(place), Some(now)) => is_kept(place, &now, kept)?,
                _ => false,
            },
        })
    }

    /// Whose work would be lost, if anybody's.
    fn conflict(&self, goal: &Goal, here: &Found, other: &Found) -> Result<Option<Conflict>, Refusal> {
        let moves = matches!(goal.aim, Aim::From(_));
        let in_the_way = meta_of(here).is_some_and(|meta| moves || meta.kind != Kind::Dir);
        if moves && in_the_way && !self.removed.contains(&goal.now_at) && !self.leaving.contains(&goal.now_at)
        {
            return Ok(Some(outside(&goal.path)));
        }
        // A folder where a file was goes with what we made in it, not with what others did.
        if let (Aim::Kept(kept), Found::Here(place)) = (&goal.aim, here)
            && kept.kind != KeptKind::Dir
            && place.meta.is_some_and(|meta| meta.kind == Kind::Dir)
            && !self.will_be_empty(place, &goal.now_at, &self.removed, &BTreeSet::new())?
        {
            return Ok(Some(outside(&goal.path)));
        }
        let Some(expected) = &goal.expected else {
            // Nobody left anything there that we know of; what stands in the way is somebody's.
            return Ok((!moves && in_the_way).then(|| outside(&goal.path)));
        };
        let seen = if moves { other } else { here };
        if expected.unconditional || self.is_as_left(seen, expected.image.as_ref())? {
            return Ok(None);
        }
        Ok(Some(self.blame(&goal.now_at, seen, expected.seq)?))
    }

    /// Whether a path stands as our change left it.
    fn is_as_left(&self, found: &Found, image: Option<&Image>) -> Result<bool, Refusal> {
        let (now, image) = match (meta_of(found), image) {
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
        let same = image.identity.is_some_and(|id| {
            (id.dev, id.ino, id.mtime_ns) == (now.dev, now.ino, now.mtime_ns) && image.size_bytes == now.size
        });
        if same {
            return Ok(true);
        }
        let Found::Here(place) = found else { return Ok(false) };
        match &image.hash {
            Some(hash) => Ok(now.size == image.size_bytes && hash_at(place, now.kind)? == *hash),
            None => Ok(false),
        }
    }

    /// The newest tool call after `seq` that left the path as it stands; else somebody outside.
    fn blame(&self, path: &str, found: &Found, seq: u64) -> Result<Conflict, Refusal> {
        for snapshot in super::all(self.host, self.live)?.iter().rev() {
            for touch in
                super::touches(self.host, snapshot.seqs.iter().copied().filter(|s| *s > seq))?.iter().rev()
            {
                let left = touch.paths.iter().rev().find(|record| record.path == path);
                if let Some(record) = left
                    && self.is_as_left(found, record.after.as_ref())?
                {
                    let by = author(self.host, touch.seq).unwrap_or_else(|| "outside".to_owned());
                    return Ok(Conflict { path: path.to_owned(), changed_by: by });
                }
            }
        }
        Ok(outside(path))
    }

    /// Files first, then the folders that are empty without them; others stay, with what is in them.
    fn remove(&mut self, mut removals: Vec<(Goal, &Found)>) -> Result<(), Refusal> {
        let gone: BTreeSet<String> = removals.iter().map(|(goal, _)| goal.now_at.clone()).collect();
        // Deepest first.
        removals.sort_by(|(a, _), (b, _)| b.now_at.cmp(&a.now_at));
        let mut kept = BTreeSet::new();
        for (goal, here) in removals {
            let Found::Here(place) = here else { continue };
            let Some(before) = place.meta else { continue };
            if before.kind == Kind::Dir && !self.will_be_empty(place, &goal.now_at, &gone, &kept)? {
                kept.insert(goal.now_at);
                continue;
            }
            let bytes = if before.kind == Kind::Dir { 0 } else { before.size };
            self.out.steps.push(Step::Remove { at: Spot::of(place), before, bytes });
            if before.kind != Kind::Dir {
                self.out.deleted.push(goal.path);
            }
        }
        Ok(())
    }

    fn will_be_empty(
        &self,
        place: &Place,
        path: &str,
        gone: &BTreeSet<String>,
        kept: &BTreeSet<String>,
    ) -> Result<bool, Refusal> {
        let fail = |why| place.fault("look into", why);
        let dir = place.open_dir().map_err(fail)?;
        let names = names_in(&dir).map_err(fail)?;
        Ok(names.iter().all(|name| {
            let below = format!("{path}/{}", aos_model::path::show(name));
            gone.contains(&below) && !kept.contains(&below)
        }))
    }

    /// Objects that were moved go back. Where one stands in another's way, that one goes first; in a ring of them one
    /// steps aside.
    fn rename(&mut self, mut moves: Vec<Moving<'_>>) -> Result<(), Refusal> {
        while !moves.is_empty() {
            let waiting: BTreeSet<String> = moves
                .iter()
                .filter_map(
                    |(goal, ..)| if let Aim::From(from) = &goal.aim { Some(from.clone()) } else { None },
                )
                .collect();
            let free = moves.iter().position(|(goal, ..)| !waiting.contains(&goal.now_at));
            let Some(index) = free else {
                self.step_aside(&mut moves);
                continue;
            };
            let (goal, here, from) = moves.remove(index);
            let Some(Leaving { at: from, before }) = from else { continue };
            let to = self.parents.spot(here, &mut self.out.steps, self.folder_mode, &self.live.jail);
            self.out.steps.push(Step::Rename { from, before, to, replaced: None });
            self.out.restored.push(goal.path);
        }
        Ok(())
    }

    /// Breaks a ring of names: the first of them waits under a name that nobody uses.
    fn step_aside(&mut self, moves: &mut [Moving<'_>]) {
        let (goal, _, from) = &mut moves[0];
        let Some(Leaving { at, before }) = from else { return };
        let name = [TEMPORARY_PREFIX, format!("aside-{}", self.out.steps.len()).as_bytes()].concat();
        let parent = &at.absolute[..at.absolute.len() - at.name.len()];
        let absolute = [parent, &name].concat();
        let aside = Spot { dir: at.dir.clone(), name, shown: self.live.jail.shown(&absolute), absolute };
        let step = Step::Rename { from: at.clone(), before: *before, to: aside.clone(), replaced: None };
        self.out.steps.push(step);
        goal.aim = Aim::From(aside.shown.clone());
        *at = aside;
    }

    fn put(&mut self, goal: Goal, here: &Found) -> Result<(), Refusal> {
        // What moves away is gone by then.
        let before = meta_of(here).filter(|_| !self.leaving.contains(&goal.now_at));
        let kept = match goal.aim {
            Aim::Mode(mode) => {
                let (Found::Here(place), Some(before)) = (here, before) else { return Ok(()) };
                self.out.steps.push(Step::SetMode { at: Spot::of(place), before, mode });
                self.out.restored.push(goal.path);
                return Ok(());
            }
            Aim::Kept(kept) => kept,
            Aim::Absent | Aim::From(_) => unreachable!("BUG: sorted apart above"),
        };
        if let Found::Nowhere { .. } = here {
            here.with_parent()?;
        }
        let mode = kept.mode.unwrap_or(0o644);
        if kept.kind == KeptKind::Dir {
            match before {
                Some(now) if now.kind == Kind::Dir => {
                    if let Found::Here(place) = here {
                        self.out.steps.push(Step::SetMode { at: Spot::of(place), before: now, mode });
                    }
                }
                _ => {
                    self.make_dir(here, before, mode)?;
                    if let Some(Step::MakeDir { owner, .. }) = self.out.steps.last_mut() {
                        *owner = kept.uid.zip(kept.gid);
                    }
                }
            }
            self.out.restored.push(goal.path);
            return Ok(());
        }
        let at = self.parents.spot(here, &mut self.out.steps, self.folder_mode, &self.live.jail);
        let content = self.content(&goal.path, &kept)?;
        let dress = Dress {
            uid: kept.uid.unwrap_or_default(),
            gid: kept.gid.unwrap_or_default(),
            xattrs: kept.xattrs.into_iter().map(|(name, value)| (name, value.0)).collect(),
        };
        let put = Put { at, content, mode, before, dress: Some(dress), built_on_before: true };
        self.out.steps.push(Step::Put(put));
        self.out.restored.push(goal.path);
        Ok(())
    }

    /// A folder where something else, or nothing, stands.
    fn make_dir(&mut self, here: &Found, before: Option<Meta>, mode: u32) -> Result<(), Refusal> {
        if let (Found::Here(place), Some(before)) = (here, before) {
            self.out.steps.push(Step::Remove { at: Spot::of(place), before, bytes: before.size });
        }
        self.parents.folder(here, &mut self.out.steps, (self.folder_mode, mode), &self.live.jail);
        Ok(())
    }

    /// The body, checked before anything is changed.
    fn content(&self, path: &str, kept: &Kept) -> Result<Content, Refusal> {
        if kept.kind == KeptKind::Symlink {
            let target = kept.target.as_deref().map(Spelled::parse);
            let Some(Ok(target)) = target else {
                return Err(damaged(&format!("where the link {path} led is missing")));
            };
            return Ok(Content::Link(target.as_bytes().to_vec()));
        }
        let lost = || damaged(&format!("the pre-image of {path} is missing"));
        let hash = kept.body_hash.clone().ok_or_else(lost)?;
        let file = self
            .host
            .blobs
            .open_checked(&hash)
            .map_err(|fault| damaged(&format!("the pre-image of {path}: {fault}")))?
            .ok_or_else(lost)?;
        let size = kept.size_bytes.unwrap_or_default();
        Ok(Content::File { file, size, hash })
    }
}

fn outside(path: &str) -> Conflict {
    Conflict { path: path.to_owned(), changed_by: "outside".to_owned() }
}

fn hash_at(place: &Place, kind: Kind) -> Result<String, Refusal> {
    hash_of(&place.dir, &place.name, kind).map_err(|why| place.fault("read", why))
}

/// Content, kind, mode and attributes, all as the manifest keeps them.
fn is_kept(place: &Place, now: &Meta, kept: &Kept) -> Result<bool, Refusal> {
    let fail = |why| place.fault("look at", why);
    let same_mode = kept.mode.is_none_or(|mode| mode == now.mode);
    Ok(match (kept.kind, now.kind) {
        (KeptKind::Dir, Kind::Dir) => same_mode,
        (KeptKind::Symlink, Kind::Symlink) => {
            let target =
                rustix::fs::readlinkat(&place.dir, place.name.as_slice(), Vec::new()).map_err(fail)?;
            kept.target.as_deref() == Some(aos_model::path::show(target.as_bytes()).as_str())
        }
        (KeptKind::File, Kind::File) => {
            if !same_mode || kept.size_bytes != Some(now.size) {
                return Ok(false);
            }
            let (file, _) = place.open_file()?;
            let worn = attributes(&file).map_err(fail)?;
            let kept_worn = kept.xattrs.iter().map(|(name, value)| (name.clone(), value.0.clone()));
            let mut worn_sorted = worn;
            worn_sorted.sort();
            kept_worn.eq(worn_sorted.iter().cloned()) && Some(hash_at(place, Kind::File)?) == kept.body_hash
        }
        _ => false,
    })
}
