//! Sends the effects of one history, and kills the daemon during some of them.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{Wrong, acts, ensure};
use crate::client::Client;
use crate::random::Random;
use crate::torture::{Daemon, Setup};

/// The connection of one history.
pub(super) struct Calls<'a> {
    setup: &'a Setup,
    daemon: &'a mut Option<Daemon>,
    client: Client,
    /// The number of effects so far; each has an id with its number.
    pub(super) number: u64,
    pub(super) kills: u64,
    /// What happened so far, as text.
    pub(super) told: Vec<String>,
}

/// One effect of a session.
pub(super) struct Effect<'r> {
    pub(super) session: &'r str,
    pub(super) kind: &'r str,
    pub(super) params: Value,
    /// A new id if there is none.
    pub(super) call: Option<&'r str>,
    pub(super) turn: Option<&'r str>,
}

/// The result of an effect.
pub(super) struct Answer {
    pub(super) receipt: Value,
    /// The daemon was killed during the effect; without an answer, the receipt is from the journal.
    pub(super) killed: bool,
    pub(super) begun_ns: i64,
}

impl Answer {
    pub(super) fn is(&self, status: &str) -> bool {
        self.receipt["status"] == status
    }

    pub(super) fn text(&self, field: &str) -> String {
        self.receipt[field].as_str().unwrap_or_default().to_owned()
    }
}

/// When the daemon is killed during an effect of this kind.
pub(super) fn some_moment(random: &mut Random, kind: &str) -> Duration {
    // Commands take longer than other effects, and most of that time passes before they change anything.
    let moment_us_max = if kind == acts::COMMAND { 25_000 } else { 4_000 };
    Duration::from_micros(random.below(moment_us_max) as u64)
}

impl<'a> Calls<'a> {
    pub(super) fn new(setup: &'a Setup, daemon: &'a mut Option<Daemon>) -> Result<Calls<'a>, Wrong> {
        let client = setup.client()?;
        Ok(Calls { setup, daemon, client, number: 0, kills: 0, told: Vec::new() })
    }

    pub(super) fn open(&mut self, params: &Value) -> Result<String, Wrong> {
        let session = self.client.open_with(params)?;
        self.told.push(format!("open {params} -> {session}"));
        Ok(session)
    }

    /// Sends one effect. With `kill`, the daemon is killed after this time and started again. The journal then says
    /// whether the effect was done.
    pub(super) fn send(&mut self, effect: Effect<'_>, kill: Option<Duration>) -> Result<Answer, Wrong> {
        let Effect { session, kind, mut params, call, turn } = effect;
        self.number += 1;
        let call_id = call.map_or_else(|| format!("call{}", self.number), str::to_owned);
        params["session_id"] = json!(session);
        let mut call = json!({ "kind": kind, "params": params, "tool_call_id": call_id });
        if let Some(turn) = turn {
            call["turn_id"] = json!(turn);
        }
        let begun_ns = now_ns();
        let answer = match kill {
            Some(moment) => self.ask_and_kill(&call, moment)?,
            None => self.client.call("effect.call", &call),
        };
        let receipt = match answer {
            Some(receipt) => receipt,
            None if kill.is_some() => self.journaled(session, &call_id)?,
            None => return Err(Wrong::from(format!("the daemon died of {call}"))),
        };
        self.told.push(format!("{}{call} -> {receipt}", if kill.is_some() { "KILLED " } else { "" }));
        Ok(Answer { receipt, killed: kill.is_some(), begun_ns })
    }

    fn ask_and_kill(&mut self, call: &Value, moment: Duration) -> Result<Option<Value>, Wrong> {
        let daemon = self.daemon.take().ok_or_else(|| "no daemon".to_owned())?;
        let client = &mut self.client;
        let answer = std::thread::scope(|scope| {
            let asking = scope.spawn(move || client.call("effect.call", call));
            std::thread::sleep(moment);
            daemon.kill();
            asking.join().unwrap_or_default()
        });
        self.kills += 1;
        *self.daemon = Some(self.setup.start_daemon(&[])?);
        self.client = self.setup.client()?;
        Ok(answer)
    }

    /// The receipt of a call in the journal; null when it is not there.
    fn journaled(&self, session: &str, call_id: &str) -> Result<Value, Wrong> {
        let (code, out, err) = self.setup.aos(&["log", "--json", "--session", session]);
        if code != 0 {
            return Err(format!("aos log: exit {code}: {err}").into());
        }
        let entries = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut of_call = entries.filter(|entry| entry["tool_call_id"] == call_id);
        let receipt = of_call.next().map(|mut entry| entry["receipt"].take()).unwrap_or_default();
        if of_call.next().is_some() {
            return Err(format!("{call_id} is in the journal twice").into());
        }
        let left = receipt["not_rolled_back"].as_array().map_or(0, Vec::len);
        ensure(left == 0, || format!("{call_id} was left half done: {receipt}"))?;
        Ok(receipt)
    }

    /// A question that is not an effect.
    pub(super) fn query(&mut self, method: &str, params: &Value) -> Result<Value, Wrong> {
        let answer = self.client.call(method, params);
        Ok(answer.ok_or_else(|| format!("the daemon died of {method} {params}"))?)
    }

    pub(super) fn close(&mut self, session: &str) -> Result<(), Wrong> {
        let params = json!({ "session_id": session, "signal": "term" });
        let closed = self.client.try_effect("host.session.signal", &params, "close").unwrap_or_default();
        self.told.push(format!("close {session} -> {closed}"));
        ensure(closed["status"] == "signaled", || format!("the session does not close: {closed}"))
    }

    /// Adds what happened so far to a complaint.
    pub(super) fn tell(&self, wrong: Wrong) -> Wrong {
        Wrong { text: format!("{}\n{}", wrong.text, self.told.join("\n")), ..wrong }
    }
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos() as i64)
}
