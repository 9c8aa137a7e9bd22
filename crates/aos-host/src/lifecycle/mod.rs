//! The lifecycle of sessions: open, find, list, signal, expire, and reopen after a restart.

mod open;
mod worktree;

use std::sync::Arc;
use std::time::Duration;

use aos_model::entry::Fact;
use aos_model::limits;
use aos_model::policy::Policy;
use aos_model::receipt::{Body, ListedSession, Warning};
use aos_model::records::{SessionRecord, SessionState};
use aos_model::refusal::{Code, Refusal, Status};
use aos_model::request::{SessionSignal, Signal};
use aos_model::state::{decode_session, session_key};

use crate::host::Host;
use crate::layer;
use crate::ledger::Ledger;
use crate::outcome::Done;
use crate::session::OpenSession;

pub(crate) use open::open;
use open::open_recorded;

/// Reopens the sessions that were open when the last daemon ended. Sessions whose roots cannot be pinned again are
/// closed and returned, so that the caller can journal it.
pub(crate) fn reopen_all(host: &Host, records: Vec<SessionRecord>) -> Vec<(String, SessionState, String)> {
    let now_ns = (host.machine.now_ns)();
    let mut ended = Vec::new();
    for record in records {
        if record.expires_at_ns.is_some_and(|end| end <= now_ns) {
            ended.push((record.session_id, SessionState::Expired, "its time to live is over".to_owned()));
            continue;
        }
        let policy = Policy::compile_recorded(record.policy.clone())
            .map_err(|why| Refusal::new(Code::InvalidPolicy, why.to_string()));
        let reopened = policy.and_then(|policy| {
            let tree = layer::read(host, &record.session_id)?;
            open_recorded(host, &record, policy, Ledger::default(), tree)
        });
        match reopened {
            Ok(session) => host.sessions.insert(session),
            Err(refusal) => ended.push((record.session_id, SessionState::Closed, refusal.message)),
        }
    }
    ended
}

/// The open session of a request, or the reason why it is not open.
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
        // Open in the journal but not in the table: it is being closed right now.
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
        format!("there is no session `{shown}`; `aos session list` lists them"),
    )
}

fn ended_state(host: &Host, session_id: &str) -> Result<Option<SessionState>, Refusal> {
    let bytes = host.journal.state(&session_key(session_id))?;
    Ok(bytes.and_then(|bytes| decode_session(&bytes)).map(|record| record.state))
}

/// Ends an expired session and journals it.
fn expire(host: &Host, session_id: &str) {
    if host.sessions.end(session_id, None) {
        let fact = Fact::SessionEnded { session_id: session_id.to_owned(), state: SessionState::Expired };
        host.note("host.session.expired", session_id, "its time to live is over", Some(fact));
    }
}

pub(crate) fn expire_all(host: &Host) {
    for session_id in host.sessions.expired((host.machine.now_ns)()) {
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

/// The time between SIGTERM and SIGKILL for commands.
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
        // If two requests close a session at once, the second one gets `already_exited`.
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

/// Ends a session whose opening could not be journaled.
pub(crate) fn forget(host: &Host, session_id: &str) {
    host.sessions.end(session_id, None);
}

/// The number of sessions that the descriptor limit allows: each pins its roots.
pub(crate) fn sessions_max() -> usize {
    let descriptors =
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    (descriptors.saturating_sub(512) / 4).min(limits::SESSIONS_OPEN_MAX as u64) as usize
}
