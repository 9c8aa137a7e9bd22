//! A bank: a folder a session. One holds what mutations displaced, under names that the journal gives; another the
//! private rooms of commands. A third has a folder a running command instead, for what it changes.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::{Fault, disk};

/// The folder of all sessions' folders. The host moves files in and out by folder handle; this only keeps the house.
#[derive(Debug)]
pub struct Bank {
    dir: OwnedFd,
}

impl Bank {
    pub(crate) fn new(dir: OwnedFd) -> Bank {
        Bank { dir }
    }

    /// The folder of one session, made when it is missing.
    pub fn session(&self, session_id: &str) -> Result<OwnedFd, Fault> {
        check_name(session_id)?;
        disk::make_dir(&self.dir, session_id)
    }

    /// Forgets all that a session had here.
    pub fn drop_session(&self, session_id: &str) -> Result<(), Fault> {
        check_name(session_id)?;
        drop_folder(&self.dir, session_id)
    }

    /// The sessions that have a folder here.
    pub fn sessions(&self) -> Result<Vec<String>, Fault> {
        let names = names_in(&self.dir)?;
        Ok(names
            .into_iter()
            .filter_map(|name| String::from_utf8(name).ok())
            .filter(|name| is_plain_name(name))
            .collect())
    }
}

/// Ids that we made are plain names; a home that was tampered with may say otherwise.
pub(crate) fn check_name(id: &str) -> Result<(), Fault> {
    if is_plain_name(id) {
        return Ok(());
    }
    let shown: String = id.chars().take(200).collect();
    Err(Fault::Refused(format!("`{}` is no id of ours", aos_model::text::escape(&shown))))
}

/// A name in the bank is a change's id and a number: nothing else in the journal is followed there.
pub fn is_bank_name(name: &str) -> bool {
    let parts = name.split_once('.');
    parts.is_some_and(|(id, number)| {
        is_plain_name(id) && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    })
}

pub(crate) fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

pub(crate) fn names_in(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Fault> {
    names_of(dir).map_err(|why| Fault::io("cannot list a folder of the store", why))
}

fn names_of(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
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

/// Removes a folder of the store, if it is there.
pub(crate) fn drop_folder(parent: &OwnedFd, name: &str) -> Result<(), Fault> {
    match remove_tree(parent, name.as_bytes()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(why) => Err(Fault::io(format!("cannot remove {name}/"), why)),
    }
}

/// Removes a folder and all below it, never through a link. Pre-images and overlays may be whole trees of the user's,
/// as deep as somebody liked to make them: what lies deeper is brought up first, so that neither the stack nor the
/// number of open folders grows with it.
pub fn remove_tree(parent: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    let top = open_up(&parent, name)?;
    let mut brought_up = 0_u64;
    loop {
        let names = names_of(&top)?;
        if names.is_empty() {
            return rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
        for name in names.iter().filter_map(|name| folder_left(&top, name).transpose()) {
            let name = name?;
            let inner = open_up(&top, name)?;
            for below in names_of(&inner)? {
                if folder_left(&inner, &below)?.is_some() {
                    drop(open_up(&inner, &below)?);
                    brought_up += 1;
                    bring_up(&inner, &below, &top, brought_up)?;
                }
            }
            rustix::fs::unlinkat(&top, name, AtFlags::REMOVEDIR)?;
        }
    }
}

/// Removes a name, unless it is a folder: then it is returned.
fn folder_left<'n>(dir: &OwnedFd, name: &'n [u8]) -> Result<Option<&'n [u8]>, Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(Errno::ISDIR | Errno::PERM) => Ok(Some(name)),
        Err(why) => Err(why),
    }
}

/// A folder that its owner closed to himself is opened up first: it is ours to throw away.
fn open_up(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(&dir, name, flags, Mode::empty());
    let opened = open().or_else(|_| {
        let _ = rustix::fs::chmodat(&dir, name, disk::PRIVATE_DIR, AtFlags::empty());
        open()
    })?;
    let _ = rustix::fs::fchmod(&opened, disk::PRIVATE_DIR);
    Ok(opened)
}

fn bring_up(from: &OwnedFd, name: &[u8], to: &OwnedFd, number: u64) -> Result<(), Errno> {
    let mut free = format!(".{number}");
    loop {
        match rustix::fs::renameat_with(from, name, to, free.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => free.push('.'),
            outcome => return outcome,
        }
    }
}
