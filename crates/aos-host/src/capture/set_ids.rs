//! Set-id bits and file capabilities that a command leaves: no file of a session runs with the privileges of another user.
//!
//! Over an overlay they do not land. Without one they are removed when the command has ended.

use std::os::fd::OwnedFd;

use aos_model::limits::PRIVILEGE_SCAN_PATHS_MAX;
use aos_model::receipt::Warning;
use aos_model::records::Kind;
use rustix::fs::OFlags;

use crate::disk::{self, Meta, SET_ID_BITS, names_in, open_beneath, open_dir};
use crate::session::OpenSession;
use crate::target::is_too_deep;

const CLOCK_LAG_NS: i64 = 50_000_000;

/// The warning about files that lost privileges.
pub(super) fn warning(paths: &[String]) -> Option<Warning> {
    let more = if paths.len() > 10 { ", …" } else { "" };
    let named = paths.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", ");
    let message =
        format!("set-user-id and set-group-id bits and file capabilities were dropped: {named}{more}");
    (!paths.is_empty()).then(|| Warning::new("privileges_dropped", message))
}

/// Takes privileges away from files in the roots that changed since the command was started.
pub(super) fn drop_since(session: &OpenSession, started_at_ns: u64) -> Vec<Warning> {
    // The kernel stamps inodes with a clock that is a few milliseconds behind.
    let since_ns = (started_at_ns as i64).saturating_sub(CLOCK_LAG_NS);
    let mut walk =
        Walk { session, since_ns, left: PRIVILEGE_SCAN_PATHS_MAX, dropped: Vec::new(), failed: Vec::new() };
    for root in &session.jail.roots {
        if let Ok(dir) = open_beneath(&root.fd, ".", OFlags::RDONLY | OFlags::DIRECTORY, false) {
            walk.folder(&dir, &root.path, root.meta.mount);
        }
    }
    let mut warnings: Vec<Warning> = warning(&walk.dropped).into_iter().collect();
    if walk.left == 0 {
        let message = format!(
            "more than {PRIVILEGE_SCAN_PATHS_MAX} paths: set-id bits beyond them were not looked for"
        );
        warnings.push(Warning::new("privileges_not_checked", message));
    }
    if let Some(first) = walk.failed.first() {
        let message = format!("set-id bits or capabilities of {first} could not be removed");
        warnings.push(Warning::new("privileges_not_checked", message));
    }
    warnings
}

struct Walk<'a> {
    session: &'a OpenSession,
    since_ns: i64,
    left: usize,
    dropped: Vec<String>,
    failed: Vec<String>,
}

impl Walk<'_> {
    fn folder(&mut self, dir: &OwnedFd, absolute: &[u8], mount: u64) {
        for name in names_in(dir).unwrap_or_default() {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            let below = [absolute, b"/", &name].concat();
            let Ok(Some(meta)) = Meta::at(dir, &name) else { continue };
            if meta.mount != mount || self.session.jail.is_hidden(&below) || is_too_deep(&below) {
                continue;
            }
            match meta.kind {
                Kind::Dir => {
                    if let Ok(inner) = open_dir(dir, &name) {
                        self.folder(&inner, &below, mount);
                    }
                }
                Kind::File => self.file(dir, &name, &below, &meta),
                Kind::Symlink | Kind::Other => {}
            }
        }
    }

    fn file(&mut self, dir: &OwnedFd, name: &[u8], absolute: &[u8], meta: &Meta) {
        let is_recent = disk::changed_at_ns(dir, name).is_ok_and(|at| at >= self.since_ns);
        if !is_recent {
            return;
        }
        let Ok(file) = disk::open_file(dir, name) else { return };
        let has_bits = meta.mode & SET_ID_BITS != 0;
        if !has_bits && !disk::has_file_capabilities(&file) {
            return;
        }
        let shown = self.session.jail.display(absolute);
        let outcome = disk::remove_file_capabilities(&file)
            .and_then(|()| if has_bits { disk::set_mode(&file, meta.mode & !SET_ID_BITS) } else { Ok(()) });
        if outcome.is_ok() { self.dropped.push(shown) } else { self.failed.push(shown) }
    }
}
