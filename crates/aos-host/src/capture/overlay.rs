//! The folders of an overlay: made for one command, thrown away when it has been read.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use aos_model::capability::FsOp;
use aos_store::{Bank, Fault};
use rustix::fs::{AtFlags, Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;

use super::exclude;
use crate::disk::Meta;
use crate::disk::{names_in, open_dir};
use crate::exec::{BindMount, OverlayOrder};
use crate::host::Host;
use crate::jail::is_below;
use crate::session::OpenSession;

/// What one command writes, root by root.
#[derive(Debug)]
pub(crate) struct Overlay {
    change_id: String,
    pub(super) parts: Vec<Part>,
    /// Folders that are not captured, to be seen as they are.
    excluded: Vec<BindMount>,
    sweeper: Arc<Sweeper>,
}

/// Makes the folders of overlays, and throws them away beside the commands' work: nobody waits for that.
#[derive(Debug)]
pub(crate) struct Sweeper {
    bank: Arc<Bank>,
    /// What is to go; the thread that does it is started when first needed and ends with the sweeper.
    due: Mutex<Option<Sender<String>>>,
}

impl Sweeper {
    pub(crate) fn new(bank: Bank) -> Sweeper {
        Sweeper { bank: Arc::new(bank), due: Mutex::new(None) }
    }

    /// Throws away what commands of an earlier daemon had changed and nobody committed. It may be a million files, and
    /// no start waits for that. What cannot go now (a process that is just dying holds it, say) goes at the next start.
    pub(crate) fn sweep_all(&self) -> Result<(), Fault> {
        self.bank.sessions()?.iter().for_each(|change_id| self.sweep(change_id));
        Ok(())
    }

    fn sweep(&self, change_id: &str) {
        let mut due = self.due.lock().expect("BUG: nobody panics here");
        if due.is_none() {
            let (sender, receiver) = channel::<String>();
            let bank = self.bank.clone();
            let work = move || receiver.iter().for_each(|change_id| drop(bank.drop_session(&change_id)));
            let started = std::thread::Builder::new().name("sweep".into()).spawn(work);
            *due = started.is_ok().then_some(sender);
        }
        let left = due.as_ref().is_none_or(|due| due.send(change_id.to_owned()).is_err());
        if left {
            let _ = self.bank.drop_session(change_id);
        }
    }
}

/// The overlay over one root.
#[derive(Debug)]
pub(super) struct Part {
    /// The root's place in the session's list.
    pub(super) root: usize,
    pub(super) upper: Arc<OwnedFd>,
    order: OverlayOrder,
}

impl Overlay {
    /// Whether the session's roots are such that overlays can lie over them. What cannot change needs none; `/` holds
    /// everything else; what is mounted below a root is no part of an overlay.
    pub(super) fn fits(session: &OpenSession) -> bool {
        let jail = &session.jail;
        session.capability.allowed_fs_ops.contains(&FsOp::Write)
            && !jail.cross_mounts
            && !jail.roots.is_empty()
            && !jail.roots.iter().any(|root| root.path.is_empty())
    }

    pub(super) fn make(host: &Host, session: &OpenSession, change_id: &str) -> Result<Overlay, String> {
        let sweeper = host.executor.overlays.clone();
        let dir = sweeper.bank.session(change_id).map_err(|fault| fault.to_string())?;
        let mut overlay = Overlay {
            change_id: change_id.to_owned(),
            parts: Vec::new(),
            excluded: exclude::find(session),
            sweeper,
        };
        let home = [host.hidden[0].as_slice(), b"/state/overlays/", change_id.as_bytes()].concat();
        for root in outermost(session) {
            let part = Part::make(session, root, &dir, &home)
                .map_err(|why| format!("cannot make the folders of an overlay: {why}"))?;
            overlay.parts.push(part);
        }
        Ok(overlay)
    }

    /// The roots in which something changed, by the cheapest of looks.
    pub(super) fn changed_roots<'l>(&'l self, session: &'l OpenSession) -> impl Iterator<Item = &'l [u8]> {
        let is_changed = |part: &&Part| !names_in(&part.upper).is_ok_and(|names| names.is_empty());
        self.parts.iter().filter(is_changed).map(|part| session.jail.roots[part.root].path.as_slice())
    }

    /// The session's roots as the command is to see them.
    pub(crate) fn lay(&self, roots: impl Iterator<Item = BindMount>) -> Vec<BindMount> {
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
            // Of two that are the same, the first one stands for both.
            around && other != index && (outer.path != inner.path || other < index)
        })
    };
    (0..roots.len()).filter(|index| !is_seen(*index)).collect()
}

impl Part {
    fn make(session: &OpenSession, root: usize, dir: &OwnedFd, home: &[u8]) -> Result<Part, Errno> {
        let number = root.to_string();
        let private = Mode::from_raw_mode(0o700);
        rustix::fs::mkdirat(dir, number.as_str(), private)?;
        let own = open_dir(dir, number.as_bytes())?;
        rustix::fs::mkdirat(&own, "work", private)?;
        rustix::fs::mkdirat(&own, "upper", private)?;
        let upper = open_dir(&own, b"upper")?;
        // The upper folder is what the root itself looks like.
        let meta = Meta::of(session.jail.roots[root].fd.as_fd())?;
        if (meta.uid, meta.gid) != (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        {
            let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
            rustix::fs::chownat(&own, "upper", Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        rustix::fs::fchmod(&upper, Mode::from_raw_mode(meta.mode))?;
        copy_acl(session.jail.roots[root].fd.as_fd(), &upper);
        let path = |name: &str| [home, b"/", number.as_bytes(), b"/", name.as_bytes()].concat();
        let order = OverlayOrder { upper: path("upper"), work: path("work") };
        Ok(Part { root, upper: Arc::new(upper), order })
    }
}

/// Who else may do what in the root, and what new files in it inherit. Most have none.
fn copy_acl(root: BorrowedFd<'_>, upper: &OwnedFd) {
    let root = format!("/proc/self/fd/{}", root.as_raw_fd());
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        let mut acl = vec![0_u8; 4096];
        if let Ok(length) = rustix::fs::getxattr(root.as_str(), name, acl.as_mut_slice()) {
            let _ = rustix::fs::fsetxattr(upper, name, &acl[..length], XattrFlags::empty());
        }
    }
}
