//! The steps from the disk to a wanted tree, in an order in which each finds the paths that it names (I15).
//!
//! An object that moves is renamed directly if its place is ready, or else moved aside first, the deepest first. Then
//! the tree is completed from the top.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::net::{Moved, find_moves};
use super::tree::{Node, Source, StoredRef, Tree, World, ancestors, join};
use crate::records::{Image, Kind};

/// A step at a path. `object` and `replaces` are paths of the disk before the first step.
#[derive(Debug, Clone)]
pub enum Step {
    /// Removes an object with everything below it.
    Remove {
        path: String,
        object: String,
    },
    /// The new path is free.
    Rename {
        from: String,
        to: String,
        object: String,
    },
    MakeDir {
        path: String,
        image: Image,
    },
    /// Replaces a file or a link, or makes it.
    Put {
        path: String,
        image: Image,
        content: StoredRef,
        replaces: Option<String>,
    },
    SetAttrs {
        path: String,
        object: String,
        image: Image,
    },
}

/// The steps to a plan's goal. `aside` names a free path in a folder that stays where it is.
pub fn steps<W: World>(goal: &Tree<'_, W>, aside: &dyn Fn(&str, usize) -> String) -> Vec<Step> {
    let now = Tree::of_disk(goal.world);
    let mut builder = Builder { now, goal, steps: Vec::new(), aside: Vec::new() };
    let mut moves = find_moves(&goal.root);
    moves.sort_by(|one, other| other.from.cmp(&one.from));
    for (number, Moved { from, to, .. }) in moves.into_iter().enumerate() {
        if builder.is_ready(&to) {
            builder.rename(&from, &to);
        } else {
            let aside = aside(builder.nearest_fixed(&from), number);
            builder.rename(&from, &aside);
            builder.aside.push((from, aside));
        }
    }
    builder.complete("", &goal.root);
    builder.steps
}

struct Builder<'g, 'w, W> {
    now: Tree<'w, W>,
    goal: &'g Tree<'w, W>,
    steps: Vec<Step>,
    /// From which path to which one.
    aside: Vec<(String, String)>,
}

impl<W: World> Builder<'_, '_, W> {
    fn stays(&self, path: &str) -> bool {
        let is_it = |tree: &Tree<'_, W>| tree.get(path).is_some_and(|node| node.is_disk(path));
        is_it(self.goal) && is_it(&self.now)
    }

    /// The path is free, and the folders above it stay where they are.
    fn is_ready(&self, path: &str) -> bool {
        ancestors(path).all(|above| self.stays(above)) && self.now.get(path).is_none()
    }

    /// The deepest folder above a path that stays where it is.
    fn nearest_fixed<'p>(&self, path: &'p str) -> &'p str {
        ancestors(path).take_while(|above| self.stays(above)).last().unwrap_or_default()
    }

    fn rename(&mut self, from: &str, to: &str) {
        let node = self.now.get(from).map(Cow::into_owned).expect("BUG: it moves, so it is there");
        let object = disk_path(&node).expect("BUG: only what is on the disk moves");
        self.now.set(from, None);
        self.now.set(to, Some(node));
        self.steps.push(Step::Rename { from: from.to_owned(), to: to.to_owned(), object });
    }

    fn remove(&mut self, path: &str) {
        if let Some(node) = self.now.get(path) {
            let object = disk_path(&node).expect("BUG: only what is on the disk is removed");
            self.now.set(path, None);
            self.steps.push(Step::Remove { path: path.to_owned(), object });
        }
    }

    /// The object is in its place: sets its attributes and completes its entries.
    fn complete(&mut self, path: &str, goal: &Node) {
        let Some(now) = self.now.get(path).map(Cow::into_owned) else { return };
        let image = goal.image.clone().filter(|_| !self.goal.is_same(&now, goal));
        if let (Some(image), Some(object)) = (image, disk_path(&now)) {
            self.steps.push(Step::SetAttrs { path: path.to_owned(), object, image });
        }
        let names: BTreeSet<String> = match now.source == goal.source {
            true => goal.over.keys().chain(now.over.keys()).cloned().collect(),
            false => self.goal.names(goal).into_iter().chain(self.now.names(&now)).collect(),
        };
        for name in names {
            let path = join(path, &name);
            if self.aside.iter().any(|(_, aside)| *aside == path) {
                continue;
            }
            match self.goal.child(goal, &name) {
                Some(goal) => self.place(&path, &goal),
                None => self.remove(&path),
            }
        }
    }

    fn place(&mut self, path: &str, goal: &Node) {
        let is_it = |(from, _): &(String, String)| goal.is_disk(from);
        if let Some(at) = self.aside.iter().position(is_it) {
            let (_, aside) = self.aside.remove(at);
            self.remove(path);
            self.rename(&aside, path);
            return self.complete(path, goal);
        }
        let now = self.now.get(path).map(Cow::into_owned);
        let is_folder = now.as_ref().is_some_and(Node::is_dir);
        let image = goal.image.clone().expect("BUG: an object of the goal is known");
        match (&goal.source, image.kind) {
            (_, Kind::Dir) if is_folder => self.complete(path, goal),
            (_, Kind::Dir) => {
                self.remove(path);
                self.now.set(path, Some(Node::made(image.clone())));
                self.steps.push(Step::MakeDir { path: path.to_owned(), image });
                self.complete(path, goal);
            }
            (Source::Stored(content), _) => {
                if now.as_ref().is_some_and(|now| self.goal.is_same(now, goal)) {
                    return;
                }
                if is_folder {
                    self.remove(path);
                }
                let replaces = now.filter(|_| !is_folder).and_then(|now| disk_path(&now));
                self.now.set(path, Some(goal.clone()));
                let (path, content) = (path.to_owned(), content.clone());
                self.steps.push(Step::Put { path, image, content, replaces });
            }
            (Source::Disk(_) | Source::Made | Source::Any, _) => self.complete(path, goal),
        }
    }
}

/// Where an object was before the first step.
fn disk_path(node: &Node) -> Option<String> {
    match &node.source {
        Source::Disk(path) => Some(path.clone()),
        Source::Stored(_) | Source::Made | Source::Any => None,
    }
}
