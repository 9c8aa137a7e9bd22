//! Without an overlay: what is denied is copied before a command runs, compared after it, and put back.
//!
//! ```text
//! before   list the folders; copy what is protected or denied
//! run      where there are mounts, what was copied is bound read-only on itself
//! after    list again; judge each path that differs; put back what is denied, remove what is new and denied
//! ```
//!
//! Everything else stays as the command left it. Until the command ends, what it changed can be read and used.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};

use aos_model::capability::ProtectedPaths;
use aos_model::limits::{DENIED_BYTES_MAX, DENIED_FILES_MAX, GUARDED_PATHS_MAX, MASKS_MAX};
use aos_model::path::is_below;
use aos_model::policy::git::{GitJudge, GitVerdict, Kind as GitKind, Tree, gitmodules_problem, is_git_name};
use aos_model::policy::{Op, is_gitmodules, protected_name};
use aos_model::receipt::Warning;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_sandbox::BindMount;
use aos_store::own_rights;
use rustix::io::Errno;

use super::copier::{Copier, Copies};
use super::paths::{self, CLOCK_LAG_NS, Listed, Opened, Paths, Purpose, Unlisted, is_same, looks};
use crate::command::Ran;
use crate::disk::{self, Meta};
use crate::git::{DiskTree, HookFolders, kind_of, read_file, root_of};
use crate::host::Host;
use crate::protection;
use crate::session::OpenSession;
use crate::target::below_roots;

/// What must be as before when a command has ended.
#[derive(Debug)]
pub(super) struct Guard {
    folders: Vec<Vec<u8>>,
    listed_at_ns: i64,
    before: Paths,
    reserved: BTreeSet<Vec<u8>>,
    /// The number of the copy of each guarded file and link, and guarded folders.
    guarded: BTreeMap<Vec<u8>, Option<u64>>,
    copies: Copies,
}

impl Guard {
    /// Whether anything is denied in this session.
    pub(super) fn is_needed(session: &OpenSession) -> bool {
        let has_rule = |op: &Op| session.policy.denying_globs(*op).next().is_some();
        session.capability.protected_paths != ProtectedPaths::Allow
            || [Op::Write, Op::Remove].iter().any(has_rule)
    }

    /// Whether commands can be held to what rules deny now: before each of them it is copied.
    pub(super) fn check_denied(session: &OpenSession) -> Result<(), Refusal> {
        let mut counter = Copier::new(session);
        let folders: Vec<Vec<u8>> = session.jail.roots.iter().map(|root| root.path.clone()).collect();
        let mut too_much = false;
        // What else keeps the roots from being listed may change, and is told when a command starts.
        let _ = paths::list(session, &folders, Purpose::Guard, &mut |entry| {
            let is_content = !matches!(entry.meta.kind, Kind::Dir | Kind::Other);
            if is_content && counter.is_denied(entry.path) && !counter.is_protected(entry.path) {
                let counted = counter.count(entry.meta);
                too_much |= counted.is_err();
                return counted;
            }
            Ok(())
        });
        if too_much { Err(too_many_denied("; the session was not opened")) } else { Ok(()) }
    }

    /// Lists and copies. `None` where there is nothing to list.
    pub(super) fn before(
        host: &Host,
        session: &OpenSession,
        folders: Vec<Vec<u8>>,
    ) -> Result<Option<Guard>, Refusal> {
        if folders.is_empty() {
            return Ok(None);
        }
        let mut guard = Guard {
            folders,
            listed_at_ns: (host.machine.now_ns)() as i64,
            before: Paths::new(),
            reserved: BTreeSet::new(),
            guarded: BTreeMap::new(),
            copies: Copies::new(host),
        };
        let mut copier = Copier::new(session);
        let (mut guarded, mut too_much) = (BTreeMap::new(), false);
        let listed = paths::list(session, &guard.folders, Purpose::Guard, &mut |entry| {
            let copied = copier.copy(&entry, &guard.copies);
            too_much |= copied == Err(Errno::DQUOT);
            if let Some(copy) = copied? {
                guarded.insert(entry.path.to_vec(), copy);
            }
            Ok(())
        });
        let listed = listed.map_err(|why| {
            if too_much { too_many_denied("; nothing was run") } else { unlisted(session, why) }
        })?;
        (guard.before, guard.reserved) = (listed.paths, listed.reserved);
        guard.guarded = guarded;
        Ok(Some(guard))
    }

    /// What is mounted on itself: read-only what is guarded, and each `.git`, so that it cannot be renamed.
    pub(super) fn binds(&self, session: &OpenSession) -> Result<Vec<BindMount>, Refusal> {
        let mut binds: Vec<BindMount> = Vec::new();
        let has_exceptions = session.policy.has_exceptions(Op::Write);
        for (path, meta) in &self.before {
            let is_git = meta.kind == Kind::Dir && is_git_name(name_of(path));
            let is_whole = || match protected_name(below_roots(&session.jail, path), session.holds_home) {
                Some(pattern) => pattern.ends_with("/**") && pattern != ".git/**",
                None => !has_exceptions,
            };
            let is_guarded = self.guarded.contains_key(path)
                && match meta.kind {
                    Kind::File => true,
                    Kind::Dir => !is_git && is_whole(),
                    Kind::Symlink | Kind::Other => false,
                };
            let is_covered = binds.last().is_some_and(|last| !last.writable && is_below(path, &last.at));
            if (is_git || is_guarded) && !is_covered {
                binds.push(BindMount {
                    at: path.clone(),
                    from: path.clone(),
                    pin: Some((meta.dev, meta.ino)),
                    writable: is_git,
                    submounts: false,
                    required: false,
                    overlay: None,
                });
            }
        }
        if binds.len() > MASKS_MAX {
            return Err(unavailable(&format!("more than {MASKS_MAX} paths are protected or denied")));
        }
        Ok(binds)
    }

    /// Compares, puts back what is denied, and says so in the result, with what becomes of the `rest`. Returns what else
    /// was changed, and whether something was denied.
    pub(super) fn after(
        self,
        host: &Host,
        session: &OpenSession,
        ran: &mut Ran,
        rest: &str,
    ) -> Result<(Vec<String>, bool), Refusal> {
        // As before the command: a daemon of root copied with its own rights, which the session's user does not have on
        // the copies. What is put back gets its owner again.
        let _own = own_rights();
        let mut listed = paths::list(session, &self.folders, Purpose::PutBack, &mut |_| Ok(()))
            .map_err(|why| unlisted(session, why))?;
        let changed = self.changed(session, &listed.paths);
        let verdicts = self.judge(session, &changed, &mut ran.warnings);
        let (denied, withheld): (Vec<_>, Vec<_>) =
            verdicts.into_iter().partition(|verdict| verdict.why != Why::Withheld);
        let mut shown: Vec<String> = changed.keys().map(|path| session.jail.display(path)).collect();
        let mut failed = Vec::new();
        for verdict in denied.iter().chain(&withheld) {
            if let Err(error) = self.put_back(session, &verdict.path, &mut listed.opened) {
                let path = session.jail.display(&verdict.path);
                tracing::error!(path, %error, "cannot put back what a command may not change");
                failed.push(match error {
                    Errno::NODATA => format!("{path}: removed; it was not copied before"),
                    error => format!("{path}: {error}"),
                });
            }
        }
        let put_back: BTreeSet<String> =
            denied.iter().chain(&withheld).map(|verdict| session.jail.display(&verdict.path)).collect();
        shown.retain(|path| !put_back.contains(path));
        failed.extend(self.drop_reserved(host, session, &mut listed, &mut ran.warnings));
        if let Some(path) = &listed.too_deep {
            let shown: String = session.jail.display(path).chars().take(100).collect();
            let why = format!("{shown}…: nested too deep to be compared; remove it before the next command");
            ran.warnings.push(Warning::new("not_put_back", why));
        }
        if !failed.is_empty() {
            let why = format!(
                "what the command may not change could not be put back: {}",
                protection::named(&failed)
            );
            ran.warnings.push(Warning::new("not_put_back", why));
        }
        if !withheld.is_empty() {
            let paths: Vec<String> =
                withheld.iter().map(|verdict| session.jail.display(&verdict.path)).collect();
            let why = format!("protected paths are as they were before: {}", protection::named(&paths));
            ran.warnings.push(Warning::new("protected_withheld", why));
            ran.executed.list_withheld(paths);
        }
        if let Some(first) = denied.first() {
            let code = if first.why == Why::Policy { Code::PolicyDenied } else { Code::ProtectedPath };
            let paths: Vec<String> =
                denied.iter().map(|verdict| session.jail.display(&verdict.path)).collect();
            let message = format!(
                "the command changed what it may not: {} ({}); {}, {rest}",
                protection::named(&paths),
                first.message,
                if failed.is_empty() { "that is as before" } else { "not all of that is as before" }
            );
            ran.executed.list_denied(paths);
            ran.executed.list_changed(shown.clone());
            ran.fault = Some((code, message));
        }
        Ok((shown, !denied.is_empty()))
    }

    /// Removes what the command left under names of unfinished writes, where nothing is compared. Returns what could not
    /// be removed.
    fn drop_reserved(
        &self,
        host: &Host,
        session: &OpenSession,
        listed: &mut Listed,
        warnings: &mut Vec<Warning>,
    ) -> Vec<String> {
        let left: Vec<&Vec<u8>> = listed.reserved.difference(&self.reserved).collect();
        if left.is_empty() {
            return Vec::new();
        }
        // With the roots locked no effect is in the middle of a write: the name of one that was is gone.
        let _locks = host.locks.hold(session.jail.roots.iter().map(|root| root.path.as_slice()));
        let shown: Vec<String> = left.iter().map(|path| session.jail.display(path)).collect();
        let message =
            format!("names that begin with `.aos-tmp-` are reserved: {}", protection::named(&shown));
        warnings.push(Warning::new("reserved_names_not_kept", message));
        let removed = left.iter().zip(shown).map(|(path, shown)| {
            let outcome = self.put_back(session, path, &mut listed.opened);
            outcome.err().map(|error| format!("{shown}: {error}"))
        });
        removed.flatten().collect()
    }

    /// The paths that differ, with what is there now.
    fn changed(&self, session: &OpenSession, now: &Paths) -> BTreeMap<Vec<u8>, Option<Meta>> {
        let gone =
            self.before.keys().filter(|path| !now.contains_key(*path)).map(|path| (path.clone(), None));
        let differs = |path: &[u8], meta: &Meta| match self.before.get(path) {
            None => true,
            Some(was) => match self.guarded.get(path).copied().flatten() {
                // What changed right before it was listed may have changed again with the same time.
                Some(_) if is_same(was, meta) && was.ctime_ns < self.listed_at_ns - CLOCK_LAG_NS => false,
                // Unchanged bytes, kind and mode are no change, whatever the time says.
                Some(copy) => looks(was) != looks(meta) || !self.has_bytes_of(session, path, copy),
                None => !is_same(was, meta),
            },
        };
        let present = now.iter().filter(|(path, meta)| differs(path, meta));
        present.map(|(path, meta)| (path.clone(), Some(*meta))).chain(gone).collect()
    }

    fn has_bytes_of(&self, session: &OpenSession, path: &[u8], copy: u64) -> bool {
        let Some((dir, name)) = DiskTree(session).place(path) else { return false };
        let hash = |dir: &OwnedFd, name: &[u8]| {
            let meta = Meta::at(dir, name).ok()??;
            disk::hash_of(dir, name, meta.kind).ok()
        };
        let was = self.copies.dir().ok().and_then(|copies| hash(copies, copy.to_string().as_bytes()));
        was.is_some() && was == hash(&dir, name)
    }

    fn judge(
        &self,
        session: &OpenSession,
        changed: &BTreeMap<Vec<u8>, Option<Meta>>,
        warnings: &mut Vec<Warning>,
    ) -> Vec<Verdict> {
        let before = Copied { guard: self, disk: DiskTree(session) };
        let after = DiskTree(session);
        let mut git = GitJudge::new(&before, &after);
        // The configuration before the command: a command that changes it does not change what it names.
        let mut hooks = HookFolders::in_tree(session, Copied { guard: self, disk: DiskTree(session) });
        let mut verdicts = Vec::new();
        for (path, now) in changed {
            let Some(root) = root_of(session, path) else { continue };
            let verdict = git.judge(&root.path, path);
            let is_link = |meta: &Meta| meta.kind == Kind::Symlink;
            let problem = if is_gitmodules(path) {
                after.read(path).as_deref().and_then(gitmodules_problem).map(str::to_owned)
            } else if now.as_ref().is_some_and(is_link) || self.before.get(path).is_some_and(is_link) {
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
    fn put_back(&self, session: &OpenSession, path: &[u8], opened: &mut Opened) -> Result<(), Errno> {
        let root = root_of(session, path).ok_or(Errno::NOENT)?;
        let below = path[root.path.len()..].strip_prefix(b"/").ok_or(Errno::INVAL)?;
        let mut dir = disk::open_dir(root.fd.as_fd(), b".")?;
        let (parents, name) = match below.iter().rposition(|b| *b == b'/') {
            Some(slash) => (&below[..slash], &below[slash + 1..]),
            None => (b"".as_slice(), below),
        };
        let mut at = root.path.clone();
        for parent in parents.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            at = [at.as_slice(), b"/", parent].concat();
            let Some(was) = self.before.get(&at).filter(|was| was.kind == Kind::Dir) else {
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
        let Some(was) = self.before.get(path) else { return disk::remove_any(&dir, name) };
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
struct Verdict {
    path: Vec<u8>,
    why: Why,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Protected,
    Withheld,
    Policy,
}

/// The roots before the command, as the rules for git folders read them.
struct Copied<'a> {
    guard: &'a Guard,
    disk: DiskTree<'a>,
}

impl Copied<'_> {
    /// What is not below a listed folder has not changed.
    fn is_listed(&self, absolute: &[u8]) -> bool {
        self.guard.folders.iter().any(|folder| absolute != folder && is_below(absolute, folder))
    }
}

impl Tree for Copied<'_> {
    fn kind(&self, absolute: &[u8]) -> Option<GitKind> {
        if !self.is_listed(absolute) {
            return self.disk.kind(absolute);
        }
        self.guard.before.get(absolute).map(|meta| kind_of(meta.kind))
    }

    fn read(&self, absolute: &[u8]) -> Option<Vec<u8>> {
        if !self.is_listed(absolute) {
            return self.disk.read(absolute);
        }
        let copy = self.guard.guarded.get(absolute).copied().flatten()?;
        read_file(self.guard.copies.dir().ok()?, copy.to_string().as_bytes())
    }
}

fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}

fn unlisted(session: &OpenSession, why: Unlisted) -> Refusal {
    match why {
        Unlisted::TooMany => unavailable(&format!("the roots contain more than {GUARDED_PATHS_MAX} paths")),
        Unlisted::TooDeep => unavailable("folders in the roots are nested too deep"),
        Unlisted::Io(path, why) => unavailable(&format!("{}: {why}", session.jail.display(&path))),
    }
}

fn too_many_denied(so: &str) -> Refusal {
    let mebibytes = DENIED_BYTES_MAX >> 20;
    unavailable_so(&format!("rules deny writing more than {DENIED_FILES_MAX} files or {mebibytes} MiB{so}"))
}

fn unavailable(why: &str) -> Refusal {
    unavailable_so(&format!("{why}; nothing was run"))
}

fn unavailable_so(why: &str) -> Refusal {
    Refusal::new(
        Code::IsolationUnavailable,
        format!(
            "without an overlay, what is protected or denied is compared before and after a command, and here it cannot be: {why}. Leave `capture`, `uncaptured`, `isolation` and `cross_mounts` out, or open a session on a smaller folder"
        ),
    )
}
