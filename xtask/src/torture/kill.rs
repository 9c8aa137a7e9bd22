//! Killing the daemon under load, again and again, and holding what is left against what was promised.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::{Journal, Random, Stopped, Tally, Taste, Wire, Writer};
use super::pulse::{self, About, Pulse};

/// The programs under test.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) aosd: PathBuf,
    pub(crate) aos: PathBuf,
}

/// One home and the roots of its sessions.
#[derive(Debug, Clone)]
pub(crate) struct Bench {
    pub(crate) programs: Programs,
    pub(crate) home: PathBuf,
    pub(crate) roots: Vec<PathBuf>,
}

/// How a home is tortured.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) kills: u64,
    pub(crate) writers: usize,
    pub(crate) taste: Taste,
    /// Some lives end at a chosen system call instead of a chosen time.
    pub(crate) strace: bool,
    /// `aos verify` after every so many kills.
    pub(crate) verify_every: u64,
    pub(crate) until: Option<Instant>,
}

/// How long a daemon may take to answer, or to die of a system call that it may never make.
const READY_PATIENCE: Duration = Duration::from_secs(20);
const CALL_PATIENCE: Duration = Duration::from_millis(400);

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

/// A daemon that runs.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    pid: i32,
}

/// What kept a daemon from running.
#[derive(Debug)]
pub(crate) enum NotUp {
    /// Something killed it: that is what we do here.
    Killed,
    Refused(String),
}

impl Bench {
    /// Starts a daemon behind the words of `wrapper`, and waits until it answers.
    pub(crate) fn start(&self, wrapper: &[String], arguments: &[&str]) -> Result<Daemon, NotUp> {
        let mut child = self.spawn(wrapper, arguments).map_err(|why| NotUp::Refused(why.to_string()))?;
        let deadline = Instant::now() + READY_PATIENCE;
        loop {
            if let Some(pid) = self.answering_pid() {
                return Ok(Daemon { child, pid });
            }
            let ended = child.try_wait().map_err(|why| NotUp::Refused(why.to_string()))?;
            if ended.is_some() || Instant::now() > deadline {
                let _ = child.kill();
                return Err(last_words(child));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn spawn(&self, wrapper: &[String], arguments: &[&str]) -> std::io::Result<Child> {
        let mut words = wrapper.iter().map(PathBuf::from).chain([self.programs.aosd.clone()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(arguments).env("AOS_HOME", &self.home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
    }

    fn answering_pid(&self) -> Option<i32> {
        let status = Wire::connect(&self.home).ok()?.call("daemon.status", &json!({}))?;
        status["pid"].as_i64().map(|pid| pid as i32)
    }

    /// Starts a daemon and kills it before it is ready, in the midst of its recovery: at a moment, or at a call.
    fn stillborn(&self, random: &mut Random, at_a_call: bool) {
        if at_a_call {
            let (call, count) = (CALLS[random.below(CALLS.len())], 1 + random.below(12));
            // One that outlives its recovery is killed by being dropped.
            let _ = self.start(&strace(&format!("inject={call}:signal=KILL:when={count}"), call), &[]);
        } else if let Ok(mut child) = self.spawn(&[], &[]) {
            std::thread::sleep(Duration::from_micros(random.below(8_000) as u64));
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The client program: its exit code, and what it said on both streams.
    pub(crate) fn aos(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(&self.programs.aos);
        let output = command.args(arguments).env("AOS_HOME", &self.home).stdin(Stdio::null()).output();
        let Ok(output) = output else { return (-1, String::new(), "aos does not start".into()) };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    pub(crate) fn journal(&self) -> Result<Journal, String> {
        let (code, out, err) = self.aos(&["log", "--json"]);
        if code != 0 {
            return Err(format!("aos log: exit {code}: {err}"));
        }
        Journal::parse(&out)
    }

    /// Writers over the sessions of a running daemon, each with its own seed.
    pub(crate) fn writers(
        &self,
        count: usize,
        taste: Taste,
        random: &mut Random,
    ) -> Result<Vec<Writer>, String> {
        let mut wire = Wire::connect(&self.home).map_err(|why| why.to_string())?;
        let sessions: Vec<(&Path, String)> = self
            .roots
            .iter()
            .map(|root| Ok((root.as_path(), wire.open(root)?)))
            .collect::<Result<_, String>>()?;
        (0..count)
            .map(|number| {
                let (root, session) = &sessions[number % sessions.len()];
                Writer::new(&format!("w{number}"), root, session, taste, random.number())
                    .map_err(|why| format!("cannot prepare {}: {why}", root.display()))
            })
            .collect()
    }

    /// `aos verify`, and at the end of a home's life `aos replay --verify` too.
    pub(crate) fn prove(&self, replay: bool, tally: &mut Tally) {
        let (code, out, err) = self.aos(&["verify"]);
        if code != 0 {
            tally.fault(format!("aos verify: exit {code}: {out}{err}"));
        }
        if replay {
            let (code, out, err) = self.aos(&["replay", "--verify"]);
            if (code, out.trim()) != (0, "MATCH") {
                tally.fault(format!("aos replay --verify: exit {code}: {out}{err}"));
            }
        }
    }
}

fn last_words(child: Child) -> NotUp {
    use std::os::unix::process::ExitStatusExt as _;
    match child.wait_with_output() {
        Ok(output) if output.status.signal().is_some() => NotUp::Killed,
        Ok(output) => NotUp::Refused(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(why) => NotUp::Refused(why.to_string()),
    }
}

impl Daemon {
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// What the kernel tells of its memory: `VmRSS:` what it holds, `VmHWM:` the most that it ever held.
    pub(crate) fn memory_bytes(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with(field));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    /// Kill -9, also from behind a wrapper.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Stops all its threads where they are. A call that is under way still ends, no new one begins.
    pub(crate) fn hold_still(&self) {
        self.signal(rustix::process::Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid);
        let runs = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            stat.is_ok_and(|stat| stat.contains(") R "))
        };
        while std::fs::read_dir(&tasks).is_ok_and(|mut tasks| tasks.any(runs)) {
            std::thread::yield_now();
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Waits until it is dead by itself; kills it when it takes too long.
    pub(crate) fn await_death(mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.kill();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Once it was waited for, its pid may be somebody else's.
        if let Ok(None) = self.child.try_wait() {
            self.signal(rustix::process::Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// What was heard from the daemon under load: answers that were wrong and when they came, and its pulse.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) strange: Vec<(Instant, String)>,
    pub(crate) pulse: Pulse,
}

impl Heard {
    pub(crate) fn tell(self, tally: &mut Tally) {
        tally.pulse.add(&self.pulse);
        self.strange.into_iter().for_each(|(_, why)| tally.fault(why));
    }
}

/// Lets all writers work while `cut` decides when it ends.
pub(crate) fn under_load(home: &Path, writers: &mut [Writer], cut: impl FnOnce()) -> Heard {
    let session = writers.first().map(|writer| writer.session.clone());
    let (strange, pulse) =
        pulse::beside(home, session.as_deref().map_or(About::Status, About::Session), || {
            all_at_work(home, writers, cut)
        });
    Heard { strange, pulse }
}

fn all_at_work(home: &Path, writers: &mut [Writer], cut: impl FnOnce()) -> Vec<(Instant, String)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            writers.iter_mut().map(|writer| scope.spawn(|| writer.run(home, &stop))).collect();
        cut();
        stop.store(true, Ordering::Relaxed);
        let strange = |thread: std::thread::ScopedJoinHandle<'_, Stopped>| match thread.join() {
            Ok(Stopped::Quietly) => None,
            Ok(Stopped::Strangely { at, why }) => Some((at, why)),
            Err(_) => Some((Instant::now(), "a writer panicked".to_owned())),
        };
        threads.into_iter().filter_map(strange).collect()
    })
}

/// Tortures one home until `plan.kills` are done. `progress` sees the tally after each kill.
pub(crate) fn torture(bench: &Bench, plan: &Plan, progress: &mut dyn FnMut(&Tally)) -> Tally {
    let mut tally = Tally::default();
    if let Err(why) = lives(bench, plan, progress, &mut tally) {
        tally.fault(why);
    }
    tally
}

fn lives(
    bench: &Bench,
    plan: &Plan,
    progress: &mut dyn FnMut(&Tally),
    tally: &mut Tally,
) -> Result<(), String> {
    let mut random = Random::new(plan.seed);
    let mut daemon = up(bench)?;
    let mut writers = bench.writers(plan.writers, plan.taste, &mut random)?;
    let mut rounds = 0;
    while tally.kills < plan.kills && plan.until.is_none_or(|until| Instant::now() < until) {
        if plan.strace && random.one_in(6) {
            daemon.kill();
            die_at_a_call(bench, &mut writers, &mut random, tally);
        } else {
            die_at_a_moment(bench, daemon, &mut writers, &mut random, tally);
        }
        tally.kills += 1;
        while tally.kills < plan.kills && random.one_in(4) {
            let at_a_call = plan.strace && random.one_in(2);
            bench.stillborn(&mut random, at_a_call);
            tally.kills += 1;
        }
        daemon = up(bench)?;
        judge(bench, &mut writers, tally)?;
        rounds += 1;
        if rounds % plan.verify_every == 0 {
            bench.prove(false, tally);
        }
        progress(tally);
        if tally.complaints.len() > 20 {
            return Err("too much is wrong already; stopping here".into());
        }
    }
    bench.prove(true, tally);
    daemon.kill();
    Ok(())
}

fn up(bench: &Bench) -> Result<Daemon, String> {
    bench.start(&[], &[]).map_err(|why| format!("the daemon does not start again: {why:?}"))
}

fn die_at_a_moment(
    bench: &Bench,
    daemon: Daemon,
    writers: &mut [Writer],
    random: &mut Random,
    tally: &mut Tally,
) {
    let moment = Duration::from_micros(random.below(60_000) as u64);
    let heard = under_load(&bench.home, writers, || {
        std::thread::sleep(moment);
        daemon.kill();
    });
    heard.tell(tally);
}

/// A life under strace, which kills it on entering some call for the Nth time. It may well be one of its recovery.
fn die_at_a_call(bench: &Bench, writers: &mut [Writer], random: &mut Random, tally: &mut Tally) {
    let call = CALLS[random.below(CALLS.len())];
    // strace counts for each thread by itself, and a thread serves one writer.
    let count = 1 + random.below(40);
    let wrapper = strace(&format!("inject={call}:signal=KILL:when={count}"), call);
    match bench.start(&wrapper, &[]) {
        Ok(daemon) => {
            under_load(&bench.home, writers, || daemon.await_death(CALL_PATIENCE)).tell(tally);
        }
        Err(NotUp::Killed) => {}
        // strace ends as its child did; a message is only there when aosd had one.
        Err(NotUp::Refused(why)) if why.trim().is_empty() => {}
        Err(NotUp::Refused(why)) => tally.fault(format!("the daemon does not start: {why}")),
    }
}

/// The words that run a program under strace with one thing injected.
pub(crate) fn strace(inject: &str, call: &str) -> Vec<String> {
    let words = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e"];
    let chosen = [format!("trace={call}"), "-e".into(), inject.to_owned()];
    words.iter().map(ToString::to_string).chain(chosen).collect()
}

/// Everything that was promised, against the journal and the disk.
pub(crate) fn judge(bench: &Bench, writers: &mut [Writer], tally: &mut Tally) -> Result<(), String> {
    let journal = bench.journal()?;
    tally.acked = writers.iter().map(|writer| writer.acked.len() as u64).sum();
    for writer in writers {
        writer.judge(&journal, tally);
    }
    Ok(())
}
