//! What the door holds: its sessions, its connections to the daemon, and what it remembers between calls.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::offer::{Offer, Order};
use crate::client::{Client, Progress};
use crate::tools::{self, Memory, Mount, Outcome, Profile};

/// What the program behind the door provides: the way to the daemon, and the record for people.
pub trait Record: Send + Sync {
    fn connect(&self) -> Result<Client, String>;
    /// The journal of one session, one line an entry, the newest last.
    fn journal(&self, session: &str) -> Result<String, String>;
}

/// A session that the door serves.
#[derive(Debug, Clone, Default)]
pub struct Place {
    pub session: String,
    pub staged: bool,
    pub virtual_tree: bool,
    pub mounts: Vec<Mount>,
}

/// The door. Clones share everything.
#[derive(Clone)]
pub struct Door {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) record: Box<dyn Record>,
    /// The first is the one that calls mean when they name none.
    pub(super) places: Vec<Place>,
    pub(super) offer: Offer,
    memory: Memory,
    idle: Mutex<Vec<Client>>,
    running: Mutex<HashSet<(String, String)>>,
    /// Warnings that the person does not want to be asked about again.
    pub(super) accepted: Mutex<HashSet<String>>,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("places", &self.shared.places).finish_non_exhaustive()
    }
}

/// Connections that wait for the next call.
const IDLE_MAX: usize = 16;

impl Door {
    /// `places` is not empty; the first is the default.
    pub fn new(record: Box<dyn Record>, places: Vec<Place>, profile: Profile) -> Door {
        assert!(!places.is_empty(), "BUG: a door without a session");
        let offer = Offer {
            sessions: places.iter().map(|place| place.session.clone()).collect(),
            profile,
            staged: places.iter().any(|place| place.staged),
        };
        let shared = Shared {
            record,
            places,
            offer,
            memory: Memory::default(),
            idle: Mutex::default(),
            running: Mutex::default(),
            accepted: Mutex::default(),
        };
        Door { shared: Arc::new(shared) }
    }

    pub(super) fn place(&self) -> &Place {
        &self.shared.places[0]
    }

    pub(super) fn offer(&self) -> &Offer {
        &self.shared.offer
    }

    /// Calls a tool and waits for it, however long that takes.
    pub(super) fn call(&self, order: &Order, watch: &mut dyn FnMut(Progress)) -> Outcome {
        match self.client() {
            Ok(client) => self.call_by(client, order, watch),
            Err(why) => tools::refused("daemon_gone", &why),
        }
    }

    /// Calls a quick tool and waits a moment. Where it takes longer, because another call holds the session, say,
    /// whoever calls it by the connection that comes back waits for the rest.
    pub(super) fn call_at_once(&self, order: &Order) -> Result<Outcome, Box<Client>> {
        const MOMENT: Duration = Duration::from_millis(5);
        let mut client = match self.client() {
            Ok(client) => client,
            Err(why) => return Ok(tools::refused("daemon_gone", &why)),
        };
        client.set_patience(Some(MOMENT));
        let outcome = self.ask(&mut client, order, &mut |_| {});
        client.set_patience(None);
        if client.is_late() {
            return Err(Box::new(client));
        }
        self.put_back(client, &outcome);
        Ok(outcome)
    }

    /// Calls a tool by this connection, or waits for the answer that is still to come by it.
    pub(super) fn call_by(
        &self,
        mut client: Client,
        order: &Order,
        watch: &mut dyn FnMut(Progress),
    ) -> Outcome {
        let key = (order.session.clone(), order.tool_call.clone());
        let runs = order.tool.runs_commands();
        if runs {
            self.running().insert(key.clone());
        }
        let outcome = self.ask(&mut client, order, watch);
        if runs {
            self.running().remove(&key);
        }
        self.put_back(client, &outcome);
        outcome
    }

    fn ask(&self, client: &mut Client, order: &Order, watch: &mut dyn FnMut(Progress)) -> Outcome {
        order.place(client, &self.shared.memory, watch)
    }

    /// One question on any connection. A connection that broke while nobody used it is replaced once.
    pub(super) fn question(&self, method: &str, params: &Value) -> Result<Value, String> {
        let mut client = self.client()?;
        let answer = client.call(method, &params.to_string()).map_err(|why| why.to_string())?;
        self.keep(client);
        serde_json::from_str(&answer).map_err(|why| why.to_string())
    }

    pub(super) fn client(&self) -> Result<Client, String> {
        let idle = self.shared.idle.lock().expect("BUG: nobody panics here").pop();
        match idle {
            Some(client) if client.is_connected() => Ok(client),
            // The daemon was restarted: its sessions are still there.
            _ => self.shared.record.connect(),
        }
    }

    fn put_back(&self, client: Client, after: &Outcome) {
        if after.fields.get("error_code").is_none_or(|code| code != "daemon_gone") {
            self.keep(client);
        }
    }

    pub(super) fn keep(&self, client: Client) {
        let mut idle = self.shared.idle.lock().expect("BUG: nobody panics here");
        if idle.len() < IDLE_MAX {
            idle.push(client);
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashSet<(String, String)>> {
        self.shared.running.lock().expect("BUG: nobody panics here")
    }

    /// Ends one command. It may not have started yet, so this asks until the call is `over`.
    pub(super) fn cancel(&self, session: &str, tool_call: &str, over: &AtomicBool) {
        const PAUSE: Duration = Duration::from_millis(20);
        const TRIES: usize = 500;
        let params = json!({ "session_id": session, "tool_call_id": tool_call });
        for _ in 0..TRIES {
            let ended = self.question("exec.cancel", &params).is_ok_and(|answer| answer["ended"] != 0);
            if ended || over.load(Ordering::Acquire) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The client is gone: nobody waits for its commands any more.
    pub fn end_commands(&self) {
        let running: Vec<_> = self.running().drain().collect();
        for (session, tool_call) in running {
            let params = json!({ "session_id": session, "tool_call_id": tool_call });
            let _ = self.question("exec.cancel", &params);
        }
    }
}
