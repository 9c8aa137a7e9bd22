//! What a command changed without an overlay, compared with its baseline: judged, and put back.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};

use aos_model::capability::ProtectedPaths;
use aos_model::path::is_below;
use aos_model::policy::git::{GitJudge, GitVerdict, Kind as GitKind, Tree, gitmodules_problem};
use aos_model::policy::{Op, is_gitmodules};
use aos_model::receipt::Warning;
use aos_model::records::Kind;
use rustix::io::Errno;

use super::paths::{CLOCK_LAG_NS, Opened, Paths, is_same, looks};
use crate::baseline::Baseline;
use crate::disk::{self, Meta};
use crate::git::{DiskTree, HookFolders, kind_of, read_file, root_of};
use crate::protection;

impl Baseline {
    /// Takes out what another command changed that it may not: that is put back when it ends, and is not how it was.
    pub(super) fn without_changes_of(&mut self, other: &Baseline) -> Result<(), (Vec<u8>, Errno)> {
        let changed = other.changed(&self.paths, |path| other.holds(path) && self.holds(path));
        for Verdict { path, .. } in other.judge(&changed, &mut Vec::new()) {
            let copy = match other.guarded.get(&path) {
                Some(Some(number)) => match self.copies.add_from(&other.copies, *number) {
                    Ok(copy) => Some(Some(copy)),
                    Err(why) => return Err((path, why)),
                },
                copy => copy.copied(),
            };
            match copy {
                Some(copy) => self.guarded.insert(path.clone(), copy),
                None => self.guarded.remove(&path),
            };
            match other.paths.get(&path) {
                Some(was) => self.paths.insert(path, *was),
                None => self.paths.remove(&path),
            };
        }
        Ok(())
    }

    /// The paths that differ, with what is there now.
    pub(super) fn changed(
        &self,
        now: &Paths,
        counts: impl Fn(&[u8]) -> bool,
    ) -> BTreeMap<Vec<u8>, Option<Meta>> {
        let gone = self.paths.keys().filter(|path| !now.contains_key(*path) && counts(path));
        let gone = gone.map(|path| (path.clone(), None));
        let differs = |path: &[u8], meta: &Meta| match self.paths.get(path) {
            None => true,
            Some(was) => match self.guarded.get(path).copied().flatten() {
                // What changed right before it was listed may have changed again with the same time.
                Some(_) if is_same(was, meta) && was.ctime_ns < self.listed_at_ns - CLOCK_LAG_NS => false,
                // Unchanged bytes, kind and mode are no change, whatever the time says.
                Some(copy) => looks(was) != looks(meta) || !self.has_bytes_of(path, copy),
                None => !is_same(was, meta),
            },
        };
        let present = now.iter().filter(|(path, meta)| counts(path) && differs(path, meta));
        present.map(|(path, meta)| (path.clone(), Some(*meta))).chain(gone).collect()
    }

    fn has_bytes_of(&self, path: &[u8], copy: u64) -> bool {
        let Some((dir, name)) = DiskTree(&self.session).place(path) else { return false };
        let hash = |dir: &OwnedFd, name: &[u8]| {
            let meta = Meta::at(dir, name).ok()??;
            disk::hash_of(dir, name, meta.kind).ok()
        };
        let was = self.copies.dir().ok().and_then(|copies| hash(copies, copy.to_string().as_bytes()));
        was.is_some() && was == hash(&dir, name)
    }

    /// Which of them a command may not change.
    pub(super) fn judge(
        &self,
        changed: &BTreeMap<Vec<u8>, Option<Meta>>,
        warnings: &mut Vec<Warning>,
    ) -> Vec<Verdict> {
        let session = &*self.session;
        let before = Copied { baseline: self, disk: DiskTree(session) };
        let after = DiskTree(session);
        let mut git = GitJudge::new(&before, &after);
        // The configuration before the command: a command that changes it does not change what it names.
        let mut hooks = HookFolders::in_tree(session, Copied { baseline: self, disk: DiskTree(session) });
        let mut verdicts = Vec::new();
        for (path, now) in changed {
            let Some(root) = root_of(session, path) else { continue };
            let verdict = git.judge(&root.path, path);
            let is_link = |meta: &Meta| meta.kind == Kind::Symlink;
            let problem = if is_gitmodules(path) {
                after.read(path).as_deref().and_then(gitmodules_problem).map(str::to_owned)
            } else if now.as_ref().is_some_and(is_link) || self.paths.get(path).is_some_and(is_link) {
                protection::link_problem(session, path)
            } else {
                None
            };
            let why = protection::why_protected(session, &mut hooks, &verdict, path, problem);
            let op = if now.is_some() { Op::Write } else { Op::Remove };
            let is_hook = verdict == GitVerdict::WithheldHook;
            let why = match (why, session.capability.protected_paths) {
                (Some(why), ProtectedPaths::Deny) if !is_hook => Some((Why::Protected, why)),
                (Some(why), ProtectedPaths::Deny | ProtectedPaths::Withhold) => Some((Why::Withheld, why)),
                (Some(why), ProtectedPaths::Warn) => {
                    protection::warn_protected(session, path, &why, warnings);
                    None
                }
                _ => None,
            };
            let is_denied = session.policy.denies(op, &session.jail.display(path));
            let why =
                why.or_else(|| is_denied.then(|| (Why::Policy, format!("a rule denies `{}`", op.as_str()))));
            verdicts.extend(why.map(|(why, message)| Verdict { path: path.clone(), why, message }));
        }
        verdicts
    }

    /// Makes one path what it was before, without following a link.
    pub(super) fn put_back(&self, path: &[u8], opened: &mut Opened) -> Result<(), Errno> {
        let root = root_of(&self.session, path).ok_or(Errno::NOENT)?;
        let below = path[root.path.len()..].strip_prefix(b"/").ok_or(Errno::INVAL)?;
        let mut dir = disk::open_dir(root.fd.as_fd(), b".")?;
        let (parents, name) = match below.iter().rposition(|b| *b == b'/') {
            Some(slash) => (&below[..slash], &below[slash + 1..]),
            None => (b"".as_slice(), below),
        };
        let mut at = root.path.clone();
        for parent in parents.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            at = [at.as_slice(), b"/", parent].concat();
            let Some(was) = self.paths.get(&at).filter(|was| was.kind == Kind::Dir) else {
                // Its folder is new: it goes as a whole if it is denied, and holds nothing to restore.
                match Meta::at(&dir, parent)? {
                    Some(meta) if meta.kind == Kind::Dir => dir = opened.open_dir(&dir, parent)?,
                    _ => return Ok(()),
                }
                continue;
            };
            self.folder_again(&dir, parent, was)?;
            dir = opened.open_dir(&dir, parent)?;
        }
        let Some(was) = self.paths.get(path) else { return disk::remove_any(&dir, name) };
        match (was.kind, self.guarded.get(path)) {
            (Kind::Dir, _) => self.folder_again(&dir, name, was),
            (_, Some(Some(copy))) => {
                disk::remove_any(&dir, name)?;
                let copy = copy.to_string().into_bytes();
                let copies = self.copies.dir()?;
                let meta = Meta::at(copies, &copy)?.ok_or(Errno::NOENT)?;
                disk::copy(copies, &copy, &meta, &dir, name, false)?;
                restore_looks(&dir, name, was)
            }
            // It was not copied, because git may change it: what it is now goes, and its content with it.
            _ => {
                disk::remove_any(&dir, name)?;
                Err(Errno::NODATA)
            }
        }
    }

    /// Makes a name the folder that it was before; what is in its way is removed.
    fn folder_again(&self, dir: &OwnedFd, name: &[u8], was: &Meta) -> Result<(), Errno> {
        match Meta::at(dir, name)? {
            Some(now) if now.kind == Kind::Dir => {}
            in_the_way => {
                if in_the_way.is_some() {
                    disk::remove_any(dir, name)?;
                }
                disk::make_dir(dir, name)?;
            }
        }
        restore_looks(dir, name, was)
    }
}

fn restore_looks(dir: &OwnedFd, name: &[u8], was: &Meta) -> Result<(), Errno> {
    let Some(now) = Meta::at(dir, name)? else { return Err(Errno::NOENT) };
    if (now.uid, now.gid) != (was.uid, was.gid) {
        match disk::set_owner_at(dir, name, was.uid, was.gid) {
            // An ordinary user cannot give a file away: the content is back, and belongs to whoever runs commands.
            Err(Errno::PERM) => {}
            outcome => outcome?,
        }
    }
    if was.kind == Kind::Symlink || now.mode == was.mode {
        return Ok(());
    }
    disk::set_mode_of_held(&disk::hold_any(dir, name)?, was.mode)
}

/// A path that a command may not change.
pub(super) struct Verdict {
    pub(super) path: Vec<u8>,
    pub(super) why: Why,
    pub(super) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Protected,
    Withheld,
    Policy,
}

/// The roots before the command, as the rules for git folders read them.
struct Copied<'a> {
    baseline: &'a Baseline,
    disk: DiskTree<'a>,
}

impl Copied<'_> {
    /// What is not below a listed folder has not changed.
    fn is_listed(&self, absolute: &[u8]) -> bool {
        self.baseline.folders.iter().any(|folder| absolute != folder && is_below(absolute, folder))
    }
}

impl Tree for Copied<'_> {
    fn kind(&self, absolute: &[u8]) -> Option<GitKind> {
        if !self.is_listed(absolute) {
            return self.disk.kind(absolute);
        }
        self.baseline.paths.get(absolute).map(|meta| kind_of(meta.kind))
    }

    fn read(&self, absolute: &[u8]) -> Option<Vec<u8>> {
        if !self.is_listed(absolute) {
            return self.disk.read(absolute);
        }
        let copy = self.baseline.guarded.get(absolute).copied().flatten()?;
        read_file(self.baseline.copies.dir().ok()?, copy.to_string().as_bytes())
    }
}
