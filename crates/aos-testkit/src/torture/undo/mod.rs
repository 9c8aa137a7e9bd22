//! Undoes and redoes random histories of file mutations and shell commands, and compares the tree with full copies.
//!
//! The copies are made without the daemon, so no check depends on what a receipt says about files. The daemon is killed
//! during every tenth step. The journal says whether that step was done, and the tree must agree.

mod acts;
mod calls;
mod compare;
mod plant;
mod walk;

use std::time::Instant;

use crate::random::Random;
use crate::time::is_over;
use crate::torture::Setup;
use walk::history;

/// The number of histories, and their length.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub histories: u64,
    pub steps: usize,
    /// Run only the history with this seed, which a complaint names.
    pub only: Option<u64>,
    pub until: Option<Instant>,
}

/// What was counted.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    pub histories: u64,
    pub mutations: u64,
    pub refused: u64,
    /// The mutations that were shell commands.
    pub commands: u64,
    pub rollbacks: u64,
    pub redos: u64,
    pub restores: u64,
    pub conflicts: u64,
    pub kills: u64,
    /// Trees that were not restored exactly, or changed where they must not.
    pub differences: u64,
    /// Any other failure.
    pub faults: u64,
    pub complaints: Vec<String>,
}

impl Tally {
    pub fn failed(why: String) -> Tally {
        Tally { faults: 1, complaints: vec![why], ..Tally::default() }
    }

    pub fn is_clean(&self) -> bool {
        self.differences + self.faults == 0
    }

    pub fn add(&mut self, other: Tally) {
        self.histories += other.histories;
        self.mutations += other.mutations;
        self.refused += other.refused;
        self.commands += other.commands;
        self.rollbacks += other.rollbacks;
        self.redos += other.redos;
        self.restores += other.restores;
        self.conflicts += other.conflicts;
        self.kills += other.kills;
        self.differences += other.differences;
        self.faults += other.faults;
        self.complaints.extend(other.complaints);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} histories: {} mutations ({} of them commands, {} refused), {} rollbacks, {} redos, {} restores, {} conflicts, {} kills; {} differences, {} other faults",
            self.histories,
            self.mutations,
            self.commands,
            self.refused,
            self.rollbacks,
            self.redos,
            self.restores,
            self.conflicts,
            self.kills,
            self.differences,
            self.faults
        )
    }
}

/// Runs the histories of one home, each in a separate session and a separate root below the setup's first root.
pub fn torture(setup: &Setup, plan: &Plan, progress: &mut dyn FnMut(&Tally)) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random::new(plan.seed);
    let mut daemon = match setup.start_daemon(&[]) {
        Ok(daemon) => Some(daemon),
        Err(why) => return Tally::failed(why),
    };
    while tally.histories < plan.histories && !is_over(plan.until) {
        let seed = plan.only.unwrap_or_else(|| random.number());
        let root = setup.roots[tally.histories as usize % setup.roots.len()].join(format!("h{seed:x}"));
        tally.histories += 1;
        if let Err(why) = history(setup, &root, seed, plan.steps, &mut daemon, &mut tally) {
            let wrong = if why.differs { &mut tally.differences } else { &mut tally.faults };
            *wrong += 1;
            tally.complaints.push(format!("history {seed}: {}", why.text));
            break;
        }
        let _ = std::fs::remove_dir_all(&root);
        progress(&tally);
    }
    if tally.is_clean() {
        let wrong = [setup.verify(), setup.replay()].into_iter().filter_map(Result::err);
        wrong.for_each(|why| tally.add(Tally::failed(why)));
    }
    tally
}

/// What went wrong: a tree that differs, or something else.
#[derive(Debug)]
struct Wrong {
    differs: bool,
    text: String,
}

impl From<String> for Wrong {
    fn from(text: String) -> Wrong {
        Wrong { differs: false, text }
    }
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(Wrong { differs: true, text: why() }) }
}
