//! Turns the planner's steps into steps of a change: pinned folders, what is there now, checked content.
//!
//! Each step names the path that its object has when the step runs. Recovery and the undo of the restoration depend on
//! this, because they know paths only (I15).

use std::collections::BTreeMap;

use aos_model::acl;
use aos_model::records::{Attributes, Image, Kind};
use aos_model::refusal::{Code, Refusal};
use aos_model::undo::{self, Difference, Plan, Source, StoredRef, folder};
use aos_store::{EntryKind, ManifestEntry};

use super::damaged;
use super::world::{DiskWorld, Object, bytes, link_target};
use crate::disk::{FileAttrs, TEMPORARY_PREFIX};
use crate::steps::{Blob, Content, DirAt, Put, Step, StepTarget};

/// The steps from the disk to a plan's goal.
pub(super) fn steps<'a>(world: &DiskWorld<'a>, plan: &Plan<'_, DiskWorld<'a>>) -> Result<Vec<Step>, Refusal> {
    let random = (world.host.machine.random)();
    let prefix = String::from_utf8_lossy(TEMPORARY_PREFIX);
    let aside = |folder: &str, number: usize| format!("{folder}/{prefix}aside-{random:x}-{number}");
    let mut builder = Builder { world, plan, placed: BTreeMap::new(), steps: Vec::new() };
    for step in undo::steps(&plan.goal, &aside) {
        builder.add(step)?;
    }
    world.failure()?;
    Ok(builder.steps)
}

struct Builder<'b, 'a, 'w> {
    world: &'b DiskWorld<'a>,
    plan: &'b Plan<'w, DiskWorld<'a>>,
    /// Folders that steps so far made or moved, by the path that they have then.
    placed: BTreeMap<String, Placed>,
    steps: Vec<Step>,
}

/// Where a folder comes from.
#[derive(Clone)]
enum Placed {
    /// The step with this index makes it.
    Made(usize),
    /// It was at this path before the first step.
    Moved(String),
}

impl Builder<'_, '_, '_> {
    fn add(&mut self, step: undo::Step) -> Result<(), Refusal> {
        let step = match step {
            undo::Step::Remove { path, object } => {
                let before = self.object(&object)?.meta;
                let bytes = if before.kind == Kind::Dir { self.bytes_below(&object) } else { before.size };
                Step::Remove { at: self.target(&path)?, before, bytes }
            }
            undo::Step::Rename { from, to, object } => {
                let before = self.object(&object)?.meta;
                let (from_target, to_target) = (self.target(&from)?, self.target(&to)?);
                self.rename(&from, &to, object);
                Step::Rename { from: from_target, before, to: to_target, replaced: None }
            }
            undo::Step::MakeDir { path, image } => {
                let (at, attrs) = (self.target(&path)?, self.folder_attrs(&path, &image)?);
                self.placed.insert(path, Placed::Made(self.steps.len()));
                let mode =
                    if image == folder() { 0o777 & !self.world.host.machine.umask } else { image.mode };
                Step::MakeDir { at, mode, attrs }
            }
            undo::Step::Put { path, image, content, replaces } => {
                let before =
                    replaces.map(|object| self.object(&object)).transpose()?.map(|object| object.meta);
                let entry = self.entry(&content, &path)?;
                let attrs = Some(attrs_of(&entry, &image));
                let content = self.content(&path, &entry)?;
                let at = self.target(&path)?;
                Step::Put(Put { at, content, mode: image.mode, before, attrs, built_on_before: true })
            }
            undo::Step::SetAttrs { path, object, image } => {
                let Object { meta: before, xattrs } = self.object(&object)?;
                // Where only the mode in an ACL differs, setting the mode is enough.
                let is_other =
                    |(now, wanted): &(Attributes, Attributes)| acl::with_mode(now, image.mode) != *wanted;
                let xattrs = xattrs.zip(image.xattrs).filter(is_other);
                Step::SetMode { at: self.target(&path)?, before, mode: image.mode, xattrs }
            }
        };
        self.steps.push(step);
        Ok(())
    }

    fn object(&self, path: &str) -> Result<Object, Refusal> {
        self.world.object(path).ok_or_else(|| self.changed(path))
    }

    fn changed(&self, path: &str) -> Refusal {
        let shown = self.world.shown(path);
        Refusal::new(
            Code::ChangedSince,
            format!("{shown} changed while the undo was planned; nothing was changed. Try again"),
        )
    }

    /// The bytes of the files below a folder that is removed.
    fn bytes_below(&self, object: &str) -> u64 {
        let prefix = format!("{object}/");
        let below = self.plan.differences.range(prefix.clone()..);
        let below = below.take_while(|(path, _)| path.starts_with(&prefix));
        let size =
            |one: &Difference| one.now.as_ref().filter(|now| now.kind != Kind::Dir).map(|now| now.size_bytes);
        below.filter_map(|(_, one)| size(one)).sum()
    }

    /// What was placed below the old path is below the new one now.
    fn rename(&mut self, from: &str, to: &str, object: String) {
        let prefix = format!("{from}/");
        let below = self.placed.range(prefix.clone()..).map(|(path, _)| path);
        let below: Vec<String> = below.take_while(|path| path.starts_with(&prefix)).cloned().collect();
        for path in below {
            let placed = self.placed.remove(&path).expect("BUG: listed above");
            self.placed.insert(format!("{to}{}", &path[from.len()..]), placed);
        }
        self.placed.remove(from);
        self.placed.insert(to.to_owned(), Placed::Moved(object));
    }

    fn target(&self, path: &str) -> Result<StepTarget, Refusal> {
        let (folder, name) = path.rsplit_once('/').expect("BUG: the path is absolute");
        let dir = self.dir(folder, name)?;
        let absolute = bytes(path)?;
        let slash = absolute.iter().rposition(|b| *b == b'/').expect("BUG: the path is absolute");
        let (name, shown) = (absolute[slash + 1..].to_vec(), self.world.shown(path));
        Ok(StepTarget { dir, name, shown, absolute })
    }

    /// The folder of a name, as it is when the step runs.
    fn dir(&self, folder: &str, name: &str) -> Result<DirAt, Refusal> {
        let ends = folder.rmatch_indices('/').map(|(slash, _)| slash).filter(|slash| *slash > 0);
        let placed = std::iter::once(folder.len())
            .chain(ends)
            .find_map(|end| Some((end, self.placed.get(&folder[..end])?)));
        let on_disk = match placed {
            None => folder.to_owned(),
            Some((end, Placed::Made(step))) if end == folder.len() => return Ok(DirAt::Made(*step)),
            // What is in it is made or moved there, too.
            Some((_, Placed::Made(_))) => return Err(self.changed(folder)),
            Some((end, Placed::Moved(from))) => format!("{from}{}", &folder[end..]),
        };
        let place = self.world.place(&format!("{on_disk}/{name}"))?;
        place.map(|place| place.dir.into()).ok_or_else(|| self.changed(&on_disk))
    }

    fn entry(&self, object: &StoredRef, path: &str) -> Result<ManifestEntry, Refusal> {
        let entry = self.world.entry(object)?;
        entry.ok_or_else(|| damaged(&format!("the pre-image of {} is missing", self.world.shown(path))))
    }

    /// The attributes of a folder that is made: those that it had.
    fn folder_attrs(&self, path: &str, image: &Image) -> Result<Option<FileAttrs>, Refusal> {
        let goal = self.plan.goal.get(path).map(|node| node.source.clone());
        if let Some(Source::Stored(object)) = goal {
            return Ok(Some(attrs_of(&self.entry(&object, path)?, image)));
        }
        let xattrs = image.xattrs.clone().filter(|xattrs| !xattrs.is_empty());
        Ok(xattrs.map(|xattrs| FileAttrs { owner: None, xattrs }))
    }

    /// The content of a stored object. Its hash is checked before anything is changed.
    fn content(&self, path: &str, entry: &ManifestEntry) -> Result<Content, Refusal> {
        let lost = || damaged(&format!("the pre-image of {} is missing", self.world.shown(path)));
        if entry.kind == EntryKind::Symlink {
            return link_target(entry).map(Content::Link).ok_or_else(lost);
        }
        let hash = entry.body_hash.as_deref().ok_or_else(lost)?;
        let blob = Blob::checked(&self.world.host.blobs, hash, entry.size_bytes.unwrap_or_default());
        let fail = |fault| damaged(&format!("the pre-image of {}: {fault}", self.world.shown(path)));
        blob.map_err(fail)?.map(Content::Blob).ok_or_else(lost)
    }
}

/// The owner of a stored object, and the attributes of the goal: they may be from before it was stored.
fn attrs_of(entry: &ManifestEntry, goal: &Image) -> FileAttrs {
    let xattrs = goal.xattrs.clone().unwrap_or_else(|| entry.xattrs.clone());
    FileAttrs { owner: entry.uid.zip(entry.gid), xattrs }
}
