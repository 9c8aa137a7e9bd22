//! The capability: allowed operations, roots, links, protected names, limits.

use std::sync::Arc;

use aos_model::capability::check_limit;
use aos_model::receipt::Warning;
use aos_model::refusal::Refusal;

use super::InSession;
use crate::host::Host;
use crate::jail::{Folders, ResolvedPath};
use crate::operation::{self, Operation};
use crate::proposed::ProposedChanges;
use crate::protection::{protect, protect_changes, protect_together};
use crate::session::OpenSession;
use crate::target::Target;

/// What the capability allows: a request with its paths resolved and pinned inside the roots, or a command's changes.
#[derive(Debug)]
pub(crate) struct Authorized<T> {
    pub(super) session: Arc<OpenSession>,
    pub(super) subject: T,
    pub(super) warnings: Vec<Warning>,
}

#[derive(Debug)]
pub(crate) struct Requested {
    pub(super) operation: Box<dyn Operation>,
    pub(super) targets: Vec<(Target, ResolvedPath)>,
}

pub(crate) fn authorize(host: &Host, in_session: InSession) -> Result<Authorized<Requested>, Refusal> {
    let InSession { request, session, is_preview, .. } = in_session;
    // The session may have been closed while the request waited.
    session.still_open()?;
    if let Some(op) = operation::access(&request) {
        session.capability.allows(op)?;
    }
    let operation = operation::of(host, &session, request, is_preview)?;
    let mut warnings = Vec::new();
    let mut targets = Vec::new();
    let mut folders = Folders::default();
    let wanted = operation.targets();
    host.memory.note_paths(wanted.len());
    for target in wanted {
        let mut resolved = target.resolve(&session)?;
        folders.share(&session.jail, &mut resolved.found)?;
        if target.changes() && target.protected {
            protect(&session, &resolved.literal, &mut warnings)?;
            protect(&session, resolved.found.absolute(), &mut warnings)?;
            for folder in target.made_folders(&resolved.found) {
                protect(&session, &folder, &mut Vec::new())?;
            }
        }
        targets.push((target, resolved));
    }
    let changed = targets.iter().filter(|(target, _)| target.changes() && target.protected);
    protect_together(&session, changed.map(|(_, resolved)| resolved.found.absolute()), &mut warnings)?;
    Ok(Authorized { session, subject: Requested { operation, targets }, warnings })
}

/// The same for a command's changes. Their paths are inside the roots, because only roots have overlays.
pub(crate) fn authorize_changes(
    mut changes: ProposedChanges<'_>,
) -> Result<Authorized<ProposedChanges<'_>>, Refusal> {
    let session = changes.session.clone();
    let mut warnings = std::mem::take(&mut changes.warnings);
    protect_changes(&session, &mut changes, &mut warnings)?;
    for path in &changes.paths {
        check_limit(session.capability.max_write_bytes, "max_write_bytes", path.bytes, &path.shown)?;
    }
    check_limit(
        session.capability.max_changed_files,
        "max_changed_files",
        changes.files,
        "the command's changes",
    )?;
    Ok(Authorized { session, subject: changes, warnings })
}
