//! The capability: allowed operations, roots, links, protected names.

use std::sync::Arc;

use aos_model::receipt::Warning;
use aos_model::refusal::Refusal;

use super::InSession;
use crate::host::Host;
use crate::jail::{Folders, Resolved};
use crate::operation::{self, Operation};
use crate::session::OpenSession;
use crate::target::{Target, protect};

/// A request that the capability allows: its paths are resolved and pinned inside the roots.
#[derive(Debug)]
pub(crate) struct Authorized {
    pub(super) session: Arc<OpenSession>,
    pub(super) operation: Box<dyn Operation>,
    pub(super) targets: Vec<(Target, Resolved)>,
    pub(super) warnings: Vec<Warning>,
}

pub(crate) fn authorize(host: &Host, in_session: InSession) -> Result<Authorized, Refusal> {
    let InSession { request, session, .. } = in_session;
    // A request may have waited while its session was closed.
    session.still_open()?;
    if let Some(op) = operation::access(&request) {
        session.capability.allows(op)?;
    }
    let operation = operation::of(host, &session, request)?;
    let mut warnings = Vec::new();
    let mut targets = Vec::new();
    let mut folders = Folders::default();
    let wanted = operation.targets();
    host.memory.needed_for(wanted.len());
    for target in wanted {
        let mut resolved = target.resolve(&session)?;
        folders.share(&mut resolved.found)?;
        if target.changes() && target.protected {
            protect(&session, &resolved.literal, &mut warnings)?;
            protect(&session, resolved.found.absolute(), &mut warnings)?;
        }
        targets.push((target, resolved));
    }
    Ok(Authorized { session, operation, targets, warnings })
}
