//! Taking requests in: parsed, with their ids, and in the order of their session.

use std::sync::Arc;

use aos_model::limits::RECORDED_RAW_BYTES_MAX;
use aos_model::refusal::Refusal;
use aos_model::request::{HostRequest, Request, Unparsed};

use crate::host::Host;
use crate::maintenance::OperatorRequest;
use crate::outcome::Ids;
use crate::session::OpenSession;
use crate::stage::{self, InSession};

/// One effect as a front end passes it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub kind: &'a str,
    pub params: &'a str,
    pub tool_call_id: Option<&'a str>,
    pub turn_id: Option<&'a str>,
}

/// A request that has its place in the order of its session. Dropping it unrun gives the place up.
#[derive(Debug)]
pub struct Job {
    pub(crate) kind: String,
    /// As the record keeps it, in JSON.
    pub(crate) params: String,
    pub(crate) ids: Ids,
    pub(crate) outcome: Result<Admitted, Refusal>,
}

/// A request by who answers it.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// Opens, lists or ends sessions: never waits.
    Host(HostRequest),
    /// An order of the operator's beside the effects.
    Operator(OperatorRequest),
    InSession(InSession),
}

impl Host {
    /// Takes a request in: parses it and gives it its place in the order. Only invalid JSON is not a request.
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

    fn admit_parsed(&self, request: Request) -> Result<Admitted, Refusal> {
        match request {
            Request::Host(request) => Ok(Admitted::Host(request)),
            Request::Session(request) => stage::enter(self, request, false).map(Admitted::InSession),
        }
    }

    /// Takes in an order of the operator's.
    pub(crate) fn admit_operator(&self, request: OperatorRequest) -> Job {
        let (kind, params) = (request.kind().to_owned(), request.params());
        Job { kind, params, ids: Ids::default(), outcome: Ok(Admitted::Operator(request)) }
    }
}

impl Job {
    /// Whether it would keep its caller waiting.
    pub fn must_wait(&self) -> bool {
        matches!(&self.outcome, Ok(Admitted::InSession(in_session)) if in_session.must_wait())
    }
}

impl Admitted {
    pub(crate) fn session(&self) -> Option<&Arc<OpenSession>> {
        match self {
            Admitted::Host(_) | Admitted::Operator(_) => None,
            Admitted::InSession(in_session) => Some(in_session.session()),
        }
    }

    pub(crate) fn session_id(&self) -> Option<&str> {
        match self {
            Admitted::Host(request) => request.session_id(),
            Admitted::Operator(request) => request.session_id(),
            Admitted::InSession(in_session) => Some(&in_session.session().id),
        }
    }
}

/// The params as the journal stores them: parsed and written again, or the start of what could not be parsed.
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
