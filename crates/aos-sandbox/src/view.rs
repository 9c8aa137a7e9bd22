//! What a command sees: worked out by the daemon from the session, carried out by init.
//!
//! ```text
//! /usr /bin /sbin /lib* /etc /opt     the machine's, read-only
//! folders on PATH, with toolchains    the machine's, read-only
//! HOME, /tmp                          the session's own
//! mounts, roots                       as the session was opened
//! /proc /dev                          fresh (made by init)
//! ```
//!
//! Later lines win over earlier ones where they overlap. What lies inside a root belongs to it, except our own state.

use std::os::fd::AsRawFd as _;

use rustix::fs::{FileType, Mode, OFlags};

use crate::order::{BindMount, LandlockPaths, Link, View};
use aos_model::path::is_below;

/// What the session has to say about the view.
#[derive(Debug)]
pub struct Wanted<'a> {
    pub path: &'a str,
    /// Where HOME is, for the command and on the machine.
    pub home: &'a [u8],
    pub home_shown: HomeShown,
    /// The session's own `/tmp`.
    pub tmp: Option<BindMount>,
    pub mounts: Vec<BindMount>,
    pub roots: Vec<BindMount>,
    /// Our own state: never in bind.
    pub state: &'a [u8],
    /// The roots of other sessions: not in bind either, unless they lie inside an own one.
    pub neighbours: Vec<Vec<u8>>,
    pub network: bool,
    pub uid_is_root: bool,
}

impl Wanted<'_> {
    /// The machine alone, to see whether it can be shown at all.
    pub fn machine_alone() -> Wanted<'static> {
        Wanted {
            path: crate::PATH_DEFAULT,
            home: b"/home",
            home_shown: HomeShown::Real { writable: false },
            tmp: None,
            mounts: Vec::new(),
            roots: Vec::new(),
            state: b"/nowhere",
            neighbours: Vec::new(),
            network: false,
            uid_is_root: rustix::process::geteuid().is_root(),
        }
    }
}

#[derive(Debug)]
pub enum HomeShown {
    /// A folder of the session's, with the toolchains of the real one in it.
    Private(BindMount),
    Real {
        writable: bool,
    },
}

/// The machine's own folders, where they exist.
pub const SYSTEM: [&str; 12] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu", "/snap"];

/// Folders in a home that make the programs of another folder there work.
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

/// What programs keep in those folders that is nobody's business.
const CREDENTIALS: [&str; 2] = [".cargo/credentials", ".cargo/credentials.toml"];

pub fn view(wanted: Wanted<'_>) -> View {
    let slash = wanted.roots.iter().find(|root| root.at.is_empty()).cloned();
    let mut view = View { guard_proc: wanted.uid_is_root, ..View::default() };
    let mut binds = Vec::new();
    if slash.is_none() {
        system(&mut binds, &mut view.links);
    }
    toolchains(&wanted, &mut binds, &mut view.covers);
    if wanted.network {
        name_server(&mut binds);
    }
    binds.extend(wanted.tmp);
    match wanted.home_shown {
        HomeShown::Private(home) => binds.push(home),
        HomeShown::Real { writable } => {
            let home = seen(wanted.home, writable);
            // Its own uid's rights decide what of it can be read.
            binds.push(BindMount { required: false, ..home });
        }
    }
    if slash.is_some() {
        view.covers.push(b"/run".to_vec());
    }
    let strangers: Vec<Vec<u8>> = wanted
        .neighbours
        .into_iter()
        .filter(|root| binds.iter().any(|bind| *root != bind.from && is_below(root, &bind.from)))
        .filter(|root| !wanted.mounts.iter().chain(&wanted.roots).any(|own| is_below(root, &own.from)))
        .filter(|root| !wanted.mounts.iter().chain(&wanted.roots).any(|own| is_below(&own.at, root)))
        .collect();
    for own in wanted.mounts.into_iter().chain(wanted.roots) {
        // What was found so far and lies inside of it is part of it: the toolchain in a repository stays writable.
        binds.retain(|bind| !is_below(&bind.at, &own.at) || is_apart(bind, &own, wanted.home));
        binds.push(own);
    }
    binds.retain(|bind| !bind.at.is_empty());
    // Parents first; of two at one place the later one counts.
    binds.reverse();
    binds.sort_by(|a, b| a.at.cmp(&b.at));
    binds.dedup_by(|later, first| later.at == first.at);
    view.covers.retain(|path| !binds.iter().any(|bind| bind.at == *path));
    view.covers.extend(strangers);
    // Our state, wherever a folder around it is shown.
    let around = binds.iter().filter(|bind| is_below(wanted.state, &bind.from));
    view.covers.extend(around.map(|bind| [&bind.at, &wanted.state[bind.from.len()..]].concat()));
    view.covers.push(wanted.state.to_vec());
    view.covers.sort();
    view.covers.dedup();
    View { slash, binds, ..view }
}

/// Whether a path could be seen because of what every command sees.
pub fn may_be_shown(path: &str, root: &[u8]) -> bool {
    let mut folders =
        SYSTEM.iter().copied().chain(path.split(':').flat_map(|bin| [bin, bin.trim_end_matches("/bin")]));
    folders.any(|folder| !folder.is_empty() && is_below(root, folder.as_bytes()))
}

/// Not part of the root or mount around it: another one of those, what is the session's own, and what is shown in that.
fn is_apart(bind: &BindMount, around: &BindMount, home: &[u8]) -> bool {
    let in_home_inside = is_below(&bind.at, home) && is_below(home, &around.at) && home != around.at;
    bind.at != around.at && (bind.required || in_home_inside)
}

fn seen(path: &[u8], writable: bool) -> BindMount {
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

fn system(binds: &mut Vec<BindMount>, links: &mut Vec<Link>) {
    for path in SYSTEM.map(str::as_bytes) {
        let Ok(stat) = rustix::fs::lstat(path) else { continue };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => binds.push(seen(path, false)),
            FileType::Symlink => {
                if let Ok(to) = rustix::fs::readlink(path, Vec::new()) {
                    links.push(Link { at: path.to_vec(), to: to.into_bytes() });
                }
            }
            _ => {}
        }
    }
}

/// The folders on PATH that are not the system's, and what makes the programs in them work.
fn toolchains(wanted: &Wanted<'_>, binds: &mut Vec<BindMount>, covers: &mut Vec<Vec<u8>>) {
    let mut add = |path: &[u8]| {
        let is_dir = rustix::fs::stat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
        let ours = is_below(path, wanted.state) || is_below(wanted.state, path);
        if is_dir && !ours && !binds.iter().any(|bind: &BindMount| is_below(path, &bind.at)) {
            binds.push(seen(path, false));
        }
    };
    let folders: Vec<&[u8]> = wanted
        .path
        .split(':')
        .map(|folder| folder.trim_end_matches('/').as_bytes())
        .filter(|folder| {
            folder.starts_with(b"/") && !SYSTEM.iter().any(|own| is_below(folder, own.as_bytes()))
        })
        .collect();
    let in_home = |folder: &&[u8]| is_below(folder, wanted.home);
    if matches!(wanted.home_shown, HomeShown::Private(_)) {
        // One toolchain leans on another: `.cargo/bin` on `.rustup`.
        let first =
            |folder: &[u8]| folder[wanted.home.len()..].split(|b| *b == b'/').nth(1).map(<[u8]>::to_vec);
        let is_toolchain = |name: Vec<u8>| TOOLCHAINS.iter().any(|known| known.as_bytes() == name);
        if folders.iter().copied().filter(in_home).filter_map(first).any(is_toolchain) {
            TOOLCHAINS.iter().for_each(|name| add(&[wanted.home, b"/", name.as_bytes()].concat()));
        }
        // The folder of a home itself is never shown for what lies in it.
        folders
            .iter()
            .filter(|folder| in_home(folder) && **folder != wanted.home)
            .for_each(|folder| add(folder));
        covers.extend(CREDENTIALS.map(|name| [wanted.home, b"/", name.as_bytes()].concat()));
    }
    for folder in folders.iter().filter(|folder| !in_home(folder)) {
        let around = prefix_of(folder).unwrap_or(folder);
        [around, folder].into_iter().filter(|path| !is_below(wanted.home, path)).for_each(&mut add);
    }
}

/// The folder above a `bin`, when it looks like the rest of what is installed there.
fn prefix_of(folder: &[u8]) -> Option<&[u8]> {
    let prefix = folder.strip_suffix(b"/bin").or(folder.strip_suffix(b"/sbin")).filter(|p| !p.is_empty())?;
    let holds = |name: &str| rustix::fs::stat([prefix, b"/", name.as_bytes()].concat()).is_ok();
    ["lib", "lib64", "libexec", "pyvenv.cfg"].into_iter().any(holds).then_some(prefix)
}

/// Where names are resolved is often said by a file in /run, which is not in bind.
fn name_server(binds: &mut Vec<BindMount>) {
    let Some(real) = real_path("/etc/resolv.conf") else { return };
    if !SYSTEM.iter().any(|system| is_below(&real, system.as_bytes())) {
        binds.push(seen(&real, false));
    }
}

/// The path that the kernel reaches `path` by, links resolved.
fn real_path(path: &str) -> Option<Vec<u8>> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let real = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new()).ok()?;
    Some(real.into_bytes())
}

impl View {
    /// Whether what stands at a path is seen through an overlay.
    pub fn is_over(&self, path: &[u8]) -> bool {
        let mut around = self.binds.iter().filter(|bind| is_below(path, &bind.at));
        around.next_back().is_some_and(|bind| bind.overlay.is_some())
    }

    /// The second wall, when the first stands: all that is in bind may be read, and only this be written.
    pub fn landlock_paths(&self) -> LandlockPaths {
        let mut landlock_paths = LandlockPaths { readable: vec![b"/".to_vec()], ..LandlockPaths::default() };
        let binds = self.binds.iter().chain(&self.slash);
        landlock_paths.writable.extend(binds.filter(|bind| bind.writable).map(|bind| bind.at.clone()));
        landlock_paths.writable.extend([b"/dev".to_vec(), b"/proc".to_vec()]);
        landlock_paths
    }

    /// The only wall, where there is no other: the same paths as on the machine itself. Without files it only keeps
    /// signals inside, so that nobody ends those who are to end him.
    pub fn landlock_paths_without_mounts(&self, files: bool) -> LandlockPaths {
        let mut landlock_paths = LandlockPaths { scoped: true, ..LandlockPaths::default() };
        if !files {
            return landlock_paths;
        }
        for bind in self.binds.iter().chain(&self.slash) {
            let paths =
                if bind.writable { &mut landlock_paths.writable } else { &mut landlock_paths.readable };
            paths.push(bind.from.clone());
        }
        landlock_paths.readable.extend(self.links.iter().map(|link| link.at.clone()));
        landlock_paths.readable.push(b"/sys/devices/system/cpu".to_vec());
        landlock_paths.writable.push(b"/proc".to_vec());
        let devices = ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"];
        landlock_paths.writable.extend(devices.map(|name| format!("/dev/{name}").into_bytes()));
        landlock_paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(at: &str, writable: bool) -> BindMount {
        BindMount { required: true, submounts: false, ..seen(at.as_bytes(), writable) }
    }

    fn wanted<'a>(path: &'a str, home: &'a str, roots: &[&str]) -> Wanted<'a> {
        Wanted {
            path,
            home: home.as_bytes(),
            home_shown: HomeShown::Private(BindMount { from: b"/state/home".to_vec(), ..bind(home, true) }),
            tmp: Some(BindMount { from: b"/state/tmp".to_vec(), ..bind("/tmp", true) }),
            mounts: Vec::new(),
            roots: roots.iter().map(|root| bind(root, true)).collect(),
            state: b"/state",
            neighbours: Vec::new(),
            network: false,
            uid_is_root: false,
        }
    }

    fn at<'v>(view: &'v View, path: &str) -> Option<&'v BindMount> {
        view.binds.iter().find(|bind| bind.at == path.as_bytes())
    }

    #[test]
    fn a_usual_view_holds_the_system_the_home_and_the_root() {
        let view = view(wanted("/usr/bin:/bin", "/home/ada", &["/home/ada/work"]));
        assert!(view.slash.is_none());
        assert!(at(&view, "/usr").is_some_and(|usr| !usr.writable));
        assert!(at(&view, "/home/ada").is_some_and(|home| home.from == b"/state/home"));
        assert!(at(&view, "/home/ada/work").is_some_and(|root| root.writable));
        let order: Vec<&[u8]> = view.binds.iter().map(|bind| bind.at.as_slice()).collect();
        assert!(order.is_sorted(), "parents come first: {order:?}");
        assert!(view.covers.contains(&b"/state".to_vec()));
    }

    #[test]
    fn a_root_wins_over_what_lies_at_its_place() {
        for root in ["/tmp", "/home/ada"] {
            let view = view(wanted("/usr/bin", "/home/ada", &[root]));
            assert_eq!(at(&view, root).map(|bind| bind.from.clone()), Some(root.as_bytes().to_vec()));
        }
    }

    #[test]
    fn with_slash_as_a_root_home_and_tmp_stay_the_sessions_own() {
        let view = view(Wanted { roots: vec![bind("", true)], ..wanted("/usr/bin", "/home/ada", &[]) });
        assert!(view.slash.is_some() && view.links.is_empty());
        assert!(at(&view, "/usr").is_none(), "it is part of the root");
        assert!(at(&view, "/home/ada").is_some_and(|home| home.from == b"/state/home"));
        assert!(at(&view, "/tmp").is_some());
        assert!(view.covers.contains(&b"/run".to_vec()));
    }

    #[test]
    fn a_folder_on_path_inside_a_root_stays_part_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_str().unwrap().to_owned();
        let bin = format!("{root}/bin");
        rustix::fs::mkdir(bin.as_str(), 0o755.into()).unwrap();
        let outside = view(wanted(&bin, "/home/ada", &[]));
        assert!(at(&outside, &bin).is_some_and(|bin| !bin.writable));
        let inside = view(wanted(&bin, "/home/ada", &[&root]));
        assert!(at(&inside, &bin).is_none());
    }
}
