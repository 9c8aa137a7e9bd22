//! Mounts a [`View`] and makes it the root. Runs in init, in its own mount namespace.
//!
//! open_tree refuses to clone from a descriptor of another mount namespace. So the folders of the session are opened
//! again by path, without symbolic links, and compared with the pinned device and inode; from then on only the new
//! descriptor is used. The command controls the content of its own folders (its home, its /tmp), so mount points are
//! opened without symbolic links too.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, UnmountFlags};

use aos_model::path::is_below;

use crate::credentials::with_rights_of;
use crate::mount_calls::{
    attach, clone_tree, file_system, map_ids_by, mount_points, move_to, open_in, relative, set_attributes,
    set_private, set_read_only, tmpfs,
};
use crate::spec::{BindMount, LaunchError, LaunchStage, Mask, MaskKind, Overlay, User, View};

/// The mount point of the new root: a folder that every machine has. What it covers was opened before.
const STAGING_DIR: &str = "/usr";

type MountResult<T> = Result<T, LaunchError>;

fn mount_error(subject: &str, path: &[u8], why: Errno) -> LaunchError {
    LaunchError::new(LaunchStage::Sandbox, format!("{subject} {}", aos_model::path::show(path)), why)
}

/// Mounts that every view has and that no launch message is needed for. They are not attached yet.
pub(crate) struct Parts {
    root: OwnedFd,
    proc: OwnedFd,
    terminals: Option<OwnedFd>,
    devices: Vec<(&'static str, OwnedFd)>,
}

impl Parts {
    pub(crate) fn make() -> MountResult<Parts> {
        let failed = |subject: &'static str| move |why| mount_error(subject, b"", why);
        let device = |name: &&'static str| {
            let tree = clone_tree(rustix::fs::CWD, format!("/dev/{name}").as_bytes(), false).ok()?;
            set_private(tree.as_fd()).ok()?;
            Some((*name, tree))
        };
        Ok(Parts {
            root: tmpfs().map_err(failed("cannot mount a tmpfs for the root folder"))?,
            proc: file_system("proc", &[], nosuid_noexec() | MountAttrFlags::MOUNT_ATTR_NODEV)
                .map_err(failed("cannot mount /proc"))?,
            terminals: file_system("devpts", &[("ptmxmode", "0666"), ("mode", "0620")], nosuid_noexec()).ok(),
            devices: DEVICES.iter().filter_map(device).collect(),
        })
    }
}

/// `nobody` maps root's ids to nobody's, for a view with `disowned`.
pub(crate) fn build(
    view: &View,
    parts: Option<Parts>,
    in_user_namespace: bool,
    user: Option<User>,
    nobody: Option<&OwnedFd>,
) -> MountResult<()> {
    let failed = |subject: &'static str| move |why| mount_error(subject, b"", why);
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(failed("cannot make the mounts private"))?;
    // Everything is opened before the new root covers a part of it.
    let sources = open_sources(&view.binds, user).map_err(failed("cannot act as the command's user"))?;
    let trees = view.binds.iter().zip(sources).map(|(bind, source)| {
        let tree = clone_source(bind, source, in_user_namespace)?;
        if let Some(tree) = tree.as_ref().filter(|_| view.disowned && bind.is_of_system()) {
            let mapped =
                nobody.ok_or(Errno::PERM).and_then(|nobody| map_ids_by(tree.fd.as_fd(), nobody, true));
            mapped.map_err(|why| mount_error("cannot map root's ids in", &bind.at, why))?;
        }
        Ok((bind, tree))
    });
    let trees: Vec<(&BindMount, Option<Tree>)> = trees.collect::<MountResult<_>>()?;
    let parts = parts.map_or_else(Parts::make, Ok)?;
    let host_root = match &view.host_root {
        Some(bind) => clone_source(bind, open_source(bind), in_user_namespace)?,
        None => None,
    };
    let root_is_tmpfs = host_root.is_none();
    let root = host_root.as_ref().map_or(&parts.root, |tree| &tree.fd);
    move_to(root, rustix::fs::CWD, STAGING_DIR.as_bytes()).map_err(failed("cannot mount the root folder"))?;
    if let Some(bind) = &view.host_root {
        mask_submounts(bind, root.as_fd())?;
    }
    for link in &view.links {
        let _ = rustix::fs::symlinkat(link.to.as_slice(), root, relative(&link.at));
    }
    let dev = make_dev(root.as_fd(), root_is_tmpfs, &parts, view.shared_memory_bytes)?;
    mount_proc(root.as_fd(), &parts.proc, view.read_only_proc)?;
    for (bind, tree) in trees {
        if let Some(tree) = tree {
            mount_bind(root.as_fd(), bind, &tree, user)?;
        }
    }
    for mask in &view.masks {
        if mask.fixed {
            fix_folders_above(root.as_fd(), view, &mask.at)?;
        }
        cover(root.as_fd(), dev.as_fd(), mask)?;
    }
    if root_is_tmpfs {
        set_read_only(root.as_fd()).map_err(failed("cannot make the root folder read-only"))?;
    } else {
        set_read_only(dev.as_fd()).map_err(failed("cannot make /dev read-only"))?;
    }
    pivot_to(root.as_fd()).map_err(failed("cannot pivot to the new root"))
}

/// Makes the new root the root and unmounts the old one. `pivot_root(".", ".")` stacks the old root on the new one, as
/// pivot_root(2) describes.
fn pivot_to(root: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

/// A cloned mount that is not attached yet.
struct Tree {
    fd: OwnedFd,
    is_dir: bool,
    /// The clone includes submounts that must be masked.
    mask_submounts: bool,
}

/// `None` if the source does not exist and is not required.
fn clone_source(
    bind: &BindMount,
    source: Result<OwnedFd, Errno>,
    in_user_namespace: bool,
) -> MountResult<Option<Tree>> {
    if let Some(overlay) = &bind.overlay {
        let mounted = source.and_then(|lower| mount_overlay(&lower, overlay, in_user_namespace));
        let subject = || format!("cannot mount an overlay on {}", aos_model::path::show(&bind.at));
        let fd = mounted.map_err(|why| LaunchError::new(LaunchStage::Overlay, subject(), why))?;
        return Ok(Some(Tree { fd, is_dir: true, mask_submounts: false }));
    }
    let cloned = source.and_then(|source| {
        let is_dir = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode).is_dir();
        let (fd, mask_submounts) = match clone_tree(&source, b"", bind.submounts && is_dir) {
            // In a user namespace, submounts are locked: the kernel refuses to clone without them (EINVAL), because
            // that would reveal what they cover. They are cloned too, and masked later.
            Err(Errno::INVAL) if !bind.submounts && is_dir => (clone_tree(&source, b"", true)?, true),
            outcome => (outcome?, false),
        };
        let mut flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        if !bind.writable {
            flags |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        set_attributes(fd.as_fd(), flags, bind.submounts || mask_submounts)?;
        Ok(Tree { fd, is_dir, mask_submounts })
    });
    match cloned {
        Ok(tree) => Ok(Some(tree)),
        Err(_) if !bind.required => Ok(None),
        Err(why) => Err(mount_error("cannot mount", &bind.at, why)),
    }
}

/// Mounts an overlayfs on `lower`: writes go to the upper folder. Submounts are not included: overlayfs shows one file
/// system.
fn mount_overlay(lower: &OwnedFd, overlay: &Overlay, in_user_namespace: bool) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsRawFd as _;
    let open = |path: &[u8]| {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve)
    };
    let (upper, work) = (open(&overlay.upper)?, open(&overlay.work)?);
    // By descriptor: mount options have a maximum length, and a path may contain their separators.
    let proc_path = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let (lower, upper, work) = (proc_path(lower), proc_path(&upper), proc_path(&work));
    let options = [
        ("lowerdir", lower.as_str()),
        ("upperdir", upper.as_str()),
        ("workdir", work.as_str()),
        ("index", "off"),
        ("metacopy", "off"),
        ("redirect_dir", "nofollow"),
    ];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(&context, name, value)?;
    }
    // Without `volatile`, unmounting syncs the whole upper file system at the end of every command. The changes are
    // synced when they are committed.
    rustix::mount::fsconfig_set_flag(&context, "volatile")?;
    if in_user_namespace {
        rustix::mount::fsconfig_set_flag(&context, "userxattr")?;
    }
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Opens the sources of the bind mounts: the session's own with our rights, those of the machine with the rights of the
/// command's user, so that nothing is shown that it could not reach by itself.
fn open_sources(binds: &[BindMount], user: Option<User>) -> Result<Vec<Result<OwnedFd, Errno>>, Errno> {
    let open = |required: bool| {
        binds
            .iter()
            .map(move |bind| (bind.required == required).then(|| open_source(bind)))
            .collect::<Vec<_>>()
    };
    let of_machine = with_rights_of(user, || open(false))?;
    let both = open(true).into_iter().zip(of_machine);
    Ok(both.map(|(own, of_machine)| own.or(of_machine).unwrap_or(Err(Errno::NOENT))).collect())
}

/// Opens the source of a bind mount and compares it with its pin.
fn open_source(bind: &BindMount) -> Result<OwnedFd, Errno> {
    let from: &[u8] = if bind.from.is_empty() { b"/" } else { &bind.from };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Some(pin) = bind.pin else { return rustix::fs::open(from, flags, Mode::empty()) };
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let source =
        rustix::fs::openat2(rustix::fs::CWD, from, flags | OFlags::NOFOLLOW, Mode::empty(), resolve)?;
    let stat = rustix::fs::fstat(&source)?;
    if (stat.st_dev, stat.st_ino) == pin { Ok(source) } else { Err(Errno::STALE) }
}

fn mount_bind(root: BorrowedFd<'_>, bind: &BindMount, tree: &Tree, user: Option<User>) -> MountResult<()> {
    let attached = mount_point(root, &bind.at, tree.is_dir, user).and_then(|place| attach(&tree.fd, &place));
    match attached {
        Ok(()) if tree.mask_submounts => mask_submounts(bind, root),
        Ok(()) => Ok(()),
        Err(_) if !bind.required => Ok(()),
        Err(why) => Err(mount_error("cannot mount", &bind.at, why)),
    }
}

/// Hides the mounts below a bind mount that excludes them.
fn mask_submounts(bind: &BindMount, root: BorrowedFd<'_>) -> MountResult<()> {
    if bind.submounts {
        return Ok(());
    }
    let failed = |why| mount_error("cannot hide the mounts below", &bind.at, why);
    let below = [STAGING_DIR.as_bytes(), &bind.at, b"/"].concat();
    let inside: Vec<Vec<u8>> =
        mount_points().map_err(failed)?.into_iter().filter(|point| point.starts_with(&below)).collect();
    for point in inside {
        let place = open_in(root, relative(&point[STAGING_DIR.len()..])).map_err(failed)?;
        let empty = tmpfs().map_err(failed)?;
        set_read_only(empty.as_fd()).map_err(failed)?;
        // A folder cannot be mounted on a file; /dev/null can.
        if attach(&empty, &place).is_err() {
            let null = clone_tree(rustix::fs::CWD, b"/dev/null", false).map_err(failed)?;
            attach(&null, &place).map_err(failed)?;
        }
    }
    Ok(())
}

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Sets up a /dev with the few devices that programs expect, and returns it.
fn make_dev(
    root: BorrowedFd<'_>,
    root_is_tmpfs: bool,
    parts: &Parts,
    shared_memory_bytes: u64,
) -> MountResult<OwnedFd> {
    let failed = |why| mount_error("cannot set up", b"/dev", why);
    let place = mount_point(root, b"/dev", true, None).map_err(failed)?;
    let dev = if root_is_tmpfs {
        place
    } else {
        let dev = tmpfs().map_err(failed)?;
        attach(&dev, &place).map_err(failed)?;
        dev
    };
    let make = || -> Result<(), Errno> {
        for (name, tree) in &parts.devices {
            let place = rustix::fs::openat(
                &dev,
                *name,
                OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC,
                Mode::from_raw_mode(0o666),
            )?;
            attach(tree, &place)?;
        }
        let links = [
            ("fd", "/proc/self/fd"),
            ("stdin", "fd/0"),
            ("stdout", "fd/1"),
            ("stderr", "fd/2"),
            ("ptmx", "pts/ptmx"),
        ];
        for (name, to) in links {
            rustix::fs::symlinkat(to, &dev, name)?;
        }
        for (name, mode) in [("pts", 0o755), ("shm", 0o755), (EMPTY_DIR, 0o755), (DENIED_DIR, 0)] {
            rustix::fs::mkdirat(&dev, name, Mode::from_raw_mode(mode))?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        drop(rustix::fs::openat(&dev, DENIED_FILE, flags, Mode::empty())?);
        let shm = open_in(dev.as_fd(), b"shm")?;
        let size = shared_memory_bytes.to_string();
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        attach(&file_system("tmpfs", &[("mode", "1777"), ("size", &size)], flags)?, &shm)?;
        if let Some(terminals) = &parts.terminals {
            attach(terminals, &open_in(dev.as_fd(), b"pts")?)?;
        }
        Ok(())
    };
    make().map_err(failed)?;
    Ok(dev)
}

/// What is mounted on masked paths, in /dev. A masked file that reads as empty is /dev/null.
const EMPTY_DIR: &str = ".hidden";
const DENIED_DIR: &str = ".denied";
const DENIED_FILE: &str = ".denied-file";

/// Covers a path, if it exists. It is opened without symbolic links: one on the way is an error, because what it leads
/// to would stay visible under its own name.
fn cover(root: BorrowedFd<'_>, dev: BorrowedFd<'_>, mask: &Mask) -> MountResult<()> {
    let mount = || -> Result<(), Errno> {
        let place = match open_in(root, relative(&mask.at)) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            outcome => outcome?,
        };
        let is_dir = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode).is_dir();
        let name = match (mask.kind, is_dir) {
            (MaskKind::Empty, true) => EMPTY_DIR,
            (MaskKind::Empty, false) => "null",
            (MaskKind::Denied, true) => DENIED_DIR,
            (MaskKind::Denied, false) => DENIED_FILE,
        };
        let instead = clone_tree(dev, name.as_bytes(), false)?;
        if name != "null" {
            // Its owner may be the command's user, who must not change its mode.
            set_read_only(instead.as_fd())?;
        }
        attach(&instead, &place)
    };
    mount().map_err(|why| mount_error("cannot mask", &mask.at, why))
}

/// Mounts each folder between the bind mount that shows a path and the path on itself: a mount point cannot be renamed,
/// but the folders above it can.
fn fix_folders_above(root: BorrowedFd<'_>, view: &View, path: &[u8]) -> MountResult<()> {
    // What is mounted read-only on itself inside a root does not count: the folders above it can be renamed.
    let is_guarded = |bind: &BindMount| bind.pin.is_some() && !bind.required;
    let around = view.binds.iter().filter(|bind| is_below(path, &bind.at) && !is_guarded(bind));
    let around = around.map(|bind| bind.at.len()).max();
    let first = around.unwrap_or(0) + 1;
    let ends = (first..path.len()).filter(|end| path[*end] == b'/');
    for folder in ends.map(|end| &path[..end]) {
        let mount = || -> Result<(), Errno> {
            let place = match open_in(root, relative(folder)) {
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
                outcome => outcome?,
            };
            attach(&clone_tree(&place, b"", true)?, &place)
        };
        mount().map_err(|why| mount_error("cannot mount on itself", folder, why))?;
    }
    Ok(())
}

/// Parts of /proc that uid 0 can write even without capabilities, and that change the whole machine.
const PROC_READ_ONLY: [&str; 6] = ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi"];

fn mount_proc(root: BorrowedFd<'_>, proc: &OwnedFd, read_only: bool) -> MountResult<()> {
    let make = || -> Result<(), Errno> {
        attach(proc, &mount_point(root, b"/proc", true, None)?)?;
        for name in PROC_READ_ONLY.iter().filter(|_| read_only) {
            match clone_tree(proc, name.as_bytes(), false) {
                Ok(part) => {
                    set_read_only(part.as_fd())?;
                    attach(&part, &open_in(proc.as_fd(), name.as_bytes())?)?;
                }
                Err(Errno::NOENT) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    };
    make().map_err(|why| mount_error("cannot mount", b"/proc", why))
}

fn nosuid_noexec() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC
}

/// Opens the mount point, and creates it if it is missing. Symbolic links on the path are an error. What is created in
/// a folder of the session, such as `.cargo` in its home, belongs to the command's user.
fn mount_point(root: BorrowedFd<'_>, at: &[u8], is_dir: bool, user: Option<User>) -> Result<OwnedFd, Errno> {
    let path = relative(at);
    match open_in(root, path) {
        Err(Errno::NOENT) => {}
        outcome => return outcome,
    }
    let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
    let mut dir = open_in(root, b".")?;
    for (index, name) in names.iter().enumerate() {
        dir = match open_in(dir.as_fd(), name) {
            Err(Errno::NOENT) => {
                let made = if is_dir || index + 1 < names.len() {
                    rustix::fs::mkdirat(&dir, *name, Mode::from_raw_mode(0o755))
                } else {
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                    rustix::fs::openat(&dir, *name, flags, Mode::from_raw_mode(0o644)).map(drop)
                };
                // Commands of one session share its /tmp: another one may have created it meanwhile.
                match made {
                    Ok(()) => {
                        let made = open_in(dir.as_fd(), name)?;
                        if let Some(User { uid, gid }) = user {
                            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
                            rustix::fs::chownat(&made, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
                        }
                        made
                    }
                    Err(Errno::EXIST) => open_in(dir.as_fd(), name)?,
                    Err(why) => return Err(why),
                }
            }
            outcome => outcome?,
        };
    }
    Ok(dir)
}
