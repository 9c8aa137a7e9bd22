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
use std::sync::Arc;

use aos_model::capability::ProtectedPaths;
use aos_model::limits::{DENIED_BYTES_MAX, DENIED_FILES_MAX, GUARDED_PATHS_MAX, MASKS_MAX};
use aos_model::path::is_below;
use aos_model::policy::git::is_git_name;
use aos_model::policy::{Op, protected_name};
use aos_model::receipt::Warning;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_sandbox::BindMount;
use aos_store::own_rights;
use rustix::io::Errno;

use super::compare::Why;
use super::copier::Copier;
use super::paths::{self, Listed, Purpose, Unlisted};
use crate::baseline::{Baseline, Copies, Held};
use crate::command::Ran;
use crate::host::Host;
use crate::protection;
use crate::session::OpenSession;
use crate::target::below_roots;

/// What must be as before when a command has ended.
#[derive(Debug)]
pub(super) struct Guard(Held);

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
        session: &Arc<OpenSession>,
        tool_call_id: &str,
        folders: Vec<Vec<u8>>,
    ) -> Result<Option<Guard>, Refusal> {
        if folders.is_empty() {
            return Ok(None);
        }
        let taking = host.baselines.take();
        let listed_at_ns = (host.machine.now_ns)() as i64;
        let copies = Copies::new(&host.executor.overlays, (host.machine.random)());
        let mut copier = Copier::new(session);
        let (mut guarded, mut too_much) = (BTreeMap::new(), false);
        let listed = paths::list(session, &folders, Purpose::Guard, &mut |entry| {
            let copied = copier.copy(&entry, &copies);
            too_much |= copied == Err(Errno::DQUOT);
            if let Some(copy) = copied? {
                guarded.insert(entry.path.to_vec(), copy);
            }
            Ok(())
        });
        let listed = listed.map_err(|why| {
            if too_much { too_many_denied("; nothing was run") } else { unlisted(session, why) }
        })?;
        let mut baseline = Baseline {
            session: session.clone(),
            tool_call_id: tool_call_id.to_owned(),
            folders,
            listed_at_ns,
            paths: listed.paths,
            reserved: listed.reserved,
            guarded,
            copies,
        };
        for other in taking.beside() {
            baseline.without_changes_of(&other).map_err(|(path, why)| {
                let path = session.jail.display(&path);
                unavailable(&format!("{path}, which another command changes, cannot be copied: {why}"))
            })?;
        }
        Ok(Some(Guard(taking.hold(baseline))))
    }

    /// What is mounted on itself: read-only what is guarded, and each `.git`, so that it cannot be renamed.
    pub(super) fn binds(&self, session: &OpenSession) -> Result<Vec<BindMount>, Refusal> {
        let mut binds: Vec<BindMount> = Vec::new();
        let has_exceptions = session.policy.has_exceptions(Op::Write);
        for (path, meta) in &self.0.baseline.paths {
            let is_git = meta.kind == Kind::Dir && is_git_name(name_of(path));
            let is_whole = || match protected_name(below_roots(&session.jail, path), session.holds_home) {
                Some(pattern) => pattern.ends_with("/**") && pattern != ".git/**",
                None => !has_exceptions,
            };
            let is_guarded = self.0.baseline.guarded.contains_key(path)
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
        let mut listed = paths::list(session, &self.0.baseline.folders, Purpose::PutBack, &mut |_| Ok(()))
            .map_err(|why| unlisted(session, why))?;
        let baseline = &self.0.baseline;
        let changed = baseline.changed(&listed.paths, |_| true);
        let verdicts = baseline.judge(&changed, &mut ran.warnings);
        let (denied, withheld): (Vec<_>, Vec<_>) =
            verdicts.into_iter().partition(|verdict| verdict.why != Why::Withheld);
        let mut shown: Vec<String> = changed.keys().map(|path| session.jail.display(path)).collect();
        let mut failed = Vec::new();
        for verdict in denied.iter().chain(&withheld) {
            if let Err(error) = baseline.put_back(&verdict.path, &mut listed.opened) {
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
        let left: Vec<&Vec<u8>> = listed.reserved.difference(&self.0.baseline.reserved).collect();
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
            let outcome = self.0.baseline.put_back(path, &mut listed.opened);
            outcome.err().map(|error| format!("{shown}: {error}"))
        });
        removed.flatten().collect()
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
