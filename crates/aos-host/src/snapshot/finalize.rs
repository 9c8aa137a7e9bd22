//! Finalizing: hashes displaced content, moves it into the blob store and lists it in the snapshot's manifest.
//!
//! The manifest is written before the bodies move. After a crash in between, each body is in the blob store or still
//! among the pre-images, and finalizing again finds it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use aos_model::path::show;
use aos_model::receipt::Durability;
use aos_model::records::{Identity, Image, Kind, PathRecord, RecordedChange};
use aos_store::{EntryKind, Fault, Manifest, ManifestEntry};
use rustix::io::Errno;

use super::open_preimage::{KeptModes, OpenPreimage, is_closed};
use super::{lock_index, touches, with_index};
use crate::disk::Meta;
use crate::disk::{self, hash_open, names_in, open_dir, read_xattrs, remove_any};
use crate::finalizer::Finalizer;
use crate::host::Host;
use crate::ledger::{Snapshot, SnapshotIndex};
use crate::session::OpenSession;
use crate::target::is_too_deep;
use aos_store::own_rights;

/// The finalizer thread. Runs until the host is dropped.
pub(crate) fn run(finalizer: &Finalizer, host: &Weak<Host>) {
    let mut logged = HashSet::new();
    while let Some(sessions) = finalizer.wait_for_work() {
        let Some(host) = host.upgrade() else { return };
        for session in sessions.iter().filter_map(Weak::upgrade) {
            // A failure (a full disk) is retried, and reported, when the content is needed.
            let outcome = finalize(&host, &session, &Which::All);
            log_failures(&session.id, outcome, &mut logged);
        }
        host.memory.trim_if_large();
    }
}

/// Logs that snapshots cannot be finalized, once each: they are tried again after every change of their session.
fn log_failures(
    session_id: &str,
    outcome: Result<BTreeMap<Arc<str>, Fault>, Fault>,
    logged: &mut HashSet<Arc<str>>,
) {
    match outcome {
        Ok(failed) => {
            let mut newly_failed = failed.iter().filter(|(id, _)| logged.insert(Arc::clone(id)));
            if let Some((snapshot_id, error)) = newly_failed.next() {
                let (snapshot_id, snapshots) = (&**snapshot_id, 1 + newly_failed.count());
                tracing::warn!(session_id, snapshots, snapshot_id, %error, "cannot finalize snapshots");
            }
        }
        Err(error) => tracing::warn!(session_id, %error, "cannot read the snapshots of a session"),
    }
}

/// Which snapshots to finalize.
#[derive(Debug)]
pub(crate) enum Which<'a> {
    All,
    /// Only the snapshots that these entries were captured into.
    Of(&'a [u64]),
}

impl Which<'_> {
    /// The next unfinalized snapshot.
    fn next(&self, index: &SnapshotIndex, failed: &BTreeMap<Arc<str>, Fault>) -> Option<Snapshot> {
        let found = match self {
            Which::All => index.unfinalized().find(|one| !failed.contains_key(&one.id)),
            Which::Of(seqs) => {
                let mut of_entries = seqs.iter().filter_map(|seq| index.of_entry(*seq));
                of_entries.find(|one| index.is_unfinalized(&one.id) && !failed.contains_key(&one.id))
            }
        };
        found.cloned()
    }
}

/// Finalizes the waiting snapshots of a session. Failures are returned by snapshot id and retried the next time; every
/// other snapshot has its manifest.
pub(crate) fn finalize(
    host: &Host,
    session: &OpenSession,
    which: &Which<'_>,
) -> Result<BTreeMap<Arc<str>, Fault>, Fault> {
    let _own = own_rights();
    let mut failed = BTreeMap::new();
    loop {
        // The lock is taken per snapshot, so that a request that needs one snapshot does not wait for all of them.
        let _finalizing = session.ledger.finalizing.lock().expect("BUG: lock poisoned");
        let Some(snapshot) = with_index(host, session, |index| which.next(index, &failed))? else {
            return Ok(failed);
        };
        let finalized = finalize_one(host, session, &snapshot);
        let mut index = lock_index(host, session)?;
        let index = index.as_mut().expect("BUG: read above");
        match index.get(&snapshot.id) {
            // A change that was captured meanwhile leaves it unfinalized.
            Some(now) if finalized.is_ok() && now.seqs.len() == snapshot.seqs.len() => {
                index.mark_finalized(&snapshot.id);
            }
            Some(_) => {}
            // The snapshot was dropped meanwhile.
            None => super::drop_stored(host, session, &snapshot.id, Some(&snapshot)),
        }
        if let Err(fault) = finalized {
            failed.insert(snapshot.id, fault);
        }
    }
}

/// After a start, removes manifests that a crash left of dropped snapshots. Every other pre-image stays until the
/// session ends: it may be the last copy of content that recovery could not restore.
pub(super) fn tidy(host: &Host, session: &OpenSession, index: &SnapshotIndex) -> Result<(), Fault> {
    for id in host.manifests.snapshots(&session.id)? {
        if index.get(&id).is_none() {
            host.manifests.drop_snapshot(&session.id, &id)?;
        }
    }
    Ok(())
}

fn finalize_one(host: &Host, session: &OpenSession, snapshot: &Snapshot) -> Result<(), Fault> {
    let damaged = |fault: Fault| Fault::Refused(fault.to_string());
    let known = host.manifests.read(&session.id, &snapshot.id).map_err(damaged)?;
    let Draft { manifest, waiting, superseded } =
        Draft::of(host, session, snapshot, known.as_ref(), Bodies::Hashed)?;
    let preimages = host.preimages.session(&session.id)?;
    for name in superseded {
        remove_any(&preimages, name.as_bytes()).map_err(failed)?;
    }
    host.memory.note_paths(manifest.entries.len());
    if known.as_ref() != Some(&manifest) {
        host.manifests.write(&manifest)?;
    }
    for (name, alone) in waiting {
        let piece = alone.as_ref().unwrap_or_else(|| &manifest.pieces[&name]);
        adopt(host, &preimages, name.as_bytes(), "", piece)?;
    }
    forget_lost(host, manifest)
}

/// Takes out of the manifest what another process, which had a displaced folder open, removed from it after the
/// manifest was written.
fn forget_lost(host: &Host, mut manifest: Manifest) -> Result<(), Fault> {
    let mut lost = BTreeSet::new();
    for body in manifest.bodies_in_folders() {
        if host.blobs.size_of(body)?.is_none() {
            lost.insert(body.to_owned());
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    let Manifest { session_id, snapshot_id, .. } = &manifest;
    tracing::warn!(
        session_id,
        snapshot_id,
        files = lost.len(),
        "another process removed files of a displaced folder"
    );
    manifest.forget(&lost);
    host.manifests.write(&manifest)
}

/// The manifest of a snapshot as finalizing would write it, without hashes of bodies. Writes nothing.
pub(crate) fn preview_manifest(
    host: &Host,
    session: &OpenSession,
    snapshot_id: &str,
) -> Result<Option<Manifest>, Fault> {
    let _own = own_rights();
    let _finalizing = session.ledger.finalizing.lock().expect("BUG: lock poisoned");
    let unfinalized = with_index(host, session, |index| {
        index.get(snapshot_id).filter(|_| index.is_unfinalized(snapshot_id)).cloned()
    })?;
    let known = host.manifests.read(&session.id, snapshot_id)?;
    match unfinalized {
        Some(snapshot) => Draft::of(host, session, &snapshot, known.as_ref(), Bodies::Skipped)
            .map(|draft| Some(draft.manifest)),
        None => Ok(known),
    }
}

/// What becomes of the bodies of files while a manifest is drafted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bodies {
    /// They are hashed. Those with other hard links are copied, because they are not moved later.
    Hashed,
    Skipped,
}

/// The manifest of a snapshot, and what is to be done with its pre-images.
struct Draft {
    manifest: Manifest,
    /// To be moved into the blob store. A non-folder is one body and needs no second lookup.
    waiting: Vec<(String, Option<BTreeMap<String, ManifestEntry>>)>,
    /// To be removed.
    superseded: Vec<String>,
}

impl Draft {
    fn of(
        host: &Host,
        session: &OpenSession,
        snapshot: &Snapshot,
        known: Option<&Manifest>,
        bodies: Bodies,
    ) -> Result<Draft, Fault> {
        let mut manifest = known.cloned().unwrap_or_else(|| {
            let mut manifest = Manifest::new(&session.id, &snapshot.id, &session.workdir_shown);
            manifest.scope_id = snapshot.scope.to_string();
            manifest.turn_id = snapshot.turn.as_deref().map(str::to_owned);
            manifest.captured_at_ns = snapshot.at_ns;
            manifest
        });
        let touches = touches(host, snapshot.seqs.iter().copied())?;
        let superseded = superseded(host, session, &touches)?;
        let records =
            touches.iter().flat_map(|touch| touch.paths.iter().map(|record| (touch.in_tree, record)));
        let mut waiting = Vec::new();
        for (in_tree, record) in records {
            let Some(name) = record.before.as_ref().and_then(|image| image.preimage.as_deref()) else {
                described(record, in_tree, &mut manifest.entries);
                continue;
            };
            if superseded.contains(name) {
                continue;
            }
            // A crash may have interrupted the adoption of a folder: the manifest decides, not what is still there.
            if manifest.pieces.contains_key(name) {
                waiting.push((name.to_owned(), None));
            // Content that is not there was adopted before, or is lost; a restore then reports it.
            } else if let Some(piece) = examine_piece(host, session, name, record, bodies)? {
                let alone = (piece.len() == 1).then(|| piece.clone());
                manifest.keep(name, &record.path, piece);
                waiting.push((name.to_owned(), alone));
            }
        }
        let superseded = superseded.into_iter().map(str::to_owned).collect();
        Ok(Draft { manifest, waiting, superseded })
    }
}

/// The pre-images that no undo can reach: those between two changes of a path by one call in one turn, with no other
/// entry in between, if they are what the first change left; otherwise somebody else's content would be lost. With
/// moves, paths do not identify objects, so all are kept.
fn superseded<'t>(
    host: &Host,
    session: &OpenSession,
    touches: &'t [RecordedChange],
) -> Result<HashSet<&'t str>, Fault> {
    let mut superseded = HashSet::new();
    if touches.iter().flat_map(|touch| &touch.paths).any(|record| record.moved_to.is_some()) {
        return Ok(superseded);
    }
    let identity = |image: &Option<Image>| image.as_ref().and_then(|image| image.identity);
    let mut left: HashMap<&str, Option<Identity>> = HashMap::new();
    let mut last: Option<&RecordedChange> = None;
    for touch in touches {
        let continues = match last {
            Some(last) if last.turn_id == touch.turn_id && !last.explicit => {
                !with_index(host, session, |index| index.is_between(last.seq, touch.seq))?
            }
            _ => false,
        };
        if !continues {
            left.clear();
        }
        for record in &touch.paths {
            let before = record.before.as_ref();
            // What is in a folder may be somebody else's, whatever the folder's time says.
            let found = before.filter(|image| image.kind != Kind::Dir).and_then(|image| image.identity);
            let was = left.insert(&record.path, identity(&record.after)).flatten();
            if found.is_some() && was == found {
                superseded.extend(before.and_then(|image| image.preimage.as_deref()));
            }
        }
        last = Some(touch);
    }
    Ok(superseded)
}

fn failed(why: Errno) -> Fault {
    Fault::io("cannot finalize a pre-image", why)
}

/// Removes the pre-images of a dropped snapshot.
pub(super) fn discard(host: &Host, session: &OpenSession, snapshot: &Snapshot) {
    let (Ok(preimages), Ok(touches)) =
        (host.preimages.session(&session.id), touches(host, snapshot.seqs.iter().copied()))
    else {
        return;
    };
    for record in touches.iter().flat_map(|touch| &touch.paths) {
        if let Some(name) = record.before.as_ref().and_then(|image| image.preimage.as_deref()) {
            disk::remove_leftover(&preimages, name.as_bytes());
        }
    }
}

/// The manifest entry of a path that did not exist or was not displaced, from the journal's record.
fn described(record: &PathRecord, in_tree: bool, entries: &mut BTreeMap<String, ManifestEntry>) {
    let kept = record.before.as_ref().map(|image| {
        let kind = match image.kind {
            Kind::Dir => EntryKind::Dir,
            Kind::Symlink => EntryKind::Symlink,
            Kind::File | Kind::Other => EntryKind::File,
        };
        // The content of a layer's file is a blob already.
        let body_hash = image.hash.clone().filter(|_| in_tree && kind == EntryKind::File);
        let size_bytes = body_hash.is_some().then_some(image.size_bytes);
        ManifestEntry {
            kind,
            mode: Some(image.mode),
            moved_to: record.moved_to.clone(),
            body_hash,
            size_bytes,
            ..ManifestEntry::absent()
        }
    });
    entries.entry(record.path.clone()).or_insert_with(|| kept.unwrap_or_else(ManifestEntry::absent));
}

/// The manifest entries of a path and everything below it; `None` if there is no such pre-image.
fn examine_piece(
    host: &Host,
    session: &OpenSession,
    name: &str,
    record: &PathRecord,
    bodies: Bodies,
) -> Result<Option<BTreeMap<String, ManifestEntry>>, Fault> {
    let mut piece = BTreeMap::new();
    let preimages = host.preimages.session(&session.id)?;
    let found = Meta::at(&preimages, name.as_bytes()).map_err(failed)?;
    if let (Some(found), Some(before)) = (&found, &record.before)
        && !is_as_recorded(before, found)
    {
        // It stays where it is. A restore reports that the pre-image is missing.
        tracing::warn!(
            session_id = session.id,
            name,
            path = record.path,
            "a pre-image was changed after it was taken"
        );
        return Ok(None);
    }
    let sync = host.machine.durability == Durability::Power;
    let mut modes = KeptModes::load(preimages.as_fd(), name, sync).map_err(failed)?;
    examine(host, &preimages, name.as_bytes(), "", (bodies, &mut modes), &mut piece)?;
    modes.remove();
    // A crash of an earlier version may have left the mode that it set temporarily.
    if let (Some(kept), Some(before)) = (piece.get_mut(""), &record.before)
        && kept.mode.is_some()
    {
        kept.mode = Some(before.mode);
    }
    Ok((!piece.is_empty()).then_some(piece))
}

/// How much a copy's time may be before that of its original: the other file system may keep whole seconds, or two.
const TIME_LOST_NS_MAX: i64 = 2_000_000_000;

/// Whether a pre-image is still what was displaced: a copy has the time of its original. What is below a folder is not
/// in the record.
fn is_as_recorded(before: &Image, found: &Meta) -> bool {
    if found.kind != before.kind {
        return false;
    }
    if found.kind == Kind::Dir {
        return true;
    }
    let has_its_time = before.identity.as_ref().is_none_or(|was| {
        let lost = was.mtime_ns - found.mtime_ns;
        lost == 0 || (found.dev != was.dev && (0..TIME_LOST_NS_MAX).contains(&lost))
    });
    found.size == before.size_bytes && has_its_time
}

/// Lists a pre-image and everything below it, by suffix.
fn examine(
    host: &Host,
    dir: impl AsFd,
    name: &[u8],
    suffix: &str,
    (bodies, modes): (Bodies, &mut KeptModes<'_>),
    piece: &mut BTreeMap<String, ManifestEntry>,
) -> Result<(), Fault> {
    if is_too_deep(suffix.as_bytes()) {
        return Err(failed(Errno::NAMETOOLONG));
    }
    let dir = dir.as_fd();
    let Some(meta) = Meta::at(dir, name).map_err(failed)? else { return Ok(()) };
    let owner = ManifestEntry {
        mode: Some(modes.mode_of(suffix, &meta)),
        uid: Some(meta.uid),
        gid: Some(meta.gid),
        identity: meta.image().identity.filter(|_| meta.kind != Kind::Dir),
        ..ManifestEntry::absent()
    };
    let kept = match meta.kind {
        Kind::Symlink => {
            let target = disk::read_link(dir, name).map_err(failed)?;
            ManifestEntry { kind: EntryKind::Symlink, target: Some(show(&target)), mode: None, ..owner }
        }
        Kind::Dir => {
            let folder = OpenPreimage::open(dir, name, &meta, 0o500, suffix, modes).map_err(failed)?;
            for name in names_in(&folder.file).map_err(failed)? {
                let suffix = format!("{suffix}/{}", show(&name));
                examine(host, &folder.file, &name, &suffix, (bodies, modes), piece)?;
            }
            let xattrs = read_xattrs(&folder.file).map_err(failed)?;
            ManifestEntry { kind: EntryKind::Dir, xattrs, ..owner }
        }
        Kind::File => {
            let OpenPreimage { file, .. } =
                &OpenPreimage::open(dir, name, &meta, 0o400, suffix, modes).map_err(failed)?;
            let xattrs = read_xattrs(file).map_err(failed)?;
            let body_hash = match bodies {
                Bodies::Skipped => None,
                Bodies::Hashed if has_other_names(&meta) => Some(host.blobs.copy(file)?),
                Bodies::Hashed => Some(hash_open(file).map_err(failed)?),
            };
            ManifestEntry { kind: EntryKind::File, body_hash, size_bytes: Some(meta.size), xattrs, ..owner }
        }
        // A FIFO or a socket has no content; it cannot be restored and is not listed.
        Kind::Other => return Ok(()),
    };
    piece.insert(suffix.to_owned(), kept);
    Ok(())
}

/// Whether the file has other hard links. A folder that became a pre-image may hold files that the user still has
/// under other names: those are copied and left unchanged.
fn has_other_names(meta: &Meta) -> bool {
    meta.kind == Kind::File && meta.nlink > 1
}

/// Moves a pre-image and everything below it into the blob store, as listed in `piece`.
fn adopt(
    host: &Host,
    dir: impl AsFd,
    name: &[u8],
    suffix: &str,
    piece: &BTreeMap<String, ManifestEntry>,
) -> Result<(), Fault> {
    let dir = dir.as_fd();
    let Some(meta) = Meta::at(dir, name).map_err(failed)? else { return Ok(()) };
    if meta.kind == Kind::Dir {
        // The manifest has its mode by now.
        if is_closed(&meta, 0o700) {
            disk::set_mode_at(dir, name, 0o700).map_err(failed)?;
        }
        let inner = open_dir(dir, name).map_err(failed)?;
        for name in names_in(&inner).map_err(failed)? {
            adopt(host, &inner, &name, &format!("{suffix}/{}", show(&name)), piece)?;
        }
    }
    match piece.get(suffix).and_then(|kept| kept.body_hash.as_deref()) {
        Some(hash) if meta.kind == Kind::File && !has_other_names(&meta) => {
            disk::set_mode_at(dir, name, 0o600).map_err(failed)?;
            host.blobs.adopt_file(dir, name, hash)
        }
        _ => remove_any(dir, name).map_err(failed),
    }
}
