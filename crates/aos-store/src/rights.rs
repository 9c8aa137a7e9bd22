//! The rights of a thread on files: the daemon's own, or those of the user that a session acts for.
//!
//! A daemon of root acts on the files of a session with the uid and gid of its commands, without capabilities, so that an
//! effect reaches what a command reaches. Its own state belongs to root: what the store does, it does with its own rights.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Whom a thread acts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActsFor {
    pub uid: u32,
    pub gid: u32,
}

thread_local! {
    static ACTING: Cell<Option<ActsFor>> = const { Cell::new(None) };
    /// Whether the thread has none of its capabilities in effect. One that acted for the daemon's own user stays so until
    /// it asks for its own rights: two system calls less for each effect, and no rights that nothing needs. A new thread
    /// has what the one had that started it.
    static IS_BARE: Cell<bool> = Cell::new(is_bare());
}

/// While it exists, the thread has other rights than before.
#[derive(Debug)]
#[must_use = "the rights end with it"]
pub struct Rights {
    before: Option<ActsFor>,
    /// Rights belong to a thread.
    _not_send: PhantomData<*const ()>,
}

impl Drop for Rights {
    fn drop(&mut self) {
        if self.before.is_none() && ACTING.get().is_some() && has_own_ids() {
            ACTING.set(None);
        } else if let Err(error) = switch(self.before) {
            // Going on with the rights of somebody else would be worse.
            tracing::error!(%error, "cannot change the rights of a thread");
            std::process::abort();
        }
    }
}

/// Whom this thread acts for now; none for the daemon itself.
pub fn acting_for() -> Option<ActsFor> {
    ACTING.get()
}

/// Acts for a user, or with the daemon's own rights, until the guard is dropped.
pub fn act_for(user: Option<ActsFor>) -> Result<Rights, Errno> {
    let before = ACTING.get();
    switch(user)?;
    Ok(Rights { before, _not_send: PhantomData })
}

/// Acts with the daemon's own ids, and with its capabilities only if they are needed for that, until the guard is dropped:
/// enough for what belongs to the daemon.
pub(crate) fn own_ids() -> Option<Rights> {
    (!has_own_ids()).then(own_rights)
}

fn has_own_ids() -> bool {
    ids(ACTING.get()) == ids(None)
}

/// Acts with the daemon's own rights until the guard is dropped.
pub fn own_rights() -> Rights {
    act_for(None).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot take back the rights of the daemon");
        std::process::abort()
    })
}

fn switch(to: Option<ActsFor>) -> Result<(), Errno> {
    let (is_bare, must_be_bare) = (IS_BARE.get(), to.is_some());
    let changes_ids = ids(to) != ids(ACTING.get());
    if changes_ids || is_bare != must_be_bare {
        let caps = own_capabilities()?;
        let set = |effective| rustix::thread::set_capabilities(None, CapabilitySets { effective, ..caps });
        // Changing ids needs capabilities, also from one user to another.
        if is_bare {
            set(caps.permitted)?;
            IS_BARE.set(false);
        }
        if changes_ids {
            let (uid, gid) = ids(to);
            set_file_ids(uid, gid)?;
        }
        if must_be_bare {
            set(CapabilitySet::empty())?;
            IS_BARE.set(true);
        }
    }
    ACTING.set(to);
    Ok(())
}

/// The capabilities of this process. Read once: it gives none of them up for good.
fn own_capabilities() -> Result<CapabilitySets, Errno> {
    static OWN: OnceLock<CapabilitySets> = OnceLock::new();
    if let Some(caps) = OWN.get() {
        return Ok(*caps);
    }
    rustix::thread::capabilities(None).map(|caps| *OWN.get_or_init(|| caps))
}

fn is_bare() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|caps| caps.effective.is_empty() && !caps.permitted.is_empty())
}

fn ids(acts_for: Option<ActsFor>) -> (u32, u32) {
    static OWN: OnceLock<(u32, u32)> = OnceLock::new();
    let own = || (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    acts_for.map_or_else(|| *OWN.get_or_init(own), |user| (user.uid, user.gid))
}

/// The ids by which the kernel judges access to files, of this thread only.
#[expect(unsafe_code, reason = "no safe crate has setfsuid")]
fn set_file_ids(uid: u32, gid: u32) -> Result<(), Errno> {
    // SAFETY: these calls take and return numbers. With -1 they only return the present one.
    let present = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX))
    };
    let is_set = present == (uid.cast_signed(), gid.cast_signed());
    if is_set { Ok(()) } else { Err(Errno::PERM) }
}
