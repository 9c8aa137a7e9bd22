//! Opens pre-images whose mode denies it even to their owner, and keeps that mode through a kill.
//!
//! The mode is changed while such a pre-image is open and restored afterwards. A daemon that dies in between would leave
//! the wrong mode, and nothing else has the right one until the manifest is written. So it is noted first, in a file
//! beside the pre-image, with one line `MODE SUFFIX` for each.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::disk::{self, Meta};

/// The modes that parts of one pre-image had before they were opened, by suffix.
pub(super) struct KeptModes<'a> {
    preimages: BorrowedFd<'a>,
    file_name: Vec<u8>,
    /// The file, once something is noted.
    file: Option<OwnedFd>,
    modes: BTreeMap<String, u32>,
    sync: bool,
}

impl<'a> KeptModes<'a> {
    /// Reads what a daemon that died has left.
    pub(super) fn load(
        preimages: BorrowedFd<'a>,
        preimage: &str,
        sync: bool,
    ) -> Result<KeptModes<'a>, Errno> {
        let file_name = format!("{preimage}.modes").into_bytes();
        let file = match disk::open_to_append(preimages, &file_name) {
            Ok(file) => Some(file),
            Err(Errno::NOENT) => None,
            Err(why) => return Err(why),
        };
        let text = file.as_ref().map_or(Ok(Vec::new()), read_to_end)?;
        // The last line may be cut; its mode was not changed yet.
        let text = String::from_utf8_lossy(&text).into_owned();
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let line = |line: &str| {
            let (mode, suffix) = line.split_once(' ')?;
            Some((suffix.to_owned(), u32::from_str_radix(mode, 8).ok()?))
        };
        let modes = whole.lines().filter_map(line).collect();
        Ok(KeptModes { preimages, file_name, file, modes, sync })
    }

    /// The mode of a part as it was displaced.
    pub(super) fn mode_of(&self, suffix: &str, meta: &Meta) -> u32 {
        self.modes.get(suffix).copied().unwrap_or(meta.mode)
    }

    fn note(&mut self, suffix: &str, mode: u32) -> Result<(), Errno> {
        if self.modes.contains_key(suffix) {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(disk::create_new(self.preimages, &self.file_name)?);
        }
        if let Some(file) = &self.file {
            disk::write_all(file, format!("{mode:o} {suffix}\n").as_bytes())?;
            if self.sync {
                disk::sync(file)?;
            }
        }
        self.modes.insert(suffix.to_owned(), mode);
        Ok(())
    }

    /// Every part is closed again and has its mode.
    pub(super) fn remove(self) {
        if self.file.is_some() {
            disk::remove_leftover(self.preimages, &self.file_name);
        }
    }
}

fn read_to_end(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match rustix::io::read(file, buffer.as_mut_slice()) {
            Ok(0) => return Ok(text),
            Ok(n) => text.extend_from_slice(&buffer[..n]),
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
}

/// An open part of a pre-image.
pub(super) struct OpenPreimage {
    pub(super) file: OwnedFd,
    closes_to: Option<u32>,
}

impl OpenPreimage {
    /// `needed` are the owner's permissions to read it.
    pub(super) fn open(
        dir: impl AsFd,
        name: &[u8],
        meta: &Meta,
        needed: u32,
        suffix: &str,
        modes: &mut KeptModes<'_>,
    ) -> Result<OpenPreimage, Errno> {
        let mode = modes.mode_of(suffix, meta);
        let is_closed = is_closed(&Meta { mode, ..*meta }, needed);
        if is_closed {
            modes.note(suffix, mode)?;
            disk::set_mode_at(&dir, name, mode | 0o500)?;
        }
        Ok(OpenPreimage { file: disk::open_file(&dir, name)?, closes_to: is_closed.then_some(mode) })
    }
}

impl Drop for OpenPreimage {
    fn drop(&mut self) {
        if let Some(mode) = self.closes_to
            && let Err(error) = disk::set_mode(&self.file, mode)
        {
            tracing::debug!(%error, "cannot reset the mode of a pre-image");
        }
    }
}

/// Whether a mode denies the owner the needed access.
pub(super) fn is_closed(meta: &Meta, needed: u32) -> bool {
    let is_ours = disk::limited_to_uid().is_some_and(|uid| uid == meta.uid);
    is_ours && meta.mode & needed != needed
}
