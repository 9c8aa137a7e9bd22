//! Mounts: builds what a command sees and makes it the root of the process. Runs in init, in its own mount namespace.
//!
//! A folder of the session is found again by path in the new namespace, links forbidden, and compared with the pinned
//! one: descriptors of the old namespace cannot be mounted from. From then on only the new descriptor is used. Places
//! inside the command's own folders (its home, its /tmp) may hold anything, so targets are opened without links too.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use crate::order::{BindMount, Overlay, Stage, Trouble, View};

/// Where the new root is put together: a folder that every machine has. What it covers was found before.
const STAGE: &str = "/usr";

type Mounted<T> = Result<T, Trouble>;

fn trouble(subject: &str, path: &[u8], why: Errno) -> Trouble {
    Trouble::new(Stage::Sandbox, format!("{subject} {}", aos_model::path::show(path)), why)
}

pub(crate) fn build(view: &View, in_user_namespace: bool) -> Mounted<()> {
    let failed = |subject: &'static str| move |why| trouble(subject, b"", why);
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(failed("cannot leave the machine's mounts"))?;
    // Everything is found before the stage covers a part of it.
    let trees = view.binds.iter().map(|bind| tree_of(bind, in_user_namespace).map(|tree| (bind, tree)));
    let trees: Vec<(&BindMount, Option<Tree>)> = trees.collect::<Mounted<_>>()?;
    let devices: Vec<(&str, OwnedFd)> = DEVICES
        .iter()
        .filter_map(|name| {
            clone_tree(rustix::fs::CWD, format!("/dev/{name}").as_bytes(), false)
                .ok()
                .map(|tree| (*name, tree))
        })
        .collect();
    let slash = match &view.slash {
        Some(bind) => tree_of(bind, in_user_namespace)?,
        None => None,
    };
    let own_root = slash.is_none();
    let root = match slash {
        Some(tree) => tree.fd,
        None => tmpfs().map_err(failed("cannot make a root folder"))?,
    };
    move_to(&root, rustix::fs::CWD, STAGE.as_bytes()).map_err(failed("cannot mount the root folder"))?;
    if let Some(bind) = &view.slash {
        cover_submounts(bind, root.as_fd())?;
    }
    for link in &view.links {
        let _ = rustix::fs::symlinkat(link.to.as_slice(), &root, relative(&link.at));
    }
    let dev = make_dev(root.as_fd(), own_root, &devices)?;
    make_proc(root.as_fd(), view.guard_proc)?;
    for (bind, tree) in trees {
        if let Some(tree) = tree {
            show(root.as_fd(), bind, &tree)?;
        }
    }
    for path in &view.covers {
        cover(root.as_fd(), dev.as_fd(), path)?;
    }
    if own_root {
        set_read_only(root.as_fd()).map_err(failed("cannot seal the root folder"))?;
    } else {
        set_read_only(dev.as_fd()).map_err(failed("cannot seal /dev"))?;
    }
    step_in(root.as_fd()).map_err(failed("cannot step into the root folder"))
}

/// The new root becomes the root, and the old one is let go.
fn step_in(root: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

/// A part of the machine, copied to be mounted.
struct Tree {
    fd: OwnedFd,
    is_dir: bool,
    /// What is mounted below came along although it should not.
    too_much: bool,
}

/// `None` for what is not there and need not be.
fn tree_of(bind: &BindMount, in_user_namespace: bool) -> Mounted<Option<Tree>> {
    if let Some(overlay) = &bind.overlay {
        let laid = find(bind).and_then(|lower| lay_over(&lower, overlay, in_user_namespace));
        let subject = || format!("cannot lay an overlay over {}", aos_model::path::show(&bind.at));
        let fd = laid.map_err(|why| Trouble::new(Stage::Overlay, subject(), why))?;
        return Ok(Some(Tree { fd, is_dir: true, too_much: false }));
    }
    let found = find(bind).and_then(|source| {
        let is_dir = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode).is_dir();
        let (fd, too_much) = match clone_tree(&source, b"", bind.submounts && is_dir) {
            // An ordinary user may not look below what is mounted there, so it comes along and is covered.
            Err(Errno::INVAL) if !bind.submounts && is_dir => (clone_tree(&source, b"", true)?, true),
            outcome => (outcome?, false),
        };
        let mut flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        if !bind.writable {
            flags |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        set_attributes(fd.as_fd(), flags, bind.submounts || too_much)?;
        Ok(Tree { fd, is_dir, too_much })
    });
    match found {
        Ok(tree) => Ok(Some(tree)),
        Err(_) if !bind.required => Ok(None),
        Err(why) => Err(trouble("cannot show", &bind.at, why)),
    }
}

/// What is read comes from `lower`, what is written goes to the overlay's own folders. What is mounted below stays
/// outside: an overlay shows one file system.
fn lay_over(lower: &OwnedFd, overlay: &Overlay, in_user_namespace: bool) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsRawFd as _;
    let open = |path: &[u8]| {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve)
    };
    let (upper, work) = (open(&overlay.upper)?, open(&overlay.work)?);
    // By descriptor: an option has a length, and a path may hold what options are parted by.
    let by_number = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let (lower, upper, work) = (by_number(lower), by_number(&upper), by_number(&work));
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
    // Without it the end of every command would wait for the whole disk. What counts is synced when it is committed.
    rustix::mount::fsconfig_set_flag(&context, "volatile")?;
    if in_user_namespace {
        rustix::mount::fsconfig_set_flag(&context, "userxattr")?;
    }
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

fn find(bind: &BindMount) -> Result<OwnedFd, Errno> {
    let from: &[u8] = if bind.from.is_empty() { b"/" } else { &bind.from };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Some(pin) = bind.pin else { return rustix::fs::open(from, flags, Mode::empty()) };
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let source =
        rustix::fs::openat2(rustix::fs::CWD, from, flags | OFlags::NOFOLLOW, Mode::empty(), resolve)?;
    let stat = rustix::fs::fstat(&source)?;
    if (stat.st_dev, stat.st_ino) == pin { Ok(source) } else { Err(Errno::STALE) }
}

fn show(root: BorrowedFd<'_>, bind: &BindMount, tree: &Tree) -> Mounted<()> {
    let shown = target(root, &bind.at, tree.is_dir).and_then(|place| attach(&tree.fd, &place));
    match shown {
        Ok(()) if tree.too_much => cover_submounts(bind, root),
        Ok(()) => Ok(()),
        Err(_) if !bind.required => Ok(()),
        Err(why) => Err(trouble("cannot show", &bind.at, why)),
    }
}

/// What is mounted below a root is outside of it.
fn cover_submounts(bind: &BindMount, root: BorrowedFd<'_>) -> Mounted<()> {
    if bind.submounts {
        return Ok(());
    }
    let failed = |why| trouble("cannot cover what is mounted below", &bind.at, why);
    let below = [STAGE.as_bytes(), &bind.at, b"/"].concat();
    let inside: Vec<Vec<u8>> =
        mount_points().map_err(failed)?.into_iter().filter(|point| point.starts_with(&below)).collect();
    for point in inside {
        let place = open_in(root, relative(&point[STAGE.len()..])).map_err(failed)?;
        let empty = tmpfs().map_err(failed)?;
        set_read_only(empty.as_fd()).map_err(failed)?;
        // A file that something was mounted on cannot take a folder.
        if attach(&empty, &place).is_err() {
            let null = clone_tree(rustix::fs::CWD, b"/dev/null", false).map_err(failed)?;
            attach(&null, &place).map_err(failed)?;
        }
    }
    Ok(())
}

/// Where something is mounted in this namespace, as the kernel lists it.
fn mount_points() -> Result<Vec<Vec<u8>>, Errno> {
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

/// Blanks and backslashes stand as `\NNN` there.
fn unescape(text: &[u8]) -> Vec<u8> {
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

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// A /dev with the few devices that programs expect. Returns the folder that holds it.
fn make_dev(root: BorrowedFd<'_>, own_root: bool, devices: &[(&str, OwnedFd)]) -> Mounted<OwnedFd> {
    let failed = |why| trouble("cannot make", b"/dev", why);
    let place = target(root, b"/dev", true).map_err(failed)?;
    let dev = if own_root {
        place
    } else {
        let dev = tmpfs().map_err(failed)?;
        attach(&dev, &place).map_err(failed)?;
        dev
    };
    let make = || -> Result<(), Errno> {
        for (name, tree) in devices {
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
        for name in ["pts", "shm", HIDDEN] {
            rustix::fs::mkdirat(&dev, name, Mode::from_raw_mode(0o755))?;
        }
        let shm = dir_in(dev.as_fd(), b"shm")?;
        rustix::fs::fchmod(&dir_to_change(dev.as_fd(), "shm")?, Mode::from_raw_mode(0o1777))?;
        attach(&clone_tree(&shm, b"", false)?, &shm)?;
        if let Ok(pts) = file_system("devpts", &[("ptmxmode", "0666"), ("mode", "0620")], nosuid_noexec()) {
            attach(&pts, &dir_in(dev.as_fd(), b"pts")?)?;
        }
        Ok(())
    };
    make().map_err(failed)?;
    Ok(dev)
}

/// An empty folder to cover others with.
const HIDDEN: &str = ".hidden";

fn cover(root: BorrowedFd<'_>, dev: BorrowedFd<'_>, path: &[u8]) -> Mounted<()> {
    let Ok(place) = open_in(root, relative(path)) else { return Ok(()) };
    let covered = || -> Result<(), Errno> {
        let is_dir = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode).is_dir();
        let name: &[u8] = if is_dir { HIDDEN.as_bytes() } else { b"null" };
        let over = clone_tree(dev, name, false)?;
        if is_dir {
            set_read_only(over.as_fd())?;
        }
        attach(&over, &place)
    };
    covered().map_err(|why| trouble("cannot cover", path, why))
}

/// Parts of /proc that uid 0 could write even without capabilities, and through them the whole machine.
const PROC_SWITCHES: [&str; 6] = ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi"];

fn make_proc(root: BorrowedFd<'_>, guard: bool) -> Mounted<()> {
    let make = || -> Result<(), Errno> {
        let proc = file_system("proc", &[], nosuid_noexec() | MountAttrFlags::MOUNT_ATTR_NODEV)?;
        attach(&proc, &target(root, b"/proc", true)?)?;
        for name in PROC_SWITCHES.iter().filter(|_| guard) {
            match clone_tree(&proc, name.as_bytes(), false) {
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
    make().map_err(|why| trouble("cannot mount", b"/proc", why))
}

fn nosuid_noexec() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC
}

fn tmpfs() -> Result<OwnedFd, Errno> {
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    file_system("tmpfs", &[("mode", "0755")], flags)
}

fn file_system(kind: &str, options: &[(&str, &str)], flags: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(&context, *name, *value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

fn clone_tree(dir: impl AsFd, path: &[u8], recursive: bool) -> Result<OwnedFd, Errno> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    rustix::mount::open_tree(dir, path, flags)
}

fn attach(tree: &OwnedFd, place: &OwnedFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", place, "", flags)
}

fn move_to(tree: &OwnedFd, dir: BorrowedFd<'_>, path: &[u8]) -> Result<(), Errno> {
    rustix::mount::move_mount(tree, "", dir, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn set_read_only(mount: BorrowedFd<'_>) -> Result<(), Errno> {
    set_attributes(mount, MountAttrFlags::MOUNT_ATTR_RDONLY, false)
}

#[expect(unsafe_code, reason = "no safe crate has mount_setattr")]
fn set_attributes(mount: BorrowedFd<'_>, set: MountAttrFlags, recursive: bool) -> Result<(), Errno> {
    use std::os::fd::AsRawFd as _;
    let attributes =
        libc::mount_attr { attr_set: u64::from(set.bits()), attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path ends in NUL and the attributes have the size that is given; the kernel only reads both.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            std::mem::size_of::<libc::mount_attr>(),
        )
    };
    if outcome == 0 { Ok(()) } else { Err(crate::last_error()) }
}

/// The path without its first slash; `.` for the root itself.
fn relative(path: &[u8]) -> &[u8] {
    match path.strip_prefix(b"/").unwrap_or(path) {
        b"" => b".",
        rest => rest,
    }
}

fn open_in(dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(dir, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn dir_in(dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_in(dir, path)
}

fn dir_to_change(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// The place to mount at, made where it is missing. Links on the way are refused, not followed.
fn target(root: BorrowedFd<'_>, at: &[u8], is_dir: bool) -> Result<OwnedFd, Errno> {
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
                // Commands of one session share its /tmp: another one may have been quicker.
                match made {
                    Ok(()) | Err(Errno::EXIST) => open_in(dir.as_fd(), name)?,
                    Err(why) => return Err(why),
                }
            }
            outcome => outcome?,
        };
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_spelling_of_mount_points_is_undone() {
        assert_eq!(unescape(br"/a\040b\134c"), b"/a b\\c");
        assert_eq!(unescape(br"/plain\09"), br"/plain\09");
        assert_eq!(relative(b"/usr/lib"), b"usr/lib");
        assert_eq!(relative(b"/"), b".");
    }
}
