//! Host mounts: copies host folders into a virtual tree when its session is opened, all or none.
//!
//! The walk lists the files and checks names and sizes in path order, so that the same folder gives the same tree or the
//! same error. Several threads then read batches of files, each file opened below its root's descriptor with links
//! forbidden (I3). The contents of a batch share a blob, so the cost of a mount follows its bytes, not its file count.

mod reach;
mod walk;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use aos_model::limits::{MOUNTS_MAX, ROOTS_MAX, VFS_MOUNT_ENTRIES_SHOWN};
use aos_model::path::{RequestPath, show};
use aos_model::records::MountSummary;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{HostMount, VfsTarget};
use aos_model::vfs::{Body, Delta, Node, NodeKind};
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::content::CachedBytes;
use crate::disk::open_beneath;
use crate::host::Host;
use crate::jail::Root;
use walk::File;

/// The allowed host roots.
struct Allowed<'a> {
    roots: Vec<Root>,
    hidden: &'a [Vec<u8>],
}

/// Copies all mounts of a session, in order. Returns the initial nodes and the description of the mounts.
pub(crate) fn mount(
    host: &Host,
    target: &VfsTarget,
    now_ns: u64,
) -> Result<(Vec<Delta>, Vec<MountSummary>), Refusal> {
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
        let (mount_path, files) = copy(host, &allowed, mount)?;
        shown.push(describe(mount, mount_path, &files, target.show_host_paths == Some(true)));
        let mut folder = String::new();
        for (file, body) in files {
            place(&mut nodes, &mut folder, file.key, body, now_ns);
        }
    }
    let delta = |(path, node): (String, Node)| Delta { path, before: None, after: Some(Box::new(node)) };
    Ok((nodes.into_iter().map(delta).collect(), shown))
}

fn pin(text: &str) -> Result<Root, Refusal> {
    let missing = || invalid(format!("{}: Allowed host root does not exist.", aos_model::text::escape(text)));
    let spelled = RequestPath::parse(text).map_err(|_| missing())?;
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

/// Adds a file. A later mount overwrites an earlier one, folders merge, and no path is both a file and a folder.
/// `folder` is the folder of the previous file.
fn place(nodes: &mut BTreeMap<String, Node>, folder: &mut String, key: String, body: Body, now_ns: u64) {
    let node = |what, mode| Node {
        what,
        mode,
        version: 1,
        created_at_ns: now_ns,
        updated_at_ns: now_ns,
        base: None,
    };
    let own = &key[..key.rfind('/').unwrap_or(0)];
    if own != folder {
        own.clone_into(folder);
        for (slash, _) in key.match_indices('/') {
            if !nodes.get(&key[..slash]).is_some_and(Node::is_dir) {
                nodes.insert(key[..slash].to_owned(), node(NodeKind::Dir, 0o755));
            }
        }
    }
    let prefix = format!("{key}/");
    if nodes.insert(key, node(NodeKind::File(body), 0o644)).is_some_and(|old| old.is_dir()) {
        let below = nodes.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let below: Vec<String> = below.map(|(path, _)| path.clone()).collect();
        below.iter().for_each(|path| {
            nodes.remove(path);
        });
    }
}

/// The description of a mount for the agent. The host path is shown only if the operator allows it.
fn describe(mount: &HostMount, mount_path: String, files: &[(File, Body)], show_host: bool) -> MountSummary {
    let prefix = if mount_path.is_empty() { String::new() } else { format!("{mount_path}/") };
    let mut entries: Vec<String> = Vec::new();
    for (file, _) in files {
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
    let mount_path = if mount_path.is_empty() { "/".to_owned() } else { mount_path };
    let shown = if show_host { mount.host_path.clone() } else { mount_path.clone() };
    MountSummary { mount_path, shown, entries, more }
}

/// The limits of a batch: the files of a batch share a blob.
const BATCH_BYTES: u64 = 2 << 20;
const BATCH_FILES: usize = 512;

/// Files and the location of their contents.
type Copied = Vec<(File, Body)>;

/// The batches that no thread has taken yet.
#[derive(Default)]
struct Batches {
    waiting: VecDeque<(usize, Vec<File>)>,
    pushed: usize,
    /// Whether the walk has ended.
    complete: bool,
}

/// Passes files from the walk to the reading threads.
struct BatchQueue<'a> {
    host: &'a Host,
    allowed: &'a Allowed<'a>,
    batches: Mutex<Batches>,
    more: Condvar,
    done: Mutex<BTreeMap<usize, Result<Copied, Refusal>>>,
}

impl BatchQueue<'_> {
    fn push(&self, batch: Vec<File>) {
        let mut batches = self.batches.lock().expect("BUG: lock poisoned");
        let number = batches.pushed;
        batches.pushed += 1;
        batches.waiting.push_back((number, batch));
        self.more.notify_one();
    }

    /// Ends the queue after the walk. If the walk failed, waiting batches are dropped.
    fn complete(&self, walk_succeeded: bool) {
        let mut batches = self.batches.lock().expect("BUG: lock poisoned");
        batches.complete = true;
        if !walk_succeeded {
            batches.waiting.clear();
        }
        self.more.notify_all();
    }

    fn work(&self) {
        loop {
            let mut batches = self.batches.lock().expect("BUG: lock poisoned");
            let (number, batch) = loop {
                match batches.waiting.pop_front() {
                    Some(batch) => break batch,
                    None if batches.complete => return,
                    None => batches = self.more.wait(batches).expect("BUG: lock poisoned"),
                }
            };
            drop(batches);
            let outcome = read_batch(self.host, self.allowed, batch);
            self.done.lock().expect("BUG: lock poisoned").insert(number, outcome);
        }
    }
}

/// Copies one mount: the walk runs ahead, other threads read behind it. An error of the walk is reported first, then
/// the first file in path order that could not be read.
fn copy(host: &Host, allowed: &Allowed<'_>, mount: &HostMount) -> Result<(String, Copied), Refusal> {
    let queue =
        BatchQueue { host, allowed, batches: Mutex::default(), more: Condvar::new(), done: Mutex::default() };
    let mount_path = std::thread::scope(|scope| {
        for _ in 1..host.machine.cores {
            // If a thread cannot be started, the others do the work.
            let thread = std::thread::Builder::new().name("mount".into());
            if let Err(error) = thread.spawn_scoped(scope, || queue.work()) {
                tracing::debug!(%error, "cannot start a thread that reads a mount");
            }
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let walked = walk::walk(allowed, mount, &mut |file: File| {
            if !batch.is_empty() && (bytes + file.size > BATCH_BYTES || batch.len() >= BATCH_FILES) {
                queue.push(std::mem::take(&mut batch));
                bytes = 0;
            }
            bytes += file.size;
            batch.push(file);
        });
        if walked.is_ok() && !batch.is_empty() {
            queue.push(batch);
        }
        queue.complete(walked.is_ok());
        if walked.is_ok() {
            queue.work();
        }
        walked
    })?;
    let mut files = Vec::new();
    for outcome in queue.done.into_inner().expect("BUG: lock poisoned").into_values() {
        files.extend(outcome?);
    }
    files.sort_by(|(a, _), (b, _)| a.key.cmp(&b.key));
    Ok((mount_path, files))
}

fn read_batch(host: &Host, allowed: &Allowed<'_>, files: Vec<File>) -> Result<Copied, Refusal> {
    let size: u64 = files.iter().map(|file| file.size + 1).sum();
    let mut blob: Vec<u8> = Vec::with_capacity(size as usize);
    let mut folder = Folder::default();
    for file in &files {
        let from = blob.len();
        read_file(&mut folder, allowed, file, &mut blob)?;
        if std::str::from_utf8(&blob[from..]).is_err() {
            return Err(invalid(format!("{}: Mounted file must be valid UTF-8.", file.display())));
        }
    }
    let blob_ref = host.blobs.put(&blob)?;
    host.contents.keep(&blob_ref, Arc::new(CachedBytes::new(blob)));
    let (mut at, alone) = (0, files.len() == 1);
    let body = |file: File| {
        let offset_bytes = (!alone).then_some(at);
        at += file.size;
        let body = Body { blob_ref: blob_ref.clone(), size_bytes: file.size, offset_bytes };
        (file, body)
    };
    Ok(files.into_iter().map(body).collect())
}

/// The folder of the previous file, kept open: most files of a batch are in few folders.
#[derive(Default)]
struct Folder {
    at: Option<(usize, Vec<u8>)>,
    fd: Option<OwnedFd>,
}

impl Folder {
    fn open(&mut self, allowed: &Allowed<'_>, file: &File) -> Result<OwnedFd, Errno> {
        let (above, name) = match file.below.iter().rposition(|b| *b == b'/') {
            Some(slash) => (&file.below[..slash], &file.below[slash + 1..]),
            None => (&b"."[..], file.below.as_slice()),
        };
        let is_it = self.at.as_ref().is_some_and(|(root, path)| *root == file.root && path == above);
        if !is_it {
            let root = &allowed.roots[file.root];
            self.fd = Some(open_beneath(&root.fd, above, OFlags::PATH | OFlags::DIRECTORY, false)?);
            self.at = Some((file.root, above.to_vec()));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        open_beneath(self.fd.as_ref().expect("BUG: opened above"), name, flags, false)
    }
}

/// Reads exactly the size that the walk counted, because the byte budget was checked with it.
fn read_file(
    folder: &mut Folder,
    allowed: &Allowed<'_>,
    file: &File,
    blob: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let failed = |why: &dyn std::fmt::Display| {
        invalid(format!("Failed to read mounted file {}. ({why})", file.display()))
    };
    let opened = folder.open(allowed, file).map_err(|why| failed(&why))?;
    let start = blob.len();
    loop {
        // One byte more than the size, to detect a file that grew.
        blob.reserve_exact((file.size as usize + 1).saturating_sub(blob.len() - start));
        let wanted = file.size as usize + 1 - (blob.len() - start);
        let at = (blob.len() - start) as u64;
        match rustix::io::pread(&opened, spare_capacity(blob), at) {
            Ok(n) if n < wanted => break,
            Ok(_) => {}
            Err(Errno::INTR) => {}
            Err(why) => return Err(failed(&why)),
        }
        if (blob.len() - start) as u64 > file.size {
            break;
        }
    }
    if (blob.len() - start) as u64 != file.size {
        return Err(failed(&"it changed while it was read"));
    }
    Ok(())
}

impl File {
    fn display(&self) -> String {
        show(&self.named)
    }
}
