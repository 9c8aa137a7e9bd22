//! What a new file wears: mode, owner, ACL and attributes.

use std::os::fd::OwnedFd;

use aos_model::receipt::Warning;
use rustix::fs::{Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;

use super::Put;
use crate::jail::Meta;

/// Dresses the new file as the plan says, else as the file it replaces. Returns how it is now, and what could not be
/// kept.
pub(super) fn dress(
    file: &OwnedFd,
    put: &Put,
    old: Option<&OwnedFd>,
) -> Result<(Meta, Option<Warning>), Errno> {
    let mut lost = Vec::new();
    let worn = match (&put.dress, old) {
        (Some(dress), _) => set_attributes(file, &dress.xattrs),
        (None, Some(old)) => copy_attributes(old, file),
        (None, None) if put.before.is_some() => Err(Errno::ACCESS),
        (None, None) => Ok(()),
    };
    if worn.is_err() {
        lost.push("its extended attributes");
    }
    let mode = Mode::from_raw_mode(put.mode);
    rustix::fs::fchmod(file, mode)?;
    let mut meta = Meta::of(file)?;
    let owner = match &put.dress {
        Some(dress) => Some((dress.uid, dress.gid)),
        None => put.before.map(|before| (before.uid, before.gid)),
    };
    if let Some((uid, gid)) = owner.filter(|owner| *owner != (meta.uid, meta.gid)) {
        match rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
            // Changing the owner takes mode bits away.
            Ok(()) => rustix::fs::fchmod(file, mode)?,
            Err(_) => lost.push("its owner"),
        }
        meta = Meta::of(file)?;
    }
    let warning = || {
        Warning::new(
            "metadata_not_kept",
            format!("{}: {} could not be kept", put.at.shown, lost.join(" and ")),
        )
    };
    Ok((meta, (!lost.is_empty()).then(warning)))
}

/// Under these an overlay keeps its own notes on a file, which is nobody else's business.
const OVERLAY_ATTRIBUTES: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// Takes an overlay's notes off a file. Where they cannot be taken off, they do no harm.
pub(super) fn undress_overlay(file: &OwnedFd) -> Result<(), Errno> {
    for name in names_of_attributes(file)? {
        if OVERLAY_ATTRIBUTES.iter().any(|own| name.starts_with(own)) {
            let _ = rustix::fs::fremovexattr(file, name.as_slice());
        }
    }
    Ok(())
}

fn names_of_attributes(file: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let size = match rustix::fs::flistxattr_query(file) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        outcome => outcome?,
    };
    let mut names = vec![0_u8; size];
    let size = rustix::fs::flistxattr(file, names.as_mut_slice())?;
    Ok(names[..size].split(|b| *b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// User attributes and the ACL. Security labels are the system's to set.
pub(crate) fn attributes(file: &OwnedFd) -> Result<Vec<(String, Vec<u8>)>, Errno> {
    let ours = |name: &Vec<u8>| {
        name.starts_with(b"user.") && !name.starts_with(OVERLAY_ATTRIBUTES[1])
            || name == b"system.posix_acl_access"
    };
    let mut found = Vec::new();
    for name in names_of_attributes(file)?.into_iter().filter(ours) {
        let name = name.as_slice();
        let mut value = vec![0_u8; rustix::fs::fgetxattr_query(file, name)?];
        let size = rustix::fs::fgetxattr(file, name, value.as_mut_slice())?;
        value.truncate(size);
        // A name that is no text cannot stand in a manifest; there is none in practice.
        found.push((String::from_utf8(name.to_vec()).map_err(|_| Errno::ILSEQ)?, value));
    }
    Ok(found)
}

fn set_attributes(file: &OwnedFd, attributes: &[(String, Vec<u8>)]) -> Result<(), Errno> {
    attributes
        .iter()
        .try_for_each(|(name, value)| rustix::fs::fsetxattr(file, name.as_str(), value, XattrFlags::empty()))
}

pub(super) fn copy_attributes(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    set_attributes(to, &attributes(from)?)
}

pub(super) fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}
