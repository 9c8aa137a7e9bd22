//! Kills the daemon under load, again and again, and compares what is left with what was promised.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::torture::load::{Stopped, Tally, Taste, Writer};
use crate::torture::pulse::{self, About, Pulse};
use crate::torture::{Daemon, NotUp, Setup};

/// How a home is tortured.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub kills: u64,
    pub writers: usize,
    pub taste: Taste,
    /// Some lives end at a chosen system call instead of a chosen time.
    pub strace: bool,
    /// `aos verify` after every so many kills.
    pub verify_every: u64,
    pub until: Option<Instant>,
}

/// Where a life may end: each is a step on the way of a mutation, of the journal or of recovery.
const CALLS: &[&str] = &[
    "renameat2",
    "openat",
    "openat2",
    "unlinkat",
    "mkdirat",
    "fchmod",
    "write",
    "pwrite64",
    "fcntl",
    "copy_file_range",
    "ftruncate",
    "sendto",
    "statx",
    "newfstatat",
];

/// How long a daemon may take to reach a system call that it may never make.
const CALL_WAIT: Duration = Duration::from_millis(400);

/// What was heard from the daemon under load: answers that were wrong and when they came, and its pulse.
#[derive(Debug)]
pub struct Heard {
    pub unexpected: Vec<(Instant, String)>,
    pub pulse: Pulse,
}

impl Heard {
    pub fn tell(self, tally: &mut Tally) {
        tally.pulse.add(&self.pulse);
        self.unexpected.into_iter().for_each(|(_, why)| tally.fault(why));
    }
}

/// Lets all writers work while `cut` decides when it ends.
pub fn under_load(home: &Path, writers: &mut [Writer], cut: impl FnOnce()) -> Heard {
    let session = writers.first().map(|writer| writer.session.clone());
    let (unexpected, pulse) =
        pulse::beside(home, session.as_deref().map_or(About::Status, About::Session), || {
            all_at_work(home, writers, cut)
        });
    Heard { unexpected, pulse }
}

fn all_at_work(home: &Path, writers: &mut [Writer], cut: impl FnOnce()) -> Vec<(Instant, String)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            writers.iter_mut().map(|writer| scope.spawn(|| writer.run(home, &stop))).collect();
        cut();
        stop.store(true, Ordering::Relaxed);
        let unexpected = |thread: std::thread::ScopedJoinHandle<'_, Stopped>| match thread.join() {
            Ok(Stopped::Done) => None,
            Ok(Stopped::Unexpected { at, why }) => Some((at, why)),
            Err(_) => Some((Instant::now(), "a writer panicked".to_owned())),
        };
        threads.into_iter().filter_map(unexpected).collect()
    })
}

/// Tortures one home until `plan.kills` are done. `progress` sees the tally after each kill.
pub fn torture(setup: &Setup, plan: &Plan, progress: &mut dyn FnMut(&Tally)) -> Tally {
    let mut tally = Tally::default();
    if let Err(why) = lives(setup, plan, progress, &mut tally) {
        tally.fault(why);
    }
    tally
}

fn lives(
    setup: &Setup,
    plan: &Plan,
    progress: &mut dyn FnMut(&Tally),
    tally: &mut Tally,
) -> Result<(), String> {
    let mut random = Random::new(plan.seed);
    let mut daemon = up(setup)?;
    let mut writers = setup.writers(plan.writers, plan.taste, &mut random)?;
    let mut rounds = 0;
    while tally.kills < plan.kills && plan.until.is_none_or(|until| Instant::now() < until) {
        if plan.strace && random.one_in(6) {
            daemon.kill();
            die_at_a_call(setup, &mut writers, &mut random, tally);
        } else {
            die_at_a_moment(setup, daemon, &mut writers, &mut random, tally);
        }
        tally.kills += 1;
        while tally.kills < plan.kills && random.one_in(4) {
            let at_a_call = plan.strace && random.one_in(2);
            kill_in_recovery(setup, &mut random, at_a_call);
            tally.kills += 1;
        }
        daemon = up(setup)?;
        judge(setup, &mut writers, tally)?;
        rounds += 1;
        if rounds % plan.verify_every == 0 {
            setup.prove(false, tally);
        }
        progress(tally);
        if tally.complaints.len() > 20 {
            return Err("too much is wrong already; stopping here".into());
        }
    }
    setup.prove(true, tally);
    daemon.kill();
    Ok(())
}

fn up(setup: &Setup) -> Result<Daemon, String> {
    setup.start(&[], &[]).map_err(|why| format!("the daemon does not start again: {why:?}"))
}

fn die_at_a_moment(
    setup: &Setup,
    daemon: Daemon,
    writers: &mut [Writer],
    random: &mut Random,
    tally: &mut Tally,
) {
    let moment = Duration::from_micros(random.below(60_000) as u64);
    let heard = under_load(&setup.home, writers, || {
        std::thread::sleep(moment);
        daemon.kill();
    });
    heard.tell(tally);
}

/// A life under strace, which kills it on entering some call for the Nth time. It may well be one of its recovery.
fn die_at_a_call(setup: &Setup, writers: &mut [Writer], random: &mut Random, tally: &mut Tally) {
    let call = CALLS[random.below(CALLS.len())];
    // strace counts for each thread by itself, and a thread serves one writer.
    let count = 1 + random.below(40);
    let wrapper = strace(&format!("inject={call}:signal=KILL:when={count}"), call);
    match setup.start(&wrapper, &[]) {
        Ok(daemon) => {
            under_load(&setup.home, writers, || daemon.await_death(CALL_WAIT)).tell(tally);
        }
        Err(NotUp::Killed) => {}
        // strace ends as its child did; a message is only there when aosd had one.
        Err(NotUp::Refused(why)) if why.trim().is_empty() => {}
        Err(NotUp::Refused(why)) => tally.fault(format!("the daemon does not start: {why}")),
    }
}

/// The words that run a program under strace with one thing injected.
pub fn strace(inject: &str, call: &str) -> Vec<String> {
    let words = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e"];
    let chosen = [format!("trace={call}"), "-e".into(), inject.to_owned()];
    words.iter().map(ToString::to_string).chain(chosen).collect()
}

/// Everything that was promised, against the journal and the disk.
pub fn judge(setup: &Setup, writers: &mut [Writer], tally: &mut Tally) -> Result<(), String> {
    let journal = setup.journal()?;
    tally.acked = writers.iter().map(|writer| writer.acked.len() as u64).sum();
    for writer in writers {
        writer.judge(&journal, tally);
    }
    Ok(())
}

/// Starts a daemon and kills it before it is ready, during its recovery: at a random moment, or at a system call.
fn kill_in_recovery(setup: &Setup, random: &mut Random, at_a_call: bool) {
    if at_a_call {
        let (call, count) = (CALLS[random.below(CALLS.len())], 1 + random.below(12));
        // One that survives its recovery is killed by being dropped.
        let _ = setup.start(&strace(&format!("inject={call}:signal=KILL:when={count}"), call), &[]);
    } else if let Ok(mut child) = setup.spawn(&[], &[]) {
        std::thread::sleep(Duration::from_micros(random.below(8_000) as u64));
        let _ = child.kill();
        let _ = child.wait();
    }
}
