//! Runs commands that resist ending, many at a time, and ends each at a random moment in a random way: the call must
//! return in time, and no process may be left.
//!
//! It does not know how commands are confined. It finds leftover processes in `/proc`, by a mark in the environment and
//! the arguments of each command.

mod programs;
mod tally;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::random::Random;
use crate::time::{bound, is_over};
use crate::torture::pulse::{About, feel};
use crate::torture::{COMPLAINTS_MAX, Daemon, Setup, lock};
use programs::{PROGRAMS, Stubborn};
pub use tally::Tally;

/// How many programs are run, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub runs: u64,
    /// Commands that run at the same time.
    pub at_once: usize,
    pub until: Option<Instant>,
}

/// How late a call may return after the time at which the command had to end.
const GRACE: Duration = Duration::from_secs(2);
/// The longest time that a child of the daemon may remain a zombie.
const ZOMBIE_MAX: Duration = Duration::from_secs(2);

/// How a command is ended. Its own time limit always applies.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Time,
    Signal { name: &'static str, after: Duration },
}

/// One command of the plan, fully determined by the seed and its number.
#[derive(Debug)]
struct Run {
    program: &'static Stubborn,
    mark: String,
    timeout: Duration,
    ending: Ending,
}

/// The time between `term` and the kill.
const TERM_GRACE: Duration = Duration::from_millis(300);

impl Run {
    fn new(seed: u64, number: u64) -> Run {
        let mut random = Random::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut time =
            |least: usize, most: usize| Duration::from_millis((least + random.below(most - least)) as u64);
        let (timeout, after) = (time(30, 1_500), time(0, 800));
        let ending = match random.below(6) {
            0 => Ending::Signal { name: "kill", after },
            1 => Ending::Signal { name: "term", after },
            2 => Ending::Signal { name: "int", after },
            _ => Ending::Time,
        };
        let program = &PROGRAMS[random.below(PROGRAMS.len())];
        Run { program, mark: format!("aos-stubborn-{seed:016x}-{number}"), timeout, ending }
    }

    /// The time after its start at which the command must have ended.
    fn due(&self) -> Duration {
        match self.ending {
            Ending::Signal { name: "kill", after } => self.timeout.min(after),
            Ending::Signal { name: "term", after } => self.timeout.min(after + TERM_GRACE),
            // A command may outlive `int`.
            Ending::Signal { .. } | Ending::Time => self.timeout,
        }
    }

    fn what(&self) -> String {
        format!("{} ({}, {:?}, timeout {:?})", self.program.name, self.mark, self.ending, self.timeout)
    }

    /// Runs it in a new session. Failures are counted in the tally.
    fn run(&self, home: &Path, root: &Path, tally: &Mutex<Tally>) -> Result<(), String> {
        let mut client = Client::connect(home).map_err(|why| why.to_string())?;
        let session = open(&mut client, root)?;
        let params = json!({
            "session_id": session,
            "argv": [self.program.program, self.program.flag, self.program.script, self.mark],
            "env_patch": { "AOS_ZOO": self.mark },
            "timeout_ns": self.timeout.as_nanos() as u64,
        });
        let begun = Instant::now();
        let receipt = std::thread::scope(|scope| {
            scope.spawn(|| self.end(home, &session));
            client.try_effect("host.exec", &params, "stubborn")
        });
        let (took, receipt) = (begun.elapsed(), receipt.ok_or("the daemon hung up")?);
        let late = took.saturating_sub(self.due());
        let survivors = survivors(&self.mark, begun + self.due() + bound(GRACE));
        let mut tally = lock(tally);
        tally.returned(&receipt, late, late > bound(GRACE), &self.what());
        tally.left(&survivors, &self.what());
        drop(tally);
        let close = json!({ "session_id": session, "signal": "kill" });
        client
            .try_effect("host.session.signal", &close, "stubborn")
            .map(drop)
            .ok_or_else(|| "the daemon hung up".into())
    }

    /// Sends the signal after its delay.
    fn end(&self, home: &Path, session: &str) {
        let Ending::Signal { name, after } = self.ending else { return };
        std::thread::sleep(after);
        let grace = TERM_GRACE.as_nanos() as u64;
        let params = json!({ "session_id": session, "signal": name, "grace_timeout_ns": grace });
        if let Ok(mut client) = Client::connect(home) {
            let _ = client.try_effect("host.session.signal", &params, "stubborn");
        }
    }
}

/// A session with a limit on the processes of its commands.
fn open(client: &mut Client, root: &Path) -> Result<String, String> {
    let params = json!({
        "target": { "local": { "workdir": root } },
        "capability": { "exec": { "max_processes": 150, "max_output_bytes": 1 << 20 } },
        // This suite does not test the policy of commands.
        "policy": { "preset": "permissive" },
    });
    client.open_with(&params)
}

/// Runs the programs with one daemon until the plan is done. `progress` gets the number of finished runs.
pub fn torture(setup: &Setup, plan: &Plan, progress: &mut (dyn FnMut(u64) + Send)) -> Tally {
    let tally = Mutex::new(Tally::default());
    let daemon = match setup.start_daemon(&[]) {
        Ok(daemon) => daemon,
        Err(why) => return Tally::failed(why),
    };
    // The first command may start children that the daemon keeps.
    let first = Run {
        program: &PROGRAMS[0],
        mark: "aos-stubborn-first".into(),
        timeout: GRACE / 20,
        ending: Ending::Time,
    };
    if let Err(why) = first.run(&setup.home, &setup.roots[0], &Mutex::default()) {
        return Tally::failed(why);
    }
    let kept = children(daemon.pid()).len();
    let (next, stop, progress) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(progress));
    std::thread::scope(|scope| {
        let pulse = scope.spawn(|| {
            let mut zombies = Zombies::default();
            feel(&setup.home, About::Root(&setup.roots[0]), &stop, &mut || zombies.look(&daemon, &tally))
        });
        let visitors: Vec<_> = (0..plan.at_once)
            .map(|number| {
                let (root, tally, next, progress) =
                    (setup.roots[0].join(format!("v{number}")), &tally, &next, &progress);
                scope.spawn(move || visitor(setup, plan, &root, next, tally, &|done| lock(progress)(done)))
            })
            .collect();
        for visitor in visitors {
            let outcome = visitor.join().unwrap_or_else(|_| Err("a visitor panicked".into()));
            if let Err(why) = outcome {
                lock(&tally).fault(why);
            }
        }
        stop.store(true, Ordering::Relaxed);
        lock(&tally).answered(pulse.join().unwrap_or_default());
    });
    let mut tally = tally.into_inner().expect("no thread panics while it holds the lock");
    nothing_left(&daemon, kept, &mut tally);
    tally.resident_bytes = daemon.memory_bytes("VmHWM:");
    setup.verify().unwrap_or_else(|why| tally.fault(why));
    daemon.kill();
    tally
}

fn visitor(
    setup: &Setup,
    plan: &Plan,
    root: &Path,
    next: &AtomicU64,
    tally: &Mutex<Tally>,
    progress: &dyn Fn(u64),
) -> Result<(), String> {
    std::fs::create_dir_all(root).map_err(|why| format!("{}: {why}", root.display()))?;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let enough = lock(tally).complaints.len() > COMPLAINTS_MAX;
        if number >= plan.runs || enough || is_over(plan.until) {
            return Ok(());
        }
        Run::new(plan.seed, number).run(&setup.home, root, tally)?;
        progress(number + 1);
    }
}

/// Zombie children of the daemon, each with the time since it was first seen.
#[derive(Default)]
struct Zombies {
    since: Vec<(i32, Instant)>,
}

impl Zombies {
    fn look(&mut self, daemon: &Daemon, tally: &Mutex<Tally>) {
        let zombies: Vec<i32> = children(daemon.pid())
            .into_iter()
            .filter(|(_, state)| *state == 'Z')
            .map(|(pid, _)| pid)
            .collect();
        self.since.retain(|(pid, _)| zombies.contains(pid));
        for pid in zombies {
            if !self.since.iter().any(|(known, _)| *known == pid) {
                self.since.push((pid, Instant::now()));
            }
        }
        let old =
            self.since.iter().filter(|(_, since)| since.elapsed() > bound(ZOMBIE_MAX)).map(|(pid, _)| *pid);
        lock(tally).zombies(old);
    }
}

/// Checks that the daemon has no more children after the last program than before the first.
fn nothing_left(daemon: &Daemon, kept: usize, tally: &mut Tally) {
    let deadline = Instant::now() + bound(GRACE);
    loop {
        let left = children(daemon.pid());
        if left.len() <= kept {
            return;
        }
        if Instant::now() > deadline {
            tally.zombies(left.iter().filter(|(_, state)| *state == 'Z').map(|(pid, _)| *pid));
            return tally.left(&left.iter().map(|(pid, _)| pid.to_string()).collect::<Vec<_>>(), "the end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until no process carries the mark. Kills and returns those that still carry it after the deadline.
fn survivors(mark: &str, deadline: Instant) -> Vec<String> {
    loop {
        let found: Vec<i32> = pids().into_iter().filter(|pid| carries(*pid, mark)).collect();
        if found.is_empty() {
            return Vec::new();
        }
        if Instant::now() > deadline {
            let tell = |pid: &i32| {
                let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let told = format!("{pid} `{}`", String::from_utf8_lossy(&words).replace('\0', " "));
                crate::signal(*pid, rustix::process::Signal::KILL);
                told
            };
            return found.iter().map(tell).collect();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn carries(pid: i32, mark: &str) -> bool {
    let holds = |name: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        // Only a whole mark counts: `…-1` is a prefix of `…-10`.
        bytes.split(|byte| *byte == 0).any(|word| word.ends_with(mark.as_bytes()))
    };
    holds("environ") || holds("cmdline")
}

fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The children of a process, with their states.
fn children(of: i32) -> Vec<(i32, char)> {
    let child = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit(')').next()?.split_whitespace();
        let (state, parent) = (fields.next()?.chars().next()?, fields.next()?.parse::<i32>().ok()?);
        (parent == of).then_some((pid, state))
    };
    pids().into_iter().filter_map(child).collect()
}
