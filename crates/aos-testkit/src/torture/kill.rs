//! Kills the daemon under load repeatedly, and compares the journal and the disk with the acknowledged receipts.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::time::is_over;
use crate::torture::load::{Stopped, Tally, Workload, Writer};
use crate::torture::pulse::{self, About, Pulse};
use crate::torture::{COMPLAINTS_MAX, Daemon, NotUp, Setup};

/// How a home is tortured.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// The number of kills, or power cuts.
    pub kills: u64,
    pub writers: usize,
    pub workload: Workload,
    /// Run `aos verify` after this many daemon lives.
    pub verify_every: u64,
    pub until: Option<Instant>,
}

/// The system calls at which a daemon is killed: each is a step of a mutation, of the journal or of recovery.
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

/// The results of a load: unexpected answers with their times, and the pings.
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

/// A home under load: one daemon after the other serves it, and each is killed.
#[derive(Debug)]
pub(super) struct Load<'a> {
    pub(super) setup: &'a Setup,
    plan: &'a Plan,
    /// The arguments of its daemons.
    arguments: &'a [&'a str],
    pub(super) writers: Vec<Writer>,
    pub(super) random: Random,
    pub(super) tally: Tally,
}

impl<'a> Load<'a> {
    pub(super) fn new(setup: &'a Setup, plan: &'a Plan, arguments: &'a [&'a str]) -> Load<'a> {
        let (writers, random) = (Vec::new(), Random::new(plan.seed));
        Load { setup, plan, arguments, writers, random, tally: Tally::default() }
    }

    /// Continues until `plan.kills` are done. `end` ends the life of a daemon and counts the kill or kills; `progress`
    /// gets the tally after each life.
    pub(super) fn torture(
        mut self,
        end: impl FnMut(&mut Load<'a>, Daemon) -> Result<(), String>,
        progress: &mut dyn FnMut(&Tally),
    ) -> Tally {
        self.lives(end, progress).unwrap_or_else(|why| self.tally.fault(why));
        self.tally
    }

    fn lives(
        &mut self,
        mut end: impl FnMut(&mut Load<'a>, Daemon) -> Result<(), String>,
        progress: &mut dyn FnMut(&Tally),
    ) -> Result<(), String> {
        let (setup, plan) = (self.setup, self.plan);
        let mut daemon = setup.start_daemon(self.arguments)?;
        self.writers = setup.writers(plan.writers, plan.workload, &mut self.random)?;
        let mut lives = 0;
        while self.tally.kills < plan.kills && !is_over(plan.until) {
            end(self, daemon)?;
            daemon = setup.start_daemon(self.arguments)?;
            judge(setup, &mut self.writers, &mut self.tally)?;
            lives += 1;
            if lives % plan.verify_every == 0 {
                setup.verify().unwrap_or_else(|why| self.tally.fault(why));
            }
            progress(&self.tally);
            if self.tally.complaints.len() > COMPLAINTS_MAX {
                return Err("too much is wrong already; stopping here".into());
            }
        }
        setup.verify().unwrap_or_else(|why| self.tally.fault(why));
        setup.replay().unwrap_or_else(|why| self.tally.fault(why));
        daemon.kill();
        Ok(())
    }

    /// Lets all writers work while `cut` decides when it ends.
    pub(super) fn until(&mut self, cut: impl FnOnce()) -> Heard {
        under_load(&self.setup.home, &mut self.writers, cut)
    }
}

/// Tortures one home until `plan.kills` are done. With `strace`, some lives end at a chosen system call instead of a
/// chosen time.
pub fn torture(setup: &Setup, plan: &Plan, strace: bool, progress: &mut dyn FnMut(&Tally)) -> Tally {
    let end = |load: &mut Load<'_>, daemon: Daemon| {
        if strace && load.random.one_in(6) {
            daemon.kill();
            die_at_a_call(load);
        } else {
            die_at_a_moment(load, daemon);
        }
        load.tally.kills += 1;
        while load.tally.kills < plan.kills && load.random.one_in(4) {
            let at_a_call = strace && load.random.one_in(2);
            kill_in_recovery(setup, &mut load.random, at_a_call);
            load.tally.kills += 1;
        }
        Ok(())
    };
    Load::new(setup, plan, &[]).torture(end, progress)
}

fn die_at_a_moment(load: &mut Load<'_>, daemon: Daemon) {
    let moment = Duration::from_micros(load.random.below(60_000) as u64);
    let heard = load.until(|| {
        std::thread::sleep(moment);
        daemon.kill();
    });
    heard.tell(&mut load.tally);
}

/// Runs a daemon under strace, which kills it when it enters a chosen call for the Nth time. The call may be part of
/// recovery.
fn die_at_a_call(load: &mut Load<'_>) {
    // strace counts per thread, and a thread serves one writer.
    match load.setup.start(&at_some_call(&mut load.random, 40), &[]) {
        Ok(daemon) => load.until(|| daemon.await_death(CALL_WAIT)).tell(&mut load.tally),
        Err(NotUp::Killed) => {}
        // strace ends with the status of its child. There is a message only if aosd printed one.
        Err(NotUp::Refused(why)) if why.trim().is_empty() => {}
        Err(NotUp::Refused(why)) => load.tally.fault(format!("the daemon does not start: {why}")),
    }
}

/// The strace arguments that kill a program when it makes a random call for the Nth time. N is at most `times_max`.
fn at_some_call(random: &mut Random, times_max: usize) -> Vec<String> {
    let (call, count) = (CALLS[random.below(CALLS.len())], 1 + random.below(times_max));
    strace(&format!("inject={call}:signal=KILL:when={count}"), call)
}

/// The command prefix that runs a program under strace with one injection.
pub fn strace(inject: &str, call: &str) -> Vec<String> {
    let words = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e"];
    let chosen = [format!("trace={call}"), "-e".into(), inject.to_owned()];
    words.iter().map(ToString::to_string).chain(chosen).collect()
}

/// Compares all acknowledged receipts with the journal and the disk.
pub fn judge(setup: &Setup, writers: &mut [Writer], tally: &mut Tally) -> Result<(), String> {
    let journal = setup.journal()?;
    tally.acked = writers.iter().map(|writer| writer.acked.len() as u64).sum();
    for writer in writers {
        writer.judge(&journal, tally);
    }
    Ok(())
}

/// Starts a daemon and kills it before it is ready, during its recovery: at a random moment, or at a system call.
pub(super) fn kill_in_recovery(setup: &Setup, random: &mut Random, at_a_call: bool) {
    if at_a_call {
        // A daemon that survives its recovery is killed on drop.
        let _ = setup.start(&at_some_call(random, 12), &[]);
    } else if let Ok(mut child) = setup.spawn(&[], &[]) {
        std::thread::sleep(Duration::from_micros(random.below(8_000) as u64));
        let _ = child.kill();
        let _ = child.wait();
    }
}
