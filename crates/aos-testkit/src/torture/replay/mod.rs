//! Replays random histories of all requests, in local, virtual and staged sessions, three times each in different
//! environments: the output is the same each time, and the only system calls are those that read the home.
//!
//! A history is one session's part of a journal. Many histories share a home, with their steps in random order. In some
//! homes the daemon is killed during a request.

mod acts;
mod watched;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::json;

use crate::client::Client;
use crate::random::Random;
use crate::torture::pulse::{self, About, Pulse};
use crate::torture::{COMPLAINTS_MAX, Daemon, Setup, lock};
use acts::{Known, Target};
pub use watched::{WATCH, calls, opens_to_write, reaches_out};

/// The number of histories of one home, and their average length.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub histories: usize,
    pub steps: usize,
    pub strace: bool,
}

/// What was counted.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    pub histories: u64,
    entries: u64,
    replays: u64,
    kills: u64,
    differences: u64,
    /// System calls that do more than read the home.
    outside: u64,
    watched: u64,
    faults: u64,
    pub pulse: Pulse,
    pub complaints: Vec<String>,
}

impl Tally {
    pub fn is_clean(&self) -> bool {
        self.differences + self.outside + self.faults == 0
    }

    pub fn fault(&mut self, why: String) {
        self.faults += 1;
        self.complaints.push(why);
    }

    pub fn add(&mut self, other: Tally) {
        self.histories += other.histories;
        self.entries += other.entries;
        self.replays += other.replays;
        self.kills += other.kills;
        self.differences += other.differences;
        self.outside += other.outside;
        self.watched += other.watched;
        self.faults += other.faults;
        self.pulse.add(&other.pulse);
        self.complaints.extend(other.complaints);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} histories of {} entries, {} kills, {} replays: {} differences; {} system calls watched, {} outside; {} other faults; {}",
            self.histories,
            self.entries,
            self.kills,
            self.replays,
            self.differences,
            self.watched,
            self.outside,
            self.faults,
            self.pulse
        )
    }
}

/// One session and the ids from its answers.
#[derive(Debug)]
struct Walker {
    session: String,
    target: Target,
    known: Known,
    made: u64,
}

impl Walker {
    fn open(client: &mut Client, target: Target, root: &Path) -> Result<Walker, String> {
        std::fs::create_dir_all(root).map_err(|why| format!("{}: {why}", root.display()))?;
        let what = match target {
            Target::Local => json!({ "local": { "workdir": root } }),
            Target::Vfs => json!({ "vfs": {} }),
            Target::Staged => json!({ "staged": { "workdir": root } }),
        };
        let session = client.open_with(&json!({ "target": what }))?;
        Ok(Walker { session, target, known: Known::default(), made: 0 })
    }

    /// One request. False when the daemon ended before it answered.
    fn step(&mut self, client: &mut Client, random: &mut Random) -> bool {
        self.made += 1;
        let (kind, mut params) = acts::next(random, self.target, &self.known, self.made);
        if params.is_null() {
            params = json!({});
        } else {
            params["session_id"] = json!(self.session);
        }
        let mut call = json!({ "kind": kind, "params": params, "tool_call_id": format!("tc{}", self.made) });
        if random.one_in(2) {
            call["turn_id"] = json!(format!("turn{}", self.made / 3));
        }
        let Some(receipt) = client.call("effect.call", &call) else { return false };
        if let Some(snapshot) = receipt["snapshot_id"].as_str() {
            self.known.snapshot = Some(snapshot.to_owned());
            self.known.call = receipt["tool_call_id"].as_str().map(str::to_owned);
        }
        if let Some(blob) = receipt["content"]["blob"]["blob_ref"].as_str() {
            self.known.blob = Some(blob.to_owned());
        }
        true
    }
}

/// Makes the histories of one home and replays them.
pub fn torture(setup: &Setup, plan: &Plan) -> Tally {
    let tally = Mutex::new(Tally::default());
    home(setup, plan, &tally).unwrap_or_else(|why| lock(&tally).fault(why));
    tally.into_inner().expect("no thread panics while it holds the lock")
}

fn home(setup: &Setup, plan: &Plan, tally: &Mutex<Tally>) -> Result<(), String> {
    let mut random = Random::new(plan.seed);
    let mut daemon = setup.start_daemon(&[])?;
    let mut client = setup.client()?;
    let targets = [Target::Local, Target::Local, Target::Vfs, Target::Staged];
    let open = |number: usize| {
        let root = setup.roots[number % setup.roots.len()].join(format!("h{number}"));
        Walker::open(&mut client, targets[number % targets.len()], &root)
    };
    let mut walkers = (0..plan.histories).map(open).collect::<Result<Vec<Walker>, String>>()?;
    let mut left = plan.histories * plan.steps;
    loop {
        let until_kill = if random.one_in(2) { left } else { random.below(left + 1) };
        let session = walkers[0].session.clone();
        let (walked, pulse) = pulse::beside(&setup.home, About::Session(&session), || {
            walk(&mut walkers, &mut random, setup, until_kill)
        });
        walked?;
        left -= until_kill;
        let mut tally = lock(tally);
        tally.pulse.add(&pulse);
        if left == 0 {
            break;
        }
        tally.kills += 1;
        drop(tally);
        daemon = killed_at_work(setup, daemon, &mut walkers, &mut random)?;
    }
    close_some(setup, &walkers, &mut random)?;
    let state = rest(setup, daemon, &mut random);
    let outcome = replay_all(setup, plan, &walkers, tally);
    drop(state);
    outcome
}

fn walk(walkers: &mut [Walker], random: &mut Random, setup: &Setup, steps: usize) -> Result<(), String> {
    let mut client = setup.client()?;
    for _ in 0..steps {
        let walker = random.below(walkers.len());
        if !walkers[walker].step(&mut client, random) {
            return Err(format!("the daemon hung up on {:?}", walkers[walker]));
        }
    }
    Ok(())
}

/// Kills the daemon during a request and starts another.
fn killed_at_work(
    setup: &Setup,
    daemon: Daemon,
    walkers: &mut [Walker],
    random: &mut Random,
) -> Result<Daemon, String> {
    let mut client = setup.client()?;
    let moment = Duration::from_micros(random.below(20_000) as u64);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(moment);
            daemon.kill();
        });
        let number = random.below(walkers.len());
        while walkers[number].step(&mut client, random) {}
    });
    setup.start_daemon(&[])
}

fn close_some(setup: &Setup, walkers: &[Walker], random: &mut Random) -> Result<(), String> {
    let mut client = setup.client()?;
    for walker in walkers.iter().filter(|_| random.one_in(4)) {
        let params = json!({ "session_id": walker.session, "signal": "term" });
        let receipt = client.try_effect("host.session.signal", &params, "close").unwrap_or_default();
        if receipt["status"] != "signaled" {
            return Err(format!("a session does not close: {receipt}"));
        }
    }
    Ok(())
}

/// Chooses the state of the daemon for the replay: running, stopped or killed.
fn rest(setup: &Setup, daemon: Daemon, random: &mut Random) -> Option<Daemon> {
    match random.below(3) {
        0 => return Some(daemon),
        1 => drop(setup.aos(&["daemon", "stop"])),
        _ => {}
    }
    daemon.kill();
    None
}

/// The environment of a replay.
struct Surroundings {
    time_zone: &'static str,
    language: &'static str,
    folder: &'static str,
}

const SURROUNDINGS: [Surroundings; 3] = [
    Surroundings { time_zone: "Pacific/Kiritimati", language: "C", folder: "/" },
    Surroundings { time_zone: "Etc/GMT+12", language: "tr_TR.UTF-8", folder: "/usr" },
    Surroundings { time_zone: "Asia/Kathmandu", language: "ja_JP.eucJP", folder: "/proc" },
];

impl Surroundings {
    /// Returns the exit code and both output streams. With `trace`, strace writes the system calls to that file.
    fn run(
        &self,
        setup: &Setup,
        words: &[&str],
        trace: Option<&Path>,
    ) -> Result<(Option<i32>, String), String> {
        let mut command =
            Command::new(if trace.is_some() { Path::new("strace") } else { &setup.programs.aos });
        if let Some(trace) = trace {
            command.args(["-f", "--seccomp-bpf", "-qq", "-s", "4096", "-e", WATCH, "-o"]).arg(trace);
            command.arg(&setup.programs.aos);
        }
        command.args(words).env_clear().env("AOS_HOME", &setup.home).env("PATH", "/usr/bin:/bin");
        command.env("TZ", self.time_zone).env("LANG", self.language).env("LC_ALL", self.language);
        command.current_dir(self.folder).stdin(Stdio::null());
        let output = command.output().map_err(|why| format!("cannot run aos: {why}"))?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
    }
}

/// Replays each history three times and the whole home three times, and prints its log three times.
fn replay_all(setup: &Setup, plan: &Plan, walkers: &[Walker], tally: &Mutex<Tally>) -> Result<(), String> {
    let next = Mutex::new(walkers.iter());
    let work = || -> Result<(), String> {
        let dir = tempfile::tempdir().map_err(|why| why.to_string())?;
        let trace: Option<PathBuf> = plan.strace.then(|| dir.path().join("trace"));
        while let Some(walker) = { lock(&next).next() } {
            let words = ["replay", "--session", &walker.session, "--verify"];
            three_times(setup, &words, Some("MATCH\n"), trace.as_deref(), tally)?;
            lock(tally).histories += 1;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        let join =
            |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or(Err("a panic".into()));
        threads.into_iter().map(join).collect::<Result<Vec<()>, String>>()
    })?;
    three_times(setup, &["replay", "--verify"], Some("MATCH\n"), None, tally)?;
    three_times(setup, &["replay"], None, None, tally)?;
    let log = three_times(setup, &["log", "--json"], None, None, tally)?;
    lock(tally).entries += log.lines().count() as u64;
    setup.verify()
}

/// Returns the first output. All three outputs must be the same, and exit 0.
fn three_times(
    setup: &Setup,
    words: &[&str],
    expected: Option<&str>,
    trace: Option<&Path>,
    tally: &Mutex<Tally>,
) -> Result<String, String> {
    let mut first: Option<(Option<i32>, String)> = None;
    for surroundings in &SURROUNDINGS {
        let told = surroundings.run(setup, words, trace)?;
        let trace = trace.map(|trace| std::fs::read_to_string(trace).unwrap_or_default());
        let mut tally = lock(tally);
        tally.replays += u64::from(words[0] == "replay");
        if let Some(trace) = trace {
            tally.watch(&trace, &setup.home, words);
        }
        let well = told.0 == Some(0) && expected.is_none_or(|expected| told.1 == expected);
        if !well || first.as_ref().is_some_and(|first| *first != told) {
            tally.differences += 1;
            tally.complaints.push(format!("aos {words:?} in {}: {told:?}", surroundings.time_zone));
        }
        first.get_or_insert(told);
    }
    Ok(first.unwrap_or_default().1)
}

impl Tally {
    fn watch(&mut self, trace: &str, home: &Path, words: &[&str]) {
        let calls = calls(trace);
        self.watched += calls.len() as u64;
        let programs = calls.iter().filter(|call| call.starts_with("execve(")).count();
        if programs != 1 {
            self.fault(format!("aos {words:?}: {programs} programs were started, where one was to be seen"));
        }
        for call in calls.iter().filter(|call| reaches_out(call, home)) {
            self.outside += 1;
            if self.complaints.len() < COMPLAINTS_MAX {
                self.complaints.push(format!("aos {words:?}: {call}"));
            }
        }
    }
}
