//! Undoes and redoes random histories of file mutations and shell commands, and compares the tree with full copies.
//!
//! The copies are made without the daemon, so no check depends on what a receipt says about files. The daemon is killed
//! during every tenth step. The journal says whether that step was done, and the tree must agree.
//!
//! In [`Plan::outside`] a person changes the same folder between the steps, so what an undo must do depends on who wrote
//! what. `outside` checks that nothing of the person is lost.

mod acts;
mod calls;
mod compare;
mod outside;
mod plant;
mod walk;

use std::path::Path;
use std::time::Instant;

use crate::random::Random;
use crate::time::is_over;
use crate::torture::{Daemon, Setup};

/// The number of histories, and their length.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub histories: u64,
    pub steps: usize,
    /// Run only the history with this seed, which a complaint names.
    pub only: Option<u64>,
    /// With a person who changes the folder too, and with forced undos.
    pub outside: bool,
    /// Look for fewer steps of a failed history that fail too.
    pub shrink: bool,
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
    /// What a person did, beside the daemon.
    pub by_person: u64,
    /// Undos that were done with `force`.
    pub forced: u64,
    /// Undos whose displaced content came back.
    pub came_back: u64,
    /// Sessions that were closed before the end of their history.
    pub closed: u64,
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
        self.by_person += other.by_person;
        self.forced += other.forced;
        self.came_back += other.came_back;
        self.closed += other.closed;
        self.differences += other.differences;
        self.faults += other.faults;
        self.complaints.extend(other.complaints);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} histories: {} mutations ({} of them commands, {} refused), {} rollbacks, {} redos, {} restores, {} conflicts, {} kills; ",
            self.histories,
            self.mutations,
            self.commands,
            self.refused,
            self.rollbacks,
            self.redos,
            self.restores,
            self.conflicts,
            self.kills,
        )?;
        if self.by_person > 0 {
            let Tally { by_person, forced, came_back, closed, .. } = self;
            write!(
                f,
                "{by_person} changes by a person, {forced} undos forced, {came_back} reversed, {closed} sessions closed; "
            )?;
        }
        write!(f, "{} differences, {} other faults", self.differences, self.faults)
    }
}

/// Runs the histories of one home, each in a separate folder below one of the setup's roots.
pub fn torture(setup: &Setup, plan: &Plan, progress: &mut dyn FnMut(&Tally)) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random::new(plan.seed);
    let mut daemon = match setup.start_daemon(&[]) {
        Ok(daemon) => Some(daemon),
        Err(why) => return Tally::failed(why),
    };
    while tally.histories < plan.histories && !is_over(plan.until) {
        let seed = plan.only.unwrap_or_else(|| random.number());
        // The same root when the history is repeated: file systems differ.
        let root = setup.roots[(seed % setup.roots.len() as u64) as usize].join(format!("h{seed:x}"));
        tally.histories += 1;
        let steps: Vec<usize> = (0..plan.steps).collect();
        if let Err(mut why) = one(setup, plan, &root, seed, &steps, &mut daemon, &mut tally) {
            if plan.shrink && plan.outside {
                why = shrink(setup, plan, &root, seed, steps, &mut daemon, why);
            }
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

fn one(
    setup: &Setup,
    plan: &Plan,
    root: &Path,
    seed: u64,
    steps: &[usize],
    daemon: &mut Option<Daemon>,
    tally: &mut Tally,
) -> Result<(), Wrong> {
    match plan.outside {
        true => outside::history(setup, root, seed, steps, daemon, tally),
        false => walk::history(setup, root, seed, steps.len(), daemon, tally),
    }
}

/// Leaves out one step after the other, as long as the history fails in the same way.
fn shrink(
    setup: &Setup,
    plan: &Plan,
    root: &Path,
    seed: u64,
    mut steps: Vec<usize>,
    daemon: &mut Option<Daemon>,
    mut why: Wrong,
) -> Wrong {
    let manner = |wrong: &Wrong| {
        let words = wrong.text.lines().next().unwrap_or_default().split_whitespace();
        let words = words.filter(|word| word.bytes().all(|b| b.is_ascii_lowercase()));
        words.take(5).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut length = usize::MAX;
    while steps.len() < length {
        length = steps.len();
        for at in (0..steps.len()).rev() {
            if is_over(plan.until) {
                return why;
            }
            let fewer = [&steps[..at], &steps[at + 1..]].concat();
            let _ = std::fs::remove_dir_all(root);
            if daemon.is_none() {
                *daemon = setup.start_daemon(&[]).ok();
            }
            let again = one(setup, plan, root, seed, &fewer, daemon, &mut Tally::default());
            if let Err(shorter) = again
                && manner(&shorter) == manner(&why)
            {
                (steps, why) = (fewer, shorter);
            }
        }
    }
    why
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
