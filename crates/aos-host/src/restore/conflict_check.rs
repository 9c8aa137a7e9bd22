//! Finds the goals of a restoration that are met already, and the later changes that the others would overwrite.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use aos_model::acl;
use aos_model::plan_undo::{DirAttrs, ExpectedImage};
use aos_model::records::{Attributes, Image, Kind, PathRecord};
use aos_model::refusal::{Conflict, Refusal};
use aos_store::{EntryKind, ManifestEntry};
use rustix::io::Errno;

use super::{GoalState, Removal, ResolvedGoal};
use crate::disk::Meta;
use crate::disk::{hash_of, names_in, open_dir, read_xattrs};
use crate::host::Host;
use crate::jail::{Found, Place};
use crate::session::OpenSession;
use crate::snapshot::{self, author};

/// Compares the current state of paths with the state our changes left.
pub(super) struct ConflictCheck<'a> {
    host: &'a Host,
    session: &'a Arc<OpenSession>,
    pub(super) affected: AffectedPaths,
}

/// Current paths that the restoration deletes from or moves from.
#[derive(Debug, Default)]
pub(super) struct AffectedPaths {
    pub(super) removed: BTreeSet<String>,
    pub(super) moving: BTreeSet<String>,
    /// Current paths where stored content replaces what is there.
    replaced: BTreeSet<String>,
}

impl AffectedPaths {
    pub(super) fn is_vacated(&self, path: &str) -> bool {
        self.removed.contains(path) || self.moving.contains(path)
    }

    /// Whether a folder has entries that the restoration neither deletes nor moves.
    pub(super) fn has_other_entries(&self, place: &Place, path: &str) -> Result<bool, Refusal> {
        let fail = |why| place.refusal("list", why);
        let dir = place.open_dir().map_err(fail)?;
        self.has_others_in(&dir, path).map_err(fail)
    }

    fn has_others_in(&self, dir: &OwnedFd, path: &str) -> Result<bool, Errno> {
        for name in names_in(dir)? {
            let below = format!("{path}/{}", aos_model::path::show(&name));
            if self.moving.contains(&below) {
                continue;
            }
            if !self.removed.contains(&below) {
                return Ok(true);
            }
            let is_folder = Meta::at(dir, &name)?.is_some_and(|meta| meta.kind == Kind::Dir);
            if is_folder && self.has_others_in(&open_dir(dir, &name)?, &below)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<'a> ConflictCheck<'a> {
    pub(super) fn new(
        host: &'a Host,
        session: &'a Arc<OpenSession>,
        removals: &[(Removal, &Found)],
        resolved_goals: &[ResolvedGoal<'_>],
    ) -> ConflictCheck<'a> {
        let removed = removals.iter().map(|(removal, _)| removal.path.clone()).collect();
        let moving = resolved_goals.iter().filter_map(|resolved| match &resolved.goal.state {
            GoalState::MovedFrom { path, .. } if resolved.incoming_meta().is_some() => Some(path.clone()),
            GoalState::MovedFrom { .. } | GoalState::Stored(_) | GoalState::Attrs(_) => None,
        });
        let kept = resolved_goals
            .iter()
            .filter(|resolved| matches!(resolved.goal.state, GoalState::Stored(_)) && !resolved.goal.is_new);
        let replaced = kept.map(|resolved| resolved.goal.now_at.clone()).collect();
        ConflictCheck {
            host,
            session,
            affected: AffectedPaths { removed, moving: moving.collect(), replaced },
        }
    }

    /// Whether the path already has the wanted state.
    pub(super) fn is_met(&self, resolved: &ResolvedGoal<'_>) -> Result<bool, Refusal> {
        let goal = &resolved.goal;
        // An object that moves away does not count, even if it matches.
        let now = resolved.now().filter(|_| !self.affected.moving.contains(&goal.now_at));
        Ok(match &goal.state {
            GoalState::Attrs(dir_attrs) => has_dir_attrs(resolved.here, now, Some(dir_attrs))?,
            // Moved back already: nothing at the other path, and this path has what our change left there.
            GoalState::MovedFrom { dir_attrs, .. } => {
                let image = goal.expected_there.as_ref().and_then(|expected| expected.image.as_ref());
                resolved.incoming_meta().is_none()
                    && image.is_some()
                    && self.is_as_left(resolved.here, now, image)?
                    && has_dir_attrs(resolved.here, now, dir_attrs.as_ref())?
            }
            GoalState::Stored(kept) => match (resolved.here, now) {
                (Found::Resolved(place), Some(now)) => is_kept(place, &now, kept)?,
                _ => false,
            },
        })
    }

    /// The later change that this goal would overwrite, if any.
    pub(super) fn conflict(&self, resolved: &ResolvedGoal<'_>) -> Result<Option<Conflict>, Refusal> {
        let goal = &resolved.goal;
        if self.would_delete_others(resolved)? {
            return Ok(Some(outside(&goal.now_at)));
        }
        if let Some(blocker) = resolved
            .blocker()
            .filter(|path| !self.affected.is_vacated(path) && !self.affected.replaced.contains(*path))
        {
            return self.newest(blocker, 0, |record| Ok(record.after.is_some())).map(Some);
        }
        if let GoalState::MovedFrom { path: from, .. } = &goal.state {
            let incoming =
                self.changed(from, resolved.other, resolved.incoming_meta(), goal.expected_there.as_deref())?;
            if incoming.is_some() {
                return Ok(incoming);
            }
        }
        let vacated = self.affected.is_vacated(&goal.now_at);
        let now = resolved.now();
        let moves = matches!(goal.state, GoalState::MovedFrom { .. });
        if moves && (vacated || now.is_none()) {
            return Ok(None);
        }
        if goal.expected.is_none() && (vacated || now.is_none_or(|now| now.kind == Kind::Dir)) {
            return Ok(None);
        }
        let changed = self.changed(&goal.now_at, resolved.here, now, goal.expected.as_deref())?;
        if changed.is_some() || moves {
            return Ok(changed);
        }
        self.attrs_changed_since(resolved)
    }

    /// The call that changed a folder's mode or attributes since our change. Only goals that set them can overwrite it.
    fn attrs_changed_since(&self, resolved: &ResolvedGoal<'_>) -> Result<Option<Conflict>, Refusal> {
        let Some(ExpectedImage { image: Some(left), unconditional: false, seq }) =
            resolved.goal.expected.as_deref()
        else {
            return Ok(None);
        };
        let is_folder = resolved.now().is_some_and(|now| now.kind == Kind::Dir);
        let has_attrs = |image: &Image| {
            has_dir_attrs(
                resolved.here,
                resolved.now(),
                Some(&DirAttrs { mode: image.mode, xattrs: image.xattrs.clone() }),
            )
        };
        if !is_folder || has_attrs(left)? {
            return Ok(None);
        }
        let fits = |record: &PathRecord| record.after.as_ref().map_or(Ok(false), has_attrs);
        self.newest(&resolved.goal.now_at, *seq, fits).map(Some)
    }

    /// The call that changed a path since our change. Without a record of our change it is reported as `outside`.
    pub(super) fn changed(
        &self,
        path: &str,
        found: &Found,
        now: Option<Meta>,
        expected: Option<&ExpectedImage>,
    ) -> Result<Option<Conflict>, Refusal> {
        let Some(expected) = expected else { return Ok(Some(outside(path))) };
        if expected.unconditional || self.is_as_left(found, now, expected.image.as_ref())? {
            return Ok(None);
        }
        self.last_author(path, found, now, expected.seq).map(Some)
    }

    /// Whether the goal deletes or replaces a folder with entries that others created.
    fn would_delete_others(&self, resolved: &ResolvedGoal<'_>) -> Result<bool, Refusal> {
        let replaces = match &resolved.goal.state {
            GoalState::Stored(kept) => kept.kind != EntryKind::Dir,
            GoalState::MovedFrom { .. } => true,
            GoalState::Attrs(_) => false,
        };
        let is_folder = resolved.now().is_some_and(|now| now.kind == Kind::Dir);
        match resolved.here {
            Found::Resolved(place)
                if replaces && is_folder && !self.affected.moving.contains(&resolved.goal.now_at) =>
            {
                self.affected.has_other_entries(place, &resolved.goal.now_at)
            }
            _ => Ok(false),
        }
    }

    /// Whether a path still has the state our change left.
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
        // Size and time match on a copy too: recovery may have restored a copy. Entries without a hash are only moved, so
        // no content is lost if the comparison is wrong.
        let same_size_and_time = image.identity.is_some_and(|id| id.mtime_ns == now.mtime_ns);
        let Some(hash) = &image.hash else { return Ok(same_size_and_time) };
        // The hash decides, because mtime can be set. If we may not read the file, size and time have to do.
        Ok(hash_at(place, now.kind)?.map_or(same_size_and_time, |found| found == *hash))
    }

    /// The newest tool call after `seq` that left the path in its current state, else `outside`.
    fn last_author(
        &self,
        path: &str,
        found: &Found,
        now: Option<Meta>,
        seq: u64,
    ) -> Result<Conflict, Refusal> {
        self.newest(path, seq, |record| self.is_as_left(found, now, record.after.as_ref()))
    }

    /// The newest tool call after `seq` whose record of the path satisfies `fits`.
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

/// The hash of the content; `None` if we may not read it.
fn hash_at(place: &Place, kind: Kind) -> Result<Option<String>, Refusal> {
    match place.folder().and_then(|dir| hash_of(dir, &place.name, kind)) {
        Ok(hash) => Ok(Some(hash)),
        Err(Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(why) => Err(place.refusal("read", why)),
    }
}

/// Whether content, kind, mode and attributes match the manifest.
fn is_kept(place: &Place, now: &Meta, kept: &ManifestEntry) -> Result<bool, Refusal> {
    let fail = |why| place.refusal("stat", why);
    let same_mode = kept.mode.is_none_or(|mode| mode == now.mode);
    Ok(match (kept.kind, now.kind) {
        (EntryKind::Dir, Kind::Dir) => same_mode && has_attrs(place, now, &kept.xattrs)?,
        (EntryKind::Symlink, Kind::Symlink) => {
            let target =
                place.folder().and_then(|dir| crate::disk::read_link(dir, &place.name)).map_err(fail)?;
            kept.target.as_deref() == Some(aos_model::path::show(&target).as_str())
        }
        (EntryKind::File, Kind::File) => {
            if !same_mode || kept.size_bytes != Some(now.size) {
                return Ok(false);
            }
            let hash = hash_at(place, Kind::File)?;
            hash.is_some() && hash == kept.body_hash && has_attrs(place, now, &kept.xattrs)?
        }
        _ => false,
    })
}

/// Whether an existing folder has the given mode and attributes.
fn has_dir_attrs(found: &Found, now: Option<Meta>, dir_attrs: Option<&DirAttrs>) -> Result<bool, Refusal> {
    let (Found::Resolved(place), Some(now), Some(dir_attrs)) = (found, now, dir_attrs) else {
        return Ok(true);
    };
    let wanted = dir_attrs.xattrs.as_ref();
    Ok(now.mode == dir_attrs.mode && wanted.map_or(Ok(true), |wanted| has_attrs(place, &now, wanted))?)
}

/// Whether a file or a folder has exactly these attributes. The mode changes how an ACL reads (see `acl::with_mode`).
fn has_attrs(place: &Place, now: &Meta, kept: &Attributes) -> Result<bool, Refusal> {
    Ok(attrs_of(place, now.kind)? == acl::with_mode(kept, now.mode))
}

pub(super) fn attrs_of(place: &Place, kind: Kind) -> Result<Attributes, Refusal> {
    let fail = |why| place.refusal("stat", why);
    if kind == Kind::Dir {
        return read_xattrs(&place.open_dir().map_err(fail)?).map_err(fail);
    }
    let (file, _) = place.open_file()?;
    read_xattrs(file.file().expect("BUG: only disk files are compared")).map_err(fail)
}
