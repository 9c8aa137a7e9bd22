//! Sessions: opening, listing and ending them, and holding what a live one needs.

mod open;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use aos_model::capability::Capability;
use aos_model::entry::Fact;
use aos_model::limits;
use aos_model::policy::Policy;
use aos_model::receipt::{Body, ListedSession, Warning};
use aos_model::refusal::{Code, Refusal, Status};
use aos_model::request::{OnFailure, SessionSignal, Signal};
use aos_model::state::{SessionRecord, SessionState, decode_session, session_key};

use crate::exec::ExecConfig;
use crate::host::Host;
use crate::jail::Jail;
use crate::lane::Lane;
use crate::snapshot::Ledger;
use crate::spine::Done;
use crate::tree::{self, Layer};

pub(crate) use open::open;
use open::open_recorded;

/// A session that is being served.
#[derive(Debug)]
pub(crate) struct OpenSession {
    pub(crate) id: String,
    pub(crate) jail: Jail,
    pub(crate) capability: Capability,
    pub(crate) policy: Policy,
    pub(crate) expires_at_ns: Option<u64>,
    pub(crate) lane: Arc<Lane>,
    /// The roots as policy wants them.
    pub(crate) workspaces: Vec<String>,
    pub(crate) workdir_shown: String,
    pub(crate) auto_snapshot: bool,
    pub(crate) snapshot_bytes_max: u64,
    /// Folders that commands change for good, as globs.
    pub(crate) capture_exclude: Vec<String>,
    pub(crate) on_failure: OnFailure,
    pub(crate) ledger: Ledger,
    manifests: Arc<aos_store::Manifests>,
    /// What its commands get, and which are running.
    pub(crate) exec_config: ExecConfig,
    /// The tree that its changes stay in, unless it works on the disk.
    pub(crate) layer: Option<Layer>,
    bank: Arc<aos_store::Bank>,
    bank_dir: OnceLock<OwnedFd>,
    bank_opening: Mutex<()>,
    ended: AtomicBool,
}

impl OpenSession {
    /// The session's folder of pre-images, opened when first needed.
    pub(crate) fn bank_dir(&self) -> Result<&OwnedFd, Refusal> {
        if let Some(dir) = self.bank_dir.get() {
            return Ok(dir);
        }
        let _one_at_a_time = self.bank_opening.lock().expect("BUG: nobody panics opening the bank");
        if self.bank_dir.get().is_none() {
            let _ = self.bank_dir.set(self.bank.session(&self.id)?);
        }
        Ok(self.bank_dir.get().expect("BUG: it was set above"))
    }
}

impl OpenSession {
    /// It works in a tree with nothing of the host's below.
    pub(crate) fn is_virtual(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| !layer.is_staged)
    }

    /// A mutation may have waited for its turn while the session was closed.
    pub(crate) fn still_open(&self) -> Result<(), Refusal> {
        if self.ended.load(Ordering::Acquire) { Err(self.closed()) } else { Ok(()) }
    }

    pub(crate) fn closed(&self) -> Refusal {
        Refusal::new(Code::SessionClosed, format!("session {} is closed; open a new one", self.id))
    }
}

impl Drop for OpenSession {
    /// Pre-images and private folders go with their session, but only when the last mutation under way has let go of it.
    fn drop(&mut self) {
        if self.ended.load(Ordering::Acquire) {
            let _ = self.bank.drop_session(&self.id);
            let _ = self.manifests.drop_session(&self.id);
            self.exec_config.drop_rooms();
        }
    }
}

/// All sessions that are open.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: RwLock<HashMap<String, Arc<OpenSession>>>,
}

impl Sessions {
    pub(crate) fn get(&self, session_id: &str) -> Option<Arc<OpenSession>> {
        self.open.read().expect("BUG: nobody panics here").get(session_id).cloned()
    }

    /// The roots of all sessions but one, those that are wanted.
    pub(crate) fn roots_of_others(&self, session_id: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let open = self.open.read().expect("BUG: nobody panics here");
        let others = open.values().filter(|session| session.id != session_id);
        let roots = others.flat_map(|session| &session.jail.roots).filter(|root| wanted(&root.path));
        roots.map(|root| root.path.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.read().expect("BUG: nobody panics here").len()
    }

    pub(crate) fn each(&self, each: impl FnMut(&Arc<OpenSession>)) {
        self.open.read().expect("BUG: nobody panics here").values().for_each(each);
    }

    fn insert(&self, session: OpenSession) {
        self.open.write().expect("BUG: nobody panics here").insert(session.id.clone(), Arc::new(session));
    }

    /// Takes a session out and ends its commands, those that do not end by themselves after `grace`. Its pre-images go
    /// when the last one that works in it is done.
    fn end(&self, session_id: &str, grace: Option<Duration>) -> bool {
        let taken = self.open.write().expect("BUG: nobody panics here").remove(session_id);
        if let Some(session) = &taken {
            session.ended.store(true, Ordering::Release);
            session.exec_config.running.close(grace);
        }
        taken.is_some()
    }

    fn past_their_time(&self, now_ns: u64) -> Vec<String> {
        let open = self.open.read().expect("BUG: nobody panics here");
        open.values()
            .filter(|session| session.expires_at_ns.is_some_and(|end| end <= now_ns))
            .map(|session| session.id.clone())
            .collect()
    }
}

/// Brings back the sessions that were open when the last daemon ended. What cannot be pinned again is closed;
/// those are returned, for the journal to say so.
pub(crate) fn revive(host: &Host, records: Vec<SessionRecord>) -> Vec<(String, SessionState, String)> {
    let now_ns = (host.machine.now_ns)();
    let mut ended = Vec::new();
    for record in records {
        if record.expires_at_ns.is_some_and(|end| end <= now_ns) {
            ended.push((record.session_id, SessionState::Expired, "its time to session is over".to_owned()));
            continue;
        }
        let policy = Policy::compile(record.policy.clone())
            .map_err(|why| Refusal::new(Code::InvalidPolicy, why.to_string()));
        let revived = policy.and_then(|policy| {
            let tree = tree::read(host, &record.session_id)?;
            open_recorded(host, &record, policy, Ledger::default(), tree)
        });
        match revived {
            Ok(session) => host.sessions.insert(session),
            Err(refusal) => ended.push((record.session_id, SessionState::Closed, refusal.message)),
        }
    }
    ended
}

/// The live session of a request, or why there is none.
pub(crate) fn find_session(host: &Host, session_id: &str) -> Result<Arc<OpenSession>, Refusal> {
    if let Some(session) = host.sessions.get(session_id) {
        match session.expires_at_ns {
            Some(end) if end <= (host.machine.now_ns)() => expire(host, session_id),
            _ => return Ok(session),
        }
    }
    Err(match ended_state(host, session_id)? {
        Some(SessionState::Expired) => {
            Refusal::new(Code::SessionExpired, format!("session {session_id} has expired; open a new one"))
        }
        // One that is open in the record and not here is being closed at this moment.
        Some(SessionState::Closed | SessionState::Open) => {
            Refusal::new(Code::SessionClosed, format!("session {session_id} is closed; open a new one"))
        }
        None => not_found(session_id),
    })
}

fn not_found(session_id: &str) -> Refusal {
    let shown: String = aos_model::text::escape(session_id).chars().take(100).collect();
    Refusal::new(
        Code::SessionNotFound,
        format!("there is no session `{shown}`; `aos session list` shows them"),
    )
}

fn ended_state(host: &Host, session_id: &str) -> Result<Option<SessionState>, Refusal> {
    let bytes = host.journal.state(&session_key(session_id))?;
    Ok(bytes.and_then(|bytes| decode_session(&bytes)).map(|record| record.state))
}

/// Ends a session whose time is over, and says so in the journal.
fn expire(host: &Host, session_id: &str) {
    if host.sessions.end(session_id, None) {
        let fact = Fact::SessionEnded { session_id: session_id.to_owned(), state: SessionState::Expired };
        host.note("host.session.expired", session_id, "its time to session is over", fact);
    }
}

pub(crate) fn expire_all(host: &Host) {
    for session_id in host.sessions.past_their_time((host.machine.now_ns)()) {
        expire(host, &session_id);
    }
}

/// `host.session.list`.
pub(crate) fn list(host: &Host) -> Result<Done, Refusal> {
    expire_all(host);
    let mut sessions = Vec::new();
    host.journal.state_below(&session_key(""), &mut |_, bytes| {
        let Some(record) = decode_session(bytes) else { return };
        let listed = ListedSession {
            session_id: &record.session_id,
            target: &record.target,
            state: record.state,
            started_at_ns: record.started_at_ns,
            expires_at_ns: record.expires_at_ns,
            labels: record.labels.as_ref(),
            mounts: &record.mounts,
        };
        sessions.push(serde_json::value::to_raw_value(&listed).expect("BUG: a listing is plain data"));
    })?;
    Ok(Done::new(Status::Ok, Body::Listed { sessions }, Vec::new()))
}

/// Between asking commands to end and killing them.
pub(crate) const GRACE_NS_DEFAULT: u64 = 2_000_000_000;

/// `host.session.signal`.
pub(crate) fn signal(host: &Host, request: &SessionSignal) -> Result<Done, Refusal> {
    expire_all(host);
    let session_id = request.session_id.as_str();
    let Some(session) = host.sessions.get(session_id) else {
        let known = ended_state(host, session_id)?.is_some();
        if !known {
            return Err(Refusal { code: Code::SignalSessionNotFound, ..not_found(session_id) });
        }
        return Ok(Done::new(Status::AlreadyExited, Body::Signaled {}, Vec::new()));
    };
    let grace = Duration::from_nanos(request.grace_timeout_ns.unwrap_or(GRACE_NS_DEFAULT));
    let grace = (request.signal == Signal::Term).then_some(grace);
    let mut done = Done::new(Status::Signaled, Body::Signaled {}, Vec::<Warning>::new());
    match request.signal {
        Signal::Int => session.exec_config.running.interrupt(),
        // Of two that close at once, one does it; the other finds it done.
        Signal::Term | Signal::Kill if host.sessions.end(session_id, grace) => {
            done.facts
                .push(Fact::SessionEnded { session_id: session_id.to_owned(), state: SessionState::Closed });
        }
        Signal::Term | Signal::Kill => {
            return Ok(Done::new(Status::AlreadyExited, Body::Signaled {}, Vec::new()));
        }
    }
    Ok(done)
}

/// Takes back a session whose opening could not be written down.
pub(crate) fn forget(host: &Host, session_id: &str) {
    host.sessions.end(session_id, None);
}

/// How many sessions this machine lets us hold open: each pins its roots.
pub(crate) fn sessions_max() -> usize {
    let descriptors =
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    (descriptors.saturating_sub(512) / 4).min(limits::SESSIONS_OPEN_MAX as u64) as usize
}
