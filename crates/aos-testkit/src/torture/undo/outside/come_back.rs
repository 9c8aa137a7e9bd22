//! What an undo displaced comes back: right after it by the undo of the undo, and after a new change by its snapshot.

use serde_json::json;

use super::Outside;
use super::book::{Ask, Selection};
use super::undo::Done;
use crate::copy::{Thing, Tree, differing, explain, same};
use crate::random::Random;
use crate::torture::undo::{Wrong, ensure};

/// Mutations that may be refused in a row.
const TRIES_MAX: usize = 8;

impl Outside<'_> {
    pub(super) fn come_back(&mut self, ask: &Ask, done: &Done, random: &mut Random) -> Result<(), Wrong> {
        match random.below(3) {
            0 => self.at_once(ask, done, random),
            1 => self.by_snapshot(ask, done, random),
            _ => Ok(()),
        }
    }

    fn at_once(&mut self, ask: &Ask, done: &Done, random: &mut Random) -> Result<(), Wrong> {
        let is_nothing = differing(&done.before, &done.after).is_empty();
        let selection = match ask.selection {
            Selection::Rollback(_) => Selection::Redo(done.turns),
            // Without a change there is no snapshot.
            _ if is_nothing => return Ok(()),
            Selection::Scope(_) | Selection::Snapshot(_) if random.one_in(2) => Selection::Rollback(1),
            _ => Selection::Snapshot(done.snapshot.clone()),
        };
        let back = Ask { session: ask.session, selection, paths: None, force: false };
        if self.undo(&back, None)?.is_none() {
            // The refusal was checked: with few pre-images there may be no room for these.
            let is_small = self.sessions[ask.session].is_small;
            return ensure(is_small, || {
                format!("{:?} does not bring back what was displaced", back.selection)
            });
        }
        self.tally.came_back += 1;
        ensure(differing(&done.before, &self.now).is_empty(), || {
            format!("{:?} brings back something else: {}", back.selection, explain(&done.before, &self.now))
        })
    }

    fn by_snapshot(&mut self, ask: &Ask, done: &Done, random: &mut Random) -> Result<(), Wrong> {
        let displaced = displaced(&done.before, &done.after);
        if displaced.is_empty() {
            return Ok(());
        }
        // Until something has changed, the undo can be redone, and is not listed by itself.
        let calls = self.sessions[ask.session].calls.len();
        for _ in 0..TRIES_MAX {
            self.mutation(ask.session, random, (None, None), false)?;
            if self.sessions[ask.session].calls.len() > calls {
                break;
            }
        }
        if self.sessions[ask.session].calls.len() == calls {
            return Ok(());
        }
        if random.one_in(2) {
            self.person(random)?;
        }
        let (is_small, id) = (self.sessions[ask.session].is_small, self.sessions[ask.session].id.clone());
        let history = self.calls.query("session.history", &json!({ "session_id": id }))?;
        let is_listed = history.to_string().contains(&done.snapshot);
        ensure(is_listed || is_small, || {
            format!("session.history does not list {}, which holds what was displaced", done.snapshot)
        })?;
        let selection = Selection::Snapshot(done.snapshot.clone());
        let back = Ask { session: ask.session, selection, paths: None, force: true };
        if self.undo(&back, None)?.is_none() {
            return Ok(());
        }
        self.tally.came_back += 1;
        let lost = displaced.iter().find(|(path, thing)| !same(self.now.get(*path), Some(thing)));
        ensure(lost.is_none(), || {
            let only = |tree: &Tree| {
                let there = lost.and_then(|(path, _)| tree.get_key_value(path));
                there.map(|(path, thing)| (path.clone(), thing.clone())).into_iter().collect()
            };
            let what: (Tree, Tree) = (only(&displaced), only(&self.now));
            format!("{} does not bring back {}", done.snapshot, explain(&what.0, &what.1))
        })
    }
}

/// What is in the first tree and nowhere in the second. Of folders only the attributes could be displaced.
fn displaced(before: &Tree, after: &Tree) -> Tree {
    let is_gone = |thing: &Thing| !thing.is_folder() && !after.values().any(|other| other.is_like(thing));
    before
        .iter()
        .filter(|(_, thing)| is_gone(thing))
        .map(|(path, thing)| (path.clone(), thing.clone()))
        .collect()
}
