//! Sessions: opening, listing and ending them, and holding what a live one needs.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use aos_model::capability::Capability;
use aos_model::entry::Fact;
use aos_model::limits::{LABEL_BYTES_MAX, LABELS_MAX, ROOTS_MAX, SNAPSHOT_BYTES_DEFAULT};
use aos_model::path::Spelled;
use aos_model::policy::{Policy, PolicySpec};
use aos_model::receipt::{Body, ListedSession, Opened, Warning};
use aos_model::refusal::{Code, Refusal, Status};
use aos_model::request::{Isolation, LocalTarget, OnFailure, SessionOpen, SessionSignal, Signal, TargetSpec};
use aos_model::state::{SessionRecord, SessionState, decode_session, session_key};
use aos_model::strict::{self, Invalid};
use aos_model::{id, limits};

use crate::exec::Outfit;
use crate::host::Host;
use crate::jail::{Jail, Root};
use crate::lane::Lane;
use crate::snapshot::Ledger;
use crate::spine::Done;

/// A session that is being served.
#[derive(Debug)]
pub(crate) struct Live {
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
    pub(crate) outfit: Outfit,
    bank: Arc<aos_store::Bank>,
    bank_dir: OnceLock<OwnedFd>,
    bank_opening: Mutex<()>,
    ended: AtomicBool,
}

impl Live {
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

impl Live {
    /// A mutation may have waited for its turn while the session was closed.
    pub(crate) fn still_open(&self) -> Result<(), Refusal> {
        if self.ended.load(Ordering::Acquire) { Err(self.closed()) } else { Ok(()) }
    }

    pub(crate) fn closed(&self) -> Refusal {
        Refusal::new(Code::SessionClosed, format!("session {} is closed; open a new one", self.id))
    }
}

impl Drop for Live {
    /// Pre-images and private folders go with their session, but only when the last mutation under way has let go of it.
    fn drop(&mut self) {
        if self.ended.load(Ordering::Acquire) {
            let _ = self.bank.drop_session(&self.id);
            let _ = self.manifests.drop_session(&self.id);
            self.outfit.drop_rooms();
        }
    }
}

/// All sessions that are open.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: RwLock<HashMap<String, Arc<Live>>>,
}

impl Sessions {
    pub(crate) fn get(&self, session_id: &str) -> Option<Arc<Live>> {
        self.open.read().expect("BUG: nobody panics here").get(session_id).cloned()
    }

    /// The roots of all sessions but one, those that are wanted.
    pub(crate) fn roots_of_others(&self, session_id: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let open = self.open.read().expect("BUG: nobody panics here");
        let others = open.values().filter(|live| live.id != session_id);
        let roots = others.flat_map(|live| &live.jail.roots).filter(|root| wanted(&root.path));
        roots.map(|root| root.path.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.read().expect("BUG: nobody panics here").len()
    }

    pub(crate) fn each(&self, each: impl FnMut(&Arc<Live>)) {
        self.open.read().expect("BUG: nobody panics here").values().for_each(each);
    }

    fn insert(&self, live: Live) {
        self.open.write().expect("BUG: nobody panics here").insert(live.id.clone(), Arc::new(live));
    }

    /// Takes a session out and ends its commands, those that do not end by themselves after `grace`. Its pre-images go
    /// when the last one that works in it is done.
    fn end(&self, session_id: &str, grace: Option<Duration>) -> bool {
        let taken = self.open.write().expect("BUG: nobody panics here").remove(session_id);
        if let Some(live) = &taken {
            live.ended.store(true, Ordering::Release);
            live.outfit.running.close(grace);
        }
        taken.is_some()
    }

    fn past_their_time(&self, now_ns: u64) -> Vec<String> {
        let open = self.open.read().expect("BUG: nobody panics here");
        open.values()
            .filter(|live| live.expires_at_ns.is_some_and(|end| end <= now_ns))
            .map(|live| live.id.clone())
            .collect()
    }
}

/// `host.session.open`.
pub(crate) fn open(host: &Host, request: &SessionOpen) -> Result<Done, Refusal> {
    if host.sessions.len() >= host.sessions_max {
        expire_all(host);
    }
    if host.sessions.len() >= host.sessions_max {
        return Err(Refusal::new(
            Code::TooManySessions,
            format!("{} sessions are open already; close some with `aos session close`", host.sessions.len()),
        ));
    }
    let local = local_target(&request.target)?;
    let (applied, warning) =
        host.executor.abilities().apply(request.isolation.unwrap_or(Isolation::Auto), local.network_mode)?;
    check_labels(request)?;
    let capability: Capability = inner(request.capability.as_deref(), Code::InvalidCapability)?;
    let spec: PolicySpec = inner(request.policy.as_deref(), Code::InvalidPolicy)?;
    let policy =
        Policy::compile(spec).map_err(|why| Refusal::new(Code::InvalidPolicy, format!("policy: {why}")))?;
    let record = describe(host, request, local, capability, &policy)?;
    let live = enliven(host, &record, policy, Ledger::empty())?;
    let opened = Opened {
        session_id: record.session_id.clone(),
        started_at_ns: record.started_at_ns,
        expires_at_ns: record.expires_at_ns,
        isolation_applied: applied.word(),
        capability: live.capability.clone(),
        policy: live.policy.clone(),
    };
    host.sessions.insert(live);
    let mut done = Done::new(Status::Ready, Body::Opened(Box::new(opened)), warning.into_iter().collect());
    done.facts.push(Fact::SessionOpened(Box::new(record)));
    Ok(done)
}

fn local_target(target: &TargetSpec) -> Result<&LocalTarget, Refusal> {
    match target {
        TargetSpec::Local(local) => Ok(local),
        TargetSpec::Vfs(_) | TargetSpec::Staged(_) => Err(Refusal::new(
            Code::UnsupportedTarget,
            "this build serves `local` targets; `vfs` and `staged` come with a later one",
        )),
    }
}

/// A capability or a policy given inside the request: what is wrong in it has a code of its own.
fn inner<T: serde::de::DeserializeOwned>(
    raw: Option<&serde_json::value::RawValue>,
    code: Code,
) -> Result<T, Refusal> {
    let field = if code == Code::InvalidPolicy { "policy" } else { "capability" };
    strict::parse(raw.map_or("{}", serde_json::value::RawValue::get)).map_err(|invalid| match invalid {
        Invalid::Syntax(why) | Invalid::Shape(why) => Refusal::new(code, format!("{field}: {why}")),
    })
}

fn check_labels(request: &SessionOpen) -> Result<(), Refusal> {
    let Some(labels) = &request.labels else { return Ok(()) };
    let too_long = |text: &String| text.len() > LABEL_BYTES_MAX;
    if labels.0.len() > LABELS_MAX || labels.0.iter().any(|(key, value)| too_long(key) || too_long(value)) {
        return Err(Refusal::new(
            Code::InvalidParams,
            format!("field `labels`: at most {LABELS_MAX} labels of at most {LABEL_BYTES_MAX} bytes each"),
        ));
    }
    Ok(())
}

/// Pins the workdir and the roots once, and writes down what is in force.
fn describe(
    host: &Host,
    request: &SessionOpen,
    local: &LocalTarget,
    mut capability: Capability,
    policy: &Policy,
) -> Result<SessionRecord, Refusal> {
    let workdir = pin_workdir(&local.workdir)?;
    let roots = pin_roots(capability.fs_roots.as_deref(), &workdir)?;
    capability.fs_roots = Some(roots.iter().map(Root::shown).collect());
    let now_ns = (host.machine.now_ns)();
    Ok(SessionRecord {
        session_id: id::make(id::SESSION, now_ns, (host.machine.random)()),
        state: SessionState::Open,
        started_at_ns: now_ns,
        expires_at_ns: request.session_ttl_ns.map(|ttl| now_ns.saturating_add(ttl)),
        target: serde_json::value::to_raw_value(&request.target).expect("BUG: a target is plain data"),
        workdir: workdir.record(),
        roots: roots.iter().map(Root::record).collect(),
        capability,
        policy: policy.spec(),
        isolation: request.isolation.unwrap_or(Isolation::Auto),
        auto_snapshot: request.auto_snapshot.unwrap_or(true),
        snapshot_bytes_max: request.snapshot_bytes_max.unwrap_or(SNAPSHOT_BYTES_DEFAULT),
        capture_exclude: request.capture_exclude.clone().unwrap_or_default(),
        on_failure: request.on_failure.unwrap_or(OnFailure::Keep),
        labels: request.labels.as_ref().map(|labels| labels.0.clone()),
    })
}

fn pin_workdir(text: &str) -> Result<Root, Refusal> {
    let bad = |why: &str| {
        Refusal::new(Code::InvalidWorkdir, format!("workdir {}: {why}", aos_model::text::escape(text)))
    };
    let spelled = Spelled::parse(text).map_err(|fault| bad(&fault.to_string()))?;
    if !spelled.is_absolute() {
        return Err(bad("give an absolute path"));
    }
    let root = Root::pin(as_path(&spelled))
        .map_err(|why| bad(&format!("{why}; it must be an existing directory")))?;
    if root.path.ends_with(b" (deleted)") && rustix::fs::stat(root.path.as_slice()).is_err() {
        return Err(bad("it was deleted"));
    }
    Ok(root)
}

fn pin_roots(given: Option<&[String]>, workdir: &Root) -> Result<Vec<Root>, Refusal> {
    let pin = |text: &str| {
        let bad = |why: &str| {
            Refusal::new(
                Code::InvalidCapability,
                format!("capability: field `fs_roots`: {}: {why}", aos_model::text::escape(text)),
            )
        };
        let spelled = Spelled::parse(text).map_err(|fault| bad(&fault.to_string()))?;
        let absolute = if spelled.is_absolute() {
            spelled.as_bytes().to_vec()
        } else {
            [workdir.path.as_slice(), b"/", spelled.as_bytes()].concat()
        };
        let path = Path::new(std::ffi::OsStr::from_bytes(&absolute));
        Root::pin(path).map_err(|why| bad(&format!("{why}; a root is an existing directory")))
    };
    match given {
        None => Ok(vec![pin(&workdir.shown())?]),
        Some(texts) if texts.len() > ROOTS_MAX => Err(Refusal::new(
            Code::InvalidCapability,
            format!("capability: field `fs_roots`: at most {ROOTS_MAX} roots"),
        )),
        Some(texts) => texts.iter().map(|text| pin(text)).collect(),
    }
}

fn as_path(spelled: &Spelled) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(spelled.as_bytes()))
}

/// Makes a recorded session live: pins its roots and compares them with the record.
fn enliven(host: &Host, record: &SessionRecord, policy: Policy, ledger: Ledger) -> Result<Live, Refusal> {
    let gone = |root: &str, why: rustix::io::Errno| {
        Refusal::new(
            Code::InvalidWorkdir,
            format!("root {root}: {why}; it is not the folder the session was opened on"),
        )
    };
    let roots = record
        .roots
        .iter()
        .map(|root| Root::pin_again(root).map_err(|why| gone(&root.path, why)))
        .collect::<Result<Vec<_>, _>>()?;
    let workdir = Spelled::parse(&record.workdir.path)
        .map_err(|_| gone(&record.workdir.path, rustix::io::Errno::INVAL))?;
    let workdir = if workdir.as_bytes() == b"/" { Vec::new() } else { workdir.as_bytes().to_vec() };
    let jail = Jail {
        workdir_alias: alias(record, &workdir),
        roots,
        workdir,
        follow: record.capability.follow_symlinks,
        cross_mounts: record.capability.cross_mounts,
        hidden: host.hidden.clone(),
    };
    let target: TargetSpec = serde_json::from_str(record.target.get())
        .map_err(|why| Refusal::new(Code::UnsupportedTarget, why.to_string()))?;
    let folder = Root::pin_again(&record.workdir).map_err(|why| gone(&record.workdir.path, why))?;
    let outfit = Outfit::new(
        &record.session_id,
        local_target(&target)?,
        record.isolation,
        &folder,
        &host.hidden,
        &host.executor.rooms,
    )?;
    Ok(Live {
        id: record.session_id.clone(),
        workspaces: jail.roots.iter().map(Root::shown).collect(),
        workdir_shown: record.workdir.path.clone(),
        jail,
        capability: record.capability.clone(),
        policy,
        expires_at_ns: record.expires_at_ns,
        lane: Arc::default(),
        auto_snapshot: record.auto_snapshot,
        snapshot_bytes_max: record.snapshot_bytes_max,
        capture_exclude: record.capture_exclude.clone(),
        on_failure: record.on_failure,
        ledger,
        manifests: host.manifests.clone(),
        outfit,
        bank: host.bank.clone(),
        bank_dir: OnceLock::new(),
        bank_opening: Mutex::new(()),
        ended: AtomicBool::new(false),
    })
}

/// The workdir as it was spelled, when that is another path than the link-free one.
fn alias(record: &SessionRecord, workdir: &[u8]) -> Option<Vec<u8>> {
    let target: TargetSpec = serde_json::from_str(record.target.get()).ok()?;
    let local = local_target(&target).ok()?;
    let spelled = Spelled::parse(&local.workdir).ok()?;
    let clean = spelled.names().flat_map(|name| [b"/", name].concat()).collect::<Vec<u8>>();
    (clean != workdir).then_some(clean)
}

/// Brings back the sessions that were open when the last daemon ended. What cannot be pinned again is closed;
/// those are returned, for the journal to say so.
pub(crate) fn revive(host: &Host, records: Vec<SessionRecord>) -> Vec<(String, SessionState, String)> {
    let now_ns = (host.machine.now_ns)();
    let mut ended = Vec::new();
    for record in records {
        if record.expires_at_ns.is_some_and(|end| end <= now_ns) {
            ended.push((record.session_id, SessionState::Expired, "its time to live is over".to_owned()));
            continue;
        }
        let policy = Policy::compile(record.policy.clone())
            .map_err(|why| Refusal::new(Code::InvalidPolicy, why.to_string()));
        match policy.and_then(|policy| enliven(host, &record, policy, Ledger::default())) {
            Ok(live) => host.sessions.insert(live),
            Err(refusal) => ended.push((record.session_id, SessionState::Closed, refusal.message)),
        }
    }
    ended
}

/// The live session of a request, or why there is none.
pub(crate) fn seat(host: &Host, session_id: &str) -> Result<Arc<Live>, Refusal> {
    if let Some(live) = host.sessions.get(session_id) {
        match live.expires_at_ns {
            Some(end) if end <= (host.machine.now_ns)() => expire(host, session_id),
            _ => return Ok(live),
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
        host.note("host.session.expired", session_id, "its time to live is over", fact);
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
    let Some(live) = host.sessions.get(session_id) else {
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
        Signal::Int => live.outfit.running.interrupt(),
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
