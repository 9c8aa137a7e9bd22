//! Builds the steps of a restoration in an order in which each step finds the paths that it names.
//!
//! First, current paths are vacated, deepest first: their objects are deleted or moved. Then paths are restored, parents
//! first. A moved object is renamed directly if its target is free and its parent folder does not move; otherwise it is
//! renamed to a temporary name in between. So the path of each step is valid when the step runs. Recovery and the undo
//! of the restoration depend on this, because they know paths only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aos_model::path::RequestPath;
use aos_model::plan_undo::DirAttrs;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_store::{EntryKind, ManifestEntry};

use super::conflict_check::{AffectedPaths, attrs_of};
use super::{DiskRestoration, GoalState, ResolvedGoal, damaged, meta_at};
use crate::disk::FileAttrs;
use crate::disk::Meta;
use crate::disk::TEMPORARY_PREFIX;
use crate::host::Host;
use crate::jail::{Dir, Found, Last, Place, resolve};
use crate::session::OpenSession;
use crate::steps::{Blob, Content, DirAt, Put, Step, StepTarget};

pub(super) struct Builder<'a> {
    host: &'a Host,
    session: &'a Arc<OpenSession>,
    affected: AffectedPaths,
    /// Current paths whose object will be deleted or moved.
    pending: BTreeSet<String>,
    /// Paths whose object was deleted already.
    cleared: BTreeSet<String>,
    /// Folders that one step removes with everything in them, and the bytes in them.
    whole_folders: BTreeMap<String, u64>,
    /// Folders that a step creates or moves, by absolute path.
    placed: BTreeMap<Vec<u8>, Placed>,
    /// Objects under a temporary name, by their target path.
    parked: BTreeMap<String, (StepTarget, Meta)>,
    out: DiskRestoration,
}

#[derive(Clone, Copy)]
enum Placed {
    /// Created by the step with this index.
    Created(usize),
    /// Moved there; its entries were resolved at its old path.
    Moved,
}

/// How the object at a current path is removed from it.
#[derive(Clone, Copy)]
enum Vacate<'t, 'f> {
    Delete(&'f Place, Meta),
    /// Deleted because another object will be placed there.
    MakeRoom(&'f Place, Meta),
    Move(&'t ResolvedGoal<'f>, &'f Place, Meta),
}

impl<'a> Builder<'a> {
    pub(super) fn new(host: &'a Host, session: &'a Arc<OpenSession>, affected: AffectedPaths) -> Builder<'a> {
        Builder {
            host,
            session,
            affected,
            pending: BTreeSet::new(),
            cleared: BTreeSet::new(),
            whole_folders: BTreeMap::new(),
            placed: BTreeMap::new(),
            parked: BTreeMap::new(),
            out: DiskRestoration::default(),
        }
    }

    pub(super) fn build(
        mut self,
        removals: Vec<(&str, &Found)>,
        mut resolved_goals: Vec<ResolvedGoal<'_>>,
    ) -> Result<DiskRestoration, Refusal> {
        resolved_goals.sort_by(|a, b| a.goal.path.cmp(&b.goal.path));
        let mut to_vacate: Vec<(&str, Vacate<'_, '_>)> = Vec::new();
        for (path, found) in removals {
            if let (Some(now), Found::Resolved(place)) = (meta_at(found, path), found) {
                to_vacate.push((path, Vacate::Delete(place, now)));
            }
        }
        for resolved in &resolved_goals {
            if let (Some(now), Found::Resolved(place)) = (resolved.now(), resolved.here)
                && self.must_make_room(resolved, &now)
            {
                to_vacate.push((&resolved.goal.now_at, Vacate::MakeRoom(place, now)));
            }
        }
        for resolved in &resolved_goals {
            if let (GoalState::MovedFrom { path: from, .. }, Found::Resolved(place)) =
                (&resolved.goal.state, resolved.other)
                && self.affected.moving.contains(from)
                && let Some(meta) = place.meta
            {
                to_vacate.push((from, Vacate::Move(resolved, place, meta)));
            }
        }
        to_vacate.sort_by(|(a, _), (b, _)| b.cmp(a));
        self.pending = to_vacate.iter().map(|(path, _)| (*path).to_owned()).collect();
        self.find_whole_folders(&to_vacate)?;
        for (path, vacated) in to_vacate {
            self.vacate(path, vacated)?;
        }
        for resolved in resolved_goals {
            self.restore(&resolved)?;
        }
        Ok(self.finish())
    }

    /// Finds the topmost folders that are removed with everything in them. `to_vacate` is sorted, the deepest first.
    fn find_whole_folders(&mut self, to_vacate: &[(&str, Vacate<'_, '_>)]) -> Result<(), Refusal> {
        for (path, vacated) in to_vacate.iter().rev() {
            let Vacate::Delete(place, meta) = vacated else { continue };
            if let Some(folder) = ancestors(path).find(|above| self.whole_folders.contains_key(*above)) {
                let bytes = self.whole_folders.get_mut(folder).expect("BUG: found above");
                *bytes += if meta.kind == Kind::Dir { 0 } else { meta.size };
            } else if meta.kind == Kind::Dir && !self.affected.has_other_entries(place, path)? {
                let prefix = format!("{path}/");
                let moving = self.affected.moving.range(prefix.clone()..).next();
                if moving.is_none_or(|moving| !moving.starts_with(&prefix)) {
                    self.whole_folders.insert((*path).to_owned(), 0);
                }
            }
        }
        Ok(())
    }

    /// A put replaces only files and links, and a rename needs a free target: everything else is deleted first.
    fn must_make_room(&self, resolved: &ResolvedGoal<'_>, now: &Meta) -> bool {
        if self.affected.moving.contains(&resolved.goal.now_at) {
            return false;
        }
        match &resolved.goal.state {
            GoalState::MovedFrom { .. } => true,
            GoalState::Stored(kept) => (kept.kind == EntryKind::Dir) != (now.kind == Kind::Dir),
            GoalState::Attrs(_) => false,
        }
    }

    fn vacate(&mut self, path: &str, vacated: Vacate<'_, '_>) -> Result<(), Refusal> {
        match vacated {
            Vacate::Delete(place, before) | Vacate::MakeRoom(place, before) => {
                let is_delete = matches!(vacated, Vacate::Delete(..));
                // A folder that we created is kept if others have put entries into it since.
                if is_delete && before.kind == Kind::Dir && self.affected.has_other_entries(place, path)? {
                    return Ok(());
                }
                // A path can be both deleted and needed for another object; one step is enough.
                if !self.cleared.insert(path.to_owned()) {
                    return Ok(());
                }
                if is_delete {
                    self.out.deleted.push(path.to_owned());
                    if ancestors(path).any(|above| self.whole_folders.contains_key(above)) {
                        return Ok(());
                    }
                }
                let with_it = self.whole_folders.get(path).copied().unwrap_or_default();
                let bytes = if before.kind == Kind::Dir { with_it } else { before.size };
                self.out.steps.push(Step::Remove { at: StepTarget::of(place), before, bytes });
            }
            Vacate::Move(resolved, place, before) => {
                let from = StepTarget::of(place);
                self.out.deleted.push(path.to_owned());
                if let Some(to) = self.direct_target(resolved) {
                    self.out.restored.push(resolved.goal.path.clone());
                    return self.move_into_place(resolved, from, before, to);
                }
                let parked = self.temporary_target(path)?;
                self.parked.insert(resolved.goal.path.clone(), (parked.clone(), before));
                self.out.steps.push(Step::Rename { from, before, to: parked, replaced: None });
            }
        }
        Ok(())
    }

    /// Renames a moved object to its target and restores its attributes there.
    fn move_into_place(
        &mut self,
        resolved: &ResolvedGoal<'_>,
        from: StepTarget,
        before: Meta,
        to: StepTarget,
    ) -> Result<(), Refusal> {
        self.placed.insert(to.absolute.clone(), Placed::Moved);
        self.out.steps.push(Step::Rename { from, before, to: to.clone(), replaced: None });
        match (&resolved.goal.state, resolved.other) {
            (GoalState::MovedFrom { dir_attrs: Some(dir_attrs), .. }, Found::Resolved(place)) => {
                self.set_attrs(place, to, before, dir_attrs)
            }
            _ => Ok(()),
        }
    }

    /// The target of a direct rename: it is free, and its parent folder does not move.
    fn direct_target(&self, resolved: &ResolvedGoal<'_>) -> Option<StepTarget> {
        let goal = &resolved.goal;
        let Found::Resolved(place) = resolved.here else { return None };
        let stays = !ancestors(&goal.path).any(|above| self.pending.contains(above));
        let free = place.meta.is_none() && place.shown == goal.path;
        (free && stays && goal.now_at == goal.path).then(|| StepTarget::of(place))
    }

    /// An unused temporary name in the deepest parent folder that does not move itself.
    fn temporary_target(&self, path: &str) -> Result<StepTarget, Refusal> {
        let above: Vec<&str> = ancestors(path).collect();
        let fixed = above.iter().rev().take_while(|above| !self.pending.contains(**above)).last();
        let text = fixed.copied().unwrap_or(if path.starts_with('/') { "/" } else { "." });
        let found = resolve(&self.session.jail, text, Last::NoLinks)?.found;
        let (folder, _) = found.existing()?;
        let dir = if folder.is_root() {
            folder.dir.clone().into()
        } else {
            let opened = folder.open_dir().map_err(|why| folder.refusal("open", why))?;
            DirAt::Pinned(Dir::Opened(Arc::new(opened)))
        };
        let random = (self.host.machine.random)();
        let name = [TEMPORARY_PREFIX, format!("aside-{random:x}").as_bytes()].concat();
        let absolute = [folder.absolute.as_slice(), b"/", &name].concat();
        let shown = self.session.jail.display(&absolute);
        Ok(StepTarget { dir, name, shown, absolute })
    }

    fn restore(&mut self, resolved: &ResolvedGoal<'_>) -> Result<(), Refusal> {
        let goal = &resolved.goal;
        match &goal.state {
            GoalState::MovedFrom { dir_attrs, .. } => match (self.parked.remove(&goal.path), dir_attrs) {
                (Some((from, before)), _) => {
                    let to = self.target(resolved)?;
                    self.move_into_place(resolved, from, before, to)?;
                }
                (None, Some(dir_attrs)) if resolved.incoming_meta().is_none() => {
                    self.restore_attrs(resolved, dir_attrs)?;
                }
                (None, _) => return Ok(()),
            },
            GoalState::Attrs(dir_attrs) => self.restore_attrs(resolved, dir_attrs)?,
            GoalState::Stored(kept) if kept.kind == EntryKind::Dir => self.restore_folder(resolved, kept)?,
            GoalState::Stored(kept) => self.put(resolved, kept)?,
        }
        self.out.restored.push(goal.path.clone());
        Ok(())
    }

    /// The object at the goal's current path, if it is still there after the vacating steps.
    fn remaining_meta(&self, resolved: &ResolvedGoal<'_>) -> Option<Meta> {
        let now_at = &resolved.goal.now_at;
        resolved.now().filter(|_| !self.was_vacated(now_at))
    }

    fn restore_attrs(&mut self, resolved: &ResolvedGoal<'_>, dir_attrs: &DirAttrs) -> Result<(), Refusal> {
        let (Some(before), Found::Resolved(place)) = (self.remaining_meta(resolved), resolved.here) else {
            return Ok(());
        };
        let at = self.target(resolved)?;
        self.set_attrs(place, at, before, dir_attrs)
    }

    /// Sets the mode and attributes of the folder that was resolved at `place` and is now at `at`.
    fn set_attrs(
        &mut self,
        place: &Place,
        at: StepTarget,
        before: Meta,
        dir_attrs: &DirAttrs,
    ) -> Result<(), Refusal> {
        let now = dir_attrs.xattrs.as_ref().map(|_| attrs_of(place, Kind::Dir)).transpose()?;
        let xattrs = now.zip(dir_attrs.xattrs.clone()).filter(|(now, wanted)| now != wanted);
        if before.mode != dir_attrs.mode || xattrs.is_some() {
            self.out.steps.push(Step::SetMode { at, before, mode: dir_attrs.mode, xattrs });
        }
        Ok(())
    }

    fn restore_folder(&mut self, resolved: &ResolvedGoal<'_>, kept: &ManifestEntry) -> Result<(), Refusal> {
        let mode = kept.mode.unwrap_or_else(|| self.folder_mode());
        if self.remaining_meta(resolved).is_some() {
            return self.restore_attrs(resolved, &DirAttrs { mode, xattrs: Some(kept.xattrs.clone()) });
        }
        let at = self.target(resolved)?;
        self.placed.insert(at.absolute.clone(), Placed::Created(self.out.steps.len()));
        self.out.steps.push(Step::MakeDir { at, mode, attrs: Some(attrs_from(kept)) });
        Ok(())
    }

    fn put(&mut self, resolved: &ResolvedGoal<'_>, kept: &ManifestEntry) -> Result<(), Refusal> {
        let before = self.remaining_meta(resolved);
        let at = self.target(resolved)?;
        let content = self.content(&resolved.goal.path, kept)?;
        let mode = kept.mode.unwrap_or(0o644);
        let put = Put { at, content, mode, before, attrs: Some(attrs_from(kept)), built_on_before: true };
        self.out.steps.push(Step::Put(put));
        Ok(())
    }

    fn folder_mode(&self) -> u32 {
        0o777 & !self.host.machine.umask
    }

    /// The step target of a goal, under its final path. Creates missing parent folders.
    fn target(&mut self, resolved: &ResolvedGoal<'_>) -> Result<StepTarget, Refusal> {
        let absolute = self.absolute(&resolved.goal.path)?;
        let slashes: Vec<usize> =
            absolute.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(i, _)| i).collect();
        let nearest = slashes.iter().rev().find_map(|at| Some((*at, *self.placed.get(&absolute[..*at])?)));
        let (mut dir, start) = match (nearest, resolved.here) {
            (Some((at, Placed::Created(step))), _) => (DirAt::Made(step), at),
            (_, found) if found.display() != resolved.goal.now_at => {
                return Err(Refusal::new(
                    Code::SymlinkNotAllowed,
                    format!(
                        "{}: the path now contains a symbolic link; nothing was changed. Remove the link first",
                        resolved.goal.path
                    ),
                ));
            }
            (_, Found::Resolved(place)) => (place.dir.clone().into(), slashes[slashes.len() - 1]),
            (_, Found::ParentMissing { base, missing, .. }) => {
                let first = slashes[slashes.len() - missing.len()];
                if let Some(blocker) = resolved.blocker().filter(|path| !self.was_vacated(path)) {
                    return Err(Refusal::new(
                        Code::ChangedSince,
                        format!("{blocker} is no longer a folder; nothing was changed. Move it away first"),
                    ));
                }
                (base.dir.clone().into(), first)
            }
            (_, Found::Unresolvable { .. }) => return Err(resolved.here.missing()),
        };
        let mut from = start + 1;
        for end in slashes.into_iter().filter(|at| *at > start) {
            let path = absolute[..end].to_vec();
            let at = StepTarget {
                dir,
                name: path[from..].to_vec(),
                shown: self.session.jail.display(&path),
                absolute: path.clone(),
            };
            let step = self.out.steps.len();
            self.out.steps.push(Step::MakeDir { at, mode: self.folder_mode(), attrs: None });
            self.placed.insert(path, Placed::Created(step));
            (dir, from) = (DirAt::Made(step), end + 1);
        }
        Ok(StepTarget { dir, name: absolute[from..].to_vec(), shown: resolved.goal.path.clone(), absolute })
    }

    /// Whether the object that is now at a path was deleted or moved by earlier steps.
    fn was_vacated(&self, path: &str) -> bool {
        self.cleared.contains(path) || self.affected.moving.contains(path)
    }

    fn absolute(&self, path: &str) -> Result<Vec<u8>, Refusal> {
        let spelled =
            RequestPath::parse(path).map_err(|why| damaged(&format!("the path `{path}`: {why}")))?;
        let bytes = spelled.as_bytes();
        Ok(if spelled.is_absolute() {
            bytes.to_vec()
        } else {
            [self.session.jail.workdir.as_slice(), b"/", bytes].concat()
        })
    }

    /// The content of a goal. Its hash is checked before anything is changed.
    fn content(&self, path: &str, kept: &ManifestEntry) -> Result<Content, Refusal> {
        if kept.kind == EntryKind::Symlink {
            let target = kept.target.as_deref().map(RequestPath::parse);
            let Some(Ok(target)) = target else {
                return Err(damaged(&format!("the target of the link {path} is missing")));
            };
            return Ok(Content::Link(target.as_bytes().to_vec()));
        }
        let lost = || damaged(&format!("the pre-image of {path} is missing"));
        let hash = kept.body_hash.clone().ok_or_else(lost)?;
        let blob = Blob::checked(&self.host.blobs, &hash, kept.size_bytes.unwrap_or_default())
            .map_err(|fault| damaged(&format!("the pre-image of {path}: {fault}")))?;
        Ok(Content::Blob(blob.ok_or_else(lost)?))
    }

    /// Sorts the path lists of the receipt. A folder is listed only if no path below it is.
    fn finish(mut self) -> DiskRestoration {
        let DiskRestoration { restored, deleted, .. } = &mut self.out;
        restored.sort();
        restored.dedup();
        deleted.sort();
        deleted.retain(|path| restored.binary_search(path).is_err());
        let all = std::mem::take(deleted);
        let holds = |folder: &str, next: Option<&String>| {
            next.and_then(|next| next.strip_prefix(folder)).is_some_and(|rest| rest.starts_with('/'))
        };
        for path in &all {
            // The entries of `a` need not follow it directly in byte order: `a-b` sorts before `a/b`.
            let below = all.partition_point(|other| other.as_str() < format!("{path}/").as_str());
            if !holds(path, all.get(below)) {
                deleted.push(path.clone());
            }
        }
        self.out
    }
}

fn attrs_from(kept: &ManifestEntry) -> FileAttrs {
    FileAttrs { owner: kept.uid.zip(kept.gid), xattrs: kept.xattrs.clone() }
}

/// The folders above a path, the nearest first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(slash, _)| &path[..slash]).filter(|above| !above.is_empty())
}
