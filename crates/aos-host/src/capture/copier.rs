//! Copies what a command without an overlay may not change.

use aos_model::capability::ProtectedPaths;
use aos_model::limits::{DENIED_BYTES_MAX, DENIED_FILES_MAX};
use aos_model::policy::{Op, protected_name};
use aos_model::records::Kind;
use rustix::io::Errno;

use super::paths::Entry;
use crate::baseline::Copies;
use crate::disk::Meta;
use crate::git::{HookFolders, is_git_configuration};
use crate::protection::link_problem;
use crate::session::OpenSession;
use crate::target::below_roots;

/// Copies what is guarded while the folders are listed.
pub(super) struct Copier<'a> {
    session: &'a OpenSession,
    hooks: HookFolders<'a>,
    files: usize,
    bytes: u64,
}

impl Copier<'_> {
    pub(super) fn new(session: &OpenSession) -> Copier<'_> {
        Copier { session, hooks: HookFolders::new(session), files: 0, bytes: 0 }
    }

    /// The number of the copy of a guarded path, none for a folder; `None` if it is not guarded.
    pub(super) fn copy(&mut self, entry: &Entry<'_>, copies: &Copies) -> Result<Option<Option<u64>>, Errno> {
        let Entry { dir, name, path, meta } = *entry;
        let is_protected = self.is_protected(path) || self.is_protected_link(path, meta);
        if !is_protected && !self.is_denied(path) {
            return Ok(None);
        }
        if matches!(meta.kind, Kind::Dir | Kind::Other) {
            return Ok(Some(None));
        }
        if !is_protected {
            self.count(meta)?;
        }
        copies.add(dir, name, meta).map(|copy| Some(Some(copy)))
    }

    pub(super) fn count(&mut self, denied: &Meta) -> Result<(), Errno> {
        self.files += 1;
        self.bytes += denied.size;
        let is_too_much = self.files > DENIED_FILES_MAX || self.bytes > DENIED_BYTES_MAX;
        if is_too_much { Err(Errno::DQUOT) } else { Ok(()) }
    }

    /// A link in the place of a folder that would hold a protected name.
    fn is_protected_link(&self, path: &[u8], meta: &Meta) -> bool {
        let is_held = self.session.capability.protected_paths != ProtectedPaths::Allow;
        is_held && meta.kind == Kind::Symlink && link_problem(self.session, path).is_some()
    }

    pub(super) fn is_protected(&mut self, path: &[u8]) -> bool {
        if !matches!(self.session.capability.protected_paths, ProtectedPaths::Deny | ProtectedPaths::Withhold)
        {
            return false;
        }
        protected_name(below_roots(&self.session.jail, path), self.session.holds_home).is_some()
            || self.hooks.hold(path).is_some()
            || is_git_configuration(self.session, path)
    }

    pub(super) fn is_denied(&self, path: &[u8]) -> bool {
        let shown = self.session.jail.display(path);
        [Op::Write, Op::Remove].iter().any(|op| self.session.policy.denies(*op, &shown))
    }
}
