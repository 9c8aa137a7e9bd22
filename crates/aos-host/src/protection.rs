//! Protected names: what runs code or steers agents is not changed, by an effect or by a command.
//!
//! Effects are judged by name. What a command changed in a git folder is judged by content, because git writes there.

use std::collections::{BTreeMap, BTreeSet};

use aos_model::capability::{ProtectedPaths, SensitivePaths};
use aos_model::policy::git::{CONFIG_BYTES_MAX, GitVerdict, gitmodules_problem};
use aos_model::policy::{is_gitmodules, listed_name, protected_below, protected_name, sensitive_name};
use aos_model::receipt::Warning;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};

use crate::disk::{open_file, read_at_most};
use crate::git;
use crate::proposed::ProposedChanges;
use crate::session::OpenSession;
use crate::steps::{Content, Put, Step};
use crate::target::below_roots;

/// Refuses or warns about one path that an effect changes, in any spelling.
pub(crate) fn protect(
    session: &OpenSession,
    absolute: &[u8],
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    let below = below_roots(&session.jail, absolute);
    if let Some(pattern) = protected_name(below, session.holds_home) {
        return refuse(session, absolute, &format!("`{pattern}`"), warnings);
    }
    match sensitive_name(below) {
        Some(pattern) => {
            sensitive(session, &format!("{} (`{pattern}`)", session.jail.display(absolute)), warnings)
        }
        None => Ok(()),
    }
}

/// The same for what only the disk shows, about all paths of an effect together: configuration of a git folder that
/// has another name than `.git`, and the folder that `core.hooksPath` names.
pub(crate) fn protect_together<'p>(
    session: &OpenSession,
    paths: impl Iterator<Item = &'p [u8]> + Clone,
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    if session.capability.protected_paths == ProtectedPaths::Allow || session.is_virtual() {
        return Ok(());
    }
    for (path, why) in git::problems(session, paths) {
        refuse(session, path, &why, warnings)?;
    }
    Ok(())
}

/// The same for what only the steps of an effect show: what is written into a `.gitmodules`, and links.
pub(crate) fn protect_steps(
    session: &OpenSession,
    steps: &[Step],
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    for (path, why) in steps.iter().filter_map(|step| problem_of(session, step)) {
        refuse(session, path, &why, warnings)?;
    }
    Ok(())
}

/// The path of a step that is protected because of what is put there or taken away, and why.
fn problem_of<'s>(session: &OpenSession, step: &'s Step) -> Option<(&'s [u8], String)> {
    let at = step.at().absolute.as_slice();
    if is_gitmodules(at)
        && let Some(why) = new_content(step).as_deref().and_then(gitmodules_problem)
    {
        return Some((at, why.to_owned()));
    }
    let links: &[&[u8]] = match step {
        Step::Put(Put { content: Content::Link(_), .. }) => &[at],
        Step::Remove { before, .. } if before.kind == Kind::Symlink => &[at],
        Step::Rename { before, from, .. } if before.kind == Kind::Symlink => &[at, &from.absolute],
        _ => &[],
    };
    links.iter().find_map(|path| Some((*path, link_problem(session, path)?)))
}

/// Why no link may come or go at a path: the folder that it leads to would count for a protected name.
pub(crate) fn link_problem(session: &OpenSession, absolute: &[u8]) -> Option<String> {
    let pattern = protected_below(below_roots(&session.jail, absolute), session.holds_home)?;
    Some(format!("a link there decides what `{pattern}` is"))
}

/// The bytes that a step puts at its target.
fn new_content(step: &Step) -> Option<Vec<u8>> {
    let opened = match step {
        Step::Put(Put { content: Content::Bytes(fresh), .. }) => return Some(fresh.bytes.clone()),
        Step::Put(Put { content: Content::Blob(blob), .. }) => blob.open(),
        Step::Put(Put { content: Content::Moved(moved), .. }) => moved.open(),
        Step::Rename { from, .. } => open_file(from.folder().ok()??, &from.name),
        Step::Put(Put { content: Content::Link(_), .. })
        | Step::Remove { .. }
        | Step::MakeDir { .. }
        | Step::SetMode { .. } => return None,
    };
    read_at_most(&opened.ok()?, CONFIG_BYTES_MAX).ok()
}

/// The same for what a command changed. Withheld paths are taken out of the changes.
pub(crate) fn protect_changes(
    session: &OpenSession,
    changes: &mut ProposedChanges<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    let rule = session.capability.protected_paths;
    let (mut hooks, mut withheld) = (BTreeSet::new(), BTreeSet::new());
    let mut hook_folders = git::HookFolders::new(session);
    let problems: BTreeMap<&[u8], String> =
        changes.steps.iter().filter_map(|step| problem_of(session, step)).collect();
    let mut sensitive_paths = Vec::new();
    // A path of which only the time differs is not changed.
    for path in changes.paths.iter().filter(|path| path.is_listed) {
        let below = below_roots(&session.jail, &path.absolute);
        if path.git == GitVerdict::WithheldHook
            && matches!(rule, ProtectedPaths::Deny | ProtectedPaths::Withhold)
        {
            hooks.insert(path.absolute.clone());
            continue;
        }
        let problem = problems.get(path.absolute.as_slice()).cloned();
        let why = why_protected(session, &mut hook_folders, &path.git, &path.absolute, problem);
        let is_sensitive = why.is_none() && sensitive_name(below).is_some();
        match why {
            Some(_) if rule == ProtectedPaths::Withhold => drop(withheld.insert(path.absolute.clone())),
            Some(why) => refuse(session, &path.absolute, &why, warnings)?,
            None if is_sensitive => sensitive_paths.push(path.shown.clone()),
            None => {}
        }
    }
    if !sensitive_paths.is_empty() {
        sensitive_paths.dedup();
        sensitive(session, &named(&sensitive_paths), warnings)?;
    }
    for (paths, code, why) in [
        (
            hooks,
            "hooks_withheld",
            "hooks of a repository that the command made are left out: git would run them",
        ),
        (withheld, "protected_withheld", "protected paths are left as they were; everything else is applied"),
    ] {
        let shown = changes.withhold(&paths);
        if !shown.is_empty() {
            warnings.push(Warning::new(code, format!("{why}: {}", named(&shown))));
            changes.executed.list_withheld(shown);
        }
    }
    Ok(())
}

/// Why a path that a command changed is protected, if it is. `problem` is what its content or kind adds.
pub(crate) fn why_protected(
    session: &OpenSession,
    hook_folders: &mut git::HookFolders<'_>,
    git: &GitVerdict,
    absolute: &[u8],
    problem: Option<String>,
) -> Option<String> {
    match git {
        _ if session.capability.protected_paths == ProtectedPaths::Allow => None,
        GitVerdict::Denied(why) => Some(why.clone()),
        GitVerdict::WithheldHook => Some("git runs hooks".to_owned()),
        GitVerdict::Allowed if problem.is_some() => problem,
        GitVerdict::Allowed => match listed_name(below_roots(&session.jail, absolute), session.holds_home) {
            Some(pattern) => Some(format!("`{pattern}`")),
            None => hook_folders.hold(absolute).map(str::to_owned),
        },
    }
}

/// Warns about a protected path that a command changed.
pub(crate) fn warn_protected(session: &OpenSession, absolute: &[u8], why: &str, warnings: &mut Vec<Warning>) {
    let message = protected_message(session, absolute, why);
    warn(Warning::new("protected_path", message), warnings);
}

fn protected_message(session: &OpenSession, absolute: &[u8], why: &str) -> String {
    let shown = session.jail.display(absolute);
    format!("{shown} is protected ({why}): it can run code or steer agents")
}

fn refuse(
    session: &OpenSession,
    absolute: &[u8],
    why: &str,
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    let message = protected_message(session, absolute, why);
    match session.capability.protected_paths {
        ProtectedPaths::Allow => {}
        ProtectedPaths::Deny | ProtectedPaths::Withhold => {
            return Err(Refusal::new(
                Code::ProtectedPath,
                format!("{message}. Ask the operator, or open a session with `protected_paths` `warn`"),
            ));
        }
        ProtectedPaths::Warn => warn(Warning::new("protected_path", message), warnings),
    }
    Ok(())
}

fn sensitive(session: &OpenSession, shown: &str, warnings: &mut Vec<Warning>) -> Result<(), Refusal> {
    let message = format!("agents or builds follow {shown}");
    match session.capability.sensitive_paths {
        SensitivePaths::Allow => {}
        SensitivePaths::Deny => {
            return Err(Refusal::new(
                Code::ProtectedPath,
                format!("{message}. Ask the operator, or open a session with `sensitive_paths` `warn`"),
            ));
        }
        SensitivePaths::Warn => warn(Warning::new("sensitive_path", message), warnings),
    }
    Ok(())
}

fn warn(warning: Warning, warnings: &mut Vec<Warning>) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

/// The first of some paths, for a warning.
pub(crate) fn named(paths: &[String]) -> String {
    let more = if paths.len() > 10 { ", …" } else { "" };
    format!("{}{more}", paths.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", "))
}
