//! What a session did: its calls, its turns, and which calls an undo takes back.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::copy::{Tree, same};

/// One recorded call of a session.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) snapshot: String,
    pub(super) what: What,
    pub(super) before: Rc<Tree>,
    pub(super) after: Rc<Tree>,
    /// The paths that it changed or replaced.
    pub(super) touched: Vec<String>,
    /// The number of changes by anybody that came before it.
    pub(super) at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Ordinary,
    /// It may have moved something.
    Moves,
    /// An undo of one call.
    Restores,
    /// A rollback or a redo of turns.
    Rolls,
    /// An explicit snapshot, which has no post-image.
    Explicit,
}

#[derive(Debug, Clone)]
pub(super) struct Turn {
    id: String,
    calls: Vec<usize>,
}

/// A session, as far as its answers tell.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    /// It keeps few pre-images, so an undo may need what was evicted.
    pub(super) is_small: bool,
    pub(super) calls: Vec<Call>,
    pub(super) done: Vec<Turn>,
    /// The last is redone first. With each, the call that rolled it back.
    pub(super) undone: Vec<(Turn, usize)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selection {
    Rollback(usize),
    Redo(usize),
    Scope(String),
    Snapshot(String),
}

/// A request to undo something.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    /// The index of the session.
    pub(super) session: usize,
    pub(super) selection: Selection,
    pub(super) paths: Option<Vec<String>>,
    pub(super) force: bool,
}

impl Ask {
    pub(super) fn kind(&self) -> &'static str {
        match self.selection {
            Selection::Rollback(_) => "host.fs.rollback",
            Selection::Redo(_) => "host.fs.redo",
            Selection::Scope(_) | Selection::Snapshot(_) => "host.fs.restore",
        }
    }

    pub(super) fn is_restore(&self) -> bool {
        matches!(self.selection, Selection::Scope(_) | Selection::Snapshot(_))
    }

    pub(super) fn params(&self, dry_run: bool) -> Value {
        let mut params = match &self.selection {
            Selection::Rollback(turns) | Selection::Redo(turns) => json!({ "turns": turns }),
            Selection::Scope(id) => json!({ "scope_id": id }),
            Selection::Snapshot(id) => json!({ "snapshot_id": id }),
        };
        if let Some(paths) = &self.paths {
            params["paths"] = json!(paths);
        }
        for (name, value) in [("force", self.force), ("dry_run", dry_run)] {
            if value {
                params[name] = json!(true);
            }
        }
        params
    }
}

impl Session {
    pub(super) fn new(id: String, is_small: bool) -> Session {
        Session { id, is_small, calls: Vec::new(), done: Vec::new(), undone: Vec::new() }
    }

    /// Records a change. Changes of one turn that follow each other are one step.
    pub(super) fn changed(&mut self, call: Call, turn: &str) {
        self.undone.clear();
        let number = self.calls.len();
        self.calls.push(call);
        match self.done.last_mut() {
            Some(step) if step.id == turn => step.calls.push(number),
            _ => self.done.push(Turn { id: turn.to_owned(), calls: vec![number] }),
        }
    }

    /// The turns that a rollback or a redo takes, in the order of the receipt.
    pub(super) fn turns(&self, selection: &Selection) -> Vec<&Turn> {
        match selection {
            Selection::Rollback(count) => self.done.iter().rev().take(*count).collect(),
            Selection::Redo(count) => self.undone.iter().rev().take(*count).map(|(turn, _)| turn).collect(),
            Selection::Scope(_) | Selection::Snapshot(_) => Vec::new(),
        }
    }

    /// Whether the receipt names the turns that a rollback or a redo takes.
    pub(super) fn names_turns(&self, selection: &Selection, receipt: &Value) -> bool {
        let ids: Vec<&str> = self.turns(selection).into_iter().map(|turn| turn.id.as_str()).collect();
        match selection {
            Selection::Rollback(_) => receipt["rolled_back_turns"] == json!(ids),
            Selection::Redo(_) => receipt["redone_turns"] == json!(ids),
            Selection::Scope(_) | Selection::Snapshot(_) => true,
        }
    }

    /// The calls that are taken back. Of a redo it is a superset: the rollbacks, all that was rolled since, and the
    /// calls of the turns.
    pub(super) fn taken_back(&self, selection: &Selection) -> Vec<&Call> {
        let chosen = |is_it: &dyn Fn(&Call) -> bool| self.calls.iter().filter(|call| is_it(call)).collect();
        let of_turns = || self.turns(selection).into_iter().flat_map(|turn| &turn.calls);
        match selection {
            Selection::Rollback(_) => of_turns().map(|number| &self.calls[*number]).collect(),
            Selection::Redo(count) => {
                let rolls = self.undone.iter().rev().take(*count).map(|(_, roll)| *roll);
                let Some(oldest) = rolls.min() else { return Vec::new() };
                let since = self.calls[oldest..].iter().filter(|call| call.what == What::Rolls);
                let of_undone = self.undone.iter().flat_map(|(turn, _)| &turn.calls);
                of_turns().chain(of_undone).map(|number| &self.calls[*number]).chain(since).collect()
            }
            Selection::Scope(id) => chosen(&|call| call.id == *id && call.what != What::Rolls),
            Selection::Snapshot(id) => chosen(&|call| call.snapshot == *id),
        }
    }

    /// Records a rollback or a redo.
    pub(super) fn rolled(&mut self, selection: &Selection, call: Call) {
        let number = self.calls.len();
        self.calls.push(call);
        match selection {
            Selection::Rollback(count) => {
                let taken = self.done.split_off(self.done.len().saturating_sub(*count));
                self.undone.extend(taken.into_iter().rev().map(|turn| (turn, number)));
            }
            Selection::Redo(count) => {
                let taken = self.undone.split_off(self.undone.len().saturating_sub(*count));
                self.done.extend(taken.into_iter().rev().map(|(turn, _)| turn));
            }
            Selection::Scope(_) | Selection::Snapshot(_) => {}
        }
    }
}

/// The paths at which a call changed something or replaced it by something equal.
pub(super) fn touched_by(before: &Tree, after: &Tree) -> Vec<String> {
    let is_it = |path: &&String| {
        let (was, is) = (before.get(*path), after.get(*path));
        !same(was, is) || was.map(|thing| thing.ino) != is.map(|thing| thing.ino)
    };
    let paths: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    paths.into_iter().filter(is_it).cloned().collect()
}
