//! Which programs may run where the capability lists them.

use aos_model::capability::{ExecCapability, FsOp};
use aos_model::environment::loads_code;
use aos_model::path::is_below;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::Exec;
use aos_model::text::escape;

use crate::exec::{locate, resolved};
use crate::session::OpenSession;

/// Refuses changes of the environment by which an allowed program would load or start another.
pub(crate) fn check_names(limits: &ExecCapability, request: &Exec) -> Result<(), Refusal> {
    let names = request.env_patch.iter().flat_map(|patch| patch.0.keys());
    match names.into_iter().find(|name| limits.programs.is_some() && loads_code(name)) {
        None => Ok(()),
        Some(name) => Err(Refusal::new(
            Code::ProgramNotAllowed,
            format!(
                "field `env_patch`: `{}` can make a program load or start others, and the capability lists its `exec.programs`; leave it out, or set it in `target.local.env` when the session is opened",
                escape(name)
            ),
        )),
    }
}

/// Refuses programs that the session itself could write: their names would say nothing about what runs.
pub(crate) fn check_places(session: &OpenSession, path: &str) -> Result<(), Refusal> {
    for entry in session.capability.exec.programs.iter().flatten() {
        let located = locate(entry, path, b"/");
        let named = entry.contains('/').then(|| plain(entry));
        if located.into_iter().chain(named).any(|place| is_writable(session, &place)) {
            return Err(Refusal::new(
                Code::InvalidCapability,
                format!(
                    "capability: field `exec.programs`: `{}` is in a folder that the session can write, so it could become any program; name one outside",
                    escape(entry)
                ),
            ));
        }
    }
    Ok(())
}

/// With `exec.programs`, only the listed programs run. A bare name is looked up on the session's PATH, not on the PATH
/// that the command sets, so that a command cannot substitute another program.
pub(crate) fn allowed(
    session: &OpenSession,
    program: &str,
    env: &[String],
    path: &str,
    cwd: &[u8],
) -> Result<Option<Vec<u8>>, Refusal> {
    let Some(allowed) = &session.capability.exec.programs else { return Ok(None) };
    let refuse = |why: &str| {
        Refusal::new(
            Code::ProgramNotAllowed,
            format!(
                "{}: {why}; the capability's `exec.programs` allows {}",
                escape(&program.chars().take(200).collect::<String>()),
                if allowed.is_empty() { "none".to_owned() } else { escape(&allowed.join(", ")) }
            ),
        )
    };
    let own_path = env.iter().find_map(|pair| pair.strip_prefix("PATH=")).unwrap_or_default();
    let found = locate(program, own_path, cwd).ok_or_else(|| refuse("the program was not found"))?;
    let target = resolved(&found);
    let matches = |entry: &String| {
        let is_path = entry.contains('/');
        locate(entry, path, b"/").is_some_and(|entry| entry == found)
            || (is_path && target.as_deref() == Some(entry.as_bytes()))
    };
    if !allowed.iter().any(matches) {
        return Err(refuse("this program is not allowed"));
    }
    // PATH may lead into the session's own folders, and a program may have been put there since it was opened.
    if is_writable(session, &found) {
        return Err(refuse("it is in a folder that the session can write"));
    }
    Ok(Some(found))
}

/// Whether the session can write what is at this path, or at the end of its links.
fn is_writable(session: &OpenSession, place: &[u8]) -> bool {
    let writes = [FsOp::Write, FsOp::Edit, FsOp::Patch];
    let may_write = writes.iter().any(|op| session.capability.allowed_fs_ops.contains(op));
    let target = resolved(place);
    let is_there = |folder: &[u8]| {
        is_below(place, folder) || target.as_deref().is_some_and(|target| is_below(target, folder))
    };
    may_write
        && (session.jail.roots.iter().any(|root| is_there(&root.path))
            || session
                .exec_config
                .mounts(true)
                .iter()
                .any(|mount| mount.writable && (is_there(&mount.at) || is_there(&mount.from))))
}

/// An absolute path without empty names, `.` and `..`, by its text alone.
fn plain(path: &str) -> Vec<u8> {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/")).into_bytes()
}
