//! Lists the files of a mount in path order, selected by its globs and within its byte budget.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use aos_model::limits::{VFS_MOUNT_BYTES_DEFAULT, VFS_MOUNT_FILES_MAX};
use aos_model::path::{RequestPath, show};
use aos_model::records::Kind;
use aos_model::refusal::Refusal;
use aos_model::request::HostMount;
use aos_model::vfs::VfsPath;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::OFlags;

use super::reach::{Reached, reach};
use super::{Allowed, invalid};
use crate::disk::TEMPORARY_PREFIX;
use crate::disk::names_in;
use crate::disk::{Meta, open_beneath};
use aos_model::path::is_below;

/// A file to be copied.
pub(super) struct File {
    /// Its key in the tree.
    pub(super) key: String,
    pub(super) root: usize,
    /// The path below the root, without links.
    pub(super) below: Vec<u8>,
    /// The path as the mount names it, for messages.
    pub(super) named: Vec<u8>,
    pub(super) size: u64,
}

/// Calls `each` for every file of a mount. Returns the mount path in the tree.
pub(super) fn walk(
    allowed: &Allowed<'_>,
    mount: &HostMount,
    take: &mut dyn FnMut(File),
) -> Result<String, Refusal> {
    let text = mount.host_path.trim();
    if text.is_empty() {
        return Err(invalid("Host mount path must not be empty."));
    }
    let outside = || {
        invalid(format!(
            "{}: Host path is outside the allowed roots or missing.",
            aos_model::text::escape(text)
        ))
    };
    if !text.is_ascii() {
        return Err(invalid(format!("{}: a host path is ASCII text", aos_model::text::escape(text))));
    }
    if allowed.roots.is_empty() {
        return Err(invalid("No allowed host roots configured for mounts."));
    }
    let spelled = RequestPath::parse(text).map_err(|_| outside())?;
    let source = source(allowed, &spelled).ok_or_else(outside)?;
    let is_file = source.meta.kind != Kind::Dir;
    let relative = source.below.clone();
    let mount_path = match &mount.mount_path {
        Some(path) => VfsPath::parse(path),
        None if is_file => VfsPath::parse(&format!("/{}", show(folder_of(&relative)))),
        None => VfsPath::parse(&format!("/{}", show(&relative))),
    }
    .map_err(|refusal| invalid(format!("mount_path: {}", refusal.message)))?;
    let mut walk = Walk {
        allowed,
        follow: mount.follow_symlinks == Some(true),
        include: globs(&mount.include_glob, "include_glob")?,
        exclude: globs(&mount.exclude_glob, "exclude_glob")?,
        mount_path: mount_path.as_str(),
        start: (source.root, source.below.clone()),
        folders: Vec::new(),
        files: 0,
        bytes: 0,
        bytes_max: mount.max_bytes.unwrap_or(VFS_MOUNT_BYTES_DEFAULT),
        take,
    };
    let name = relative[folder_of(&relative).len()..].strip_prefix(b"/").unwrap_or(&relative).to_vec();
    let named = spelled.as_bytes().to_vec();
    if is_file {
        walk.entry(&source, &name, named)?;
    } else {
        walk.folder(&source, b"", &named)?;
    }
    Ok(show(mount_path.as_str().as_bytes()))
}

/// The start of the mount: the first allowed root that contains it.
fn source(allowed: &Allowed<'_>, spelled: &RequestPath) -> Option<Reached> {
    (0..allowed.roots.len()).find_map(|root| {
        let path = &allowed.roots[root].path;
        let below = if spelled.is_absolute() {
            let clean: Vec<u8> = spelled.names().flat_map(|name| [b"/", name].concat()).collect();
            is_below(&clean, path).then(|| clean[path.len()..].to_vec())?
        } else {
            spelled.as_bytes().to_vec()
        };
        reach(allowed, root, &[], &below).ok().flatten()
    })
}

fn folder_of(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|b| *b == b'/').unwrap_or(0)]
}

/// As in the original tool, `*` also matches slashes.
fn globs(patterns: &[String], field: &str) -> Result<GlobSet, Refusal> {
    let bad = |why: &dyn std::fmt::Display| invalid(format!("{field}: {why}"));
    let mut set = GlobSetBuilder::new();
    for pattern in patterns.iter().map(|pattern| pattern.trim()).filter(|pattern| !pattern.is_empty()) {
        let glob =
            GlobBuilder::new(pattern).literal_separator(false).build().map_err(|why| bad(&why.kind()))?;
        set.add(glob);
    }
    set.build().map_err(|why| bad(&why.kind()))
}

struct Walk<'a> {
    allowed: &'a Allowed<'a>,
    follow: bool,
    include: GlobSet,
    exclude: GlobSet,
    mount_path: &'a str,
    /// The root of the mounted folder, and its path below it.
    start: (usize, Vec<u8>),
    /// The folders above the current one, to detect link loops.
    folders: Vec<(u64, u64)>,
    files: usize,
    bytes: u64,
    bytes_max: u64,
    take: &'a mut dyn FnMut(File),
}

impl Walk<'_> {
    /// `relative` is the folder's path below the mounted folder.
    fn folder(&mut self, at: &Reached, relative: &[u8], named: &[u8]) -> Result<(), Refusal> {
        let identity = (at.meta.dev, at.meta.ino);
        if self.folders.contains(&identity) {
            return Ok(());
        }
        let fail = |why| invalid(format!("Failed to read mounted file {}. ({why})", show(named)));
        let below: &[u8] = if at.below.is_empty() { b"." } else { &at.below };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let dir = open_beneath(&self.allowed.roots[at.root].fd, below, flags, false).map_err(fail)?;
        let mut names = names_in(&dir).map_err(fail)?;
        names.sort_unstable();
        self.folders.push(identity);
        for name in names.into_iter().filter(|name| !name.starts_with(TEMPORARY_PREFIX)) {
            let reached = self.look(&dir, at, &name)?;
            let Some(reached) = reached else { continue };
            self.entry(&reached, &join(relative, &name), join(named, &name))?;
        }
        self.folders.pop();
        Ok(())
    }

    fn look(&self, dir: &OwnedFd, at: &Reached, name: &[u8]) -> Result<Option<Reached>, Refusal> {
        let below = join(&at.below, name);
        let absolute = [self.allowed.roots[at.root].path.as_slice(), b"/", &below].concat();
        if self.allowed.hidden.iter().any(|hidden| is_below(&absolute, hidden)) {
            return Ok(None);
        }
        let fail = |why| invalid(format!("Failed to read mounted file {}. ({why})", show(&absolute)));
        let meta = Meta::at(dir, name).map_err(fail)?;
        Ok(meta.map(|meta| Reached { root: at.root, below, meta }))
    }

    fn entry(&mut self, at: &Reached, relative: &[u8], named: Vec<u8>) -> Result<(), Refusal> {
        match at.meta.kind {
            Kind::Dir => {
                if at.meta.mount != self.allowed.roots[at.root].meta.mount {
                    return Err(invalid(format!(
                        "{}: it is on another mount, which is outside the allowed roots",
                        show(&named)
                    )));
                }
                self.folder(at, relative, &named)
            }
            Kind::Symlink if self.is_excluded(at, relative) => Ok(()),
            Kind::Symlink => self.link(at, relative, named),
            Kind::File | Kind::Other if !self.is_wanted(at, relative) => Ok(()),
            Kind::Other => {
                Err(invalid(format!("{}: it is not a regular file and cannot be mounted", show(&named))))
            }
            Kind::File => self.file(at, relative, named),
        }
    }

    /// A link to the outside is refused even if links are not followed, so that the result does not depend on that setting.
    fn link(&mut self, at: &Reached, relative: &[u8], named: Vec<u8>) -> Result<(), Refusal> {
        let shown = show(&named);
        match reach(self.allowed, at.root, folder_of(&at.below), &at.below[folder_of(&at.below).len()..]) {
            Err(()) => Err(invalid(format!("{shown}: it is a link that leads outside the allowed roots"))),
            Ok(Some(target)) if self.follow => self.entry(&target, relative, named),
            // Skipped, like a dangling link or a link loop.
            Ok(_) => Ok(()),
        }
    }

    fn file(&mut self, at: &Reached, relative: &[u8], named: Vec<u8>) -> Result<(), Refusal> {
        let text = format!("/{}/{}", show(self.mount_path.as_bytes()), show(relative));
        let path = VfsPath::parse(&text)
            .map_err(|refusal| invalid(format!("{}: {}", show(&named), refusal.message)))?;
        let key = show(path.as_str().as_bytes());
        self.count(at.meta.size, &named)?;
        (self.take)(File { key, root: at.root, below: at.below.clone(), named, size: at.meta.size });
        Ok(())
    }

    /// Files are counted in path order, so the first file over the budget is always the same.
    fn count(&mut self, size: u64, named: &[u8]) -> Result<(), Refusal> {
        (self.files, self.bytes) = (self.files + 1, self.bytes.saturating_add(size));
        if self.files > VFS_MOUNT_FILES_MAX {
            return Err(invalid(format!(
                "{}: a mount brings at most {VFS_MOUNT_FILES_MAX} files",
                show(named)
            )));
        }
        if self.bytes > self.bytes_max {
            return Err(invalid(format!(
                "{}: Host mount exceeded the configured byte budget. With it there are {} bytes, {} are allowed; raise `max_bytes` or choose fewer files",
                show(named),
                self.bytes,
                self.bytes_max
            )));
        }
        Ok(())
    }

    /// Whether a glob excludes a file by the name that the mount gives it, or by its own: a link is not a way around it.
    /// A file outside of the mounted folder has no path there, so every end of its path counts.
    fn is_excluded(&self, at: &Reached, relative: &[u8]) -> bool {
        let matches = |path: &[u8]| self.exclude.is_match(as_path(path));
        let (root, start) = &self.start;
        let own = match start.as_slice() {
            _ if at.root != *root => None,
            b"" => Some(at.below.as_slice()),
            start if at.below == *start => Some(relative),
            start => at.below.strip_prefix(start).and_then(|own| own.strip_prefix(b"/")),
        };
        matches(relative) || own.map_or_else(|| ends(&at.below).any(matches), matches)
    }

    fn is_wanted(&self, at: &Reached, relative: &[u8]) -> bool {
        (self.include.is_empty() || self.include.is_match(as_path(relative)))
            && !self.is_excluded(at, relative)
    }
}

fn as_path(bytes: &[u8]) -> &std::path::Path {
    std::path::Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// A path, and what is left of it without its first folders.
fn ends(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at + 1);
    std::iter::once(0).chain(slashes).map(|at| &path[at..])
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}
