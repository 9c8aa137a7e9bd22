//! Giving back what a step displaced although the plan had seen something else there: another process was quicker.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use aos_model::path::is_below;
use rustix::io::Errno;

use super::preimage::store_preimage_at;
use crate::disk::{self, Meta};
use crate::jail::Root;

/// How often another process may interfere while our file is taken out again.
const TRIES: u32 = 1024;

/// Pauses of different lengths between tries, after some without any. Another process that exchanges two names in a loop
/// takes turns with us at the lock of the folder: without pauses it is always one rename ahead.
fn pause(tries: u32) {
    if tries >= 8 {
        std::thread::sleep(Duration::from_micros(u64::from(tries % 13) * 7));
    }
}

/// Takes our new file out again in exchange for what it displaced, which is under the temporary name, so that
/// everything is as if it had never been there. Another process that renames meanwhile may have moved our file; then
/// what was displaced belongs where our file is now.
pub(super) fn take_out(
    roots: &[Arc<Root>],
    (dir, name): (BorrowedFd<'_>, &[u8]),
    temporary: &[u8],
    (file, new): (Option<&OwnedFd>, &Meta),
) -> Result<(), Errno> {
    let swap = |there: BorrowedFd<'_>, name: &[u8]| disk::exchange(dir, temporary, there, name);
    let holds_ours = || {
        Meta::at(dir, temporary)
            .map(|held| held.is_some_and(|held| (held.dev, held.ino) == (new.dev, new.ino)))
    };
    for tries in 0..TRIES {
        pause(tries);
        let moved_on = file.and_then(|file| locate(roots, file));
        let elsewhere = moved_on.as_ref().map(|(dir, name)| (dir.as_fd(), name.as_slice()));
        for (there, name) in [Some((dir, name)), elsewhere].into_iter().flatten() {
            if swap(there, name).is_err() {
                continue;
            }
            if holds_ours()? {
                return Ok(());
            }
            // That file is not ours: it goes back to where it was. If another process removed what we had put
            // there, it meant this file.
            match swap(there, name) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(why) => return Err(why),
            }
        }
        if file.is_some_and(|file| Meta::of(file).is_ok_and(|ours| ours.nlink == 0)) {
            // Another process removed our file, and meant what it displaced.
            return disk::remove_any(dir, temporary);
        }
    }
    Err(Errno::BUSY)
}

/// Where our file is now, as the kernel knows it, if that is inside the roots.
fn locate(roots: &[Arc<Root>], file: &OwnedFd) -> Option<(OwnedFd, Vec<u8>)> {
    let path = disk::path_of(file).ok()?;
    let slash = path.iter().rposition(|b| *b == b'/')?;
    let (parent, name) = (&path[..slash], &path[slash + 1..]);
    roots.iter().find(|root| is_below(parent, &root.path))?;
    let parent: &[u8] = if parent.is_empty() { b"/" } else { parent };
    let dir = disk::hold_dir_at_path(parent).ok()?;
    Some((dir, name.to_vec()))
}

/// Renames what was to be removed back to its name. Where that is taken by now, another process replaced it; it goes to
/// the pre-images.
pub(super) fn rename(
    dir: BorrowedFd<'_>,
    temporary: &[u8],
    name: &[u8],
    preimages: &OwnedFd,
    preimage_name: &str,
    sync: bool,
) -> Result<(), Errno> {
    match disk::rename_noreplace(dir, temporary, dir, name) {
        Err(Errno::EXIST) => store_preimage_at(dir, temporary, preimages, preimage_name, sync),
        renamed => renamed,
    }
}
