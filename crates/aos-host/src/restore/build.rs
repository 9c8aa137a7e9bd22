//! The steps of a restoration, in an order in which each finds the tree as it expects it.
//!
//! First everything that goes or leaves, from the deepest path up: those are paths as they are now. Then everything
//! that comes, from the top down: those are paths as they shall be. What moves goes straight to its place where that
//! is free and stays where it is; else it waits aside in between. So the path of each step is the right one at its
//! moment, for recovery, which knows paths alone, and for whoever takes the restoration back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aos_model::path::Spelled;
use aos_model::receipt::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::undo::Look;
use aos_store::{Kept, KeptKind};

use super::judge::{Sets, worn};
use super::{Aim, DiskRestoration, Task, damaged, standing};
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
    sets: Sets,
    /// Paths as they are now that something goes or leaves from.
    pending: BTreeSet<String>,
    /// And those from which it went.
    cleared: BTreeSet<String>,
    /// Folders that go in one piece, and how many bytes with them.
    whole: BTreeMap<String, u64>,
    /// Folders that a step brings, by their absolute path.
    brought: BTreeMap<Vec<u8>, Brought>,
    /// What waits aside, by where it shall go.
    aside: BTreeMap<String, (StepTarget, Meta)>,
    out: DiskRestoration,
}

#[derive(Clone, Copy)]
enum Brought {
    /// Made by the step of this index.
    Made(usize),
    /// Moved there: what is in it was found through where it was.
    Moved,
}

/// Something that goes or leaves.
#[derive(Clone, Copy)]
enum Going<'t, 'f> {
    Away(&'f Place, Meta),
    /// It stands where something else will stand.
    Room(&'f Place, Meta),
    ToItsPlace(&'t Task<'f>, &'f Place, Meta),
}

impl<'a> Builder<'a> {
    pub(super) fn new(host: &'a Host, session: &'a Arc<OpenSession>, sets: Sets) -> Builder<'a> {
        Builder {
            host,
            session,
            sets,
            pending: BTreeSet::new(),
            cleared: BTreeSet::new(),
            whole: BTreeMap::new(),
            brought: BTreeMap::new(),
            aside: BTreeMap::new(),
            out: DiskRestoration::default(),
        }
    }

    pub(super) fn build(
        mut self,
        gone: Vec<(&str, &Found)>,
        mut tasks: Vec<Task<'_>>,
    ) -> Result<DiskRestoration, Refusal> {
        tasks.sort_by(|a, b| a.goal.path.cmp(&b.goal.path));
        let mut going: Vec<(&str, Going<'_, '_>)> = Vec::new();
        for (path, found) in gone {
            if let (Some(now), Found::Resolved(place)) = (standing(found, path), found) {
                going.push((path, Going::Away(place, now)));
            }
        }
        for task in &tasks {
            if let (Some(now), Found::Resolved(place)) = (task.now(), task.here)
                && self.must_make_room(task, &now)
            {
                going.push((&task.goal.now_at, Going::Room(place, now)));
            }
        }
        for task in &tasks {
            if let (Aim::From { path: from, .. }, Found::Resolved(place)) = (&task.goal.aim, task.other)
                && self.sets.leaving.contains(from)
                && let Some(meta) = place.meta
            {
                going.push((from, Going::ToItsPlace(task, place, meta)));
            }
        }
        going.sort_by(|(a, _), (b, _)| b.cmp(a));
        self.pending = going.iter().map(|(path, _)| (*path).to_owned()).collect();
        self.find_whole_folders(&going)?;
        for (path, going) in going {
            self.let_go(path, going)?;
        }
        for task in tasks {
            self.bring(&task)?;
        }
        Ok(self.told())
    }

    /// The uppermost folders that go with all that is in them. `going` is sorted, the deepest first.
    fn find_whole_folders(&mut self, going: &[(&str, Going<'_, '_>)]) -> Result<(), Refusal> {
        for (path, going) in going.iter().rev() {
            let Going::Away(place, meta) = going else { continue };
            if let Some(folder) = ancestors(path).find(|above| self.whole.contains_key(*above)) {
                let bytes = self.whole.get_mut(folder).expect("BUG: found above");
                *bytes += if meta.kind == Kind::Dir { 0 } else { meta.size };
            } else if meta.kind == Kind::Dir && !self.sets.holds_others(place, path)? {
                let prefix = format!("{path}/");
                let leaving = self.sets.leaving.range(prefix.clone()..).next();
                if leaving.is_none_or(|leaving| !leaving.starts_with(&prefix)) {
                    self.whole.insert((*path).to_owned(), 0);
                }
            }
        }
        Ok(())
    }

    /// A folder and what is none do not replace each other, and what comes by a move finds its place empty.
    fn must_make_room(&self, task: &Task<'_>, now: &Meta) -> bool {
        if self.sets.leaving.contains(&task.goal.now_at) {
            return false;
        }
        match &task.goal.aim {
            Aim::From { .. } => true,
            Aim::Kept(kept) => (kept.kind == KeptKind::Dir) != (now.kind == Kind::Dir),
            Aim::Look(_) => false,
        }
    }

    fn let_go(&mut self, path: &str, going: Going<'_, '_>) -> Result<(), Refusal> {
        match going {
            Going::Away(place, before) | Going::Room(place, before) => {
                let away = matches!(going, Going::Away(..));
                // A folder that was made, and in which others put something since, stays.
                if away && before.kind == Kind::Dir && self.sets.holds_others(place, path)? {
                    return Ok(());
                }
                // A path may both be emptied and be wanted for something else.
                if !self.cleared.insert(path.to_owned()) {
                    return Ok(());
                }
                if away {
                    self.out.deleted.push(path.to_owned());
                    if ancestors(path).any(|above| self.whole.contains_key(above)) {
                        return Ok(());
                    }
                }
                let with_it = self.whole.get(path).copied().unwrap_or_default();
                let bytes = if before.kind == Kind::Dir { with_it } else { before.size };
                self.out.steps.push(Step::Remove { at: StepTarget::of(place), before, bytes });
            }
            Going::ToItsPlace(task, place, before) => {
                let from = StepTarget::of(place);
                self.out.deleted.push(path.to_owned());
                if let Some(to) = self.straight(task) {
                    self.out.restored.push(task.goal.path.clone());
                    return self.arrive(task, from, before, to);
                }
                let aside = self.stand_aside(path)?;
                self.aside.insert(task.goal.path.clone(), (aside.clone(), before));
                self.out.steps.push(Step::Rename { from, before, to: aside, replaced: None });
            }
        }
        Ok(())
    }

    /// What moves comes to its place, and looks as it did there.
    fn arrive(
        &mut self,
        task: &Task<'_>,
        from: StepTarget,
        before: Meta,
        to: StepTarget,
    ) -> Result<(), Refusal> {
        self.brought.insert(to.absolute.clone(), Brought::Moved);
        self.out.steps.push(Step::Rename { from, before, to: to.clone(), replaced: None });
        match (&task.goal.aim, task.other) {
            (Aim::From { look: Some(look), .. }, Found::Resolved(place)) => {
                self.look(place, to, before, look)
            }
            _ => Ok(()),
        }
    }

    /// The place that something can go to at once: free, in a folder that stays where it is.
    fn straight(&self, task: &Task<'_>) -> Option<StepTarget> {
        let goal = &task.goal;
        let Found::Resolved(place) = task.here else { return None };
        let stays = !ancestors(&goal.path).any(|above| self.pending.contains(above));
        let free = place.meta.is_none() && place.shown == goal.path;
        (free && stays && goal.now_at == goal.path).then(|| StepTarget::of(place))
    }

    /// A name that nobody uses, in the deepest folder above the path that is not on the move itself.
    fn stand_aside(&self, path: &str) -> Result<StepTarget, Refusal> {
        let above: Vec<&str> = ancestors(path).collect();
        let finalized = above.iter().rev().take_while(|above| !self.pending.contains(**above)).last();
        let text = finalized.copied().unwrap_or(if path.starts_with('/') { "/" } else { "." });
        let found = resolve(&self.session.jail, text, Last::NoLinks)?.found;
        let (folder, _) = found.existing()?;
        let dir = if folder.is_root() {
            folder.dir.clone()
        } else {
            let opened = folder.open_dir().map_err(|why| folder.refusal("open", why))?;
            Dir::Opened(Arc::new(opened))
        };
        let random = (self.host.machine.random)();
        let name = [TEMPORARY_PREFIX, format!("aside-{random:x}").as_bytes()].concat();
        let absolute = [folder.absolute.as_slice(), b"/", &name].concat();
        let shown = self.session.jail.display(&absolute);
        Ok(StepTarget { dir: DirAt::Pinned(dir), name, shown, absolute })
    }

    fn bring(&mut self, task: &Task<'_>) -> Result<(), Refusal> {
        let goal = &task.goal;
        match &goal.aim {
            Aim::From { look, .. } => match (self.aside.remove(&goal.path), look) {
                (Some((from, before)), _) => {
                    let to = self.spot(task)?;
                    self.arrive(task, from, before, to)?;
                }
                (None, Some(look)) if task.coming().is_none() => self.set_look(task, look)?,
                (None, _) => return Ok(()),
            },
            Aim::Look(look) => self.set_look(task, look)?,
            Aim::Kept(kept) if kept.kind == KeptKind::Dir => self.bring_folder(task, kept)?,
            Aim::Kept(kept) => self.put(task, kept)?,
        }
        self.out.restored.push(goal.path.clone());
        Ok(())
    }

    /// What still stands where the goal is now, once everything went that had to.
    fn left_standing(&self, task: &Task<'_>) -> Option<Meta> {
        let now_at = &task.goal.now_at;
        task.now().filter(|_| !self.has_gone(now_at))
    }

    fn set_look(&mut self, task: &Task<'_>, look: &Look) -> Result<(), Refusal> {
        let (Some(before), Found::Resolved(place)) = (self.left_standing(task), task.here) else {
            return Ok(());
        };
        let at = self.spot(task)?;
        self.look(place, at, before, look)
    }

    /// The folder found at `place`, now at `at`, shall look so.
    fn look(&mut self, place: &Place, at: StepTarget, before: Meta, look: &Look) -> Result<(), Refusal> {
        let now = look.xattrs.as_ref().map(|_| worn(place, Kind::Dir)).transpose()?;
        let xattrs = now.zip(look.xattrs.clone()).filter(|(now, wanted)| now != wanted);
        if before.mode != look.mode || xattrs.is_some() {
            self.out.steps.push(Step::SetMode { at, before, mode: look.mode, xattrs });
        }
        Ok(())
    }

    fn bring_folder(&mut self, task: &Task<'_>, kept: &Kept) -> Result<(), Refusal> {
        let mode = kept.mode.unwrap_or_else(|| self.folder_mode());
        if self.left_standing(task).is_some() {
            return self.set_look(task, &Look { mode, xattrs: Some(kept.xattrs.clone()) });
        }
        let at = self.spot(task)?;
        self.brought.insert(at.absolute.clone(), Brought::Made(self.out.steps.len()));
        self.out.steps.push(Step::MakeDir { at, mode, attrs: Some(apply_metadata(kept)) });
        Ok(())
    }

    fn put(&mut self, task: &Task<'_>, kept: &Kept) -> Result<(), Refusal> {
        let before = self.left_standing(task);
        let at = self.spot(task)?;
        let content = self.content(&task.goal.path, kept)?;
        let mode = kept.mode.unwrap_or(0o644);
        let put = Put { at, content, mode, before, attrs: Some(apply_metadata(kept)), built_on_before: true };
        self.out.steps.push(Step::Put(put));
        Ok(())
    }

    fn folder_mode(&self) -> u32 {
        0o777 & !self.host.machine.umask
    }

    /// Where the goal is brought, under the path that it then has. Folders that are missing are made on the way.
    fn spot(&mut self, task: &Task<'_>) -> Result<StepTarget, Refusal> {
        let absolute = self.absolute(&task.goal.path)?;
        let slashes: Vec<usize> =
            absolute.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(i, _)| i).collect();
        let nearest = slashes.iter().rev().find_map(|at| Some((*at, *self.brought.get(&absolute[..*at])?)));
        let (mut dir, start) = match (nearest, task.here) {
            (Some((at, Brought::Made(step))), _) => (DirAt::Made(step), at),
            (_, found) if found.display() != task.goal.now_at => {
                return Err(Refusal::new(
                    Code::SymlinkNotAllowed,
                    format!(
                        "{}: a link leads elsewhere on the way to it now; nothing was touched. Remove the link first",
                        task.goal.path
                    ),
                ));
            }
            (_, Found::Resolved(place)) => (DirAt::Pinned(place.dir.clone()), slashes[slashes.len() - 1]),
            (_, Found::ParentMissing { base, missing, .. }) => {
                let first = slashes[slashes.len() - missing.len()];
                if let Some(blocker) = task.blocker().filter(|path| !self.has_gone(path)) {
                    return Err(Refusal::new(
                        Code::ChangedSince,
                        format!("{blocker} is no folder any more; nothing was touched. Move it away first"),
                    ));
                }
                (DirAt::Pinned(base.dir.clone()), first)
            }
            (_, Found::Unresolvable { .. }) => return Err(task.here.missing()),
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
            self.brought.insert(path, Brought::Made(step));
            (dir, from) = (DirAt::Made(step), end + 1);
        }
        Ok(StepTarget { dir, name: absolute[from..].to_vec(), shown: task.goal.path.clone(), absolute })
    }

    /// Whether what stood at a path now is gone by then.
    fn has_gone(&self, path: &str) -> bool {
        self.cleared.contains(path) || self.sets.leaving.contains(path)
    }

    fn absolute(&self, path: &str) -> Result<Vec<u8>, Refusal> {
        let spelled = Spelled::parse(path).map_err(|why| damaged(&format!("the path `{path}`: {why}")))?;
        let bytes = spelled.as_bytes();
        Ok(if spelled.is_absolute() {
            bytes.to_vec()
        } else {
            [self.session.jail.workdir.as_slice(), b"/", bytes].concat()
        })
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
        let blob = Blob::checked(&self.host.blobs, &hash, kept.size_bytes.unwrap_or_default())
            .map_err(|fault| damaged(&format!("the pre-image of {path}: {fault}")))?;
        Ok(Content::Blob(blob.ok_or_else(lost)?))
    }

    /// The lists for people: what came back, and what is gone. A folder is named where no file below it is.
    fn told(mut self) -> DiskRestoration {
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
            // What lies below a path need not be the very next in the order of bytes (`a-b` comes before `a/b`).
            let below = all.partition_point(|other| other.as_str() < format!("{path}/").as_str());
            if !holds(path, all.get(below)) {
                deleted.push(path.clone());
            }
        }
        self.out
    }
}

fn apply_metadata(kept: &Kept) -> FileAttrs {
    FileAttrs { owner: kept.uid.zip(kept.gid), xattrs: kept.xattrs.clone() }
}

/// The folders above a path, the nearest first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(slash, _)| &path[..slash]).filter(|above| !above.is_empty())
}
