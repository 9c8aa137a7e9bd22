//! The daemon seen from outside while it is tortured: how fast it answers, and how much memory it holds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::Wire;

/// An answer of the daemon may take so long, whatever goes on.
const ANSWER_MAX: Duration = Duration::from_secs(1);
const BETWEEN_PINGS: Duration = Duration::from_millis(100);
/// The most memory that a daemon may ever hold.
pub(crate) const RESIDENT_BYTES_MAX: u64 = 200 << 20;

/// How the daemon answered all along.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    answers: u64,
    late: u64,
    pub(crate) slowest: Duration,
    pub(crate) complaints: Vec<String>,
}

impl Pulse {
    fn answered(&mut self, well: bool, took: Duration) {
        self.answers += 1;
        self.slowest = self.slowest.max(took);
        if !well || took > ANSWER_MAX {
            self.late += 1;
            self.complaints.push(format!("the daemon took {took:?} to answer, well: {well}"));
        }
    }

    /// Takes the counts of a later part of the same run in; its complaints are the caller's.
    pub(crate) fn add(&mut self, other: &Pulse) {
        self.answers += other.answers;
        self.late += other.late;
        self.slowest = self.slowest.max(other.slowest);
    }
}

impl std::fmt::Display for Pulse {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (answers, late, slowest) = (self.answers, self.late, self.slowest.as_millis());
        write!(to, "{answers} pings, {late} too slow (slowest {slowest} ms)")
    }
}

/// Asks the daemon each 100 ms until it is told to stop, and lets `each` look at what else there is to see.
pub(crate) fn watch(home: &Path, root: &Path, stop: &AtomicBool, each: &mut dyn FnMut()) -> Pulse {
    let mut pulse = Pulse::default();
    let opened = Wire::connect(home)
        .map_err(|why| why.to_string())
        .and_then(|mut wire| wire.open(root).map(|session| (wire, session)));
    let (mut wire, session) = match opened {
        Ok(opened) => opened,
        Err(why) => {
            pulse.complaints.push(format!("nobody to ask: {why}"));
            return pulse;
        }
    };
    let params = json!({ "session_id": session, "path": "." });
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let answer = wire.effect("host.fs.stat", &params, "ping");
        let gone = answer.is_none();
        pulse.answered(answer.is_some_and(|answer| answer["status"] == "ok"), asked.elapsed());
        each();
        if gone {
            return pulse;
        }
        std::thread::sleep(BETWEEN_PINGS);
    }
    pulse
}

/// Runs `work` while the daemon is asked each 100 ms.
pub(crate) fn watched<T>(home: &Path, root: &Path, work: impl FnOnce() -> T) -> (T, Pulse) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pulse = scope.spawn(|| watch(home, root, &stop, &mut || ()));
        let outcome = work();
        stop.store(true, Ordering::Relaxed);
        (outcome, pulse.join().unwrap_or_default())
    })
}

/// The most memory that a process ever held.
pub(crate) fn resident_bytes_peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
