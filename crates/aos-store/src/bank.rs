//! A bank: a folder a session. One holds what mutations displaced, under names that the journal gives; another the
//! private rooms of commands. A third has a folder a running command instead, for what it changes.

use std::os::fd::OwnedFd;

use rustix::fs::AtFlags;
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
        match disk::open_dir(&self.dir, session_id) {
            Ok(_) => remove_tree(&self.dir, session_id),
            Err(Fault::Io { source: Errno::NOENT, .. }) => Ok(()),
            Err(fault) => Err(fault),
        }
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
    let mut names = Vec::new();
    for entry in
        rustix::fs::Dir::read_from(dir).map_err(|why| Fault::io("cannot list a folder of the store", why))?
    {
        let entry = entry.map_err(|why| Fault::io("cannot list a folder of the store", why))?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Removes a folder and all below it, never through a link. Pre-images may be whole trees of the user's.
pub(crate) fn remove_tree(parent: &OwnedFd, name: &str) -> Result<(), Fault> {
    let dir = disk::open_dir(parent, name)?;
    empty_dir(&dir)?;
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
        .map_err(|why| Fault::io(format!("cannot remove {name}/"), why))
}

fn empty_dir(dir: &OwnedFd) -> Result<(), Fault> {
    for name in names_in(dir)? {
        match rustix::fs::unlinkat(dir, name.as_slice(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(why) => return Err(Fault::io("cannot remove a pre-image", why)),
        }
        let flags = rustix::fs::OFlags::RDONLY
            | rustix::fs::OFlags::DIRECTORY
            | rustix::fs::OFlags::NOFOLLOW
            | rustix::fs::OFlags::CLOEXEC;
        // A folder that its owner closed to himself is opened up first: it is ours to throw away.
        let _ = rustix::fs::chmodat(dir, name.as_slice(), disk::PRIVATE_DIR, AtFlags::empty());
        let inner = rustix::fs::openat(dir, name.as_slice(), flags, rustix::fs::Mode::empty())
            .map_err(|why| Fault::io("cannot open a pre-image's folder", why))?;
        empty_dir(&inner)?;
        rustix::fs::unlinkat(dir, name.as_slice(), AtFlags::REMOVEDIR)
            .map_err(|why| Fault::io("cannot remove a pre-image's folder", why))?;
    }
    Ok(())
}
