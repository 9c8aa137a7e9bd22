//! A request in its open session. One that changes something also has its place in the order of the session.

use std::sync::Arc;

use aos_model::refusal::Refusal;
use aos_model::request::SessionRequest;

use crate::host::Host;
use crate::lane::Ticket;
use crate::lifecycle::find_session;
use crate::operation;
use crate::session::OpenSession;

#[derive(Debug)]
pub(crate) struct InSession {
    pub(super) request: SessionRequest,
    pub(super) session: Arc<OpenSession>,
    ticket: Option<Ticket>,
}

/// Finds the session of a request and, unless the request is only previewed, gives it its place in the order (I9).
pub(crate) fn enter(host: &Host, request: SessionRequest, is_preview: bool) -> Result<InSession, Refusal> {
    let session = find_session(host, request.session_id())?;
    let is_ordered = operation::is_ordered(&request) && !is_preview;
    let ticket = is_ordered.then(|| session.lane.enqueue());
    Ok(InSession { request, session, ticket })
}

impl InSession {
    pub(crate) fn session(&self) -> &Arc<OpenSession> {
        &self.session
    }

    /// Whether it would keep its caller waiting: for others of its session, for a command to end, or for a search.
    pub(crate) fn must_wait(&self) -> bool {
        match (&self.request, &self.ticket) {
            (SessionRequest::Exec(_) | SessionRequest::Grep(_) | SessionRequest::Glob(_), _) => true,
            (_, Some(ticket)) => !ticket.is_first(),
            (_, None) => false,
        }
    }

    /// Waits until it is first in the order. The ticket is held until the answer is on its way.
    pub(crate) fn wait(&mut self) -> Option<Ticket> {
        self.ticket.take().inspect(Ticket::wait)
    }
}
