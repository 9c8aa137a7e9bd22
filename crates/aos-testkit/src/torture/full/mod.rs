//! Fills the disks of the home and of the roots under load, kills the daemon there, and checks that it serves what it can
//! while a disk is full, and everything again when there is room.
//!
//! Each worker has mounts of its own. A home is on a small file system and serves a few rounds.

mod agent;
mod checks;
mod disk;
mod filling;
mod round;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use crate::programs::Programs;
use crate::random::Random;
use crate::time::is_over;
use crate::torture::{COMPLAINTS_MAX, load, lock};
pub use filling::Filling;
use round::Scene;

/// How disks are filled.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub rounds: u64,
    /// Homes that are tortured at the same time.
    pub at_once: usize,
    /// Whether some disks are ext4 on a loop device; otherwise all are in memory.
    pub ext4: bool,
    /// Copy the first home with a fault to a folder that is kept.
    pub keep: bool,
    pub until: Option<Instant>,
}

/// Rounds per home. A new home follows, because its journal grows and its disk is small.
const ROUNDS_PER_HOME: u64 = 5;

/// What was counted.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    pub rounds: u64,
    pub fillings: BTreeMap<Filling, u64>,
    /// Requests that were refused with `no_space`.
    pub refused: u64,
    /// Commands that were ended because the disk was full.
    pub ended: u64,
    /// Starts on a full disk.
    pub starts: u64,
    pub failed_starts: u64,
    /// Kills, receipts and what became of them.
    pub load: load::Tally,
}

impl Tally {
    pub fn is_clean(&self) -> bool {
        self.failed_starts == 0 && self.load.is_clean() && self.load.pulse.is_well()
    }

    pub fn complaints(&self) -> &[String] {
        &self.load.complaints
    }

    fn add(&mut self, other: Tally) {
        self.rounds += other.rounds;
        for (filling, count) in other.fillings {
            *self.fillings.entry(filling).or_default() += count;
        }
        self.refused += other.refused;
        self.ended += other.ended;
        self.starts += other.starts;
        self.failed_starts += other.failed_starts;
        self.load.add(other.load);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fillings: Vec<String> =
            self.fillings.iter().map(|(filling, count)| format!("{filling} {count}")).collect();
        write!(
            f,
            "{} rounds ({}), {} refused with no_space, {} commands ended, {} starts on a full disk, {} failed starts; {}",
            self.rounds,
            fillings.join(", "),
            self.refused,
            self.ended,
            self.starts,
            self.failed_starts,
            self.load
        )
    }
}

/// The homes that are still to be tortured, and what was counted so far.
struct Shared {
    homes: Vec<HomePlan>,
    total: Tally,
}

/// The part of a run that one home serves.
struct HomePlan {
    seed: u64,
    /// The number of its first round in the run.
    first: u64,
    rounds: u64,
}

/// Fills disks until the rounds are done. `progress` gets the counts after each home.
pub fn torture(programs: &Programs, plan: &Plan, progress: &(dyn Fn(&Tally) + Sync)) -> Tally {
    let mut random = Random::new(plan.seed);
    let starts = (0..plan.rounds).step_by(ROUNDS_PER_HOME as usize);
    let home =
        |first| HomePlan { seed: random.number(), first, rounds: ROUNDS_PER_HOME.min(plan.rounds - first) };
    let mut homes: Vec<HomePlan> = starts.map(home).collect();
    homes.reverse();
    let shared = Mutex::new(Shared { homes, total: Tally::default() });
    std::thread::scope(|scope| {
        for _ in 0..plan.at_once {
            scope.spawn(|| work(programs, plan, &shared, progress));
        }
    });
    shared.into_inner().map(|shared| shared.total).unwrap_or_default()
}

fn work(programs: &Programs, plan: &Plan, shared: &Mutex<Shared>, progress: &(dyn Fn(&Tally) + Sync)) {
    if let Err(why) = disk::own_mounts() {
        lock(shared).total.load.fault(why);
        return;
    }
    loop {
        let next = lock(shared).homes.pop();
        let Some(home) = next.filter(|_| !is_over(plan.until)) else { return };
        let tally = one_home(programs, plan, &home);
        let mut shared = lock(shared);
        shared.total.add(tally);
        progress(&shared.total);
        if shared.total.complaints().len() > COMPLAINTS_MAX {
            shared.homes.clear();
        }
    }
}

fn one_home(programs: &Programs, plan: &Plan, home: &HomePlan) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random::new(home.seed);
    // A disk on which too little is free for another round is replaced by a new one.
    while tally.rounds < home.rounds && tally.is_clean() {
        let mut scene = match Scene::new(programs, plan, random.number()) {
            Ok(scene) => scene,
            Err(why) => {
                tally.load.fault(why);
                break;
            }
        };
        scene.torture(home.first + tally.rounds, home.rounds - tally.rounds);
        tally.add(scene.end(plan.keep));
    }
    tally
}
