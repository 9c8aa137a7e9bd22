//! Host mounts: folders of the host copied into a virtual tree when its session is opened, whole or not at all.
//!
//! The walk finds what is to be copied and judges it by name and size, in path order, so that the same folder gives the
//! same tree or the same complaint. Then many hands read, each its share, every file through the root's descriptor with
//! links forbidden (I3). Contents are stored many to a blob: a mount costs what its bytes cost.

mod reach;
mod walk;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use aos_model::limits::{MOUNTS_MAX, ROOTS_MAX, VFS_MOUNT_ENTRIES_SHOWN};
use aos_model::path::{Spelled, show};
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{HostMount, VfsTarget};
use aos_model::state::MountShown;
use aos_model::vfs::{Body, Delta, Node, What};
use rustix::fs::OFlags;

use crate::host::Host;
use crate::jail::{Root, Source, open_beneath};
use walk::File;

/// Where mounts may come from.
struct Allowed<'a> {
    roots: Vec<Root>,
    hidden: &'a [Vec<u8>],
}

/// All mounts of a session, in order: the nodes of the tree it starts with, and how the mounts are shown.
pub(crate) fn mount(
    host: &Host,
    target: &VfsTarget,
    now_ns: u64,
) -> Result<(Vec<Delta>, Vec<MountShown>), Refusal> {
    let mounts = target.mounts.as_deref().unwrap_or_default();
    let roots = target.allowed_roots.as_deref().unwrap_or_default();
    if mounts.len() > MOUNTS_MAX || roots.len() > ROOTS_MAX {
        return Err(invalid(format!("at most {MOUNTS_MAX} mounts and {ROOTS_MAX} allowed roots")));
    }
    let roots = roots.iter().map(|root| pin(root)).collect::<Result<_, _>>()?;
    let allowed = Allowed { roots, hidden: &host.hidden };
    let mut nodes = BTreeMap::new();
    let mut shown = Vec::new();
    for mount in mounts {
        let plan = walk::plan(&allowed, mount)?;
        let bodies = read(host, &allowed, &plan.files)?;
        shown.push(describe(mount, &plan, target.show_host_paths == Some(true)));
        for (file, body) in plan.files.into_iter().zip(bodies) {
            place(&mut nodes, &file.key, body, now_ns);
        }
    }
    let delta = |(path, node): (String, Node)| Delta { path, before: None, after: Some(Box::new(node)) };
    Ok((nodes.into_iter().map(delta).collect(), shown))
}

fn pin(text: &str) -> Result<Root, Refusal> {
    let missing = || invalid(format!("{}: Allowed host root does not exist.", aos_model::text::escape(text)));
    let spelled = Spelled::parse(text).map_err(|_| missing())?;
    if !spelled.is_absolute() {
        return Err(invalid(format!(
            "{}: an allowed root is an absolute path",
            aos_model::text::escape(text)
        )));
    }
    Root::pin(Path::new(std::ffi::OsStr::from_bytes(spelled.as_bytes()))).map_err(|_| missing())
}

fn invalid(why: impl Into<String>) -> Refusal {
    Refusal::new(Code::InvalidMount, why)
}

/// A later mount overwrites, folders merge, and no path is both a file and a folder.
fn place(nodes: &mut BTreeMap<String, Node>, key: &str, body: Body, now_ns: u64) {
    let node = |what, mode| Node {
        what,
        mode,
        version: 1,
        created_at_ns: now_ns,
        updated_at_ns: now_ns,
        base: None,
    };
    for (slash, _) in key.match_indices('/') {
        if !nodes.get(&key[..slash]).is_some_and(Node::is_dir) {
            nodes.insert(key[..slash].to_owned(), node(What::Dir, 0o755));
        }
    }
    if nodes.insert(key.to_owned(), node(What::File(body), 0o644)).is_some_and(|old| old.is_dir()) {
        let prefix = format!("{key}/");
        let below = nodes.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let below: Vec<String> = below.map(|(path, _)| path.clone()).collect();
        below.iter().for_each(|path| {
            nodes.remove(path);
        });
    }
}

/// The mount as a model is told of it. Where on the host it lies is the operator's to tell.
fn describe(mount: &HostMount, plan: &walk::Plan, show_host: bool) -> MountShown {
    let prefix = if plan.mount_path.is_empty() { String::new() } else { format!("{}/", plan.mount_path) };
    let mut entries: Vec<String> = Vec::new();
    for file in &plan.files {
        let name = file.key.strip_prefix(&prefix).unwrap_or(&file.key);
        let entry = name.split_once('/').map_or_else(|| name.to_owned(), |(folder, _)| format!("{folder}/"));
        if entries.last() != Some(&entry) {
            entries.push(entry);
        }
    }
    entries.sort();
    entries.dedup();
    let more = entries.len().saturating_sub(VFS_MOUNT_ENTRIES_SHOWN) as u64;
    entries.truncate(VFS_MOUNT_ENTRIES_SHOWN);
    let mount_path = if plan.mount_path.is_empty() { "/".to_owned() } else { plan.mount_path.clone() };
    let shown = if show_host { mount.host_path.clone() } else { mount_path.clone() };
    MountShown { mount_path, shown, entries, more }
}

/// Files whose contents share a blob.
const SHARE_BYTES: u64 = 2 << 20;
const SHARE_FILES: usize = 512;

/// The contents of all files, in their order.
fn read(host: &Host, allowed: &Allowed<'_>, files: &[File]) -> Result<Vec<Body>, Refusal> {
    let mut shares: Vec<&[File]> = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, file) in files.iter().enumerate() {
        if index > start && (bytes + file.size > SHARE_BYTES || index - start >= SHARE_FILES) {
            shares.push(&files[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += file.size;
    }
    shares.push(&files[start..]);
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Result<Vec<Body>, Refusal>>> = Mutex::default();
    let work = || {
        while let Some((index, share)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, shares.get(i)?)))
        {
            let outcome = read_share(host, allowed, share);
            done.lock().expect("BUG: nobody panics handing in").insert(index, outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..host.machine.cores.min(shares.len()) {
            // Where no thread is to be had, fewer hands do the same work.
            let _ = std::thread::Builder::new().name("mount".into()).spawn_scoped(scope, work);
        }
        work();
    });
    let mut bodies = Vec::with_capacity(files.len());
    for outcome in done.into_inner().expect("BUG: nobody panics handing in").into_values() {
        // The first in path order is the one to tell.
        bodies.extend(outcome?);
    }
    Ok(bodies)
}

fn read_share(host: &Host, allowed: &Allowed<'_>, files: &[File]) -> Result<Vec<Body>, Refusal> {
    let size = files.iter().map(|file| file.size as usize).sum();
    let mut blob: Vec<u8> = Vec::with_capacity(size);
    for file in files {
        let from = blob.len();
        read_file(allowed, file, &mut blob)?;
        if std::str::from_utf8(&blob[from..]).is_err() {
            return Err(invalid(format!("{}: Mounted file must be valid UTF-8.", file.shown())));
        }
    }
    let blob_ref = host.blobs.put(&blob)?;
    host.contents.keep(&blob_ref, std::sync::Arc::new(blob));
    let mut at = 0;
    let body = |file: &File| {
        let offset_bytes = (files.len() > 1).then_some(at);
        at += file.size;
        Body { blob_ref: blob_ref.clone(), size_bytes: file.size, offset_bytes }
    };
    Ok(files.iter().map(body).collect())
}

/// Exactly as many bytes as the walk counted: the budget was judged by them.
fn read_file(allowed: &Allowed<'_>, file: &File, blob: &mut Vec<u8>) -> Result<(), Refusal> {
    let failed = |why: &dyn std::fmt::Display| {
        invalid(format!("Failed to read mounted file {}. ({why})", file.shown()))
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let root = &allowed.roots[file.root];
    let opened = open_beneath(&root.fd, file.below.as_slice(), flags, false).map_err(|why| failed(&why))?;
    let source = Source::disk(opened);
    let (start, mut at) = (blob.len(), 0);
    // One byte more than it had: a file that grew is told.
    blob.resize(start + file.size as usize + 1, 0);
    loop {
        match source.read_at(&mut blob[start + at..], at as u64) {
            Ok(0) => break,
            Ok(n) => at += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(failed(&why)),
        }
        if at as u64 > file.size {
            break;
        }
    }
    if at as u64 != file.size {
        return Err(failed(&"it changed while it was read"));
    }
    blob.truncate(start + at);
    Ok(())
}

impl File {
    fn shown(&self) -> String {
        show(&self.named)
    }
}
