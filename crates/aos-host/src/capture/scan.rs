//! Scanning: without an overlay, the roots are compared before and after the command.
//!
//! What was made can be taken back; what was changed or deleted cannot, and is listed. Above a limit of paths nothing is
//! compared, and the receipt says so.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use aos_model::entry::Fact;
use aos_model::id;
use aos_model::limits::SCANNED_PATHS_MAX;
use aos_model::receipt::MutationFields;
use aos_model::records::{Coverage, Kind, PathRecord, SnapshotRecord};
use rustix::fs::OFlags;

use crate::command::Ran;
use crate::disk::{Meta, TEMPORARY_PREFIX, names_in, open_beneath, open_dir};
use crate::host::Host;
use crate::outcome::{Done, Ids};
use crate::session::OpenSession;
use crate::target::is_too_deep;

/// Everything in the roots, by absolute path.
#[derive(Debug)]
pub(super) struct Scan {
    paths: BTreeMap<Vec<u8>, Meta>,
}

impl Scan {
    /// `None` where there are more paths than the limit.
    pub(super) fn before(session: &OpenSession) -> Option<Scan> {
        let mut scan = Scan { paths: BTreeMap::new() };
        for root in &session.jail.roots {
            let dir = open_beneath(&root.fd, ".", OFlags::RDONLY | OFlags::DIRECTORY, false).ok()?;
            scan.folder(session, &dir, &root.path, root.meta.mount)?;
        }
        Some(scan)
    }

    fn folder(&mut self, session: &OpenSession, dir: &OwnedFd, absolute: &[u8], mount: u64) -> Option<()> {
        for name in names_in(dir).ok()? {
            let below = [absolute, b"/", &name].concat();
            let Ok(Some(meta)) = Meta::at(dir, &name) else { continue };
            // Unfinished writes of other sessions come and go.
            if session.jail.hides(&below, &meta) || meta.mount != mount || name.starts_with(TEMPORARY_PREFIX)
            {
                continue;
            }
            if is_too_deep(&below) {
                return None;
            }
            if meta.kind == Kind::Dir
                && let Ok(inner) = open_dir(dir, &name)
            {
                self.folder(session, &inner, &below, mount)?;
            }
            self.paths.insert(below, meta);
            if self.paths.len() > SCANNED_PATHS_MAX {
                return None;
            }
        }
        Some(())
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

/// A folder changes when an entry in it does; that entry is reported itself.
fn is_same(was: &Meta, now: &Meta) -> bool {
    let looks = |meta: &Meta| (meta.kind, meta.mode, meta.uid, meta.gid);
    looks(was) == looks(now) && (was.kind == Kind::Dir || was.same_version(now))
}
