//! `host.vfs.latest`: the files of a virtual tree at one version.

use std::sync::Arc;

use aos_model::limits::VFS_LATEST_BYTES_MAX;
use aos_model::policy::Op;
use aos_model::receipt::{Body, VfsFile, Warning};
use aos_model::refusal::{Code, Refusal};
use aos_model::request::VfsLatest;
use aos_model::vfs::{Node, timestamp};

use super::{Operation, PlanInput, Proposal};
use crate::jail::Last;
use crate::layer;
use crate::policy::check_path;
use crate::session::OpenSession;
use crate::target::Target;

impl Operation for VfsLatest {
    fn targets(&self) -> Vec<Target> {
        vec![Target::or_workdir(None, Op::List, Last::Follow)]
    }

    fn plan(&self, mut input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        if !input.session.is_virtual() {
            return Err(Refusal::new(
                Code::UnsupportedTarget,
                "`host.vfs.latest` is for `vfs` sessions; `host.staged.diff` shows the changes of a staged one",
            ));
        }
        let layer = input.session.layer.as_ref().ok_or_else(layer::no_layer)?;
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

/// One file; `None` if policy denies reading it.
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
    let body = node.body().expect("BUG: called for files only");
    *bytes = bytes.saturating_add(usize::try_from(body.size_bytes).unwrap_or(usize::MAX));
    let content = if blob_only || *bytes > VFS_LATEST_BYTES_MAX {
        None
    } else {
        let layer = session.layer.as_ref().ok_or_else(layer::no_layer)?;
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

pub(super) fn not_shown(hidden: u64) -> Option<Warning> {
    let message = format!(
        "{} not shown: the policy does not allow reading them",
        aos_model::text::count(hidden, "file")
    );
    (hidden > 0).then(|| Warning::new("policy_rule", message))
}
