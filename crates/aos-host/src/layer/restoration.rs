//! Restoration in a layer: each path gets the node it had before the oldest change, if no later call changed it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aos_model::entry::Fact;
use aos_model::limits::DIFF_FILE_BYTES_MAX;
use aos_model::policy::Op;
use aos_model::records::Kind;
use aos_model::refusal::{Conflict, Refusal};
use aos_model::vfs::{Base, Delta, Node, NodeKind, Tree};

use super::base_now;
use crate::host::Host;
use crate::jail::Last;
use crate::jail::View;
use crate::session::OpenSession;
use crate::snapshot::{self, with_entry};
use crate::target::Target;

/// The paths of a layer that a list of changes touched.
#[derive(Debug, Default)]
pub(crate) struct LayerRestoration {
    paths: BTreeMap<String, PathGoal>,
    gaps: Vec<Gap>,
}

/// The node that a path had before the changes, and the node they left.
#[derive(Debug)]
pub(crate) struct PathGoal {
    to: Option<Box<Node>>,
    left: ExpectedImage,
    seq: u64,
    /// The group and the entry of the oldest change so far.
    oldest: (usize, u64),
}

/// Where a change found something else than the one before it left: another call wrote between these two entries.
#[derive(Debug)]
struct Gap {
    path: String,
    between: (u64, u64),
}

#[derive(Debug)]
enum ExpectedImage {
    Node(Option<Box<Node>>),
    /// Captured explicitly: the current node may be replaced.
    Any,
}

/// The deltas, and the path lists for the receipt.
#[derive(Debug, Default)]
pub(crate) struct LayerPlan {
    pub(crate) deltas: Vec<Delta>,
    pub(crate) restored: Vec<String>,
    pub(crate) deleted: Vec<String>,
    pub(crate) conflicts: Vec<Conflict>,
}

impl LayerRestoration {
    /// Reads the changes that these entries made to the session's layer. Those of a group are undone as one. With `only`,
    /// those paths and below.
    pub(crate) fn read(
        host: &Host,
        session: &Arc<OpenSession>,
        groups: &[Vec<u64>],
        only: Option<&[String]>,
    ) -> Result<LayerRestoration, Refusal> {
        let mut restoration = LayerRestoration::default();
        if session.layer.is_none() {
            return Ok(restoration);
        }
        for (group, seq) in groups
            .iter()
            .enumerate()
            .rev()
            .flat_map(|(group, seqs)| seqs.iter().rev().map(move |seq| (group, *seq)))
        {
            with_entry(host, seq, |entry| {
                for fact in &entry.facts {
                    restoration.undo_fact((group, seq), fact);
                }
            })?;
        }
        if let (Some(only), Some(view)) = (only, session.view()) {
            let key = |path: &String| {
                let literal = crate::view::resolve(&view, Some(path), Last::NoLinks)?.literal;
                Ok(view.key(&literal))
            };
            let only = only.iter().map(key).collect::<Result<Vec<String>, Refusal>>()?;
            let wanted = |path: &str| {
                only.iter().any(|root| root.is_empty() || crate::restore::is_or_below(path, root))
            };
            restoration.paths.retain(|path, _| wanted(path));
            restoration.gaps.retain(|gap| wanted(&gap.path));
        }
        Ok(restoration)
    }

    fn undo_fact(&mut self, at: (usize, u64), fact: &Fact) {
        match fact {
            Fact::Tree(change) => {
                for Delta { path, before, after } in &change.deltas {
                    let left = || ExpectedImage::Node(after.clone());
                    self.undo(at, path, left, before.as_deref(), Some(after.as_deref()));
                }
            }
            Fact::TreeKept(kept) => {
                for kept in kept {
                    self.undo(at, &kept.path, || ExpectedImage::Any, kept.node.as_deref(), None);
                }
            }
            _ => {}
        }
    }

    /// Goes back over one change of a path. `after`: what it left, if it is a change.
    fn undo(
        &mut self,
        at: (usize, u64),
        path: &str,
        left: impl FnOnce() -> ExpectedImage,
        before: Option<&Node>,
        after: Option<Option<&Node>>,
    ) {
        let new = || PathGoal { to: None, left: left(), seq: at.1, oldest: at };
        let goal = match self.paths.get_mut(path) {
            Some(goal) => {
                let is_gap = after.is_some_and(|after| !same(after, goal.to.as_deref()));
                if is_gap && goal.oldest.0 != at.0 {
                    self.gaps.push(Gap { path: path.to_owned(), between: (at.1, goal.oldest.1) });
                }
                goal
            }
            None => self.paths.entry(path.to_owned()).or_insert_with(new),
        };
        (goal.to, goal.oldest) = (before.cloned().map(Box::new), at);
    }

    /// The targets for the policy: paths to write and paths to remove.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let op = |goal: &PathGoal| match &goal.to {
            Some(node) if !node.is_gone() => Op::Write,
            _ => Op::Remove,
        };
        self.paths.iter().map(|(path, goal)| Target::new(path, op(goal), Last::NoLinks)).collect()
    }

    pub(crate) fn plan(
        self,
        host: &Host,
        session: &Arc<OpenSession>,
        force: bool,
    ) -> Result<LayerPlan, Refusal> {
        let Some(view) = session.view() else { return Ok(LayerPlan::default()) };
        let mut out = LayerPlan::default();
        let mut goals = BTreeMap::new();
        for Gap { path, between: (first, second) } in self.gaps.into_iter().filter(|_| !force) {
            let changed_by = author_between(host, session, &path, (first, second))?;
            let id = |seq| snapshot::author(host, seq).unwrap_or_else(|| "outside".to_owned());
            out.conflicts.push(Conflict { path, changed_by, between: Some([id(first), id(second)]) });
        }
        for (path, goal) in self.paths {
            let now = view.tree.get(&path).map(|node| &**node);
            if same(now, goal.to.as_deref()) {
                continue;
            }
            match &goal.left {
                ExpectedImage::Node(left) if !force && !same(now, left.as_deref()) => {
                    let changed_by = author_between(host, session, &path, (goal.seq, u64::MAX))?;
                    out.conflicts.push(Conflict::new(path, changed_by));
                }
                ExpectedImage::Node(_) | ExpectedImage::Any => {
                    let to = goal.to.filter(|node| !equals_disk(session, &path, node));
                    if !same(now, to.as_deref()) {
                        goals.insert(path, to);
                    }
                }
            }
        }
        if out.conflicts.is_empty() {
            Builder {
                view: &view,
                tree: view.tree.clone(),
                deltas: BTreeMap::new(),
                now_ns: (host.machine.now_ns)(),
            }
            .build(goals, &mut out)?;
        }
        Ok(out)
    }
}

/// Both are absent, or have the same content and attributes.
fn same(one: Option<&Node>, other: Option<&Node>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.same_content_and_mode(other),
        _ => false,
    }
}

/// Whether a node equals what the host folder still has there. Then the layer needs no node.
fn equals_disk(session: &Arc<OpenSession>, path: &str, node: &Node) -> bool {
    let as_found = match (&node.what, &node.base) {
        (NodeKind::File(body), Some(Base::File { hash, mode })) => {
            body.hash() == Some(hash) && node.mode == *mode
        }
        (NodeKind::Link { target }, Some(Base::Link { target: found })) => target == found,
        (NodeKind::Dir, Some(Base::Dir)) => node.created_at_ns == node.updated_at_ns,
        _ => false,
    };
    as_found && base_now(session, path).is_ok_and(|(base, _)| Some(base) == node.base)
}

/// The last tool call between two entries that touched a path.
fn author_between(
    host: &Host,
    session: &OpenSession,
    path: &str,
    (first, second): (u64, u64),
) -> Result<String, Refusal> {
    let seqs = snapshot::seqs_from(host, session, first + 1)?;
    for seq in seqs.into_iter().rev().filter(|seq| *seq < second) {
        let author = with_entry(host, seq, |entry| {
            let touched = entry.facts.iter().any(|fact| match fact {
                Fact::Tree(change) => change.deltas.iter().any(|delta| delta.path == path),
                _ => false,
            });
            touched.then(|| entry.tool_call_id.as_deref().unwrap_or("outside").to_owned())
        })?;
        if let Some(author) = author {
            return Ok(author);
        }
    }
    Ok("outside".to_owned())
}

struct Builder<'a> {
    view: &'a Arc<View>,
    tree: Tree,
    deltas: BTreeMap<String, Delta>,
    now_ns: u64,
}

impl Builder<'_> {
    fn build(
        mut self,
        goals: BTreeMap<String, Option<Box<Node>>>,
        out: &mut LayerPlan,
    ) -> Result<(), Refusal> {
        let is_removed = |to: &Option<Box<Node>>| to.as_ref().is_none_or(|node| node.is_gone());
        let removed: BTreeSet<&str> =
            goals.iter().filter(|(_, to)| is_removed(to)).map(|(path, _)| path.as_str()).collect();
        // A folder that we created is kept if others have put entries into it since.
        let stays: BTreeSet<String> = removed
            .iter()
            .filter(|path| self.tree.get(path).is_some_and(|node| node.is_dir()))
            .filter(|path| {
                let below = format!("{path}/");
                self.tree.below(&below).any(|(path, node)| !node.is_gone() && !goals.contains_key(path))
            })
            .map(|path| (*path).to_owned())
            .collect();
        for (path, to) in goals.into_iter().filter(|(path, _)| !stays.contains(path)) {
            let visible = to.as_ref().is_some_and(|node| !node.is_gone());
            if visible {
                self.create_parents(&path)?;
            }
            let base = self.tree.get(&path).and_then(|node| node.base.clone());
            if to.is_none() && exists(base.as_ref()) {
                unhide(&mut self.tree, &mut self.deltas, self.view, &path);
            }
            let node = to.map(|node| self.with_new_version(&path, *node));
            // A file that replaces a folder removes everything below it.
            if visible && node.as_ref().is_some_and(|node| !node.is_dir()) {
                self.clear_below(&path);
            }
            self.set(path, node);
        }
        out.deltas = self.deltas.into_values().filter(|delta| delta.before != delta.after).collect();
        for Delta { path, before, after } in &out.deltas {
            let is_there = |node: &Option<Box<Node>>, other: &Option<Box<Node>>| match node {
                Some(node) => !node.is_gone(),
                // The host folder is visible; the other node says what is there.
                None => exists(other.as_ref().and_then(|other| other.base.as_ref())),
            };
            let is_dir = |node: &Option<Box<Node>>, other: &Option<Box<Node>>| match node {
                Some(node) => node.is_dir(),
                None => other.as_ref().is_some_and(|other| other.base == Some(Base::Dir)),
            };
            // A node over a folder of the host, or the folder itself.
            let is_same_folder =
                (before.is_none() || after.is_none()) && is_dir(before, after) && is_dir(after, before);
            match (is_there(before, after), is_there(after, before)) {
                _ if is_same_folder => {}
                (_, true) => out.restored.push(path.clone()),
                (true, false) => out.deleted.push(path.clone()),
                (false, false) => {}
            }
        }
        Ok(())
    }

    /// Removes all nodes below a path. Paths that exist in the host folder get a `Gone` node, which hides them.
    fn clear_below(&mut self, path: &str) {
        let below: Vec<(String, Arc<Node>)> = self
            .tree
            .below(&format!("{path}/"))
            .map(|(path, node)| (path.to_owned(), node.clone()))
            .collect();
        for (path, node) in below.into_iter().filter(|(_, node)| !node.is_gone()) {
            let hidden =
                exists(node.base.as_ref()).then(|| Node { what: NodeKind::Gone, ..Node::clone(&node) });
            self.set(path, hidden);
        }
    }

    /// A restored file is a new version: one after the current version, or 1 if the file does not exist now.
    fn with_new_version(&self, path: &str, node: Node) -> Node {
        let prior = self.view.tree.get(path).filter(|prior| prior.body().is_some());
        let (version, created_at_ns) =
            prior.map_or((1, self.now_ns), |prior| (prior.version + 1, prior.created_at_ns));
        match node.what {
            NodeKind::File(_) => Node { version, created_at_ns, updated_at_ns: self.now_ns, ..node },
            _ => node,
        }
    }

    /// Creates missing parent folders.
    fn create_parents(&mut self, path: &str) -> Result<(), Refusal> {
        let above: Vec<usize> =
            path.match_indices('/').map(|(slash, _)| slash).filter(|slash| *slash > 0).collect();
        for slash in above {
            let folder = &path[..slash];
            let view = self.view.with(self.tree.clone());
            let found = crate::view::resolve(&view, Some(folder), Last::NoLinks)?.found;
            match found.existing() {
                Ok((_, meta)) if meta.kind == Kind::Dir => {}
                Ok((place, _)) => {
                    return Err(Refusal::new(
                        aos_model::refusal::Code::ChangedSince,
                        format!(
                            "{} is no longer a folder; nothing was changed. Move it away first",
                            place.shown
                        ),
                    ));
                }
                Err(_) => {
                    let base = self.tree.get(folder).and_then(|node| node.base.clone());
                    let base = base.or(self.view.layer.is_staged.then_some(Base::Absent));
                    let node = Node {
                        created_at_ns: self.now_ns,
                        updated_at_ns: self.now_ns,
                        base,
                        ..crate::view::root_node()
                    };
                    self.set(folder.to_owned(), Some(node));
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, path: String, after: Option<Node>) {
        set(&mut self.tree, &mut self.deltas, self.view, path, after);
    }
}

fn set(
    tree: &mut Tree,
    deltas: &mut BTreeMap<String, Delta>,
    view: &View,
    path: String,
    after: Option<Node>,
) {
    let before = view.tree.get(&path).map(|node| Box::new(Node::clone(node)));
    let delta = Delta { path: path.clone(), before, after: after.map(Box::new) };
    tree.put(std::slice::from_ref(&delta));
    deltas.insert(path, delta);
}

pub(super) fn exists(base: Option<&Base>) -> bool {
    base.is_some_and(|base| *base != Base::Absent)
}

/// Makes a path of the host folder visible again: removes the layer's folder nodes above it that cover host folders.
/// Other entries of those folders stay hidden by their own `Gone` nodes.
pub(super) fn unhide(tree: &mut Tree, deltas: &mut BTreeMap<String, Delta>, view: &View, path: &str) {
    let above: Vec<String> = path.match_indices('/').map(|(slash, _)| path[..slash].to_owned()).collect();
    for folder in above {
        if tree.get(&folder).is_some_and(|node| node.base == Some(Base::Dir)) {
            set(tree, deltas, view, folder, None);
        }
    }
}

/// The content of a file, or `None` if it did not exist.
type Bytes = Option<Vec<u8>>;

/// The content of a path before and after a delta, if it is still available.
pub(crate) fn contents_of(session: &Arc<OpenSession>, delta: &Delta) -> Result<(Bytes, Bytes), &'static str> {
    let (before, after) = (delta.before.as_deref(), delta.after.as_deref());
    Ok((side(session, delta, before, after)?, side(session, delta, after, before)?))
}

fn side(
    session: &Arc<OpenSession>,
    delta: &Delta,
    node: Option<&Node>,
    other: Option<&Node>,
) -> Result<Bytes, &'static str> {
    const LARGE: &str = "too large for a line diff";
    const GONE: &str = "its content is no longer stored";
    match node.map(|node| &node.what) {
        Some(NodeKind::File(body)) if body.size_bytes > DIFF_FILE_BYTES_MAX as u64 => Err(LARGE),
        Some(NodeKind::File(body)) => {
            let layer = session.layer.as_ref().ok_or(GONE)?;
            let source = layer.contents.open(&delta.path, body).map_err(|_| GONE)?;
            let mut bytes = vec![0; usize::try_from(body.size_bytes).map_err(|_| GONE)?];
            let read = source.read_at(&mut bytes, 0).map_err(|_| GONE)?;
            bytes.truncate(read);
            Ok(Some(bytes))
        }
        Some(NodeKind::Gone) => Ok(None),
        Some(NodeKind::Dir | NodeKind::Link { .. }) => Err("not a regular file, so it has no lines"),
        None => match other.and_then(|other| other.base.as_ref()) {
            Some(Base::File { hash, .. }) => {
                let found =
                    crate::jail::resolve(&session.jail, &delta.path, Last::Itself).map_err(|_| GONE)?.found;
                let (place, _) = found.existing().map_err(|_| GONE)?;
                let (source, meta) = place.open_file().map_err(|_| GONE)?;
                if meta.size > DIFF_FILE_BYTES_MAX as u64 {
                    return Err(LARGE);
                }
                let bytes = crate::payload::read_whole(place, &source, meta.size).map_err(|_| GONE)?;
                if aos_model::request::content_hash(&bytes) == *hash { Ok(Some(bytes)) } else { Err(GONE) }
            }
            Some(Base::Dir | Base::Link { .. } | Base::Other) => {
                Err("not a regular file, so it has no lines")
            }
            Some(Base::Absent) | None => Ok(None),
        },
    }
}
