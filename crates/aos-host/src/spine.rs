//! The path of every request, one line per stage. No other file calls two stages.
//!
//! `front end → session → capability → policy → snapshot → operation → receipt → journal`

use std::sync::Arc;

use aos_model::receipt::Warning;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{HostRequest, Request, RequestError};

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
use crate::stage::{self, Authorized, CommandStart, InSession, Planned, PlannedLanding, PolicyChecked};

impl Host {
    /// Answers a request exactly once, after journaling it. A watcher receives a command's output while it runs.
    pub fn answer(&self, mut job: Job, watcher: Option<Arc<dyn Watcher>>) -> Answer {
        let outcome = std::mem::replace(&mut job.outcome, Err(Refusal::new(Code::IoError, "taken")));
        let session_id = outcome.as_ref().ok().and_then(Admitted::session_id).map(str::to_owned);
        let session = outcome.as_ref().ok().and_then(Admitted::session).cloned();
        let mut ids = job.ids.clone();
        let mut lane = None;
        let (ended, intent) = match outcome {
            Ok(Admitted::Host(request)) => (self.answer_host(request), None),
            Ok(Admitted::Operator(request)) => (maintenance::run(self, &request), None),
            Ok(Admitted::InSession(mut in_session)) => {
                lane = in_session.wait();
                self.execute(in_session, &mut ids, &job, watcher)
            }
            Err(refusal) => (Err(refusal), None),
        };
        // The effect is done and not journaled: a crash here is what the next start recovers from.
        #[cfg(feature = "testing")]
        crate::testing::maybe_panic(&job.kind);
        let about = EffectSession { session_id: session_id.as_deref(), session: session.as_ref() };
        let answer = self.record(&job, &ids, about, ended, intent);
        self.memory.trim_if_large();
        Answer { lane: lane.map(|ticket| LaneGuard { _ticket: ticket }), ..answer }
    }

    /// Answers an operator's request, as JSON.
    pub(crate) fn operate(&self, request: OperatorRequest) -> String {
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
        let in_session: InSession = stage::enter(self, request, true)?;
        let authorized: Authorized<_> = stage::authorize(self, in_session)?;
        let checked: PolicyChecked<_> = stage::check_policy(authorized)?;
        Ok(checked.into_warnings())
    }

    fn answer_host(&self, request: HostRequest) -> Result<Done, Refusal> {
        match request {
            HostRequest::SessionOpen(request) => lifecycle::open(self, &request),
            HostRequest::SessionList(_) => lifecycle::list(self),
            HostRequest::SessionSignal(request) => lifecycle::signal(self, &request),
        }
    }

    /// The stages of a request. Returns the open intent too, because the journaled receipt closes it.
    fn execute<'a>(
        &'a self,
        in_session: InSession,
        ids: &mut Ids,
        job: &Job,
        watcher: Option<Arc<dyn Watcher>>,
    ) -> (Result<Done, Refusal>, Option<Armed<'a>>) {
        let mut armed = None;
        let ended = (|| {
            let authorized: Authorized<_> = stage::authorize(self, in_session)?;
            let checked: PolicyChecked<_> = stage::check_policy(authorized)?;
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
                    Ok(self.land(&session, captured, &mut armed, ids, &job.params))
                }
            }
        })();
        (ended, armed)
    }

    /// The second pass of a command: its changes go through the same stages as a request.
    fn land<'a>(
        &'a self,
        session: &Arc<OpenSession>,
        captured: Captured,
        armed: &mut Option<Armed<'a>>,
        ids: &Ids,
        params: &str,
    ) -> Done {
        let (ran, changes) = match capture::propose(self, session, captured, ids) {
            Proposed::Nothing(done) => return done,
            Proposed::Changes(ran, changes) => (ran, changes),
        };
        let landed = changes.and_then(|changes| {
            let authorized: Authorized<_> = stage::authorize_changes(*changes)?;
            let checked: PolicyChecked<_> = stage::check_policy(authorized)?;
            match stage::plan_landing(checked) {
                PlannedLanding::Answer(done) => Ok(done),
                PlannedLanding::OnDisk(change) => {
                    let announced = armed.as_ref().expect("BUG: a command is announced before it runs");
                    let landing = change::arm_announced(self, change, announced, params)?;
                    change::apply(self, armed.insert(landing))
                }
            }
        });
        capture::finish(self, ran, landed)
    }
}
