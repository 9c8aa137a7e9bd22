//! Copies what a command without an overlay may not change.

use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use aos_model::capability::ProtectedPaths;
use aos_model::limits::{DENIED_BYTES_MAX, DENIED_FILES_MAX};
use aos_model::policy::{Op, protected_name};
use aos_model::records::Kind;
use rustix::io::Errno;

use super::paths::Entry;
use crate::disk::{self, Meta};
use crate::exec::Sweeper;
use crate::git::{HookFolders, is_git_configuration};
use crate::host::Host;
use crate::protection::link_problem;
use crate::session::OpenSession;
use crate::target::below_roots;

/// The folder of a command's copies, which most commands do not need.
#[derive(Debug)]
pub(super) struct Copies {
    name: String,
    sweeper: Arc<Sweeper>,
    made: OnceCell<OwnedFd>,
}

impl Copies {
    pub(super) fn new(host: &Host) -> Copies {
        let name = format!("guard_{:016x}", (host.machine.random)());
        Copies { name, sweeper: host.executor.overlays.clone(), made: OnceCell::new() }
    }

    /// The folder, which is made when first asked for.
    pub(super) fn dir(&self) -> Result<&OwnedFd, Errno> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = self.sweeper.overlays.session(&self.name).map_err(|fault| fault.errno())?;
        Ok(self.made.get_or_init(|| made))
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if self.made.get().is_some() {
            self.sweeper.sweep(&self.name);
        }
    }
}

/// Copies what is guarded while the folders are listed.
pub(super) struct Copier<'a> {
    session: &'a OpenSession,
    hooks: HookFolders<'a>,
    files: usize,
    bytes: u64,
    copied: u64,
}

impl Copier<'_> {
    pub(super) fn new(session: &OpenSession) -> Copier<'_> {
        Copier { session, hooks: HookFolders::new(session), files: 0, bytes: 0, copied: 0 }
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
        self.copied += 1;
        disk::copy(dir, name, meta, copies.dir()?, self.copied.to_string().as_bytes(), false)?;
        Ok(Some(Some(self.copied)))
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
            || self.hooks.hold(path)
            || is_git_configuration(self.session, path)
    }

    pub(super) fn is_denied(&self, path: &[u8]) -> bool {
        let shown = self.session.jail.display(path);
        [Op::Write, Op::Remove].iter().any(|op| self.session.policy.denies(*op, &shown))
    }
}
