//! Doing something with the rights of the command's user, while init still has its own.

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::spec::User;

/// Runs `act` with the uid and gid of the command, without other groups and without capabilities: what it opens is
/// what the command could open by itself. Without a user to change to, the rights are the command's already.
pub(crate) fn with_rights_of<T>(user: Option<User>, act: impl FnOnce() -> T) -> Result<T, Errno> {
    let Some(user) = user else { return Ok(act()) };
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let own = rustix::thread::capabilities(None)?;
    let is_current = (uid.as_raw(), gid.as_raw()) == (user.uid, user.gid);
    match rustix::thread::set_thread_groups(&[]) {
        // Root of a container may lack CAP_SETGID: it cannot drop its groups, but need not change its ids either.
        Err(Errno::PERM) if is_current => {}
        outcome => outcome?,
    }
    rustix::thread::set_thread_res_gid(gid, Gid::from_raw(user.gid), gid)?;
    rustix::thread::set_thread_res_uid(uid, Uid::from_raw(user.uid), uid)?;
    let none = CapabilitySets { effective: CapabilitySet::empty(), ..own };
    rustix::thread::set_capabilities(None, none)?;
    let outcome = act();
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    rustix::thread::set_capabilities(None, own)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(outcome)
}
