//! Plans an undo: one pure function from recorded changes and the disk to the wanted tree.
//!
//! The changes are reduced to their net effect: the tree that they left (`after`) and the tree before them. Each place
//! of the second is merged with what is there now.
//!
//! ```text
//! before == after      the changes together leave the place alone, and so does the plan
//! nothing was there    what the changes left goes; folders that they made stay if others have entries in them
//! stored content       the content; of two folders, entries that were not captured stay
//! an object moved      the object, with everything that others wrote below it
//! ```
//!
//! A path that the merge changes must be as the changes left it; otherwise somebody else wrote there since, which is a
//! conflict. So is every gap between the changes. Where nothing changes there is nothing to judge, so what is restored
//! already can be restored again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::net::{Gap, Group, Moved, Net, find_moves};
use super::tree::{Difference, Node, Source, Tree, World, ancestors, folder, has_attrs_of, join};
use crate::records::{Image, Kind, RecordedChange};

/// Who changed a path since.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangedBy {
    Outside,
    /// A later change, of this or of another session.
    Change(u64),
    /// Somebody else, between these two changes.
    Between(u64, u64),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    pub path: String,
    pub changed_by: ChangedBy,
}

/// What is taken back, how far, and what is known about the paths since.
#[derive(Debug)]
pub struct Undo<'a> {
    /// Oldest first.
    pub groups: &'a [Group<'a>],
    /// Only these paths and what is below them.
    pub paths: Option<&'a [String]>,
    pub force: bool,
    /// Changes of every session, oldest first, to say who changed a path. Needed only where there are conflicts.
    pub later: &'a [&'a RecordedChange],
}

/// The wanted tree, and what it means for the receipt. With conflicts and without `force` it is the disk.
#[derive(Debug)]
pub struct Plan<'w, W> {
    pub goal: Tree<'w, W>,
    pub conflicts: Vec<Conflict>,
    /// What changes. The images of now are what the plan displaces or moves away.
    pub differences: BTreeMap<String, Difference>,
    /// The folders that move with everything in them to a free path, by their old one. The cost follows the paths that are
    /// named, so what is in them is not among the differences.
    whole: BTreeMap<String, String>,
}

impl<W: World> Plan<'_, W> {
    /// The paths that exist afterwards and were not the same before.
    pub fn restored(&self) -> Vec<String> {
        self.list(|one| one.goal.is_some(), |(from, to)| (from, to))
    }

    /// The paths that do not exist afterwards.
    pub fn deleted(&self) -> Vec<String> {
        self.list(|one| one.goal.is_none(), |(from, _)| (from, from))
    }

    /// The differences of a kind, in order, and what is below each folder that moves as a whole: at which path of the
    /// disk, and under which name it is listed. Of a larger folder than the plan lists, only the folder.
    fn list<'p>(
        &'p self,
        is_listed: impl Fn(&Difference) -> bool,
        names: impl Fn((&'p String, &'p String)) -> (&'p String, &'p String),
    ) -> Vec<String> {
        let listed = self.differences.iter().filter(|(_, one)| is_listed(one));
        let mut paths: Vec<String> = listed.map(|(path, _)| path.clone()).collect();
        for (from, name) in self.whole.iter().map(names) {
            let below = self.goal.world.below_on_disk(from).unwrap_or_default();
            paths.extend(below.into_iter().map(|below| format!("{name}{below}")));
        }
        paths.sort_unstable();
        paths
    }
}

pub fn plan<'w, W: World>(world: &'w W, undo: &Undo<'_>) -> Plan<'w, W> {
    let mut net = Net::of(world, undo.groups);
    if let Some(paths) = undo.paths {
        net.restrict(paths);
    }
    let mut merge =
        Merge { disk: Tree::of_disk(world), net, objects: BTreeMap::new(), changed: BTreeSet::new() };
    merge.find_objects();
    let mut goal = merge.disk.clone();
    let before = std::mem::replace(&mut merge.net.before.root, Node::made(folder()));
    goal.root = merge.folder(&before, Some(""), Some(goal.root.clone())).expect("BUG: the root stays");
    let mut whole = whole_moves(&goal, &merge.disk);
    let mut differences = goal.difference(&whole);
    merge.judge(&goal, &differences);
    let since = |path: String| Conflict { changed_by: merge.changed_by(&path, undo), path };
    let between = |gap: &Gap| Conflict {
        path: gap.path.clone(),
        changed_by: ChangedBy::Between(gap.between.0, gap.between.1),
    };
    let mut conflicts: BTreeSet<Conflict> = merge.changed.iter().cloned().map(since).collect();
    conflicts.extend(merge.net.gaps.iter().map(between));
    if !conflicts.is_empty() && !undo.force {
        goal = Tree::of_disk(world);
        differences.clear();
        whole.clear();
    }
    Plan { goal, conflicts: conflicts.into_iter().collect(), differences, whole }
}

/// The folders that move unchanged: nothing is at the new path, and nothing comes to the old one.
fn whole_moves<W: World>(goal: &Tree<'_, W>, disk: &Tree<'_, W>) -> BTreeMap<String, String> {
    let is_whole = |one: &Moved| {
        let is_unchanged = goal.get(&one.to).is_some_and(|node| node.is_dir() && node.over.is_empty());
        is_unchanged && disk.get(&one.to).is_none() && goal.get(&one.from).is_none()
    };
    find_moves(&goal.root).into_iter().filter(is_whole).map(|one| (one.from, one.to)).collect()
}

struct Merge<'w, W> {
    disk: Tree<'w, W>,
    net: Net<'w, W>,
    /// The objects that go back, by the path at which the changes left them; `None`: it is not there any more.
    objects: BTreeMap<String, Option<Node>>,
    /// The paths that are not as the changes left them.
    changed: BTreeSet<String>,
}

impl<W: World> Merge<'_, W> {
    fn find_objects(&mut self) {
        for Moved { from: left_at, place, to: path } in find_moves(&self.net.before.root) {
            let object = self.find_object(&left_at, [&place, &path]);
            let is_wanted = self.net.before.get(&path).is_some_and(|node| !node.if_filled);
            let is_fine = match &object {
                Some(object) => self.is_as_left(&left_at, Some(object)),
                None => !is_wanted || self.is_back(&left_at, [&place, &path]),
            };
            if !is_fine {
                self.changed.insert(left_at.clone());
            }
            let is_free = self.is_as_left(&place, self.disk.get(&place).as_deref());
            if is_wanted && object.is_some() && !is_free {
                self.changed.insert(place);
            }
            self.objects.insert(left_at, object);
        }
    }

    /// The object that the changes moved to `left_at`, to go back to a place. It is recognised by its inode, and a file
    /// by its content. An object of the same kind that is not recognised was edited, if the place is still free:
    /// otherwise the object may have gone back already.
    fn find_object(&self, left_at: &str, places: [&str; 2]) -> Option<Node> {
        let (there, left) = (self.disk.get(left_at)?.into_owned(), self.net.left(left_at)?);
        if is_inode(&there, &left) {
            return Some(there);
        }
        let came_back = |place: &&str| self.disk.get(place).is_some_and(|node| is_inode(&node, &left));
        if self.moved_from(left_at).is_some_and(|was| is_inode(&there, &was)) || places.iter().any(came_back)
        {
            return None;
        }
        let is_free = places.iter().all(|place| self.is_as_left(place, self.disk.get(place).as_deref()));
        let is_unchanged = self.is_as_left(left_at, Some(&there));
        let is_object = there.image.as_ref().is_some_and(|image| image.kind == left.kind)
            && (is_free || left.kind != Kind::Dir && is_unchanged);
        let is_before = || self.is_as_before(left_at, &there);
        (is_object && (is_free && is_unchanged || !is_before())).then_some(there)
    }

    /// What the changes left of the object that was at a path before them, if they moved it.
    fn moved_from(&self, path: &str) -> Option<Image> {
        match &self.net.before.get(path)?.source {
            Source::Disk(left_at) => self.net.left(left_at),
            Source::Stored(_) | Source::Made | Source::Any => None,
        }
    }

    /// Whether an object is what was at a path before the changes.
    fn is_as_before(&self, path: &str, there: &Node) -> bool {
        match self.moved_from(path) {
            Some(was) if is_inode(there, &was) => true,
            Some(was) => was.kind != Kind::Dir && self.disk.is_same(there, &Node::made(was)),
            None => self.net.before.get(path).is_some_and(|before| self.disk.is_same_tree(there, &before)),
        }
    }

    /// Whether an object that is not where the changes left it is back in its place.
    fn is_back(&self, left_at: &str, places: [&str; 2]) -> bool {
        let Some(left) = self.net.left(left_at) else { return true };
        let has_gone = self.disk.get(left_at).is_none_or(|there| self.is_as_before(left_at, &there));
        let mut wanted = Node::made(left.clone());
        if let Some(attrs) = self.net.before.get(places[1]).and_then(|before| before.image.clone()) {
            wanted.set_attrs(&attrs);
        }
        places
            .iter()
            .filter_map(|place| self.disk.get(place))
            .any(|node| (has_gone || is_inode(&node, &left)) && self.disk.is_same(&node, &wanted))
    }

    fn is_as_left(&self, path: &str, there: Option<&Node>) -> bool {
        match (self.net.after.get(path), there) {
            (Some(left), Some(there)) => {
                left.image.as_ref().is_none_or(|image| self.disk.is_same(there, &Node::made(image.clone())))
            }
            (Some(left), None) => left.image.is_none(),
            (None, there) => there.is_none(),
        }
    }

    /// What a place becomes. `at` is its path in the tree that the changes left, unless what they left there moves
    /// elsewhere; `now` is what is there.
    fn place(&mut self, before: Option<&Node>, at: Option<&str>, now: Option<Node>) -> Option<Node> {
        let leaves = now.as_ref().is_some_and(|now| match &now.source {
            Source::Disk(path) => self.objects.get(path).is_some_and(Option::is_some),
            Source::Stored(_) | Source::Made | Source::Any => false,
        });
        let (now, at) = (now.filter(|_| !leaves), at.filter(|_| !leaves));
        match before {
            None => self.vacated(at, now),
            Some(before) if !before.is_dir() && !matches!(before.source, Source::Disk(_)) => {
                let left = at.and_then(|at| self.net.left(at));
                let is_unconcerned = left.is_some_and(|left| self.disk.is_same(&Node::made(left), before));
                if is_unconcerned { now } else { Some(before.clone()) }
            }
            Some(before) => self.folder(before, at, now),
        }
    }

    /// Where nothing was before. What the changes left nothing at is not theirs.
    fn vacated(&self, at: Option<&str>, now: Option<Node>) -> Option<Node> {
        now.filter(|_| at.is_none_or(|at| self.net.after.get(at).is_none()))
    }

    /// A folder, or an object that stays or moves.
    fn folder(&mut self, before: &Node, at: Option<&str>, now: Option<Node>) -> Option<Node> {
        let (object, at_below) = match &before.source {
            Source::Disk(left_at) => (self.objects.get(left_at).cloned(), Some(left_at.as_str())),
            Source::Stored(_) | Source::Made | Source::Any => (None, at),
        };
        // Where an object does not come back, what is there is not what the changes left.
        let is_gone = object == Some(None);
        let object = object.flatten().or_else(|| now.clone());
        let left = at_below.and_then(|at| self.net.after.get(at));
        // A folder that the changes made is not another one that is in place of what they left later.
        let is_other = before.if_filled
            && before.source != Source::Made
            && left.as_ref().is_some_and(|left| !left.is_dir());
        let object = object.filter(|_| !is_other);
        let base = object.filter(|object| before.over.is_empty() && !is_stored(before) || object.is_dir());
        let has_entries = left.as_ref().is_some_and(|left| !left.over.is_empty()) || !before.over.is_empty();
        if base.is_none() && is_stored(before) && !has_entries && !before.if_filled {
            return Some(before.clone());
        }
        let mut names = self.names(before, left.as_deref());
        names.extend(base.iter().flat_map(|base| self.leaving(base)));
        let mut out = base.clone().unwrap_or_else(|| {
            let image = before.image.clone().filter(|image| image.kind == Kind::Dir);
            Node::made(image.unwrap_or_else(folder))
        });
        if let Some(wanted) = before.image.as_ref().filter(|_| before.source != Source::Made) {
            let is_kind = |image: &Image| image.kind == wanted.kind;
            let left = left.as_ref().and_then(|left| left.image.as_ref());
            let is_unconcerned = left.is_some_and(|left| is_kind(left) && has_attrs_of(left, wanted));
            let is_there = base.as_ref().is_some_and(|base| base.image.as_ref().is_some_and(is_kind));
            if !is_unconcerned && is_there {
                out.set_attrs(wanted);
            } else if !is_unconcerned && !is_stored(before) && !before.if_filled {
                self.changed.extend(at_below.map(str::to_owned));
            }
        }
        for name in names {
            let child = self.net.before.child(before, &name).filter(|child| !is_gone || !child.if_filled);
            let now = base.as_ref().and_then(|base| self.disk.child(base, &name)).map(Cow::into_owned);
            let at = at_below.filter(|_| !is_gone || child.is_some()).map(|at| join(at, &name));
            let becomes = self.place(child.as_deref(), at.as_deref(), now.clone());
            if becomes != now || out.source == Source::Made {
                out.over.insert(name, becomes);
            }
        }
        let is_empty = || !out.is_dir() || self.disk.names(&out).is_empty();
        match base {
            _ if before.if_filled && is_empty() => self.vacated(at, now),
            None if !is_stored(before) && is_empty() => now,
            _ => Some(out),
        }
    }

    /// The entries of a folder that may change: those that were set, and those that stored content and the changes have.
    fn names(&self, before: &Node, left: Option<&Node>) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = before.over.keys().cloned().collect();
        if is_stored(before) || before.source == Source::Made && before.if_filled {
            names.extend(self.net.before.names(before));
            names.extend(left.iter().flat_map(|left| left.over.keys().cloned()));
        }
        names
    }

    /// The entries that move elsewhere, or have something below them that does.
    fn leaving(&self, base: &Node) -> BTreeSet<String> {
        let Source::Disk(path) = &base.source else { return BTreeSet::new() };
        let prefix = join(path, "");
        let below = self.objects.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let leaving = below.filter(|(_, object)| object.is_some());
        leaving.filter_map(|(path, _)| path[prefix.len()..].split('/').next().map(str::to_owned)).collect()
    }

    /// A path that changes must be as the changes left it, or travel with a folder that moves.
    fn judge(&mut self, goal: &Tree<'_, W>, differences: &BTreeMap<String, Difference>) {
        let moves = find_moves(&goal.root).into_iter().map(|one| (one.from, one.to));
        let moved: BTreeMap<String, String> = moves.collect();
        let travels = |path: &str| {
            ancestors(path).filter_map(|from| Some((from, moved.get(from)?))).any(|(from, to)| {
                let there = goal.get(&format!("{to}{}", &path[from.len()..]));
                let is_same =
                    |there: &Node| self.disk.get(path).is_some_and(|now| self.disk.is_same(&now, there));
                there.is_some_and(|there| there.is_disk(path) && is_same(&there))
            })
        };
        for path in differences.keys().filter(|path| !travels(path)) {
            let there = self.disk.get(path);
            let is_fine = match self.net.after.get(path) {
                Some(left) if left.source == Source::Any => true,
                Some(left) if left.image.is_none() => there.is_none(),
                _ => self.is_as_left(path, there.as_deref()),
            };
            if !is_fine {
                self.changed.insert(path.clone());
            }
            // A folder in place of a file that the changes left is used, but not as they left it.
            if there.is_none() {
                let is_other = |above: &&str| {
                    let is_file = self.net.left(above).is_some_and(|left| left.kind != Kind::Dir);
                    is_file && !differences.contains_key(*above)
                };
                self.changed.extend(ancestors(path).find(is_other).map(str::to_owned));
            }
        }
    }

    /// The newest change of any session that left what is there. Only for the message.
    fn changed_by(&self, path: &str, undo: &Undo<'_>) -> ChangedBy {
        let there = self.disk.get(path);
        let left = |change: &&&RecordedChange| {
            let record = change.paths.iter().rev().find(|record| record.path == path);
            !change.explicit
                && record.is_some_and(|record| match (&record.after, &there) {
                    (Some(after), Some(there)) => self.disk.is_same(there, &Node::made(after.clone())),
                    (after, there) => after.is_none() && there.is_none(),
                })
        };
        let first = undo.groups.iter().flatten().map(|change| change.seq).min();
        let later = undo.later.iter().rev().take_while(|change| Some(change.seq) > first).find(left);
        later.map_or(ChangedBy::Outside, |change| ChangedBy::Change(change.seq))
    }
}

fn is_stored(node: &Node) -> bool {
    matches!(node.source, Source::Stored(_))
}

fn is_inode(node: &Node, image: &Image) -> bool {
    let identities = node.image.as_ref().and_then(|node| node.identity).zip(image.identity);
    identities.is_some_and(|(one, other)| (one.dev, one.ino) == (other.dev, other.ino))
}
