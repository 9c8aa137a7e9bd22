//! Set-id bits and file capabilities that a command leaves: no file of a session runs with the privileges of another user.
//!
//! Over an overlay they do not land. Where there is none they are removed when the command has ended.

use aos_model::limits::PRIVILEGE_SCAN_PATHS_MAX;
use aos_model::receipt::Warning;
use aos_model::records::Kind;
use rustix::io::Errno;

use super::paths::{self, CLOCK_LAG_NS, Entry, Purpose, Unlisted};
use crate::disk::{self, SET_ID_BITS};
use crate::session::OpenSession;

/// The warning about files that lost privileges.
pub(super) fn warning(paths: &[String]) -> Option<Warning> {
    let more = if paths.len() > 10 { ", …" } else { "" };
    let named = paths.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", ");
    let message =
        format!("set-user-id and set-group-id bits and file capabilities were dropped: {named}{more}");
    (!paths.is_empty()).then(|| Warning::new("privileges_dropped", message))
}

/// Takes privileges away from files in the folders that changed since the command was started.
pub(super) fn drop_since(session: &OpenSession, folders: &[Vec<u8>], started_at_ns: u64) -> Vec<Warning> {
    let since_ns = (started_at_ns as i64).saturating_sub(CLOCK_LAG_NS);
    let (mut dropped, mut unchecked) = (Vec::new(), Vec::new());
    let listed = paths::list(session, folders, Purpose::Privileges, &mut |entry| {
        let is_new = entry.meta.kind == Kind::File && entry.meta.ctime_ns >= since_ns;
        match if is_new { drop_privileges(&entry) } else { Ok(false) } {
            Ok(false) => {}
            Ok(true) => dropped.push(session.jail.display(entry.path)),
            Err(why) => unchecked.push(format!(
                "set-id bits or capabilities of {} could not be removed: {why}",
                session.jail.display(entry.path)
            )),
        }
        Ok(())
    });
    unchecked.extend(match listed {
        Ok(listed) => listed.too_deep.map(|path| {
            let shown: String = session.jail.display(&path).chars().take(100).collect();
            format!("{shown}…: nested too deep: set-id bits there were not looked for")
        }),
        Err(Unlisted::Io(path, why)) => Some(format!("cannot list {}: {why}", session.jail.display(&path))),
        Err(Unlisted::TooMany | Unlisted::TooDeep) => Some(format!(
            "more than {PRIVILEGE_SCAN_PATHS_MAX} paths: set-id bits beyond them were not looked for"
        )),
    });
    let unchecked = unchecked.into_iter().take(10).map(|why| Warning::new("privileges_not_checked", why));
    warning(&dropped).into_iter().chain(unchecked).collect()
}

/// Returns whether a file had privileges.
fn drop_privileges(entry: &Entry<'_>) -> Result<bool, Errno> {
    let has_bits = entry.meta.mode & SET_ID_BITS != 0;
    if has_bits {
        // Held, not opened: its owner may have made it unreadable.
        disk::set_mode_of_held(&disk::hold_any(entry.dir, entry.name)?, entry.meta.mode & !SET_ID_BITS)?;
    }
    // Who cannot open it could not give it capabilities.
    let Ok(file) = disk::open_file(entry.dir, entry.name) else { return Ok(has_bits) };
    let has_capabilities = disk::has_file_capabilities(&file);
    if has_capabilities {
        disk::remove_file_capabilities(&file)?;
    }
    Ok(has_bits || has_capabilities)
}
