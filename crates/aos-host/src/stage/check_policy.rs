//! The policy: every path is checked in both spellings, and deny wins.

use std::sync::Arc;

use aos_model::policy::Op;
use aos_model::receipt::Warning;
use aos_model::refusal::Refusal;

use super::Authorized;
use super::authorize::Requested;
use crate::policy::{WARNINGS_MAX, check_command, check_path, check_shown};
use crate::proposed::ProposedChanges;
use crate::session::OpenSession;

/// What policy allows, with its warnings.
#[derive(Debug)]
pub(crate) struct PolicyChecked<T> {
    pub(super) session: Arc<OpenSession>,
    pub(super) subject: T,
    pub(super) warnings: Vec<Warning>,
    /// Whether content may be returned as a blob only.
    pub(super) blob_only: bool,
}

/// Something with paths for policy to check.
pub(crate) trait PolicySubject {
    /// Adds warnings; returns whether content may be returned as a blob only.
    fn check(&self, session: &OpenSession, warnings: &mut Vec<Warning>) -> Result<bool, Refusal>;
}

pub(crate) fn check_policy<T: PolicySubject>(authorized: Authorized<T>) -> Result<PolicyChecked<T>, Refusal> {
    let Authorized { session, subject, mut warnings } = authorized;
    let blob_only = subject.check(&session, &mut warnings)?;
    warnings.truncate(WARNINGS_MAX);
    Ok(PolicyChecked { session, subject, warnings, blob_only })
}

impl PolicySubject for Requested {
    fn check(&self, session: &OpenSession, warnings: &mut Vec<Warning>) -> Result<bool, Refusal> {
        let mut blob_only = false;
        for (target, resolved) in &self.targets {
            let absolute = resolved.found.absolute();
            blob_only |= match self.operation.argv() {
                Some(words) => check_command(session, words, absolute, warnings)?,
                None => check_path(session, target.op, target.text(), &resolved.literal, absolute, warnings)?,
            };
            for folder in target.made_folders(&resolved.found) {
                let shown = session.jail.display(&folder);
                check_path(session, Op::Write, &shown, &folder, &folder, &mut Vec::new())?;
            }
            if target.shows {
                check_shown(session, &resolved.literal, absolute)?;
            }
        }
        Ok(blob_only)
    }
}

impl PolicySubject for ProposedChanges<'_> {
    fn check(&self, session: &OpenSession, warnings: &mut Vec<Warning>) -> Result<bool, Refusal> {
        for path in &self.paths {
            check_path(session, path.op, &path.shown, &path.absolute, &path.absolute, warnings)?;
        }
        Ok(false)
    }
}

impl<T> PolicyChecked<T> {
    pub(crate) fn into_warnings(self) -> Vec<Warning> {
        self.warnings
    }
}
