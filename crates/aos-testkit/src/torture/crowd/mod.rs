//! Many sessions with many clients each: throughput, the time of each kind of request, growth of memory and
//! descriptors, stalled clients, and the effect of a noisy session on a quiet one.

mod fairness;
mod figures;
mod worker;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::random::Random;
use crate::time::bound;
use crate::torture::pulse::{self, About, Pulse};
use crate::torture::{COMPLAINTS_MAX, Daemon, Setup, lock};
pub use fairness::Fairness;
pub use figures::{Samples, Times};
use worker::Worker;

/// How the crowd works.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub sessions: usize,
    /// The number of clients in each session.
    pub clients: usize,
    pub time: Duration,
    /// How long the quiet and the noisy session are compared, after the crowd has ended.
    pub fairness: Duration,
}

/// Every worker must complete a request in each such interval.
const PROGRESS_MAX: Duration = Duration::from_secs(5);
/// A session keeps this much of pre-images. Older ones are deleted, as in a long-lived session.
const SNAPSHOT_BYTES: u64 = 4 << 20;
/// A small stack suffices: there are many client threads, and none recurses deeply.
const STACK_BYTES: usize = 512 << 10;

/// What was found.
#[derive(Debug, Default)]
pub struct Tally {
    pub times: Times,
    took: Duration,
    resident: Samples,
    descriptors: Samples,
    /// How often a worker completed no request for too long.
    stalls: u64,
    pub pulse: Pulse,
    pub fairness: Fairness,
    pub complaints: Vec<String>,
}

impl Tally {
    pub fn is_clean(&self) -> bool {
        self.complaints.is_empty()
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (count, seconds) = (self.times.count(), self.took.as_secs_f64().max(1e-3));
        write!(
            f,
            "{count} requests in {seconds:.0} s, {:.0} a second, {} stalls; {:.0} MB resident at the end, {:+.2} MB a minute; \
             {:.0} descriptors, {:+.2} a minute; {}; {}",
            count as f64 / seconds,
            self.stalls,
            self.resident.last() / 1e6,
            self.resident.slope_per_minute() / 1e6,
            self.descriptors.last(),
            self.descriptors.slope_per_minute(),
            self.pulse,
            self.fairness
        )
    }
}

/// Runs the crowd, then the comparison of a quiet and a noisy session.
pub fn torture(setup: &Setup, plan: &Plan) -> Tally {
    let mut tally = Tally::default();
    let outcome = work_together(setup, plan, &mut tally);
    tally.complaints.extend(outcome.err());
    tally
}

fn work_together(setup: &Setup, plan: &Plan, tally: &mut Tally) -> Result<(), String> {
    let daemon = setup.start_daemon(&[])?;
    let mut random = Random::new(plan.seed);
    let (mut clients, ping) = invite(setup, plan, &mut random)?;
    let (outcome, pulse) = pulse::beside(&setup.home, About::Session(&ping), || {
        crowd(setup, plan, &daemon, &mut clients, tally)
    });
    tally.pulse = pulse;
    outcome?;
    for worker in &mut clients {
        worker.judge()?;
        tally.times.merge(std::mem::take(&mut worker.times));
    }
    drop(clients);
    tally.fairness = fairness::measure(setup, plan.fairness, random.number())?;
    setup.verify()?;
    setup.replay()?;
    daemon.kill();
    Ok(())
}

/// Opens the sessions with their clients, and one more session that is only pinged.
fn invite(setup: &Setup, plan: &Plan, random: &mut Random) -> Result<(Vec<Worker>, String), String> {
    let mut client = setup.client()?;
    let mut clients = Vec::new();
    for number in 0..plan.sessions {
        let root = setup.roots[number % setup.roots.len()].join(format!("s{number}"));
        std::fs::create_dir_all(&root).map_err(|why| format!("{}: {why}", root.display()))?;
        let target = json!({ "local": { "workdir": root } });
        let params = json!({ "target": target, "snapshot_bytes_max": SNAPSHOT_BYTES });
        let session = client.open_with(&params)?;
        for worker in 0..plan.clients {
            clients.push(Worker::new(&session, &root, format!("c{worker}"), random.number())?);
        }
    }
    Ok((clients, client.open(&setup.roots[0])?))
}

fn crowd(
    setup: &Setup,
    plan: &Plan,
    daemon: &Daemon,
    clients: &mut [Worker],
    tally: &mut Tally,
) -> Result<(), String> {
    let stop = AtomicBool::new(false);
    let done: Vec<AtomicU64> = clients.iter().map(|_| AtomicU64::new(0)).collect();
    let wrong = Mutex::new(Vec::new());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (worker, done) in clients.iter_mut().zip(&done) {
            let work = || {
                if let Err(why) = come_and_go(setup, worker, done, &stop) {
                    lock(&wrong).push(why);
                    stop.store(true, Ordering::Relaxed);
                }
            };
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, work).map_err(|why| format!("no more threads: {why}"))?;
        }
        watch(plan, daemon, &done, &stop, tally);
        stop.store(true, Ordering::Relaxed);
        Ok::<(), String>(())
    })?;
    tally.took = begun.elapsed();
    tally.complaints.extend(wrong.into_inner().unwrap_or_default().into_iter().take(COMPLAINTS_MAX));
    Ok(())
}

fn come_and_go(
    setup: &Setup,
    worker: &mut Worker,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<(), String> {
    let mut client = setup.client()?;
    while !stop.load(Ordering::Relaxed) {
        worker.step(&mut client)?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Samples the daemon each second, and checks that each worker completed a request in each [`PROGRESS_MAX`].
fn watch(plan: &Plan, daemon: &Daemon, done: &[AtomicU64], stop: &AtomicBool, tally: &mut Tally) {
    let begun = Instant::now();
    let (mut seen, mut looked): (Vec<u64>, _) = (vec![0; done.len()], begun);
    while begun.elapsed() < plan.time && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_secs(1).min(plan.time));
        tally.resident.add(begun.elapsed(), daemon.memory_bytes("VmRSS:"));
        tally.descriptors.add(begun.elapsed(), descriptors(daemon.pid()));
        if looked.elapsed() < bound(PROGRESS_MAX) {
            continue;
        }
        let now: Vec<u64> = done.iter().map(|done| done.load(Ordering::Relaxed)).collect();
        let stuck = now.iter().zip(&seen).filter(|(now, seen)| now == seen).count();
        if stuck > 0 {
            tally.stalls += stuck as u64;
            tally.complaints.push(format!("{stuck} clients got nothing done in {:?}", looked.elapsed()));
        }
        (seen, looked) = (now, Instant::now());
    }
}

fn descriptors(pid: i32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count) as u64
}
