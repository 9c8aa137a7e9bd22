//! The state of the MCP server: its sessions, its connections to the daemon, and its caches.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::tool_set::{ToolCall, ToolSet};
use crate::client::Client;
use aos_tools::{LineOffsetCache, Mount, Outcome, Profile, Progress};

/// What the program provides: connections to the daemon, and the journal as text.
pub trait Backend: Send + Sync {
    fn connect(&self) -> Result<Client, String>;
    /// The journal of one session, one line per entry, newest last.
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

/// What a client of the server sees.
#[derive(Debug, Clone, Copy)]
pub struct McpOptions {
    pub profile: Profile,
    /// Whether results have the receipt's fields as `structuredContent` beside the text.
    pub structured: bool,
}

/// The server. Clones share everything.
#[derive(Clone)]
pub struct McpServer {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) backend: Box<dyn Backend>,
    /// Not empty; the first is the default.
    sessions: Vec<ServedSession>,
    pub(super) tool_set: ToolSet,
    line_offsets: LineOffsetCache,
    idle: Mutex<Vec<Client>>,
    running: Mutex<HashSet<(String, String)>>,
}

impl std::fmt::Debug for McpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServer").field("sessions", &self.shared.sessions).finish_non_exhaustive()
    }
}

/// The most idle connections.
const IDLE_MAX: usize = 16;

impl McpServer {
    /// `sessions` is not empty; the first is the default.
    pub fn new(backend: Box<dyn Backend>, sessions: Vec<ServedSession>, options: McpOptions) -> McpServer {
        assert!(!sessions.is_empty(), "BUG: a server without a session");
        let tool_set = ToolSet {
            sessions: sessions.iter().map(|served| served.session.clone()).collect(),
            profile: options.profile,
            staged: sessions.iter().any(|served| served.staged),
            structured: options.structured,
        };
        let shared = Shared {
            backend,
            sessions,
            tool_set,
            line_offsets: LineOffsetCache::default(),
            idle: Mutex::default(),
            running: Mutex::default(),
        };
        McpServer { shared: Arc::new(shared) }
    }

    pub(super) fn default_session(&self) -> &ServedSession {
        &self.shared.sessions[0]
    }

    pub(super) fn tool_set(&self) -> &ToolSet {
        &self.shared.tool_set
    }

    /// Calls a tool and waits for it, however long that takes.
    pub(super) fn call(&self, call: &ToolCall, on_progress: &mut dyn FnMut(Progress)) -> Outcome {
        match self.client() {
            Ok(client) => self.call_on(client, call, on_progress),
            Err(why) => aos_tools::refused("daemon_gone", &why),
        }
    }

    /// Calls a tool and waits a few milliseconds. If it takes longer, because another call holds the session for
    /// example, [`McpServer::call_on`] with the returned connection waits for the answer.
    pub(super) fn try_call(&self, call: &ToolCall) -> Result<Outcome, Box<Client>> {
        const TIMEOUT: Duration = Duration::from_millis(5);
        let mut client = match self.client() {
            Ok(client) => client,
            Err(why) => return Ok(aos_tools::refused("daemon_gone", &why)),
        };
        client.set_timeout(Some(TIMEOUT));
        let outcome = call.run(&mut client, &self.shared.line_offsets, &mut |_| {});
        client.set_timeout(None);
        if client.is_pending() {
            return Err(Box::new(client));
        }
        self.put_back(client, &outcome);
        Ok(outcome)
    }

    /// Calls a tool on this connection, or waits for the answer that is pending on it.
    pub(super) fn call_on(
        &self,
        mut client: Client,
        call: &ToolCall,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Outcome {
        let key = (call.session.clone(), call.id.clone());
        let runs = call.tool.runs_commands();
        if runs {
            self.running().insert(key.clone());
        }
        let outcome = call.run(&mut client, &self.shared.line_offsets, on_progress);
        if runs {
            self.running().remove(&key);
        }
        self.put_back(client, &outcome);
        outcome
    }

    /// Calls a method of the daemon on any connection.
    pub(super) fn query(&self, method: &str, params: &Value) -> Result<Value, String> {
        let mut client = self.client()?;
        let answer = client.call(method, &params.to_string()).map_err(|why| why.to_string())?;
        self.keep(client);
        serde_json::from_str(&answer).map_err(|why| why.to_string())
    }

    pub(super) fn client(&self) -> Result<Client, String> {
        let idle = self.shared.idle.lock().expect("BUG: lock poisoned").pop();
        match idle {
            Some(client) if client.is_connected() => Ok(client),
            // The daemon may have been restarted: its sessions still exist.
            _ => self.shared.backend.connect(),
        }
    }

    fn put_back(&self, client: Client, after: &Outcome) {
        if after.fields.get("error_code").is_none_or(|code| code != "daemon_gone") {
            self.keep(client);
        }
    }

    pub(super) fn keep(&self, client: Client) {
        let mut idle = self.shared.idle.lock().expect("BUG: lock poisoned");
        if idle.len() < IDLE_MAX {
            idle.push(client);
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashSet<(String, String)>> {
        self.shared.running.lock().expect("BUG: lock poisoned")
    }

    /// Ends one command. It may not have started yet, so this retries until the call has `finished`.
    pub(super) fn cancel(&self, session: &str, tool_call: &str, finished: &AtomicBool) {
        const RETRY_INTERVAL: Duration = Duration::from_millis(20);
        const TRIES_MAX: usize = 500;
        let params = json!({ "session_id": session, "tool_call_id": tool_call });
        for _ in 0..TRIES_MAX {
            let ended = self.query("exec.cancel", &params).is_ok_and(|answer| answer["ended"] != 0);
            if ended || finished.load(Ordering::Acquire) {
                return;
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Ends the running commands, when the client has disconnected.
    pub fn end_commands(&self) {
        let running: Vec<_> = self.running().drain().collect();
        for (session, tool_call) in running {
            let params = json!({ "session_id": session, "tool_call_id": tool_call });
            let _ = self.query("exec.cancel", &params);
        }
    }
}
