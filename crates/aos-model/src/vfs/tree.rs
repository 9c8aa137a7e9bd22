//! The persistent map: versions share their nodes, so a write costs O(log n) and old versions stay readable.

use std::ops::Bound;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use super::{Delta, Node, TreeChange};

/// One version of a tree. A clone keeps that version and copies nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    nodes: RedBlackTreeMapSync<Arc<str>, Arc<Node>>,
    version: u64,
}

impl Tree {
    /// A tree from its rows in the state.
    pub fn of(version: u64, nodes: impl IntoIterator<Item = (String, Node)>) -> Tree {
        let mut tree = Tree { nodes: RedBlackTreeMapSync::new_sync(), version };
        for (path, node) in nodes {
            tree.nodes.insert_mut(path.into(), Arc::new(node));
        }
        tree
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn len(&self) -> usize {
        self.nodes.size()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn get(&self, path: &str) -> Option<&Arc<Node>> {
        self.nodes.get(path)
    }

    /// The node at the path, or the nearest one above it. If there is one, the host folder does not show through.
    pub fn cover(&self, path: &str) -> Option<(&str, &Arc<Node>)> {
        let above = path.rmatch_indices('/').map(|(slash, _)| &path[..slash]);
        std::iter::once(path).chain(above).find_map(|path| {
            let (path, node) = self.nodes.get_key_value(path)?;
            Some((&**path, node))
        })
    }

    /// All nodes whose path begins with `prefix`, in path order. `prefix` is a folder and a slash, or empty for the root.
    pub fn below<'t>(&'t self, prefix: &str) -> impl Iterator<Item = (&'t str, &'t Arc<Node>)> + use<'t> {
        let prefix = prefix.to_owned();
        let from: (Bound<Arc<str>>, Bound<Arc<str>>) =
            (Bound::Included(prefix.as_str().into()), Bound::Unbounded);
        let nodes = self.nodes.range::<Arc<str>, _>(from);
        nodes.map(|(path, node)| (&**path, node)).take_while(move |(path, _)| path.starts_with(&prefix))
    }

    /// The nodes directly in a folder, by name. Everything below them is skipped by a range query, not visited.
    pub fn children<'t>(&'t self, prefix: &str) -> Vec<(&'t str, &'t Arc<Node>)> {
        let mut children = Vec::new();
        let mut from = Bound::Included(prefix.to_owned());
        loop {
            let range = (from.as_ref().map(String::as_str), Bound::Unbounded);
            let mut skip = None;
            for (path, node) in self.nodes.range::<str, _>(range) {
                let Some(name) = path.strip_prefix(prefix) else { return children };
                match name.find('/') {
                    None => children.push((name, node)),
                    // `0` is the byte after `/`, so this is the first key that is not below the child.
                    Some(slash) => {
                        skip = Some(format!("{prefix}{}0", &name[..slash]));
                        break;
                    }
                }
            }
            match skip {
                Some(next) => from = Bound::Included(next),
                None => return children,
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Node>)> {
        self.nodes.iter().map(|(path, node)| (&**path, node))
    }

    /// Applies a change and takes its version.
    pub fn apply(&mut self, change: &TreeChange) {
        self.version = change.version;
        self.put(&change.deltas);
    }

    /// Applies deltas without a new version, while a mutation is planned.
    pub fn put(&mut self, deltas: &[Delta]) {
        for delta in deltas {
            match &delta.after {
                Some(node) => self.nodes.insert_mut(delta.path.as_str().into(), Arc::new(Node::clone(node))),
                None => {
                    self.nodes.remove_mut(delta.path.as_str());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::vfs::{Body, NodeKind};

    fn file(version: u64) -> Node {
        let what = NodeKind::File(Body::whole("sha256:0".into(), version));
        Node { what, mode: 0o644, version, created_at_ns: 1, updated_at_ns: version, base: None }
    }

    fn delta(path: &str, after: Option<Node>) -> Delta {
        Delta { path: path.to_owned(), before: None, after: after.map(Box::new) }
    }

    #[test]
    fn the_children_of_a_folder_are_found_whatever_its_siblings_are_called() {
        let paths = ["a", "a-b", "a/x", "a/x/y", "a/x-1", "a/x.1", "a0", "b"];
        let tree = Tree::of(1, paths.map(|path| (path.to_owned(), file(1))));
        let names = |prefix| tree.children(prefix).iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(names(""), ["a", "a-b", "a0", "b"]);
        assert_eq!(names("a/"), ["x", "x-1", "x.1"]);
        assert_eq!(names("a/x/"), ["y"]);
        assert_eq!(
            tree.below("a/").map(|(path, _)| path).collect::<Vec<_>>(),
            ["a/x", "a/x-1", "a/x.1", "a/x/y"]
        );
        assert_eq!(tree.cover("a/x/y/z").map(|(path, _)| path), Some("a/x/y"));
        assert!(tree.cover("c/d").is_none());
    }

    proptest! {
        /// Compares with a plain map: the same content after every change, and old versions are unchanged.
        #[test]
        fn a_tree_is_a_map_with_persistent_versions(
            acts in proptest::collection::vec((proptest::collection::vec("[ab0-]", 1..4), any::<bool>()), 1..60)
        ) {
            let (mut tree, mut naive) = (Tree::default(), BTreeMap::new());
            let mut versions = vec![(tree.clone(), naive.clone())];
            for (version, (names, put)) in acts.iter().enumerate() {
                let (path, version) = (names.join("/"), version as u64 + 1);
                let after = put.then(|| file(version));
                match &after {
                    Some(node) => naive.insert(path.clone(), node.clone()),
                    None => naive.remove(&path),
                };
                tree.apply(&TreeChange { version, deltas: vec![delta(&path, after)] });
                versions.push((tree.clone(), naive.clone()));
            }
            for (number, (tree, naive)) in versions.iter().enumerate() {
                prop_assert_eq!(tree.version(), number as u64);
                let found: Vec<(&str, &Node)> = tree.iter().map(|(path, node)| (path, &**node)).collect();
                let wanted: Vec<(&str, &Node)> = naive.iter().map(|(path, node)| (path.as_str(), node)).collect();
                prop_assert_eq!(found, wanted);
                for prefix in ["", "a/", "a/b/", "-/"] {
                    let direct = naive.keys().filter_map(|path| path.strip_prefix(prefix).filter(|name| !name.contains('/')));
                    let children: Vec<&str> = tree.children(prefix).iter().map(|(name, _)| *name).collect();
                    prop_assert_eq!(children, direct.collect::<Vec<_>>());
                }
            }
        }
    }
}
