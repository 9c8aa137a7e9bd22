//! The net effect of recorded changes: the tree that they left, and the tree before them in terms of the one they left.
//!
//! Both are found on symbolic trees: the records are applied forwards for the first, and taken back for the second.
//! Temporary names and what came and went between the records vanish there. A move attaches a node elsewhere, so an
//! object keeps its identity through any number of moves.
//!
//! ```text
//! write f: 0 -> A, move f to g      after:  f absent, g = A        before:  f = stored 0, g absent
//! move d to e, write e/x: 0 -> A    after:  d absent, e/x = A      before:  d = what is at e, with x = stored 0
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Node, Preimage, Source, Tree, World, ancestors, is_or_below, join};
use crate::records::{Image, Kind, PathRecord, RecordedChange};

/// Changes that are taken back as one, oldest first: what others wrote between them was judged when they ran.
pub type Group<'a> = Vec<&'a RecordedChange>;

/// Where a pre-image is not the post-image before it: somebody else wrote between these two changes.
#[derive(Debug)]
pub(super) struct Gap {
    pub(super) path: String,
    pub(super) between: (u64, u64),
}

#[derive(Debug)]
pub(super) struct Net<'w, W> {
    /// What the changes left. Paths that they did not touch are unknown.
    pub(super) after: Tree<'w, W>,
    /// What was before them. `Source::Disk` is a path of `after`.
    pub(super) before: Tree<'w, W>,
    pub(super) gaps: Vec<Gap>,
}

/// One record, or the two records of a move.
enum Op<'a> {
    Put(&'a PathRecord),
    Attrs { path: &'a str, before: &'a Image, after: &'a Image },
    Move { from: &'a PathRecord, to: &'a str, target: Option<&'a PathRecord> },
}

fn ops(change: &RecordedChange) -> Vec<Op<'_>> {
    let mut ops = Vec::new();
    for record in &change.paths {
        let op = match (&record.moved_to, &record.before, &record.after) {
            (Some(to), ..) => {
                // The record of the new name is the one before.
                let target = match ops.last() {
                    Some(Op::Put(target)) if target.path == *to => Some(*target),
                    _ => None,
                };
                ops.truncate(ops.len() - usize::from(target.is_some()));
                Op::Move { from: record, to, target }
            }
            (None, Some(before), Some(after)) if record.mode_only => {
                Op::Attrs { path: &record.path, before, after }
            }
            _ => Op::Put(record),
        };
        ops.push(op);
    }
    ops
}

impl<'w, W: World> Net<'w, W> {
    pub(super) fn of(world: &'w W, groups: &[Group<'_>]) -> Net<'w, W> {
        let mut forwards =
            Forwards { tree: Tree::symbolic(world), touched: BTreeMap::new(), gaps: Vec::new() };
        for (group, changes) in groups.iter().enumerate() {
            for change in changes {
                ops(change).iter().for_each(|op| forwards.apply(op, change, group));
            }
        }
        let mut before = Tree::symbolic(world);
        for change in groups.iter().flatten().rev() {
            ops(change).iter().rev().for_each(|op| take_back(&mut before, op, change));
        }
        Net { after: forwards.tree, before, gaps: forwards.gaps }
    }

    /// The image that the changes left at a path, if they left something known there.
    pub(super) fn left(&self, path: &str) -> Option<Image> {
        self.after.get(path)?.image.clone()
    }

    /// Leaves out what the paths do not need. A move is one thing: naming a part of either end takes all of it.
    pub(super) fn restrict(&mut self, paths: &[String]) {
        let mut roots = paths.to_vec();
        let mut moves = find_moves(&self.before.root);
        let is_named = |roots: &[String], one: &Moved| is_near(roots, &one.from) || is_near(roots, &one.to);
        while let Some(at) = moves.iter().position(|one| is_named(&roots, one)) {
            let one = moves.swap_remove(at);
            roots.extend([one.from, one.to]);
        }
        roots.sort();
        let mut narrow = Tree::symbolic(self.before.world);
        roots.dedup_by(|root, above| is_or_below(root, above));
        for root in &roots {
            for above in ancestors(root) {
                // Folders above a stored object are made with the attributes that they had.
                let made = self.before.get(above).filter(|node| node.is_dir() && is_content(node));
                if let Some(made) = made.filter(|_| narrow.get(above).is_none_or(|node| !is_content(&node))) {
                    narrow.set(above, Some(Node::new(made.image.clone(), Source::Made)));
                }
            }
            narrow.set(root, self.before.get(root).map(Cow::into_owned));
        }
        self.before = narrow;
        self.gaps.retain(|gap| is_near(&roots, &gap.path));
    }
}

fn is_content(node: &Node) -> bool {
    matches!(node.source, Source::Stored(_) | Source::Made)
}

fn is_near(roots: &[String], path: &str) -> bool {
    roots.iter().any(|root| is_or_below(path, root) || is_or_below(root, path))
}

/// An object of a tree that is not in its place of the tree below.
#[derive(Debug)]
pub(super) struct Moved {
    /// Its path in the tree below.
    pub(super) from: String,
    /// The path in the tree below of the place that it has here.
    pub(super) place: String,
    pub(super) to: String,
}

pub(super) fn find_moves(root: &Node) -> Vec<Moved> {
    fn collect(node: &Node, at: &str, path: &str, out: &mut Vec<Moved>) {
        for (name, child) in node.over.iter().filter_map(|(name, child)| Some((name, child.as_ref()?))) {
            let (place, to) = (join(at, name), join(path, name));
            let Source::Disk(from) = &child.source else {
                collect(child, &place, &to, out);
                continue;
            };
            collect(child, from, &to, out);
            if *from != place || !matches!(node.source, Source::Disk(_)) {
                out.push(Moved { from: from.clone(), place, to });
            }
        }
    }
    let mut out = Vec::new();
    collect(root, "", "", &mut out);
    out
}

fn stored<'w, W: World>(tree: &Tree<'w, W>, record: &PathRecord, change: &RecordedChange) -> Option<Node> {
    let before = record.before.as_ref()?;
    let name = before.preimage.clone().unwrap_or_default();
    let preimage = Preimage { snapshot_id: change.snapshot_id.clone(), name, path: record.path.clone() };
    // A pre-image between two changes of one call may be gone. Then it is replaced further back.
    let mut node = tree.preimage(preimage).unwrap_or_else(|| Node::made(before.clone()));
    node.image.iter_mut().for_each(|image| image.identity = before.identity);
    Some(node)
}

fn take_back<W: World>(tree: &mut Tree<'_, W>, op: &Op<'_>, change: &RecordedChange) {
    match op {
        Op::Attrs { path, before, .. } => {
            if let Some(node) = tree.get(path).map(Cow::into_owned) {
                let mut node = node;
                node.set_attrs(before);
                tree.set(path, Some(node));
            }
        }
        Op::Move { from, to, target } => {
            let object = tree.get(to).map(Cow::into_owned);
            tree.set(to, None);
            tree.set(&from.path, object);
            tree.set(to, target.and_then(|target| stored(tree, target, change)));
        }
        Op::Put(record) => {
            let made = record.after.as_ref().is_some_and(|after| after.kind == Kind::Dir);
            let folder =
                tree.get(&record.path).filter(|node| made && record.before.is_none() && node.is_dir());
            let node = match folder.map(Cow::into_owned) {
                Some(node) => Some(Node { if_filled: true, ..node }),
                None => stored(tree, record, change),
            };
            tree.set(&record.path, node);
        }
    }
}

/// Applies the records in their order and finds the gaps between groups.
struct Forwards<'w, W> {
    tree: Tree<'w, W>,
    /// The group and the change that touched a path, or a folder above it, last.
    touched: BTreeMap<String, (usize, u64)>,
    gaps: Vec<Gap>,
}

impl<W: World> Forwards<'_, W> {
    fn apply(&mut self, op: &Op<'_>, change: &RecordedChange, group: usize) {
        let by = (group, change.seq);
        match op {
            _ if change.explicit => {
                let Op::Put(record) = op else { return };
                self.set(&record.path, Some(Node::new(None, Source::Any)), by);
            }
            Op::Put(record) => {
                self.check(&record.path, stored(&self.tree, record, change).as_ref(), by);
                self.set(&record.path, record.after.clone().map(Node::made), by);
            }
            Op::Attrs { path, before, after } => {
                self.check(path, Some(&Node::made((*before).clone())), by);
                let node = self.tree.get(path).map(Cow::into_owned);
                let mut node = node.unwrap_or_else(|| Node::made((*after).clone()));
                node.set_attrs(after);
                self.tree.set(path, Some(node));
                // Who changed the attributes of a folder did not change its entries.
                self.touched.entry((*path).to_owned()).or_insert(by);
            }
            Op::Move { from, to, target } => {
                self.check(&from.path, from.before.clone().map(Node::made).as_ref(), by);
                let replaced = target.and_then(|target| stored(&self.tree, target, change));
                self.check(to, replaced.as_ref(), by);
                let node = self.tree.get(&from.path).map(Cow::into_owned);
                let image = target.and_then(|target| target.after.clone()).or(from.before.clone());
                // The record of a move has no attributes; those that were recorded before went along.
                let xattrs = node.as_ref().and_then(|node| node.image.as_ref()?.xattrs.clone());
                let image = image.map(|image| Image { xattrs: image.xattrs.clone().or(xattrs), ..image });
                let unknown = || Node::new(None, Source::Disk(from.path.clone()));
                let node = Node { image, ..node.unwrap_or_else(unknown) };
                let below = self.take_touched(&from.path);
                self.set(&from.path, None, by);
                self.set(to, Some(node), by);
                self.touched.extend(below.into_iter().map(|(suffix, by)| (format!("{to}{suffix}"), by)));
            }
        }
    }

    fn set(&mut self, path: &str, node: Option<Node>, by: (usize, u64)) {
        self.take_touched(path);
        self.tree.set(path, node);
        self.touched.insert(path.to_owned(), by);
    }

    /// Forgets who touched what is below a path, by suffix.
    fn take_touched(&mut self, path: &str) -> Vec<(String, (usize, u64))> {
        let prefix = join(path, "");
        let below = self.touched.range(prefix.clone()..).take_while(|(below, _)| below.starts_with(&prefix));
        let below: Vec<_> = below.map(|(below, by)| (below[path.len()..].to_owned(), *by)).collect();
        for (suffix, _) in &below {
            self.touched.remove(&format!("{path}{suffix}"));
        }
        below
    }

    /// Compares what a change found at a path with what an earlier group left there.
    fn check(&mut self, path: &str, found: Option<&Node>, by: (usize, u64)) {
        for above in ancestors(path) {
            if !self.tree.get(above).is_some_and(|node| node.is_dir()) {
                self.add_gap(above, by);
                return;
            }
        }
        let left = self.tree.get(path).map(Cow::into_owned);
        self.compare(path, left.as_ref(), found, by);
    }

    fn compare(&mut self, path: &str, left: Option<&Node>, found: Option<&Node>, by: (usize, u64)) {
        let is_known = |node: &Node| node.image.is_some();
        match (left, found) {
            (None, None) => {}
            (None, Some(_)) => self.add_gap(path, by),
            (Some(left), None) if is_known(left) => self.add_gap(path, by),
            (Some(left), Some(found)) if !self.tree.is_same(left, found) => self.add_gap(path, by),
            // Entries were changed, so it was a folder.
            (Some(left), Some(found)) if !left.over.is_empty() && !found.is_dir() => self.add_gap(path, by),
            // Of a folder that a move found, the entries are not recorded.
            (Some(_), Some(found)) if found.is_dir() && !matches!(found.source, Source::Stored(_)) => {}
            (Some(left), found) => {
                let mut names: BTreeSet<String> = left.over.keys().cloned().collect();
                names.extend(
                    found.filter(|_| left.source == Source::Made).iter().flat_map(|one| self.tree.names(one)),
                );
                for name in names {
                    let left = self.tree.child(left, &name).map(Cow::into_owned);
                    let found = found.and_then(|found| self.tree.child(found, &name).map(Cow::into_owned));
                    self.compare(&join(path, &name), left.as_ref(), found.as_ref(), by);
                }
            }
        }
    }

    fn add_gap(&mut self, path: &str, by: (usize, u64)) {
        let below = self.touched.iter().filter(|(below, _)| is_or_below(below, path)).map(|(_, by)| by).max();
        let above = || ancestors(path).filter_map(|above| self.touched.get(above)).next_back();
        if let Some((group, seq)) = self.touched.get(path).or(below).or_else(above)
            && *group != by.0
        {
            self.gaps.push(Gap { path: path.to_owned(), between: (*seq, by.1) });
        }
    }
}
