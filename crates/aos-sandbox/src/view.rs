//! Computes the [`View`] of a command: the file system that it sees.
//!
//! ```text
//! /usr /bin /sbin /lib* /etc /opt     the machine's, read-only
//! folders on PATH, toolchains         the machine's, read-only; each alone
//! HOME, /tmp                          the session's own
//! mounts, roots                       of the session
//! /proc /dev                          new (mounted by init)
//! ```
//!
//! Where they overlap, later lines win over earlier ones. Everything inside a root belongs to it, except our own state,
//! which is always masked. Homes and our state are recognised by device and inode, whatever PATH calls them, and init
//! opens what is not the session's own with the rights of the command's user.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use rustix::fs::{FileType, Mode, OFlags};

use crate::closed::{closed_folders, closed_paths};
use crate::identity::{Lookup, Private, ids_in};
use crate::mount_calls::mount_points;
use crate::spec::{BindMount, LandlockPaths, Link, Mask, SYSTEM_DIRS, View};
use crate::toolchains;
use aos_model::limits::SHARED_MEMORY_BYTES;
use aos_model::path::is_below;

/// The session's part of the view.
#[derive(Debug)]
pub struct ViewSpec<'a> {
    /// The command's PATH.
    pub path: &'a str,
    /// The path of HOME, for the command and on the machine.
    pub home: &'a [u8],
    /// The homes of the daemon's user and of the command's: never visible as a whole because of PATH.
    pub user_homes: Vec<Vec<u8>>,
    pub home_mount: HomeMount,
    /// The session's own `/tmp`.
    pub tmp: Option<BindMount>,
    pub mounts: Vec<BindMount>,
    pub roots: Vec<BindMount>,
    /// Our own state, by its present path without links: never visible.
    pub state: &'a [u8],
    /// The roots of other sessions: not visible either, unless they are inside a root of this one.
    pub other_session_roots: Vec<Vec<u8>>,
    /// Paths of the machine that rules forbid to read.
    pub unreadable: Vec<Vec<u8>>,
    pub network: bool,
    pub uid_is_root: bool,
    /// Whether ids can be mapped in mounts of the system's folders.
    pub can_disown: bool,
    pub shared_memory_bytes: u64,
}

impl ViewSpec<'_> {
    /// The system folders alone: enough to probe whether a view can be mounted.
    pub fn system_only(can_disown: bool) -> ViewSpec<'static> {
        ViewSpec {
            path: crate::PATH_DEFAULT,
            home: b"/home",
            user_homes: Vec::new(),
            home_mount: HomeMount::Real { writable: false },
            tmp: None,
            mounts: Vec::new(),
            roots: Vec::new(),
            state: b"/nowhere",
            other_session_roots: Vec::new(),
            unreadable: Vec::new(),
            network: false,
            uid_is_root: rustix::process::geteuid().is_root(),
            can_disown,
            shared_memory_bytes: SHARED_MEMORY_BYTES,
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

pub fn build_view(spec: ViewSpec<'_>) -> View {
    // No command runs in a view without roots: it is a probe's.
    let shows_to_root = spec.uid_is_root && !spec.roots.is_empty();
    let host_root = spec.roots.iter().find(|root| root.at.is_empty()).cloned();
    let mut view = View {
        read_only_proc: spec.uid_is_root,
        disowned: spec.uid_is_root && spec.can_disown && host_root.is_none(),
        shared_memory_bytes: spec.shared_memory_bytes,
        ..View::default()
    };
    let mut binds = Vec::new();
    if host_root.is_none() {
        add_system(&mut binds, &mut view.links);
    }
    let lookup = Lookup::default();
    let homes = spec.user_homes.iter().map(Vec::as_slice).chain([spec.home]);
    let private = Private::new(&lookup, homes, spec.state);
    add_path_folders(&spec, &lookup, &private, &mut binds);
    let credentials = credentials(&spec, &lookup);
    if spec.network {
        add_resolv_conf(&lookup, &mut binds);
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
    let own: Vec<BindMount> = spec.mounts.into_iter().chain(spec.roots).collect();
    let foreign_roots = foreign_roots(spec.other_session_roots, &own, &binds);
    for own in own {
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
    let shown: Vec<&BindMount> = binds.iter().chain(&host_root).collect();
    view.masks.extend(credentials.iter().flat_map(|file| places_of(file, &shown)).map(Mask::empty));
    view.masks.extend(alias_masks(&lookup, &private, spec.state, &shown));
    if shows_to_root {
        view.masks.extend(closed_masks(&shown, view.disowned));
    }
    for path in &spec.unreadable {
        let masks = places_of(path, &shown).into_iter().map(|at| {
            // A folder in an overlay cannot be renamed with what is below it; elsewhere it could, out of reach of the rule.
            let fixed = !is_in_overlay(&binds, &at);
            Mask { fixed, ..Mask::denied(at) }
        });
        view.masks.extend(masks);
    }
    view.masks.sort();
    view.masks.dedup();
    View { host_root, binds, ..view }
}

/// Roots of other sessions that a bind mount so far would make visible.
fn foreign_roots(others: Vec<Vec<u8>>, own: &[BindMount], binds: &[BindMount]) -> Vec<Vec<u8>> {
    let is_shown = |root: &[u8]| binds.iter().any(|bind| *root != bind.from && is_below(root, &bind.from));
    let is_own = |root: &[u8]| own.iter().any(|own| is_below(root, &own.from) || is_below(&own.at, root));
    others.into_iter().filter(|root| is_shown(root) && !is_own(root)).collect()
}

fn is_in_overlay(binds: &[BindMount], path: &[u8]) -> bool {
    let mut around = binds.iter().filter(|bind| is_below(path, &bind.at));
    around.next_back().is_some_and(|bind| bind.overlay.is_some())
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

/// Adds the folders on PATH, each alone, and what the table of toolchains lists for them.
fn add_path_folders(spec: &ViewSpec<'_>, lookup: &Lookup, private: &Private<'_>, binds: &mut Vec<BindMount>) {
    let real_home =
        matches!(spec.home_mount, HomeMount::Real { .. }).then(|| lookup.id_of(spec.home)).flatten();
    let mut add = |at: &[u8], real: Vec<u8>| {
        let in_real_home = real_home.is_some_and(|home| lookup.chain(&real).any(|(id, _)| id == home));
        if in_real_home || !private.permits(&real) {
            return;
        }
        // At the path that PATH names, and at its real one, which programs see when they resolve links.
        for place in [at, &real] {
            if !is_in_system(place) {
                let bind = BindMount { from: real.clone(), submounts: false, ..bind_same_path(place, false) };
                binds.push(bind);
            }
        }
    };
    for text in spec.path.split(':').filter(|folder| folder.starts_with('/')) {
        let Some(real) = lookup.real_path(text.as_bytes()).filter(|real| lookup.is_dir(real)) else {
            continue;
        };
        let at = cleaned(text).unwrap_or_else(|| real.clone());
        let mut rows = toolchains::matches(&real);
        if at != real {
            rows.extend(toolchains::matches(&at));
        }
        add(&at, real);
        for row in rows {
            let below = |base: &[u8], name: &str| [base, b"/", name.as_bytes()].concat();
            let Some(base) = lookup.real_path(&row.base) else { continue };
            if row.marker.is_some_and(|marker| lookup.id_of(&below(&base, marker)).is_none()) {
                continue;
            }
            let caches = row.caches.iter().filter(|_| !spec.network);
            for name in row.shows.iter().chain(caches) {
                let Some(real) = lookup.real_path(&below(&row.base, name)) else { continue };
                // In a home a toolchain may be a link; elsewhere a command may have made it.
                let is_link = real != below(&base, name);
                let is_safe = !is_link || lookup.id_of(&base).is_some_and(|base| private.is_home(base));
                if is_safe && !(name.starts_with(".cargo/config") && holds_secret(&real)) {
                    add(&below(&row.base, name), real);
                }
            }
        }
    }
}

fn is_in_system(path: &[u8]) -> bool {
    SYSTEM_DIRS.iter().any(|system| is_below(path, system.as_bytes()))
}

/// The path without empty names and `.`; none if it has `..`.
fn cleaned(path: &str) -> Option<Vec<u8>> {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    (!names.contains(&"..")).then(|| names.iter().flat_map(|name| [b"/", name.as_bytes()].concat()).collect())
}

/// Where the view shows a path of the machine.
fn places_of(path: &[u8], shown: &[&BindMount]) -> Vec<Vec<u8>> {
    let around = shown.iter().filter(|bind| is_below(path, &bind.from));
    around.map(|bind| [&bind.at, &path[bind.from.len()..]].concat()).collect()
}

/// Files with tokens in folders that may be shown.
fn credentials(spec: &ViewSpec<'_>, lookup: &Lookup) -> Vec<Vec<u8>> {
    let always = ["credentials", "credentials.toml"];
    let with_secrets = ["config", "config.toml", "etc/npmrc", ".condarc", "etc/pip.conf", "pip.conf"];
    let (mut files, mut suspects) = (Vec::new(), BTreeSet::new());
    let mut add = |prefix: &[u8], always: &[&str], with_secrets: &[&str]| {
        let real = |name: &str| lookup.real_path(&[prefix, b"/", name.as_bytes()].concat());
        files.extend(always.iter().filter_map(|name| real(name)));
        suspects.extend(with_secrets.iter().filter_map(|name| real(name)));
    };
    let prefix = |bin: &str| bin.trim_end_matches('/').strip_suffix("/bin").map(str::to_owned);
    let prefixes = spec.path.split(':').filter_map(prefix);
    for prefix in prefixes.chain(["/usr/local/cargo".to_owned()]) {
        let is_cargo = prefix.ends_with("cargo");
        add(prefix.as_bytes(), if is_cargo { &always } else { &[] }, &with_secrets);
    }
    add(b"", &[], &["etc/npmrc", "etc/pip.conf", "usr/etc/npmrc", "usr/local/etc/npmrc"]);
    if matches!(spec.home_mount, HomeMount::Private(_)) {
        add(spec.home, &[".cargo/credentials", ".cargo/credentials.toml", ".npmrc"], &[]);
    }
    files.extend(suspects.into_iter().filter(|file| holds_secret(file)));
    files
}

/// For uid 0, which owns the system: what others may not read in it. The session's own roots and mounts stay as they are.
fn closed_masks(shown: &[&BindMount], disowned: bool) -> Vec<Mask> {
    let is_own = |bind: &BindMount| bind.required && !bind.at.is_empty();
    let machine: Vec<&BindMount> = shown.iter().copied().filter(|bind| !is_own(bind)).collect();
    let own: Vec<&BindMount> = shown.iter().copied().filter(|bind| is_own(bind)).collect();
    let paths = if disowned { closed_folders() } else { closed_paths() };
    let places = paths.into_iter().flat_map(|path| places_of(&path, &machine));
    places.filter(|at| !own.iter().any(|own| is_below(at, &own.at))).map(Mask::denied).collect()
}

/// Whether a configuration file holds a token or a password. One that cannot be read counts as if it did.
fn holds_secret(file: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let read = || -> Result<String, rustix::io::Errno> {
        let file = rustix::fs::open(file, flags, Mode::empty())?;
        if !FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_file() {
            return Ok(String::new());
        }
        let mut text = vec![0; 64 << 10];
        let length = rustix::io::read(&file, &mut text)?;
        Ok(String::from_utf8_lossy(&text[..length]).to_lowercase())
    };
    let Ok(text) = read() else { return true };
    let named = ["token", "secret", "passw", "_auth"].iter().any(|word| text.contains(word));
    // `https://user:password@host`
    let in_url = text.split("://").skip(1).any(|rest| {
        rest.split(['/', '"', '\'', ' ', '\n']).next().is_some_and(|authority| authority.contains('@'))
    });
    named || in_url
}

/// Our state, wherever a bind mount or a mount below one shows it, and homes that a mount below a system folder shows.
fn alias_masks(lookup: &Lookup, private: &Private<'_>, state: &[u8], shown: &[&BindMount]) -> Vec<Mask> {
    let state_and_above: Vec<_> = lookup.chain(state).collect();
    let in_state = LazyCell::new(|| ids_in(state, 2));
    let mount_points = mount_points().unwrap_or_default();
    let mut masks = Vec::new();
    for bind in shown {
        let inside = mount_points
            .iter()
            .filter(|point| bind.submounts && **point != bind.from && is_below(point, &bind.from));
        let places = inside.map(|point| (point, [&bind.at, &point[bind.from.len()..]].concat()));
        for (from, at) in places.chain([(&bind.from, bind.at.clone())]) {
            let Some(id) = lookup.id_of(from) else { continue };
            let around = state_and_above.iter().filter(|(above, _)| *above == id);
            masks.extend(
                around.map(|(_, rest)| Mask { fixed: true, ..Mask::empty([at.as_slice(), *rest].concat()) }),
            );
            let is_mounted = *from != bind.from;
            if is_mounted && (in_state.contains(&id) || (!bind.required && private.contains(id))) {
                masks.push(Mask::empty(at));
            }
        }
    }
    masks
}

/// `/etc/resolv.conf` is often a link to a file in /run, which the view does not contain.
fn add_resolv_conf(lookup: &Lookup, binds: &mut Vec<BindMount>) {
    let Some(real) = lookup.real_path(b"/etc/resolv.conf") else { return };
    if !is_in_system(&real) {
        binds.push(bind_same_path(&real, false));
    }
}

impl View {
    /// Whether a path is in an overlay mount.
    pub fn is_in_overlay(&self, path: &[u8]) -> bool {
        is_in_overlay(&self.binds, path)
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
        // Not /dev/shm: it is the machine's, and holds files of other programs.
        let devices = ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"];
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
            user_homes: Vec::new(),
            home_mount: HomeMount::Private(BindMount { from: b"/state/home".to_vec(), ..bind(home, true) }),
            tmp: Some(BindMount { from: b"/state/tmp".to_vec(), ..bind("/tmp", true) }),
            mounts: Vec::new(),
            roots: roots.iter().map(|root| bind(root, true)).collect(),
            state: b"/state",
            other_session_roots: Vec::new(),
            unreadable: Vec::new(),
            network: false,
            uid_is_root: false,
            can_disown: false,
            shared_memory_bytes: SHARED_MEMORY_BYTES,
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
