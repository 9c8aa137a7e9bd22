//! The way of a request, one line a stage. No other file calls two stages.
//!
//! `door → session → capability → policy → snapshot → operation → receipt → journal`

use std::sync::Arc;

use aos_model::entry::{Draft, Fact};
use aos_model::limits::RECORDED_RAW_BYTES_MAX;
use aos_model::receipt::{Receipt, Warning, with_seq};
use aos_model::refusal::{Code, Detail, Refusal, Status};
use aos_model::request::{HostRequest, Request, Unparsed};
use aos_model::state::Effects;
use aos_store::Append;

use crate::capture;
use crate::change::{self, Armed};
use crate::command::Watcher;
use crate::host::Host;
use crate::lane::Ticket;
use crate::ledger::EntryRef;
use crate::lifecycle;
use crate::outcome::{Done, Ids};
use crate::session::OpenSession;
use crate::snapshot::{self};
use crate::stage::{self, Authorized, CommandStart, InSession, Planned, PolicyChecked};

/// One effect as a door hands it in.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub kind: &'a str,
    pub params: &'a str,
    pub tool_call_id: Option<&'a str>,
    pub turn_id: Option<&'a str>,
}

/// The receipt, as the caller gets it.
#[derive(Debug)]
pub struct Answer {
    pub receipt: String,
    pub status: Status,
    /// A mutation's turn in its session. Held until the answer is on its way, so that answers keep the order.
    pub turn: Option<LaneGuard>,
}

/// Dropping it lets the session's next mutation begin.
#[derive(Debug)]
pub struct LaneGuard {
    _ticket: Ticket,
}

/// A request that has its place in the order of its session. Dropping it unrun gives the place up.
#[derive(Debug)]
pub struct Job {
    kind: String,
    /// As the record keeps it, in JSON.
    params: String,
    ids: Ids,
    outcome: Result<Admitted, Refusal>,
}

/// A request by who answers it.
#[derive(Debug)]
enum Admitted {
    /// Opens, lists or ends sessions: never waits.
    Host(HostRequest),
    InSession(InSession),
}

impl Host {
    /// Takes a request in: parses it and gives it its place in the order. Only broken JSON is no request at all.
    pub fn admit(&self, call: Call<'_>) -> Result<Job, String> {
        let parsed = match Request::parse(call.kind, call.params) {
            Err(Unparsed::Syntax(why)) => return Err(why),
            Err(Unparsed::Refused(refusal)) => Err(refusal),
            Ok(request) => Ok(request),
        };
        let params = recorded_params(&parsed, call.params);
        let (ids, parsed) = match Ids::parse(call.tool_call_id, call.turn_id) {
            Ok(ids) => (ids, parsed),
            Err(refusal) => (Ids::default(), Err(refusal)),
        };
        let outcome = parsed.and_then(|request| self.admit_parsed(request));
        Ok(Job { kind: call.kind.to_owned(), params, ids, outcome })
    }

    /// Answers a request. It is answered exactly once, and written down first. A watcher sees a command's output
    /// while it is made.
    pub fn answer(&self, mut job: Job, watcher: Option<Arc<dyn Watcher>>) -> Answer {
        let outcome = std::mem::replace(&mut job.outcome, Err(Refusal::new(Code::IoError, "taken")));
        let session_id = outcome.as_ref().ok().and_then(Admitted::session_id).map(str::to_owned);
        let session = outcome.as_ref().ok().and_then(Admitted::session).cloned();
        let mut ids = job.ids.clone();
        let mut lane = None;
        let (ended, intent) = match outcome {
            Ok(Admitted::Host(request)) => (self.answer_host(request), None),
            Ok(Admitted::InSession(mut in_session)) => {
                lane = in_session.wait();
                self.execute(in_session, &mut ids, &job, watcher)
            }
            Err(refusal) => (Err(refusal), None),
        };
        // Done and not recorded: the moment that the next start has to recover from.
        #[cfg(feature = "testing")]
        crate::testing::maybe_panic(&job.kind);
        let about = About { session_id: session_id.as_deref(), session: session.as_ref() };
        let answer = self.record(&job, &ids, about, ended, intent);
        self.memory.give_back();
        Answer { turn: lane.map(|ticket| LaneGuard { _ticket: ticket }), ..answer }
    }

    /// What capability and policy would say of an effect, by the stages that will say it. Nothing is done or written.
    pub fn preview(&self, kind: &str, params: &str) -> Result<Vec<Warning>, Refusal> {
        let request = match Request::parse(kind, params) {
            Err(Unparsed::Syntax(why)) => return Err(Refusal::new(Code::InvalidParams, why)),
            Err(Unparsed::Refused(refusal)) => return Err(refusal),
            Ok(request) => request,
        };
        let Request::Session(request) = request else { return Ok(Vec::new()) };
        let in_session: InSession = stage::enter(self, request, true)?;
        let authorized: Authorized = stage::authorize(self, in_session)?;
        let checked: PolicyChecked = stage::check_policy(authorized)?;
        Ok(checked.into_warnings())
    }

    fn admit_parsed(&self, request: Request) -> Result<Admitted, Refusal> {
        match request {
            Request::Host(request) => Ok(Admitted::Host(request)),
            Request::Session(request) => stage::enter(self, request, false).map(Admitted::InSession),
        }
    }

    fn answer_host(&self, request: HostRequest) -> Result<Done, Refusal> {
        match request {
            HostRequest::SessionOpen(request) => lifecycle::open(self, &request),
            HostRequest::SessionList(_) => lifecycle::list(self),
            HostRequest::SessionSignal(request) => lifecycle::signal(self, &request),
        }
    }

    /// The spine. The intent comes back too: the receipt closes it.
    fn execute<'a>(
        &'a self,
        in_session: InSession,
        ids: &mut Ids,
        job: &Job,
        watcher: Option<Arc<dyn Watcher>>,
    ) -> (Result<Done, Refusal>, Option<Armed<'a>>) {
        let mut armed = None;
        let ended = (|| {
            let authorized: Authorized = stage::authorize(self, in_session)?;
            let checked: PolicyChecked = stage::check_policy(authorized)?;
            match stage::plan(self, checked)? {
                Planned::Answer(done) => Ok(done),
                Planned::InLayer(change) => change::apply_in_layer(self, change, ids),
                Planned::OnDisk(change) => {
                    let armed: &Armed<'_> =
                        armed.insert(change::arm(self, change, ids, (&job.kind, &job.params))?);
                    change::apply(self, armed)
                }
                Planned::Command(CommandStart { session, command, .. }) => {
                    let has_overlay = capture::is_wanted(&session, &command)?;
                    let announced =
                        armed.insert(change::announce(self, &session, ids, has_overlay, &job.params)?);
                    let captured = capture::run(self, &session, &command, announced, &job.params, watcher)?;
                    Ok(capture::commit(self, &session, captured, &mut armed, ids, &job.params))
                }
            }
        })();
        (ended, armed)
    }

    /// Receipt and journal: what is returned is what is written.
    fn record(
        &self,
        job: &Job,
        ids: &Ids,
        about: About<'_>,
        ended: Result<Done, Refusal>,
        armed: Option<Armed<'_>>,
    ) -> Answer {
        let at_ns = ended.as_ref().ok().and_then(|done| done.at_ns);
        let at_ns = at_ns.unwrap_or_else(|| (self.machine.now_ns)());
        let (mut receipt, facts) = match ended {
            Ok(done) => {
                let mut receipt = Receipt::success(done.status, done.body, done.warnings);
                receipt.trace = done.trace;
                receipt.detail = done.detail.map_or_else(Detail::default, |detail| *detail);
                (receipt.error_code, receipt.error_message) = done.fault.unzip();
                (receipt, done.facts)
            }
            Err(refusal) => (Receipt::refusal(refusal), Vec::new()),
        };
        receipt.tool_call_id = ids.tool_call.clone();
        receipt.turn_id = ids.turn.clone();
        let json = receipt.to_json();
        let kept = receipt.recorded();
        let blobs = receipt.blob_refs();
        let opened = session_opened(&facts);
        let session_id = about.session_id.or(opened.as_deref());
        let draft = Draft {
            at_ns,
            kind: &job.kind,
            session_id,
            tool_call_id: ids.tool_call.as_deref(),
            turn_id: ids.turn.as_deref(),
            params: &job.params,
            receipt: kept.as_deref().unwrap_or(&json),
            blobs: &blobs,
            facts: &facts,
        };
        let body = draft.to_bytes();
        let blobs = blobs.into_iter().map(str::to_owned).collect();
        let facts = Arc::new(facts);
        let noted = facts.clone();
        let effects =
            Effects { session_id: session_id.map(str::to_owned), turn_id: ids.turn.clone(), blobs, facts };
        match self.journal.append(Append { body, effects, closes: armed.as_ref().map(|armed| armed.intent) })
        {
            Ok(seq) => {
                armed.as_ref().inspect(|armed| change::forget_displaced(armed));
                if let Some(session) = about.session {
                    session.layer.iter().for_each(|layer| layer.publish(&noted));
                    let (tool_call, turn) = (ids.tool_call.as_deref(), ids.turn.as_deref());
                    snapshot::remember(self, session, &EntryRef { seq, at_ns, tool_call, turn }, &noted);
                }
                Answer { receipt: with_seq(seq, &json), status: receipt.status, turn: None }
            }
            Err(fault) => self.unrecorded(fault.into(), opened.as_deref(), armed),
        }
    }

    /// What cannot be written down has not happened: it is taken back, and the answer says so.
    fn unrecorded(&self, mut refusal: Refusal, opened: Option<&str>, armed: Option<Armed<'_>>) -> Answer {
        if let Some(session_id) = opened {
            lifecycle::forget(self, session_id);
        }
        if let Some(armed) = armed {
            refusal.detail.not_rolled_back = change::take_back(self, &armed);
            self.journal.abandon(armed.intent);
        }
        let receipt = Receipt::refusal(refusal);
        Answer { receipt: receipt.to_json(), status: receipt.status, turn: None }
    }
}

fn session_opened(facts: &[Fact]) -> Option<String> {
    facts.iter().find_map(|fact| match fact {
        Fact::SessionOpened(record) => Some(record.session_id.clone()),
        Fact::SessionEnded { .. }
        | Fact::Captured(_)
        | Fact::SnapshotDropped { .. }
        | Fact::Rolled { .. }
        | Fact::Tree(_)
        | Fact::TreeKept(_)
        | Fact::BlobPut { .. } => None,
    })
}

impl Job {
    /// Whether it would keep its caller waiting.
    pub fn must_wait(&self) -> bool {
        matches!(&self.outcome, Ok(Admitted::InSession(in_session)) if in_session.must_wait())
    }
}

/// The session that an effect is about, and the live one it is in.
#[derive(Clone, Copy)]
struct About<'a> {
    session_id: Option<&'a str>,
    session: Option<&'a Arc<OpenSession>>,
}

impl Admitted {
    fn session(&self) -> Option<&Arc<OpenSession>> {
        match self {
            Admitted::Host(_) => None,
            Admitted::InSession(in_session) => Some(in_session.session()),
        }
    }

    fn session_id(&self) -> Option<&str> {
        match self {
            Admitted::Host(request) => request.session_id(),
            Admitted::InSession(in_session) => Some(&in_session.session().id),
        }
    }
}

/// How the record keeps what was asked: typed, or the start of what could not be understood.
fn recorded_params(parsed: &Result<Request, Refusal>, raw: &str) -> String {
    match parsed {
        Ok(request) => serde_json::to_string(request),
        Err(_) => {
            let start: String = raw.chars().take(RECORDED_RAW_BYTES_MAX / 4).collect();
            serde_json::to_string(&serde_json::json!({ "raw": start }))
        }
    }
    .expect("BUG: a request is plain data")
}
