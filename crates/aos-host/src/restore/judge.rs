//! Judging a restoration: which goals are met already, and whose work would be lost by the others.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use aos_model::acl;
use aos_model::receipt::Kind;
use aos_model::refusal::{Conflict, Refusal};
use aos_model::state::{Attributes, Image, PathRecord};
use aos_model::undo::{Expected, Look};
use aos_store::{Kept, KeptKind};
use rustix::io::Errno;

use super::{Aim, Gone, Task};
use crate::disk::Meta;
use crate::disk::{hash_of, names_in, open_dir, read_xattrs};
use crate::host::Host;
use crate::jail::{Found, Place};
use crate::session::OpenSession;
use crate::snapshot::{self, author};

/// Compares what is with what was left, and finds whose work would be lost.
pub(super) struct Judge<'a> {
    host: &'a Host,
    session: &'a Arc<OpenSession>,
    pub(super) sets: Sets,
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
        let fail = |why| place.refusal("look into", why);
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
    pub(super) fn new(
        host: &'a Host,
        session: &'a Arc<OpenSession>,
        gone: &[(Gone, &Found)],
        tasks: &[Task<'_>],
    ) -> Judge<'a> {
        let removed = gone.iter().map(|(gone, _)| gone.path.clone()).collect();
        let leaving = tasks.iter().filter_map(|task| match &task.goal.aim {
            Aim::From { path, .. } if task.coming().is_some() => Some(path.clone()),
            Aim::From { .. } | Aim::Kept(_) | Aim::Look(_) => None,
        });
        let kept = tasks.iter().filter(|task| matches!(task.goal.aim, Aim::Kept(_)) && !task.goal.is_new);
        let replaced = kept.map(|task| task.goal.now_at.clone()).collect();
        Judge { host, session, sets: Sets { removed, leaving: leaving.collect(), replaced } }
    }

    /// Whether the path already is what it shall be.
    pub(super) fn is_met(&self, task: &Task<'_>) -> Result<bool, Refusal> {
        let goal = &task.goal;
        // What moves away from here will be gone, however well it fits.
        let now = task.now().filter(|_| !self.sets.leaving.contains(&goal.now_at));
        Ok(match &goal.aim {
            Aim::Look(look) => looks(task.here, now, Some(look))?,
            // It went back already: nothing at the other place, and here what was left there.
            Aim::From { look, .. } => {
                let image = goal.expected_there.as_ref().and_then(|expected| expected.image.as_ref());
                task.coming().is_none()
                    && image.is_some()
                    && self.is_as_left(task.here, now, image)?
                    && looks(task.here, now, look.as_ref())?
            }
            Aim::Kept(kept) => match (task.here, now) {
                (Found::Resolved(place), Some(now)) => is_kept(place, &now, kept)?,
                _ => false,
            },
        })
    }

    /// Whose work would be lost, if anybody's.
    pub(super) fn conflict(&self, task: &Task<'_>) -> Result<Option<Conflict>, Refusal> {
        let goal = &task.goal;
        if self.buries_others(task)? {
            return Ok(Some(outside(&goal.now_at)));
        }
        if let Some(blocker) =
            task.blocker().filter(|path| !self.sets.goes(path) && !self.sets.replaced.contains(*path))
        {
            return self.newest(blocker, 0, |record| Ok(record.after.is_some())).map(Some);
        }
        if let Aim::From { path: from, .. } = &goal.aim {
            let coming = self.changed(from, task.other, task.coming(), goal.expected_there.as_deref())?;
            if coming.is_some() {
                return Ok(coming);
            }
        }
        let goes = self.sets.goes(&goal.now_at);
        let now = task.now();
        let moves = matches!(goal.aim, Aim::From { .. });
        if moves && (goes || now.is_none()) {
            return Ok(None);
        }
        if goal.expected.is_none() && (goes || now.is_none_or(|now| now.kind == Kind::Dir)) {
            return Ok(None);
        }
        let changed = self.changed(&goal.now_at, task.here, now, goal.expected.as_deref())?;
        if changed.is_some() || moves {
            return Ok(changed);
        }
        self.dressed_since(task)
    }

    /// Who gave a folder another look since our change left it. Moving it loses nothing; giving it a look does.
    fn dressed_since(&self, task: &Task<'_>) -> Result<Option<Conflict>, Refusal> {
        let Some(Expected { image: Some(left), unconditional: false, seq }) = task.goal.expected.as_deref()
        else {
            return Ok(None);
        };
        let is_folder = task.now().is_some_and(|now| now.kind == Kind::Dir);
        let wears = |image: &Image| {
            looks(task.here, task.now(), Some(&Look { mode: image.mode, xattrs: image.xattrs.clone() }))
        };
        if !is_folder || wears(left)? {
            return Ok(None);
        }
        let fits = |record: &PathRecord| record.after.as_ref().map_or(Ok(false), wears);
        self.newest(&task.goal.now_at, *seq, fits).map(Some)
    }

    /// Who changed a path since our change left it. Of what nobody left there that we know of, nobody knows.
    pub(super) fn changed(
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
            Aim::From { .. } => true,
            Aim::Look(_) => false,
        };
        let is_folder = task.now().is_some_and(|now| now.kind == Kind::Dir);
        match task.here {
            Found::Resolved(place)
                if replaces && is_folder && !self.sets.leaving.contains(&task.goal.now_at) =>
            {
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
        let Found::Resolved(place) = found else { return Ok(false) };
        if now.size != image.size_bytes {
            return Ok(false);
        }
        // Size and time, as a copy keeps them too: a recovery may have brought a copy back. What is known by nothing
        // better only moves, so that nobody's content is lost by it.
        let looks_the_same = image.identity.is_some_and(|id| id.mtime_ns == now.mtime_ns);
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
        for seq in snapshot::seqs_from(self.host, self.session, seq + 1)?.into_iter().rev() {
            for touch in snapshot::touches(self.host, [seq])? {
                let left = touch.paths.iter().rev().find(|record| record.path == path);
                if let Some(record) = left
                    && fits(record)?
                {
                    let by = author(self.host, seq).unwrap_or_else(|| "outside".to_owned());
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
        Err(why) => Err(place.refusal("read", why)),
    }
}

/// Content, kind, mode and attributes, all as the manifest keeps them.
fn is_kept(place: &Place, now: &Meta, kept: &Kept) -> Result<bool, Refusal> {
    let fail = |why| place.refusal("look at", why);
    let same_mode = kept.mode.is_none_or(|mode| mode == now.mode);
    Ok(match (kept.kind, now.kind) {
        (KeptKind::Dir, Kind::Dir) => same_mode && wears(place, now, &kept.xattrs)?,
        (KeptKind::Symlink, Kind::Symlink) => {
            let target = crate::disk::read_link(&place.dir, &place.name).map_err(fail)?;
            kept.target.as_deref() == Some(aos_model::path::show(&target).as_str())
        }
        (KeptKind::File, Kind::File) => {
            if !same_mode || kept.size_bytes != Some(now.size) {
                return Ok(false);
            }
            let hash = hash_at(place, Kind::File)?;
            hash.is_some() && hash == kept.body_hash && wears(place, now, &kept.xattrs)?
        }
        _ => false,
    })
}

/// Whether a folder looks as it shall. What is not there does not look at all.
fn looks(found: &Found, now: Option<Meta>, look: Option<&Look>) -> Result<bool, Refusal> {
    let (Found::Resolved(place), Some(now), Some(look)) = (found, now, look) else { return Ok(true) };
    let worn = look.xattrs.as_ref();
    Ok(now.mode == look.mode && worn.map_or(Ok(true), |worn| wears(place, &now, worn))?)
}

/// Whether a file or a folder has exactly these attributes, as they look under its mode.
fn wears(place: &Place, now: &Meta, kept: &Attributes) -> Result<bool, Refusal> {
    Ok(worn(place, now.kind)? == acl::under_mode(kept, now.mode))
}

pub(super) fn worn(place: &Place, kind: Kind) -> Result<Attributes, Refusal> {
    let fail = |why| place.refusal("look at", why);
    if kind == Kind::Dir {
        return read_xattrs(&place.open_dir().map_err(fail)?).map_err(fail);
    }
    let (file, _) = place.open_file()?;
    read_xattrs(file.file().expect("BUG: what is judged here lies on the disk")).map_err(fail)
}
