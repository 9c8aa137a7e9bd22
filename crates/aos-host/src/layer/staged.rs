//! The changes of a staged session: shown as a diff, committed to the host folder as one plan, or discarded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aos_model::limits::DIFF_BYTES_MAX;
use aos_model::policy::Op;
use aos_model::receipt::StagedFile;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Conflict, Detail, Refusal};
use aos_model::text;
use aos_model::vfs::{Base, Delta, Node, NodeKind, TreeChange};

use super::no_layer;
use super::restoration::{contents_of, exists, unhide};
use super::{base_at, next_version};
use crate::host::Host;
use crate::jail::{Found, Last, Place};
use crate::policy::check_path;
use crate::protection::{protect, protect_together};
use crate::restore::is_or_below;
use crate::session::OpenSession;
use crate::steps::{Blob, Content, Parents, Put, Step, StepTarget};
use crate::target::Target;

/// The selected nodes of a staged layer, in path order.
#[derive(Debug)]
pub(crate) struct Selection {
    nodes: BTreeMap<String, Arc<Node>>,
}

/// Selects nodes: all, or those at and below some paths.
pub(crate) fn changes(session: &Arc<OpenSession>, paths: Option<&[String]>) -> Result<Selection, Refusal> {
    let view = session.view().filter(|view| view.layer.is_staged).ok_or_else(no_layer)?;
    let mut roots = Vec::new();
    for path in paths.into_iter().flatten() {
        let found = crate::view::resolve(&view, Some(path), Last::NoLinks)?.found;
        let key = view.key(found.absolute());
        let touched = key.is_empty()
            || view.tree.get(&key).is_some()
            || view.tree.below(&format!("{key}/")).next().is_some();
        if !touched {
            return Err(Refusal::new(
                Code::PathNotFound,
                format!("{}: nothing is staged there; `host.staged.diff` shows what is", found.display()),
            ));
        }
        roots.push(key);
    }
    let is_selected =
        |path: &str| paths.is_none() || roots.iter().any(|root| root.is_empty() || is_or_below(path, root));
    let nodes = view.tree.iter().filter(|(path, _)| is_selected(path));
    Ok(Selection { nodes: nodes.map(|(path, node)| (path.to_owned(), node.clone())).collect() })
}

impl Selection {
    pub(crate) fn paths(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// A commit by path includes the new folders above it.
    pub(crate) fn with_folders_above(mut self, session: &Arc<OpenSession>) -> Selection {
        let Some(view) = session.view() else { return self };
        let visible = self.nodes.iter().filter(|(_, node)| !node.is_gone());
        let above: BTreeSet<String> = visible
            .flat_map(|(path, _)| path.match_indices('/').map(|(slash, _)| path[..slash].to_owned()))
            .collect();
        for path in above {
            if let Some(node) =
                view.tree.get(&path).filter(|node| node.is_dir() && node.base != Some(Base::Dir))
            {
                self.nodes.entry(path).or_insert_with(|| node.clone());
            }
        }
        self
    }

    /// The targets on the disk, for the jail and the policy.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let op = |node: &Node| if node.is_gone() { Op::Remove } else { Op::Write };
        let target =
            |(path, node): (&String, &Arc<Node>)| Target::new(path, op(node), Last::NoLinks).on_disk();
        self.nodes.iter().map(target).collect()
    }

    /// The deltas that remove the selected nodes, so that the host folder is visible again. After a commit, removed paths
    /// need no node.
    pub(crate) fn cleared(&self, session: &Arc<OpenSession>, committed: bool) -> Vec<Delta> {
        let view = session.view().expect("BUG: selected from a layer");
        let (mut tree, mut deltas) = (view.tree.clone(), BTreeMap::new());
        for (path, node) in &self.nodes {
            let shows = if committed { !node.is_gone() } else { exists(node.base.as_ref()) };
            if shows {
                unhide(&mut tree, &mut deltas, &view, path);
            }
            let before = Some(Box::new(Node::clone(node)));
            deltas.insert(path.clone(), Delta { path: path.clone(), before, after: None });
        }
        deltas.into_values().collect()
    }
}

/// The diff of the selected nodes against the current host folder, and their paths. Files that policy denies are left
/// out.
pub(crate) fn diff(session: &Arc<OpenSession>, selection: &Selection) -> (String, Vec<StagedFile>, u64) {
    let (mut shown, mut files, mut hidden) = (String::new(), Vec::new(), 0);
    for (path, node) in &selection.nodes {
        let Some(change) = change(node) else { continue };
        let absolute = super::absolute(session, path);
        let mut warnings = Vec::new();
        if check_path(session, Op::Read, path, &absolute, &absolute, &mut warnings).is_err() {
            hidden += 1;
            continue;
        }
        files.push(StagedFile { path: path.clone(), change });
        if shown.len() <= DIFF_BYTES_MAX {
            shown.push_str(&file_diff(session, path, node));
            if shown.len() > DIFF_BYTES_MAX {
                shown.push_str("… (more files changed; diff cut)\n");
            }
        }
    }
    (shown, files, hidden)
}

/// How a node differs from the state of the host folder when the path was first changed.
fn change(node: &Node) -> Option<&'static str> {
    match (&node.what, &node.base) {
        (NodeKind::Gone, Some(Base::Dir)) | (NodeKind::Dir, Some(Base::Dir)) => None,
        (NodeKind::Gone, _) => Some("removed"),
        (NodeKind::File(body), Some(Base::File { hash, mode })) => {
            (body.hash() != Some(hash) || node.mode != *mode).then_some("changed")
        }
        (_, Some(Base::Absent) | None) => Some("added"),
        _ => Some("changed"),
    }
}

fn file_diff(session: &Arc<OpenSession>, path: &str, node: &Node) -> String {
    let delta = Delta { path: path.to_owned(), before: None, after: Some(Box::new(node.clone())) };
    match (contents_of(session, &delta), &node.what) {
        (Ok((before, after)), _) => {
            let mode = match &node.base {
                Some(Base::File { mode, .. }) if *mode != node.mode && !node.is_gone() => {
                    format!("mode of {path} {mode:04o} -> {:04o}\n", node.mode)
                }
                _ => String::new(),
            };
            mode + &text::diff(path, before.as_deref(), after.as_deref())
        }
        (Err(_), NodeKind::Dir) => format!("new folder {path}\n"),
        (Err(_), NodeKind::Link { target }) => format!("link {path} -> {target}\n"),
        (Err(why), NodeKind::File(_) | NodeKind::Gone) => format!("{path}: {why}\n"),
    }
}

/// The plan of a commit: the steps on the disk and the layer change that belongs to them. `found` is in the order of
/// the selected nodes.
pub(crate) fn commit(
    host: &Host,
    session: &Arc<OpenSession>,
    selection: &Selection,
    found: &[Found],
) -> Result<(Vec<Step>, TreeChange), Refusal> {
    let work = Commit {
        host,
        session,
        selection,
        found: selection.nodes.keys().map(String::as_str).zip(found).collect(),
    };
    work.check_bases()?;
    let mut steps = work.removals()?;
    work.puts(&mut steps)?;
    Ok((steps, next_version(session, selection.cleared(session, true))))
}

struct Commit<'a> {
    host: &'a Host,
    session: &'a Arc<OpenSession>,
    selection: &'a Selection,
    found: BTreeMap<&'a str, &'a Found>,
}

impl Commit<'_> {
    /// Each path on the disk must still have the state it had when it was first changed.
    fn check_bases(&self) -> Result<(), Refusal> {
        let mut changed = Vec::new();
        for (path, node) in &self.selection.nodes {
            let found = self.found[path.as_str()];
            let same_path = found.display() == path;
            if !same_path || Some(base_at(found)?) != node.base.clone().or(Some(Base::Absent)) {
                changed.push(path.clone());
            } else if node.base == Some(Base::Dir) && !node.is_dir() {
                changed.extend(self.unstaged_entries(found)?);
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        let named: Vec<&str> = changed.iter().take(3).map(String::as_str).collect();
        let more = if changed.len() > 3 { ", …" } else { "" };
        let message = format!(
            "changed on the disk since it was staged: {}{more}; nothing was committed. Discard those paths, or merge the change and stage it again",
            named.join(", ")
        );
        let conflicts_count = Some(changed.len() as u64);
        let outside = |path| Conflict::new(path, "outside".to_owned());
        let conflicts = changed.into_iter().take(aos_model::limits::RECEIPT_PATHS_MAX).map(outside).collect();
        Err(Refusal::new(Code::StaleBase, message).with(Detail {
            conflicts,
            conflicts_count,
            ..Detail::default()
        }))
    }

    /// The entries of a folder to be removed whose removal is not staged.
    fn unstaged_entries(&self, found: &Found) -> Result<Vec<String>, Refusal> {
        let Found::Resolved(place) = found else { return Ok(Vec::new()) };
        let fail = |why| place.refusal("list", why);
        let dir = place.open_dir().map_err(fail)?;
        let mut unstaged = Vec::new();
        for name in crate::disk::names_in(&dir).map_err(fail)? {
            let below = format!("{}/{}", place.shown, aos_model::path::show(&name));
            if !self.selection.nodes.contains_key(&below) {
                unstaged.push(below);
            }
        }
        Ok(unstaged)
    }

    /// Whether the object on the disk has to be removed, before a put or for good.
    fn is_removed_first(&self, node: &Node) -> bool {
        match (&node.what, &node.base) {
            (_, Some(Base::Absent) | None) => false,
            (NodeKind::Gone, _) => true,
            (NodeKind::Dir, base) => *base != Some(Base::Dir),
            (NodeKind::File(_) | NodeKind::Link { .. }, base) => *base == Some(Base::Dir),
        }
    }

    /// A folder is removed by one step, with everything below it.
    fn removals(&self) -> Result<Vec<Step>, Refusal> {
        let mut steps = Vec::new();
        let mut whole: BTreeSet<String> = BTreeSet::new();
        for (path, _) in self.selection.nodes.iter().filter(|(_, node)| self.is_removed_first(node)) {
            if path.match_indices('/').any(|(slash, _)| whole.contains(&path[..slash])) {
                continue;
            }
            let (place, before) = self.found[path.as_str()].existing()?;
            let mut bytes = before.size;
            if before.kind == Kind::Dir {
                bytes = self.bytes_below(place)?;
                whole.insert(path.clone());
            }
            steps.push(Step::Remove { at: StepTarget::of(place), before, bytes });
        }
        Ok(steps)
    }

    fn bytes_below(&self, place: &Place) -> Result<u64, Refusal> {
        let prefix = format!("{}/", place.shown);
        let below = self.found.range(prefix.as_str()..).take_while(|(path, _)| path.starts_with(&prefix));
        let sizes = below.filter_map(|(_, found)| Some(found.existing().ok()?.1));
        Ok(sizes.filter(|meta| meta.kind != Kind::Dir).map(|meta| meta.size).sum())
    }

    fn puts(&self, steps: &mut Vec<Step>) -> Result<(), Refusal> {
        let mut parents = Parents::default();
        let folder_mode = 0o777 & !self.host.machine.umask;
        let paths = self.selection.nodes.keys().map(|path| self.found[path.as_str()].absolute());
        protect_together(self.session, paths, &mut Vec::new())?;
        for (path, node) in &self.selection.nodes {
            protect(self.session, self.found[path.as_str()].absolute(), &mut Vec::new())?;
            let found = self.found[path.as_str()];
            match &node.what {
                NodeKind::Gone => {}
                NodeKind::Dir if node.base == Some(Base::Dir) || self.is_above_another(path) => {}
                NodeKind::Dir => {
                    let at = parents.target(found, steps, folder_mode, &self.session.jail);
                    steps.push(Step::MakeDir { at, mode: node.mode, attrs: None });
                }
                NodeKind::File(_) | NodeKind::Link { .. } => {
                    let unchanged = change(node).is_none();
                    if !unchanged {
                        let put = self.put(path, node, found, &mut parents, steps)?;
                        steps.push(Step::Put(put));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether another put creates this folder as a parent.
    fn is_above_another(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        let below =
            self.selection.nodes.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        below.into_iter().any(|(_, node)| !node.is_gone())
    }

    fn put(
        &self,
        path: &str,
        node: &Node,
        found: &Found,
        parents: &mut Parents,
        steps: &mut Vec<Step>,
    ) -> Result<Put, Refusal> {
        let content = match &node.what {
            NodeKind::File(body) => {
                let lost =
                    || Refusal::new(Code::IoError, format!("{path}: its content is missing from the store"));
                let blob = Blob::checked(&self.host.blobs, &body.blob_ref, body.size_bytes)?;
                Content::Blob(blob.ok_or_else(lost)?)
            }
            NodeKind::Link { target } => {
                let target = aos_model::path::RequestPath::parse(target)
                    .map_err(|fault| Refusal::new(Code::InvalidPath, format!("{path}: {fault}")))?;
                Content::Link(target.as_bytes().to_vec())
            }
            NodeKind::Dir | NodeKind::Gone => unreachable!("BUG: folders and removals are not put"),
        };
        let before = match found {
            Found::Resolved(place) if !self.is_removed_first(node) => place.meta,
            Found::Resolved(_) | Found::ParentMissing { .. } | Found::Unresolvable { .. } => None,
        };
        let at = parents.target(found, steps, 0o777 & !self.host.machine.umask, &self.session.jail);
        Ok(Put { at, content, mode: node.mode, before, attrs: None, built_on_before: true })
    }
}
