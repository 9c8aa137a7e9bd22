//! Layered trees: sessions whose changes stay in the record, with nothing below them or a folder of the host.
//!
//! A [`Layer`] is what a live session holds: the newest version of its tree. A [`View`] is one version of it as a request
//! sees it, with the host's folder shining through where there is one. `resolve` finds paths in a view, `land` makes
//! deltas of a plan's steps, `unwind` takes deltas back, `mount` fills a new tree from the host, `staged` shows, commits
//! and discards what waits. No other room knows whether a place is on the disk or in a tree, except where it opens it.

mod contents;
mod land;
mod mount;
mod resolve;
mod staged;
mod unwind;

use std::os::fd::OwnedFd;
use std::sync::{Arc, RwLock};

use aos_model::entry::Fact;
use aos_model::path::show;
use aos_model::receipt::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::state::{tree_prefix, tree_version_key, tree_versions_prefix};
use aos_model::vfs::{Node, Tree, What};
use aos_store::Fault;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::change::TEMPORARY_PREFIX;
use crate::host::Host;
use crate::jail::{Dir, Meta, Place, Source, is_below};
use crate::session::OpenSession;

pub(crate) use contents::Contents;
pub(crate) use land::{capture, change_of, land, land_deltas};
pub(crate) use mount::mount;
pub(crate) use resolve::resolve;
pub(crate) use staged::{Chosen, changes, commit, diff};
pub(crate) use unwind::{TreeRestoration, contents_of};

/// The tree of a live session.
#[derive(Debug)]
pub(crate) struct Layer {
    tree: RwLock<Tree>,
    pub(crate) contents: Arc<Contents>,
    /// A folder of the host lies below.
    pub(crate) is_staged: bool,
    /// The folders of a virtual tree that its session may work in, absolute.
    roots: Vec<Vec<u8>>,
    /// In the place of a folder where there is none: whoever takes it for one is told so by the kernel.
    no_folder: Arc<OwnedFd>,
}

impl Layer {
    pub(crate) fn new(host: &Host, is_staged: bool, roots: &[String], tree: Tree) -> Result<Layer, Refusal> {
        let no_folder = rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|why| crate::fault::refusal("cannot open /dev/null", why))?;
        Ok(Layer {
            tree: RwLock::new(tree),
            contents: host.contents.clone(),
            is_staged,
            roots: roots.iter().map(|root| root.trim_end_matches('/').as_bytes().to_vec()).collect(),
            no_folder: Arc::new(no_folder),
        })
    }

    /// The newest version.
    pub(crate) fn now(&self) -> Tree {
        self.tree.read().expect("BUG: nobody panics with the tree").clone()
    }

    /// What the journal took becomes what everybody sees.
    pub(crate) fn publish(&self, facts: &[Fact]) {
        for fact in facts {
            if let Fact::Tree(change) = fact {
                self.tree.write().expect("BUG: nobody panics with the tree").apply(change);
            }
        }
    }

    fn is_inside(&self, absolute: &[u8]) -> bool {
        self.roots.iter().any(|root| is_below(absolute, root))
    }
}

/// The tree of a session as the journal's state has it.
pub(crate) fn read(host: &Host, session_id: &str) -> Result<Tree, Fault> {
    let version = host.journal.state(&tree_version_key(session_id))?;
    let version = version.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or(0);
    let prefix = tree_prefix(session_id);
    let mut nodes = Vec::new();
    let mut damaged = None;
    host.journal.state_below(&prefix, &mut |key, bytes| match serde_json::from_slice::<Node>(bytes) {
        Ok(node) => nodes.push((key[prefix.len()..].to_owned(), node)),
        Err(why) => damaged = Some(format!("the journal is damaged: `{key}`: {why}")),
    })?;
    match damaged {
        None => Ok(Tree::of(version, nodes)),
        Some(why) => Err(Fault::Refused(why)),
    }
}

/// An earlier version of a session's tree, folded from the entries that made it.
pub(crate) fn at_version(host: &Host, session: &OpenSession, version: u64) -> Result<Option<Tree>, Refusal> {
    let layer = session.layer.as_ref().ok_or_else(no_tree)?;
    let now = layer.now();
    if version == now.version() {
        return Ok(Some(now));
    }
    if version > now.version() {
        return Ok(None);
    }
    let mut seqs = Vec::new();
    host.journal.state_below(&tree_versions_prefix(&session.id), &mut |key, seq| {
        let number: u64 = key.rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX);
        if number <= version {
            seqs.extend(serde_json::from_slice::<u64>(seq));
        }
    })?;
    let mut tree = Tree::default();
    for seq in seqs {
        crate::snapshot::with_entry(host, seq, |entry| {
            for fact in &entry.facts {
                if let Fact::Tree(change) = fact {
                    tree.apply(change);
                }
            }
        })?;
    }
    Ok(Some(tree))
}

pub(crate) fn no_tree() -> Refusal {
    Refusal::new(
        Code::UnsupportedTarget,
        "this session has no tree of its own; open one on `vfs` or `staged`",
    )
}

/// One version of a tree, as one request sees it.
#[derive(Debug)]
pub(crate) struct View {
    session: Arc<OpenSession>,
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
        Some(self.view.layer().contents.open(shown, body))
    }
}

impl View {
    pub(crate) fn now(session: &Arc<OpenSession>) -> Option<Arc<View>> {
        let tree = session.layer.as_ref()?.now();
        Some(Arc::new(View { session: session.clone(), tree }))
    }

    /// The same folder below, under another version of the tree.
    pub(crate) fn with(&self, tree: Tree) -> Arc<View> {
        Arc::new(View { session: self.session.clone(), tree })
    }

    pub(crate) fn is_staged(&self) -> bool {
        self.layer().is_staged
    }

    /// Whether nothing of the host's is seen at a path.
    pub(crate) fn is_covered(&self, absolute: &[u8]) -> bool {
        self.tree.cover(&self.key(absolute)).is_some()
    }

    pub(crate) fn open(&self, body: &aos_model::vfs::Body) -> Result<Source, Refusal> {
        self.layer().contents.open(&body.blob_ref, body)
    }

    fn layer(&self) -> &Layer {
        self.session.layer.as_ref().expect("BUG: a view is of a layered session")
    }

    /// How the tree calls a path; the workdir is the empty one.
    pub(crate) fn key(&self, absolute: &[u8]) -> String {
        let shown = self.session.jail.shown(absolute);
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

    fn meta(&self, absolute: &[u8], node: &Node) -> Option<Meta> {
        let mount = self.session.jail.roots.first().map_or(0, |root| root.meta.mount);
        Meta::of_node(absolute, node, mount)
    }

    /// A place of the tree's own.
    fn leaf(self: &Arc<View>, absolute: Vec<u8>, node: Option<Arc<Node>>) -> Place {
        let name = absolute.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
        Place {
            dir: Dir::Opened(self.layer().no_folder.clone()),
            name: absolute[name..].to_vec(),
            shown: self.session.jail.shown(&absolute),
            meta: node.as_ref().and_then(|node| self.meta(&absolute, node)),
            cross_mounts: false,
            leaf: Some(Leaf { view: self.clone(), node }),
            absolute,
        }
    }

    /// What stands right in a folder, in no order.
    pub(crate) fn inside(self: &Arc<View>, folder: &Place) -> Result<Vec<Place>, Errno> {
        let mut places = Vec::new();
        let own = |name: &[u8]| self.tree.get(&format!("{}{}", self.prefix(&folder.absolute), show(name)));
        let is_own = folder.leaf.as_ref().is_some_and(|leaf| leaf.node.is_some());
        if !is_own && self.layer().is_staged {
            let dir = Arc::new(folder.open_dir()?);
            for name in crate::change::names_in(&dir)? {
                let absolute = [folder.absolute.as_slice(), b"/", &name].concat();
                let passed = name.starts_with(TEMPORARY_PREFIX) || self.session.jail.is_hidden(&absolute);
                if passed || own(&name).is_some() {
                    continue;
                }
                places.push(Place {
                    meta: Meta::at(&dir, &name)?,
                    dir: Dir::Opened(dir.clone()),
                    shown: self.session.jail.shown(&absolute),
                    absolute,
                    name,
                    cross_mounts: folder.cross_mounts,
                    leaf: Some(Leaf { view: self.clone(), node: None }),
                });
            }
        }
        for (name, node) in self.tree.children(&self.prefix(&folder.absolute)) {
            if !node.is_gone() {
                let name = aos_model::path::Spelled::parse(name).map_err(|_| Errno::INVAL)?;
                let absolute = [folder.absolute.as_slice(), b"/", name.as_bytes()].concat();
                places.push(self.leaf(absolute, Some(node.clone())));
            }
        }
        Ok(places)
    }

    /// Everything below a folder, each folder before what is in it.
    pub(crate) fn each_below(
        self: &Arc<View>,
        folder: &Place,
        each: &mut dyn FnMut(&Place, Meta) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut inside = self.inside(folder).map_err(|why| folder.fault("look into", why))?;
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
    /// What a node looks like; nothing where it hides something.
    fn of_node(absolute: &[u8], node: &Node, mount: u64) -> Option<Meta> {
        let (kind, size) = match &node.what {
            What::File(body) => (Kind::File, body.size_bytes),
            What::Dir => (Kind::Dir, 0),
            What::Link { target } => (Kind::Symlink, target.len() as u64),
            What::Gone => return None,
        };
        // Nodes have no number; paths tell them apart.
        let number = absolute.iter().fold(5381_u64, |sum, b| sum.wrapping_mul(33) ^ u64::from(*b));
        Some(Meta {
            kind,
            mode: node.mode,
            size,
            mtime_ns: i64::try_from(node.updated_at_ns).unwrap_or(i64::MAX),
            dev: u64::MAX,
            ino: number,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            mount,
        })
    }
}

/// The absolute path of what the tree calls `key`.
pub(crate) fn absolute(session: &OpenSession, key: &str) -> Vec<u8> {
    let bytes =
        aos_model::path::Spelled::parse(key).map_or_else(|_| key.into(), |path| path.as_bytes().to_vec());
    if bytes.starts_with(b"/") { bytes } else { [session.jail.workdir.as_slice(), b"/", &bytes].concat() }
}

/// The root of a virtual tree: it is always there.
fn root_node() -> Node {
    Node { what: What::Dir, mode: 0o755, version: 1, created_at_ns: 0, updated_at_ns: 0, base: None }
}

/// What stands at a place of the host's folder, copied into a node.
pub(crate) fn copied(host: &Host, place: &Place, meta: &Meta, now_ns: u64) -> Result<Node, Refusal> {
    let fail = |why| place.fault("read", why);
    let what = match meta.kind {
        Kind::Dir => What::Dir,
        Kind::Symlink => {
            let target =
                rustix::fs::readlinkat(&place.dir, place.name.as_slice(), Vec::new()).map_err(fail)?;
            What::Link { target: show(target.as_bytes()) }
        }
        Kind::File => {
            let (source, meta) = place.open_file()?;
            let file = source.file().expect("BUG: the host's files are files");
            What::File(aos_model::vfs::Body::whole(host.blobs.copy(file)?, meta.size))
        }
        Kind::Other => {
            return Err(Refusal::new(
                Code::NotRegularFile,
                format!(
                    "{} is no regular file; it can be neither copied nor moved in a staged tree",
                    place.shown
                ),
            ));
        }
    };
    Ok(Node { what, mode: meta.mode, version: 1, created_at_ns: now_ns, updated_at_ns: now_ns, base: None })
}
