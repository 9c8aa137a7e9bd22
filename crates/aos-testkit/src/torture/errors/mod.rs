//! Injects EIO and ENOSPC at each step of five-file patches and restores: each is applied whole or not at all, and a
//! later start of the daemon neither undoes nor completes it.
//!
//! strace injects most errors. It counts calls per thread, and each connection has its own thread: the Nth call of an
//! attempt fails, and repeated attempts on the same connection soon succeed. Other errors are real: a small file system
//! is full except for a few pages.

mod full;
mod scene;

use std::path::Path;
use std::time::Instant;

use crate::random::Random;
use crate::time::is_over;
use crate::torture::pulse::{self, About, Pulse};
use crate::torture::{COMPLAINTS_MAX, Setup};
use crate::tracer::Tracer;
pub use full::SmallDisk;
use scene::{End, Scene};

/// How a home is tortured.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// Stop after this many errors.
    pub errors: u64,
    pub power: bool,
    /// Pre-images are copied, not moved, where a file has a second name.
    pub linked: bool,
    /// Inject only at every Nth step of each call, starting at a random one.
    pub stride: usize,
    pub until: Option<Instant>,
}

/// What was counted.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Calls that failed during a patch or a restore, or attempts for which the disk had no room.
    pub errors: u64,
    refused: u64,
    /// Attempts that met an error and succeeded despite it.
    done: u64,
    /// Attempts during which the daemon closed the connection: it exits when it cannot write its journal.
    ended: u64,
    pub mixed: u64,
    faults: u64,
    pub pulse: Pulse,
    pub complaints: Vec<String>,
}

impl Tally {
    pub fn is_clean(&self) -> bool {
        self.mixed + self.faults == 0
    }

    pub fn fault(&mut self, why: String) {
        self.faults += 1;
        self.complaints.push(why);
    }

    pub fn add(&mut self, other: Tally) {
        self.errors += other.errors;
        self.refused += other.refused;
        self.done += other.done;
        self.ended += other.ended;
        self.mixed += other.mixed;
        self.faults += other.faults;
        self.pulse.add(&other.pulse);
        self.complaints.extend(other.complaints);
    }

    fn met(&mut self, errors: u64, end: End) {
        self.errors += errors;
        match end {
            End::Refused => self.refused += 1,
            End::Done => self.done += 1,
            End::Ended => self.ended += 1,
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} errors in five-file patches and restores: {} refused, {} succeeded despite the error, {} ended the daemon; {} mixed, {} other faults; {}",
            self.errors, self.refused, self.done, self.ended, self.mixed, self.faults, self.pulse
        )
    }
}

/// The system calls of a patch, of its pre-images and of the journal. Calls that only answer the client are left out,
/// and so are locks (`fcntl`), which do not fail because of a disk: if an unlock fails, SQLite waits for its whole busy
/// timeout.
const CALLS: &[&str] = &[
    "renameat2",
    "openat",
    "openat2",
    "write",
    "pwrite64",
    "pread64",
    "unlinkat",
    "mkdirat",
    "linkat",
    "fchmod",
    "fchown",
    "fsetxattr",
    "copy_file_range",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "statx",
    "newfstatat",
    "fstat",
    "getdents64",
];

/// More calls of one kind than any attempt makes.
const STEPS_MAX: usize = 400;
/// Each thread of a daemon meets the error once, and a daemon has few threads.
const ATTEMPTS_MAX: usize = 5;

/// Injects errors into one home until there are enough, or each step has failed once with each error.
pub fn torture(setup: &Setup, plan: &Plan, progress: &mut dyn FnMut(&Tally)) -> Tally {
    let mut tally = Tally::default();
    every_step(setup, plan, progress, &mut tally).unwrap_or_else(|why| tally.fault(why));
    tally
}

fn every_step(
    setup: &Setup,
    plan: &Plan,
    progress: &mut dyn FnMut(&Tally),
    tally: &mut Tally,
) -> Result<(), String> {
    let mut random = Random::new(plan.seed);
    let mut scene = Scene::new(setup, plan.power, plan.linked)?;
    let mut points: Vec<(&str, &str)> = ["EIO", "ENOSPC"]
        .into_iter()
        .flat_map(|error| CALLS.iter().map(move |call| (*call, error)))
        .collect();
    while !points.is_empty() {
        let (call, error) = points.swap_remove(random.below(points.len()));
        for when in (1 + random.below(plan.stride)..STEPS_MAX).step_by(plan.stride) {
            let enough = tally.errors >= plan.errors || tally.complaints.len() > COMPLAINTS_MAX;
            if enough || is_over(plan.until) {
                return setup.verify();
            }
            let inject = format!("inject={call}:error={error}:when={when}");
            let met =
                fail_at(setup, &mut scene, call, &inject, tally).map_err(|why| format!("{inject}: {why}"))?;
            progress(tally);
            if met == 0 {
                break;
            }
        }
        setup.verify().unwrap_or_else(|why| tally.fault(why));
    }
    Ok(())
}

/// A patch and its restore, each of which meets the error; then a restart. Returns the number of injected errors.
fn fail_at(
    setup: &Setup,
    scene: &mut Scene<'_>,
    call: &str,
    inject: &str,
    tally: &mut Tally,
) -> Result<u64, String> {
    let dir = tempfile::tempdir().map_err(|why| why.to_string())?;
    let log = dir.path().join("trace");
    let (log_name, trace) = (log.display().to_string(), format!("trace={call}"));
    let words = ["-o", &log_name, "-e", &trace, "-e", inject];
    let told = tally.complaints.len();
    let (met, mut pulse) = pulse::beside(&setup.home, About::Status, || {
        let tracer = Tracer::attach(scene.pid(), &words)?;
        let (mut met, mut ended) = (0, false);
        for _ in 0..2 {
            if ended {
                break;
            }
            let (errors, end) = until_done(scene, &log, tally)?;
            met += errors;
            ended = end == End::Ended;
        }
        drop(tracer);
        Ok::<u64, String>(met)
    });
    pulse.refused = 0;
    tally.pulse.add(&pulse);
    scene.restart(tally)?;
    tally.complaints[told..].iter_mut().for_each(|complaint| *complaint = format!("{inject}: {complaint}"));
    met
}

/// Repeats an attempt until it succeeds. Each attempt may meet the error, because strace counts per thread of the
/// daemon.
fn until_done(scene: &mut Scene<'_>, log: &Path, tally: &mut Tally) -> Result<(u64, End), String> {
    let mut client = scene.client()?;
    let mut met = 0;
    for _ in 0..ATTEMPTS_MAX {
        let before = injected(log);
        let end = scene.attempt(&mut client, tally)?;
        let errors = injected(log) - before;
        met += errors;
        if errors > 0 {
            tally.met(errors, end);
        } else if end != End::Done {
            tally.fault(format!("{end:?} without any error"));
        }
        if end != End::Refused {
            return Ok((met, end));
        }
    }
    Ok((met, End::Refused))
}

fn injected(log: &Path) -> u64 {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().filter(|line| line.ends_with("(INJECTED)")).count() as u64
}

/// Which disk is small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Small {
    Home,
    Root,
    Both,
}

/// The smallest disk that holds a home and some files, and the most pages that a patch may need.
const SMALL_KILOBYTES: usize = 4_096;
const PAGES_MAX: usize = 160;

/// Patches and restores on a disk that is full except for a few pages, `stride` more each time, until they fit.
pub fn full(setup: &Setup, small: Small, plan: &Plan) -> Result<Tally, String> {
    let disk = SmallDisk::mount(SMALL_KILOBYTES)?;
    let mut setup = setup.clone();
    if small != Small::Root {
        setup.home = disk.at().join("home");
    }
    if small != Small::Home {
        setup.roots = vec![disk.at().join("ws")];
    }
    let mut tally = Tally::default();
    let mut scene = Scene::new(&setup, plan.power, plan.linked)?;
    for pages in (0..PAGES_MAX).step_by(plan.stride) {
        let refused = tally.refused;
        let (outcome, pulse) = pulse::beside(&setup.home, About::Status, || -> Result<(), String> {
            for _ in 0..2 {
                disk.fill(pages)?;
                let mut client = scene.client()?;
                let end = scene.attempt(&mut client, &mut tally)?;
                disk.free()?;
                if end != End::Done {
                    tally.met(1, end);
                }
                if end == End::Refused && scene.attempt(&mut client, &mut tally)? != End::Done {
                    tally.fault(format!("{pages} pages were too few, but with room it is refused too"));
                }
            }
            Ok(())
        });
        tally.pulse.add(&Pulse { refused: 0, ..pulse });
        outcome.map_err(|why| format!("{pages} pages left: {why}"))?;
        scene.restart(&mut tally)?;
        if tally.refused == refused || is_over(plan.until) {
            break;
        }
    }
    setup.verify().unwrap_or_else(|why| tally.fault(why));
    drop(scene);
    Ok(tally)
}
