//! What a path can lead to besides the disk: a node of the tree that a virtual or staged session keeps its changes in.
//!
//! Data and lookups only. Resolving paths in a view, changing it and undoing changes are the module `layer`.

use std::os::fd::OwnedFd;
use std::sync::{Arc, RwLock};

use aos_model::entry::Fact;
use aos_model::refusal::Refusal;
use aos_model::vfs::{Node, Tree};
use rustix::fs::{Mode, OFlags};

use super::Jail;
use crate::content::{Contents, Source};
use aos_model::path::is_below;

/// The layer of an open session.
#[derive(Debug)]
pub(crate) struct Layer {
    tree: RwLock<Tree>,
    pub(crate) contents: Arc<Contents>,
    /// It is over a folder of the host.
    pub(crate) is_staged: bool,
    /// The folders of a virtual tree that its session may work in, absolute.
    pub(crate) roots: Vec<Vec<u8>>,
    /// Used where there is no folder: the kernel answers `ENOTDIR` to whoever uses it as one.
    pub(crate) no_folder: Arc<OwnedFd>,
}

impl Layer {
    pub(crate) fn new(
        contents: &Arc<Contents>,
        is_staged: bool,
        roots: &[String],
        tree: Tree,
    ) -> Result<Layer, Refusal> {
        let no_folder = rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|why| crate::fault::refusal("cannot open /dev/null", why))?;
        Ok(Layer {
            tree: RwLock::new(tree),
            contents: contents.clone(),
            is_staged,
            roots: roots.iter().map(|root| root.trim_end_matches('/').as_bytes().to_vec()).collect(),
            no_folder: Arc::new(no_folder),
        })
    }

    /// The newest version.
    pub(crate) fn now(&self) -> Tree {
        self.tree.read().expect("BUG: lock poisoned").clone()
    }

    /// What the journal took becomes what everybody sees.
    pub(crate) fn publish(&self, facts: &[Fact]) {
        for fact in facts {
            if let Fact::Tree(change) = fact {
                self.tree.write().expect("BUG: lock poisoned").apply(change);
            }
        }
    }

    pub(crate) fn is_inside(&self, absolute: &[u8]) -> bool {
        self.roots.iter().any(|root| is_below(absolute, root))
    }
}

/// One version of a tree, as one request sees it.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) layer: Arc<Layer>,
    pub(crate) jail: Arc<Jail>,
    pub(crate) tree: Tree,
}

/// What a place is in a layered tree: a node of its own, or what shines through.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    pub(crate) view: Arc<View>,
    pub(crate) node: Option<Arc<Node>>,
}

impl Leaf {
    /// The content of a file of the tree's own.
    pub(crate) fn open(&self, shown: &str) -> Option<Result<Source, Refusal>> {
        let body = self.node.as_ref()?.body()?;
        Some(self.view.layer.contents.open(shown, body))
    }
}

impl View {
    /// The newest version.
    pub(crate) fn now(layer: &Arc<Layer>, jail: &Arc<Jail>) -> Arc<View> {
        Arc::new(View { layer: layer.clone(), jail: jail.clone(), tree: layer.now() })
    }

    /// The same folder below, under another version of the tree.
    pub(crate) fn with(&self, tree: Tree) -> Arc<View> {
        Arc::new(View { layer: self.layer.clone(), jail: self.jail.clone(), tree })
    }

    pub(crate) fn is_staged(&self) -> bool {
        self.layer.is_staged
    }

    /// Whether nothing of the host's is seen at a path.
    pub(crate) fn is_covered(&self, absolute: &[u8]) -> bool {
        self.tree.cover(&self.key(absolute)).is_some()
    }

    pub(crate) fn open(&self, body: &aos_model::vfs::Body) -> Result<Source, Refusal> {
        self.layer.contents.open(&body.blob_ref, body)
    }

    /// How the tree calls a path; the workdir is the empty one.
    pub(crate) fn key(&self, absolute: &[u8]) -> String {
        let shown = self.jail.display(absolute);
        if shown == "." { String::new() } else { shown }
    }

    /// Where the names in a folder begin, as the tree calls them.
    pub(crate) fn prefix(&self, folder: &[u8]) -> String {
        match self.key(folder).as_str() {
            "" => String::new(),
            "/" => "/".to_owned(),
            key => format!("{key}/"),
        }
    }

    pub(crate) fn node(&self, absolute: &[u8]) -> Option<&Arc<Node>> {
        self.tree.get(&self.key(absolute))
    }
}
