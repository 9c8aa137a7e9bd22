//! `host.fs.snapshot`, `host.fs.list_snapshots` and `host.fs.drop_snapshot`.

use aos_model::entry::Fact;
use aos_model::id;
use aos_model::limits::RECEIPT_PATHS_MAX;
use aos_model::policy::Op;
use aos_model::receipt::{Body, ListedSnapshot, Snapshotted};
use aos_model::records::{Coverage, SnapshotRecord};
use aos_model::refusal::{Refusal, Status};
use aos_model::request::{DropSnapshot, ListSnapshots, Snapshot};

use super::roll_back::{check_id, not_found};
use super::{Operation, PlanInput, Proposal};
use crate::jail::Last;
use crate::layer;
use crate::outcome::Done;
use crate::snapshot;
use crate::target::Target;

impl Operation for ListSnapshots {
    fn targets(&self) -> Vec<Target> {
        Vec::new()
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let mut snapshots = Vec::new();
        for known in snapshot::all(input.host, input.session)? {
            let touches = snapshot::touches(input.host, known.seqs.iter().copied())?;
            let mut paths: Vec<String> =
                touches.into_iter().flat_map(|touch| touch.paths).map(|record| record.path).collect();
            paths.sort();
            paths.dedup();
            let paths_count = paths.len() as u64;
            paths.truncate(RECEIPT_PATHS_MAX);
            snapshots.push(ListedSnapshot {
                snapshot_id: known.id.to_string(),
                scope_id: known.scope.to_string(),
                turn_id: known.turn.as_deref().map(str::to_owned),
                captured_at_ns: known.at_ns,
                paths,
                paths_count,
                bytes: known.bytes,
                coverage: known.coverage,
            });
        }
        input.answer(Body::Snapshots { snapshots })
    }
}

impl Operation for DropSnapshot {
    fn targets(&self) -> Vec<Target> {
        Vec::new()
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        if !snapshot::is_kept(input.host, input.session, &self.snapshot_id)? {
            return Err(not_found(&self.snapshot_id));
        }
        let mut done = Done::new(Status::Ok, Body::Dropped {}, input.warnings);
        done.facts.push(Fact::SnapshotDropped { snapshot_id: self.snapshot_id.clone() });
        Ok(Proposal::Answer(done))
    }
}

/// With `paths`: copies what is there now. Without: opens a snapshot for the later changes of its tool call.
impl Operation for Snapshot {
    fn targets(&self) -> Vec<Target> {
        self.paths.iter().flatten().map(|path| Target::new(path, Op::Read, Last::Itself)).collect()
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        check_id("scope_id", Some(&self.scope_id))?;
        let (now_ns, random) = ((input.host.machine.now_ns)(), (input.host.machine.random)());
        let snapshot_id = id::make(id::SNAPSHOT, now_ns, random);
        let in_tree = input.session.layer.is_some();
        let (paths, captured, kept) = if in_tree {
            layer::capture(input.host, input.session, &input.found, now_ns)?
        } else {
            let (paths, captured) = snapshot::capture(input.host, input.session, &snapshot_id, &input.found)?;
            (paths, captured, Vec::new())
        };
        let explicit = self.paths.is_some();
        let mode = if explicit { "explicit" } else { "open" };
        let body = Snapshotted { snapshot_id: snapshot_id.clone(), mode, captured };
        let mut done = Done::new(Status::Ok, Body::Snapshotted(body), input.warnings);
        let scope_id = Some(self.scope_id.clone());
        done.facts.extend((!kept.is_empty()).then_some(Fact::TreeKept(kept)));
        done.facts.push(Fact::Captured(Box::new(SnapshotRecord {
            snapshot_id,
            scope_id,
            explicit,
            own: false,
            in_tree,
            coverage: Coverage::Exact,
            paths,
        })));
        Ok(Proposal::Answer(done))
    }
}
