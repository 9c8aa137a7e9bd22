//! Scanning: without an overlay, the roots are compared before and after the command.
//!
//! What was made can be taken back; what was changed or deleted cannot, and is listed. Above a limit of paths nothing is
//! compared, and the receipt says so.

use std::sync::Arc;

use aos_model::entry::Fact;
use aos_model::id;
use aos_model::receipt::MutationFields;
use aos_model::records::{Coverage, PathRecord, SnapshotRecord};

use super::paths::{self, Paths, Purpose, is_same};
use crate::command::Ran;
use crate::host::Host;
use crate::outcome::{Done, Ids};
use crate::session::OpenSession;

/// Everything in the roots.
#[derive(Debug)]
pub(super) struct Scan {
    paths: Paths,
}

impl Scan {
    /// `None` where there are more paths than the limit.
    pub(super) fn before(session: &OpenSession) -> Option<Scan> {
        let roots: Vec<Vec<u8>> = session.jail.roots.iter().map(|root| root.path.clone()).collect();
        let listed = paths::list(session, &roots, Purpose::Scan, &mut |_| Ok(())).ok()?;
        Some(Scan { paths: listed.paths })
    }

    /// Compares, and reports the differences.
    pub(super) fn finish(self, host: &Host, session: &Arc<OpenSession>, mut ran: Ran, ids: &Ids) -> Done {
        let Some(after) = Scan::before(session) else { return super::done(ran) };
        ran.executed.coverage = Coverage::Scan;
        let shown = |path: &[u8]| session.jail.display(path);
        let (mut made, mut lost) = (Vec::new(), Vec::new());
        for (path, now) in &after.paths {
            match self.paths.get(path) {
                None => made.push(PathRecord {
                    path: shown(path),
                    before: None,
                    after: Some(now.image()),
                    moved_to: None,
                    mode_only: false,
                }),
                Some(was) if !is_same(was, now) => lost.push(shown(path)),
                Some(_) => {}
            }
        }
        lost.extend(
            self.paths.keys().filter(|path| !after.paths.contains_key(*path)).map(|path| shown(path)),
        );
        ran.executed.list_changed(
            made.iter().map(|record| record.path.clone()).chain(lost.iter().cloned()).collect(),
        );
        ran.executed.list_not_undoable(lost);
        let mut done = super::done(ran);
        let mut snapshot_id = None;
        if !made.is_empty() && session.still_open().is_ok() {
            let fresh = id::make(id::SNAPSHOT, (host.machine.now_ns)(), (host.machine.random)());
            let scope = ids.tool_call.as_deref().unwrap_or_default();
            snapshot_id = crate::snapshot::choose(host, session, Some(scope), &fresh, &[]).ok().flatten();
        }
        if let Some(snapshot_id) = snapshot_id.clone() {
            done.facts.push(Fact::Captured(Box::new(SnapshotRecord {
                snapshot_id,
                scope_id: None,
                explicit: false,
                own: false,
                in_tree: false,
                coverage: Coverage::Scan,
                paths: made,
            })));
        }
        done.trace = Some(MutationFields { snapshot_id, durability: host.machine.durability });
        done
    }
}
