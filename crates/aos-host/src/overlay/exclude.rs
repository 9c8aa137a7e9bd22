//! Folders that a session leaves out of capture: found when a command starts, and shown to it as they are.

use std::os::fd::{AsFd, OwnedFd};

use aos_model::limits::EXCLUDE_FOLDERS_MAX;
use aos_model::policy::protected_name;
use aos_model::records::Kind;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::OFlags;

use crate::disk::{Meta, names_in, open_beneath};
use crate::session::OpenSession;
use crate::target::{below_roots, is_too_deep};
use aos_model::path::is_below;
use aos_sandbox::BindMount;

/// The folders below the roots that the session's globs name. They are relative to the workdir, as those of rules are.
pub(super) fn find(session: &OpenSession) -> Vec<BindMount> {
    let globs: Vec<&str> = session.capture_exclude.iter().map(|glob| folder_of(glob)).collect();
    let (patterns, names): (Vec<&str>, Vec<&str>) = globs
        .into_iter()
        .filter(|glob| !glob.is_empty())
        .partition(|glob| glob.contains(['*', '?', '[', '{']));
    let mut found = Vec::new();
    for name in names {
        let absolute = match name.strip_prefix('/') {
            Some(_) => name.as_bytes().to_vec(),
            None => [session.jail.workdir.as_slice(), b"/", name.as_bytes()].concat(),
        };
        found.extend(bind_of(session, &absolute));
    }
    if let Some(patterns) = compile(&patterns) {
        let mut walk = Walk { session, patterns, left: EXCLUDE_FOLDERS_MAX, found: &mut found };
        for root in &session.jail.roots {
            if let Ok(dir) = open_beneath(&root.fd, ".", OFlags::RDONLY | OFlags::DIRECTORY, false) {
                walk.folder(&dir, &root.path);
            }
        }
    }
    // A wildcard above a folder may lead into a git folder, where names are judged.
    found.retain(|bind| protected_name(below_roots(&session.jail, &bind.at), session.holds_home).is_none());
    found
}

/// `target/` and `target/**` mean the folder too.
fn folder_of(glob: &str) -> &str {
    glob.strip_suffix("/**").unwrap_or(glob).trim_end_matches('/')
}

fn compile(patterns: &[&str]) -> Option<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        // An invalid glob matches nothing, so everything is captured.
        if let Ok(glob) = GlobBuilder::new(pattern).literal_separator(true).build() {
            set.add(glob);
        }
    }
    set.build().ok().filter(|set| !set.is_empty())
}

/// The folder at a path below a root, when it is one and no link leads there.
fn bind_of(session: &OpenSession, absolute: &[u8]) -> Option<BindMount> {
    let root =
        session.jail.roots.iter().find(|root| is_below(absolute, &root.path) && absolute != root.path)?;
    let below = &absolute[root.path.len() + 1..];
    let dir = open_beneath(&root.fd, below, OFlags::PATH | OFlags::DIRECTORY, false).ok()?;
    Some(bind(absolute, &Meta::of(&dir).ok()?))
}

fn bind(absolute: &[u8], meta: &Meta) -> BindMount {
    BindMount {
        at: absolute.to_vec(),
        from: absolute.to_vec(),
        pin: Some((meta.dev, meta.ino)),
        writable: true,
        submounts: false,
        required: true,
        overlay: None,
    }
}

struct Walk<'a> {
    session: &'a OpenSession,
    patterns: GlobSet,
    /// How many more folders are read.
    left: usize,
    found: &'a mut Vec<BindMount>,
}

impl Walk<'_> {
    fn folder(&mut self, dir: &OwnedFd, absolute: &[u8]) {
        for name in names_in(dir).unwrap_or_default() {
            if self.left == 0 {
                return;
            }
            let Ok(Some(meta)) = Meta::at(dir, &name) else { continue };
            if meta.kind != Kind::Dir {
                continue;
            }
            let below = [absolute, b"/", &name].concat();
            if is_too_deep(&below) || self.session.jail.hides(&below, &meta) {
                continue;
            }
            self.left -= 1;
            if self.patterns.is_match(self.session.jail.display(&below)) {
                self.found.push(bind(&below, &meta));
            } else if let Ok(inner) =
                open_beneath(dir.as_fd(), name.as_slice(), OFlags::RDONLY | OFlags::DIRECTORY, false)
            {
                self.folder(&inner, &below);
            }
        }
    }
}
