//! Undo, judged: what each path must become so that a run of changes has never been.
//!
//! Changes are walked from the newest back. At each moment of that walk the tree is a map from paths to what stood
//! there: something that still stands somewhere now, something that a snapshot keeps, or nothing. Nothing here reads a
//! file: whoever carries the goals out looks bodies up and compares.

use std::collections::BTreeMap;

use crate::records::{Attributes, Image, PathRecord};

/// One journaled change with the paths it touched, in the order in which it touched them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    pub seq: u64,
    pub turn_id: Option<String>,
    pub snapshot_id: String,
    /// Captured by hand, before anything happened: it has no image of afterwards.
    pub explicit: bool,
    /// Of a virtual or staged tree: nodes are put back there, no files.
    pub in_tree: bool,
    pub paths: Vec<PathRecord>,
}

/// What stood at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// What stands at this path now. A folder may have looked otherwise.
    Current {
        path: String,
        look: Option<Look>,
    },
    /// What a snapshot keeps of it.
    Kept {
        piece: Piece,
        look: Option<Look>,
    },
    Absent,
}

/// How a folder looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub mode: u32,
    /// `None`: as they are.
    pub xattrs: Option<Attributes>,
}

/// A pre-image, or what lay below one that was a folder. Where a folder's piece holds nothing, nothing was there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub snapshot_id: String,
    /// The pre-image's name in the bank: one path may have several in a snapshot.
    pub bank: String,
    /// Where the pre-image was.
    pub path: String,
    /// And from there on; empty, or beginning with a slash.
    pub suffix: String,
}

impl Node {
    fn below(&self, suffix: &str) -> Node {
        match self {
            Node::Current { path, .. } => Node::current(format!("{path}{suffix}")),
            Node::Kept { piece, .. } => {
                let suffix = format!("{}{suffix}", piece.suffix);
                Node::Kept { piece: Piece { suffix, ..piece.clone() }, look: None }
            }
            Node::Absent => Node::Absent,
        }
    }

    fn current(path: String) -> Node {
        Node::Current { path, look: None }
    }

    /// What looked so before; what that does not say is as it was found later.
    fn looking(mut self, before: &Image) -> Node {
        if let Node::Current { look, .. } | Node::Kept { look, .. } = &mut self {
            let later = look.take().and_then(|look| look.xattrs);
            *look = Some(Look { mode: before.mode, xattrs: before.xattrs.clone().or(later) });
        }
        self
    }
}

/// How the newest change of a path left it, found where that object is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// `None`: nothing was left there.
    pub image: Option<Image>,
    /// Nobody looked afterwards, so whatever stands there now may be replaced.
    pub unconditional: bool,
    pub seq: u64,
}

/// The outcome: the tree of before, where it differs, and what must stand now for that to be safe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unwound {
    pub before: BTreeMap<String, Node>,
    /// What stands at these paths now was made by the changes, and goes. The path that it was made at stands beside.
    pub gone: BTreeMap<String, String>,
    pub expected: BTreeMap<String, Expected>,
}

impl Unwound {
    /// Takes back `touches`, which stand in the order in which they happened.
    pub fn of(touches: &[Touch]) -> Unwound {
        let mut unwound = Unwound::default();
        for touch in touches.iter().rev() {
            for record in touch.paths.iter().rev() {
                unwound.step_back(touch, record);
            }
        }
        unwound
    }

    /// What stood at a path before all of it.
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

    fn step_back(&mut self, touch: &Touch, record: &PathRecord) {
        self.expect(&record.path, touch, record.after.as_ref());
        if let Some(to) = &record.moved_to {
            self.expect(to, touch, record.before.as_ref());
            return self.move_back(&record.path, to);
        }
        if let Some(before) = record.before.as_ref().filter(|_| record.mode_only) {
            let node = self.at(&record.path).looking(before);
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
                let piece = Piece {
                    snapshot_id: touch.snapshot_id.clone(),
                    bank: before.bank.clone().unwrap_or_default(),
                    path: record.path.clone(),
                    suffix: String::new(),
                };
                Node::Kept { piece, look: None }
            }
            None => Node::Absent,
        };
        self.forget_below(&record.path);
        self.before.insert(record.path.clone(), was);
    }

    /// The change left `image` at the path. Unless a newer one touched it, that is what should stand there still. A
    /// newer one that only moved it does not know its content; an older one that made it does.
    fn expect(&mut self, path: &str, touch: &Touch, image: Option<&Image>) {
        let Node::Current { path, .. } = self.at(path) else { return };
        let left = || Expected { image: image.cloned(), unconditional: touch.explicit, seq: touch.seq };
        let known = self.expected.entry(path).or_insert_with(left);
        if let (Some(newer), Some(older)) = (&mut known.image, image)
            && newer.hash.is_none()
            && newer.identity.is_some()
            && newer.identity == older.identity
        {
            newer.hash.clone_from(&older.hash);
        }
    }

    /// What stands at `to` was at `from`, with all below it. What was at `to` says the record that follows.
    fn move_back(&mut self, from: &str, to: &str) {
        let node = self.at(to);
        let below: Vec<(String, Node)> = self
            .keys_below(to)
            .into_iter()
            .map(|path| (format!("{from}{}", &path[to.len()..]), self.before[&path].clone()))
            .collect();
        self.forget_below(from);
        self.before.insert(from.to_owned(), node);
        self.before.extend(below);
        self.forget_below(to);
        self.before.insert(to.to_owned(), Node::Absent);
    }

    fn forget_below(&mut self, path: &str) {
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
            bank: None,
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

    fn touch(seq: u64, paths: Vec<PathRecord>) -> Touch {
        Touch {
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
        let piece = Piece { snapshot_id, bank: String::new(), path: path.into(), suffix: suffix.into() };
        Node::Kept { piece, look: None }
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
        let unwound = Unwound::of(&history);
        assert_eq!(unwound.at("f"), kept(1, "f"));
        assert_eq!(unwound.at("g"), Node::Absent);
        assert_eq!(unwound.at("untouched"), Node::current("untouched".into()));
        assert_eq!(unwound.expected["f"].image, image("c"));
        assert_eq!((unwound.expected["f"].seq, unwound.expected["g"].seq), (2, 2));
    }

    #[test]
    fn what_was_edited_below_a_moved_folder_is_found_where_it_is_now() {
        // edit a/x, move a to b, edit b/y
        let history = [
            touch(1, vec![put("a/x", image("1"), "2")]),
            touch(2, moved("a", "b")),
            touch(3, vec![put("b/y", image("3"), "4")]),
        ];
        let unwound = Unwound::of(&history);
        assert_eq!(unwound.at("a"), Node::current("b".into()));
        assert_eq!(unwound.at("a/x"), kept(1, "a/x"));
        assert_eq!(unwound.at("a/y"), kept(3, "b/y"));
        assert_eq!(unwound.at("a/z"), Node::current("b/z".into()));
        assert_eq!((unwound.at("b"), unwound.at("b/y")), (Node::Absent, Node::Absent));
        assert_eq!(unwound.expected["b/x"].image, image("2"));
        assert_eq!(unwound.expected["b/y"].image, image("4"));
        assert_eq!(unwound.expected["a"].image, None);
        assert_eq!(unwound.expected["b"].image, image("moved"));
    }

    #[test]
    fn what_was_made_goes_from_where_it_is_now_even_where_something_else_shall_be() {
        // move a to b, make a new a, move it to c, move d to a: the new one is at c
        let made = vec![put("a", None, "new")];
        let history =
            [touch(1, moved("a", "b")), touch(2, made), touch(3, moved("a", "c")), touch(4, moved("d", "a"))];
        let unwound = Unwound::of(&history);
        assert_eq!(unwound.gone, BTreeMap::from([("c".to_owned(), "a".to_owned())]));
        assert_eq!(
            (unwound.at("a"), unwound.at("d")),
            (Node::current("b".into()), Node::current("a".into()))
        );
    }

    #[test]
    fn what_was_made_and_then_moved_is_known_by_its_content() {
        let identity = crate::records::Identity { dev: 1, ino: 2, mtime_ns: 3 };
        let made = Image { identity: Some(identity), ..image("made").unwrap() };
        let moved_image = Image { hash: None, ..made.clone() };
        let mut history = [touch(1, vec![put("a", None, "made")]), touch(2, moved("a", "b"))];
        history[0].paths[0].after = Some(made.clone());
        history[1].paths[0].after = Some(moved_image.clone());
        history[1].paths[1].before = Some(moved_image);
        assert_eq!(Unwound::of(&history).expected["b"].image, Some(made));
    }

    #[test]
    fn names_that_were_swapped_are_swapped_back() {
        let history = [touch(1, moved("a", "t")), touch(2, moved("b", "a")), touch(3, moved("t", "b"))];
        let unwound = Unwound::of(&history);
        assert_eq!(unwound.at("a"), Node::current("b".into()));
        assert_eq!(unwound.at("b"), Node::current("a".into()));
        assert_eq!(unwound.at("t"), Node::Absent);
    }

    #[test]
    fn a_folder_that_was_removed_made_again_and_removed_is_the_first_one() {
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
        let unwound = Unwound::of(&history);
        assert_eq!(unwound.at("d"), kept(1, "d"));
        assert_eq!(unwound.at("d/x"), kept_below(1, "d", "/x"));
    }
}
