//! `host.vfs.latest` and `host.staged.diff|commit|discard`: what a session's own tree holds, and what becomes of it.

use std::sync::Arc;

use aos_model::entry::Fact;
use aos_model::limits::{RECEIPT_PATHS_MAX, VFS_LATEST_BYTES_MAX};
use aos_model::policy::Op;
use aos_model::receipt::{Body, VfsFile, Warning};
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{StagedCommit, StagedDiff, StagedDiscard, VfsLatest};
use aos_model::vfs::{Node, timestamp};

use super::{Operation, PlanInput, Proposal};
use crate::jail::Last;
use crate::layer::{self, Chosen};
use crate::policy::check_path;
use crate::session::OpenSession;
use crate::steps::{Ending, Plan};
use crate::target::Target;

impl Operation for VfsLatest {
    fn targets(&self) -> Vec<Target> {
        vec![Target::or_workdir(None, Op::List, Last::Follow)]
    }

    fn plan(&self, mut input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        if !input.session.is_virtual() {
            return Err(Refusal::new(
                Code::UnsupportedTarget,
                "`host.vfs.latest` is for `vfs` sessions; `host.staged.diff` shows what a staged one holds",
            ));
        }
        let layer = input.session.layer.as_ref().ok_or_else(layer::no_tree)?;
        let wanted = self.tree_version.unwrap_or_else(|| layer.now().version());
        let Some(found) = layer::at_version(input.host, input.session, wanted)? else {
            return Err(Refusal::new(
                Code::PathNotFound,
                format!("there is no version {wanted} of this tree; the newest is {}", layer.now().version()),
            ));
        };
        let (mut files, mut bytes, mut hidden) = (Vec::new(), 0, 0);
        for (path, node) in found.iter().filter(|(_, node)| node.body().is_some()) {
            match file(input.session, path, node, &mut bytes)? {
                Some(file) => files.push(file),
                None => hidden += 1,
            }
        }
        input.warnings.extend(not_shown(hidden));
        input.answer(Body::Latest { tree_version: wanted, files })
    }
}

/// One file, unless policy keeps it from being read.
fn file(
    session: &Arc<OpenSession>,
    path: &str,
    node: &Node,
    bytes: &mut usize,
) -> Result<Option<VfsFile>, Refusal> {
    let absolute = layer::absolute(session, path);
    let Ok(blob_only) = check_path(session, Op::Read, path, &absolute, &absolute, &mut Vec::new()) else {
        return Ok(None);
    };
    let body = node.body().expect("BUG: only files are asked for");
    *bytes = bytes.saturating_add(usize::try_from(body.size_bytes).unwrap_or(usize::MAX));
    let content = if blob_only || *bytes > VFS_LATEST_BYTES_MAX {
        None
    } else {
        let layer = session.layer.as_ref().ok_or_else(layer::no_tree)?;
        let source = layer.contents.open(path, body)?;
        let mut content = vec![0; body.size_bytes as usize];
        let read = source
            .read_at(&mut content, 0)
            .map_err(|why| crate::fault::refusal(&format!("cannot read {path}"), why))?;
        content.truncate(read);
        Some(String::from_utf8_lossy(&content).into_owned())
    };
    Ok(Some(VfsFile {
        path: path.to_owned(),
        content,
        encoding: "utf-8",
        size_bytes: body.size_bytes,
        version: node.version,
        created_at: timestamp(node.created_at_ns),
        updated_at: timestamp(node.updated_at_ns),
    }))
}

fn not_shown(hidden: u64) -> Option<Warning> {
    let message =
        format!("{} not shown: the policy does not let them be read", aos_model::text::count(hidden, "file"));
    (hidden > 0).then(|| Warning::new("policy_rule", message))
}

impl Operation for StagedDiff {
    fn targets(&self) -> Vec<Target> {
        Vec::new()
    }

    fn plan(&self, mut input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let chosen = layer::changes(input.session, self.paths.as_deref())?;
        let (diff, mut files, hidden) = layer::diff(input.session, &chosen);
        input.warnings.extend(not_shown(hidden));
        let files_count = files.len() as u64;
        files.truncate(RECEIPT_PATHS_MAX);
        input.answer(Body::StagedDiff { diff, files, files_count })
    }
}

/// What is to reach the host's folder.
#[derive(Debug)]
pub(super) struct Commit(Chosen);

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
            ending: Ending {
                warnings: input.warnings,
                finish: Box::new(|_| body),
                raced: Code::StaleBase,
                facts: vec![Fact::Tree(change)],
                own_snapshot: true,
            },
        }))
    }
}

/// What is to be forgotten.
#[derive(Debug)]
pub(super) struct Discard(Chosen);

pub(super) fn discard(session: &Arc<OpenSession>, request: &StagedDiscard) -> Result<Discard, Refusal> {
    Ok(Discard(layer::changes(session, request.paths.as_deref())?))
}

impl Operation for Discard {
    fn targets(&self) -> Vec<Target> {
        self.0.paths().iter().map(|path| Target::new(path, Op::Write, Last::NoLinks)).collect()
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let chosen = &self.0;
        let paths = chosen.paths();
        let discarded_paths_count = paths.len() as u64;
        let discarded_paths = paths.into_iter().take(RECEIPT_PATHS_MAX).collect();
        let body = Body::Discarded { discarded_paths, discarded_paths_count };
        if discarded_paths_count == 0 {
            return input.answer(body);
        }
        let ending = Ending {
            warnings: input.warnings,
            finish: Box::new(|_| body),
            raced: Code::StaleBase,
            facts: Vec::new(),
            own_snapshot: false,
        };
        Ok(Proposal::InTree(chosen.cleared(input.session, false), ending))
    }
}
