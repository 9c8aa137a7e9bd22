//! What rules forbid to read is masked in the view of a command.
//!
//! The roots are walked when a command starts: every folder, hidden and ignored ones too. What a folder contains is kept
//! by its device, inode and ctime, so that later commands list only the folders that changed. Without a rule that denies
//! reading, nothing is walked. A path without wildcards is looked up directly.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aos_model::limits::{MASK_WALK_ENTRIES_MAX, MASK_WALK_TIME_NS_MAX, MASKS_MAX};
use aos_model::path::is_below;
use aos_model::policy::Op;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::disk::{self, Meta, open_beneath, open_dir};
use crate::exec::ListedFolder;
use crate::jail::follow_text;
use crate::session::OpenSession;
use crate::target::is_too_deep;

/// A change within this time after another may not change the ctime: file systems keep times by the tick.
const CTIME_SETTLES: Duration = Duration::from_secs(2);

/// The absolute paths in the roots that rules forbid to read.
pub(crate) fn unreadable(session: &OpenSession, now_ns: u64) -> Result<Vec<Vec<u8>>, Refusal> {
    let policy = &session.policy;
    let is_pattern = |glob: &str| glob.contains(['*', '?', '[', '{', '\\']);
    let (patterns, plain): (Vec<&str>, Vec<&str>) =
        policy.denying_globs(Op::Read).partition(|glob| is_pattern(glob));
    let mut walk = Walk {
        session,
        has_exceptions: policy.has_exceptions(Op::Read),
        now_ns,
        deadline: Instant::now() + Duration::from_nanos(MASK_WALK_TIME_NS_MAX),
        entries_left: MASK_WALK_ENTRIES_MAX,
        found: Vec::new(),
    };
    // An exception below a folder makes it a matter of the entries in it.
    if patterns.is_empty() && !walk.has_exceptions {
        for glob in plain {
            walk.look_up(glob)?;
        }
    } else {
        for root in &session.jail.roots {
            let opened = open_beneath(&root.fd, ".", OFlags::RDONLY | OFlags::DIRECTORY, false);
            let folder = opened.map_err(|why| unavailable(&root.display(), &why.to_string()))?;
            walk.folder(&folder, &root.path)?;
        }
    }
    walk.found.sort();
    walk.found.dedup();
    Ok(walk.found)
}

struct Walk<'a> {
    session: &'a OpenSession,
    has_exceptions: bool,
    now_ns: u64,
    deadline: Instant,
    entries_left: usize,
    found: Vec<Vec<u8>>,
}

impl Walk<'_> {
    /// A path without wildcards, relative to the workdir or absolute.
    fn look_up(&mut self, glob: &str) -> Result<(), Refusal> {
        let jail = &self.session.jail;
        let name = glob.strip_prefix("./").unwrap_or(glob).trim_end_matches('/');
        let Ok(path) = aos_model::path::RequestPath::parse(if name.is_empty() { "." } else { name }) else {
            return Ok(());
        };
        let names = path.names().flat_map(|name| [b"/", name].concat());
        let absolute: Vec<u8> = match path.is_absolute() {
            true => names.collect(),
            false => jail.workdir.iter().copied().chain(names).collect(),
        };
        self.add(&absolute)
    }

    fn folder(&mut self, dir: &OwnedFd, path: &[u8]) -> Result<(), Refusal> {
        let failed = |why: Errno| unavailable(&self.session.jail.display(path), &why.to_string());
        if is_too_deep(path) {
            return Err(failed(Errno::NAMETOOLONG));
        }
        let listed = self.listed(dir, path)?;
        if Instant::now() > self.deadline {
            return Err(unavailable(&self.session.jail.display(path), "looking took more than 10 s"));
        }
        for name in &listed.denied {
            self.add(&[path, b"/", name].concat())?;
        }
        for name in &listed.folders {
            let below = [path, b"/", name].concat();
            match open_dir(dir, name) {
                Ok(inner) => self.folder(&inner, &below)?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                // The command could open a folder that we cannot: it belongs to its user.
                Err(Errno::ACCESS) => self.add(&below)?,
                Err(why) => return Err(failed(why)),
            }
        }
        Ok(())
    }

    /// What the folder contains, from the cache if it has not changed.
    fn listed(&mut self, dir: &OwnedFd, path: &[u8]) -> Result<Arc<ListedFolder>, Refusal> {
        let failed = |why: Errno| unavailable(&self.session.jail.display(path), &why.to_string());
        let version = disk::version_of_dir(dir).map_err(failed)?;
        let cache = &self.session.exec_config.mask_cache;
        let listed = match cache.get(path, version) {
            Some(kept) => kept,
            None => {
                let listed = Arc::new(self.list(dir, path).map_err(failed)?);
                let age_ns = self.now_ns.saturating_sub(u64::try_from(version.ctime_ns).unwrap_or(u64::MAX));
                if Duration::from_nanos(age_ns) > CTIME_SETTLES {
                    cache.put(path, version, &listed);
                }
                listed
            }
        };
        self.entries_left = self.entries_left.checked_sub(listed.entries).ok_or_else(|| {
            unavailable(&self.session.jail.display(path), "the roots contain more than 2 000 000 entries")
        })?;
        Ok(listed)
    }

    fn list(&self, dir: &OwnedFd, path: &[u8]) -> Result<ListedFolder, Errno> {
        let jail = &self.session.jail;
        let mut listed = ListedFolder::default();
        for entry in disk::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            listed.entries += 1;
            let below = [path, b"/", name].concat();
            if jail.is_hidden(&below) {
                continue;
            }
            let is_dir = match entry.file_type() {
                rustix::fs::FileType::Unknown => {
                    Meta::at(dir, name)?.is_some_and(|meta| meta.kind == Kind::Dir)
                }
                known => known.is_dir(),
            };
            let is_denied = self.session.policy.denies(Op::Read, &jail.display(&below));
            if is_dir && (!is_denied || self.has_exceptions) {
                listed.folders.push(name.to_vec());
            } else if is_denied {
                listed.denied.push(name.to_vec());
            }
        }
        Ok(listed)
    }

    /// Adds what a path leads to. A link cannot be masked; its target can, if it is in a root.
    fn add(&mut self, path: &[u8]) -> Result<(), Refusal> {
        let Some(target) = follow_text(path) else { return Ok(()) };
        if self.session.jail.roots.iter().any(|root| is_below(&target, &root.path)) {
            self.found.push(target);
        }
        if self.found.len() > MASKS_MAX {
            let shown = self.session.jail.display(path);
            return Err(unavailable(&shown, "rules forbid to read more than 20 000 paths"));
        }
        Ok(())
    }
}

/// A refusal of a command in a session whose rules deny reading.
pub(crate) fn unavailable(subject: &str, why: &str) -> Refusal {
    Refusal::new(
        Code::IsolationUnavailable,
        format!(
            "a rule of this session denies reading, and it cannot be enforced for commands: {subject}: {why}; nothing was run. Use file effects, or open a session without such a rule"
        ),
    )
}
