//! The policy: every path of a request is checked in both spellings, and deny wins.

use std::sync::Arc;

use aos_model::receipt::Warning;
use aos_model::refusal::Refusal;

use super::Authorized;
use crate::jail::Found;
use crate::operation::Operation;
use crate::policy::{WARNINGS_MAX, check_command, check_path};
use crate::session::OpenSession;

/// A request that policy allows, with its warnings.
#[derive(Debug)]
pub(crate) struct PolicyChecked {
    pub(super) session: Arc<OpenSession>,
    pub(super) operation: Box<dyn Operation>,
    pub(super) found: Vec<Found>,
    /// Whether it changes any of them.
    pub(super) changes: bool,
    pub(super) warnings: Vec<Warning>,
    /// Whether its content may be returned as a blob only.
    pub(super) blob_only: bool,
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

impl PolicyChecked {
    pub(crate) fn into_warnings(self) -> Vec<Warning> {
        self.warnings
    }
}
