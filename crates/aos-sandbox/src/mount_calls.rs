//! The system calls by which a view is mounted: mount trees by descriptor, paths without symbolic links.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

/// The mount points of this namespace, from mountinfo.
pub(crate) fn mount_points() -> Result<Vec<Vec<u8>>, Errno> {
    let file = rustix::fs::open("/proc/self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        match rustix::io::read(&file, &mut piece)? {
            0 => break,
            n => text.extend_from_slice(&piece[..n]),
        }
    }
    let point = |line: &[u8]| line.split(|b| *b == b' ').nth(4).map(unescape);
    Ok(text.split(|b| *b == b'\n').filter_map(point).collect())
}

/// Decodes the octal escapes (`\040`) of mountinfo.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|d| *first == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match digits {
            Some(digits) => {
                out.push(
                    digits.iter().fold(0_u8, |sum, digit| sum.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

pub(crate) fn tmpfs() -> Result<OwnedFd, Errno> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    file_system("tmpfs", &[("mode", "0755")], flags)
}

pub(crate) fn file_system(
    kind: &str,
    options: &[(&str, &str)],
    flags: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(&context, *name, *value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

pub(crate) fn clone_tree(dir: impl AsFd, path: &[u8], recursive: bool) -> Result<OwnedFd, Errno> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    rustix::mount::open_tree(dir, path, flags)
}

pub(crate) fn attach(tree: &OwnedFd, place: &OwnedFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", place, "", flags)
}

pub(crate) fn move_to(tree: &OwnedFd, dir: BorrowedFd<'_>, path: &[u8]) -> Result<(), Errno> {
    rustix::mount::move_mount(tree, "", dir, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

pub(crate) fn set_read_only(mount: BorrowedFd<'_>) -> Result<(), Errno> {
    set_attributes(mount, MountAttrFlags::MOUNT_ATTR_RDONLY, false)
}

pub(crate) fn set_attributes(
    mount: BorrowedFd<'_>,
    set: MountAttrFlags,
    recursive: bool,
) -> Result<(), Errno> {
    let attributes =
        libc::mount_attr { attr_set: u64::from(set.bits()), attr_clr: 0, propagation: 0, userns_fd: 0 };
    mount_setattr(mount, &attributes, recursive)
}

/// Separates a clone from the mounts that its original shares changes with.
pub(crate) fn set_private(mount: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes =
        libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    mount_setattr(mount, &attributes, false)
}

/// Maps the ids of a mount that is not attached yet, as a user namespace maps its own.
pub(crate) fn map_ids_by(mount: BorrowedFd<'_>, namespace: &OwnedFd, recursive: bool) -> Result<(), Errno> {
    let userns_fd = u64::try_from(namespace.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let attributes =
        libc::mount_attr { attr_set: libc::MOUNT_ATTR_IDMAP, attr_clr: 0, propagation: 0, userns_fd };
    mount_setattr(mount, &attributes, recursive)
}

#[expect(unsafe_code, reason = "no safe crate has mount_setattr")]
fn mount_setattr(mount: BorrowedFd<'_>, attributes: &libc::mount_attr, recursive: bool) -> Result<(), Errno> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path ends in NUL and the attributes have the size that is given; the kernel only reads both.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            std::mem::size_of::<libc::mount_attr>(),
        )
    };
    if outcome == 0 { Ok(()) } else { Err(crate::last_error()) }
}

/// The path without its first slash; `.` for the root itself.
pub(crate) fn relative(path: &[u8]) -> &[u8] {
    match path.strip_prefix(b"/").unwrap_or(path) {
        b"" => b".",
        rest => rest,
    }
}

pub(crate) fn open_in(dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(dir, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_escapes_of_mountinfo_are_decoded() {
        assert_eq!(unescape(br"/a\040b\134c"), b"/a b\\c");
        assert_eq!(unescape(br"/plain\09"), br"/plain\09");
        assert_eq!(relative(b"/usr/lib"), b"usr/lib");
        assert_eq!(relative(b"/"), b".");
    }
}
