//! Versions of a layer: the next one, and the state of a host path when the layer first covered it.

use std::sync::Arc;

use aos_model::entry::Fact;
use aos_model::records::{Image, Kind, PathRecord};
use aos_model::refusal::{Code, Refusal};
use aos_model::vfs::{Base, CapturedNode, Delta, Node, NodeKind, TreeChange};

use crate::disk::Meta;
use crate::host::Host;
use crate::jail::{self, Found, Last, Place};
use crate::session::OpenSession;

/// Mutations of a session run one at a time (I9), so the next version is the newest plus one.
pub(crate) fn next_version(session: &OpenSession, deltas: Vec<Delta>) -> TreeChange {
    let layer = session.layer.as_ref().expect("BUG: only layered sessions have versions");
    TreeChange { version: layer.now().version() + 1, deltas }
}

/// The fact that publishes deltas, if there are any.
pub(crate) fn change_of(session: &OpenSession, deltas: Vec<Delta>) -> Option<Fact> {
    (!deltas.is_empty()).then(|| Fact::Tree(next_version(session, deltas)))
}

/// Captures paths, folders with everything below them: records for the list of snapshots, and the nodes.
pub(crate) fn capture(
    host: &Host,
    session: &OpenSession,
    found: &[Found],
    now_ns: u64,
) -> Result<(Vec<PathRecord>, u64, Vec<CapturedNode>), Refusal> {
    let (mut kept, mut bytes) = (Vec::new(), 0);
    let mut keep = |place: &Place, meta: Meta| -> Result<(), Refusal> {
        let view = &place.leaf.as_ref().expect("BUG: resolved in a layer").view;
        let node = match place.leaf.as_ref().and_then(|leaf| leaf.node.as_ref()) {
            Some(node) => Node::clone(node),
            None => Node {
                base: Some(base_at(&Found::Resolved(place.clone()))?),
                ..super::copied(host, place, &meta, now_ns)?
            },
        };
        bytes += meta.size;
        if bytes > session.snapshot_bytes_max {
            return Err(Refusal::new(
                Code::LimitExceeded,
                format!(
                    "{}: with it the snapshot holds {bytes} bytes, over the session's `snapshot_bytes_max` of {}; name fewer paths",
                    place.shown, session.snapshot_bytes_max
                ),
            ));
        }
        kept.push(CapturedNode { path: view.key(&place.absolute), node: Some(Box::new(node)) });
        Ok(())
    };
    let mut absent = Vec::new();
    for found in found {
        match found.existing() {
            Ok((place, meta)) => {
                if !place.is_root() {
                    keep(place, meta)?;
                }
                if meta.kind == Kind::Dir {
                    let view = place.leaf.as_ref().expect("BUG: resolved in a layer").view.clone();
                    view.each_below(place, &mut keep)?;
                }
            }
            Err(_) => absent.push(CapturedNode { path: session.jail.display(found.absolute()), node: None }),
        }
    }
    kept.append(&mut absent);
    let shown = |kept: &CapturedNode| PathRecord {
        path: kept.path.clone(),
        before: image(kept.node.as_deref(), None),
        after: None,
        moved_to: None,
        mode_only: false,
    };
    Ok((kept.iter().map(shown).collect(), kept.len() as u64, kept))
}

/// The current state of a path in the host folder.
pub(crate) fn base_now(session: &Arc<OpenSession>, key: &str) -> Result<(Base, Found), Refusal> {
    let found = jail::resolve(&session.jail, key, Last::NoLinks)?.found;
    let base = base_at(&found)?;
    Ok((base, found))
}

pub(crate) fn base_at(found: &Found) -> Result<Base, Refusal> {
    let Found::Resolved(place) = found else { return Ok(Base::Absent) };
    let Some(meta) = place.meta else { return Ok(Base::Absent) };
    let fail = |why| place.refusal("read", why);
    Ok(match meta.kind {
        Kind::Dir => Base::Dir,
        Kind::Other => Base::Other,
        Kind::Symlink => {
            let target =
                place.folder().and_then(|dir| crate::disk::read_link(dir, &place.name)).map_err(fail)?;
            Base::Link { target: aos_model::path::show(&target) }
        }
        Kind::File => {
            let hash = place
                .folder()
                .and_then(|dir| crate::disk::hash_of(dir, &place.name, Kind::File))
                .map_err(fail)?;
            Base::File { hash, mode: meta.mode }
        }
    })
}

/// The record of a delta for the list of snapshots: the path's state before and after.
pub(crate) fn record_of(delta: &Delta) -> PathRecord {
    PathRecord {
        path: delta.path.clone(),
        before: image(delta.before.as_deref(), delta.after.as_deref()),
        after: image(delta.after.as_deref(), delta.before.as_deref()),
        moved_to: None,
        mode_only: false,
    }
}

/// Without a node the host folder is visible; the other node of the delta stores its state.
fn image(node: Option<&Node>, other: Option<&Node>) -> Option<Image> {
    let (kind, mode, size_bytes, hash) = match (node.map(|node| (&node.what, node.mode)), other) {
        (Some((NodeKind::File(body), mode)), _) => (Kind::File, mode, body.size_bytes, body.hash()),
        (Some((NodeKind::Dir, mode)), _) => (Kind::Dir, mode, 0, None),
        (Some((NodeKind::Link { target }, mode)), _) => (Kind::Symlink, mode, target.len() as u64, None),
        (Some((NodeKind::Gone, _)), _) => return None,
        (None, Some(other)) => match &other.base {
            Some(Base::File { mode, .. }) => (Kind::File, *mode, 0, None),
            Some(Base::Dir) => (Kind::Dir, 0o755, 0, None),
            Some(Base::Link { .. }) => (Kind::Symlink, 0o777, 0, None),
            Some(Base::Other) => (Kind::Other, 0, 0, None),
            Some(Base::Absent) | None => return None,
        },
        (None, None) => return None,
    };
    let hash = hash.map(str::to_owned);
    Some(Image { kind, mode, size_bytes, hash, preimage: None, identity: None, xattrs: None })
}
