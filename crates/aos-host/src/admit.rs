//! Admission: parses a request, validates its ids and queues it in its session.

use std::sync::Arc;

use aos_model::limits::RECORDED_RAW_BYTES_MAX;
use aos_model::refusal::Refusal;
use aos_model::request::{HostRequest, Request, RequestError};

use crate::host::Host;
use crate::maintenance::OperatorRequest;
use crate::outcome::Ids;
use crate::session::OpenSession;
use crate::stage::{self, InSession};

/// One effect, as a front end passes it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub kind: &'a str,
    pub params: &'a str,
    pub tool_call_id: Option<&'a str>,
    pub turn_id: Option<&'a str>,
}

/// A request with its position in the session's queue. Dropping it without running it frees the position.
#[derive(Debug)]
pub struct Job {
    pub(crate) kind: String,
    /// JSON, as the journal stores it.
    pub(crate) params: String,
    pub(crate) ids: Ids,
    /// Taken when the request is answered.
    pub(crate) admitted: Option<Result<Admitted, Refusal>>,
}

/// A request by the component that answers it.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// Opens, lists or ends sessions; never waits.
    Host(HostRequest),
    /// An operator's request that is not an effect.
    Operator(OperatorRequest),
    InSession(InSession),
}

impl Host {
    /// Parses a request and queues it. Fails only on invalid JSON; every other error becomes a receipt.
    pub fn admit(&self, call: Call<'_>) -> Result<Job, String> {
        let parsed = match Request::parse(call.kind, call.params) {
            Err(RequestError::Syntax(why)) => return Err(why),
            Err(RequestError::Refused(refusal)) => Err(refusal),
            Ok(request) => Ok(request),
        };
        let params = recorded_params(&parsed, call.params);
        let (ids, parsed) = match Ids::parse(call.tool_call_id, call.turn_id) {
            Ok(ids) => (ids, parsed),
            Err(refusal) => (Ids::default(), Err(refusal)),
        };
        let admitted = Some(parsed.and_then(|request| self.admit_parsed(request)));
        Ok(Job { kind: call.kind.to_owned(), params, ids, admitted })
    }

    fn admit_parsed(&self, request: Request) -> Result<Admitted, Refusal> {
        match request {
            Request::Host(request) => Ok(Admitted::Host(request)),
            Request::Session(request) => stage::enter(self, request, false).map(Admitted::InSession),
        }
    }

    /// Admits an operator's request.
    pub(crate) fn admit_operator(&self, request: OperatorRequest) -> Job {
        let (kind, params) = (request.kind().to_owned(), request.params());
        Job { kind, params, ids: Ids::default(), admitted: Some(Ok(Admitted::Operator(request))) }
    }
}

impl Job {
    /// Whether answering blocks, so that the caller should use a blocking thread.
    pub fn must_wait(&self) -> bool {
        matches!(&self.admitted, Some(Ok(Admitted::InSession(in_session))) if in_session.must_wait())
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

/// The params as the journal stores them: parsed and serialized again, or the start of an unparsable text.
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
