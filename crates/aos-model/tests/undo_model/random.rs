//! Random histories from a seed, and a shorter one for each that fails.

use std::collections::BTreeMap;

use super::host::{Ask, Host, Selection};
use super::world::{Obj, is_dir, parent, print};
use aos_model::records::Kind;

pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1);
        rng.next();
        rng.next();
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).expect("small")
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) sessions: usize,
    pub(crate) person: bool,
    explicit: bool,
    evict: bool,
    /// No content occurs twice.
    pub(crate) unique: bool,
    pub(crate) classic: bool,
}

impl Setup {
    fn of(seed: u64) -> Setup {
        let mut rng = Rng::new(seed ^ 0xab_cdef);
        Setup {
            sessions: 1 + usize::from(rng.chance(35)),
            person: rng.chance(80),
            explicit: rng.chance(30),
            evict: rng.chance(15),
            unique: rng.chance(70),
            classic: std::env::var_os("AOS_UNDO_CLASSIC").is_some(),
        }
    }
}

pub(crate) const POOL: &[&str] =
    &["/a", "/b", "/c", "/d", "/d/a", "/d/b", "/d/e", "/d/e/a", "/d/e/b", "/e", "/e/a", "/e/d", "/e/d/a"];

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) undone: u64,
    pub(crate) forced: u64,
    pub(crate) conflicts: u64,
    /// Conflicts where the oracle, which knows no moves, has none.
    pub(crate) cautious: u64,
    pub(crate) nothing: u64,
    pub(crate) by_person: u64,
    /// Undos that were compared with the oracle exactly.
    pub(crate) exact: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.undone += other.undone;
        self.forced += other.forced;
        self.conflicts += other.conflicts;
        self.cautious += other.cautious;
        self.nothing += other.nothing;
        self.by_person += other.by_person;
        self.exact += other.exact;
    }
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) host: Host,
    pub(crate) setup: Setup,
    pub(crate) counts: Counts,
    pub(crate) log: Vec<String>,
    pub(crate) turn: Vec<u64>,
    pub(crate) call: u64,
}

pub(crate) type Check = Result<(), String>;

impl Run {
    pub(crate) fn new(host: Host, setup: Setup, number: u64) -> Run {
        let turn = vec![number; setup.sessions];
        Run { host, setup, counts: Counts::default(), log: Vec::new(), turn, call: number }
    }

    pub(crate) fn path(&self, rng: &mut Rng) -> String {
        let all: Vec<&String> = self.host.files.keys().collect();
        if !all.is_empty() && rng.chance(55) {
            (*rng.pick(&all)).clone()
        } else {
            (*rng.pick(POOL)).to_owned()
        }
    }

    pub(crate) fn content(&mut self, rng: &mut Rng) -> u64 {
        // Sometimes a content that was there before, by chance.
        if !self.setup.unique && rng.chance(20) { rng.below(3) as u64 } else { 100 + self.host.tick() }
    }

    fn step(&mut self, rng: &mut Rng) -> Check {
        let person = if self.setup.person { 33 } else { 0 };
        let roll = rng.below(100);
        if roll < person {
            self.counts.by_person += 1;
            self.person(rng);
        } else if roll < person + (100 - person) * 55 / 100 {
            self.agent(rng);
        } else if self.setup.explicit && rng.chance(8) {
            let session = rng.below(self.setup.sessions);
            let paths = vec![self.path(rng)];
            let scope = format!("call_{}", self.call);
            self.log.push(format!("S{session} snapshot {scope} {paths:?}"));
            self.host.snapshot(session, &scope, &paths);
        } else if self.setup.evict && rng.chance(8) {
            let ids = self.host.journal.iter().map(|one| &one.change.snapshot_id);
            let first = ids.into_iter().find(|id| !self.host.dropped.contains(*id)).cloned();
            if let Some(id) = first {
                self.log.push(format!("evict {id}"));
                self.host.evict(&id);
            }
        } else {
            let ask = self.ask(rng);
            return self.undo(&ask, rng);
        }
        Ok(())
    }

    fn ask(&mut self, rng: &mut Rng) -> Ask {
        let session = rng.below(self.setup.sessions);
        let turns = &self.host.sessions[session];
        let own: Vec<_> = self.host.journal.iter().filter(|one| one.session == session).collect();
        let selection = match rng.below(10) {
            0..=3 => Selection::Rollback(1 + rng.below(turns.done.len().clamp(1, 4))),
            4..=6 => Selection::Redo(1 + rng.below(turns.undone.len().clamp(1, 4))),
            7 | 8 if !own.is_empty() => Selection::Scope(rng.pick(&own).call.clone()),
            9 if !own.is_empty() => Selection::Snapshot(rng.pick(&own).change.snapshot_id.clone()),
            _ => Selection::Rollback(1),
        };
        let is_restore = matches!(selection, Selection::Scope(_) | Selection::Snapshot(_));
        let paths = (is_restore && rng.chance(35)).then(|| vec![self.path(rng)]);
        self.turn[session] += u64::from(is_restore);
        let turn = format!("t{}", self.turn[session]);
        Ask { session, selection, paths, force: rng.chance(35), turn }
    }
}

/// A failure with the log of its history.
type Failure = (String, Vec<String>);

/// Runs the chosen steps of a history.
fn history(seed: u64, steps: &[usize]) -> Result<Counts, Failure> {
    let setup = Setup::of(seed);
    let mut run = Run::new(Host::new(setup.sessions), setup, 0);
    let mut rng = Rng::new(seed);
    for (number, path) in POOL.iter().enumerate() {
        if is_dir(&run.host.files, parent(path)) && rng.chance(45) {
            let is_folder = matches!(*path, "/d" | "/e" | "/d/e" | "/e/d");
            let hash = if setup.unique { 50 + number as u64 } else { number as u64 % 3 };
            let stamp = run.host.tick();
            let obj = Obj::new(if is_folder { Kind::Dir } else { Kind::File }, hash, stamp);
            run.host.files.insert((*path).to_owned(), obj);
        }
    }
    run.log.push(format!("seed {seed} {setup:?}: {}", print(&run.host.files)));
    for number in steps {
        let mut rng = Rng::new(seed.wrapping_mul(1000) + *number as u64);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step(&mut rng)));
        let outcome = outcome.unwrap_or_else(|why| {
            let text = why.downcast_ref::<String>().cloned();
            Err(text.or(why.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
        });
        outcome.map_err(|why| (why, std::mem::take(&mut run.log)))?;
    }
    Ok(run.counts)
}

/// Finds a short failing history of a seed.
fn shrink(seed: u64, mut steps: Vec<usize>, mut failure: Failure) -> Failure {
    loop {
        let length = steps.len();
        for at in (0..steps.len()).rev() {
            let mut fewer = steps.clone();
            fewer.remove(at);
            if let Err(shorter) = history(seed, &fewer) {
                (steps, failure) = (fewer, shorter);
            }
        }
        if steps.len() == length {
            return failure;
        }
    }
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[test]
fn random_histories() {
    let count = number_from("AOS_UNDO_HISTORIES").unwrap_or(3000);
    let first = number_from("AOS_UNDO_SEED").unwrap_or(1);
    let length = number_from("AOS_UNDO_STEPS");
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut total = Counts::default();
    let (mut failed, mut shown, mut reasons) = (0, Vec::new(), BTreeMap::new());
    for seed in first..first + count {
        let steps: Vec<usize> =
            (0..usize::try_from(length.unwrap_or(14 + seed % 11)).expect("small")).collect();
        match history(seed, &steps) {
            Ok(counts) => total.add(counts),
            Err(failure) => {
                failed += 1;
                let words = failure.0.split_whitespace().filter(|word| !word.contains(['/', '_', '"', '[']));
                let times = reasons.entry(words.take(5).collect::<Vec<_>>().join(" ")).or_insert(0);
                *times += 1;
                if *times < 3 {
                    let (why, log) = shrink(seed, steps, failure);
                    shown.push(format!("{}\n  FAILED: {why}\n", log.join("\n")));
                }
            }
        }
    }
    std::panic::set_hook(hook);
    println!("{count} histories from seed {first}: {total:?}, {failed} failed");
    assert!(failed == 0, "{}\n{failed} of {count} failed: {reasons:#?}", shown.join("\n"));
}
