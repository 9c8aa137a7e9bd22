//! Layered trees: sessions whose changes stay in the record, with nothing below them or a folder of the host.
//!
//! A [`Layer`] is what a live session holds: the newest version of its tree. A [`View`] is one version of it as a request
//! sees it, with the host's folder shining through where there is one. `resolve` finds paths in a view, `land` makes
//! deltas of a plan's steps, `restoration` takes deltas back, `mount` fills a new tree from the host, `staged` shows, commits
//! and discards what waits. No other room knows whether a place is on the disk or in a tree, except where it opens it.

mod mount;
mod restoration;
mod staged;
mod version;

use aos_model::entry::Fact;
use aos_model::path::show;
use aos_model::receipt::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::state::{tree_prefix, tree_version_key, tree_versions_prefix};
use aos_model::vfs::{Node, Tree, What};
use aos_store::Fault;

use crate::disk::Meta;
use crate::host::Host;
use crate::jail::Place;
use crate::session::OpenSession;

pub(crate) use mount::mount;
pub(crate) use restoration::{LayerRestoration, contents_of};
pub(crate) use staged::{Chosen, changes, commit, diff};
pub(crate) use version::{base_at, base_now, capture, change_of, next_version, record_of};

/// The tree of a session as the journal's state has it.
pub(crate) fn read(host: &Host, session_id: &str) -> Result<Tree, Fault> {
    let version = host.journal.state(&tree_version_key(session_id))?;
    let version = version.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or(0);
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

/// An earlier version of a session's tree, folded from the entries that made it.
pub(crate) fn at_version(host: &Host, session: &OpenSession, version: u64) -> Result<Option<Tree>, Refusal> {
    let layer = session.layer.as_ref().ok_or_else(no_tree)?;
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

pub(crate) fn no_tree() -> Refusal {
    Refusal::new(
        Code::UnsupportedTarget,
        "this session has no tree of its own; open one on `vfs` or `staged`",
    )
}

/// The absolute path of what the tree calls `key`.
pub(crate) fn absolute(session: &OpenSession, key: &str) -> Vec<u8> {
    let bytes =
        aos_model::path::Spelled::parse(key).map_or_else(|_| key.into(), |path| path.as_bytes().to_vec());
    if bytes.starts_with(b"/") { bytes } else { [session.jail.workdir.as_slice(), b"/", &bytes].concat() }
}

/// What stands at a place of the host's folder, copied into a node.
pub(crate) fn copied(host: &Host, place: &Place, meta: &Meta, now_ns: u64) -> Result<Node, Refusal> {
    let fail = |why| place.fault("read", why);
    let what = match meta.kind {
        Kind::Dir => What::Dir,
        Kind::Symlink => {
            let target =
                rustix::fs::readlinkat(&place.dir, place.name.as_slice(), Vec::new()).map_err(fail)?;
            What::Link { target: show(target.as_bytes()) }
        }
        Kind::File => {
            let (source, meta) = place.open_file()?;
            let file = source.file().expect("BUG: the host's files are files");
            What::File(aos_model::vfs::Body::whole(host.blobs.copy(file)?, meta.size))
        }
        Kind::Other => {
            return Err(Refusal::new(
                Code::NotRegularFile,
                format!(
                    "{} is no regular file; it can be neither copied nor moved in a staged tree",
                    place.shown
                ),
            ));
        }
    };
    Ok(Node { what, mode: meta.mode, version: 1, created_at_ns: now_ns, updated_at_ns: now_ns, base: None })
}
