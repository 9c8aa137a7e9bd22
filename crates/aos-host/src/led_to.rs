//! What protected names lead to: the targets of the user's own links, and the files that git's configuration includes.
//!
//! It is looked for when a session is opened, in the roots themselves: an agent can add no such link, because that is
//! protected too.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use aos_model::path::is_below;
use aos_model::policy::git::{
    CONFIG_BYTES_MAX, git_file_target, hooks_path, included_paths, join, named_path,
};
use aos_model::policy::protected_places;
use aos_model::records::Kind;

use crate::disk::{Meta, names_in, open_dir_at_path, read_file};
use crate::jail::{Root, follow_text, follow_text_past_missing};

#[derive(Debug, Default)]
pub(crate) struct LedTo {
    /// Files and folders that are protected like the names that lead to them.
    pub(crate) places: Vec<Vec<u8>>,
    /// `core.hooksPath` of configuration that counts for all repositories.
    pub(crate) hook_paths: Vec<Vec<u8>>,
}

/// Files that include each other are followed this far.
const INCLUDES_MAX: usize = 8;

impl LedTo {
    pub(crate) fn find(roots: &[Arc<Root>], homes: &BTreeSet<String>, in_home: bool) -> LedTo {
        let mut found = LedTo::default();
        for home in homes {
            found.configuration(home.as_bytes(), b".gitconfig", homes, 0);
            found.configuration(format!("{home}/.config/git").as_bytes(), b"config", homes, 0);
        }
        let places = protected_places(in_home);
        for root in roots {
            for place in &places {
                found.link(&root.fd, &root.path, place.as_bytes());
            }
            found.repository(&root.path, homes);
        }
        // A link to the root itself protects nothing in particular.
        found.places.retain(|place| !roots.iter().any(|root| is_below(&root.path, place)));
        found
    }

    fn repository(&mut self, worktree: &[u8], homes: &BTreeSet<String>) {
        let file = read(worktree, b".git").and_then(|content| git_file_target(worktree, &content));
        let git = file.unwrap_or_else(|| below(worktree, b".git"));
        let common = read(&git, b"commondir").and_then(|content| named_path(&git, &content));
        let common = common.unwrap_or_else(|| git.clone());
        if let Ok(dir) = open_dir_at_path(&common) {
            for name in [&b"hooks"[..], b"config", b"info"] {
                self.link(&dir, &common, name);
            }
        }
        let hooks = below(&common, b"hooks");
        if let Ok(dir) = open_dir_at_path(&hooks) {
            for name in names_in(&dir).unwrap_or_default() {
                self.link(&dir, &hooks, &name);
            }
        }
        self.configuration(&common, b"config", homes, 0);
        self.configuration(&git, b"config.worktree", homes, 0);
        for path in self.hook_paths.iter().filter_map(|path| join(worktree, path)) {
            self.places.extend(follow_text(&path).filter(|real| *real != path));
        }
    }

    /// Notes where a link in a folder leads; nothing may be there yet.
    fn link(&mut self, dir: &OwnedFd, folder: &[u8], name: &[u8]) {
        let is_link = matches!(Meta::at(dir, name), Ok(Some(meta)) if meta.kind == Kind::Symlink);
        if is_link {
            self.places.extend(follow_text_past_missing(&below(folder, name)));
        }
    }

    fn configuration(&mut self, folder: &[u8], name: &[u8], homes: &BTreeSet<String>, depth: usize) {
        let Some(content) = read(folder, name) else { return };
        let in_homes = |path: Vec<u8>| match path.strip_prefix(b"~/") {
            Some(rest) => homes.iter().map(|home| below(home.as_bytes(), rest)).collect(),
            None => vec![path],
        };
        self.hook_paths.extend(hooks_path(&content).into_iter().flat_map(in_homes));
        for path in included_paths(&content).into_iter().flat_map(in_homes) {
            let Some(real) = join(folder, &path).and_then(|path| follow_text_past_missing(&path)) else {
                continue;
            };
            if depth < INCLUDES_MAX {
                let (folder, name) = split(&real);
                self.configuration(folder, name, homes, depth + 1);
            }
            self.places.push(real);
        }
    }
}

fn below(folder: &[u8], name: &[u8]) -> Vec<u8> {
    [folder, b"/", name].concat()
}

/// Links are followed: `.gitconfig` is often one.
fn read(folder: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let real = follow_text(&below(folder, name))?;
    let (folder, name) = split(&real);
    read_file(&open_dir_at_path(folder).ok()?, name, CONFIG_BYTES_MAX)
}

fn split(real: &[u8]) -> (&[u8], &[u8]) {
    let slash = real.iter().rposition(|b| *b == b'/').unwrap_or(0);
    (&real[..slash.max(1)], &real[slash + 1..])
}
