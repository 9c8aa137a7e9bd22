//! The launch spec: plain data that says which command to run and in which sandbox.
//!
//! The daemon computes it, the spawner forwards it, init applies it.

use aos_model::path::is_below;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// One command and its sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// Empty for a probe: the sandbox is set up, and no program is executed.
    pub argv: Vec<String>,
    /// `NAME=value`, complete: nothing is inherited.
    pub env: Vec<String>,
    /// The program's path, if the caller has resolved it; otherwise init searches the command's own PATH.
    pub program: Option<Vec<u8>>,
    pub cwd: PinnedPath,
    /// The user to change to; `None` keeps the daemon's.
    pub user: Option<User>,
    pub sandbox: Sandbox,
    pub limits: Limits,
}

/// A path, and the device and inode that it must resolve to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedPath {
    pub path: Vec<u8>,
    pub dev: u64,
    pub ino: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// The isolation of a command.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sandbox {
    pub namespaces: Option<Namespaces>,
    pub landlock: Option<LandlockPaths>,
    pub seccomp: bool,
    /// Modes, owners and attributes of files cannot be changed. Landlock does not cover them.
    pub keeps_attributes: bool,
}

impl Sandbox {
    /// Landlock restricts files, and there are no namespaces.
    pub(crate) fn is_reduced(&self) -> bool {
        self.namespaces.is_none() && self.landlock.as_ref().is_some_and(|paths| !paths.readable.is_empty())
    }
}

/// New mount, pid, ipc and uts namespaces, and which others.
#[derive(Debug, Serialize, Deserialize)]
pub struct Namespaces {
    /// A new user namespace too: without root it is what permits the others.
    pub user: bool,
    pub network: bool,
    pub view: View,
}

/// The file system that a command sees, in mount order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct View {
    /// The machine's own `/`, if it is a root of the session; otherwise the new root is an empty tmpfs.
    pub host_root: Option<BindMount>,
    pub links: Vec<Link>,
    pub binds: Vec<BindMount>,
    /// What is covered, after everything else is mounted.
    pub masks: Vec<Mask>,
    /// The kernel's settings in /proc are mounted read-only. Needed when the command keeps uid 0, which owns them even
    /// without capabilities.
    pub read_only_proc: bool,
    /// Root's ids are mapped to nobody's in the mounts of the system's folders, for a command that keeps uid 0: it would own
    /// what others may not read there.
    pub disowned: bool,
    /// The size of `/dev/shm`.
    pub shared_memory_bytes: u64,
}

/// A path that is covered. A launch fails if it exists and cannot be covered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mask {
    /// Absolute, in the view.
    pub at: Vec<u8>,
    pub kind: MaskKind,
    /// Mounts each folder between the bind mount and the path on itself, so that none of them can be renamed (EBUSY).
    pub fixed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MaskKind {
    /// A folder appears empty, a file reads as empty.
    Empty,
    /// It has mode 0: opening it fails with EACCES.
    Denied,
}

impl Mask {
    pub fn empty(at: Vec<u8>) -> Mask {
        Mask { at, kind: MaskKind::Empty, fixed: false }
    }

    pub fn denied(at: Vec<u8>) -> Mask {
        Mask { at, kind: MaskKind::Denied, fixed: false }
    }
}

/// A symbolic link in the machine's own root, such as `/bin`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Link {
    pub at: Vec<u8>,
    pub to: Vec<u8>,
}

/// One folder or file of the machine, mounted at a path of the view.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BindMount {
    /// Absolute, without a slash at the end.
    pub at: Vec<u8>,
    pub from: Vec<u8>,
    /// The device and inode that `from` must resolve to, without symbolic links; `None` accepts any.
    pub pin: Option<(u64, u64)>,
    pub writable: bool,
    /// Whether mounts below it are included.
    pub submounts: bool,
    /// Whether the launch fails when this cannot be mounted.
    pub required: bool,
    /// Mounts an overlayfs here, so that writes do not reach `from`.
    pub overlay: Option<Overlay>,
}

/// The machine's own folders that every command sees read-only, where they exist.
pub const SYSTEM_DIRS: [&str; 12] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu", "/snap"];

impl BindMount {
    /// Whether it shows what packages and administrators installed, and not what belongs to the session.
    pub(crate) fn is_of_system(&self) -> bool {
        !self.required && SYSTEM_DIRS.iter().any(|dir| is_below(&self.from, dir.as_bytes()))
    }
}

/// The absolute `upperdir` and `workdir` of an overlayfs mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    pub upper: Vec<u8>,
    pub work: Vec<u8>,
}

/// The paths of the Landlock ruleset, opened after the mounts are made. Without paths it does not restrict files, only
/// signals and abstract sockets.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LandlockPaths {
    pub readable: Vec<Vec<u8>>,
    pub writable: Vec<Vec<u8>>,
}

/// Limits that no cgroup enforces.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Limits {
    pub processes: Option<u64>,
    pub memory_bytes: Option<u64>,
}

/// Why a command was not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchError {
    pub stage: LaunchStage,
    pub subject: String,
    pub errno: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaunchStage {
    /// The sandbox could not be set up.
    Sandbox,
    /// An overlay could not be mounted on a root.
    Overlay,
    /// The working directory does not exist or has been replaced.
    Cwd,
    /// The program does not exist or cannot be executed.
    Program,
}

impl LaunchError {
    pub fn new(stage: LaunchStage, subject: impl Into<String>, errno: Errno) -> LaunchError {
        LaunchError { stage, subject: subject.into(), errno: errno.raw_os_error() }
    }

    pub fn errno(&self) -> Errno {
        Errno::from_raw_os_error(self.errno)
    }
}
