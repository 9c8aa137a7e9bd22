//! Folders that no command sees, recognised by device and inode: a folder has many names, by links and by bind mounts.

use rustix::fs::{FileType, Mode, OFlags};

/// Device and inode.
pub(crate) type Id = (u64, u64);

pub(crate) fn id_of(path: &[u8]) -> Option<Id> {
    let path: &[u8] = if path.is_empty() { b"/" } else { path };
    rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

pub(crate) fn is_dir(path: &[u8]) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
}

/// The path with symbolic links resolved; empty for `/`.
pub(crate) fn real_path(path: &[u8]) -> Option<Vec<u8>> {
    use std::os::fd::AsRawFd as _;
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let real = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new()).ok()?;
    let real = real.into_bytes();
    Some(if real == b"/" { Vec::new() } else { real })
}

/// A folder and the folders above it, innermost first: the identity of each, and the rest of the path below it.
pub(crate) fn chain(path: &[u8]) -> Vec<(Id, Vec<u8>)> {
    let ends = (0..=path.len()).rev().filter(|end| *end == path.len() || path[*end] == b'/');
    ends.filter_map(|end| Some((id_of(&path[..end])?, path[end..].to_vec()))).collect()
}

/// A folder and the folders in it, `levels` deep.
pub(crate) fn ids_in(folder: &[u8], levels: usize) -> Vec<Id> {
    let mut ids: Vec<Id> = id_of(folder).into_iter().collect();
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
#[derive(Debug, Default)]
pub(crate) struct Private {
    homes: Vec<Id>,
    /// Nothing inside these is shown.
    closed: Vec<Id>,
    /// These are not shown: homes, what is closed, and every folder above one.
    around: Vec<Id>,
}

impl Private {
    pub(crate) fn new<'a>(homes: impl Iterator<Item = &'a [u8]>, state: &[u8]) -> Private {
        let mut private = Private::default();
        private.close(state);
        for home in homes {
            private.homes.extend(id_of(home));
            private.surround(home);
            for folder in SECRET_FOLDERS {
                private.close(&[home, b"/", folder.as_bytes()].concat());
            }
        }
        private
    }

    fn close(&mut self, folder: &[u8]) {
        self.closed.extend(id_of(folder));
        self.surround(folder);
    }

    fn surround(&mut self, folder: &[u8]) {
        let Some(real) = real_path(folder) else { return };
        self.around.extend(chain(&real).into_iter().map(|(id, _)| id));
    }

    /// Whether a folder or file, by its path without links, may be shown.
    pub(crate) fn permits(&self, real: &[u8]) -> bool {
        let chain = chain(real);
        let Some((own, _)) = chain.first() else { return false };
        !self.around.contains(own) && !chain.iter().any(|(id, _)| self.closed.contains(id))
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
        let private = Private::new([path("home").as_slice()].into_iter(), &path("state"));
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
            let real = real_path(&path(name)).unwrap_or_else(|| path(name));
            assert_eq!(private.permits(&real), permitted, "{name}");
        }
    }
}
