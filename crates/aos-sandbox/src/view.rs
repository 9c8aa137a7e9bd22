//! Computes the [`View`] of a command: the file system that it sees.
//!
//! ```text
//! /usr /bin /sbin /lib* /etc /opt     the machine's, read-only
//! folders on PATH, with toolchains    the machine's, read-only
//! HOME, /tmp                          the session's own
//! mounts, roots                       of the session
//! /proc /dev                          new (mounted by init)
//! ```
//!
//! Where they overlap, later lines win over earlier ones. Everything inside a root belongs to it, except our own state,
//! which is always masked.

use std::os::fd::AsRawFd as _;

use rustix::fs::{FileType, Mode, OFlags};

use crate::spec::{BindMount, LandlockPaths, Link, Mask, View};
use aos_model::path::is_below;

/// The session's part of the view.
#[derive(Debug)]
pub struct ViewSpec<'a> {
    /// The command's PATH.
    pub path: &'a str,
    /// The path of HOME, for the command and on the machine.
    pub home: &'a [u8],
    pub home_mount: HomeMount,
    /// The session's own `/tmp`.
    pub tmp: Option<BindMount>,
    pub mounts: Vec<BindMount>,
    pub roots: Vec<BindMount>,
    /// Our own state: never visible.
    pub state: &'a [u8],
    /// The roots of other sessions: not visible either, unless they are inside a root of this one.
    pub other_session_roots: Vec<Vec<u8>>,
    pub network: bool,
    pub uid_is_root: bool,
}

impl ViewSpec<'_> {
    /// The system folders alone: enough to probe whether a view can be mounted.
    pub fn system_only() -> ViewSpec<'static> {
        ViewSpec {
            path: crate::PATH_DEFAULT,
            home: b"/home",
            home_mount: HomeMount::Real { writable: false },
            tmp: None,
            mounts: Vec::new(),
            roots: Vec::new(),
            state: b"/nowhere",
            other_session_roots: Vec::new(),
            network: false,
            uid_is_root: rustix::process::geteuid().is_root(),
        }
    }
}

#[derive(Debug)]
pub enum HomeMount {
    /// A folder of the session, with the toolchains of the real home mounted in it.
    Private(BindMount),
    Real {
        writable: bool,
    },
}

/// The machine's own folders that every command sees read-only, where they exist.
pub const SYSTEM_DIRS: [&str; 12] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu", "/snap"];

/// Folders in a home that hold toolchains. One may need another: `.cargo/bin` needs `.rustup`.
const TOOLCHAINS: [&str; 18] = [
    ".cargo",
    ".rustup",
    ".pyenv",
    ".rbenv",
    ".nvm",
    ".nodenv",
    ".volta",
    ".bun",
    ".deno",
    ".asdf",
    ".sdkman",
    ".goenv",
    ".ghcup",
    ".opam",
    ".juliaup",
    ".dotnet",
    ".nix-profile",
    "go",
];

/// Files in those folders that commands must not read.
const CREDENTIALS: [&str; 2] = [".cargo/credentials", ".cargo/credentials.toml"];

pub fn build_view(spec: ViewSpec<'_>) -> View {
    let host_root = spec.roots.iter().find(|root| root.at.is_empty()).cloned();
    let mut view = View { read_only_proc: spec.uid_is_root, ..View::default() };
    let mut binds = Vec::new();
    if host_root.is_none() {
        add_system(&mut binds, &mut view.links);
    }
    add_toolchains(&spec, &mut binds, &mut view.masks);
    if spec.network {
        add_resolv_conf(&mut binds);
    }
    binds.extend(spec.tmp);
    match spec.home_mount {
        HomeMount::Private(home) => binds.push(home),
        HomeMount::Real { writable } => {
            // Not required: the command's user may have no access to it.
            binds.push(bind_same_path(spec.home, writable));
        }
    }
    if host_root.is_some() {
        view.masks.push(Mask::empty(b"/run".to_vec()));
    }
    // Roots of other sessions that a bind mount so far would make visible.
    let foreign_roots: Vec<Vec<u8>> = spec
        .other_session_roots
        .into_iter()
        .filter(|root| binds.iter().any(|bind| *root != bind.from && is_below(root, &bind.from)))
        .filter(|root| !spec.mounts.iter().chain(&spec.roots).any(|own| is_below(root, &own.from)))
        .filter(|root| !spec.mounts.iter().chain(&spec.roots).any(|own| is_below(&own.at, root)))
        .collect();
    for own in spec.mounts.into_iter().chain(spec.roots) {
        // A bind mount inside a root is dropped, the root shows it already: a toolchain in a repository stays writable.
        binds.retain(|bind| !is_below(&bind.at, &own.at) || is_separate(bind, &own, spec.home));
        binds.push(own);
    }
    binds.retain(|bind| !bind.at.is_empty());
    // Parents first; of two with the same path, the later one wins.
    binds.reverse();
    binds.sort_by(|a, b| a.at.cmp(&b.at));
    binds.dedup_by(|later, first| later.at == first.at);
    view.masks.retain(|mask| !binds.iter().any(|bind| bind.at == mask.at));
    view.masks.extend(foreign_roots.into_iter().map(Mask::empty));
    // Our state, in every bind mount that contains it.
    let around = binds.iter().filter(|bind| is_below(spec.state, &bind.from));
    let state = around.map(|bind| [&bind.at, &spec.state[bind.from.len()..]].concat());
    view.masks.extend(state.chain([spec.state.to_vec()]).map(|at| Mask { fixed: true, ..Mask::empty(at) }));
    view.masks.sort();
    view.masks.dedup();
    View { host_root, binds, ..view }
}

/// Whether a root is inside a folder that every command sees: the system's, or one on PATH.
pub fn overlaps_default_view(path: &str, root: &[u8]) -> bool {
    let mut folders = SYSTEM_DIRS
        .iter()
        .copied()
        .chain(path.split(':').flat_map(|bin| [bin, bin.trim_end_matches("/bin")]));
    folders.any(|folder| !folder.is_empty() && is_below(root, folder.as_bytes()))
}

/// Whether a bind mount stays although it is inside a root or mount: another root or mount, the session's own home and
/// /tmp (both are required), and the toolchains in that home.
fn is_separate(bind: &BindMount, around: &BindMount, home: &[u8]) -> bool {
    let in_home_inside = is_below(&bind.at, home) && is_below(home, &around.at) && home != around.at;
    bind.at != around.at && (bind.required || in_home_inside)
}

/// Shows a path of the machine at the same path.
fn bind_same_path(path: &[u8], writable: bool) -> BindMount {
    BindMount {
        at: path.to_vec(),
        from: path.to_vec(),
        pin: None,
        writable,
        submounts: true,
        required: false,
        overlay: None,
    }
}

fn add_system(binds: &mut Vec<BindMount>, links: &mut Vec<Link>) {
    for path in SYSTEM_DIRS.map(str::as_bytes) {
        let Ok(stat) = rustix::fs::lstat(path) else { continue };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => binds.push(bind_same_path(path, false)),
            FileType::Symlink => {
                if let Ok(to) = rustix::fs::readlink(path, Vec::new()) {
                    links.push(Link { at: path.to_vec(), to: to.into_bytes() });
                }
            }
            _ => {}
        }
    }
}

/// Adds the folders on PATH outside the system's, and the folders that their programs need.
fn add_toolchains(spec: &ViewSpec<'_>, binds: &mut Vec<BindMount>, masks: &mut Vec<Mask>) {
    let mut add = |path: &[u8]| {
        let is_dir = rustix::fs::stat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
        let ours = is_below(path, spec.state) || is_below(spec.state, path);
        if is_dir && !ours && !binds.iter().any(|bind: &BindMount| is_below(path, &bind.at)) {
            binds.push(bind_same_path(path, false));
        }
    };
    let folders: Vec<&[u8]> = spec
        .path
        .split(':')
        .map(|folder| folder.trim_end_matches('/').as_bytes())
        .filter(|folder| {
            folder.starts_with(b"/") && !SYSTEM_DIRS.iter().any(|own| is_below(folder, own.as_bytes()))
        })
        .collect();
    let in_home = |folder: &&[u8]| is_below(folder, spec.home);
    if matches!(spec.home_mount, HomeMount::Private(_)) {
        let first =
            |folder: &[u8]| folder[spec.home.len()..].split(|b| *b == b'/').nth(1).map(<[u8]>::to_vec);
        let is_toolchain = |name: Vec<u8>| TOOLCHAINS.iter().any(|known| known.as_bytes() == name);
        if folders.iter().copied().filter(in_home).filter_map(first).any(is_toolchain) {
            TOOLCHAINS.iter().for_each(|name| add(&[spec.home, b"/", name.as_bytes()].concat()));
        }
        // The home itself is never mounted, even if it is on PATH.
        folders
            .iter()
            .filter(|folder| in_home(folder) && **folder != spec.home)
            .for_each(|folder| add(folder));
        masks.extend(CREDENTIALS.map(|name| Mask::empty([spec.home, b"/", name.as_bytes()].concat())));
    }
    for folder in folders.iter().filter(|folder| !in_home(folder)) {
        let around = prefix_of(folder).unwrap_or(folder);
        [around, folder].into_iter().filter(|path| !is_below(spec.home, path)).for_each(&mut add);
    }
}

/// The install prefix above a `bin`, if it looks like one.
fn prefix_of(folder: &[u8]) -> Option<&[u8]> {
    let prefix = folder.strip_suffix(b"/bin").or(folder.strip_suffix(b"/sbin")).filter(|p| !p.is_empty())?;
    let contains = |name: &str| rustix::fs::stat([prefix, b"/", name.as_bytes()].concat()).is_ok();
    ["lib", "lib64", "libexec", "pyvenv.cfg"].into_iter().any(contains).then_some(prefix)
}

/// `/etc/resolv.conf` is often a link to a file in /run, which the view does not contain.
fn add_resolv_conf(binds: &mut Vec<BindMount>) {
    let Some(real) = real_path("/etc/resolv.conf") else { return };
    if !SYSTEM_DIRS.iter().any(|system| is_below(&real, system.as_bytes())) {
        binds.push(bind_same_path(&real, false));
    }
}

/// The path with symbolic links resolved.
fn real_path(path: &str) -> Option<Vec<u8>> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let real = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new()).ok()?;
    Some(real.into_bytes())
}

impl View {
    /// Whether a path is in an overlay mount.
    pub fn is_in_overlay(&self, path: &[u8]) -> bool {
        let mut around = self.binds.iter().filter(|bind| is_below(path, &bind.at));
        around.next_back().is_some_and(|bind| bind.overlay.is_some())
    }

    /// The Landlock rules in addition to a mount namespace: all of the view is readable, only writable mounts are
    /// writable.
    pub fn landlock_paths(&self) -> LandlockPaths {
        let mut landlock_paths = LandlockPaths { readable: vec![b"/".to_vec()], ..LandlockPaths::default() };
        let binds = self.binds.iter().chain(&self.host_root);
        landlock_paths.writable.extend(binds.filter(|bind| bind.writable).map(|bind| bind.at.clone()));
        landlock_paths.writable.extend([b"/dev".to_vec(), b"/proc".to_vec()]);
        landlock_paths
    }

    /// The Landlock rules without a mount namespace: the machine's paths of the same folders. Without `files` they only
    /// restrict signals, so that a command cannot kill the processes that supervise it.
    pub fn landlock_paths_without_mounts(&self, files: bool) -> LandlockPaths {
        let mut landlock_paths = LandlockPaths::default();
        if !files {
            return landlock_paths;
        }
        for bind in self.binds.iter().chain(&self.host_root) {
            let paths =
                if bind.writable { &mut landlock_paths.writable } else { &mut landlock_paths.readable };
            paths.push(bind.from.clone());
        }
        landlock_paths.readable.extend(self.links.iter().map(|link| link.at.clone()));
        landlock_paths.readable.push(b"/sys/devices/system/cpu".to_vec());
        // Not writable: there, a process sets the priority of others for the kernel's out-of-memory killer.
        landlock_paths.readable.push(b"/proc".to_vec());
        let devices = ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"];
        landlock_paths.writable.extend(devices.map(|name| format!("/dev/{name}").into_bytes()));
        landlock_paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(at: &str, writable: bool) -> BindMount {
        BindMount { required: true, submounts: false, ..bind_same_path(at.as_bytes(), writable) }
    }

    fn spec<'a>(path: &'a str, home: &'a str, roots: &[&str]) -> ViewSpec<'a> {
        ViewSpec {
            path,
            home: home.as_bytes(),
            home_mount: HomeMount::Private(BindMount { from: b"/state/home".to_vec(), ..bind(home, true) }),
            tmp: Some(BindMount { from: b"/state/tmp".to_vec(), ..bind("/tmp", true) }),
            mounts: Vec::new(),
            roots: roots.iter().map(|root| bind(root, true)).collect(),
            state: b"/state",
            other_session_roots: Vec::new(),
            network: false,
            uid_is_root: false,
        }
    }

    fn at<'v>(view: &'v View, path: &str) -> Option<&'v BindMount> {
        view.binds.iter().find(|bind| bind.at == path.as_bytes())
    }

    #[test]
    fn a_usual_view_has_the_system_the_home_and_the_root() {
        let view = build_view(spec("/usr/bin:/bin", "/home/ada", &["/home/ada/work"]));
        assert!(view.host_root.is_none());
        assert!(at(&view, "/usr").is_some_and(|usr| !usr.writable));
        assert!(at(&view, "/home/ada").is_some_and(|home| home.from == b"/state/home"));
        assert!(at(&view, "/home/ada/work").is_some_and(|root| root.writable));
        let order: Vec<&[u8]> = view.binds.iter().map(|bind| bind.at.as_slice()).collect();
        assert!(order.is_sorted(), "parents come first: {order:?}");
        assert!(view.masks.iter().any(|mask| mask.at == b"/state"));
    }

    #[test]
    fn a_root_wins_over_a_bind_mount_at_the_same_path() {
        for root in ["/tmp", "/home/ada"] {
            let view = build_view(spec("/usr/bin", "/home/ada", &[root]));
            assert_eq!(at(&view, root).map(|bind| bind.from.clone()), Some(root.as_bytes().to_vec()));
        }
    }

    #[test]
    fn with_slash_as_a_root_home_and_tmp_stay_the_sessions_own() {
        let view = build_view(ViewSpec { roots: vec![bind("", true)], ..spec("/usr/bin", "/home/ada", &[]) });
        assert!(view.host_root.is_some() && view.links.is_empty());
        assert!(at(&view, "/usr").is_none(), "it is part of the root");
        assert!(at(&view, "/home/ada").is_some_and(|home| home.from == b"/state/home"));
        assert!(at(&view, "/tmp").is_some());
        assert!(view.masks.iter().any(|mask| mask.at == b"/run"));
    }

    #[test]
    fn a_folder_on_path_inside_a_root_stays_part_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_str().unwrap().to_owned();
        let bin = format!("{root}/bin");
        rustix::fs::mkdir(bin.as_str(), 0o755.into()).unwrap();
        let outside = build_view(spec(&bin, "/home/ada", &[]));
        assert!(at(&outside, &bin).is_some_and(|bin| !bin.writable));
        let inside = build_view(spec(&bin, "/home/ada", &[&root]));
        assert!(at(&inside, &bin).is_none());
    }
}
