//! Taking a finished file over from where a command left it: the file itself where it can be moved, else a copy.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use aos_model::receipt::Warning;
use rustix::fs::{Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Content, Moved, Put};
use crate::disk::Meta;
use crate::disk::{AttrsFrom, apply_metadata, read_xattrs, remove_overlay_xattrs};
use crate::disk::{FileAttrs, copy_content, times_of};

const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Brings the file to its temporary name, complete, with its own time of change.
pub(super) fn take(
    moved: &Moved,
    put: &Put,
    dir: BorrowedFd<'_>,
    temporary: &[u8],
    begun: &mut bool,
) -> Result<(OwnedFd, Meta, Option<Warning>), Errno> {
    let (parent, name) = moved.place()?;
    match rustix::fs::renameat_with(&parent, name, dir, temporary, RenameFlags::NOREPLACE) {
        Ok(()) => {
            *begun = true;
            let file = rustix::fs::openat(dir, temporary, READ, Mode::empty())?;
            remove_overlay_xattrs(&file)?;
            if Meta::of(&file)?.mode != put.mode {
                rustix::fs::fchmod(&file, Mode::from_raw_mode(put.mode))?;
            }
            let meta = Meta::of(&file)?;
            Ok((file, meta, None))
        }
        Err(Errno::XDEV) => {
            let from = rustix::fs::openat(&parent, name, READ, Mode::empty())?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(dir, temporary, flags, Mode::from_raw_mode(0o600))?;
            *begun = true;
            copy_content(&from, &file)?;
            let worn = put.attrs.as_ref().map_or(AttrsFrom::New, AttrsFrom::Given);
            let (_, lost) = apply_metadata(&file, &put.at.shown, put.mode, worn)?;
            rustix::fs::futimens(&file, &times_of(moved.mtime_ns))?;
            let meta = Meta::of(&file)?;
            Ok((file, meta, lost))
        }
        Err(why) => Err(why),
    }
}

impl Moved {
    /// The folder that holds the file, and its name there.
    fn place(&self) -> Result<(OwnedFd, &[u8]), Errno> {
        let slash = self.path.iter().rposition(|b| *b == b'/');
        let (parent, name) = match slash {
            Some(slash) => (&self.path[..slash], &self.path[slash + 1..]),
            None => (b".".as_slice(), self.path.as_slice()),
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat2(self.from.as_fd(), parent, flags, Mode::empty(), resolve)?;
        Ok((dir, name))
    }

    /// The file opened for reading, where it lies now.
    pub(crate) fn open(&self) -> Result<OwnedFd, Errno> {
        let (dir, name) = self.place()?;
        rustix::fs::openat(dir, name, READ, Mode::empty())
    }
}

impl Put {
    /// A finished file in place of whatever stands there, opened here as `file`. It keeps all that it wears.
    pub(crate) fn moved(
        at: super::StepTarget,
        moved: Moved,
        file: &OwnedFd,
        meta: &Meta,
        before: Option<Meta>,
    ) -> Result<Put, Errno> {
        let attrs = FileAttrs { owner: Some((meta.uid, meta.gid)), xattrs: read_xattrs(file)? };
        Ok(Put {
            at,
            content: Content::Moved(moved),
            mode: meta.mode,
            before,
            attrs: Some(attrs),
            built_on_before: false,
        })
    }
}
