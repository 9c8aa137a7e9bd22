//! A home, the roots of its sessions, and a daemon for it that can be killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::check::check;
use crate::client::Client;
use crate::programs::Programs;
use crate::random::Random;
use crate::time::bound;
use crate::torture::load::{Journal, Workload, Writer};
use crate::world::World;

/// One home and the roots of its sessions.
#[derive(Debug, Clone)]
pub struct Setup {
    pub programs: Programs,
    pub home: PathBuf,
    pub roots: Vec<PathBuf>,
}

impl World {
    /// This world as input for the torture suites.
    pub fn setup(&self) -> Setup {
        Setup { programs: self.programs.clone(), home: self.home.clone(), roots: vec![self.root.clone()] }
    }
}

/// The longest time until a started daemon answers.
const READY_MAX: Duration = Duration::from_secs(20);

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    pid: i32,
}

/// Why a daemon did not start.
#[derive(Debug)]
pub enum NotUp {
    /// A signal killed it, which the suites do on purpose.
    Killed,
    Refused(String),
}

impl Setup {
    /// Starts a daemon with `wrapper` as the command prefix, and waits until it answers.
    pub fn start(&self, wrapper: &[String], arguments: &[&str]) -> Result<Daemon, NotUp> {
        let mut child = self.spawn(wrapper, arguments).map_err(|why| NotUp::Refused(why.to_string()))?;
        let deadline = Instant::now() + bound(READY_MAX);
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

    /// Starts a daemon without a wrapper.
    pub fn start_daemon(&self, arguments: &[&str]) -> Result<Daemon, String> {
        self.start(&[], arguments).map_err(|why| format!("the daemon does not start: {why:?}"))
    }

    pub fn client(&self) -> Result<Client, String> {
        Client::connect(&self.home).map_err(|why| format!("the daemon does not accept: {why}"))
    }

    pub fn spawn(&self, wrapper: &[String], arguments: &[&str]) -> std::io::Result<Child> {
        let mut words = wrapper.iter().map(PathBuf::from).chain([self.programs.aosd.clone()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(arguments).env("AOS_HOME", &self.home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
    }

    fn answering_pid(&self) -> Option<i32> {
        let status = self.client().ok()?.call("daemon.status", &json!({}))?;
        status["pid"].as_i64().map(|pid| pid as i32)
    }

    /// Runs the client program. Returns its exit code, standard output and standard error.
    pub fn aos(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(&self.programs.aos);
        let output = command.args(arguments).env("AOS_HOME", &self.home).stdin(Stdio::null()).output();
        let Ok(output) = output else { return (-1, String::new(), "aos does not start".into()) };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    pub fn journal(&self) -> Result<Journal, String> {
        let (code, out, err) = self.aos(&["log", "--json"]);
        if code != 0 {
            return Err(format!("aos log: exit {code}: {err}"));
        }
        Journal::parse(&out)
    }

    /// Opens one session per root, and creates writers with separate seeds that share these sessions.
    pub fn writers(
        &self,
        count: usize,
        workload: Workload,
        random: &mut Random,
    ) -> Result<Vec<Writer>, String> {
        let mut client = self.client()?;
        let sessions: Vec<(&Path, String)> = self
            .roots
            .iter()
            .map(|root| Ok((root.as_path(), client.open(root)?)))
            .collect::<Result<_, String>>()?;
        (0..count)
            .map(|number| {
                let (root, session) = &sessions[number % sessions.len()];
                Writer::new(&format!("w{number}"), root, session, workload, random.number())
                    .map_err(|why| format!("cannot prepare {}: {why}", root.display()))
            })
            .collect()
    }

    /// Fails unless `aos verify` reports that the home is intact.
    pub fn verify(&self) -> Result<(), String> {
        let (code, out, err) = self.aos(&["verify"]);
        check(code == 0, || format!("aos verify: exit {code}: {out}{err}"))
    }

    /// Fails unless `aos replay --verify` reports that the journal matches.
    pub fn replay(&self) -> Result<(), String> {
        let (code, out, err) = self.aos(&["replay", "--verify"]);
        check((code, out.trim()) == (0, "MATCH"), || format!("aos replay --verify: exit {code}: {out}{err}"))
    }
}

fn last_words(child: Child) -> NotUp {
    use std::os::unix::process::ExitStatusExt as _;
    match child.wait_with_output() {
        // Another signal is not ours: a daemon that aborts, or whose memory is on a full disk.
        Ok(output) if output.status.signal() == Some(Signal::KILL.as_raw()) => NotUp::Killed,
        Ok(output) => {
            NotUp::Refused(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
        }
        Err(why) => NotUp::Refused(why.to_string()),
    }
}

impl Daemon {
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// A field of `/proc/PID/status`: `VmRSS:` is the current resident memory, `VmHWM:` its peak.
    pub fn memory_bytes(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with(field));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    /// Sends SIGKILL to the daemon itself, also under a wrapper.
    pub fn kill(self) {
        drop(self);
    }

    /// Stops all its threads with SIGSTOP. System calls in progress still end; no new one begins.
    pub fn hold_still(&self) {
        crate::signal(self.pid, Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid);
        let runs = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            stat.is_ok_and(|stat| stat.contains(") R "))
        };
        while std::fs::read_dir(&tasks).is_ok_and(|mut tasks| tasks.any(runs)) {
            std::thread::yield_now();
        }
    }

    /// Waits until the daemon ends. Kills it after `patience`.
    pub fn await_death(mut self, patience: Duration) {
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
        // After a successful wait its pid may belong to another process.
        if let Ok(None) = self.child.try_wait() {
            crate::signal(self.pid, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
