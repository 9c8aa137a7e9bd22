//! What must hold of an undo beside a person.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Outside;
use super::book::{Ask, Call, Selection, What};
use crate::copy::{Thing, Tree, differing};
use crate::torture::undo::{Wrong, ensure};

/// What the person wrote and nobody has changed since.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// By inode: a file, folder or link as the person left it, wherever it is now.
    things: BTreeMap<u64, Thing>,
    /// The hashes of contents: an undo may bring one back as another file.
    contents: BTreeSet<String>,
}

impl Written {
    pub(super) fn by_person(&mut self, before: &Tree, found: &Tree) {
        let hashes: BTreeSet<&str> = before.values().filter_map(Thing::hash).collect();
        for (path, thing) in found {
            let is_as_before = before.get(path).is_some_and(|was| was.ino == thing.ino && was.is_like(thing));
            if !is_as_before {
                self.things.insert(thing.ino, thing.clone());
                let new = thing.hash().filter(|hash| !hashes.contains(hash));
                self.contents.extend(new.map(str::to_owned));
            }
        }
        self.keep(found);
    }

    /// Forgets what is not there any more.
    pub(super) fn keep(&mut self, found: &Tree) {
        let mut there = BTreeMap::new();
        for thing in found.values() {
            there.insert(thing.ino, thing);
        }
        self.things.retain(|ino, thing| there.get(ino).is_some_and(|there| there.is_like(thing)));
    }

    /// A path at which something of the person was, and is not any more. What a call left there exactly so is not the
    /// person's for its undo.
    fn lost<'t>(&self, before: &'t Tree, found: &Tree, taken_back: &[&Call]) -> Option<&'t str> {
        let left = |path: &str| taken_back.iter().filter_map(|call| call.after.get(path)).collect::<Vec<_>>();
        let is_there = |is_it: &dyn Fn(&Thing) -> bool| found.values().any(is_it);
        let is_lost = |path: &str, thing: &Thing| {
            let is_its = self.things.get(&thing.ino).is_some_and(|written| written.is_like(thing))
                && !is_there(&|other| other.ino == thing.ino && other.is_like(thing))
                && !left(path).iter().any(|left| left.is_like(thing));
            let hash = thing.hash().filter(|hash| self.contents.contains(*hash));
            let is_content = hash.is_some_and(|hash| {
                !is_there(&|other| other.hash() == Some(hash))
                    && !left(path).iter().any(|left| left.hash() == Some(hash))
            });
            is_its || is_content
        };
        before.iter().find(|(path, thing)| is_lost(path, thing)).map(|(path, _)| path.as_str())
    }
}

impl Outside<'_> {
    /// After an undo that was done, before it is recorded.
    pub(super) fn check_undone(&self, ask: &Ask, receipt: &Value, found: &Tree) -> Result<(), Wrong> {
        let session = &self.sessions[ask.session];
        ensure(session.names_turns(&ask.selection, receipt), || format!("not these turns: {receipt}"))?;
        let taken_back = session.taken_back(&ask.selection);
        let is_explicit = taken_back.iter().any(|call| call.what == What::Explicit);
        if !ask.force && !is_explicit {
            let lost = self.written.lost(&self.now, found, &taken_back);
            ensure(lost.is_none(), || {
                format!("{} of the person is lost: {receipt}", lost.unwrap_or_default())
            })?;
        }
        let is_near =
            |path: &str, other: &str| path == other || is_below(path, other) || is_below(other, path);
        let concerned =
            |path: &str| taken_back.iter().any(|call| call.touched.iter().any(|one| is_near(path, one)));
        let strange: Vec<String> =
            differing(&self.now, found).into_iter().filter(|path| !concerned(path)).collect();
        ensure(strange.is_empty(), || format!("what is taken back never touched {strange:?}: {receipt}"))
    }

    /// Whether an undo may end like this without being done.
    pub(super) fn may_be_refused(&self, ask: &Ask, receipt: &Value) -> bool {
        let session = &self.sessions[ask.session];
        let is_empty = session.taken_back(&ask.selection).is_empty();
        match receipt["error_code"].as_str().unwrap_or_default() {
            "changed_since" if ask.force => self.is_through_link(receipt),
            "changed_since" => self.did_others_act(ask),
            "nothing_to_roll_back" | "nothing_to_redo" => session.is_small || is_empty,
            "snapshot_not_found" => ask.is_restore() && (session.is_small || is_empty),
            "limit_exceeded" => session.is_small,
            _ => false,
        }
    }

    /// Whether anybody changed something since the first call that is taken back, except the calls that are taken back.
    fn did_others_act(&self, ask: &Ask) -> bool {
        let session = &self.sessions[ask.session];
        let taken_back = session.taken_back(&ask.selection);
        let Some(first) = taken_back.iter().map(|call| call.at).min() else { return true };
        let since = &self.changes[first..];
        match ask.selection {
            Selection::Rollback(_) | Selection::Redo(_) => {
                since.iter().any(|who| who.as_ref() != Some(&session.id))
            }
            Selection::Scope(_) | Selection::Snapshot(_) => since.len() > taken_back.len(),
        }
    }

    /// Whether a conflict is at a link or below one: nothing is written through a link, not even with `force`.
    pub(super) fn is_through_link(&self, receipt: &Value) -> bool {
        let is_link = |path: &str| self.now.get(path).is_some_and(Thing::is_link);
        let above = |path: &str| path.match_indices('/').any(|(slash, _)| is_link(&path[..slash]));
        let paths = receipt["conflicts"].as_array().into_iter().flatten();
        paths.filter_map(|one| one["path"].as_str()).any(|path| is_link(path) || above(path))
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
