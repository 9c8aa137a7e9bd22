//! Taking steps back: by what the step intents say and what the disk shows. Used after a failed step and by recovery.
//!
//! A path is put back only while it is as our step left it. Otherwise it stays, and its name is returned.

use std::borrow::Borrow;
use std::os::fd::{AsFd, OwnedFd};

use aos_model::path::RequestPath;
use aos_model::records::Kind;
use rustix::io::Errno;

use super::arm::Armed;
use super::hold_open::{Action, OPEN_TO_OWNER};
use super::preimage::{drop_left, store_preimage_at};
use super::step_intent::{At, Content, Intent, Seen, StepIntent};
use crate::disk::{self, Meta, TEMPORARY_PREFIX, hash_of};
use crate::host::Host;
use crate::steps::{Put, Step, StepTarget};

/// Takes back all steps of an armed plan. Returns the paths that had to stay as they are.
pub(crate) fn take_back(host: &Host, armed: &Armed<'_>) -> Vec<String> {
    take_back_first(host, armed, armed.actions.len())
}

/// Takes back the first `count` steps, the last of them first, in the folders that are still open.
pub(super) fn take_back_first(host: &Host, armed: &Armed<'_>, count: usize) -> Vec<String> {
    let sync = host.machine.durability == aos_model::receipt::Durability::Power;
    let (session_id, tool_call_id) = (armed.session.id.as_str(), armed.ids.tool_call.as_deref());
    let Ok(preimages) = armed.session.preimages.dir() else {
        let undone = (0..count).map(|index| (armed.step_intent(index), Ok(false)));
        return not_taken_back(undone, session_id, tool_call_id);
    };
    let undone = (0..count).rev().map(|index| {
        let site = |target: &StepTarget, at: &At| -> Result<Option<Site>, Errno> {
            let dir = match armed.dir(target) {
                Ok(Some(dir)) if !disk::is_unlinked(&dir)? => dir,
                Ok(None) => return Ok(None),
                // A folder that was copied to another disk and back is a new folder.
                Ok(Some(_)) | Err(Errno::NOENT | Errno::STALE) => return Site::find(at),
                Err(why) => return Err(why),
            };
            Ok(Some(Site { dir: disk::open_dir(dir, b".")?, name: target.name.clone() }))
        };
        let intent = armed.step_intent(index);
        let step = match &armed.actions[index] {
            Action::Step { step, .. } => Some(step),
            Action::HoldOpen(_) | Action::Close(_) => None,
        };
        let sites = match (step, &intent) {
            (None, StepIntent::SetMode { at, .. }) => Site::find(at).map(|site| (site, None)),
            (Some(Step::Put(Put { at: target, .. })), StepIntent::Put { at, .. })
            | (Some(Step::Remove { at: target, .. }), StepIntent::Remove { at, .. })
            | (Some(Step::MakeDir { at: target, .. }), StepIntent::MakeDir { at })
            | (Some(Step::SetMode { at: target, .. }), StepIntent::SetMode { at, .. }) => {
                site(target, at).map(|site| (site, None))
            }
            (Some(Step::Rename { from, to, .. }), StepIntent::Rename { from: from_at, to: to_at, .. }) => {
                site(from, from_at).and_then(|from| Ok((from, site(to, to_at)?)))
            }
            _ => unreachable!("BUG: intents are made from the steps, in order"),
        };
        let undone = sites.and_then(|sites| take_back_step(&intent, sites, preimages, sync));
        (intent, undone)
    });
    not_taken_back(undone, session_id, tool_call_id)
}

/// The same from the intent alone, as recovery has it: the folders are found again by their paths.
pub(super) fn take_back_intents(intent: &Intent, preimages: &OwnedFd, sync: bool) -> Vec<String> {
    let undone = begun(&intent.steps).iter().rev().map(|intent| {
        let sites = match intent {
            StepIntent::Put { at, .. }
            | StepIntent::Remove { at, .. }
            | StepIntent::MakeDir { at }
            | StepIntent::SetMode { at, .. } => Site::find(at).map(|at| (at, None)),
            StepIntent::Rename { from, to, .. } => {
                Site::find(from).and_then(|from| Ok((from, Site::find(to)?)))
            }
        };
        (intent, sites.and_then(|sites| take_back_step(intent, sites, preimages, sync)))
    });
    not_taken_back(undone, &intent.session_id, Some(&intent.tool_call_id))
}

/// Removes what the steps of a recorded change left under their temporary names: the pre-images hold copies.
pub(super) fn drop_left_aside(intent: &Intent) -> Result<(), Errno> {
    for step in &intent.steps {
        let site = step.places().next().map_or(Ok(None), Site::find)?;
        let (Some(site), Some(temporary)) = (site, step.temporary()) else { continue };
        drop_left(site.dir.as_fd(), temporary.as_bytes())?;
    }
    Ok(())
}

/// The steps that may have been begun. They were carried out in order: where one's object is still in its place, none
/// after it was, and what is at the targets of those is not theirs.
fn begun(intents: &[StepIntent]) -> &[StepIntent] {
    let in_place = |intent: &StepIntent| {
        let (at, before) = match intent {
            StepIntent::Put { at, before: Some(before), .. }
            | StepIntent::Remove { at, before, .. }
            | StepIntent::Rename { from: at, before, .. } => (at, before),
            StepIntent::Put { before: None, .. }
            | StepIntent::MakeDir { .. }
            | StepIntent::SetMode { .. } => return false,
        };
        let here = Site::find(at).ok().flatten().and_then(|site| site.now().ok().flatten());
        here.is_some_and(|here| before.is_untouched(&here))
    };
    let last = intents.iter().position(in_place);
    &intents[..last.map_or(intents.len(), |last| last + 1)]
}

/// How many of the paths that stayed are logged; the receipt lists more.
const PATHS_LOGGED_MAX: usize = 10;

/// The paths that are not as they were before their steps, sorted. Each step is taken back here, as `undone` is read.
fn not_taken_back(
    undone: impl Iterator<Item = (impl Borrow<StepIntent>, Result<bool, Errno>)>,
    session_id: &str,
    tool_call_id: Option<&str>,
) -> Vec<String> {
    let mut first_error = None;
    let mut stayed: Vec<String> = undone
        .filter(|(_, undone)| *undone != Ok(true))
        .map(|(intent, undone)| {
            first_error = first_error.or(undone.err());
            intent.borrow().display().to_owned()
        })
        .collect();
    stayed.sort();
    stayed.dedup();
    if !stayed.is_empty() {
        tracing::warn!(
            session_id,
            tool_call_id,
            count = stayed.len(),
            paths = ?&stayed[..stayed.len().min(PATHS_LOGGED_MAX)],
            error = first_error.map(tracing::field::display),
            "paths could not be rolled back"
        );
    }
    stayed.truncate(aos_model::limits::RECEIPT_PATHS_MAX);
    stayed
}

impl StepIntent {
    fn display(&self) -> &str {
        match self {
            StepIntent::Put { at, .. }
            | StepIntent::Remove { at, .. }
            | StepIntent::MakeDir { at }
            | StepIntent::SetMode { at, .. }
            | StepIntent::Rename { from: at, .. } => &at.shown,
        }
    }
}

/// `true` when the path is as it was before the step; `false` when another process changed it since.
fn take_back_step(
    intent: &StepIntent,
    (at, to): (Option<Site>, Option<Site>),
    preimages: &OwnedFd,
    sync: bool,
) -> Result<bool, Errno> {
    // Where its folder is not there, a step was not begun: an earlier one, which was not either, brings the folder.
    let not_begun = |kept: &str| Ok(Meta::at(preimages, kept.as_bytes())?.is_none());
    match intent {
        StepIntent::Put { temporary, preimage: kept, before, after, .. } => {
            let Some(site) = at else { return not_begun(kept) };
            let undone = match before {
                None => site.remove_new(temporary, after),
                Some(before) => site.put_back(temporary, preimages, kept, before, after, sync),
            };
            site.finalize(temporary, preimages, kept, undone, sync)
        }
        StepIntent::Remove { temporary, preimage: kept, before, .. } => {
            let Some(site) = at else { return not_begun(kept) };
            let undone = site.bring_back(temporary, preimages, kept, before, sync);
            site.finalize(temporary, preimages, kept, undone, sync)
        }
        StepIntent::MakeDir { .. } => {
            let Some(site) = at else { return Ok(true) };
            match disk::remove_dir(&site.dir, &site.name) {
                // Already removed may mean: by an earlier attempt that ended before the folder was synced.
                Ok(()) | Err(Errno::NOENT) => synced(&site.dir, sync),
                // Another process put something in it, or replaced it by a file: it stays.
                Err(Errno::NOTEMPTY | Errno::NOTDIR) => Ok(false),
                Err(why) => Err(why),
            }
        }
        StepIntent::SetMode { before, after, xattrs, closes, .. } => {
            let Some(site) = at else { return Ok(true) };
            let Some(now) = site.now()? else { return Ok(true) };
            // The step may have been interrupted while it set attributes.
            let is_ours =
                |mode: u32| now.mode == mode || xattrs.is_some() && now.mode == mode | disk::OWNER_WRITES;
            if now.kind != Kind::Dir || !(is_ours(*before) || is_ours(*after)) {
                return Ok(*closes);
            }
            let dir = site.open_closed_dir()?;
            if let Some((before, _)) = xattrs {
                disk::apply_attrs_to_closed(&dir, now.mode, before)?;
            }
            disk::set_mode(&dir, *before)?;
            synced(&dir, sync)
        }
        StepIntent::Rename { temporary, preimage: kept, before, replaced, .. } => {
            let Some(from) = at else { return Ok(false) };
            let Some(to) = to else { return from.was_not_moved(before) };
            let undone = from.move_back(&to, temporary, preimages, kept, before, replaced.as_ref(), sync);
            synced(&to.dir, sync)?;
            from.finalize(temporary, preimages, kept, undone, sync)
        }
    }
}

/// Syncs the folder: the receipt that reports the rollback may survive a power cut on another disk than this one.
fn synced(folder: &OwnedFd, sync: bool) -> Result<bool, Errno> {
    if sync {
        disk::sync(folder)?;
    }
    Ok(true)
}

/// A folder opened again without links, and the name in it.
struct Site {
    dir: OwnedFd,
    name: Vec<u8>,
}

impl Site {
    /// By its path; `None` when the folder is gone.
    fn find(at: &At) -> Result<Option<Site>, Errno> {
        let bytes = |text: &str| {
            RequestPath::parse(text).map(|spelled| spelled.as_bytes().to_vec()).map_err(|_| Errno::INVAL)
        };
        let (path, name) = (bytes(&at.dir)?, bytes(&at.name)?);
        if name.contains(&b'/') || name == b".." || name == b"." {
            return Err(Errno::INVAL);
        }
        match disk::open_dir_at_path(&path) {
            Ok(dir) => Ok(Some(Site { dir, name })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(why) => Err(why),
        }
    }

    fn now(&self) -> Result<Option<Meta>, Errno> {
        Meta::at(&self.dir, &self.name)
    }

    /// A folder whose mode is going to be set, also one that its owner may not read.
    fn open_closed_dir(&self) -> Result<OwnedFd, Errno> {
        match disk::open_dir(&self.dir, &self.name) {
            Err(Errno::ACCESS) => {
                disk::set_mode_of_held(&disk::hold_dir(&self.dir, &self.name)?, OPEN_TO_OWNER)?;
                disk::open_dir(&self.dir, &self.name)
            }
            opened => opened,
        }
    }

    /// The file at the target, when it is the one that the step put.
    fn our_file(&self, after: &Content) -> Result<Option<Meta>, Errno> {
        self.ours_at(&self.name, after)
    }

    /// The file at a name of the folder, when it has the content that the step puts.
    fn ours_at(&self, name: &[u8], after: &Content) -> Result<Option<Meta>, Errno> {
        let Some(meta) = Meta::at(&self.dir, name)? else { return Ok(None) };
        if (meta.kind, meta.size) != (after.kind, after.size) {
            return Ok(None);
        }
        match hash_of(&self.dir, name, meta.kind) {
            Ok(hash) => Ok((hash == after.hash).then_some(meta)),
            // Another process replaced or removed it since the line above.
            Err(Errno::NOENT | Errno::LOOP | Errno::INVAL | Errno::ISDIR | Errno::NXIO) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Removes a new file. It is renamed to the temporary name first, which no other process uses, and checked there
    /// once more before it is removed.
    fn remove_new(&self, temporary: &str, after: &Content) -> Result<bool, Errno> {
        if Meta::at(&self.dir, temporary.as_bytes())?.is_some() || self.now()?.is_none() {
            return Ok(true); // it never got to its place, or is gone already
        }
        let Some(ours) = self.our_file(after)? else { return Ok(false) };
        match disk::rename_noreplace(&self.dir, &self.name, &self.dir, temporary.as_bytes()) {
            Err(Errno::NOENT) => return Ok(true), // gone meanwhile
            renamed => renamed?,
        }
        if Meta::at(&self.dir, temporary.as_bytes())?.is_some_and(|taken| taken.same_version(&ours)) {
            return Ok(true);
        }
        match disk::rename_noreplace(&self.dir, temporary.as_bytes(), &self.dir, &self.name) {
            // Replaced meanwhile by its owner: what is held here is an older version.
            Ok(()) | Err(Errno::EXIST) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// A replaced file: what was displaced comes back from where it is now. It may be another file than the one that
    /// was planned on: an overwrite takes what it finds.
    fn put_back(
        &self,
        temporary: &str,
        preimages: &OwnedFd,
        kept: &str,
        before: &Seen,
        after: &Content,
        sync: bool,
    ) -> Result<bool, Errno> {
        // A file that a command left may have the old one's size and time of change: only its identity is proof.
        if self.now()?.is_some_and(|here| before.is(&here)) {
            return Ok(true);
        }
        let waiting = Meta::at(&self.dir, temporary.as_bytes())?;
        if let Some(ours) = self.our_file(after)? {
            if waiting.is_none() && !self.fetch(temporary, preimages, kept, before, sync)? {
                return Ok(false);
            }
            // `false` when another process removed the path in that moment.
            let swap = || match disk::exchange(&self.dir, temporary.as_bytes(), &self.dir, &self.name) {
                Err(Errno::NOENT) => Ok(false),
                exchanged => exchanged.map(|()| true),
            };
            if swap()? {
                let taken = Meta::at(&self.dir, temporary.as_bytes())?;
                if taken.is_some_and(|taken| taken.same_version(&ours)) {
                    return Ok(true);
                }
                // Another process wrote the path in that moment: its file goes back.
                swap()?;
            }
            return Ok(false);
        }
        if self.now()?.is_some_and(|here| before.is_or_was_copied_to(&here)) {
            return Ok(true);
        }
        match waiting {
            // The path belongs to the last writer.
            Some(meta) if before.is_or_was_copied_to(&meta) => Ok(false),
            // Our own file never got to its place, or was taken out again.
            Some(_) => Ok(self.ours_at(temporary.as_bytes(), after)?.is_some()),
            // Nothing was begun, or another process wrote the path after us.
            None => Ok(Meta::at(preimages, kept.as_bytes())?.is_none()),
        }
    }

    fn bring_back(
        &self,
        temporary: &str,
        preimages: &OwnedFd,
        kept: &str,
        before: &Seen,
        sync: bool,
    ) -> Result<bool, Errno> {
        if self.now()?.is_some_and(|here| before.is_or_was_copied_to(&here)) {
            return self.close(before);
        }
        if !self.fetch(temporary, preimages, kept, before, sync)? {
            return Ok(false);
        }
        match disk::rename_noreplace(&self.dir, temporary.as_bytes(), &self.dir, &self.name) {
            Ok(()) => self.close(before),
            Err(Errno::EXIST) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Takes write permission back from a folder that got it for the moment of a move.
    fn close(&self, before: &Seen) -> Result<bool, Errno> {
        let opened = |here: &Meta| before.is(here) && here.mode == before.mode | disk::OWNER_WRITES;
        if before.kind == Kind::Dir
            && self.now()?.is_some_and(|here| here.mode != before.mode && opened(&here))
        {
            let held = disk::hold_dir(&self.dir, &self.name)?;
            disk::set_mode_of_held(&held, before.mode)?;
        }
        Ok(true)
    }

    #[expect(clippy::too_many_arguments, reason = "an intent's fields, taken apart once")]
    fn move_back(
        &self,
        to: &Site,
        temporary: &str,
        preimages: &OwnedFd,
        kept: &str,
        before: &Seen,
        replaced: Option<&Seen>,
        sync: bool,
    ) -> Result<bool, Errno> {
        if self.now()?.is_some_and(|here| before.is_or_was_copied_to(&here)) {
            return self.close(before);
        }
        if !to.now()?.is_some_and(|there| before.is_or_was_copied_to(&there)) {
            return self.was_not_moved(before);
        }
        let Some(replaced) = replaced else {
            return match disk::move_noreplace(&to.dir, &to.name, &self.dir, &self.name) {
                Ok(()) => self.close(before),
                Err(Errno::EXIST) => Ok(false),
                Err(why) => Err(why),
            };
        };
        // Straight after the exchange the displaced object is at the old name; later it is brought there as one that
        // was removed from it.
        if !self.bring_back(temporary, preimages, kept, replaced, sync)? {
            return Ok(false);
        }
        disk::exchange(&self.dir, &self.name, &to.dir, &to.name)?;
        Ok(true)
    }

    /// Whether what was to be moved never was: it is here, or, where it would have waited aside, has not come yet.
    fn was_not_moved(&self, before: &Seen) -> Result<bool, Errno> {
        Ok(match self.now()? {
            Some(here) => before.is_or_was_copied_to(&here),
            None => self.name.starts_with(TEMPORARY_PREFIX),
        })
    }

    /// Brings the displaced object to the temporary name, from the pre-images when it got that far. A new file that was
    /// still there is removed.
    fn fetch(
        &self,
        temporary: &str,
        preimages: &OwnedFd,
        kept: &str,
        before: &Seen,
        sync: bool,
    ) -> Result<bool, Errno> {
        if Meta::at(&self.dir, temporary.as_bytes())?.is_some_and(|meta| before.is_or_was_copied_to(&meta)) {
            // A copy that was being made of it is not needed any more.
            disk::remove_leftover(preimages, kept.as_bytes());
            return Ok(true);
        }
        disk::remove_leftover(preimages, format!("{kept}.part").as_bytes());
        let Some(meta) = Meta::at(preimages, kept.as_bytes())? else { return Ok(false) };
        disk::remove_any(&self.dir, temporary.as_bytes())?;
        match disk::move_noreplace(preimages, kept.as_bytes(), &self.dir, temporary.as_bytes()) {
            Ok(()) => Ok(true),
            Err(Errno::XDEV) => {
                disk::copy(preimages, kept.as_bytes(), &meta, &self.dir, temporary.as_bytes(), sync)?;
                if sync {
                    disk::sync(&self.dir)?;
                }
                disk::remove_any(preimages, kept.as_bytes())?;
                Ok(true)
            }
            Err(why) => Err(why),
        }
    }

    /// Leaves no temporary name behind, and at `power` makes the folder's state last. When the path could not be put
    /// back, what waits there may be the old object or another process's: it goes to the pre-images.
    fn finalize(
        &self,
        temporary: &str,
        preimages: &OwnedFd,
        kept: &str,
        undone: Result<bool, Errno>,
        sync: bool,
    ) -> Result<bool, Errno> {
        let undone = undone?;
        if undone {
            disk::remove_any(&self.dir, temporary.as_bytes())?;
            // A copy of what is back at its place.
            disk::remove_leftover(preimages, kept.as_bytes());
        } else if Meta::at(&self.dir, temporary.as_bytes())?.is_some() {
            store_preimage_at(self.dir.as_fd(), temporary.as_bytes(), preimages, kept, sync)?;
        }
        disk::remove_any(&self.dir, format!("{temporary}.part").as_bytes())?;
        synced(&self.dir, sync)?;
        Ok(undone)
    }
}

#[cfg(test)]
mod tests;
