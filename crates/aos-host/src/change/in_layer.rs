//! Changes of a layer: the steps of a plan become deltas of the session's tree, journaled with the receipt as one.
//!
//! Nothing changes before the journal has the entry, so there is no intent and nothing to take back.

use std::collections::BTreeMap;
use std::sync::Arc;

use aos_model::entry::Fact;
use aos_model::id;
use aos_model::receipt::MutationFields;
use aos_model::records::{Coverage, Kind, PathRecord, SnapshotRecord};
use aos_model::refusal::{Code, Refusal, Status};
use aos_model::vfs::{Base, Body, Delta, Node, NodeKind, Tree, VfsPath};

use crate::disk::Meta;
use crate::host::Host;
use crate::jail::View;
use crate::jail::{Last, Place};
use crate::layer::{base_now, copied, next_version, record_of};
use crate::outcome::{Done, Ids};
use crate::session::OpenSession;
use crate::snapshot;
use crate::stage::{LayerChange, LayerWork};
use crate::steps::{Completion, Content, Fresh, Outcome, Put, Step, StepTarget};

/// Applies a change to the session's layer.
pub(crate) fn apply_in_layer(host: &Host, change: LayerChange, ids: &mut Ids) -> Result<Done, Refusal> {
    let LayerChange { session, work, .. } = change;
    host.reserve.check()?;
    match work {
        LayerWork::Deltas(deltas, completion) => {
            finish(host, &session, ((host.machine.now_ns)(), deltas), completion, &[], ids)
        }
        LayerWork::Steps(plan) => {
            let mut work = Work::new(host, &session);
            let mut after = Vec::with_capacity(plan.steps.len());
            for step in plan.steps {
                after.push(work.step(step)?);
            }
            let (at_ns, deltas) = (work.now_ns, work.deltas());
            finish(host, &session, (at_ns, deltas), plan.completion, &after, ids)
        }
    }
}

fn finish(
    host: &Host,
    session: &Arc<OpenSession>,
    (at_ns, deltas): (u64, Vec<Delta>),
    completion: Completion,
    after: &[Option<Meta>],
    ids: &mut Ids,
) -> Result<Done, Refusal> {
    let random = (host.machine.random)();
    ids.complete(at_ns, random);
    let change_id = id::make(id::SNAPSHOT, at_ns, random);
    let scope = ids.tool_call.as_deref().filter(|_| !completion.own_snapshot);
    let paths: Vec<PathRecord> = deltas.iter().map(record_of).collect();
    let displaced: Vec<(&str, u64)> = paths
        .iter()
        .filter_map(|record| Some((record.path.as_str(), record.before.as_ref()?.size_bytes)))
        .collect();
    let snapshot_id = snapshot::choose(host, session, scope, &change_id, &displaced)?;
    let outcome = Outcome { after, snapshot_id: snapshot_id.as_deref().unwrap_or_default() };
    let mut done = Done::new(Status::Ok, (completion.finish)(&outcome), completion.warnings);
    done.facts = completion.facts;
    done.at_ns = Some(at_ns);
    if !deltas.is_empty() {
        done.facts.push(Fact::Tree(next_version(session, deltas)));
    }
    if let Some(snapshot_id) = &snapshot_id {
        done.facts.push(Fact::Captured(Box::new(SnapshotRecord {
            snapshot_id: snapshot_id.clone(),
            scope_id: None,
            explicit: false,
            own: completion.own_snapshot,
            in_tree: true,
            coverage: Coverage::Exact,
            paths,
        })));
    }
    done.trace = Some(MutationFields { snapshot_id, durability: host.machine.durability });
    Ok(done)
}

/// A mutation being worked out: the tree as it will be, and what became of each path.
struct Work<'a> {
    host: &'a Host,
    session: &'a Arc<OpenSession>,
    view: Arc<View>,
    tree: Tree,
    net: BTreeMap<String, Delta>,
    now_ns: u64,
}

impl<'a> Work<'a> {
    fn new(host: &'a Host, session: &'a Arc<OpenSession>) -> Work<'a> {
        let view = session.view().expect("BUG: only a session with a layer changes one");
        let tree = view.tree.clone();
        Work { host, session, view, tree, net: BTreeMap::new(), now_ns: (host.machine.now_ns)() }
    }

    fn deltas(self) -> Vec<Delta> {
        self.net.into_values().filter(|delta| delta.before != delta.after).collect()
    }

    fn is_virtual(&self) -> bool {
        !self.view.layer.is_staged
    }

    fn step(&mut self, step: Step) -> Result<Option<Meta>, Refusal> {
        match step {
            Step::Put(put) => self.put(put).map(Some),
            Step::Remove { at, .. } => self.remove(&at).map(|()| None),
            Step::MakeDir { at, mode, .. } => self.make(&at, NodeKind::Dir, mode).map(Some),
            Step::Rename { from, to, .. } => self.rename(&from, &to).map(Some),
            Step::SetMode { at, mode, .. } => self.set_mode(&at, mode),
        }
    }

    fn put(&mut self, put: Put) -> Result<Meta, Refusal> {
        let what = match put.content {
            Content::Bytes(Fresh { bytes, .. }) => {
                if self.is_virtual() && std::str::from_utf8(&bytes).is_err() {
                    let why = format!(
                        "{}: a virtual tree holds UTF-8 text only; nothing was changed",
                        put.at.shown
                    );
                    return Err(Refusal::new(Code::InvalidUtf8, why));
                }
                NodeKind::File(self.view.layer.contents.put(bytes)?)
            }
            Content::Blob(blob) => {
                let (hash, size) = blob.into_hash_and_size();
                NodeKind::File(Body::whole(hash, size))
            }
            Content::Link(target) => NodeKind::Link { target: aos_model::path::show(&target) },
            Content::Moved(_) => unreachable!("BUG: commands do not run in a tree"),
        };
        self.make(&put.at, what, put.mode)
    }

    /// Makes a node in place of whatever was there.
    fn make(&mut self, at: &StepTarget, what: NodeKind, mode: u32) -> Result<Meta, Refusal> {
        let key = self.view.key(&at.absolute);
        let prior = self.tree.get(&key).filter(|prior| prior.body().is_some());
        let (version, created_at_ns) =
            prior.map_or((1, self.now_ns), |prior| (prior.version + 1, prior.created_at_ns));
        let version = if matches!(what, NodeKind::File(_)) { version } else { 1 };
        let base = self.base(&key)?;
        let node = Node { what, mode, version, created_at_ns, updated_at_ns: self.now_ns, base };
        let meta = self.view.meta(&at.absolute, &node).expect("BUG: what is made is there");
        self.set(key, Some(node));
        Ok(meta)
    }

    fn set_mode(&mut self, at: &StepTarget, mode: u32) -> Result<Option<Meta>, Refusal> {
        let key = self.view.key(&at.absolute);
        let Some(node) = self.tree.get(&key) else { return Ok(None) };
        let node = Node { mode, updated_at_ns: self.now_ns, ..Node::clone(node) };
        let meta = self.view.meta(&at.absolute, &node);
        self.set(key, Some(node));
        Ok(meta)
    }

    fn remove(&mut self, at: &StepTarget) -> Result<(), Refusal> {
        // The content of a folder first: below a removed folder, the host's files cannot be looked up.
        for (place, _) in self.all_from(at)?.iter().rev() {
            self.hide(place)?;
        }
        Ok(())
    }

    /// A path and everything below it, as it is now.
    fn all_from(&self, at: &StepTarget) -> Result<Vec<(Place, Meta)>, Refusal> {
        let view = self.view.with(self.tree.clone());
        let found = crate::view::resolve(&view, Some(&at.shown), Last::NoLinks)?.found;
        let (place, meta) = found.existing()?;
        let mut all = vec![(place.clone(), meta)];
        if meta.kind == Kind::Dir {
            view.each_below(place, &mut |place, meta| {
                all.push((place.clone(), meta));
                Ok(())
            })?;
        }
        Ok(all)
    }

    fn hide(&mut self, place: &Place) -> Result<(), Refusal> {
        let key = self.view.key(&place.absolute);
        let base = self.base(&key)?;
        let gone = match base {
            None | Some(Base::Absent) => None,
            base => Some(Node {
                what: NodeKind::Gone,
                mode: 0,
                version: 0,
                created_at_ns: self.now_ns,
                updated_at_ns: self.now_ns,
                base,
            }),
        };
        self.set(key, gone);
        Ok(())
    }

    fn rename(&mut self, from: &StepTarget, to: &StepTarget) -> Result<Meta, Refusal> {
        let mut moved = Vec::new();
        let all = self.all_from(from)?;
        for (place, meta) in &all {
            let absolute = [to.absolute.as_slice(), &place.absolute[from.absolute.len()..]].concat();
            if self.is_virtual() {
                VfsPath::parse(&self.session.jail.display(&absolute))?;
            }
            moved.push((absolute, self.node_of(place, meta)?));
        }
        for (place, _) in all.iter().rev() {
            self.hide(place)?;
        }
        let mut first = None;
        for (absolute, node) in moved {
            let key = self.view.key(&absolute);
            let node = Node { base: self.base(&key)?, ..node };
            first = first.or_else(|| self.view.meta(&absolute, &node));
            self.set(key, Some(node));
        }
        Ok(first.expect("BUG: something was moved"))
    }

    /// What is at a place, as a node: a file of the host is copied.
    fn node_of(&self, place: &Place, meta: &Meta) -> Result<Node, Refusal> {
        if let Some(node) = place.leaf.as_ref().and_then(|leaf| leaf.node.as_ref()) {
            return Ok(Node::clone(node));
        }
        copied(self.host, place, meta, self.now_ns)
    }

    /// What the host's folder held when the path was first touched; nothing of the kind in a virtual tree.
    fn base(&self, key: &str) -> Result<Option<Base>, Refusal> {
        if let Some(known) =
            self.net.get(key).and_then(|delta| delta.before.as_ref().or(delta.after.as_ref()))
        {
            return Ok(known.base.clone());
        }
        match self.tree.cover(key) {
            _ if self.is_virtual() => Ok(None),
            Some((path, node)) if path == key => Ok(node.base.clone()),
            Some(_) => Ok(Some(Base::Absent)),
            None => base_now(self.session, key).map(|(base, _)| Some(base)),
        }
    }

    fn set(&mut self, key: String, after: Option<Node>) {
        let before = self.view.tree.get(&key).map(|node| Box::new(Node::clone(node)));
        let delta = Delta { path: key.clone(), before, after: after.map(Box::new) };
        self.tree.put(std::slice::from_ref(&delta));
        self.net.insert(key, delta);
    }
}
