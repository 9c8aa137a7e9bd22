//! What the server holds: its sessions, its connections to the daemon, and what it remembers between calls.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::tool_set::{ToolCall, ToolSet};
use crate::client::Client;
use aos_tools::{LineOffsetCache, Mount, Outcome, Profile, Progress};

/// What the program behind the server provides: the way to the daemon, and the record for people.
pub trait Backend: Send + Sync {
    fn connect(&self) -> Result<Client, String>;
    /// The journal of one session, one line an entry, the newest last.
    fn journal(&self, session: &str) -> Result<String, String>;
}

/// A session that the server serves.
#[derive(Debug, Clone, Default)]
pub struct ServedSession {
    pub session: String,
    pub staged: bool,
    pub virtual_tree: bool,
    pub mounts: Vec<Mount>,
}

/// The server. Clones share everything.
#[derive(Clone)]
pub struct McpServer {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) record: Box<dyn Backend>,
    /// The first is the one that calls mean when they name none.
    pub(super) places: Vec<ServedSession>,
    pub(super) tool_set: ToolSet,
    memory: LineOffsetCache,
    idle: Mutex<Vec<Client>>,
    running: Mutex<HashSet<(String, String)>>,
    /// Warnings that the person does not want to be asked about again.
    pub(super) accepted: Mutex<HashSet<String>>,
}

impl std::fmt::Debug for McpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServer").field("places", &self.shared.places).finish_non_exhaustive()
    }
}

/// Connections that wait for the next call.
const IDLE_MAX: usize = 16;

impl McpServer {
    /// `places` is not empty; the first is the default.
    pub fn new(record: Box<dyn Backend>, places: Vec<ServedSession>, profile: Profile) -> McpServer {
        assert!(!places.is_empty(), "BUG: a server without a session");
        let tool_set = ToolSet {
            sessions: places.iter().map(|place| place.session.clone()).collect(),
            profile,
            staged: places.iter().any(|place| place.staged),
        };
        let shared = Shared {
            record,
            places,
            tool_set,
            memory: LineOffsetCache::default(),
            idle: Mutex::default(),
            running: Mutex::default(),
            accepted: Mutex::default(),
        };
        McpServer { shared: Arc::new(shared) }
    }

    pub(super) fn place(&self) -> &ServedSession {
        &self.shared.places[0]
    }

    pub(super) fn tool_set(&self) -> &ToolSet {
        &self.shared.tool_set
    }

    /// Calls a tool and waits for it, however long that takes.
    pub(super) fn call(&self, call: &ToolCall, watch: &mut dyn FnMut(Progress)) -> Outcome {
        match self.client() {
            Ok(client) => self.call_by(client, call, watch),
            Err(why) => aos_tools::refused("daemon_gone", &why),
        }
    }

    /// Calls a quick tool and waits a moment. Where it takes longer, because another call holds the session, say,
    /// whoever calls it by the connection that comes back waits for the rest.
    pub(super) fn call_at_once(&self, call: &ToolCall) -> Result<Outcome, Box<Client>> {
        const MOMENT: Duration = Duration::from_millis(5);
        let mut client = match self.client() {
            Ok(client) => client,
            Err(why) => return Ok(aos_tools::refused("daemon_gone", &why)),
        };
        client.set_patience(Some(MOMENT));
        let outcome = self.ask(&mut client, call, &mut |_| {});
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
        call: &ToolCall,
        watch: &mut dyn FnMut(Progress),
    ) -> Outcome {
        let key = (call.session.clone(), call.id.clone());
        let runs = call.tool.runs_commands();
        if runs {
            self.running().insert(key.clone());
        }
        let outcome = self.ask(&mut client, call, watch);
        if runs {
            self.running().remove(&key);
        }
        self.put_back(client, &outcome);
        outcome
    }

    fn ask(&self, client: &mut Client, call: &ToolCall, watch: &mut dyn FnMut(Progress)) -> Outcome {
        call.run(client, &self.shared.memory, watch)
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
