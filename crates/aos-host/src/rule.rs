//! Policy, below the ceiling: every path of a request is judged by both its spellings, and deny wins.

use std::sync::Arc;

use aos_model::receipt::Warning;
use aos_model::refusal::Refusal;

use crate::jail::Found;
use crate::operation::{Authorized, Operation};
use crate::policy::{WARNINGS_MAX, check_command, check_path};
use crate::session::OpenSession;

/// A request that policy lets pass, with what it has to say about it.
#[derive(Debug)]
pub(crate) struct PolicyChecked {
    pub(crate) session: Arc<OpenSession>,
    pub(crate) operation: Box<dyn Operation>,
    pub(crate) found: Vec<Found>,
    /// Whether it wants to change any of them.
    pub(crate) changes: bool,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) blob_only: bool,
}

pub(crate) fn check_policy(authorized: Authorized) -> Result<PolicyChecked, Refusal> {
    let Authorized { session, operation, targets, mut warnings } = authorized;
    let mut blob_only = false;
    let mut changes = false;
    let mut found = Vec::with_capacity(targets.len());
    for (target, resolved) in targets {
        let absolute = resolved.found.absolute();
        changes |= target.changes();
        blob_only |= match operation.words() {
            Some(words) => check_command(&session, words, absolute, &mut warnings)?,
            None => {
                check_path(&session, target.op, target.text(), &resolved.literal, absolute, &mut warnings)?
            }
        };
        found.push(resolved.found);
    }
    warnings.truncate(WARNINGS_MAX);
    Ok(PolicyChecked { session, operation, found, changes, warnings, blob_only })
}
