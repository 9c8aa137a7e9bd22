//! What must hold of an undo beside a person.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Outside;
use super::book::{Ask, Call, Selection, What};
use crate::copy::{Part, Thing, Tree, differing, explain, same};
use crate::torture::undo::{Wrong, ensure};

/// What the person wrote and nobody has changed since.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// By inode: a file, folder or link as the person left it, wherever it is now.
    things: BTreeMap<u64, Mark>,
    /// The hashes of contents: an undo may bring one back as another file.
    contents: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Mark {
    thing: Thing,
    /// What of it is the person's. The rest is as it was before.
    part: Part,
}

impl Mark {
    fn is_in(&self, other: &Thing) -> bool {
        other.ino == self.thing.ino && self.thing.has_part(other, self.part)
    }
}

impl Written {
    pub(super) fn by_person(&mut self, before: &Tree, found: &Tree) {
        let hashes: BTreeSet<&str> = before.values().filter_map(Thing::hash).collect();
        for (path, thing) in found {
            let was = before.get(path).filter(|was| was.ino == thing.ino);
            if was.is_some_and(|was| was.is_like(thing)) {
                continue;
            }
            let part = was.map_or(Part::ALL, |was| was.changed_part(thing));
            let older = self.things.get(&thing.ino).filter(|mark| was.is_some_and(|was| mark.is_in(was)));
            let part = older.map_or(part, |mark| mark.part.and(part));
            self.things.insert(thing.ino, Mark { thing: thing.clone(), part });
            let new = thing.hash().filter(|hash| !hashes.contains(hash));
            self.contents.extend(new.map(str::to_owned));
        }
        self.keep(found);
    }

    /// Forgets what is not there any more.
    pub(super) fn keep(&mut self, found: &Tree) {
        let there: BTreeMap<u64, &Thing> = found.values().map(|thing| (thing.ino, thing)).collect();
        self.things.retain(|ino, mark| there.get(ino).is_some_and(|there| mark.is_in(there)));
    }

    /// A path at which something of the person was, and is not any more. What a call left there exactly so is not the
    /// person's for its undo.
    fn lost<'t>(&self, before: &'t Tree, found: &Tree, taken_back: &[&Call]) -> Option<&'t str> {
        let left = |path: &str| taken_back.iter().filter_map(|call| call.after.get(path)).collect::<Vec<_>>();
        let is_there = |is_it: &dyn Fn(&Thing) -> bool| found.values().any(is_it);
        let is_lost = |path: &str, thing: &Thing| {
            let mark = self.things.get(&thing.ino).filter(|mark| mark.is_in(thing));
            let is_its = mark.is_some_and(|mark| !is_there(&|other| mark.is_in(other)))
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
            Outside::check_exact(ask, &taken_back, found)?;
        }
        let is_near =
            |path: &str, other: &str| path == other || is_below(path, other) || is_below(other, path);
        let concerned =
            |path: &str| taken_back.iter().any(|call| call.touched.iter().any(|one| is_near(path, one)));
        let strange: Vec<String> =
            differing(&self.now, found).into_iter().filter(|path| !concerned(path)).collect();
        ensure(strange.is_empty(), || format!("what is taken back never touched {strange:?}: {receipt}"))
    }

    /// Without force each path that the calls changed becomes what the first of them found. Where something moved, or
    /// was moved back, the paths do not tell what belongs together.
    fn check_exact(ask: &Ask, taken_back: &[&Call], found: &Tree) -> Result<(), Wrong> {
        if taken_back.iter().any(|call| call.what != What::Ordinary) {
            return Ok(());
        }
        let is_asked = |path: &String| {
            ask.paths.as_ref().is_none_or(|paths| paths.iter().any(|one| path == one || is_below(path, one)))
        };
        let mut taken_back = taken_back.to_vec();
        taken_back.sort_by_key(|call| call.at);
        let all: BTreeSet<&String> = taken_back.iter().flat_map(|call| &call.touched).collect();
        for path in all.into_iter().filter(|path| is_asked(path)) {
            let mut calls = taken_back.iter().filter(|call| call.touched.contains(path));
            let (Some(first), last) = (calls.next(), calls.next_back()) else { continue };
            let (was, left) = (first.before.get(path), last.unwrap_or(first).after.get(path));
            // A folder that they made stays with what others put into it.
            let prefix = format!("{path}/");
            let is_filled =
                found.range(prefix.clone()..).next().is_some_and(|(below, _)| below.starts_with(&prefix));
            let stays = was.is_none() && is_filled;
            if !same(was, left) && !stays && !same(found.get(path), was) {
                let only = |thing: Option<&Thing>| {
                    thing.map(|thing| (path.clone(), thing.clone())).into_iter().collect::<Tree>()
                };
                let text = explain(&only(was), &only(found.get(path)));
                return ensure(false, || format!("not as the first call found it: {text}"));
            }
        }
        Ok(())
    }

    /// Whether an undo may end like this without being done.
    pub(super) fn may_be_refused(&self, ask: &Ask, receipt: &Value) -> bool {
        let session = &self.sessions[ask.session];
        let is_empty = session.taken_back(&ask.selection).is_empty();
        match receipt["error_code"].as_str().unwrap_or_default() {
            "changed_since" => !ask.force && self.did_others_act(ask),
            "symlink_not_allowed" => ask.force && self.is_through_link(ask),
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

    /// Whether a path that is taken back is below a link now: nothing is written through it, not even with `force`.
    fn is_through_link(&self, ask: &Ask) -> bool {
        let is_link = |path: &str| self.now.get(path).is_some_and(Thing::is_link);
        let is_behind = |path: &String| path.match_indices('/').any(|(slash, _)| is_link(&path[..slash]));
        let taken_back = self.sessions[ask.session].taken_back(&ask.selection);
        taken_back.iter().any(|call| call.touched.iter().any(is_behind))
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
