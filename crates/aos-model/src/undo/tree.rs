//! A tree that is the disk with changes over it.
//!
//! Nothing is looked up before it is needed, so the cost follows the paths that a plan names. The same structure, made
//! with [`Tree::symbolic`], describes trees that are known only from records: there every path exists until a record
//! says otherwise.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::acl;
use crate::records::{Identity, Image, Kind};

/// What the planner may look up. Paths are absolute, as in receipts; the root is the empty string.
///
/// A lookup that fails answers as if nothing were there and keeps the failure; the caller then discards the plan.
pub trait World {
    /// What is at a path now, with `xattrs`. The hash of a file may be left out. Folders above the roots are asked too.
    fn on_disk(&self, path: &str) -> Option<Image>;
    fn names_on_disk(&self, path: &str) -> Vec<String>;
    /// Everything below a folder, as paths that begin with a slash; `None` if there is more than the plan lists.
    fn below_on_disk(&self, path: &str) -> Option<Vec<String>>;
    /// Reads a file, or the target of a link. `None`: it cannot be read.
    fn hash_on_disk(&self, path: &str) -> Option<String>;
    /// An object of a pre-image, with its hash and `xattrs`. `None`: it was absent.
    fn stored(&self, object: &StoredRef) -> Option<Image>;
    fn names_stored(&self, object: &StoredRef) -> Vec<String>;
    /// The content that the session's records know for an identity.
    fn known_hash(&self, identity: &Identity) -> Option<String>;
    /// The only content that they know for a time and a size. A pre-image may be a copy, which has another inode, and the
    /// time of what it is a copy of.
    fn copied_hash(&self, mtime_ns: i64, size_bytes: u64) -> Option<String>;
}

/// A pre-image, which holds the object at a path and everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preimage {
    pub snapshot_id: String,
    /// A path may have several pre-images in one snapshot.
    pub name: String,
    pub path: String,
}

/// A pre-image, or an object below one that is a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRef {
    pub preimage: Arc<Preimage>,
    /// Empty, or beginning with a slash.
    pub suffix: String,
}

/// Where an object is taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The object that is at this path of the disk. In a symbolic tree: that the records left or found at this path.
    Disk(String),
    Stored(StoredRef),
    /// A folder that the plan makes, or an object that a record describes. It has no entries but those over it.
    Made,
    /// Whatever is there: an explicit snapshot has no post-image.
    Any,
}

/// An object at a place of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// `None` in a symbolic tree: unknown, so as it is.
    pub image: Option<Image>,
    pub source: Source,
    /// Entries that are not those of the source.
    pub over: BTreeMap<String, Option<Node>>,
    /// A folder that a change made: before the change it existed only if others have entries in it.
    pub if_filled: bool,
}

impl Node {
    pub(super) fn new(image: Option<Image>, source: Source) -> Node {
        Node { image, source, over: BTreeMap::new(), if_filled: false }
    }

    pub(super) fn made(image: Image) -> Node {
        Node::new(Some(image), Source::Made)
    }

    /// An object of unknown kind may be a folder.
    pub fn is_dir(&self) -> bool {
        self.image.as_ref().is_none_or(|image| image.kind == Kind::Dir)
    }

    pub(super) fn is_disk(&self, path: &str) -> bool {
        matches!(&self.source, Source::Disk(at) if at == path)
    }

    pub(super) fn set_attrs(&mut self, wanted: &Image) {
        match &mut self.image {
            Some(image) => {
                image.mode = wanted.mode;
                // The mode changes how an ACL reads.
                let xattrs = wanted.xattrs.as_ref().or(image.xattrs.as_ref());
                image.xattrs = xattrs.map(|xattrs| acl::with_mode(xattrs, wanted.mode));
            }
            None => self.image = Some(wanted.clone()),
        }
    }
}

/// A folder with default attributes.
pub fn folder() -> Image {
    Image {
        kind: Kind::Dir,
        mode: 0o755,
        size_bytes: 0,
        hash: None,
        preimage: None,
        identity: None,
        xattrs: Some(BTreeMap::new()),
    }
}

pub(super) fn join(dir: &str, name: &str) -> String {
    format!("{dir}/{name}")
}

pub(super) fn is_or_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The folders above a path, the topmost first, without the root.
pub(super) fn ancestors(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.match_indices('/').filter(|(slash, _)| *slash > 0).map(|(slash, _)| &path[..slash])
}

/// What a path is and what it becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub now: Option<Image>,
    pub goal: Option<Image>,
}

#[derive(Debug)]
pub struct Tree<'w, W> {
    pub(super) world: &'w W,
    is_symbolic: bool,
    pub root: Node,
}

impl<W> Clone for Tree<'_, W> {
    fn clone(&self) -> Self {
        Tree { root: self.root.clone(), ..*self }
    }
}

impl<'w, W: World> Tree<'w, W> {
    pub fn of_disk(world: &'w W) -> Tree<'w, W> {
        Tree { world, is_symbolic: false, root: Node::new(Some(folder()), Source::Disk(String::new())) }
    }

    pub(super) fn symbolic(world: &'w W) -> Tree<'w, W> {
        Tree { world, is_symbolic: true, root: Node::new(None, Source::Disk(String::new())) }
    }

    fn at_path(&self, path: String) -> Option<Node> {
        if self.is_symbolic {
            return Some(Node::new(None, Source::Disk(path)));
        }
        let image = if path.is_empty() { folder() } else { self.world.on_disk(&path)? };
        Some(Node::new(Some(image), Source::Disk(path)))
    }

    fn stored(&self, object: StoredRef) -> Option<Node> {
        Some(Node::new(Some(self.world.stored(&object)?), Source::Stored(object)))
    }

    pub(super) fn preimage(&self, preimage: Preimage) -> Option<Node> {
        self.stored(StoredRef { preimage: Arc::new(preimage), suffix: String::new() })
    }

    pub fn child<'n>(&self, node: &'n Node, name: &str) -> Option<Cow<'n, Node>> {
        match (node.over.get(name), &node.source) {
            (Some(over), _) => over.as_ref().map(Cow::Borrowed),
            (None, _) if !node.is_dir() => None,
            (None, Source::Disk(path)) => self.at_path(join(path, name)).map(Cow::Owned),
            (None, Source::Stored(object)) => {
                let suffix = join(&object.suffix, name);
                self.stored(StoredRef { suffix, ..object.clone() }).map(Cow::Owned)
            }
            (None, Source::Made) => None,
            (None, Source::Any) => Some(Cow::Owned(Node::new(None, Source::Any))),
        }
    }

    /// The names of the entries. In a symbolic folder only those that are known.
    pub fn names(&self, node: &Node) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = match &node.source {
            _ if !node.is_dir() => BTreeSet::new(),
            Source::Disk(path) if !self.is_symbolic => self.world.names_on_disk(path).into_iter().collect(),
            Source::Stored(object) => self.world.names_stored(object).into_iter().collect(),
            Source::Disk(_) | Source::Made | Source::Any => BTreeSet::new(),
        };
        for (name, over) in &node.over {
            if over.is_some() {
                names.insert(name.clone())
            } else {
                names.remove(name)
            };
        }
        names
    }

    pub fn get(&self, path: &str) -> Option<Cow<'_, Node>> {
        let mut node = Cow::Borrowed(&self.root);
        for name in path.split('/').skip(1) {
            node = match node {
                Cow::Borrowed(node) => self.child(node, name)?,
                Cow::Owned(node) => Cow::Owned(self.child(&node, name)?.into_owned()),
            };
        }
        Some(node)
    }

    /// Sets a path. Folders above it are made, in place of anything that is not a folder.
    pub(super) fn set(&mut self, path: &str, to: Option<Node>) {
        let (above, name) = path.rsplit_once('/').expect("BUG: the path is absolute");
        if to.is_none() && !self.get(above).is_some_and(|above| above.is_dir()) {
            return;
        }
        let mut root = std::mem::replace(&mut self.root, Node::made(folder()));
        let mut node = &mut root;
        for name in above.split('/').skip(1) {
            if !node.over.get(name).is_some_and(|over| over.as_ref().is_some_and(Node::is_dir)) {
                let is_changed = node.over.contains_key(name);
                let child = if is_changed { None } else { self.child(node, name).map(Cow::into_owned) };
                let made = || Node { if_filled: true, ..Node::made(folder()) };
                let child = child.filter(Node::is_dir).unwrap_or_else(made);
                node.over.insert(name.to_owned(), Some(child));
            }
            node = node.over.get_mut(name).and_then(Option::as_mut).expect("it was set above");
        }
        node.over.insert(name.to_owned(), to);
        self.root = root;
    }

    /// Same kind, content, mode, attributes and ACL. What a record does not know is not compared.
    pub fn is_same(&self, one: &Node, other: &Node) -> bool {
        let (Some(a), Some(b)) = (&one.image, &other.image) else { return true };
        let same_attrs = a.kind == Kind::Symlink || has_attrs_of(a, b);
        a.kind == b.kind && same_attrs && (a.kind == Kind::Dir || self.has_same_content(one, a, other, b))
    }

    fn has_same_content(&self, one: &Node, a: &Image, other: &Node, b: &Image) -> bool {
        if a.kind == Kind::File && a.size_bytes != b.size_bytes {
            return false;
        }
        let (known_a, known_b) = (self.known_hash(one, a), self.known_hash(other, b));
        // A time can be set back, so where the content of one is known, that of the other is read.
        let read = |node, is_needed: bool| if is_needed { self.read_hash(node) } else { None };
        let hash_a = known_a.clone().or_else(|| read(one, known_b.is_some()));
        let hash_b = known_b.or_else(|| read(other, known_a.is_some()));
        if hash_a.is_some() && hash_b.is_some() {
            return hash_a == hash_b;
        }
        if a.identity.is_some() && a.identity == b.identity {
            return true;
        }
        // An object of unknown content was only moved, so nothing is lost if the comparison is wrong. What is recorded may
        // be there as a copy, with the same time.
        let mtime = |image: &Image| image.identity.map(|identity| identity.mtime_ns);
        let is_recorded = self.disk_path(one).is_none() || self.disk_path(other).is_none();
        if is_recorded && mtime(a).is_some() && mtime(a) == mtime(b) {
            return true;
        }
        let copied = |image: &Image| self.world.copied_hash(mtime(image)?, image.size_bytes);
        let hash_a = hash_a.or_else(|| self.read_hash(one)).or_else(|| copied(a));
        hash_a.is_some() && hash_a == hash_b.or_else(|| self.read_hash(other)).or_else(|| copied(b))
    }

    fn disk_path<'n>(&self, node: &'n Node) -> Option<&'n str> {
        match &node.source {
            Source::Disk(path) if !self.is_symbolic => Some(path),
            Source::Disk(_) | Source::Stored(_) | Source::Made | Source::Any => None,
        }
    }

    fn known_hash(&self, node: &Node, image: &Image) -> Option<String> {
        let recorded = || self.world.known_hash(image.identity.as_ref()?);
        let is_recorded = self.disk_path(node).is_none();
        image.hash.clone().or_else(|| is_recorded.then(recorded).flatten())
    }

    fn read_hash(&self, node: &Node) -> Option<String> {
        self.world.hash_on_disk(self.disk_path(node)?)
    }

    /// The same with everything below.
    pub(super) fn is_same_tree(&self, one: &Node, other: &Node) -> bool {
        one == other
            || self.is_same(one, other) && {
                let names = self.names(one);
                let below = |name: &String| Some((self.child(one, name)?, self.child(other, name)?));
                let is_same =
                    |name: &String| below(name).is_some_and(|(one, other)| self.is_same_tree(&one, &other));
                names == self.names(other) && names.iter().all(is_same)
            }
    }

    /// The paths at which this tree differs from the disk. Of folders that move as a whole only the folder: by its old
    /// path in `whole`, with the new one.
    pub(super) fn difference(&self, whole: &BTreeMap<String, String>) -> BTreeMap<String, Difference> {
        let mut out = BTreeMap::new();
        let disk = Tree::of_disk(self.world);
        self.compare("", Some(&disk.root), Some(&self.root), whole, &mut out);
        out
    }

    fn compare(
        &self,
        path: &str,
        now: Option<&Node>,
        goal: Option<&Node>,
        whole: &BTreeMap<String, String>,
        out: &mut BTreeMap<String, Difference>,
    ) {
        let is_same = match (now, goal) {
            (Some(now), Some(goal)) => self.is_same(now, goal),
            (now, goal) => now.is_none() && goal.is_none(),
        };
        if !is_same {
            let image = |node: Option<&Node>| node.and_then(|node| node.image.clone());
            out.insert(path.to_owned(), Difference { now: image(now), goal: image(goal) });
        }
        let comes_whole = |goal: &Node| match &goal.source {
            Source::Disk(from) => whole.get(from).is_some_and(|to| to == path),
            Source::Stored(_) | Source::Made | Source::Any => false,
        };
        if whole.contains_key(path) || goal.is_some_and(comes_whole) {
            return;
        }
        // Below an object that stays, only what was set can differ.
        let names = match goal {
            Some(goal) if goal.is_disk(path) => goal.over.keys().cloned().collect(),
            goal => {
                let mut names = goal.map(|goal| self.names(goal)).unwrap_or_default();
                names.extend(now.map(|now| self.names(now)).unwrap_or_default());
                names
            }
        };
        for name in names {
            let now = now.and_then(|now| self.child(now, &name));
            let child = goal.and_then(|goal| self.child(goal, &name));
            self.compare(&join(path, &name), now.as_deref(), child.as_deref(), whole, out);
        }
    }
}

/// Whether an object has the mode and the attributes of an image, as far as they are known.
pub(super) fn has_attrs_of(image: &Image, wanted: &Image) -> bool {
    let same_xattrs = match (&image.xattrs, &wanted.xattrs) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    image.mode == wanted.mode && same_xattrs
}
