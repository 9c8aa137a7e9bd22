//! Layers: the changes of virtual and staged sessions, which are stored in the journal instead of the disk.
//!
//! A [`Layer`] holds the newest version of a session's tree. A [`View`] is one version as a request sees it; in a staged
//! session the host folder is visible where the tree has no node. `crate::view` resolves paths in a view,
//! `crate::change` turns a plan's steps into deltas, `restoration` undoes deltas, `mount` fills a new tree from the host,
//! `staged` shows, commits and discards changes, `version` numbers them.

mod mount;
mod restoration;
mod staged;
mod version;

use aos_model::entry::Fact;
use aos_model::path::show;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::state::{tree_prefix, tree_version_key, tree_versions_prefix};
use aos_model::vfs::{Node, NodeKind, Tree};
use aos_store::Fault;

use crate::disk::Meta;
use crate::host::{Host, decode_state};
use crate::jail::Place;
use crate::session::OpenSession;

pub(crate) use mount::mount;
pub(crate) use restoration::{LayerRestoration, contents_of};
pub(crate) use staged::{Selection, changes, commit, diff};
pub(crate) use version::{base_at, base_now, capture, change_of, next_version, record_of};

/// Reads the tree of a session from the journal's state.
pub(crate) fn read(host: &Host, session_id: &str) -> Result<Tree, Fault> {
    let key = tree_version_key(session_id);
    let version = host.journal.state(&key)?;
    let version = version.and_then(|bytes| decode_state(&key, &bytes)).unwrap_or(0);
    let prefix = tree_prefix(session_id);
    let mut nodes = Vec::new();
    let mut damaged = None;
    host.journal.state_below(&prefix, &mut |key, bytes| match serde_json::from_slice::<Node>(bytes) {
        Ok(node) => nodes.push((key[prefix.len()..].to_owned(), node)),
        Err(why) => damaged = Some(format!("the journal is damaged: `{key}`: {why}")),
    })?;
    match damaged {
        None => Ok(Tree::of(version, nodes)),
        Some(why) => Err(Fault::Refused(why)),
    }
}

/// An earlier version of a session's tree, folded from its journal entries.
pub(crate) fn at_version(host: &Host, session: &OpenSession, version: u64) -> Result<Option<Tree>, Refusal> {
    let layer = session.layer.as_ref().ok_or_else(no_layer)?;
    let now = layer.now();
    if version == now.version() {
        return Ok(Some(now));
    }
    if version > now.version() {
        return Ok(None);
    }
    let mut seqs = Vec::new();
    host.journal.state_below(&tree_versions_prefix(&session.id), &mut |key, seq| {
        let number: u64 = key.rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX);
        if number <= version {
            seqs.extend(serde_json::from_slice::<u64>(seq));
        }
    })?;
    let mut tree = Tree::default();
    for seq in seqs {
        crate::snapshot::with_entry(host, seq, |entry| {
            for fact in &entry.facts {
                if let Fact::Tree(change) = fact {
                    tree.apply(change);
                }
            }
        })?;
    }
    Ok(Some(tree))
}

pub(crate) fn no_layer() -> Refusal {
    Refusal::new(
        Code::UnsupportedTarget,
        "this session works on the disk and has no layer; open one on `vfs` or `staged`",
    )
}

/// The absolute path of the key `key`.
pub(crate) fn absolute(session: &OpenSession, key: &str) -> Vec<u8> {
    let bytes =
        aos_model::path::RequestPath::parse(key).map_or_else(|_| key.into(), |path| path.as_bytes().to_vec());
    if bytes.starts_with(b"/") { bytes } else { [session.jail.workdir.as_slice(), b"/", &bytes].concat() }
}

/// Copies a path of the host folder into a node.
pub(crate) fn copied(host: &Host, place: &Place, meta: &Meta, now_ns: u64) -> Result<Node, Refusal> {
    let fail = |why| place.refusal("read", why);
    let what = match meta.kind {
        Kind::Dir => NodeKind::Dir,
        Kind::Symlink => {
            let target =
                place.folder().and_then(|dir| crate::disk::read_link(dir, &place.name)).map_err(fail)?;
            NodeKind::Link { target: show(&target) }
        }
        Kind::File => {
            let (source, meta) = place.open_file()?;
            let file = source.file().expect("BUG: a host path opens as a disk file");
            NodeKind::File(aos_model::vfs::Body::whole(host.blobs.copy(file)?, meta.size))
        }
        Kind::Other => {
            return Err(Refusal::new(
                Code::NotRegularFile,
                format!(
                    "{} is not a regular file; a staged session can neither copy nor move it",
                    place.shown
                ),
            ));
        }
    };
    Ok(Node { what, mode: meta.mode, version: 1, created_at_ns: now_ns, updated_at_ns: now_ns, base: None })
}
