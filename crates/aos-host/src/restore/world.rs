//! What the undo planner looks up: objects on the disk, found by the jail, and those of snapshots.
//!
//! The planner works on absolute paths, as receipts spell them. Each path is looked up once.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use aos_model::acl;
use aos_model::limits::CHANGED_PATHS_MAX;
use aos_model::path::{RequestPath, show};
use aos_model::records::{Attributes, Identity, Image, Kind, RecordedChange};
use aos_model::refusal::{Code, Refusal};
use aos_model::request::content_hash;
use aos_model::undo::{StoredRef, World, folder};
use aos_store::{EntryKind, Manifest, ManifestEntry};
use rustix::io::Errno;

use super::damaged;
use crate::disk::{Meta, hash_of, names_in, open_dir, read_xattrs};
use crate::host::Host;
use crate::jail::{Folders, Found, Jail, Last, Place, resolve};
use crate::session::OpenSession;
use crate::snapshot;
use crate::target::is_too_deep;

/// The path of a record, which is relative to the workdir when under it, as an absolute one.
pub(super) fn absolute(jail: &Jail, shown: &str) -> String {
    match shown {
        "." => show(&jail.workdir),
        _ if shown.starts_with('/') => shown.to_owned(),
        _ => format!("{}/{shown}", show(&jail.workdir)),
    }
}

/// The path as receipts show it.
pub(super) fn shown(jail: &Jail, absolute: &str) -> String {
    // A path that cannot be parsed is not from a record of ours; it is shown as it is.
    bytes(absolute).map_or_else(|_| absolute.to_owned(), |path| jail.display(&path))
}

/// The bytes of an absolute path; none of the root.
pub(super) fn bytes(absolute: &str) -> Result<Vec<u8>, Refusal> {
    let of = |path: RequestPath| path.as_bytes().to_vec();
    match absolute {
        "" => Ok(Vec::new()),
        _ => RequestPath::parse(absolute).map(of).map_err(|why| damaged(&format!("`{absolute}`: {why}"))),
    }
}

/// The manifests that an undo reads.
#[derive(Debug)]
pub(super) struct Manifests {
    /// They are drafted and not written.
    pub(super) is_preview: bool,
    pub(super) read: RefCell<BTreeMap<String, Arc<Manifest>>>,
}

impl Manifests {
    fn get(&self, host: &Host, session: &OpenSession, snapshot_id: &str) -> Result<Arc<Manifest>, Refusal> {
        if let Some(manifest) = self.read.borrow().get(snapshot_id) {
            return Ok(manifest.clone());
        }
        let manifest = match self.is_preview {
            true => snapshot::preview_manifest(host, session, snapshot_id),
            false => host.manifests.read(&session.id, snapshot_id),
        };
        let manifest = manifest
            .map_err(|fault| damaged(&fault.to_string()))?
            .ok_or_else(|| damaged(&format!("the manifest of {snapshot_id} is missing")))?;
        let manifest = Arc::new(manifest);
        self.read.borrow_mut().insert(snapshot_id.to_owned(), manifest.clone());
        Ok(manifest)
    }
}

/// What is at a path of the disk.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) meta: Meta,
    /// `None`: they may not be read.
    pub(super) xattrs: Option<Attributes>,
}

/// The content of objects.
#[derive(Debug, Default)]
struct Known {
    by_identity: HashMap<Identity, String>,
    /// By time and size. `None`: other content has the same.
    by_time: HashMap<(i64, u64), Option<String>>,
}

impl Known {
    fn learn(&mut self, image: &Image) {
        let (Some(identity), Some(hash)) = (image.identity, image.hash.clone()) else { return };
        let key = (identity.mtime_ns, image.size_bytes);
        let of_time = self.by_time.entry(key).or_insert_with(|| Some(hash.clone()));
        if of_time.as_ref() != Some(&hash) {
            *of_time = None;
        }
        self.by_identity.insert(identity, hash);
    }
}

pub(super) struct DiskWorld<'a> {
    pub(super) host: &'a Host,
    pub(super) session: &'a Arc<OpenSession>,
    manifests: &'a Manifests,
    /// The content that the changes left, by identity.
    known: HashMap<Identity, String>,
    /// The same of all changes of the session since the first of them, with what they displaced.
    known_since: OnceCell<Known>,
    first: u64,
    objects: RefCell<HashMap<String, Option<Object>>>,
    hashes: RefCell<HashMap<String, Option<String>>>,
    folders: RefCell<Folders>,
    failure: RefCell<Option<Refusal>>,
}

impl<'a> DiskWorld<'a> {
    pub(super) fn new(
        host: &'a Host,
        session: &'a Arc<OpenSession>,
        manifests: &'a Manifests,
        groups: &[Vec<RecordedChange>],
    ) -> DiskWorld<'a> {
        let changes = || groups.iter().flatten();
        DiskWorld {
            host,
            session,
            manifests,
            known: changes()
                .flat_map(left_by)
                .filter_map(|image| Some((image.identity?, image.hash.clone()?)))
                .collect(),
            known_since: OnceCell::new(),
            first: changes().map(|change| change.seq).min().unwrap_or(u64::MAX),
            objects: RefCell::default(),
            hashes: RefCell::default(),
            folders: RefCell::default(),
            failure: RefCell::default(),
        }
    }

    fn known_since(&self) -> &Known {
        self.known_since.get_or_init(|| self.checked(self.load_known()).unwrap_or_default())
    }

    /// Content that is known because a later change of the session displaced or restored it. It is looked for where an
    /// object was moved, which records no content.
    fn load_known(&self) -> Result<Known, Refusal> {
        let seqs = snapshot::seqs_from(self.host, self.session, self.first)?;
        if !self.manifests.is_preview {
            snapshot::finalize_entries(self.host, self.session, &seqs)?;
        }
        let mut known = Known::default();
        for change in snapshot::touches(self.host, seqs)? {
            left_by(&change).for_each(|image| known.learn(image));
            // What is damaged is reported by who restores it.
            let Ok(manifest) = self.manifests.get(self.host, self.session, &change.snapshot_id) else {
                continue;
            };
            manifest.all().filter_map(image_of).for_each(|image| known.learn(&image));
        }
        Ok(known)
    }

    /// The first lookup that failed. A plan that was made with it is discarded.
    pub(super) fn failure(&self) -> Result<(), Refusal> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn checked<T>(&self, outcome: Result<T, Refusal>) -> Option<T> {
        match outcome {
            Ok(found) => Some(found),
            Err(refusal) => {
                self.failure.borrow_mut().get_or_insert(refusal);
                None
            }
        }
    }

    pub(super) fn shown(&self, absolute: &str) -> String {
        shown(&self.session.jail, absolute)
    }

    /// The folder of a path and the name in it, if the folder exists and no link leads there.
    pub(super) fn place(&self, path: &str) -> Result<Option<Place>, Refusal> {
        let text = if path.is_empty() { "/" } else { path };
        let mut found = resolve(&self.session.jail, text, Last::NoLinks)?.found;
        self.folders.borrow_mut().share(&self.session.jail, &mut found)?;
        Ok(match found {
            Found::Resolved(place) if place.absolute == bytes(path)? => Some(place),
            Found::Resolved(_) | Found::ParentMissing { .. } | Found::Unresolvable { .. } => None,
        })
    }

    pub(super) fn object(&self, path: &str) -> Option<Object> {
        if let Some(known) = self.objects.borrow().get(path) {
            return known.clone();
        }
        let object = self.checked(self.look_up(path)).flatten();
        self.objects.borrow_mut().insert(path.to_owned(), object.clone());
        object
    }

    fn look_up(&self, path: &str) -> Result<Option<Object>, Refusal> {
        let Some(place) = self.place(path)? else { return Ok(None) };
        let Some(meta) = place.meta else { return Ok(None) };
        Ok(Some(Object { meta, xattrs: xattrs(&place, meta.kind)? }))
    }

    /// Of a folder above the roots, the names that lead to them. Of any other path none.
    fn names_to_roots(&self, path: &str) -> BTreeSet<String> {
        let jail = &self.session.jail;
        let Ok(path) = bytes(path) else { return BTreeSet::new() };
        let is_above = jail.root_of(&path).is_none();
        let roots = jail.roots.iter().filter(|_| is_above);
        let below = roots.filter_map(|root| root.path.strip_prefix(path.as_slice())?.strip_prefix(b"/"));
        below.filter_map(|rest| rest.split(|b| *b == b'/').next().map(show)).collect()
    }

    fn list(&self, path: &str) -> Result<Vec<String>, Refusal> {
        let Some(place) = self.place(path)? else { return Ok(Vec::new()) };
        let fail = |why| place.refusal("list", why);
        let dir = place.open_dir().map_err(fail)?;
        let jail = &self.session.jail;
        let mut names = Vec::new();
        for name in names_in(&dir).map_err(fail)? {
            let below = [place.absolute.as_slice(), b"/", &name].concat();
            if Meta::at(&dir, &name).map_err(fail)?.is_some_and(|meta| !jail.hides(&below, &meta)) {
                names.push(show(&name));
            }
        }
        Ok(names)
    }

    /// `left`: how many paths may still be listed.
    fn list_below(
        &self,
        dir: &OwnedFd,
        (absolute, suffix): (&[u8], &str),
        left: &mut usize,
        out: &mut Vec<String>,
    ) -> Result<bool, Errno> {
        for name in names_in(dir)? {
            let below = [absolute, b"/", &name].concat();
            let Some(meta) = Meta::at(dir, &name)? else { continue };
            if self.session.jail.hides(&below, &meta) {
                continue;
            }
            if *left == 0 || is_too_deep(&below) {
                return Ok(false);
            }
            *left -= 1;
            let suffix = format!("{suffix}/{}", show(&name));
            out.push(suffix.clone());
            let is_dir = meta.kind == Kind::Dir;
            if is_dir && !self.list_below(&open_dir(dir, &name)?, (&below, &suffix), left, out)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn read_hash(&self, path: &str) -> Result<Option<String>, Refusal> {
        let Some(place) = self.place(path)? else { return Ok(None) };
        let Some(kind) = place.meta.map(|meta| meta.kind) else { return Ok(None) };
        if !matches!(kind, Kind::File | Kind::Symlink) {
            return Ok(None);
        }
        match place.folder().and_then(|dir| hash_of(dir, &place.name, kind)) {
            Ok(hash) => Ok(Some(hash)),
            Err(Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(why) => Err(place.refusal("read", why)),
        }
    }

    /// What a snapshot holds. `None`: nothing was there, or it is not in the manifest.
    pub(super) fn entry(&self, object: &StoredRef) -> Result<Option<ManifestEntry>, Refusal> {
        let StoredRef { preimage, suffix } = object;
        let manifest = self.manifests.get(self.host, self.session, &preimage.snapshot_id)?;
        let entry = manifest.kept(&preimage.name, &self.shown(&preimage.path), suffix);
        Ok(entry.filter(|entry| entry.kind != EntryKind::Absent).cloned())
    }
}

fn left_by(change: &RecordedChange) -> impl Iterator<Item = &Image> {
    change.paths.iter().filter_map(|record| record.after.as_ref())
}

/// The attributes of what is at a place; `None` if they may not be read.
fn xattrs(place: &Place, kind: Kind) -> Result<Option<Attributes>, Refusal> {
    let read = match kind {
        Kind::Symlink | Kind::Other => return Ok(Some(Attributes::new())),
        Kind::Dir => place.open_dir().and_then(|dir| read_xattrs(&dir)),
        Kind::File => match place.open_file() {
            Ok((file, _)) => read_xattrs(file.file().expect("BUG: only disk files are compared")),
            Err(refusal) if refusal.code == Code::PermissionDenied => return Ok(None),
            Err(refusal) => return Err(refusal),
        },
    };
    match read {
        Ok(xattrs) => Ok(Some(xattrs)),
        Err(Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(why) => Err(place.refusal("read the attributes of", why)),
    }
}

/// A link's target, as its bytes.
pub(super) fn link_target(entry: &ManifestEntry) -> Option<Vec<u8>> {
    RequestPath::parse(entry.target.as_deref()?).ok().map(|target| target.as_bytes().to_vec())
}

fn image_of(entry: &ManifestEntry) -> Option<Image> {
    let target = link_target(entry);
    let kind = match entry.kind {
        EntryKind::File => Kind::File,
        EntryKind::Dir => Kind::Dir,
        EntryKind::Symlink => Kind::Symlink,
        EntryKind::Absent => return None,
    };
    let mode = entry.mode.unwrap_or(if kind == Kind::Dir { 0o755 } else { 0o644 });
    Some(Image {
        kind,
        mode,
        size_bytes: entry.size_bytes.or(target.as_ref().map(|target| target.len() as u64)).unwrap_or(0),
        hash: entry.body_hash.clone().or(target.map(|target| content_hash(&target))),
        preimage: None,
        identity: entry.identity,
        // The mode changes how an ACL reads.
        xattrs: Some(acl::with_mode(&entry.xattrs, mode)),
    })
}

impl World for DiskWorld<'_> {
    fn on_disk(&self, path: &str) -> Option<Image> {
        if !self.names_to_roots(path).is_empty() {
            return Some(folder());
        }
        self.object(path).map(|object| Image { xattrs: object.xattrs, ..object.meta.image() })
    }

    fn names_on_disk(&self, path: &str) -> Vec<String> {
        let to_roots = self.names_to_roots(path);
        if to_roots.is_empty() {
            return self.checked(self.list(path)).unwrap_or_default();
        }
        to_roots.into_iter().collect()
    }

    fn below_on_disk(&self, path: &str) -> Option<Vec<String>> {
        let place = self.checked(self.place(path)).flatten()?;
        let (mut left, mut out) = (CHANGED_PATHS_MAX, Vec::new());
        let listed = place
            .open_dir()
            .and_then(|dir| self.list_below(&dir, (&place.absolute, ""), &mut left, &mut out));
        // A folder that may not be read moves as any other.
        listed.is_ok_and(|is_all| is_all).then_some(out)
    }

    fn hash_on_disk(&self, path: &str) -> Option<String> {
        if let Some(known) = self.hashes.borrow().get(path) {
            return known.clone();
        }
        let hash = self.checked(self.read_hash(path)).flatten();
        self.hashes.borrow_mut().insert(path.to_owned(), hash.clone());
        hash
    }

    fn stored(&self, object: &StoredRef) -> Option<Image> {
        image_of(&self.checked(self.entry(object)).flatten()?)
    }

    fn names_stored(&self, object: &StoredRef) -> Vec<String> {
        let StoredRef { preimage, suffix } = object;
        let manifest = self.manifests.get(self.host, self.session, &preimage.snapshot_id);
        let Some(manifest) = self.checked(manifest) else { return Vec::new() };
        manifest.names_in(&preimage.name, suffix).map(str::to_owned).collect()
    }

    fn known_hash(&self, identity: &Identity) -> Option<String> {
        self.known.get(identity).or_else(|| self.known_since().by_identity.get(identity)).cloned()
    }

    fn copied_hash(&self, mtime_ns: i64, size_bytes: u64) -> Option<String> {
        self.known_since().by_time.get(&(mtime_ns, size_bytes))?.clone()
    }
}
