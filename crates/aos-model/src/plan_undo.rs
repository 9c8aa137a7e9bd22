//! Plans an undo: computes what each path must become so that a sequence of changes is undone.
//!
//! The changes are walked from the newest to the oldest. The map `before` says for each path what was there before the
//! changes walked so far: an object that exists now under some path, an object in a snapshot, or nothing. Nothing here
//! reads a file: the caller looks up bodies and compares.

use std::collections::BTreeMap;

use crate::records::{Attributes, Image, PathRecord};

pub use crate::records::RecordedChange;

/// What was at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// The object that is at `path` now. A folder may have had other attributes (`look`).
    Current {
        path: String,
        dir_attrs: Option<DirAttrs>,
    },
    /// An object that a snapshot holds.
    Kept {
        preimage: PreimageRef,
        dir_attrs: Option<DirAttrs>,
    },
    Absent,
}

/// The mode and the attributes that a folder had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirAttrs {
    pub mode: u32,
    /// `None`: unchanged.
    pub xattrs: Option<Attributes>,
}

/// A pre-image, or an object below a pre-image that is a folder. If the folder's pre-image does not have it, the path
/// was absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreimageRef {
    pub snapshot_id: String,
    /// The name of the pre-image: a path may have several in one snapshot.
    pub name: String,
    /// The path of the pre-image.
    pub path: String,
    /// The rest of the path: empty, or beginning with a slash.
    pub suffix: String,
}

impl Node {
    fn below(&self, suffix: &str) -> Node {
        match self {
            Node::Current { path, .. } => Node::current(format!("{path}{suffix}")),
            Node::Kept { preimage, .. } => {
                let suffix = format!("{}{suffix}", preimage.suffix);
                Node::Kept { preimage: PreimageRef { suffix, ..preimage.clone() }, dir_attrs: None }
            }
            Node::Absent => Node::Absent,
        }
    }

    fn current(path: String) -> Node {
        Node::Current { path, dir_attrs: None }
    }

    /// The object with its attributes of before. Attributes that `before` does not have come from a later change.
    fn with_attributes(mut self, before: &Image) -> Node {
        if let Node::Current { dir_attrs, .. } | Node::Kept { dir_attrs, .. } = &mut self {
            let later = dir_attrs.take().and_then(|dir_attrs| dir_attrs.xattrs);
            *dir_attrs = Some(DirAttrs { mode: before.mode, xattrs: before.xattrs.clone().or(later) });
        }
        self
    }
}

/// What the newest change of an object left, under the path that the object has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedImage {
    /// `None`: the path is absent.
    pub image: Option<Image>,
    /// There is no post-image to compare with, so whatever is there now is replaced.
    pub unconditional: bool,
    pub seq: u64,
}

/// The plan: what each changed path was before, and what must be there now for the undo to be safe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoPlan {
    pub before: BTreeMap<String, Node>,
    /// Objects that the changes created and that are removed: the path now, and the path at which it was created.
    pub gone: BTreeMap<String, String>,
    pub expected: BTreeMap<String, ExpectedImage>,
}

impl UndoPlan {
    /// Plans the undo of `touches`, which are in the order in which they happened.
    pub fn of(touches: &[RecordedChange]) -> UndoPlan {
        let mut plan = UndoPlan::default();
        for touch in touches.iter().rev() {
            for record in touch.paths.iter().rev() {
                plan.step_back(touch, record);
            }
        }
        plan
    }

    /// What was at a path before all changes.
    pub fn at(&self, path: &str) -> Node {
        if let Some(node) = self.before.get(path) {
            return node.clone();
        }
        let above = path.rmatch_indices('/').find_map(|(slash, _)| {
            let (ancestor, suffix) = path.split_at(slash);
            self.before.get(ancestor).map(|node| node.below(suffix))
        });
        above.unwrap_or_else(|| Node::current(path.to_owned()))
    }

    fn step_back(&mut self, touch: &RecordedChange, record: &PathRecord) {
        self.expect(&record.path, touch, record.after.as_ref());
        if let Some(to) = &record.moved_to {
            self.expect(to, touch, record.before.as_ref());
            return self.move_back(&record.path, to);
        }
        if let Some(before) = record.before.as_ref().filter(|_| record.mode_only) {
            let node = self.at(&record.path).with_attributes(before);
            self.before.insert(record.path.clone(), node);
            return;
        }
        if (record.after.is_some() || touch.explicit)
            && let Node::Current { path, .. } = self.at(&record.path)
        {
            self.gone.insert(path, record.path.clone());
        }
        let was = match &record.before {
            Some(before) => {
                let preimage = PreimageRef {
                    snapshot_id: touch.snapshot_id.clone(),
                    name: before.preimage.clone().unwrap_or_default(),
                    path: record.path.clone(),
                    suffix: String::new(),
                };
                Node::Kept { preimage, dir_attrs: None }
            }
            None => Node::Absent,
        };
        self.remove_below(&record.path);
        self.before.insert(record.path.clone(), was);
    }

    /// The change left `image` at the path. Unless a newer change touched the object, it must still be there. A newer
    /// change that only moved the object did not record its hash; the older one that wrote it did.
    fn expect(&mut self, path: &str, touch: &RecordedChange, image: Option<&Image>) {
        let Node::Current { path, .. } = self.at(path) else { return };
        let left = || ExpectedImage { image: image.cloned(), unconditional: touch.explicit, seq: touch.seq };
        let known = self.expected.entry(path).or_insert_with(left);
        if let (Some(newer), Some(older)) = (&mut known.image, image)
            && newer.hash.is_none()
            && newer.identity.is_some()
            && newer.identity == older.identity
        {
            newer.hash.clone_from(&older.hash);
        }
    }

    /// The object at `to` was at `from`, with everything below it. What was at `to` is in the record that is walked
    /// next.
    fn move_back(&mut self, from: &str, to: &str) {
        let node = self.at(to);
        let below: Vec<(String, Node)> = self
            .keys_below(to)
            .into_iter()
            .map(|path| (format!("{from}{}", &path[to.len()..]), self.before[&path].clone()))
            .collect();
        self.remove_below(from);
        self.before.insert(from.to_owned(), node);
        self.before.extend(below);
        self.remove_below(to);
        self.before.insert(to.to_owned(), Node::Absent);
    }

    fn remove_below(&mut self, path: &str) {
        for below in self.keys_below(path) {
            self.before.remove(&below);
        }
    }

    fn keys_below(&self, path: &str) -> Vec<String> {
        let prefix = format!("{path}/");
        let from = self.before.range(prefix.clone()..).map(|(path, _)| path);
        from.take_while(|path| path.starts_with(&prefix)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Kind;

    fn image(hash: &str) -> Option<Image> {
        Some(Image {
            kind: Kind::File,
            mode: 0o644,
            size_bytes: 1,
            hash: Some(hash.into()),
            preimage: None,
            identity: None,
            xattrs: None,
        })
    }

    fn put(path: &str, before: Option<Image>, after: &str) -> PathRecord {
        PathRecord { path: path.into(), before, after: image(after), moved_to: None, mode_only: false }
    }

    fn moved(from: &str, to: &str) -> Vec<PathRecord> {
        vec![
            PathRecord {
                path: to.into(),
                before: None,
                after: image("moved"),
                moved_to: None,
                mode_only: false,
            },
            PathRecord {
                path: from.into(),
                before: image("moved"),
                after: None,
                moved_to: Some(to.into()),
                mode_only: false,
            },
        ]
    }

    fn touch(seq: u64, paths: Vec<PathRecord>) -> RecordedChange {
        RecordedChange {
            seq,
            turn_id: None,
            snapshot_id: format!("snap_{seq}"),
            explicit: false,
            in_tree: false,
            paths,
        }
    }

    fn kept_below(seq: u64, path: &str, suffix: &str) -> Node {
        let snapshot_id = format!("snap_{seq}");
        let preimage =
            PreimageRef { snapshot_id, name: String::new(), path: path.into(), suffix: suffix.into() };
        Node::Kept { preimage, dir_attrs: None }
    }

    fn kept(seq: u64, path: &str) -> Node {
        kept_below(seq, path, "")
    }

    #[test]
    fn the_oldest_pre_image_wins_and_the_newest_post_image_is_expected() {
        let history = [
            touch(1, vec![put("f", image("a"), "b")]),
            touch(2, vec![put("f", image("b"), "c"), put("g", None, "new")]),
        ];
        let plan = UndoPlan::of(&history);
        assert_eq!(plan.at("f"), kept(1, "f"));
        assert_eq!(plan.at("g"), Node::Absent);
        assert_eq!(plan.at("untouched"), Node::current("untouched".into()));
        assert_eq!(plan.expected["f"].image, image("c"));
        assert_eq!((plan.expected["f"].seq, plan.expected["g"].seq), (2, 2));
    }

    #[test]
    fn a_file_that_was_edited_below_a_moved_folder_is_found_at_its_new_path() {
        // edit a/x, move a to b, edit b/y
        let history = [
            touch(1, vec![put("a/x", image("1"), "2")]),
            touch(2, moved("a", "b")),
            touch(3, vec![put("b/y", image("3"), "4")]),
        ];
        let plan = UndoPlan::of(&history);
        assert_eq!(plan.at("a"), Node::current("b".into()));
        assert_eq!(plan.at("a/x"), kept(1, "a/x"));
        assert_eq!(plan.at("a/y"), kept(3, "b/y"));
        assert_eq!(plan.at("a/z"), Node::current("b/z".into()));
        assert_eq!((plan.at("b"), plan.at("b/y")), (Node::Absent, Node::Absent));
        assert_eq!(plan.expected["b/x"].image, image("2"));
        assert_eq!(plan.expected["b/y"].image, image("4"));
        assert_eq!(plan.expected["a"].image, None);
        assert_eq!(plan.expected["b"].image, image("moved"));
    }

    #[test]
    fn a_created_file_is_removed_from_its_new_path_even_if_another_object_is_restored_there() {
        // move a to b, make a new a, move it to c, move d to a: the new one is at c
        let made = vec![put("a", None, "new")];
        let history =
            [touch(1, moved("a", "b")), touch(2, made), touch(3, moved("a", "c")), touch(4, moved("d", "a"))];
        let plan = UndoPlan::of(&history);
        assert_eq!(plan.gone, BTreeMap::from([("c".to_owned(), "a".to_owned())]));
        assert_eq!((plan.at("a"), plan.at("d")), (Node::current("b".into()), Node::current("a".into())));
    }

    #[test]
    fn a_file_that_was_created_and_then_moved_is_identified_by_its_hash() {
        let identity = crate::records::Identity { dev: 1, ino: 2, mtime_ns: 3 };
        let made = Image { identity: Some(identity), ..image("made").unwrap() };
        let moved_image = Image { hash: None, ..made.clone() };
        let mut history = [touch(1, vec![put("a", None, "made")]), touch(2, moved("a", "b"))];
        history[0].paths[0].after = Some(made.clone());
        history[1].paths[0].after = Some(moved_image.clone());
        history[1].paths[1].before = Some(moved_image);
        assert_eq!(UndoPlan::of(&history).expected["b"].image, Some(made));
    }

    #[test]
    fn swapped_names_are_swapped_back() {
        let history = [touch(1, moved("a", "t")), touch(2, moved("b", "a")), touch(3, moved("t", "b"))];
        let plan = UndoPlan::of(&history);
        assert_eq!(plan.at("a"), Node::current("b".into()));
        assert_eq!(plan.at("b"), Node::current("a".into()));
        assert_eq!(plan.at("t"), Node::Absent);
    }

    #[test]
    fn of_a_folder_that_was_removed_twice_the_first_is_restored() {
        let dir = Some(Image { kind: Kind::Dir, ..image("x").unwrap() });
        let gone = |before: &Option<Image>| {
            vec![PathRecord {
                path: "d".into(),
                before: before.clone(),
                after: None,
                moved_to: None,
                mode_only: false,
            }]
        };
        let history = [
            touch(1, gone(&dir)),
            touch(2, vec![put("d", None, "dir"), put("d/x", None, "new")]),
            touch(3, gone(&dir)),
        ];
        let plan = UndoPlan::of(&history);
        assert_eq!(plan.at("d"), kept(1, "d"));
        assert_eq!(plan.at("d/x"), kept_below(1, "d", "/x"));
    }
}
