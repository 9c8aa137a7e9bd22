//! What a dry run shows: a unified diff of what would have changed.

use std::os::fd::{AsFd as _, OwnedFd};

use aos_model::limits::{DIFF_BYTES_MAX, DIFF_FILE_BYTES_MAX};
use aos_model::records::Kind;
use aos_model::text;
use rustix::io::Errno;

use crate::disk::{self, Meta, names_in, open_dir};
use crate::steps::{Content, Put, Step, StepTarget};
use crate::target::is_too_deep;

pub(super) fn diff(steps: &[Step]) -> String {
    let mut shown = String::new();
    for step in steps {
        match step {
            Step::Put(put) => shown.push_str(&put_diff(put)),
            Step::Remove { at, before, .. } => {
                if let Ok(Some(dir)) = at.folder() {
                    removed(dir.as_fd(), &at.name, before.kind, &at.shown, &mut shown);
                }
            }
            Step::SetMode { at, before, mode, .. } if before.mode != *mode => {
                shown.push_str(&mode_line(&at.shown, before.mode, *mode));
            }
            Step::SetMode { .. } | Step::MakeDir { .. } | Step::Rename { .. } => {}
        }
        if shown.len() > DIFF_BYTES_MAX {
            shown.push_str("… (more files changed; diff cut)\n");
            break;
        }
    }
    shown
}

fn mode_line(path: &str, before: u32, after: u32) -> String {
    format!("mode of {path} {before:04o} -> {after:04o}\n")
}

fn put_diff(put: &Put) -> String {
    let before = put.before.and_then(|meta| old(&put.at, &meta));
    let after = match &put.content {
        Content::Link(target) => Some([b"-> ".as_slice(), target, b"\n"].concat()),
        Content::Moved(moved) => moved.open().and_then(|file| read(&file)).ok(),
        Content::Bytes(fresh) => Some(fresh.bytes.clone()),
        Content::Blob(blob) => blob.open().and_then(|file| read(&file)).ok(),
    };
    let mode = match put.before {
        Some(before) if before.kind == Kind::File && before.mode != put.mode => {
            mode_line(&put.at.shown, before.mode, put.mode)
        }
        _ => String::new(),
    };
    mode + &text::diff(&put.at.shown, before.as_deref(), after.as_deref())
}

fn old(at: &StepTarget, meta: &Meta) -> Option<Vec<u8>> {
    let dir = at.folder().ok().flatten()?;
    content(dir, &at.name, meta.kind)
}

fn content(dir: impl std::os::fd::AsFd, name: &[u8], kind: Kind) -> Option<Vec<u8>> {
    match kind {
        Kind::Symlink => {
            let target = disk::read_link(dir, name).ok()?;
            Some([b"-> ".as_slice(), &target, b"\n"].concat())
        }
        Kind::File => read(&disk::open_file(dir, name).ok()?).ok(),
        Kind::Dir | Kind::Other => None,
    }
}

/// The diff of a removed entry, with everything below it.
fn removed(dir: impl std::os::fd::AsFd, name: &[u8], kind: Kind, path: &str, shown: &mut String) {
    if kind != Kind::Dir {
        shown.push_str(&text::diff(path, content(dir, name, kind).as_deref(), None));
        return;
    }
    let Ok(inner) = open_dir(dir, name) else { return };
    let mut names = names_in(&inner).unwrap_or_default();
    names.sort_unstable();
    for name in names {
        if shown.len() > DIFF_BYTES_MAX || is_too_deep(path.as_bytes()) {
            return;
        }
        if let Ok(Some(meta)) = Meta::at(&inner, &name) {
            removed(&inner, &name, meta.kind, &format!("{path}/{}", aos_model::path::show(&name)), shown);
        }
    }
}

/// Enough of a file to show it, or to say that it is too large.
fn read(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 << 10];
    while bytes.len() <= DIFF_FILE_BYTES_MAX {
        match rustix::io::pread(file, piece.as_mut_slice(), bytes.len() as u64) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(bytes)
}
