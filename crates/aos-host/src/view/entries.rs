//! The entries of a folder in a view: the layer's nodes over the entries of the host folder.

use std::sync::Arc;

use aos_model::path::show;
use aos_model::records::Kind;
use aos_model::refusal::Refusal;
use aos_model::vfs::{Node, NodeKind};
use rustix::io::Errno;

use crate::disk::{Meta, TEMPORARY_PREFIX, names_in};
use crate::jail::{Dir, Leaf, Place, View};

impl View {
    pub(crate) fn meta(&self, absolute: &[u8], node: &Node) -> Option<Meta> {
        let mount = self.jail.roots.first().map_or(0, |root| root.meta.mount);
        Meta::of_node(absolute, node, mount)
    }

    /// A place that is a node of the layer.
    pub(crate) fn leaf(self: &Arc<View>, absolute: Vec<u8>, node: Option<Arc<Node>>) -> Place {
        let name = absolute.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
        Place {
            dir: Dir::Opened(self.layer.no_folder.clone()).into(),
            name: absolute[name..].to_vec(),
            shown: self.jail.display(&absolute),
            meta: node.as_ref().and_then(|node| self.meta(&absolute, node)),
            cross_mounts: false,
            leaf: Some(Leaf { view: self.clone(), node }),
            absolute,
        }
    }

    /// The direct entries of a folder, unsorted.
    pub(crate) fn inside(self: &Arc<View>, folder: &Place) -> Result<Vec<Place>, Errno> {
        let mut places = Vec::new();
        let own = |name: &[u8]| self.tree.get(&format!("{}{}", self.prefix(&folder.absolute), show(name)));
        let is_own = folder.leaf.as_ref().is_some_and(|leaf| leaf.node.is_some());
        if !is_own && self.layer.is_staged {
            let dir = Arc::new(folder.open_dir()?);
            for name in names_in(&dir)? {
                let absolute = [folder.absolute.as_slice(), b"/", &name].concat();
                let passed = name.starts_with(TEMPORARY_PREFIX) || self.jail.is_hidden(&absolute);
                if passed || own(&name).is_some() {
                    continue;
                }
                let meta = Meta::at(&dir, &name)?;
                if meta.is_some_and(|meta| self.jail.own.is(&meta)) {
                    continue;
                }
                places.push(Place {
                    meta,
                    dir: Dir::Opened(dir.clone()).into(),
                    shown: self.jail.display(&absolute),
                    absolute,
                    name,
                    cross_mounts: folder.cross_mounts,
                    leaf: Some(Leaf { view: self.clone(), node: None }),
                });
            }
        }
        for (name, node) in self.tree.children(&self.prefix(&folder.absolute)) {
            if !node.is_gone() {
                let name = aos_model::path::RequestPath::parse(name).map_err(|_| Errno::INVAL)?;
                let absolute = [folder.absolute.as_slice(), b"/", name.as_bytes()].concat();
                places.push(self.leaf(absolute, Some(node.clone())));
            }
        }
        Ok(places)
    }

    /// Calls `each` for everything below a folder, parents first.
    pub(crate) fn each_below(
        self: &Arc<View>,
        folder: &Place,
        each: &mut dyn FnMut(&Place, Meta) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut inside = self.inside(folder).map_err(|why| folder.refusal("list", why))?;
        inside.sort_by(|a, b| a.name.cmp(&b.name));
        for place in inside {
            let Some(meta) = place.meta else { continue };
            each(&place, meta)?;
            if meta.kind == Kind::Dir {
                self.each_below(&place, each)?;
            }
        }
        Ok(())
    }
}

impl Meta {
    /// The metadata of a node; `None` for a `Gone` node.
    fn of_node(absolute: &[u8], node: &Node, mount: u64) -> Option<Meta> {
        let (kind, size) = match &node.what {
            NodeKind::File(body) => (Kind::File, body.size_bytes),
            NodeKind::Dir => (Kind::Dir, 0),
            NodeKind::Link { target } => (Kind::Symlink, target.len() as u64),
            NodeKind::Gone => return None,
        };
        // Nodes have no inode number; they are identified by path.
        let number = absolute.iter().fold(5381_u64, |sum, b| sum.wrapping_mul(33) ^ u64::from(*b));
        let changed_at_ns = i64::try_from(node.updated_at_ns).unwrap_or(i64::MAX);
        Some(Meta {
            kind,
            mode: node.mode,
            size,
            mtime_ns: changed_at_ns,
            ctime_ns: changed_at_ns,
            dev: u64::MAX,
            ino: number,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            mount,
        })
    }
}
