//! The metadata of new files and folders: mode, owner, ACL and extended attributes.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use aos_model::receipt::Warning;
use aos_model::records::{Attributes, Kind};
use aos_model::request::Base64;
use rustix::fs::{Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;

use super::{Meta, OWNER_WRITES};

/// The set-user-id and set-group-id bits of a mode.
pub(crate) const SET_ID_BITS: u32 = 0o6000;

/// Owner, ACL and extended attributes of a file or a folder, all of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileAttrs {
    /// User and group.
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) xattrs: Attributes,
}

/// Where the metadata of a new file or folder comes from.
#[derive(Clone, Copy)]
pub(crate) enum AttrsFrom<'a> {
    /// Exactly these.
    Given(&'a FileAttrs),
    /// From the file that it replaces. `old` is `None` when we may not read that file.
    Replaced { before: &'a Meta, old: Option<&'a OwnedFd> },
    /// The defaults of its folder.
    New,
}

/// Sets the metadata of something just made. Returns its state now, and a warning for what could not be kept.
pub(crate) fn apply_metadata(
    file: &OwnedFd,
    shown: &str,
    mode: u32,
    from: AttrsFrom<'_>,
) -> Result<(Meta, Option<Warning>), Errno> {
    let mut lost = Vec::new();
    let (attributes_set, owner) = match from {
        AttrsFrom::Given(attrs) => (apply_attrs(file, &attrs.xattrs), attrs.owner),
        AttrsFrom::Replaced { before, old } => {
            let copied = old.map_or(Err(Errno::ACCESS), |old| copy_xattrs(old, file));
            let owner = (before.kind == Kind::File).then_some((before.uid, before.gid));
            (copied, owner)
        }
        AttrsFrom::New => (Ok(()), None),
    };
    // The receipt warns of both losses; the log adds why.
    if let Err(error) = attributes_set {
        tracing::debug!(path = shown, %error, "cannot set extended attributes");
        lost.push("its extended attributes");
    }
    let mode = Mode::from_raw_mode(mode);
    rustix::fs::fchmod(file, mode)?;
    let mut meta = Meta::of(file)?;
    if let Some((uid, gid)) = owner.filter(|owner| *owner != (meta.uid, meta.gid)) {
        match rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
            // Changing the owner takes mode bits away.
            Ok(()) => rustix::fs::fchmod(file, mode)?,
            Err(error) => {
                tracing::debug!(path = shown, %error, "cannot set the owner");
                lost.push("its owner");
            }
        }
        meta = Meta::of(file)?;
    }
    let warning = || {
        let lost = lost.join(" and ");
        Warning::new("metadata_not_kept", format!("{shown}: {lost} could not be kept"))
    };
    Ok((meta, (!lost.is_empty()).then(warning)))
}

/// Sets exactly these attributes. A default ACL that the folder gave to a new file is removed.
pub(crate) fn apply_attrs(file: &OwnedFd, kept: &Attributes) -> Result<(), Errno> {
    for given in read_xattrs(file)?.into_keys() {
        if !kept.contains_key(&given) {
            rustix::fs::fremovexattr(file, given.as_str())?;
        }
    }
    set_xattrs(file, kept)
}

/// As [`apply_attrs`], for a folder whose mode may forbid its owner to write. The caller sets the mode afterwards.
pub(crate) fn apply_attrs_to_closed(dir: &OwnedFd, mode: u32, kept: &Attributes) -> Result<(), Errno> {
    match apply_attrs(dir, kept) {
        Err(Errno::ACCESS) => {
            rustix::fs::fchmod(dir, Mode::from_raw_mode(mode | OWNER_WRITES))?;
            apply_attrs(dir, kept)
        }
        outcome => outcome,
    }
}

/// The prefixes under which overlayfs stores its own metadata; it never leaves the overlay.
const OVERLAY_XATTRS: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// Removes overlayfs metadata from a file. Where that fails, it does no harm.
pub(crate) fn remove_overlay_xattrs(file: &OwnedFd) -> Result<(), Errno> {
    let _own = aos_store::own_rights();
    let mut names = xattr_names(file)?;
    names.retain(|name| OVERLAY_XATTRS.iter().any(|own| name.starts_with(own)));
    let mode = Meta::of(file)?.mode;
    // Removing an attribute needs write permission, which the owner can grant for the moment.
    let closed = !names.is_empty() && mode & 0o200 == 0;
    if closed {
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode | 0o200))?;
    }
    for name in names {
        let _ = rustix::fs::fremovexattr(file, name.as_slice());
    }
    if closed { rustix::fs::fchmod(file, Mode::from_raw_mode(mode)) } else { Ok(()) }
}

/// The privileges that a program gets when the file is run.
const FILE_CAPABILITIES: &str = "security.capability";

pub(crate) fn has_file_capabilities(file: &OwnedFd) -> bool {
    rustix::fs::fgetxattr_query(file, FILE_CAPABILITIES).is_ok()
}

/// Takes away the privileges that a program would get when the file is run.
///
/// With the daemon's own rights: a session's user may own a file with capabilities, and may not remove them.
pub(crate) fn remove_file_capabilities(file: &OwnedFd) -> Result<(), Errno> {
    let _own = aos_store::own_rights();
    match rustix::fs::fremovexattr(file, FILE_CAPABILITIES) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        // Only a privileged process may remove them, and may have set them.
        Err(why) if has_file_capabilities(file) => Err(why),
        Err(_) => Ok(()),
    }
}

fn xattr_names(file: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let size = match rustix::fs::flistxattr_query(file) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        outcome => outcome?,
    };
    let mut names = vec![0_u8; size];
    let size = rustix::fs::flistxattr(file, names.as_mut_slice())?;
    Ok(names[..size].split(|b| *b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// User attributes and the ACL. Security labels are set by the system.
pub(crate) fn read_xattrs(file: &OwnedFd) -> Result<Attributes, Errno> {
    let ours = |name: &Vec<u8>| {
        name.starts_with(b"user.") && !name.starts_with(OVERLAY_XATTRS[1])
            || name.starts_with(b"system.posix_acl_")
    };
    let mut found = Attributes::new();
    for name in xattr_names(file)?.into_iter().filter(ours) {
        let mut value = vec![0_u8; rustix::fs::fgetxattr_query(file, name.as_slice())?];
        let size = rustix::fs::fgetxattr(file, name.as_slice(), value.as_mut_slice())?;
        value.truncate(size);
        // A manifest holds UTF-8 only; other attribute names do not occur in practice.
        found.insert(String::from_utf8(name).map_err(|_| Errno::ILSEQ)?, Base64(value));
    }
    Ok(found)
}

fn set_xattrs(file: &OwnedFd, attributes: &Attributes) -> Result<(), Errno> {
    // The ACL last (`system.` is before `user.`): it may forbid the owner to write.
    attributes.iter().rev().try_for_each(|(name, value)| {
        rustix::fs::fsetxattr(file, name.as_str(), &value.0, XattrFlags::empty())
    })
}

pub(crate) fn copy_xattrs(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    set_xattrs(to, &read_xattrs(from)?)
}

/// Copies the ACL of a folder, and the one that new files in it inherit. Most folders have none.
pub(crate) fn copy_acl(from: BorrowedFd<'_>, to: &OwnedFd) {
    let from = format!("/proc/self/fd/{}", from.as_raw_fd());
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        let mut acl = vec![0_u8; 4096];
        if let Ok(length) = rustix::fs::getxattr(from.as_str(), name, acl.as_mut_slice())
            && let Err(error) = rustix::fs::fsetxattr(to, name, &acl[..length], XattrFlags::empty())
        {
            tracing::debug!(name, %error, "cannot copy the ACL of a folder");
        }
    }
}

/// Whether a folder in an overlay's upper layer hides everything that the folder below it holds. `in_user_namespace`:
/// how the overlay was mounted. Without one only `trusted.` attributes are its own, and a command can set the others.
pub(crate) fn is_opaque(upper: &OwnedFd, in_user_namespace: bool) -> Result<bool, Errno> {
    let name = if in_user_namespace { "user.overlay.opaque" } else { "trusted.overlay.opaque" };
    let mut value = [0_u8; 4];
    // Only root sees trusted attributes.
    let _own = aos_store::own_rights();
    match rustix::fs::fgetxattr(upper, name, value.as_mut_slice()) {
        Ok(length) => Ok(value[..length] == *b"y"),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::RANGE) => Ok(false),
        Err(why) => Err(why),
    }
}
