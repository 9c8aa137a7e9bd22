//! Git folders on the disk: what the rules of `aos_model::policy::git` read.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd as _, OwnedFd};

use aos_model::path::is_below;
use aos_model::policy::git::{
    CONFIG_BYTES_MAX, Kind, Tree, git_file_target, has_layout, hooks_path, join, named_path,
    protected_in_git_folder,
};
use aos_model::records::Kind as EntryKind;

use crate::disk::{self, Meta, hold_dir_beneath};
use crate::jail::{Root, follow_text};
use crate::session::OpenSession;

/// The roots as they are on the disk.
pub(crate) struct DiskTree<'a>(pub(crate) &'a OpenSession);

impl DiskTree<'_> {
    /// The folder that holds a path, and the name in it. `None` for a root itself and for what is outside.
    pub(crate) fn place<'p>(&self, absolute: &'p [u8]) -> Option<(OwnedFd, &'p [u8])> {
        let root = root_of(self.0, absolute)?;
        let below = absolute[root.path.len()..].strip_prefix(b"/")?;
        let (parent, name) = split(below);
        Some((hold_dir_beneath(root.fd.as_fd(), parent).ok()?, name))
    }
}

impl Tree for DiskTree<'_> {
    fn kind(&self, absolute: &[u8]) -> Option<Kind> {
        if self.0.jail.is_hidden(absolute) {
            return None;
        }
        if root_of(self.0, absolute)?.path == absolute {
            return Some(Kind::Dir);
        }
        let (dir, name) = self.place(absolute)?;
        kind_at(&dir, name)
    }

    fn read(&self, absolute: &[u8]) -> Option<Vec<u8>> {
        let (dir, name) = self.place(absolute).filter(|_| !self.0.jail.is_hidden(absolute))?;
        read_file(&dir, name)
    }
}

/// The outermost root that holds a path.
pub(crate) fn root_of<'s>(session: &'s OpenSession, absolute: &[u8]) -> Option<&'s Root> {
    let holding = session.jail.roots.iter().filter(|root| is_below(absolute, &root.path));
    holding.min_by_key(|root| root.path.len()).map(AsRef::as_ref)
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b".", path),
    }
}

/// What is at a name.
pub(crate) fn kind_at(dir: &OwnedFd, name: &[u8]) -> Option<Kind> {
    Meta::at(dir, name).ok()?.map(|meta| kind_of(meta.kind))
}

pub(crate) fn kind_of(kind: EntryKind) -> Kind {
    match kind {
        EntryKind::File => Kind::File,
        EntryKind::Dir => Kind::Dir,
        EntryKind::Symlink => Kind::Symlink,
        EntryKind::Other => Kind::Other,
    }
}

/// The content of a regular file, up to a byte more than is judged.
pub(crate) fn read_file(dir: &OwnedFd, name: &[u8]) -> Option<Vec<u8>> {
    disk::read_file(dir, name, CONFIG_BYTES_MAX + 1)
}

/// Why a path below the folder of `core.hooksPath` is protected.
const HOOKS_PATH: &str = "git runs hooks in it, by `core.hooksPath`";
const LED_TO: &str = "a link or an include of a protected name leads to it";

/// The paths of an effect that are protected by what is on the disk, and why.
pub(crate) fn problems<'p>(
    session: &OpenSession,
    paths: impl Iterator<Item = &'p [u8]> + Clone,
) -> Vec<(&'p [u8], String)> {
    let before = DiskTree(session);
    let after = WithPaths { disk: DiskTree(session), made: paths.clone().collect() };
    let mut hooks = HookFolders::new(session);
    let problem = |path: &'p [u8]| {
        if let Some(why) = hooks.hold(path) {
            return Some((path, why.to_owned()));
        }
        layout_problem(session, &before, &after, path).map(|why| (path, why))
    };
    paths.filter_map(problem).collect()
}

/// The disk with the paths of an effect: one effect may make every part of a git folder.
struct WithPaths<'a> {
    disk: DiskTree<'a>,
    made: BTreeSet<&'a [u8]>,
}

impl Tree for WithPaths<'_> {
    fn kind(&self, absolute: &[u8]) -> Option<Kind> {
        let is_made = self.made.range(absolute..).next().is_some_and(|made| is_below(made, absolute));
        if is_made { Some(Kind::Dir) } else { self.disk.kind(absolute) }
    }

    fn read(&self, absolute: &[u8]) -> Option<Vec<u8>> {
        self.disk.read(absolute)
    }
}

/// Whether a path configures a folder on the disk that has the layout of a git folder.
pub(crate) fn is_git_configuration(session: &OpenSession, path: &[u8]) -> bool {
    let disk = DiskTree(session);
    layout_problem(session, &disk, &disk, path).is_some()
}

/// Whether a path configures a folder with the layout of a git folder, or gives it that layout.
fn layout_problem(session: &OpenSession, before: &dyn Tree, after: &dyn Tree, path: &[u8]) -> Option<String> {
    let root = root_of(session, path)?.path.len();
    let slashes = (root..path.len()).filter(|at| path[*at] == b'/');
    for slash in slashes {
        let (folder, below) = (&path[..slash], &path[slash + 1..]);
        let first = below.split(|b| *b == b'/').next().unwrap_or_default();
        let completes = matches!(first, b"HEAD" | b"objects" | b"refs" | b"commondir");
        let configures = matches!(
            first,
            b"config"
                | b"config.worktree"
                | b"commondir"
                | b"gitdir"
                | b"hooks"
                | b"info"
                | b"modules"
                | b"worktrees"
        );
        if completes && !has_layout(before, folder) && has_layout(after, folder) {
            return Some("it makes its folder a git folder".to_owned());
        }
        if configures
            && has_layout(after, folder)
            && let Some(pattern) = protected_in_git_folder(below)
        {
            return Some(format!("`{pattern}`"));
        }
    }
    None
}

/// The folders from which git runs hooks because of `core.hooksPath`, by the folder of the repository.
pub(crate) struct HookFolders<'a> {
    session: &'a OpenSession,
    tree: Box<dyn Tree + 'a>,
    known: HashMap<Vec<u8>, Vec<Vec<u8>>>,
}

impl<'a> HookFolders<'a> {
    pub(crate) fn new(session: &'a OpenSession) -> HookFolders<'a> {
        HookFolders::in_tree(session, DiskTree(session))
    }

    /// As the configuration in a tree says.
    pub(crate) fn in_tree(session: &'a OpenSession, tree: impl Tree + 'a) -> HookFolders<'a> {
        HookFolders { session, tree: Box::new(tree), known: HashMap::new() }
    }

    /// Why a path is protected: it is such a folder or in one, or what the user's own links lead to.
    pub(crate) fn hold(&mut self, absolute: &[u8]) -> Option<&'static str> {
        if self.session.led_to.places.iter().any(|place| is_below(absolute, place)) {
            return Some(LED_TO);
        }
        let root = root_of(self.session, absolute)?.path.len();
        let mut slashes = (root..absolute.len()).filter(|at| absolute[*at] == b'/');
        let is_held =
            slashes.any(|slash| self.of(&absolute[..slash]).iter().any(|hooks| is_below(absolute, hooks)));
        is_held.then_some(HOOKS_PATH)
    }

    fn of(&mut self, worktree: &[u8]) -> &[Vec<u8>] {
        if !self.known.contains_key(worktree) {
            let named = self.named_in(worktree).unwrap_or_default();
            let mut hooks: Vec<Vec<u8>> = named.iter().filter_map(|path| join(worktree, path)).collect();
            // A link on the way leads elsewhere.
            let real: Vec<Vec<u8>> = hooks.iter().filter_map(|hooks| follow_text(hooks)).collect();
            hooks.extend(real);
            self.known.insert(worktree.to_vec(), hooks);
        }
        &self.known[worktree]
    }

    /// What counts as `core.hooksPath` in a folder: all that its repository and the user's configuration say. `None` if
    /// the folder is no repository.
    fn named_in(&self, worktree: &[u8]) -> Option<Vec<Vec<u8>>> {
        let dot_git = [worktree, b"/.git"].concat();
        let git = match self.tree.kind(&dot_git)? {
            Kind::File => git_file_target(worktree, &self.tree.read(&dot_git)?)?,
            _ => dot_git,
        };
        let read = |folder: &[u8], name: &str| self.tree.read(&[folder, b"/", name.as_bytes()].concat());
        // A linked worktree has the configuration of the folder that it shares with others.
        let common = read(&git, "commondir").and_then(|line| named_path(&git, &line));
        let configurations = [read(common.as_ref().unwrap_or(&git), "config"), read(&git, "config.worktree")];
        let own = configurations.iter().flatten().filter_map(|bytes| hooks_path(bytes));
        Some(own.chain(self.session.led_to.hook_paths.iter().cloned()).collect())
    }
}
