//! `host.staged.diff`, `host.staged.commit` and `host.staged.discard`.

use std::sync::Arc;

use aos_model::entry::Fact;
use aos_model::limits::RECEIPT_PATHS_MAX;
use aos_model::policy::Op;
use aos_model::receipt::Body;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{StagedCommit, StagedDiff, StagedDiscard};

use super::vfs_latest::not_shown;
use super::{Operation, PlanInput, Proposal};
use crate::jail::Last;
use crate::layer::{self, Selection};
use crate::session::OpenSession;
use crate::steps::{Completion, Plan};
use crate::target::Target;

impl Operation for StagedDiff {
    fn targets(&self) -> Vec<Target> {
        Vec::new()
    }

    fn plan(&self, mut input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let selection = layer::changes(input.session, self.paths.as_deref())?;
        let (diff, mut files, hidden) = layer::diff(input.session, &selection);
        input.warnings.extend(not_shown(hidden));
        let files_count = files.len() as u64;
        files.truncate(RECEIPT_PATHS_MAX);
        input.answer(Body::StagedDiff { diff, files, files_count })
    }
}

/// The staged changes to write to the host folder.
#[derive(Debug)]
pub(super) struct Commit(Selection);

pub(super) fn commit(session: &Arc<OpenSession>, request: &StagedCommit) -> Result<Commit, Refusal> {
    Ok(Commit(layer::changes(session, request.paths.as_deref())?.with_folders_above(session)))
}

impl Operation for Commit {
    fn targets(&self) -> Vec<Target> {
        self.0.targets()
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let paths = self.0.paths();
        let committed_paths_count = paths.len() as u64;
        let committed_paths = paths.into_iter().take(RECEIPT_PATHS_MAX).collect();
        let body = Body::Committed { committed_paths, committed_paths_count };
        if committed_paths_count == 0 {
            return input.answer(body);
        }
        let (steps, change) = layer::commit(input.host, input.session, &self.0, &input.found)?;
        Ok(Proposal::OnDisk(Plan {
            steps,
            completion: Completion {
                warnings: input.warnings,
                finish: Box::new(|_| body),
                raced: Code::StaleBase,
                facts: vec![Fact::Tree(change)],
                own_snapshot: true,
            },
        }))
    }
}

/// The staged changes to drop.
#[derive(Debug)]
pub(super) struct Discard(Selection);

pub(super) fn discard(session: &Arc<OpenSession>, request: &StagedDiscard) -> Result<Discard, Refusal> {
    Ok(Discard(layer::changes(session, request.paths.as_deref())?))
}

impl Operation for Discard {
    fn targets(&self) -> Vec<Target> {
        self.0.paths().iter().map(|path| Target::new(path, Op::Write, Last::NoLinks)).collect()
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let selection = &self.0;
        let paths = selection.paths();
        let discarded_paths_count = paths.len() as u64;
        let discarded_paths = paths.into_iter().take(RECEIPT_PATHS_MAX).collect();
        let body = Body::Discarded { discarded_paths, discarded_paths_count };
        if discarded_paths_count == 0 {
            return input.answer(body);
        }
        let completion = Completion {
            warnings: input.warnings,
            finish: Box::new(|_| body),
            raced: Code::StaleBase,
            facts: Vec::new(),
            own_snapshot: false,
        };
        Ok(Proposal::InTree(selection.cleared(input.session, false), completion))
    }
}
