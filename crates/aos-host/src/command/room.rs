//! How much of the disk a command takes while it runs: its private home and `/tmp`, its overlay, and what is left for all.
//!
//! Free space is cheap to ask for, so it is sampled; what the folders hold is counted only when it moved.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aos_model::capability::ExecCapability;
use aos_model::limits::{FREE_BYTES_MIN, FREE_FILES_MIN};
use aos_model::receipt::Warning;
use aos_store::{Reserve, Space};

use crate::disk::{allocated_bytes, empty};
use crate::exec::ExecConfig;
use crate::overlay::Overlay;

/// How often free space is sampled.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// A count may take this share of the time between two counts.
const COUNT_SHARE: u32 = 5;
/// Less than this is noise of other processes.
const NOISE_BYTES: u64 = 1 << 20;

/// One bounded set of folders.
struct Bound {
    name: &'static str,
    folders: Vec<Arc<OwnedFd>>,
    limit: u64,
    /// What was counted last.
    used: u64,
}

/// The disk of the home.
struct Disk {
    folder: Arc<OwnedFd>,
    reserve: Arc<Reserve>,
}

/// The room on it: all of it, and without what the daemon gave up for itself.
#[derive(Debug, Clone, Copy)]
struct Spaces {
    all: Space,
    for_commands: Space,
}

impl Disk {
    fn spaces(&self) -> Option<Spaces> {
        let (all, for_commands) = (Space::of(&self.folder).ok()?, self.reserve.space().ok()?);
        Some(Spaces { all, for_commands })
    }
}

impl Spaces {
    /// Why there is too little room, when there was as much as in `most`. A command may also fill what was given up.
    fn too_little(&self, most: &Spaces) -> Option<String> {
        too_little(self.all, most.all).or_else(|| too_little(self.for_commands, most.for_commands))
    }

    fn or_more(self, other: &Spaces) -> Spaces {
        let more = |one: Space, other: Space| Space {
            free_bytes: one.free_bytes.max(other.free_bytes),
            free_files: one.free_files.max(other.free_files),
            ..one
        };
        Spaces { all: more(self.all, other.all), for_commands: more(self.for_commands, other.for_commands) }
    }
}

pub(super) struct Room<'a> {
    config: &'a ExecConfig,
    disk: Option<Disk>,
    bounds: Vec<Bound>,
    /// The most room since the command began: others may have made some meanwhile.
    most: Option<Spaces>,
    last: Option<Space>,
    counted: Option<(Space, Instant, Duration)>,
}

impl<'a> Room<'a> {
    pub(super) fn new(
        config: &'a ExecConfig,
        limits: &ExecCapability,
        overlay: Option<&Overlay>,
        reserve: &Arc<Reserve>,
    ) -> Room<'a> {
        let scratch = config.open_private_dirs();
        let disk = scratch.first().map(|folder| Disk { folder: folder.clone(), reserve: reserve.clone() });
        // More than the limit may be there from before, so that a command can remove it.
        let limit = limits.scratch_bytes_max().max(config.scratch_used());
        let mut bounds = vec![Bound { name: "max_scratch_bytes", folders: scratch, limit, used: 0 }];
        if let (Some(limit), Some(overlay)) = (limits.max_overlay_bytes, overlay) {
            let folders = overlay.parts.iter().map(|part| part.upper.clone()).collect();
            bounds.push(Bound { name: "max_overlay_bytes", folders, limit, used: 0 });
        }
        let most = disk.as_ref().and_then(Disk::spaces);
        let start = most.map(|most| most.all);
        bounds[0].used = config.scratch_used();
        let counted = start.map(|start| (start, Instant::now(), Duration::ZERO));
        Room { config, disk, bounds, most, last: start, counted }
    }

    /// After a command that filled the disk has ended: its session gives back its private folders, if they are what filled
    /// it. Otherwise no session could change anything until this one is closed.
    pub(super) fn give_back(&self) -> Option<Warning> {
        let (most, now) = (self.most?, self.disk.as_ref()?.spaces()?);
        now.too_little(&most)?;
        let (most, now) = (most.all, now.all);
        let lost = most.free_bytes.saturating_sub(now.free_bytes);
        let scratch = &self.bounds[0].folders;
        let held: u64 = scratch.iter().map(|folder| allocated_bytes(folder).unwrap_or(lost)).sum();
        let files_lost = most.free_files.saturating_sub(now.free_files);
        if held < lost / 2 && files_lost == 0 {
            return None;
        }
        // The file with the caller's name is written once.
        scratch.iter().for_each(|folder| empty(folder, b".gitconfig"));
        self.config.note_scratch_used(0);
        let why = "the disk of AOS_HOME was full: the private home and /tmp of the session were emptied";
        Some(Warning::new("scratch_emptied", why))
    }

    /// Why the command must end now, if it must. At its end nothing is counted unless a bound may have been reached.
    pub(super) fn exceeded(&mut self, at_end: bool) -> Option<String> {
        let (Some(disk), Some(most)) = (&self.disk, self.most) else { return None };
        let now = disk.spaces()?;
        if let Some(why) = now.too_little(&most) {
            return Some(why);
        }
        self.most = Some(most.or_more(&now));
        let space = now.all;
        let moved = self.last != Some(space);
        self.last = Some(space);
        if moved && self.is_worth_counting(space, at_end) {
            return self.count(space, most.all);
        }
        None
    }

    /// Whether a bound may have been reached since the last count, or the last count was long enough ago.
    fn is_worth_counting(&self, space: Space, at_end: bool) -> bool {
        let Some((counted, at, took)) = self.counted else { return true };
        let taken = counted.free_bytes.saturating_sub(space.free_bytes);
        let is_near = self.bounds.iter().any(|bound| taken >= bound.limit.saturating_sub(bound.used));
        is_near || (!at_end && at.elapsed() >= took * COUNT_SHARE)
    }

    fn count(&mut self, space: Space, most: Space) -> Option<String> {
        let began = Instant::now();
        // Where a folder cannot be read, all that the disk lost meanwhile is taken for this command's.
        let lost = most.free_bytes.saturating_sub(space.free_bytes);
        for bound in &mut self.bounds {
            let counts = bound.folders.iter().map(|folder| allocated_bytes(folder));
            bound.used = counts.sum::<Result<u64, _>>().unwrap_or(lost);
        }
        self.config.note_scratch_used(self.bounds[0].used);
        self.counted = Some((space, Instant::now(), began.elapsed()));
        let over = self.bounds.iter().find(|bound| bound.used > bound.limit)?;
        Some(format!(
            "it was ended: {} bytes are over the capability's `exec.{}` of {}; remove files, or open a session with a higher limit",
            over.used, over.name, over.limit
        ))
    }
}

/// The disk of the state must not fill up. A command that leaves it no worse than it was may run on.
fn too_little(space: Space, start: Space) -> Option<String> {
    let bytes_min = FREE_BYTES_MIN.min(space.total_bytes / 20);
    if space.free_bytes < bytes_min && space.free_bytes + NOISE_BYTES.min(bytes_min / 4) < start.free_bytes {
        return Some(format!(
            "it was ended: {} bytes are free on the disk of AOS_HOME, fewer than the {bytes_min} that are kept free; remove files there, or close sessions",
            space.free_bytes
        ));
    }
    let files_min = FREE_FILES_MIN.min(space.total_files / 20);
    let files_low = space.total_files > 0 && space.free_files < files_min;
    if files_low && space.free_files + files_min / 4 < start.free_files {
        return Some(format!(
            "it was ended: the disk of AOS_HOME has room for {} more files, fewer than the {files_min} that are kept free; remove files there, or close sessions",
            space.free_files
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_fills_up_ends_the_command_that_fills_it() {
        let start =
            Space { free_bytes: 500 << 20, total_bytes: 1000 << 20, total_files: 10_000, free_files: 9_000 };
        assert_eq!(too_little(start, start), None);
        assert!(too_little(Space { free_bytes: 49 << 20, ..start }, start).is_some());
        assert!(too_little(Space { free_files: 300, ..start }, start).is_some());
        let full = Space { free_bytes: 10 << 20, ..start };
        assert_eq!(too_little(full, full), None, "it was as full before");
        assert_eq!(too_little(Space { free_bytes: 30 << 20, ..start }, full), None, "it got better");
    }
}
