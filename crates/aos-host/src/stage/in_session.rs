//! A request in its open session. A mutation also has a ticket of the session's lane.

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
    pub(super) is_preview: bool,
    ticket: Option<Ticket>,
}

/// Finds the session of a request and, unless this is a preview, enqueues a mutation in its lane (I9).
pub(crate) fn enter(host: &Host, request: SessionRequest, is_preview: bool) -> Result<InSession, Refusal> {
    let session = find_session(host, request.session_id())?;
    let is_ordered = operation::is_ordered(&request) && !is_preview;
    let ticket = is_ordered.then(|| session.lane.enqueue());
    Ok(InSession { request, session, is_preview, ticket })
}

impl InSession {
    pub(crate) fn session(&self) -> &Arc<OpenSession> {
        &self.session
    }

    /// Whether answering blocks: on earlier mutations, on a command, or on a search.
    pub(crate) fn must_wait(&self) -> bool {
        match (&self.request, &self.ticket) {
            (SessionRequest::Exec(_) | SessionRequest::Grep(_) | SessionRequest::Glob(_), _) => true,
            (_, Some(ticket)) => !ticket.is_first(),
            (_, None) => false,
        }
    }

    /// Waits until it is first in the lane. The ticket is held until the answer is sent.
    pub(crate) fn wait_for_lane(&mut self) -> Option<Ticket> {
        self.ticket.take().inspect(Ticket::wait)
    }
}
