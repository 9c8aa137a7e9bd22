//! Taking changes of a tree back: each path gets the node it had before the oldest of them, if nobody touched it since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aos_model::entry::Fact;
use aos_model::limits::DIFF_FILE_BYTES_MAX;
use aos_model::policy::Op;
use aos_model::receipt::Kind;
use aos_model::refusal::{Conflict, Refusal};
use aos_model::vfs::{Base, Delta, Node, Tree, What};

use super::base_now;
use crate::host::Host;
use crate::jail::Last;
use crate::jail::View;
use crate::session::OpenSession;
use crate::snapshot::{self, with_entry};
use crate::target::Target;

/// The paths of a tree that a run of changes touched.
#[derive(Debug, Default)]
pub(crate) struct TreeRestoration {
    paths: BTreeMap<String, Back>,
}

/// One path: what it was, and how the newest of the changes left it.
#[derive(Debug)]
pub(crate) struct Back {
    to: Option<Box<Node>>,
    left: Left,
    seq: u64,
}

#[derive(Debug)]
enum Left {
    So(Option<Box<Node>>),
    /// Captured by hand: whatever stands there now may be replaced.
    Anyhow,
}

/// What taking back comes to.
#[derive(Debug, Default)]
pub(crate) struct Restaged {
    pub(crate) deltas: Vec<Delta>,
    pub(crate) restored: Vec<String>,
    pub(crate) deleted: Vec<String>,
    pub(crate) conflicts: Vec<Conflict>,
}

impl TreeRestoration {
    /// What the entries of these numbers, in order, did to the session's tree. With `only`, those paths and below.
    pub(crate) fn read(
        host: &Host,
        session: &Arc<OpenSession>,
        seqs: &[u64],
        only: Option<&[String]>,
    ) -> Result<TreeRestoration, Refusal> {
        let mut unwound = TreeRestoration::default();
        if session.layer.is_none() {
            return Ok(unwound);
        }
        for seq in seqs.iter().rev() {
            with_entry(host, *seq, |entry| {
                for fact in &entry.facts {
                    unwound.step_back(*seq, fact);
                }
            })?;
        }
        if let (Some(only), Some(view)) = (only, session.view()) {
            let key = |path: &String| {
                let literal = crate::view::resolve(&view, Some(path), Last::NoLinks)?.literal;
                Ok(view.key(&literal))
            };
            let only = only.iter().map(key).collect::<Result<Vec<String>, Refusal>>()?;
            let wanted = |path: &str| {
                only.iter().any(|root| root.is_empty() || crate::restore::is_or_below(path, root))
            };
            unwound.paths.retain(|path, _| wanted(path));
        }
        Ok(unwound)
    }

    fn step_back(&mut self, seq: u64, fact: &Fact) {
        match fact {
            Fact::Tree(change) => {
                for delta in &change.deltas {
                    let left = || Back { to: None, left: Left::So(delta.after.clone()), seq };
                    let back = self.paths.entry(delta.path.clone()).or_insert_with(left);
                    back.to.clone_from(&delta.before);
                }
            }
            Fact::TreeKept(kept) => {
                for kept in kept {
                    let left = || Back { to: None, left: Left::Anyhow, seq };
                    let back = self.paths.entry(kept.path.clone()).or_insert_with(left);
                    back.to.clone_from(&kept.node);
                }
            }
            _ => {}
        }
    }

    /// For the policy: what would be written, and what would go.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let op = |back: &Back| match &back.to {
            Some(node) if !node.is_gone() => Op::Write,
            _ => Op::Remove,
        };
        self.paths.iter().map(|(path, back)| Target::new(path, op(back), Last::NoLinks)).collect()
    }

    pub(crate) fn plan(
        self,
        host: &Host,
        session: &Arc<OpenSession>,
        force: bool,
    ) -> Result<Restaged, Refusal> {
        let Some(view) = session.view() else { return Ok(Restaged::default()) };
        let mut out = Restaged::default();
        let mut goals = BTreeMap::new();
        for (path, back) in self.paths {
            let now = view.tree.get(&path).map(|node| &**node);
            if same(now, back.to.as_deref()) {
                continue;
            }
            match &back.left {
                Left::So(left) if !force && !same(now, left.as_deref()) => {
                    let changed_by = newest(host, session, &path, back.seq)?;
                    out.conflicts.push(Conflict { path, changed_by });
                }
                Left::So(_) | Left::Anyhow => {
                    let to = back.to.filter(|node| !is_as_on_disk(session, &path, node));
                    if !same(now, to.as_deref()) {
                        goals.insert(path, to);
                    }
                }
            }
        }
        if out.conflicts.is_empty() {
            Builder {
                view: &view,
                tree: view.tree.clone(),
                net: BTreeMap::new(),
                now_ns: (host.machine.now_ns)(),
            }
            .build(goals, &mut out)?;
        }
        Ok(out)
    }
}

/// Both say nothing, or look the same.
fn same(one: Option<&Node>, other: Option<&Node>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.looks_like(other),
        _ => false,
    }
}

/// A copy of what the host's folder holds there still: the folder itself will do.
fn is_as_on_disk(session: &Arc<OpenSession>, path: &str, node: &Node) -> bool {
    let as_found = match (&node.what, &node.base) {
        (What::File(body), Some(Base::File { hash, mode })) => {
            body.hash() == Some(hash) && node.mode == *mode
        }
        (What::Link { target }, Some(Base::Link { target: found })) => target == found,
        (What::Dir, Some(Base::Dir)) => node.created_at_ns == node.updated_at_ns,
        _ => false,
    };
    as_found && base_now(session, path).is_ok_and(|(base, _)| Some(base) == node.base)
}

/// The tool call that touched a path last, after an entry.
fn newest(host: &Host, session: &OpenSession, path: &str, after: u64) -> Result<String, Refusal> {
    for seq in snapshot::seqs_from(host, session, after + 1)?.into_iter().rev() {
        let author = with_entry(host, seq, |entry| {
            let touched = entry.facts.iter().any(|fact| match fact {
                Fact::Tree(change) => change.deltas.iter().any(|delta| delta.path == path),
                _ => false,
            });
            touched.then(|| entry.tool_call_id.as_deref().unwrap_or("outside").to_owned())
        })?;
        if let Some(author) = author {
            return Ok(author);
        }
    }
    Ok("outside".to_owned())
}

struct Builder<'a> {
    view: &'a Arc<View>,
    tree: Tree,
    net: BTreeMap<String, Delta>,
    now_ns: u64,
}

impl Builder<'_> {
    fn build(
        mut self,
        goals: BTreeMap<String, Option<Box<Node>>>,
        out: &mut Restaged,
    ) -> Result<(), Refusal> {
        let goes = |to: &Option<Box<Node>>| to.as_ref().is_none_or(|node| node.is_gone());
        let going: BTreeSet<&str> =
            goals.iter().filter(|(_, to)| goes(to)).map(|(path, _)| path.as_str()).collect();
        // A folder that was made, and in which others put something since, stays.
        let stays: BTreeSet<String> = going
            .iter()
            .filter(|path| self.tree.get(path).is_some_and(|node| node.is_dir()))
            .filter(|path| {
                let below = format!("{path}/");
                self.tree.below(&below).any(|(path, node)| !node.is_gone() && !goals.contains_key(path))
            })
            .map(|path| (*path).to_owned())
            .collect();
        for (path, to) in goals.into_iter().filter(|(path, _)| !stays.contains(path)) {
            let visible = to.as_ref().is_some_and(|node| !node.is_gone());
            if visible {
                self.make_way(&path)?;
            }
            let base = self.tree.get(&path).and_then(|node| node.base.clone());
            if to.is_none() && is_there(base.as_ref()) {
                uncover(&mut self.tree, &mut self.net, self.view, &path);
            }
            let node = to.map(|node| self.renewed(&path, *node));
            // Where something else stands in the way of a file, all of it goes.
            if visible && node.as_ref().is_some_and(|node| !node.is_dir()) {
                self.clear_below(&path);
            }
            let shows = visible || (node.is_none() && is_there(base.as_ref()));
            let list = if shows { &mut out.restored } else { &mut out.deleted };
            list.push(path.clone());
            self.set(path, node);
        }
        let all = std::mem::take(&mut out.deleted);
        let holds = |folder: &String| all.iter().any(|path| path.starts_with(&format!("{folder}/")));
        out.deleted = all.iter().filter(|path| !holds(path)).cloned().collect();
        out.deltas = self.net.into_values().filter(|delta| delta.before != delta.after).collect();
        Ok(())
    }

    /// What stands below a path goes; what the host's folder holds there stays hidden, path by path.
    fn clear_below(&mut self, path: &str) {
        let below: Vec<(String, Arc<Node>)> = self
            .tree
            .below(&format!("{path}/"))
            .map(|(path, node)| (path.to_owned(), node.clone()))
            .collect();
        for (path, node) in below.into_iter().filter(|(_, node)| !node.is_gone()) {
            let hidden =
                is_there(node.base.as_ref()).then(|| Node { what: What::Gone, ..Node::clone(&node) });
            self.set(path, hidden);
        }
    }

    /// A file that comes back is written anew: its version goes on, or starts again where it was gone.
    fn renewed(&self, path: &str, node: Node) -> Node {
        let prior = self.view.tree.get(path).filter(|prior| prior.body().is_some());
        let (version, created_at_ns) =
            prior.map_or((1, self.now_ns), |prior| (prior.version + 1, prior.created_at_ns));
        match node.what {
            What::File(_) => Node { version, created_at_ns, updated_at_ns: self.now_ns, ..node },
            _ => node,
        }
    }

    /// The folders above a path, where they are missing by now.
    fn make_way(&mut self, path: &str) -> Result<(), Refusal> {
        let above: Vec<usize> =
            path.match_indices('/').map(|(slash, _)| slash).filter(|slash| *slash > 0).collect();
        for slash in above {
            let folder = &path[..slash];
            let view = self.view.with(self.tree.clone());
            let found = crate::view::resolve(&view, Some(folder), Last::NoLinks)?.found;
            match found.existing() {
                Ok((_, meta)) if meta.kind == Kind::Dir => {}
                Ok((place, _)) => {
                    return Err(Refusal::new(
                        aos_model::refusal::Code::ChangedSince,
                        format!(
                            "{} is no folder any more; nothing was touched. Move it away first",
                            place.shown
                        ),
                    ));
                }
                Err(_) => {
                    let base = self.tree.get(folder).and_then(|node| node.base.clone());
                    let base = base.or(self.view.layer.is_staged.then_some(Base::Absent));
                    let node = Node {
                        created_at_ns: self.now_ns,
                        updated_at_ns: self.now_ns,
                        base,
                        ..crate::view::root_node()
                    };
                    self.set(folder.to_owned(), Some(node));
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, path: String, after: Option<Node>) {
        set(&mut self.tree, &mut self.net, self.view, path, after);
    }
}

fn set(tree: &mut Tree, net: &mut BTreeMap<String, Delta>, view: &View, path: String, after: Option<Node>) {
    let before = view.tree.get(&path).map(|node| Box::new(Node::clone(node)));
    let delta = Delta { path: path.clone(), before, after: after.map(Box::new) };
    tree.put(std::slice::from_ref(&delta));
    net.insert(path, delta);
}

pub(super) fn is_there(base: Option<&Base>) -> bool {
    base.is_some_and(|base| *base != Base::Absent)
}

/// What the host's folder holds at a path is to be seen again: folders of the tree's own above it, which stand for the
/// host's, let it through. What else they hide is hidden path by path.
pub(super) fn uncover(tree: &mut Tree, net: &mut BTreeMap<String, Delta>, view: &View, path: &str) {
    let above: Vec<String> = path.match_indices('/').map(|(slash, _)| path[..slash].to_owned()).collect();
    for folder in above {
        if tree.get(&folder).is_some_and(|node| node.base == Some(Base::Dir)) {
            set(tree, net, view, folder, None);
        }
    }
}

/// A file's content, or nothing where there was none.
type Bytes = Option<Vec<u8>>;

/// Both sides of a path that an entry changed in the tree, as far as they are to be had.
pub(crate) fn contents_of(session: &Arc<OpenSession>, delta: &Delta) -> Result<(Bytes, Bytes), &'static str> {
    let (before, after) = (delta.before.as_deref(), delta.after.as_deref());
    Ok((side(session, delta, before, after)?, side(session, delta, after, before)?))
}

fn side(
    session: &Arc<OpenSession>,
    delta: &Delta,
    node: Option<&Node>,
    other: Option<&Node>,
) -> Result<Bytes, &'static str> {
    const LARGE: &str = "too large to be shown line by line";
    const GONE: &str = "its content is not to be had any more";
    match node.map(|node| &node.what) {
        Some(What::File(body)) if body.size_bytes > DIFF_FILE_BYTES_MAX as u64 => Err(LARGE),
        Some(What::File(body)) => {
            let layer = session.layer.as_ref().ok_or(GONE)?;
            let source = layer.contents.open(&delta.path, body).map_err(|_| GONE)?;
            let mut bytes = vec![0; usize::try_from(body.size_bytes).map_err(|_| GONE)?];
            let read = source.read_at(&mut bytes, 0).map_err(|_| GONE)?;
            bytes.truncate(read);
            Ok(Some(bytes))
        }
        Some(What::Gone) => Ok(None),
        Some(What::Dir | What::Link { .. }) => Err("no file, so no lines"),
        None => match other.and_then(|other| other.base.as_ref()) {
            Some(Base::File { hash, .. }) => {
                let found =
                    crate::jail::resolve(&session.jail, &delta.path, Last::Itself).map_err(|_| GONE)?.found;
                let (place, _) = found.existing().map_err(|_| GONE)?;
                let (source, meta) = place.open_file().map_err(|_| GONE)?;
                if meta.size > DIFF_FILE_BYTES_MAX as u64 {
                    return Err(LARGE);
                }
                let bytes = crate::payload::read_whole(place, &source, meta.size).map_err(|_| GONE)?;
                if aos_model::request::content_hash(&bytes) == *hash { Ok(Some(bytes)) } else { Err(GONE) }
            }
            Some(Base::Dir | Base::Link { .. } | Base::Other) => Err("no file, so no lines"),
            Some(Base::Absent) | None => Ok(None),
        },
    }
}
