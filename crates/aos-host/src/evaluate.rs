//! `policy.evaluate` in an open session.

use aos_model::policy::Evaluation;
use aos_model::refusal::Refusal;
use aos_store::own_rights;

use crate::host::Host;
use crate::lifecycle::find_session;
use crate::policy::{self, Evaluate};

impl Host {
    /// Evaluates policy with the functions that enforce it. Changes nothing.
    pub fn evaluate(&self, asked: &Evaluate) -> Result<Evaluation, Refusal> {
        let _own = own_rights();
        match &asked.session_id {
            Some(session_id) => policy::evaluate_in(&*find_session(self, session_id)?, asked),
            None => policy::evaluate(asked),
        }
    }
}
