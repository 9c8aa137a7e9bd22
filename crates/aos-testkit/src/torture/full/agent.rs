//! A writer that also opens and closes its sessions.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::check::verdict;
use crate::client::Client;
use crate::random::Random;
use crate::time::PATIENCE;
use crate::torture::load::{Workload, Writer};

#[derive(Debug)]
pub(super) struct Agent {
    pub(super) writer: Writer,
    name: String,
    root: PathBuf,
    random: Random,
    sessions: u64,
    /// Whether an open or a close was sent and not answered.
    is_between: bool,
}

/// Why an agent stopped.
#[derive(Debug)]
pub(super) enum Stopped {
    Asked,
    HungUp,
    Unexpected(String),
}

/// The params of a session whose commands may run.
pub(super) fn session_params(root: &Path) -> Value {
    json!({ "target": { "local": { "workdir": root } }, "policy": { "preset": "permissive" } })
}

const FULL: &str = "error / no_space";

impl Agent {
    pub(super) fn new(number: usize, root: &Path, workload: Workload, seed: u64) -> Result<Agent, String> {
        let name = format!("w{number}");
        let writer = Writer::new(&name, root, "", workload, seed);
        let writer = writer.map_err(|why| format!("cannot prepare {}: {why}", root.display()))?;
        let (root, random) = (root.to_owned(), Random::new(!seed));
        Ok(Agent { writer, name, root, random, sessions: 0, is_between: false })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn has_session(&self) -> bool {
        !self.writer.session.is_empty()
    }

    /// Works until `stop` is set or the daemon ends.
    pub(super) fn run(&mut self, home: &Path, stop: &AtomicBool) -> Stopped {
        let Ok(mut client) = Client::connect(home) else { return Stopped::HungUp };
        let _ = client.give_up_after(PATIENCE);
        while !stop.load(Ordering::Relaxed) {
            match self.step(&mut client) {
                Ok(true) => {}
                Ok(false) => return Stopped::HungUp,
                Err(why) => return Stopped::Unexpected(why),
            }
        }
        Stopped::Asked
    }

    /// One request. False when the daemon did not answer.
    pub(super) fn step(&mut self, client: &mut Client) -> Result<bool, String> {
        if !self.has_session() {
            return self.open(client);
        }
        if self.random.one_in(40) {
            return self.close(client);
        }
        self.writer.step(client)
    }

    pub(super) fn open(&mut self, client: &mut Client) -> Result<bool, String> {
        let Some((call, receipt)) = self.ask(client, "open", &session_params(&self.root)) else {
            return Ok(false);
        };
        match (verdict(&receipt).as_str(), receipt["session_id"].as_str()) {
            ("ready", Some(session)) => {
                self.writer.continue_in(session.to_owned());
                self.writer.acknowledged(call, &receipt)?;
            }
            (FULL, _) if self.writer.scarce.allowed => {
                self.writer.scarce.refused += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            _ => return Err(format!("open: {receipt}")),
        }
        Ok(true)
    }

    pub(super) fn close(&mut self, client: &mut Client) -> Result<bool, String> {
        let params = json!({ "session_id": self.writer.session, "signal": "term" });
        let Some((call, receipt)) = self.ask(client, "signal", &params) else { return Ok(false) };
        match verdict(&receipt).as_str() {
            "signaled" => {
                self.writer.continue_in(String::new());
                self.writer.acknowledged(call, &receipt)?;
            }
            FULL if self.writer.scarce.allowed => {
                // A close that cannot be recorded ends the session until the next start opens it again.
                self.writer.scarce.refused += 1;
                self.writer.continue_in(String::new());
            }
            _ => return Err(format!("close: {receipt}")),
        }
        Ok(true)
    }

    fn ask(&mut self, client: &mut Client, what: &str, params: &Value) -> Option<(String, Value)> {
        self.sessions += 1;
        let call = format!("{}-{what}-{}", self.name, self.sessions);
        self.is_between = true;
        let receipt = client.try_effect(&format!("host.session.{what}"), params, &call)?;
        self.is_between = false;
        Some((call, receipt))
    }

    /// After a kill: it is not known whether a session is open whose opening or closing was not answered.
    pub(super) fn was_killed(&mut self) {
        if std::mem::take(&mut self.is_between) {
            self.writer.continue_in(String::new());
        }
    }
}
