//! Flips each byte of each file of a small home, and cuts, swaps and duplicates pages: each damage is detected, or
//! changes nothing that can be read.
//!
//! Each damage is checked in this process, by the functions that `aos verify` and the readers call. A sample of the
//! damages is also checked with the programs, including the start of a daemon.

mod damage;
mod home;
mod judge;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::time::is_over;
use crate::torture::{COMPLAINTS_MAX, NotUp, Setup, lock};
use damage::PAGE;
pub use damage::{Damage, last_commit};
use home::{Ended, Files, lay_out};
use judge::{Reading, Verdict, judge};

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// Damage every Nth byte; 1 damages each.
    pub every: usize,
    /// How many ways to flip a byte.
    pub patterns: usize,
    /// How many damages are also checked with the programs.
    pub starts: usize,
    pub workers: usize,
    pub until: Option<Instant>,
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Tally {
    pub planned: u64,
    pub damages: u64,
    flips: u64,
    seen: u64,
    /// Counts by the error message of the reader.
    seen_when_read: BTreeMap<String, u64>,
    harmless: u64,
    cut_short: u64,
    wrong: u64,
    starts: u64,
    refused: u64,
    spent: Duration,
    pub complaints: Vec<String>,
}

impl Tally {
    pub fn is_clean(&self) -> bool {
        self.complaints.is_empty()
    }

    pub fn add(&mut self, other: Tally) {
        self.planned += other.planned;
        self.damages += other.damages;
        self.flips += other.flips;
        self.seen += other.seen;
        for (why, times) in other.seen_when_read {
            *self.seen_when_read.entry(why).or_default() += times;
        }
        self.harmless += other.harmless;
        self.cut_short += other.cut_short;
        self.wrong += other.wrong;
        self.starts += other.starts;
        self.refused += other.refused;
        self.spent += other.spent;
        self.complaints.extend(other.complaints);
    }

    fn judged(&mut self, what: &Hit, verdict: Verdict, spent: Duration) {
        self.damages += 1;
        self.flips += u64::from(matches!(what.damage, Damage::Flip { .. }));
        self.spent += spent;
        match verdict {
            Verdict::Seen => self.seen += 1,
            Verdict::SeenWhenRead(why) => *self.seen_when_read.entry(why).or_default() += 1,
            Verdict::Harmless => self.harmless += 1,
            Verdict::CutShort => self.cut_short += 1,
            Verdict::Wrong(why) => {
                self.wrong += 1;
                self.complaints.push(format!("{}: {:?}: {why}", what.file.display(), what.damage));
            }
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            to,
            "{} of {} damages ({} flips): {} seen, {} seen when read, {} harmless, {} a log that ends earlier, {} reported as \
             right; {:.1} ms each; {} through the programs, {} of them not started",
            self.damages,
            self.planned,
            self.flips,
            self.seen,
            self.seen_when_read.values().sum::<u64>(),
            self.harmless,
            self.cut_short,
            self.wrong,
            self.spent.as_secs_f64() * 1000.0 / self.damages.max(1) as f64,
            self.starts,
            self.refused
        )?;
        // Only the most frequent: messages that name the damaged item can be many.
        let mut reasons: Vec<(&String, &u64)> = self.seen_when_read.iter().collect();
        reasons.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
        reasons.iter().take(5).try_for_each(|(why, times)| write!(to, "\n  when read, {times} times: {why}"))
    }
}

/// One damage to one file.
#[derive(Debug, Clone)]
struct Hit {
    file: PathBuf,
    damage: Damage,
}

/// Damages the home of a stopped daemon, then the home of a killed one. `progress` gets the counts of damages done and
/// planned.
pub fn torture(setup: &Setup, plan: &Plan, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Tally {
    let mut total = Tally::default();
    for (number, ended) in [Ended::Stopped, Ended::Killed].into_iter().enumerate() {
        let seed = plan.seed.wrapping_add(number as u64);
        let done = &total;
        let tally = one_home(setup, &Plan { seed, ..plan.clone() }, ended, &mut |damages, planned| {
            progress(done.damages + damages, done.planned + planned);
        });
        total.add(tally.unwrap_or_else(|why| Tally { complaints: vec![why], ..Tally::default() }));
    }
    total
}

fn one_home(
    setup: &Setup,
    plan: &Plan,
    ended: Ended,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Tally, String> {
    let parent = tempfile::Builder::new().prefix("aos-corrupt-").tempdir().map_err(|why| why.to_string())?;
    let root = setup.roots[0].join(format!("{ended:?}"));
    std::fs::create_dir_all(&root).map_err(|why| why.to_string())?;
    let origin = Setup { home: parent.path().join("origin"), roots: vec![root], ..setup.clone() };
    let files = home::write(&origin, ended)?;
    let case = Case::new(origin, files, plan)?;
    let (next, tally, progress) = (AtomicUsize::new(0), Mutex::new(Tally::default()), Mutex::new(progress));
    std::thread::scope(|scope| {
        for worker in 0..plan.workers {
            let (case, next, tally, progress) = (&case, &next, &tally, &progress);
            let at = parent.path().join(format!("worker{worker}"));
            scope.spawn(move || {
                if let Err(why) = case.work(&at, next, tally, progress) {
                    lock(tally).complaints.push(why);
                }
            });
        }
    });
    let mut tally = tally.into_inner().expect("no thread panics while it holds the lock");
    tally.planned = case.hits.len() as u64;
    case.whole_way(parent.path(), &mut tally)?;
    Ok(tally)
}

/// A home and all damages planned for it.
struct Case<'a> {
    plan: &'a Plan,
    origin: Setup,
    files: Files,
    whole: Reading,
    log: String,
    hits: Vec<Hit>,
}

const WAL: &str = "state/journal.db-wal";

impl Case<'_> {
    fn new<'a>(origin: Setup, files: Files, plan: &'a Plan) -> Result<Case<'a>, String> {
        let blob_refs: Vec<String> = files.keys().filter_map(|path| blob_ref(path)).collect();
        let whole = Reading::of(&origin.home, &blob_refs).map_err(|why| why.to_string())?;
        let verdict = judge(&origin.home, &whole, false);
        if verdict != Verdict::Harmless {
            return Err(format!("the home is not whole before anything was done to it: {verdict:?}"));
        }
        let (code, log, err) = origin.aos(&["log", "--json"]);
        if code != 0 {
            return Err(format!("aos log: exit {code}: {err}"));
        }
        let mut random = Random::new(plan.seed);
        let state = files.iter().filter(|(path, bytes)| path.starts_with("state") && !bytes.is_empty());
        let hits = state.flat_map(|(file, bytes)| {
            let all = Damage::all(bytes.len(), plan.every, plan.patterns, &mut random);
            all.into_iter().map(|damage| Hit { file: file.clone(), damage }).collect::<Vec<_>>()
        });
        let hits = hits.collect();
        Ok(Case { plan, origin, files, whole, log, hits })
    }

    /// Applies one damage after the other to a separate copy of the home.
    fn work(
        &self,
        copy: &Path,
        next: &AtomicUsize,
        tally: &Mutex<Tally>,
        progress: &Mutex<&mut (dyn FnMut(u64, u64) + Send)>,
    ) -> Result<(), String> {
        let told = |why: std::io::Error| why.to_string();
        lay_out(copy, &self.files).map_err(told)?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let is_late = is_over(self.plan.until);
            let Some(hit) = self.hits.get(number).filter(|_| !is_late) else { break };
            let (at, whole) = (copy.join(&hit.file), &self.files[&hit.file]);
            let Some(bytes) = hit.damage.of(whole) else { continue };
            std::fs::write(&at, bytes).map_err(told)?;
            let begun = Instant::now();
            let verdict = judge(copy, &self.whole, self.may_be_short(hit));
            std::fs::write(&at, whole).map_err(told)?;
            let mut tally = lock(tally);
            tally.judged(hit, verdict, begun.elapsed());
            if tally.complaints.len() > COMPLAINTS_MAX {
                break;
            }
            if number.is_multiple_of(64) {
                let done = tally.damages;
                drop(tally);
                lock(progress)(done, self.hits.len() as u64);
            }
        }
        self.unchanged(copy)
    }

    /// Reading and verifying write nothing, except that SQLite may rebuild the index of the log (`journal.db-shm`).
    fn unchanged(&self, copy: &Path) -> Result<(), String> {
        let now = home::files(copy).map_err(|why| why.to_string())?;
        let is_ours = |path: &Path| path.starts_with("state") && !path.ends_with("journal.db-shm");
        let paths = now.keys().chain(self.files.keys()).filter(|path| is_ours(path));
        let changed: Vec<&PathBuf> = paths.filter(|path| now.get(*path) != self.files.get(*path)).collect();
        if changed.is_empty() { Ok(()) } else { Err(format!("verify or a reader changed {changed:?}")) }
    }

    /// Whether the damage may shorten the write-ahead log. A log that is cut, or whose last commit is damaged, ends
    /// there.
    fn may_be_short(&self, hit: &Hit) -> bool {
        if hit.file != Path::new(WAL) {
            return false;
        }
        let begin = last_commit(&self.files[&hit.file]).0;
        match hit.damage {
            Damage::Cut { .. } => true,
            Damage::Flip { at, .. } => at >= begin,
            // A frame is 24 bytes longer than a page, so an overwritten page may reach into the last commit.
            Damage::Zeroed { page } | Damage::Doubled { to: page, .. } => (page + 1) * PAGE > begin,
            Damage::Swapped { one, other } => (one.max(other) + 1) * PAGE > begin,
            Damage::Longer => false,
        }
    }

    /// Repeats some of the damages with `aos verify`, the start of a daemon and `aos log`.
    fn whole_way(&self, parent: &Path, tally: &mut Tally) -> Result<(), String> {
        let mut random = Random::new(self.plan.seed ^ 1);
        for number in 0..self.plan.starts {
            if is_over(self.plan.until) {
                break;
            }
            let hit = &self.hits[random.below(self.hits.len())];
            let Some(bytes) = hit.damage.of(&self.files[&hit.file]) else { continue };
            let setup = Setup { home: parent.join(format!("start{number}")), ..self.origin.clone() };
            lay_out(&setup.home, &self.files).map_err(|why| why.to_string())?;
            std::fs::write(setup.home.join(&hit.file), bytes).map_err(|why| why.to_string())?;
            if let Err(why) = self.start(&setup, hit, tally) {
                tally.complaints.push(format!("{}: {:?}: {why}", hit.file.display(), hit.damage));
            }
            let _ = std::fs::remove_dir_all(&setup.home);
        }
        Ok(())
    }

    fn start(&self, setup: &Setup, hit: &Hit, tally: &mut Tally) -> Result<(), String> {
        let (verify, said, err) = setup.aos(&["verify"]);
        no_crash("aos verify", verify, &(said + &err))?;
        tally.starts += 1;
        let daemon = match setup.start(&[], &[]) {
            Ok(daemon) => Some(daemon),
            Err(NotUp::Killed) => return Err("the daemon crashed".into()),
            Err(NotUp::Refused(why)) => {
                tally.refused += 1;
                no_crash("aosd", 1, &why)?;
                if why.trim().is_empty() {
                    return Err("the daemon refuses without a word".into());
                }
                None
            }
        };
        let (code, log, err) = setup.aos(&["log", "--json"]);
        no_crash("aos log", code, &err)?;
        if let Some(daemon) = daemon {
            daemon.kill();
        }
        let is_same = log == self.log || (self.may_be_short(hit) && is_cut_short(&log, &self.log));
        if verify == 0 && code == 0 && !is_same {
            return Err("verify says that it is whole, and yet `aos log` tells something else".into());
        }
        Ok(())
    }
}

/// Whether `log` is a prefix of `whole`. A start may add entries that close intents which the short log leaves open.
fn is_cut_short(log: &str, whole: &str) -> bool {
    let kept: Vec<&str> = log.lines().filter(|line| !line.contains("interrupted_rolled_back")).collect();
    whole.lines().take(kept.len()).eq(kept.iter().copied())
}

fn no_crash(who: &str, code: i32, said: &str) -> Result<(), String> {
    if code < 0 || said.contains("panicked") {
        return Err(format!("{who} crashed: exit {code}: {said}"));
    }
    Ok(())
}

/// The name of a blob, from its path: `state/blobs/ab/cdef…`.
fn blob_ref(path: &Path) -> Option<String> {
    let below = path.strip_prefix("state/blobs").ok()?;
    let digits: String = below.iter().filter_map(|part| part.to_str()).collect();
    (digits.len() == 64).then(|| format!("sha256:{digits}"))
}
