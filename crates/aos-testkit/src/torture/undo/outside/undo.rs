//! One undo: the dry run and the run, with what must hold after each.

use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use super::book::{Ask, Selection, What, touched_by};
use super::{Answer, Outside};
use crate::copy::{Tree, copy_of, differing, explain, lists_are_the_difference, touched_at_all};
use crate::torture::undo::compare::touched;
use crate::torture::undo::{Wrong, ensure};

/// An undo that was done.
pub(super) struct Done {
    pub(super) before: Rc<Tree>,
    pub(super) after: Rc<Tree>,
    /// The snapshot of what it displaced.
    pub(super) snapshot: String,
    /// The number of turns that were rolled back or redone.
    pub(super) turns: usize,
}

impl Outside<'_> {
    /// `None`: it was refused, and nothing changed.
    pub(super) fn undo(&mut self, ask: &Ask, kill: Option<Duration>) -> Result<Option<Done>, Wrong> {
        let dry = match kill {
            None => Some(self.dry_run(ask)?),
            Some(_) => None,
        };
        let answer = self.send(ask.session, ask.kind(), ask.params(false), (None, None), kill)?;
        self.count(ask, &answer);
        let found = Rc::new(copy_of(&self.root));
        if !answer.is("ok") {
            self.refused(ask, &answer, &found)?;
            self.arrive(found);
            return Ok(None);
        }
        if let Some(dry) = dry {
            same_answer(&dry, &answer.receipt)?;
        }
        lists_are_the_difference(&answer.receipt, &self.now, &found)
            .map_err(|text| Wrong { differs: true, text })?;
        self.check_undone(ask, &answer.receipt, &found)?;
        let rewritten = touched(&self.now, &found);
        ensure(rewritten.is_empty(), || format!("the same as before, but written again: {rewritten:?}"))?;
        Ok(Some(self.record(ask, &answer, found)))
    }

    fn dry_run(&mut self, ask: &Ask) -> Result<Value, Wrong> {
        let answer = self.send(ask.session, ask.kind(), ask.params(true), (None, None), None)?;
        self.unchanged("a dry run", &copy_of(&self.root))?;
        Ok(answer.receipt)
    }

    fn unchanged(&self, what: &str, found: &Tree) -> Result<(), Wrong> {
        let touched = touched_at_all(&self.now, found);
        ensure(touched.is_empty(), || {
            format!("{what} changed something: {touched:?} {}", explain(&self.now, found))
        })
    }

    fn count(&mut self, ask: &Ask, answer: &Answer) {
        match ask.selection {
            Selection::Rollback(_) => self.tally.rollbacks += 1,
            Selection::Redo(_) => self.tally.redos += 1,
            Selection::Scope(_) | Selection::Snapshot(_) => self.tally.restores += 1,
        }
        self.tally.conflicts += u64::from(answer.is("conflict"));
        self.tally.forced += u64::from(ask.force && answer.is("ok"));
    }

    fn refused(&self, ask: &Ask, answer: &Answer, found: &Tree) -> Result<(), Wrong> {
        if answer.killed {
            return ensure(differing(&self.now, found).is_empty(), || {
                format!("it was cut short and left something: {}", explain(&self.now, found))
            });
        }
        self.unchanged("a refusal", found)?;
        ensure(self.may_be_refused(ask, &answer.receipt), || {
            format!("why is this refused? {}", answer.receipt)
        })
    }

    fn record(&mut self, ask: &Ask, answer: &Answer, found: Rc<Tree>) -> Done {
        let before = self.now.clone();
        let turns = self.sessions[ask.session].turns(&ask.selection).len();
        // Names of one file that change places are a change, too: only the time of their folder tells.
        let is_turn = ask.is_restore() && !touched_at_all(&before, &found).is_empty();
        if is_turn {
            let call = self.call(ask.session, answer, What::Restores, &found);
            self.sessions[ask.session].changed(call, &answer.text("turn_id"));
        } else if !ask.is_restore() {
            let call = self.call(ask.session, answer, What::Rolls, &found);
            self.sessions[ask.session].rolled(&ask.selection, call);
        }
        self.arrive(found.clone());
        Done { before, after: found, snapshot: answer.text("redo_snapshot_id"), turns }
    }

    /// Restores again what is restored: nothing changes. An object that moves can only be recognized without `force`,
    /// because a forced undo may have put something else into its place.
    pub(super) fn again(&mut self, ask: &Ask, done: &Done) -> Result<(), Wrong> {
        let session = &self.sessions[ask.session];
        let moves = |what: What| !matches!(what, What::Ordinary | What::Explicit);
        if ask.force && session.taken_back(&ask.selection).iter().any(|call| moves(call.what)) {
            return Ok(());
        }
        let is_small = session.is_small;
        let second = self.undo(ask, None)?;
        match second {
            Some(second) => {
                // Names of one file may change places again.
                let touched = touched_by(&done.after, &second.after);
                ensure(touched.is_empty(), || format!("the second time it changed {touched:?}"))
            }
            None => ensure(is_small, || "it is restored, and cannot be restored again".to_owned()),
        }
    }
}

fn same_answer(dry: &Value, real: &Value) -> Result<(), Wrong> {
    for field in [
        "status",
        "restored_paths",
        "restored_paths_count",
        "deleted_paths",
        "deleted_paths_count",
        "rolled_back_turns",
        "redone_turns",
    ] {
        ensure(dry[field] == real[field], || {
            format!("{field} of the dry run: {dry}, and of the run: {real}")
        })?;
    }
    Ok(())
}
