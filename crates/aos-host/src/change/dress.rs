//! What a new file or folder wears: mode, owner, ACL and attributes.

use std::os::fd::OwnedFd;

use aos_model::receipt::{Kind, Warning};
use aos_model::request::Base64;
use aos_model::state::Attributes;
use rustix::fs::{Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;

use super::FileAttrs;
use crate::jail::Meta;

/// Whose clothes a new file or folder wears.
#[derive(Clone, Copy)]
pub(super) enum AttrsFrom<'a> {
    /// These, and nothing else.
    Kept(&'a FileAttrs),
    /// Those of the file that it replaces; that one is not open when we may not read it.
    Replaced { before: &'a Meta, old: Option<&'a OwnedFd> },
    /// Whatever its folder gives.
    New,
}

/// Dresses what was just made. Returns how it is now, and what could not be kept.
pub(super) fn dress(
    file: &OwnedFd,
    shown: &str,
    mode: u32,
    worn: AttrsFrom<'_>,
) -> Result<(Meta, Option<Warning>), Errno> {
    let mut lost = Vec::new();
    let (attributes_set, owner) = match worn {
        AttrsFrom::Kept(dress) => (wear(file, &dress.xattrs), dress.owner),
        AttrsFrom::Replaced { before, old } => {
            let copied = old.map_or(Err(Errno::ACCESS), |old| copy_attributes(old, file));
            let owner = (before.kind == Kind::File).then_some((before.uid, before.gid));
            (copied, owner)
        }
        AttrsFrom::New => (Ok(()), None),
    };
    if attributes_set.is_err() {
        lost.push("its extended attributes");
    }
    let mode = Mode::from_raw_mode(mode);
    rustix::fs::fchmod(file, mode)?;
    let mut meta = Meta::of(file)?;
    if let Some((uid, gid)) = owner.filter(|owner| *owner != (meta.uid, meta.gid)) {
        match rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
            // Changing the owner takes mode bits away.
            Ok(()) => rustix::fs::fchmod(file, mode)?,
            Err(_) => lost.push("its owner"),
        }
        meta = Meta::of(file)?;
    }
    let warning = || {
        let lost = lost.join(" and ");
        Warning::new("metadata_not_kept", format!("{shown}: {lost} could not be kept"))
    };
    Ok((meta, (!lost.is_empty()).then(warning)))
}

/// Exactly these: what the folder gave to a new file, an ACL, is taken off again.
pub(super) fn wear(file: &OwnedFd, kept: &Attributes) -> Result<(), Errno> {
    for given in attributes(file)?.into_keys() {
        if !kept.contains_key(&given) {
            rustix::fs::fremovexattr(file, given.as_str())?;
        }
    }
    set_attributes(file, kept)
}

/// Under these an overlay keeps its own notes on a file, which is nobody else's business.
const OVERLAY_ATTRIBUTES: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// Takes an overlay's notes off a file. Where they cannot be taken off, they do no harm.
pub(super) fn undress_overlay(file: &OwnedFd) -> Result<(), Errno> {
    let mut notes = names_of_attributes(file)?;
    notes.retain(|name| OVERLAY_ATTRIBUTES.iter().any(|own| name.starts_with(own)));
    let mode = Meta::of(file)?.mode;
    // Who may not write a file may not take attributes off it; whose it is may open it for the moment.
    let closed = !notes.is_empty() && mode & 0o200 == 0;
    if closed {
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode | 0o200))?;
    }
    for name in notes {
        let _ = rustix::fs::fremovexattr(file, name.as_slice());
    }
    if closed { rustix::fs::fchmod(file, Mode::from_raw_mode(mode)) } else { Ok(()) }
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
pub(crate) fn attributes(file: &OwnedFd) -> Result<Attributes, Errno> {
    let ours = |name: &Vec<u8>| {
        name.starts_with(b"user.") && !name.starts_with(OVERLAY_ATTRIBUTES[1])
            || name.starts_with(b"system.posix_acl_")
    };
    let mut found = Attributes::new();
    for name in names_of_attributes(file)?.into_iter().filter(ours) {
        let mut value = vec![0_u8; rustix::fs::fgetxattr_query(file, name.as_slice())?];
        let size = rustix::fs::fgetxattr(file, name.as_slice(), value.as_mut_slice())?;
        value.truncate(size);
        // A name that is no text cannot stand in a manifest; there is none in practice.
        found.insert(String::from_utf8(name).map_err(|_| Errno::ILSEQ)?, Base64(value));
    }
    Ok(found)
}

fn set_attributes(file: &OwnedFd, attributes: &Attributes) -> Result<(), Errno> {
    attributes.iter().try_for_each(|(name, value)| {
        rustix::fs::fsetxattr(file, name.as_str(), &value.0, XattrFlags::empty())
    })
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
