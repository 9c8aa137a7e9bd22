//! Manifests: JSON files that say what each path of a snapshot was before the change.
//!
//! `state/snapshots/<session>/<snapshot>/manifest.json`. Bodies are blobs, so a body that
//! two snapshots share is stored once.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use aos_model::records::{Attributes, Identity};
use aos_model::request::hash_name;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::blobs::copy_hashing;
use crate::disk;
use crate::fault::Fault;
use crate::rights::own_rights;
use crate::session_dirs::{check_name, drop_folder, is_plain_name, names_in_store};

/// The pre-images of one tool call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub snapshot_id: String,
    pub session_id: String,
    pub scope_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    pub captured_at_ns: u64,
    pub workspace_root: String,
    /// By path, spelled as in receipts.
    pub entries: BTreeMap<String, ManifestEntry>,
    /// Pre-images that `entries` cannot hold: folders with everything below them, and second and later pre-images of
    /// a path. By the name of the pre-image file, then by the suffix that follows the path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pieces: BTreeMap<String, BTreeMap<String, ManifestEntry>>,
    /// The hash of the manifest with this field empty, checked before anything is restored.
    #[serde(default)]
    checksum: String,
}

/// A manifest as it is written. It borrows, because a manifest may list a hundred thousand paths.
#[derive(Serialize)]
struct Written<'a> {
    snapshot_id: &'a str,
    session_id: &'a str,
    scope_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_id: Option<&'a str>,
    captured_at_ns: u64,
    workspace_root: &'a str,
    entries: &'a BTreeMap<String, ManifestEntry>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pieces: &'a BTreeMap<String, BTreeMap<String, ManifestEntry>>,
    checksum: &'a str,
}

/// A writer that hashes its input.
struct HashWriter(Sha256);

impl std::io::Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _own = own_rights();
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What one path was before the change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestEntry {
    pub kind: EntryKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// The target of a symbolic link, spelled as paths in receipts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// User attributes and the ACL.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: Attributes,
    /// The object was not displaced but moved to this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
    /// Of a file or a link as it was displaced: with it, an object whose content no record knows is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The name of the pre-image, where `pieces` does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preimage: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    File,
    Absent,
    Symlink,
    Dir,
}

impl ManifestEntry {
    pub fn absent() -> ManifestEntry {
        ManifestEntry {
            kind: EntryKind::Absent,
            body_hash: None,
            mode: None,
            size_bytes: None,
            uid: None,
            gid: None,
            target: None,
            xattrs: BTreeMap::new(),
            moved_to: None,
            identity: None,
            preimage: None,
        }
    }
}

impl Manifest {
    pub fn new(session_id: &str, snapshot_id: &str, workspace_root: &str) -> Manifest {
        Manifest {
            snapshot_id: snapshot_id.to_owned(),
            session_id: session_id.to_owned(),
            scope_id: String::new(),
            turn_id: None,
            captured_at_ns: 0,
            workspace_root: workspace_root.to_owned(),
            entries: BTreeMap::new(),
            pieces: BTreeMap::new(),
            checksum: String::new(),
        }
    }

    /// Adds a pre-image: the object itself under the empty suffix, and everything below it.
    pub fn keep(&mut self, preimage: &str, path: &str, mut piece: BTreeMap<String, ManifestEntry>) {
        let is_plain = piece.len() == 1 && piece.values().all(|kept| kept.kind != EntryKind::Dir);
        let is_first = !self.entries.contains_key(path);
        if is_plain && is_first {
            piece.values_mut().for_each(|kept| kept.preimage = Some(preimage.to_owned()));
        }
        for (suffix, kept) in &piece {
            self.entries.entry(format!("{path}{suffix}")).or_insert_with(|| kept.clone());
        }
        if !(is_plain && is_first) {
            self.pieces.insert(preimage.to_owned(), piece);
        }
    }

    /// The blobs of the files below displaced folders.
    pub fn bodies_in_folders(&self) -> impl Iterator<Item = &str> {
        let inner = self.pieces.values().flatten().filter(|(suffix, _)| !suffix.is_empty());
        inner.filter_map(|(_, kept)| kept.body_hash.as_deref())
    }

    /// Takes out all files with these contents.
    pub fn forget(&mut self, lost: &BTreeSet<String>) {
        let is_kept = |kept: &ManifestEntry| kept.body_hash.as_ref().is_none_or(|hash| !lost.contains(hash));
        self.entries.retain(|_, kept| is_kept(kept));
        for piece in self.pieces.values_mut() {
            piece.retain(|_, kept| is_kept(kept));
        }
    }

    /// What was at `path` and `suffix` when the pre-image `preimage` was taken.
    pub fn kept(&self, preimage: &str, path: &str, suffix: &str) -> Option<&ManifestEntry> {
        match self.pieces.get(preimage) {
            Some(piece) => piece.get(suffix),
            None if suffix.is_empty() => {
                // Manifests of earlier versions do not say which pre-image an entry is.
                let is_it =
                    |kept: &&ManifestEntry| kept.preimage.as_deref().is_none_or(|name| name == preimage);
                self.entries.get(path).filter(is_it)
            }
            None => None,
        }
    }

    /// The suffixes of everything below a pre-image. Each begins with a slash.
    pub fn below(&self, preimage: &str) -> impl Iterator<Item = &str> {
        let suffixes = self.pieces.get(preimage).into_iter().flat_map(BTreeMap::keys);
        suffixes.map(String::as_str).filter(|suffix| !suffix.is_empty())
    }

    /// The names in a folder of a pre-image.
    pub fn names_in<'m>(&'m self, preimage: &str, suffix: &str) -> impl Iterator<Item = &'m str> + use<'m> {
        let prefix = format!("{suffix}/");
        let below = self.pieces.get(preimage).map(|piece| piece.range(prefix.clone()..));
        let below = below.into_iter().flatten();
        let names = below.map_while(move |(suffix, _)| suffix.strip_prefix(prefix.as_str()));
        names.filter(|name| !name.contains('/'))
    }

    /// Everything that it lists.
    pub fn all(&self) -> impl Iterator<Item = &ManifestEntry> {
        self.entries.values().chain(self.pieces.values().flat_map(BTreeMap::values))
    }

    /// The blobs that the manifest names.
    pub fn bodies(&self) -> impl Iterator<Item = &str> {
        self.all().filter_map(|kept| kept.body_hash.as_deref())
    }

    /// The bytes of the file, with the checksum.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(&self.with_checksum(&self.sum()))
            .expect("BUG: a manifest is plain data");
        bytes.push(b'\n');
        bytes
    }

    /// Parses the bytes of a manifest file and checks its checksum. The error says what is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Manifest, String> {
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(|why| why.to_string())?;
        if manifest.checksum != manifest.sum() {
            return Err("its content does not match its checksum".into());
        }
        Ok(manifest)
    }

    fn sum(&self) -> String {
        let mut hash = HashWriter(Sha256::new());
        serde_json::to_writer(&mut hash, &self.with_checksum("")).expect("BUG: a manifest is plain data");
        hash_name(&hash.0.finalize().into())
    }

    fn with_checksum<'a>(&'a self, checksum: &'a str) -> Written<'a> {
        Written {
            snapshot_id: &self.snapshot_id,
            session_id: &self.session_id,
            scope_id: &self.scope_id,
            turn_id: self.turn_id.as_deref(),
            captured_at_ns: self.captured_at_ns,
            workspace_root: &self.workspace_root,
            entries: &self.entries,
            pieces: &self.pieces,
            checksum,
        }
    }
}

/// The folder of all manifests.
#[derive(Debug)]
pub struct Manifests {
    dir: OwnedFd,
    sync: bool,
}

const NAME: &str = "manifest.json";

impl Manifests {
    pub(crate) fn new(dir: OwnedFd, sync: bool) -> Manifests {
        Manifests { dir, sync }
    }

    /// Writes a manifest under a temporary name and renames it into place, so a reader sees all of it or none.
    pub fn write(&self, manifest: &Manifest) -> Result<(), Fault> {
        check_names(&[&manifest.session_id, &manifest.snapshot_id])?;
        let fail = |why| Fault::io(format!("cannot write the manifest of {}", manifest.snapshot_id), why);
        let session = disk::make_dir(&self.dir, &manifest.session_id)?;
        let dir = disk::make_new_dir(&session, &manifest.snapshot_id)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir, "manifest.json.new", flags, disk::PRIVATE_FILE).map_err(fail)?;
        disk::write_all(&file, &manifest.to_bytes()).map_err(fail)?;
        if self.sync {
            rustix::fs::fsync(&file).map_err(fail)?;
        }
        rustix::fs::renameat(&dir, "manifest.json.new", &dir, NAME).map_err(fail)?;
        if self.sync {
            for dir in [&dir, &session, &self.dir] {
                rustix::fs::fsync(dir).map_err(fail)?;
            }
        }
        Ok(())
    }

    /// `None` when there is no manifest; a damaged one is a fault.
    pub fn read(&self, session_id: &str, snapshot_id: &str) -> Result<Option<Manifest>, Fault> {
        let _own = own_rights();
        check_names(&[session_id, snapshot_id])?;
        let path = format!("{session_id}/{snapshot_id}/{NAME}");
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.dir, path.as_str(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(why) => return Err(Fault::io(format!("cannot open the manifest of {snapshot_id}"), why)),
        };
        let mut bytes = Vec::new();
        copy_hashing(&file, |chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        })?;
        let damaged =
            |why: String| Fault::Refused(format!("the manifest of {snapshot_id} is damaged: {why}"));
        Manifest::from_bytes(&bytes).map(Some).map_err(damaged)
    }

    pub fn drop_snapshot(&self, session_id: &str, snapshot_id: &str) -> Result<(), Fault> {
        let _own = own_rights();
        check_names(&[session_id, snapshot_id])?;
        match disk::open_dir(&self.dir, session_id) {
            Ok(session) => drop_folder(&session, snapshot_id),
            Err(Fault::Io { errno: Errno::NOENT, .. }) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    pub fn drop_session(&self, session_id: &str) -> Result<(), Fault> {
        let _own = own_rights();
        check_names(&[session_id])?;
        drop_folder(&self.dir, session_id)
    }

    /// The sessions that have manifests here.
    pub fn sessions(&self) -> Result<Vec<String>, Fault> {
        let _own = own_rights();
        names(&self.dir)
    }

    pub fn snapshots(&self, session_id: &str) -> Result<Vec<String>, Fault> {
        let _own = own_rights();
        check_names(&[session_id])?;
        match disk::open_dir(&self.dir, session_id) {
            Ok(session) => names(&session),
            Err(Fault::Io { errno: Errno::NOENT, .. }) => Ok(Vec::new()),
            Err(fault) => Err(fault),
        }
    }

    /// Calls `each` with every manifest of every session.
    pub fn each(&self, mut each: impl FnMut(Result<Manifest, Fault>)) -> Result<(), Fault> {
        let _own = own_rights();
        for session_id in self.sessions()? {
            for snapshot_id in self.snapshots(&session_id)? {
                if let Some(manifest) = self.read(&session_id, &snapshot_id).transpose() {
                    each(manifest);
                }
            }
        }
        Ok(())
    }
}

fn check_names(ids: &[&str]) -> Result<(), Fault> {
    ids.iter().try_for_each(|id| check_name(id))
}

fn names(dir: &OwnedFd) -> Result<Vec<String>, Fault> {
    let names = names_in_store(dir)?.into_iter().filter_map(|name| String::from_utf8(name).ok());
    Ok(names.filter(|name| is_plain_name(name)).collect())
}
