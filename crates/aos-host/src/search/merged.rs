//! A searched folder: on the disk, in the session's layer, or the layer over the disk.

use std::borrow::Cow;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use aos_model::limits::IGNORE_FILE_BYTES_MAX;
use aos_model::path::RequestPath;
use aos_model::records::Kind;
use aos_model::vfs::{Node, NodeKind};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::content::Source;
use crate::disk::{self, Meta, open_beneath, open_listed};
use crate::jail::View;
use crate::jail::{Jail, Place};
use aos_model::path::is_below;

/// A folder of the disk and the layer together.
#[derive(Debug)]
pub(super) struct MergedDir {
    /// The folder on the disk, if it is visible.
    pub(super) fd: Option<OwnedFd>,
    tree: Option<LayerDir>,
    cross_mounts: bool,
}

#[derive(Debug)]
struct LayerDir {
    view: Arc<View>,
    /// The key prefix of the folder's entries in the tree.
    prefix: String,
}

const READ_FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);
const READ_FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

impl MergedDir {
    pub(super) fn of(place: &Place) -> Result<MergedDir, Errno> {
        let Some(leaf) = &place.leaf else {
            return Ok(MergedDir {
                fd: Some(place.open_dir()?),
                tree: None,
                cross_mounts: place.cross_mounts,
            });
        };
        let own = leaf.node.is_some() || !leaf.view.is_staged();
        let fd = if own { None } else { Some(place.open_dir()?) };
        let tree = Some(LayerDir { view: leaf.view.clone(), prefix: leaf.view.prefix(&place.absolute) });
        Ok(MergedDir { fd, tree, cross_mounts: place.cross_mounts })
    }

    /// A folder above the searched one, for its ignore files.
    pub(super) fn above(jail: &Jail, base: &Place, path: &[u8]) -> Option<MergedDir> {
        let view = base.leaf.as_ref().map(|leaf| leaf.view.clone());
        let tree = view.map(|view| LayerDir { prefix: view.prefix(path), view });
        let covered = tree.as_ref().is_some_and(|tree| tree.view.is_covered(path));
        let fd = if covered { None } else { root_of(jail, path).and_then(|at| open_below(jail, at, path)) };
        (fd.is_some() || tree.is_some()).then_some(MergedDir { fd, tree, cross_mounts: jail.cross_mounts })
    }

    /// The layer's nodes in this folder by name, `Gone` nodes included.
    pub(super) fn own(&self) -> Vec<(&str, &Arc<Node>)> {
        self.tree.as_ref().map_or_else(Vec::new, |tree| tree.view.tree.children(&tree.prefix))
    }

    pub(super) fn has_tree(&self) -> bool {
        self.tree.is_some()
    }

    /// Opens a folder in this one. `path` is its absolute path with a trailing slash.
    pub(super) fn enter(&self, jail: &Jail, name: &CStr, own: bool, path: &[u8]) -> Result<MergedDir, Errno> {
        let tree = self.tree.as_ref().map(|tree| LayerDir {
            view: tree.view.clone(),
            prefix: format!("{}{}/", tree.prefix, aos_model::path::show(name.to_bytes())),
        });
        let fd = match &self.fd {
            Some(fd) if !own => Some(match open_beneath(fd, name, READ_FOLDER, self.cross_mounts) {
                // A mount point is outside the roots, unless it is a root itself.
                Err(Errno::XDEV) => {
                    let is_root =
                        |root: &&std::sync::Arc<crate::jail::Root>| root.path == path[..path.len() - 1];
                    let root = jail.roots.iter().find(is_root).ok_or(Errno::XDEV)?;
                    open_beneath(&root.fd, b".".as_slice(), READ_FOLDER, self.cross_mounts)?
                }
                outcome => outcome?,
            }),
            _ => None,
        };
        if let Some(fd) = &fd {
            let (dev, ino) = disk::id_of(fd)?;
            if jail.own.has_id(dev, ino) {
                // As if it were not there: our state is outside every root.
                return Err(Errno::NOENT);
            }
        }
        Ok(MergedDir { fd, tree, cross_mounts: self.cross_mounts })
    }

    /// Opens a file for searching, with its size; `None` if it is no longer a regular file.
    pub(super) fn open(&self, name: &CStr, own: Option<&Arc<Node>>) -> Result<Option<(Source, u64)>, Errno> {
        if let (Some(node), Some(tree)) = (own, &self.tree) {
            let Some(body) = node.body() else { return Ok(None) };
            let source = tree.view.open(body).map_err(|_| Errno::IO)?;
            return Ok(Some((source, body.size_bytes)));
        }
        let Some(fd) = &self.fd else { return Ok(None) };
        let file = open_listed(fd, name, READ_FILE, self.cross_mounts)?;
        Ok(disk::file_size(&file)?.map(|size| (Source::disk(file), size)))
    }

    /// When a file or a link was last changed; `None` when it became something else meanwhile.
    pub(super) fn mtime_ns(
        &self,
        name: &CStr,
        kind: Kind,
        own: Option<&Arc<Node>>,
    ) -> Result<Option<i64>, Errno> {
        if let Some(node) = own {
            return Ok(i64::try_from(node.updated_at_ns).ok());
        }
        let Some(fd) = &self.fd else { return Ok(None) };
        let (found, mtime_ns) = disk::kind_and_mtime(fd, name)?;
        let listed = if kind == Kind::Symlink { Kind::Symlink } else { Kind::File };
        Ok((found == listed).then_some(mtime_ns))
    }

    /// The kind of a name, without listing the folder.
    pub(super) fn kind_of(&self, name: &str) -> Option<Kind> {
        if let Some(tree) = &self.tree
            && let Some(node) = tree.view.tree.get(&format!("{}{name}", tree.prefix))
        {
            return kind_of(node);
        }
        Meta::at(self.fd.as_ref()?, name.as_bytes()).ok().flatten().map(|meta| meta.kind)
    }

    /// Reads the start of a file in this folder or below it: one byte more than the limit, if there is one.
    pub(super) fn read_small(&self, name: &str) -> Option<Vec<u8>> {
        if let Some(tree) = &self.tree {
            let key = format!("{}{name}", tree.prefix);
            if let Some((path, node)) =
                tree.view.tree.cover(&key).filter(|(path, _)| path.len() >= tree.prefix.len())
            {
                let body = node.body().filter(|_| path == key)?;
                let source = tree.view.open(body).ok()?;
                return read_start(&source, body.size_bytes);
            }
        }
        let file = open_beneath(self.fd.as_ref()?, name, READ_FILE, self.cross_mounts).ok()?;
        let meta = Meta::of(&file).ok().filter(|meta| meta.kind == Kind::File)?;
        read_start(&Source::disk(file), meta.size)
    }
}

pub(super) fn kind_of(node: &Node) -> Option<Kind> {
    match node.what {
        NodeKind::File(_) => Some(Kind::File),
        NodeKind::Dir => Some(Kind::Dir),
        NodeKind::Link { .. } => Some(Kind::Symlink),
        NodeKind::Gone => None,
    }
}

fn root_of(jail: &Jail, path: &[u8]) -> Option<usize> {
    let inside = jail.roots.iter().enumerate().filter(|(_, root)| is_below(path, &root.path));
    inside.max_by_key(|(_, root)| root.path.len()).map(|(index, _)| index)
}

fn open_below(jail: &Jail, root: usize, path: &[u8]) -> Option<OwnedFd> {
    let root = &jail.roots[root];
    let below = path[root.path.len()..].strip_prefix(b"/").unwrap_or(b".");
    open_beneath(&root.fd, below, READ_FOLDER, jail.cross_mounts).ok()
}

fn read_start(source: &Source, size: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; (size as usize).min(IGNORE_FILE_BYTES_MAX + 1)];
    let mut filled = 0;
    while filled < bytes.len() {
        match source.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(filled);
    Some(bytes)
}

/// A name of the layer in the bytes of the disk.
pub(super) fn spelled(name: &str) -> Option<Cow<'_, [u8]>> {
    if !name.contains('\\') {
        return Some(Cow::Borrowed(name.as_bytes()));
    }
    RequestPath::parse(name).ok().map(|spelled| Cow::Owned(spelled.as_bytes().to_vec()))
}
