//! Who changed what an undo would overwrite. Only for the receipt: the planner has decided already.

use aos_model::records::RecordedChange;
use aos_model::refusal::{Conflict, Refusal};
use aos_model::undo::{self, ChangedBy};

use super::make_absolute;
use super::world::DiskWorld;
use crate::host::Host;
use crate::snapshot::{self, author};

/// The changes of all open sessions since the oldest of these, oldest first, with absolute paths.
pub(super) fn later(host: &Host, groups: &[Vec<RecordedChange>]) -> Result<Vec<RecordedChange>, Refusal> {
    let Some(first) = groups.iter().flatten().map(|change| change.seq).min() else { return Ok(Vec::new()) };
    let (mut sessions, mut later) = (Vec::new(), Vec::new());
    host.sessions.each(|session| sessions.push(session.clone()));
    for session in sessions {
        let seqs = snapshot::seqs_from(host, &session, first)?;
        let mut changes = snapshot::touches(host, seqs)?;
        changes.retain(|change| !change.in_tree);
        changes.iter_mut().for_each(|change| make_absolute(&session.jail, change));
        later.append(&mut changes);
    }
    later.sort_by_key(|change| change.seq);
    Ok(later)
}

pub(super) fn named(
    host: &Host,
    world: &DiskWorld<'_>,
    conflict: &undo::Conflict,
    later: &[RecordedChange],
) -> Conflict {
    let id = |seq| author(host, seq).unwrap_or_else(outside);
    let path = world.shown(&conflict.path);
    match conflict.changed_by {
        ChangedBy::Outside => Conflict::new(path, outside()),
        ChangedBy::Change(seq) => Conflict::new(path, id(seq)),
        ChangedBy::Between(first, second) => {
            let mut between = later.iter().filter(|change| first < change.seq && change.seq < second);
            let touches =
                |change: &&RecordedChange| change.paths.iter().any(|record| record.path == conflict.path);
            let changed_by = between.rfind(touches).map_or_else(outside, |change| id(change.seq));
            Conflict { path, changed_by, between: Some([id(first), id(second)]) }
        }
    }
}

fn outside() -> String {
    "outside".to_owned()
}
