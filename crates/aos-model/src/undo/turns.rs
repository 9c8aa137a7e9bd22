//! The undo and redo stacks of a session, and which changes a rollback or a redo takes back. Folded from the journal.

/// Consecutive changes of one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnStep {
    pub turn: String,
    pub seqs: Vec<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turns {
    pub done: Vec<TurnStep>,
    /// The last is redone first. With each, the entry that rolled it back.
    pub undone: Vec<(TurnStep, u64)>,
    /// The rollbacks and redos since the oldest of them.
    rolls: Vec<u64>,
}

impl Turns {
    pub fn changed(&mut self, seq: u64, turn: &str) {
        self.undone.clear();
        self.rolls.clear();
        match self.done.last_mut() {
            Some(step) if step.turn == turn => step.seqs.push(seq),
            _ => self.done.push(TurnStep { turn: turn.to_owned(), seqs: vec![seq] }),
        }
    }

    pub fn rolled_back(&mut self, seq: u64, turns: usize) {
        for _ in 0..turns {
            let step = self.done.pop().expect("BUG: rolled back what was not done");
            self.undone.push((step, seq));
        }
        self.rolls.push(seq);
    }

    pub fn redone(&mut self, seq: u64, turns: usize) {
        let mut lowest = u64::MAX;
        for _ in 0..turns {
            let (step, by) = self.undone.pop().expect("BUG: redone what was not rolled back");
            self.done.push(step);
            lowest = by;
        }
        if self.undone.last().is_some_and(|(_, by)| *by == lowest) {
            self.rolls.push(seq);
        } else {
            // Whole rollbacks and what redid them add up to nothing.
            self.rolls.retain(|roll| *roll < lowest);
        }
    }

    /// A rollback takes back each change by itself: between any two of them somebody else may have written.
    /// `None`: there are not as many turns.
    pub fn to_roll_back(&self, turns: usize) -> Option<Vec<Vec<u64>>> {
        let steps = &self.done[self.done.len().checked_sub(turns)?..];
        Some(steps.iter().flat_map(|step| &step.seqs).map(|seq| vec![*seq]).collect())
    }

    /// A redo takes back the rollbacks: for each one a group with all that was rolled since. If only a part of its
    /// steps is redone, the others are taken back again. `None`: there are not as many turns.
    pub fn to_redo(&self, turns: usize) -> Option<Vec<Vec<u64>>> {
        let mut groups = Vec::new();
        let mut until = u64::MAX;
        let mut left = turns;
        let mut undone = self.undone.as_slice();
        while left > 0 {
            let (_, by) = undone.last()?;
            let first = undone.iter().position(|(_, other)| other == by).unwrap_or_default();
            let (older, of_roll) = undone.split_at(first);
            let taken = left.min(of_roll.len());
            let stay = &of_roll[..of_roll.len() - taken];
            let mut group: Vec<u64> =
                stay.iter().rev().flat_map(|(step, _)| step.seqs.iter().copied()).collect();
            group.extend(self.rolls.iter().filter(|seq| (*by..until).contains(seq)));
            groups.insert(0, group);
            until = *by;
            left -= taken;
            undone = older;
        }
        Some(groups)
    }
}
