//! One folder per session below a parent folder of the store.
//!
//! Three parents are used: `preimages` (files that changes displaced, under names from the journal), `rooms` (the
//! private home and /tmp of commands) and `overlays` (one folder per running command instead of per session).

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::disk;
use crate::fault::Fault;
use crate::rights::own_rights;

/// The parent folder. The host moves files in and out through the descriptors that [`SessionDirs::session`] returns.
#[derive(Debug)]
pub struct SessionDirs {
    dir: OwnedFd,
}

impl SessionDirs {
    pub(crate) fn new(dir: OwnedFd) -> SessionDirs {
        SessionDirs { dir }
    }

    /// Opens the folder of one session, and creates it when it is missing.
    pub fn session(&self, session_id: &str) -> Result<OwnedFd, Fault> {
        let _own = own_rights();
        check_name(session_id)?;
        disk::make_dir(&self.dir, session_id)
    }

    /// Removes the folder of a session with everything in it.
    pub fn drop_session(&self, session_id: &str) -> Result<(), Fault> {
        let _own = own_rights();
        check_name(session_id)?;
        drop_folder(&self.dir, session_id)
    }

    /// The sessions that have a folder here.
    pub fn sessions(&self) -> Result<Vec<String>, Fault> {
        let _own = own_rights();
        let names = names_in_store(&self.dir)?;
        Ok(names
            .into_iter()
            .filter_map(|name| String::from_utf8(name).ok())
            .filter(|name| is_plain_name(name))
            .collect())
    }
}

/// Ids that aos makes are plain names. The check keeps a manipulated journal or home from naming other paths.
pub(crate) fn check_name(id: &str) -> Result<(), Fault> {
    if is_plain_name(id) {
        return Ok(());
    }
    let shown: String = id.chars().take(200).collect();
    Err(Fault::Refused(format!("`{}` is not an id that aos makes", aos_model::text::escape(&shown))))
}

/// Whether `name` is the name of a pre-image: the id of a change, a dot and a number. Other names in the journal are
/// never opened.
pub fn is_preimage_name(name: &str) -> bool {
    let parts = name.split_once('.');
    parts.is_some_and(|(id, number)| {
        is_plain_name(id) && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    })
}

pub(crate) fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

pub(crate) fn names_in_store(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Fault> {
    names_in(dir).map_err(|why| Fault::io("cannot list a folder of AOS_HOME/state", why))
}

/// The names in an open folder, as bytes, in no order.
pub fn names_in(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Removes a folder of the store if it exists.
pub(crate) fn drop_folder(parent: &OwnedFd, name: &str) -> Result<(), Fault> {
    match remove_tree(parent, name.as_bytes()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(why) => Err(Fault::io(format!("cannot remove {name}/"), why)),
    }
}

/// Removes a folder with everything below it, and never follows a link.
///
/// Pre-images and overlays can be user trees of any depth. Each inner folder is first renamed into the top folder, so
/// neither the stack nor the number of open descriptors grows with the depth.
pub fn remove_tree(parent: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    let top = open_for_removal(&parent, name)?;
    let mut moved = 0_u64;
    loop {
        let names = names_in(&top)?;
        if names.is_empty() {
            return rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
        for name in names.iter().filter_map(|name| unlink_unless_dir(&top, name).transpose()) {
            let name = name?;
            let inner = open_for_removal(&top, name)?;
            for below in names_in(&inner)? {
                if unlink_unless_dir(&inner, &below)?.is_some() {
                    // rename(2) of a folder needs write permission on the folder itself when its parent changes.
                    drop(open_for_removal(&inner, &below)?);
                    moved += 1;
                    move_up(&inner, &below, &top, moved)?;
                }
            }
            rustix::fs::unlinkat(&top, name, AtFlags::REMOVEDIR)?;
        }
    }
}

/// Unlinks `name`, or returns it if it is a folder. Linux reports `EISDIR` for a folder, POSIX and some file systems
/// `EPERM`.
fn unlink_unless_dir<'n>(dir: &OwnedFd, name: &'n [u8]) -> Result<Option<&'n [u8]>, Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(Errno::ISDIR | Errno::PERM) => Ok(Some(name)),
        Err(why) => Err(why),
    }
}

/// Opens a folder that is about to be removed. Its mode may forbid its owner to read or write it, so the mode is set
/// first.
fn open_for_removal(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(&dir, name, flags, Mode::empty());
    let opened = open().or_else(|_| {
        let _ = rustix::fs::chmodat(&dir, name, disk::PRIVATE_DIR, AtFlags::empty());
        open()
    })?;
    let _ = rustix::fs::fchmod(&opened, disk::PRIVATE_DIR);
    Ok(opened)
}

/// Moves a folder into `to` under a free name. `RENAME_NOREPLACE` fails with `EEXIST` instead of replacing an entry.
fn move_up(from: &OwnedFd, name: &[u8], to: &OwnedFd, number: u64) -> Result<(), Errno> {
    let mut free = format!(".{number}");
    loop {
        match rustix::fs::renameat_with(from, name, to, free.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => free.push('.'),
            outcome => return outcome,
        }
    }
}
