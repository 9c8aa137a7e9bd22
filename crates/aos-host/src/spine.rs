//! The path of every request that is journaled, one line per stage. No other file calls two stages.
//!
//! `front end → session → capability → policy → operation → receipt → journal`
//!
//! Requests about sessions, and those of the operator, skip the stages up to the receipt.

use std::sync::Arc;

use aos_model::receipt::Warning;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{HostRequest, Request, RequestError};

use aos_store::own_rights;

use crate::admit::{Admitted, Job};
use crate::capture::{self, Captured, Proposed};
use crate::change::{self, Armed};
use crate::command::Watcher;
use crate::host::Host;
use crate::lifecycle;
use crate::maintenance::{self, OperatorRequest};
use crate::outcome::{Done, Ids};
use crate::record::{Answer, EffectSession, LaneGuard};
use crate::session::OpenSession;
use crate::stage::{self, Authorized, CommandStart, InSession, Planned, PlannedChanges, PolicyChecked};

impl Host {
    /// Journals the receipt of a request and returns it, once (I2). A watcher receives a command's output while it runs.
    pub fn answer(&self, mut job: Job, watcher: Option<Arc<dyn Watcher>>) -> Answer {
        let admitted = job.admitted.take().expect("BUG: a request is answered once");
        let session_id = admitted.as_ref().ok().and_then(Admitted::session_id).map(str::to_owned);
        let session = admitted.as_ref().ok().and_then(Admitted::session).cloned();
        let mut ids = job.ids.clone();
        let mut lane = None;
        let (result, intent) = match admitted {
            Ok(Admitted::Host(request)) => (self.answer_host(request), None),
            Ok(Admitted::Operator(request)) => (maintenance::run(self, &request), None),
            Ok(Admitted::InSession(mut in_session)) => {
                lane = in_session.wait_for_lane();
                // A root daemon uses files with the uid and gid of the session's commands (I3).
                match session.as_deref().map_or(Ok(None), OpenSession::act) {
                    Ok(_rights) => self.execute(in_session, &mut ids, &job, watcher),
                    Err(refusal) => (Err(refusal), None),
                }
            }
            Err(refusal) => (Err(refusal), None),
        };
        // The change is applied, but its receipt is not journaled: after a crash here the next start rolls it back.
        #[cfg(feature = "testing")]
        crate::testing::maybe_panic(&job.kind);
        let effect_session = EffectSession { session_id: session_id.as_deref(), session: session.as_ref() };
        let answer = self.record(&job, &ids, effect_session, result, intent);
        self.memory.trim_if_large();
        Answer { lane: lane.map(|ticket| LaneGuard { _ticket: ticket }), ..answer }
    }

    /// Answers an operator's request, as JSON.
    pub(crate) fn answer_operator(&self, request: OperatorRequest) -> String {
        self.answer(self.admit_operator(request), None).receipt
    }

    /// Runs the capability and policy stages of an effect without executing or journaling it.
    pub fn preview(&self, kind: &str, params: &str) -> Result<Vec<Warning>, Refusal> {
        let request = match Request::parse(kind, params) {
            Err(RequestError::Syntax(why)) => return Err(Refusal::new(Code::InvalidParams, why)),
            Err(RequestError::Refused(refusal)) => return Err(refusal),
            Ok(request) => request,
        };
        let Request::Session(request) = request else { return Ok(Vec::new()) };
        // As a preview, which does not wait in the lane.
        let in_session: InSession = stage::enter(self, request, true)?;
        let session = in_session.session().clone();
        let _rights = session.act()?;
        let authorized: Authorized<_> = stage::authorize(self, in_session)?;
        let checked: PolicyChecked<_> = stage::check_policy(authorized)?;
        Ok(checked.into_warnings())
    }

    fn answer_host(&self, request: HostRequest) -> Result<Done, Refusal> {
        let _own = own_rights();
        match request {
            // Whether its commands can be held to its rules. Passed on, because `lifecycle` is below `capture`.
            HostRequest::SessionOpen(request) => lifecycle::open(self, &request, capture::check_denied),
            HostRequest::SessionList(_) => lifecycle::list(self),
            HostRequest::SessionSignal(request) => lifecycle::signal(self, &request),
        }
    }

    /// The stages of an effect. Returns the open intent too, because the journaled receipt closes it. After an error nothing
    /// is left to roll back: `change::apply` has done it for its steps, and what precedes it changes no file.
    fn execute<'a>(
        &'a self,
        in_session: InSession,
        ids: &mut Ids,
        job: &Job,
        watcher: Option<Arc<dyn Watcher>>,
    ) -> (Result<Done, Refusal>, Option<Armed<'a>>) {
        let mut intent = None;
        let result = (|| {
            let authorized: Authorized<_> = stage::authorize(self, in_session)?;
            let checked: PolicyChecked<_> = stage::check_policy(authorized)?;
            match stage::plan(self, checked)? {
                Planned::Done(done) => Ok(done),
                Planned::InLayer(change) => change::apply_in_layer(self, change, ids),
                Planned::OnDisk(change) => {
                    let armed: Armed<'_> = change::arm(self, change, ids, (&job.kind, &job.params))?;
                    change::apply(self, intent.insert(armed))
                }
                Planned::Command(CommandStart { session, command, .. }) => {
                    let has_overlay = capture::needs_overlay(&session, &command)?;
                    let armed: Armed<'_> =
                        change::announce_command(self, &session, ids, has_overlay, &job.params)?;
                    let armed = intent.insert(armed);
                    let captured = {
                        // Overlays, private folders and cgroups are the daemon's own, not the session's (I3).
                        let _own = own_rights();
                        capture::run(self, &session, &command, armed, &job.params, watcher)?
                    };
                    Ok(self.apply_command_changes(&session, captured, armed, ids, &job.params))
                }
            }
        })();
        (result, intent)
    }

    /// The second pass of a command: its changes, known only now, go through the same stages as a request. A refusal here
    /// is a `Done` too, because the command ran and its receipt keeps the output.
    fn apply_command_changes<'a>(
        &'a self,
        session: &Arc<OpenSession>,
        captured: Captured,
        armed: &mut Armed<'a>,
        ids: &Ids,
        params: &str,
    ) -> Done {
        let (ran, changes) = match capture::propose(self, session, captured, ids) {
            // It ran without an overlay, or what it changed is discarded.
            Proposed::Nothing(done) => return done,
            // How it ran, and what is in the overlay or why that cannot be read.
            Proposed::Changes(ran, changes) => (ran, changes),
        };
        let applied = changes.and_then(|changes| {
            let authorized: Authorized<_> = stage::authorize_changes(*changes)?;
            let checked: PolicyChecked<_> = stage::check_policy(authorized)?;
            match stage::plan_changes(checked) {
                PlannedChanges::Done(done) => Ok(done),
                PlannedChanges::OnDisk(change) => {
                    *armed = change::arm_command_changes(self, change, armed, params)?;
                    change::apply(self, armed)
                }
            }
        });
        capture::finish(self, *ran, applied)
    }
}
