//! Pings the daemon every 100 ms while other work runs: it must always answer in time.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::time::bound;

/// The longest time that an answer of the daemon may take, under any load.
pub const ANSWER_MAX: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(100);

/// The results of the pings.
#[derive(Debug, Default, Clone)]
pub struct Pulse {
    pub answers: u64,
    /// Answers that took longer than [`ANSWER_MAX`], or were still missing after it when the daemon hung up.
    pub late: u64,
    /// Answers other than `ok`.
    pub refused: u64,
    pub slowest: Duration,
    /// The daemon hung up: expected where it is killed, a failure anywhere else.
    pub gone: bool,
}

impl Pulse {
    pub fn add(&mut self, other: &Pulse) {
        self.answers += other.answers;
        self.late += other.late;
        self.refused += other.refused;
        self.slowest = self.slowest.max(other.slowest);
        self.gone |= other.gone;
    }

    pub fn is_well(&self) -> bool {
        self.late + self.refused == 0
    }

    /// The failures of a run in which the daemon is not killed.
    pub fn complaint(&self) -> Option<String> {
        let gone = if self.gone { ", then the daemon was gone" } else { "" };
        (!self.is_well() || self.gone).then(|| format!("it did not always answer: {self}{gone}"))
    }

    fn answered(&mut self, took: Duration, well: bool) {
        self.answers += 1;
        self.slowest = self.slowest.max(took);
        self.late += u64::from(took > bound(ANSWER_MAX));
        self.refused += u64::from(!well);
    }

    fn hung_up(&mut self, took: Duration) {
        self.gone = true;
        self.late += u64::from(took > bound(ANSWER_MAX));
    }
}

impl std::fmt::Display for Pulse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (answers, late, refused) = (self.answers, self.late, self.refused);
        write!(
            f,
            "{answers} pings, {late} too late, {refused} refused, slowest {} ms",
            self.slowest.as_millis()
        )
    }
}

/// What the pings ask about.
#[derive(Debug, Clone, Copy)]
pub enum About<'a> {
    /// The daemon itself, where a request in a session would disturb the test.
    Status,
    Session(&'a str),
    /// A new session that is opened on this folder.
    Root(&'a Path),
}

/// Runs `work` and pings the daemon of `home` until `work` ends or the daemon is gone.
pub fn beside<T>(home: &Path, about: About<'_>, work: impl FnOnce() -> T) -> (T, Pulse) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| feel(home, about, &stop, &mut || ()));
        let done = work();
        stop.store(true, Ordering::Relaxed);
        asking.thread().unpark();
        (done, asking.join().unwrap_or_default())
    })
}

/// Pings until `stop` is set or the daemon is gone. Calls `each` after every ping.
pub fn feel(home: &Path, about: About<'_>, stop: &AtomicBool, each: &mut dyn FnMut()) -> Pulse {
    let mut pulse = Pulse::default();
    let Some((mut client, session)) = connect(home, about) else {
        return Pulse { gone: true, ..pulse };
    };
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        match question(&mut client, session.as_deref()) {
            Some(well) => pulse.answered(asked.elapsed(), well),
            None => {
                pulse.hung_up(asked.elapsed());
                break;
            }
        }
        each();
        std::thread::park_timeout(INTERVAL.saturating_sub(asked.elapsed()));
    }
    pulse
}

fn connect(home: &Path, about: About<'_>) -> Option<(Client, Option<String>)> {
    let mut client = Client::connect(home).ok()?;
    let session = match about {
        About::Status => None,
        About::Session(session) => Some(session.to_owned()),
        About::Root(root) => Some(client.open(root).ok()?),
    };
    Some((client, session))
}

/// Whether the answer is `ok`; `None` without an answer.
fn question(client: &mut Client, session: Option<&str>) -> Option<bool> {
    let Some(session) = session else {
        return client.call("daemon.status", &json!({})).map(|status| status["pid"].is_number());
    };
    let params = json!({ "session_id": session, "path": "." });
    client.try_effect("host.fs.stat", &params, "ping").map(|receipt| receipt["status"] == "ok")
}
