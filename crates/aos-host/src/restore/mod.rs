//! Restoration of paths on the disk: the steps that return them to an earlier state, all or none.
//!
//! The `undo` module of the model computes the paths and the state our changes left. This module compares that with the
//! current state, loads and checks stored contents, and returns a plan. The plan passes the same stages as any change.

mod build;
mod conflict_check;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aos_model::plan_undo::{DirAttrs, ExpectedImage, Node, PreimageRef, RecordedChange, UndoPlan};
use aos_model::policy::Op;
use aos_model::policy::git::is_git_name;
use aos_model::records::PathRecord;
use aos_model::refusal::{Code, Conflict, Refusal};
use aos_store::{Manifest, ManifestEntry};

use crate::disk::Meta;
use crate::host::Host;
use crate::jail::{Found, Last};
use crate::session::OpenSession;
use crate::steps::Step;
use crate::target::Target;
use build::Builder;
use conflict_check::ConflictCheck;

/// The paths to delete and the paths to restore.
#[derive(Debug)]
pub(crate) struct DiskGoals {
    removals: Vec<Removal>,
    paths: Vec<PathGoal>,
    /// What the session's own commands changed in git folders: protected names are not checked there.
    own_repositories: BTreeSet<String>,
}

/// A path that our changes created.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) path: String,
    expected: Option<Box<ExpectedImage>>,
}

#[derive(Debug)]
pub(super) struct PathGoal {
    /// The earlier path, which is also the target.
    pub(super) path: String,
    /// Where the path, or its parent folder, is now.
    pub(super) now_at: String,
    /// Its parent folder is created by this restoration, so nothing is there yet.
    pub(super) is_new: bool,
    pub(super) state: GoalState,
    /// The state that our changes left at `now_at`.
    pub(super) expected: Option<Box<ExpectedImage>>,
    /// The state that our changes left at the path it is moved from.
    pub(super) expected_there: Option<Box<ExpectedImage>>,
}

impl PathGoal {
    /// The second path of the goal besides `now_at`: the source of a move, or the target.
    fn other(&self) -> Option<&str> {
        let other = if let GoalState::MovedFrom { path, .. } = &self.state { path } else { &self.path };
        (*other != self.now_at).then_some(other.as_str())
    }
}

#[derive(Debug)]
pub(super) enum GoalState {
    Stored(ManifestEntry),
    /// Moved back from the other path. A folder may also get its earlier attributes.
    MovedFrom {
        path: String,
        dir_attrs: Option<DirAttrs>,
    },
    /// At its path already; only its attributes change.
    Attrs(DirAttrs),
}

/// The steps, and the path lists for the receipt.
#[derive(Debug, Default)]
pub(crate) struct DiskRestoration {
    pub(crate) steps: Vec<Step>,
    pub(crate) restored: Vec<String>,
    pub(crate) deleted: Vec<String>,
    pub(crate) conflicts: Vec<Conflict>,
}

impl DiskGoals {
    /// Reads the data needed to undo `touches`, which must be finalized unless this is a preview. With `only`, limited to those paths and paths
    /// below them.
    pub(crate) fn read(
        host: &Host,
        session: &Arc<OpenSession>,
        touches: Vec<RecordedChange>,
        only: Option<&[String]>,
        is_preview: bool,
    ) -> Result<DiskGoals, Refusal> {
        let undo = UndoPlan::of(&touches);
        let mut own_repositories = own_repositories(&touches);
        let removed = removed(&touches);
        drop(touches);
        let mut manifests = Manifests { host, session, is_preview, read: BTreeMap::new() };
        let paths = manifests.paths(&undo)?;
        own_repositories.extend(paths.iter().filter_map(|path| removed_repository(&removed, path)));
        let only =
            only.map(|only| only.iter().map(|path| shown(session, path)).collect::<Result<Vec<_>, _>>());
        let only = only.transpose()?;
        let wanted =
            |path: &str| only.as_ref().is_none_or(|only| only.iter().any(|root| is_or_below(path, root)));
        let moving = moving(&undo);
        let mut goals = Vec::new();
        for path in paths.into_iter().filter(|path| wanted(path)) {
            let Some(state) = manifests.state(&undo, &moving, &path)? else { continue };
            let reached = now_at(&undo, &moving, &path);
            let is_new = reached.is_none();
            let now_at = reached.unwrap_or_else(|| path.clone());
            let expected_there =
                if let GoalState::MovedFrom { path, .. } = &state { state_left(&undo, path) } else { None };
            let expected = if is_new { None } else { state_left(&undo, &now_at) };
            goals.push(PathGoal { path, now_at, is_new, state, expected, expected_there });
        }
        // Where stored content is restored, the goal handles the object that is there now.
        let replaced: BTreeSet<&String> = goals
            .iter()
            .filter(|goal| matches!(goal.state, GoalState::Stored(_)) && !goal.is_new)
            .map(|goal| &goal.now_at)
            .collect();
        let removals = undo.gone.iter().filter(|(path, _)| !replaced.contains(path));
        let removals = removals.filter(|(path, made_at)| wanted(path) || wanted(made_at));
        let removals = removals
            .map(|(path, _)| Removal { path: path.clone(), expected: state_left(&undo, path) })
            .collect();
        Ok(DiskGoals { removals, paths: goals, own_repositories })
    }

    /// The targets of the removals and goals, for the jail and the policy.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> {
        let named = |text: &str, op| match Target::new(text, op, Last::NoLinks) {
            target if self.own_repositories.iter().any(|own| is_or_below(text, own)) => target.unprotected(),
            target => target,
        };
        let removals = self.removals.iter().map(move |removal| named(&removal.path, Op::Remove));
        let paths = self.paths.iter().flat_map(move |goal| {
            [Some(goal.now_at.as_str()), goal.other()]
                .into_iter()
                .flatten()
                .map(move |path| named(path, Op::Write))
        });
        removals.chain(paths)
    }

    pub(crate) fn targets_count(&self) -> usize {
        self.removals.len()
            + self.paths.iter().map(|goal| 1 + usize::from(goal.other().is_some())).sum::<usize>()
    }

    /// Compares with the current state and makes the steps. `found` is in the order of the targets.
    pub(crate) fn plan(
        self,
        host: &Host,
        session: &Arc<OpenSession>,
        found: &[Found],
        force: bool,
    ) -> Result<DiskRestoration, Refusal> {
        let (found_removals, found) = found.split_at(self.removals.len());
        let mut found = found.iter();
        let removals: Vec<(Removal, &Found)> = self.removals.into_iter().zip(found_removals).collect();
        let resolved_goals: Vec<ResolvedGoal<'_>> = self
            .paths
            .into_iter()
            .map(|goal| {
                let here = found.next().expect("BUG: one result per target");
                let other = goal.other().map_or(here, |_| found.next().expect("BUG: one result per target"));
                ResolvedGoal { goal, here, other }
            })
            .collect();
        let check = ConflictCheck::new(host, session, &removals, &resolved_goals);
        let mut wanted = Vec::new();
        let mut conflicts = Vec::new();
        for (removal, found) in removals.iter().filter(|_| !force) {
            if let Some(now) = meta_at(found, &removal.path) {
                conflicts.extend(check.changed(
                    &removal.path,
                    found,
                    Some(now),
                    removal.expected.as_deref(),
                )?);
            }
        }
        for resolved in resolved_goals {
            if check.is_met(&resolved)? {
                continue;
            }
            if !force {
                conflicts.extend(check.conflict(&resolved)?);
            }
            wanted.push(resolved);
        }
        if !conflicts.is_empty() {
            conflicts.sort_by(|a, b| a.path.cmp(&b.path));
            conflicts.dedup();
            return Ok(DiskRestoration { conflicts, ..DiskRestoration::default() });
        }
        let removals = removals.iter().map(|(removal, found)| (removal.path.as_str(), *found)).collect();
        Builder::new(host, session, check.affected).build(removals, wanted)
    }
}

/// What the session's own commands changed in git folders: it was judged by content when it landed, or it is the
/// user's. Of a git folder with another name than `.git`, only one that was made or removed as a whole.
fn own_repositories(touches: &[RecordedChange]) -> BTreeSet<String> {
    let records = || touches.iter().filter(|touch| !touch.explicit).flat_map(|touch| &touch.paths);
    let whole: BTreeSet<&str> = records()
        .filter(|record| record.before.is_none() != record.after.is_none())
        .map(|record| record.path.as_str())
        .collect();
    let named = records().filter(|record| record.path.split('/').any(|name| is_git_name(name.as_bytes())));
    let others =
        whole.iter().filter_map(|path| path.strip_suffix("/HEAD")).filter(|path| whole.contains(path));
    named.map(|record| record.path.clone()).chain(others.map(str::to_owned)).collect()
}

/// What the session's own changes removed. The paths below such a folder are only in its manifest.
fn removed(touches: &[RecordedChange]) -> BTreeSet<String> {
    let records = touches.iter().filter(|touch| !touch.explicit).flat_map(|touch| &touch.paths);
    let is_removed = |record: &&PathRecord| record.before.is_some() && record.after.is_none();
    records.filter(is_removed).map(|record| record.path.clone()).collect()
}

/// The git folder, or the file in its place, that was removed with a folder above it, if `path` is there: that of a
/// worktree, for example.
fn removed_repository(removed: &BTreeSet<String>, path: &str) -> Option<String> {
    let ends = path.match_indices('/').map(|(slash, _)| slash).chain([path.len()]);
    let git = ends
        .map(|end| &path[..end])
        .find(|part| is_git_name(part.rsplit('/').next().unwrap_or_default().as_bytes()))?;
    git.rmatch_indices('/').any(|(slash, _)| removed.contains(&git[..slash])).then(|| git.to_owned())
}

/// A goal with its resolved paths: the current one and, for a move, the source.
pub(super) struct ResolvedGoal<'f> {
    pub(super) goal: PathGoal,
    pub(super) here: &'f Found,
    pub(super) other: &'f Found,
}

impl ResolvedGoal<'_> {
    /// What is at the goal's current path.
    pub(super) fn now(&self) -> Option<Meta> {
        meta_at(self.here, &self.goal.now_at).filter(|_| !self.goal.is_new)
    }

    /// The path of a non-folder where a parent folder of the goal should be.
    pub(super) fn blocker(&self) -> Option<&str> {
        let Found::ParentMissing { base, missing, .. } = self.here else { return None };
        base.meta.filter(|_| !self.goal.is_new)?;
        let slashes = self.goal.now_at.rmatch_indices('/').map(|(slash, _)| slash);
        slashes.take(missing.len() - 1).last().map(|slash| &self.goal.now_at[..slash])
    }

    /// What is at the path that the goal moves from.
    pub(super) fn incoming_meta(&self) -> Option<Meta> {
        match &self.goal.state {
            GoalState::MovedFrom { path, .. } => meta_at(self.other, path),
            GoalState::Stored(_) | GoalState::Attrs(_) => None,
        }
    }
}

/// What is at exactly this path. A path that was resolved through a link does not count.
pub(super) fn meta_at(found: &Found, path: &str) -> Option<Meta> {
    match found {
        Found::Resolved(place) if place.shown == path => place.meta,
        Found::Resolved(_) | Found::ParentMissing { .. } | Found::Unresolvable { .. } => None,
    }
}

/// The state that our changes left at a path. An explicit snapshot is restored whatever is there.
fn state_left(undo: &UndoPlan, path: &str) -> Option<Box<ExpectedImage>> {
    let above = || {
        let mut above = path.rmatch_indices('/').map(|(slash, _)| &path[..slash]);
        above.find_map(|above| undo.expected.get(above)).filter(|above| above.unconditional)
    };
    undo.expected.get(path).or_else(above).cloned().map(Box::new)
}

/// Current paths whose object was at another path before. A path below such a folder moves with it even if it returns
/// to the same path, so the set is computed until it no longer grows.
fn moving(undo: &UndoPlan) -> BTreeSet<&str> {
    let mut moving = BTreeSet::new();
    loop {
        let moved = undo.before.iter().filter_map(|(path, node)| match node {
            Node::Current { path: from, .. } if !stays(undo, &moving, path, from) => Some(from.as_str()),
            Node::Current { .. } | Node::Kept { .. } | Node::Absent => None,
        });
        let more: Vec<&str> = moved.filter(|from| !moving.contains(from)).collect();
        if more.is_empty() {
            return moving;
        }
        moving.extend(more);
    }
}

/// The current location of an earlier path: below a folder that moved, it is where the folder is now. `None` below a
/// folder that has to be created because the current one moves elsewhere.
fn now_at(undo: &UndoPlan, moving: &BTreeSet<&str>, path: &str) -> Option<String> {
    let above = path.rmatch_indices('/').find_map(|(slash, _)| {
        let (ancestor, suffix) = path.split_at(slash);
        Some((ancestor, suffix, undo.before.get(ancestor)?))
    });
    match above {
        Some((_, suffix, Node::Current { path, .. })) => Some(format!("{path}{suffix}")),
        Some((ancestor, suffix, Node::Kept { .. })) => {
            let folder = now_at(undo, moving, ancestor)?;
            let path = format!("{folder}{suffix}");
            let mut above = path.rmatch_indices('/').map(|(slash, _)| &path[..slash]);
            let stays = above.all(|above| above.len() < folder.len() || !moving.contains(above));
            stays.then_some(path)
        }
        Some((_, _, Node::Absent)) | None => Some(path.to_owned()),
    }
}

/// Whether the object now at `from` reaches `path` by the moves of its parent folders alone.
fn stays(undo: &UndoPlan, moving: &BTreeSet<&str>, path: &str, from: &str) -> bool {
    now_at(undo, moving, path).is_some_and(|now_at| now_at == from)
}

/// A path of the request, as receipts show it.
fn shown(session: &Arc<OpenSession>, path: &str) -> Result<String, Refusal> {
    let literal = crate::jail::resolve(&session.jail, path, Last::NoLinks)?.literal;
    Ok(session.jail.display(&literal))
}

pub(crate) fn is_or_below(path: &str, root: &str) -> bool {
    root == "." || path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

struct Manifests<'a> {
    host: &'a Host,
    session: &'a OpenSession,
    is_preview: bool,
    read: BTreeMap<String, Manifest>,
}

impl Manifests<'_> {
    fn get(&mut self, snapshot_id: &str) -> Result<&Manifest, Refusal> {
        if !self.read.contains_key(snapshot_id) {
            let manifest = match self.is_preview {
                true => crate::snapshot::preview_manifest(self.host, self.session, snapshot_id),
                false => self.host.manifests.read(&self.session.id, snapshot_id),
            };
            let manifest = manifest
                .map_err(|fault| damaged(&fault.to_string()))?
                .ok_or_else(|| damaged(&format!("the manifest of {snapshot_id} is missing")))?;
            self.read.insert(snapshot_id.to_owned(), manifest);
        }
        Ok(&self.read[snapshot_id])
    }

    /// All paths that may need a change: the touched ones, and those below stored folders.
    fn paths(&mut self, undo: &UndoPlan) -> Result<BTreeSet<String>, Refusal> {
        let mut paths: BTreeSet<String> = undo.before.keys().cloned().collect();
        for (path, node) in &undo.before {
            if let Node::Kept { preimage, .. } = node {
                let manifest = self.get(&preimage.snapshot_id)?;
                let below =
                    manifest.below(&preimage.name).filter_map(|suffix| suffix.strip_prefix(&preimage.suffix));
                let below = below.filter(|rest| rest.starts_with('/'));
                paths.extend(below.map(|rest| format!("{path}{rest}")));
            }
        }
        Ok(paths)
    }

    /// The wanted state of a path; `None` if nothing has to be done, or if it only has to be empty.
    fn state(
        &mut self,
        undo: &UndoPlan,
        moving: &BTreeSet<&str>,
        path: &str,
    ) -> Result<Option<GoalState>, Refusal> {
        Ok(match undo.at(path) {
            Node::Absent => None,
            Node::Kept { preimage, dir_attrs } => self.kept(&preimage, dir_attrs)?.map(GoalState::Stored),
            Node::Current { path: from, dir_attrs } if stays(undo, moving, path, &from) => {
                dir_attrs.map(GoalState::Attrs)
            }
            // Entries of a moved folder move with it.
            Node::Current { .. } if !undo.before.contains_key(path) => None,
            Node::Current { path, dir_attrs } => Some(GoalState::MovedFrom { path, dir_attrs }),
        })
    }

    /// The stored state of a path; `None` where nothing existed.
    fn kept(
        &mut self,
        preimage: &PreimageRef,
        dir_attrs: Option<DirAttrs>,
    ) -> Result<Option<ManifestEntry>, Refusal> {
        let PreimageRef { snapshot_id, name, path, suffix } = preimage;
        match self.get(snapshot_id)?.kept(name, path, suffix) {
            Some(kept) => {
                let mut kept = kept.clone();
                if let Some(dir_attrs) = dir_attrs {
                    kept.mode = Some(dir_attrs.mode);
                    kept.xattrs = dir_attrs.xattrs.unwrap_or(kept.xattrs);
                }
                Ok(Some(kept))
            }
            // Below a stored folder, an unlisted path did not exist. The folder itself must be listed.
            None if !suffix.is_empty() => Ok(None),
            None => Err(damaged(&format!("the pre-image of {path} is missing or was changed"))),
        }
    }
}

pub(super) fn damaged(why: &str) -> Refusal {
    Refusal::new(Code::PreimageDamaged, format!("{why}; nothing was changed. Run `aos verify` for details"))
}
