//! Host mounts: folders of the host copied into a virtual tree when its session is opened, whole or not at all.
//!
//! The walk finds what is to be copied and judges it by name and size, in path order, so that the same folder gives the
//! same tree or the same complaint. Then many hands read, each its share, every file through the root's descriptor with
//! links forbidden (I3). Contents are stored many to a blob: a mount costs what its bytes cost.

mod reach;
mod walk;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use aos_model::limits::{MOUNTS_MAX, ROOTS_MAX, VFS_MOUNT_ENTRIES_SHOWN};
use aos_model::path::{Spelled, show};
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{HostMount, VfsTarget};
use aos_model::state::MountShown;
use aos_model::vfs::{Body, Delta, Node, What};
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::content::Held;
use crate::disk::open_beneath;
use crate::host::Host;
use crate::jail::Root;
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

/// A later mount overwrites, folders merge, and no path is both a file and a folder. `folder` is the one of the file before.
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
                nodes.insert(key[..slash].to_owned(), node(What::Dir, 0o755));
            }
        }
    }
    let prefix = format!("{key}/");
    if nodes.insert(key, node(What::File(body), 0o644)).is_some_and(|old| old.is_dir()) {
        let below = nodes.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let below: Vec<String> = below.map(|(path, _)| path.clone()).collect();
        below.iter().for_each(|path| {
            nodes.remove(path);
        });
    }
}

/// The mount as a model is told of it. Where on the host it lies is the operator's to tell.
fn describe(mount: &HostMount, mount_path: String, files: &[(File, Body)], show_host: bool) -> MountShown {
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
    MountShown { mount_path, shown, entries, more }
}

/// Files whose contents share a blob.
const SHARE_BYTES: u64 = 2 << 20;
const SHARE_FILES: usize = 512;

/// Files and where their contents are.
type Copied = Vec<(File, Body)>;

/// What the walk found and nobody has read yet.
#[derive(Default)]
struct Shares {
    waiting: VecDeque<(usize, Vec<File>)>,
    handed_out: usize,
    /// The walk is over.
    complete: bool,
}

/// Files on their way from the walk to the hands that read them.
struct Reading<'a> {
    host: &'a Host,
    allowed: &'a Allowed<'a>,
    shares: Mutex<Shares>,
    more: Condvar,
    done: Mutex<BTreeMap<usize, Result<Copied, Refusal>>>,
}

impl Reading<'_> {
    fn hand_out(&self, share: Vec<File>) {
        let mut shares = self.shares.lock().expect("BUG: nobody panics handing out");
        let number = shares.handed_out;
        shares.handed_out += 1;
        shares.waiting.push_back((number, share));
        self.more.notify_one();
    }

    /// The walk is over; where it failed, nothing more is read.
    fn complete(&self, well: bool) {
        let mut shares = self.shares.lock().expect("BUG: nobody panics handing out");
        shares.complete = true;
        if !well {
            shares.waiting.clear();
        }
        self.more.notify_all();
    }

    fn work(&self) {
        loop {
            let mut shares = self.shares.lock().expect("BUG: nobody panics handing out");
            let (number, share) = loop {
                match shares.waiting.pop_front() {
                    Some(share) => break share,
                    None if shares.complete => return,
                    None => shares = self.more.wait(shares).expect("BUG: nobody panics handing out"),
                }
            };
            drop(shares);
            let outcome = read_share(self.host, self.allowed, share);
            self.done.lock().expect("BUG: nobody panics handing in").insert(number, outcome);
        }
    }
}

/// One mount: the walk goes ahead, other hands read behind it. What the walk complains of is told first, then the first
/// file in its order that could not be read.
fn copy(host: &Host, allowed: &Allowed<'_>, mount: &HostMount) -> Result<(String, Copied), Refusal> {
    let reading =
        Reading { host, allowed, shares: Mutex::default(), more: Condvar::new(), done: Mutex::default() };
    let mount_path = std::thread::scope(|scope| {
        for _ in 1..host.machine.cores {
            // Where no thread is to be had, fewer hands do the same work.
            let _ = std::thread::Builder::new().name("mount".into()).spawn_scoped(scope, || reading.work());
        }
        let (mut share, mut bytes) = (Vec::new(), 0);
        let walked = walk::walk(allowed, mount, &mut |file: File| {
            if !share.is_empty() && (bytes + file.size > SHARE_BYTES || share.len() >= SHARE_FILES) {
                reading.hand_out(std::mem::take(&mut share));
                bytes = 0;
            }
            bytes += file.size;
            share.push(file);
        });
        if walked.is_ok() && !share.is_empty() {
            reading.hand_out(share);
        }
        reading.complete(walked.is_ok());
        if walked.is_ok() {
            reading.work();
        }
        walked
    })?;
    let mut files = Vec::new();
    for outcome in reading.done.into_inner().expect("BUG: nobody panics handing in").into_values() {
        files.extend(outcome?);
    }
    files.sort_by(|(a, _), (b, _)| a.key.cmp(&b.key));
    Ok((mount_path, files))
}

fn read_share(host: &Host, allowed: &Allowed<'_>, files: Vec<File>) -> Result<Copied, Refusal> {
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
    host.contents.keep(&blob_ref, Arc::new(Held::new(blob)));
    let (mut at, alone) = (0, files.len() == 1);
    let body = |file: File| {
        let offset_bytes = (!alone).then_some(at);
        at += file.size;
        let body = Body { blob_ref: blob_ref.clone(), size_bytes: file.size, offset_bytes };
        (file, body)
    };
    Ok(files.into_iter().map(body).collect())
}

/// The folder of the file before: most files of a share lie in few.
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

/// Exactly as many bytes as the walk counted: the budget was judged by them.
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
        // One byte more than it had: a file that grew is told.
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
