//! The roots as a command left them, as the rules for git folders read them: its overlay over the disk.

use std::os::fd::{AsFd as _, OwnedFd};

use aos_model::path::is_below;
use aos_model::policy::git::{GitJudge, Kind, Tree};
use aos_model::records::Kind as EntryKind;

use crate::disk::{self, Meta, open_dir};
use crate::git::{DiskTree, kind_at, read_file, root_of};
use crate::overlay::{Overlay, Part};
use crate::proposed::ProposedPath;
use crate::session::OpenSession;

/// What the rules for git folders say about each path. They compare the whole tree before and after, so that a folder
/// that is removed and made again is judged by what is different in it.
pub(super) fn judge_git(session: &OpenSession, overlay: &Overlay, paths: &mut [ProposedPath]) {
    let before = DiskTree(session);
    let after = MergedTree { lower: DiskTree(session), overlay };
    let mut judge = GitJudge::new(&before, &after);
    for path in paths {
        if let Some(root) = root_of(session, &path.absolute) {
            path.git = judge.judge(&root.path, &path.absolute);
        }
    }
}

/// The upper folders of an overlay over the disk.
pub(super) struct MergedTree<'a> {
    pub(super) lower: DiskTree<'a>,
    pub(super) overlay: &'a Overlay,
}

enum Layer<'p> {
    Upper(OwnedFd, &'p [u8]),
    Lower,
    Nothing,
}

impl MergedTree<'_> {
    /// Which layer shows a path.
    fn layer<'p>(&self, absolute: &'p [u8]) -> Layer<'p> {
        let roots = &self.lower.0.jail.roots;
        let holds = |part: &&Part| is_below(absolute, &roots[part.root].path);
        let Some(part) = self.overlay.parts.iter().find(holds) else { return Layer::Lower };
        let Some(below) = absolute[roots[part.root].path.len()..].strip_prefix(b"/") else {
            return Layer::Lower;
        };
        let mut hides_lower = false;
        let Ok(mut dir) = open_dir(part.upper.as_fd(), b".") else { return Layer::Nothing };
        let mut rest = below;
        loop {
            let (name, more) = match rest.iter().position(|b| *b == b'/') {
                Some(slash) => (&rest[..slash], Some(&rest[slash + 1..])),
                None => (rest, None),
            };
            let meta = match Meta::at(&dir, name) {
                Ok(Some(meta)) => meta,
                Ok(None) if !hides_lower => return Layer::Lower,
                Ok(None) | Err(_) => return Layer::Nothing,
            };
            if meta.kind == EntryKind::Other && disk::is_whiteout(&dir, name).unwrap_or(true) {
                return Layer::Nothing;
            }
            let Some(more) = more else { return Layer::Upper(dir, name) };
            let Ok(inner) = open_dir(&dir, name) else { return Layer::Nothing };
            hides_lower |= disk::is_opaque(&inner, self.overlay.in_user_namespace).unwrap_or(true);
            (dir, rest) = (inner, more);
        }
    }
}

impl Tree for MergedTree<'_> {
    fn kind(&self, absolute: &[u8]) -> Option<Kind> {
        match self.layer(absolute) {
            Layer::Upper(dir, name) => kind_at(&dir, name),
            Layer::Lower => self.lower.kind(absolute),
            Layer::Nothing => None,
        }
    }

    fn read(&self, absolute: &[u8]) -> Option<Vec<u8>> {
        match self.layer(absolute) {
            Layer::Upper(dir, name) => read_file(&dir, name),
            Layer::Lower => self.lower.read(absolute),
            Layer::Nothing => None,
        }
    }
}
