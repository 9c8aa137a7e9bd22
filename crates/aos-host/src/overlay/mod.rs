//! The overlay over the roots that one command runs on: its folders, made before and removed after.

mod exclude;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use aos_model::capability::FsOp;
use aos_model::refusal::Refusal;
use aos_sandbox::{BindMount, Overlay as OverlayDirs};
use rustix::io::Errno;

use crate::disk::{self, Meta, names_in, open_dir};
use crate::exec::Sweeper;
use crate::fault;
use crate::host::Host;
use crate::session::OpenSession;
use aos_model::path::is_below;

/// What one command writes, root by root.
#[derive(Debug)]
pub(crate) struct Overlay {
    change_id: String,
    pub(crate) parts: Vec<Part>,
    /// Folders that are not captured and shown as they are.
    excluded: Vec<BindMount>,
    sweeper: Arc<Sweeper>,
    /// Whether it is mounted in a user namespace, where overlayfs keeps its attributes under another name.
    pub(crate) in_user_namespace: bool,
}

/// The overlay over one root.
#[derive(Debug)]
pub(crate) struct Part {
    /// The root's index in the session's list.
    pub(crate) root: usize,
    pub(crate) upper: Arc<OwnedFd>,
    order: OverlayDirs,
}

/// Why a command did not run.
#[derive(Debug)]
pub(crate) enum NotRun {
    Refused(Refusal),
    /// No overlay can be mounted over its roots: it may run without one.
    NoOverlay(String),
}

impl From<Refusal> for NotRun {
    fn from(refusal: Refusal) -> NotRun {
        NotRun::Refused(refusal)
    }
}

impl NotRun {
    /// There is no overlay. Where only something is missing now, such as space, the command is refused: without an
    /// overlay what it changes would stay.
    pub(crate) fn without_overlay(subject: &str, why: Errno) -> NotRun {
        match why {
            Errno::NOSPC
            | Errno::DQUOT
            | Errno::NOMEM
            | Errno::MFILE
            | Errno::NFILE
            | Errno::AGAIN
            | Errno::INTR
            | Errno::IO => NotRun::Refused(fault::refusal(subject, why)),
            why => NotRun::NoOverlay(format!("{subject}: {why}")),
        }
    }
}

impl Overlay {
    /// Whether overlays can be mounted over the session's roots. A read-only root needs none; `/` holds everything
    /// else; what is mounted below a root is not part of an overlay.
    pub(crate) fn fits(session: &OpenSession) -> bool {
        let jail = &session.jail;
        session.capability.allowed_fs_ops.contains(&FsOp::Write)
            && !jail.cross_mounts
            && !jail.roots.is_empty()
            && !jail.roots.iter().any(|root| root.path.is_empty())
    }

    pub(crate) fn make(
        host: &Host,
        session: &OpenSession,
        change_id: &str,
        in_user_namespace: bool,
        dry_run: bool,
    ) -> Result<Overlay, NotRun> {
        let sweeper = host.executor.overlays.clone();
        let dir = sweeper.overlays.session(change_id).map_err(Refusal::from)?;
        let mut overlay = Overlay {
            change_id: change_id.to_owned(),
            parts: Vec::new(),
            // A dry run changes nothing, so nothing is excluded.
            excluded: if dry_run { Vec::new() } else { exclude::find(session) },
            sweeper,
            in_user_namespace,
        };
        let home = [host.hidden[0].as_slice(), b"/state/overlays/", change_id.as_bytes()].concat();
        for root in outermost(session) {
            let part = Part::make(session, root, &dir, &home)
                .map_err(|why| NotRun::without_overlay("cannot make the folders of an overlay", why))?;
            overlay.parts.push(part);
        }
        Ok(overlay)
    }

    /// The roots in which something changed: those whose upper folder is not empty.
    pub(crate) fn changed_roots<'l>(&'l self, session: &'l OpenSession) -> impl Iterator<Item = &'l [u8]> {
        let is_changed = |part: &&Part| !names_in(&part.upper).is_ok_and(|names| names.is_empty());
        self.parts.iter().filter(is_changed).map(|part| session.jail.roots[part.root].path.as_slice())
    }

    /// The folders that are not captured.
    pub(crate) fn excluded_folders(&self) -> Vec<Vec<u8>> {
        self.excluded.iter().map(|bind| bind.at.clone()).collect()
    }

    /// The session's roots as the command is to see them.
    pub(crate) fn mount_over(&self, roots: impl Iterator<Item = BindMount>) -> Vec<BindMount> {
        let over = |(index, root): (usize, BindMount)| {
            let part = self.parts.iter().find(|part| part.root == index)?;
            Some(BindMount { overlay: Some(part.order.clone()), ..root })
        };
        roots.enumerate().filter_map(over).chain(self.excluded.iter().cloned()).collect()
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        self.sweeper.sweep(&self.change_id);
    }
}

/// A root inside another on the same mount is seen through that one's overlay.
fn outermost(session: &OpenSession) -> Vec<usize> {
    let roots = &session.jail.roots;
    let is_seen = |index: usize| {
        let inner = &roots[index];
        roots.iter().enumerate().any(|(other, outer)| {
            let around = is_below(&inner.path, &outer.path) && inner.meta.mount == outer.meta.mount;
            // Of two equal roots, the first one is used for both.
            around && other != index && (outer.path != inner.path || other < index)
        })
    };
    (0..roots.len()).filter(|index| !is_seen(*index)).collect()
}

impl Part {
    fn make(session: &OpenSession, root: usize, dir: &OwnedFd, home: &[u8]) -> Result<Part, Errno> {
        let number = root.to_string();
        disk::make_dir(dir, number.as_bytes())?;
        let own = open_dir(dir, number.as_bytes())?;
        disk::make_dir(&own, b"work")?;
        disk::make_dir(&own, b"upper")?;
        let upper = open_dir(&own, b"upper")?;
        // The upper folder gets the metadata of the root: the merged folder shows the upper one's.
        let meta = Meta::of(session.jail.roots[root].fd.as_fd())?;
        if (meta.uid, meta.gid) != (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        {
            disk::set_owner_at(&own, b"upper", meta.uid, meta.gid)?;
        }
        disk::set_mode(&upper, meta.mode)?;
        disk::copy_acl(session.jail.roots[root].fd.as_fd(), &upper);
        let path = |name: &str| [home, b"/", number.as_bytes(), b"/", name.as_bytes()].concat();
        let order = OverlayDirs { upper: path("upper"), work: path("work") };
        Ok(Part { root, upper: Arc::new(upper), order })
    }
}
