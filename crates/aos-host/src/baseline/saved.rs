//! A baseline as a file, for the daemon that follows one that died while the command ran.
//!
//! Records that end in NUL, which no path contains. The last one is empty: a file that lacks it was not finished.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use aos_model::records::Kind;
use aos_store::own_rights;
use rustix::io::Errno;

use super::{Baseline, Copies};
use crate::disk::{self, Meta};
use crate::exec::Sweeper;
use crate::session::OpenSession;

const FILE: &[u8] = b"baseline";
const FILE_BYTES_MAX: usize = 256 << 20;

impl Baseline {
    /// Writes it beside its copies.
    pub(super) fn save(&self) -> Result<(), Errno> {
        let _own = own_rights();
        let mut out =
            format!("1 {} {} {}\0", self.session.id, self.listed_at_ns, self.tool_call_id).into_bytes();
        let mut record = |kind: &str, path: &[u8]| {
            out.extend_from_slice(kind.as_bytes());
            out.extend_from_slice(path);
            out.push(0);
        };
        self.folders.iter().for_each(|path| record("folder ", path));
        self.reserved.iter().for_each(|path| record("reserved ", path));
        for (path, meta) in &self.paths {
            let copy = match self.guarded.get(path) {
                None => "-".to_owned(),
                Some(None) => "0".to_owned(),
                Some(Some(number)) => number.to_string(),
            };
            let Meta { kind, mode, size, mtime_ns, ctime_ns, dev, ino, nlink, uid, gid, mount } = meta;
            let kind = letter(*kind);
            record(
                &format!(
                    "{kind} {copy} {mode} {size} {mtime_ns} {ctime_ns} {dev} {ino} {nlink} {uid} {gid} {mount} "
                ),
                path,
            );
        }
        out.push(0);
        let file = disk::create_new(self.copies.dir()?, FILE)?;
        disk::write_all(&file, &out)
    }
}

/// A baseline that an earlier daemon saved in a folder of copies; `find` finds its session. `None` if there is none, or
/// it is not whole.
pub(super) fn load(
    name: &str,
    dir: OwnedFd,
    sweeper: &Arc<Sweeper>,
    find: impl Fn(&str) -> Option<Arc<OpenSession>>,
) -> Option<Baseline> {
    let bytes = disk::read_at_most(&disk::open_file(&dir, FILE).ok()?, FILE_BYTES_MAX).ok()?;
    let mut records = bytes.strip_suffix(b"\0\0")?.split(|b| *b == 0);
    let head = std::str::from_utf8(records.next()?).ok()?;
    let mut head = head.splitn(4, ' ');
    let (version, session, listed_at) = (head.next()?, head.next()?, head.next()?);
    if version != "1" {
        return None;
    }
    let mut baseline = Baseline {
        session: find(session)?,
        tool_call_id: head.next()?.to_owned(),
        folders: Vec::new(),
        listed_at_ns: listed_at.parse().ok()?,
        paths: BTreeMap::new(),
        reserved: BTreeSet::new(),
        guarded: BTreeMap::new(),
        copies: Copies::found(name, dir, sweeper),
    };
    for record in records {
        if let Some(path) = record.strip_prefix(b"folder ") {
            baseline.folders.push(path.to_vec());
        } else if let Some(path) = record.strip_prefix(b"reserved ") {
            baseline.reserved.insert(path.to_vec());
        } else {
            let (path, meta, copy) = parse(record)?;
            match copy {
                None => {}
                Some(0) => drop(baseline.guarded.insert(path.clone(), None)),
                Some(number) => drop(baseline.guarded.insert(path.clone(), Some(number))),
            }
            baseline.paths.insert(path, meta);
        }
    }
    Some(baseline)
}

fn parse(record: &[u8]) -> Option<(Vec<u8>, Meta, Option<u64>)> {
    let mut fields = record.splitn(13, |b| *b == b' ');
    let mut next = || std::str::from_utf8(fields.next()?).ok();
    let kind = match next()? {
        "f" => Kind::File,
        "d" => Kind::Dir,
        "l" => Kind::Symlink,
        "o" => Kind::Other,
        _ => return None,
    };
    let copy = match next()? {
        "-" => None,
        number => Some(number.parse().ok()?),
    };
    let meta = Meta {
        kind,
        mode: next()?.parse().ok()?,
        size: next()?.parse().ok()?,
        mtime_ns: next()?.parse().ok()?,
        ctime_ns: next()?.parse().ok()?,
        dev: next()?.parse().ok()?,
        ino: next()?.parse().ok()?,
        nlink: next()?.parse().ok()?,
        uid: next()?.parse().ok()?,
        gid: next()?.parse().ok()?,
        mount: next()?.parse().ok()?,
    };
    Some((fields.next()?.to_vec(), meta, copy))
}

fn letter(kind: Kind) -> char {
    match kind {
        Kind::File => 'f',
        Kind::Dir => 'd',
        Kind::Symlink => 'l',
        Kind::Other => 'o',
    }
}
