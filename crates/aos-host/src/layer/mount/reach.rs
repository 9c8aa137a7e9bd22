//! Resolves a path of a mount: links are read as text, and every step must stay inside an allowed root.

use std::collections::VecDeque;

use aos_model::limits::LINKS_MAX;
use aos_model::records::Kind;
use rustix::fs::OFlags;

use super::Allowed;
use crate::disk::{Meta, open_beneath};
use aos_model::path::is_below;

/// A path inside an allowed root, without links.
pub(super) struct Reached {
    pub(super) root: usize,
    pub(super) below: Vec<u8>,
    pub(super) meta: Meta,
}

/// Resolves `path` from a folder of a root. `Err`: it leads outside. `Ok(None)`: it is missing or a link loop.
pub(super) fn reach(
    allowed: &Allowed<'_>,
    mut root: usize,
    folder: &[u8],
    path: &[u8],
) -> Result<Option<Reached>, ()> {
    let mut at: Vec<Vec<u8>> = names(folder).into();
    let mut rest = names(path);
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == b".." {
            at.pop().ok_or(())?;
            continue;
        }
        let Some(meta) = look(allowed, root, &at, &name) else {
            // A missing path may be created later, so its location must be inside a root too.
            let leaves = rest.iter().try_fold(at.len() + 1, |depth, name| {
                if name == b".." { depth.checked_sub(1) } else { Some(depth + 1) }
            });
            return if leaves.is_some() { Ok(None) } else { Err(()) };
        };
        if meta.kind != Kind::Symlink {
            at.push(name);
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Ok(None);
        }
        let Some(target) = target(allowed, root, &at, &name) else { return Ok(None) };
        let mut next = names(&target);
        if target.starts_with(b"/") {
            let clean: Vec<u8> = next.iter().flat_map(|name| [b"/", name.as_slice()].concat()).collect();
            let inside = |root: &usize| is_below(&clean, &allowed.roots[*root].path);
            root = (0..allowed.roots.len()).find(inside).ok_or(())?;
            next = names(&clean[allowed.roots[root].path.len()..]);
            at.clear();
        }
        next.append(&mut rest);
        rest = next;
    }
    let below = at.join(b"/".as_slice());
    let absolute = [allowed.roots[root].path.as_slice(), b"/", &below].concat();
    if allowed.hidden.iter().any(|hidden| is_below(&absolute, hidden)) {
        return Err(());
    }
    let meta = match at.split_last() {
        Some((name, folder)) => look(allowed, root, folder, name),
        None => Some(allowed.roots[root].meta),
    };
    Ok(meta.map(|meta| Reached { root, below, meta }))
}

fn names(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|b| *b == b'/').filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec).collect()
}

fn folder(allowed: &Allowed<'_>, root: usize, at: &[Vec<u8>]) -> Option<std::os::fd::OwnedFd> {
    let path = if at.is_empty() { b".".to_vec() } else { at.join(b"/".as_slice()) };
    open_beneath(&allowed.roots[root].fd, path.as_slice(), OFlags::PATH | OFlags::DIRECTORY, false).ok()
}

fn look(allowed: &Allowed<'_>, root: usize, at: &[Vec<u8>], name: &[u8]) -> Option<Meta> {
    Meta::at(folder(allowed, root, at)?, name).ok().flatten()
}

fn target(allowed: &Allowed<'_>, root: usize, at: &[Vec<u8>], name: &[u8]) -> Option<Vec<u8>> {
    crate::disk::read_link(folder(allowed, root, at)?, name).ok()
}
