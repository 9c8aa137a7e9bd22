//! Folders that no command sees, recognised by device and inode: a folder has many names, by links and by bind mounts.

use std::cell::RefCell;
use std::collections::HashMap;

use rustix::fs::{FileType, Mode, OFlags};

/// Device and inode.
pub(crate) type Id = (u64, u64);

/// What paths lead to. Each is looked up once: a view has many paths with the same folders above them.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    found: RefCell<HashMap<Vec<u8>, Option<Found>>>,
    real: RefCell<HashMap<Vec<u8>, Option<Vec<u8>>>>,
}

#[derive(Debug, Clone, Copy)]
struct Found {
    id: Id,
    is_dir: bool,
}

impl Lookup {
    fn stat(&self, path: &[u8]) -> Option<Found> {
        *self.found.borrow_mut().entry(path.to_vec()).or_insert_with(|| {
            let path: &[u8] = if path.is_empty() { b"/" } else { path };
            let stat = rustix::fs::stat(path).ok()?;
            let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
            Some(Found { id: (stat.st_dev, stat.st_ino), is_dir })
        })
    }

    pub(crate) fn id_of(&self, path: &[u8]) -> Option<Id> {
        self.stat(path).map(|found| found.id)
    }

    pub(crate) fn is_dir(&self, path: &[u8]) -> bool {
        self.stat(path).is_some_and(|found| found.is_dir)
    }

    /// The path with symbolic links resolved; empty for `/`.
    pub(crate) fn real_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.real.borrow_mut().entry(path.to_vec()).or_insert_with(|| real_path(path)).clone()
    }

    /// A folder and the folders above it, innermost first: the identity of each, and the rest of the path below it.
    pub(crate) fn chain<'p>(&self, path: &'p [u8]) -> impl Iterator<Item = (Id, &'p [u8])> {
        let ends = (0..=path.len()).rev().filter(|end| *end == path.len() || path[*end] == b'/');
        ends.filter_map(|end| Some((self.id_of(&path[..end])?, &path[end..])))
    }
}

fn real_path(path: &[u8]) -> Option<Vec<u8>> {
    use std::os::fd::AsRawFd as _;
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let real = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new()).ok()?;
    let real = real.into_bytes();
    Some(if real == b"/" { Vec::new() } else { real })
}

/// A folder and the folders in it, `levels` deep.
pub(crate) fn ids_in(folder: &[u8], levels: usize) -> Vec<Id> {
    let mut ids: Vec<Id> = Lookup::default().id_of(folder).into_iter().collect();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let listing = rustix::fs::open(folder, flags, Mode::empty()).and_then(rustix::fs::Dir::read_from);
    for entry in listing.into_iter().flatten().flatten() {
        let name = entry.file_name().to_bytes();
        if levels > 0 && entry.file_type() == FileType::Directory && name != b"." && name != b".." {
            ids.extend(ids_in(&[folder, b"/", name].concat(), levels - 1));
        }
    }
    ids
}

/// Folders in a home that hold keys and tokens.
const SECRET_FOLDERS: [&str; 12] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    ".config/gh",
    ".config/gcloud",
    ".config/op",
    ".mozilla",
    ".local/share/keyrings",
];

/// The homes of people, our own state, and what in a home holds keys.
#[derive(Debug)]
pub(crate) struct Private<'l> {
    lookup: &'l Lookup,
    homes: Vec<Id>,
    /// Nothing inside these is shown.
    closed: Vec<Id>,
    /// These are not shown: homes, what is closed, and every folder above one.
    around: Vec<Id>,
}

impl<'l> Private<'l> {
    pub(crate) fn new<'a>(
        lookup: &'l Lookup,
        homes: impl Iterator<Item = &'a [u8]>,
        state: &[u8],
    ) -> Private<'l> {
        let mut private = Private { lookup, homes: Vec::new(), closed: Vec::new(), around: Vec::new() };
        private.close(state);
        for home in homes {
            private.homes.extend(lookup.id_of(home));
            private.surround(home);
            for folder in SECRET_FOLDERS {
                private.close(&[home, b"/", folder.as_bytes()].concat());
            }
        }
        private
    }

    fn close(&mut self, folder: &[u8]) {
        self.closed.extend(self.lookup.id_of(folder));
        self.surround(folder);
    }

    fn surround(&mut self, folder: &[u8]) {
        let Some(real) = self.lookup.real_path(folder) else { return };
        self.around.extend(self.lookup.chain(&real).map(|(id, _)| id));
    }

    /// Whether a folder or file, by its path without links, may be shown.
    pub(crate) fn permits(&self, real: &[u8]) -> bool {
        let mut chain = self.lookup.chain(real).map(|(id, _)| id);
        let Some(own) = chain.next() else { return false };
        let is_closed = |id: &Id| self.closed.contains(id);
        !self.around.contains(&own) && !is_closed(&own) && !chain.any(|id| is_closed(&id))
    }

    pub(crate) fn is_home(&self, folder: Id) -> bool {
        self.homes.contains(&folder)
    }

    /// Whether showing this folder would show a home or our state.
    pub(crate) fn contains(&self, folder: Id) -> bool {
        self.around.contains(&folder) || self.closed.contains(&folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_recognised_by_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap().to_str().unwrap().to_owned();
        for folder in
            ["home", "home/.ssh", "home/bin", "home/.config", "home/.config/gh", "state", "state/run"]
        {
            rustix::fs::mkdir(format!("{top}/{folder}"), 0o755.into()).unwrap();
        }
        rustix::fs::symlink(format!("{top}/home"), format!("{top}/alias")).unwrap();
        let path = |name: &str| format!("{top}/{name}").into_bytes();
        let lookup = Lookup::default();
        let private = Private::new(&lookup, [path("home").as_slice()].into_iter(), &path("state"));
        for (name, permitted) in [
            ("alias", false),
            ("alias/.", false),
            ("alias/bin", true),
            ("alias/.ssh", false),
            ("alias/.config", false),
            ("home/../home", false),
            ("state/run", false),
            ("missing", false),
            ("", false),
        ] {
            let real = lookup.real_path(&path(name)).unwrap_or_else(|| path(name));
            assert_eq!(private.permits(&real), permitted, "{name}");
        }
    }
}
