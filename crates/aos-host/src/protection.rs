//! Protected names: what runs code or steers agents is not changed, by an effect or by a command.
//!
//! Effects are judged by name. What a command changed in a git folder is judged by content, because git writes there.

use std::collections::BTreeSet;

use aos_model::capability::ProtectedPaths;
use aos_model::policy::git::GitVerdict;
use aos_model::policy::{listed_name, protected_name};
use aos_model::receipt::Warning;
use aos_model::refusal::{Code, Refusal};

use crate::git;
use crate::proposed::ProposedChanges;
use crate::session::OpenSession;
use crate::target::below_roots;

/// Refuses or warns about one path that an effect changes, in any spelling.
pub(crate) fn protect(
    session: &OpenSession,
    absolute: &[u8],
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    match protected_name(below_roots(&session.jail, absolute)) {
        Some(pattern) => refuse(session, absolute, &format!("`{pattern}`"), warnings),
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

/// The same for what a command changed. Withheld paths are taken out of the changes.
pub(crate) fn protect_changes(
    session: &OpenSession,
    changes: &mut ProposedChanges<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    let rule = session.capability.protected_paths;
    if rule == ProtectedPaths::Allow {
        return Ok(());
    }
    let mut hooks = BTreeSet::new();
    let mut hook_folders = git::HookFolders::new(session);
    // A path of which only the time differs is not changed.
    for path in changes.paths.iter().filter(|path| path.is_listed) {
        let why = match &path.git {
            GitVerdict::Denied(why) => why.clone(),
            GitVerdict::WithheldHook if rule == ProtectedPaths::Warn => "git runs hooks".to_owned(),
            GitVerdict::WithheldHook => {
                hooks.insert(path.absolute.clone());
                continue;
            }
            GitVerdict::Allowed => match listed_name(below_roots(&session.jail, &path.absolute)) {
                Some(pattern) => format!("`{pattern}`"),
                None if hook_folders.hold(&path.absolute) => git::HOOKS_PATH.to_owned(),
                None => continue,
            },
        };
        refuse(session, &path.absolute, &why, warnings)?;
    }
    let withheld = changes.withhold(&hooks);
    if !withheld.is_empty() {
        let why = "hooks of a repository that the command made were left out, because git would run them";
        warnings.push(Warning::new("hooks_withheld", format!("{why}: {}", named(&withheld))));
        changes.executed.list_withheld(withheld);
    }
    Ok(())
}

fn refuse(
    session: &OpenSession,
    absolute: &[u8],
    why: &str,
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    let shown = session.jail.display(absolute);
    let message = format!("{shown} is protected ({why}): it can run code or steer agents");
    match session.capability.protected_paths {
        ProtectedPaths::Allow => {}
        ProtectedPaths::Deny => {
            return Err(Refusal::new(
                Code::ProtectedPath,
                format!("{message}. Ask the operator, or open a session with `protected_paths` `warn`"),
            ));
        }
        ProtectedPaths::Warn => {
            let warning = Warning::new("protected_path", message);
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    Ok(())
}

/// The first of some paths, for a warning.
fn named(paths: &[String]) -> String {
    let more = if paths.len() > 10 { ", …" } else { "" };
    format!("{}{more}", paths.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", "))
}
