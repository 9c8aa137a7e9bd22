//! `host.exec`: checks a command and describes how to run it. `command` and `exec` run it.

use std::os::fd::OwnedFd;

use aos_model::capability::smaller_limit;
use aos_model::limits::OUTPUT_BYTES_DEFAULT;
use aos_model::policy::Op;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::Exec;

use super::{Operation, PlanInput, Proposal};
use aos_sandbox::PinnedPath;

use crate::command::Command;
use crate::host::Host;
use crate::jail::{Found, Last};
use crate::payload::may_name;
use crate::programs;
use crate::session::OpenSession;
use crate::target::Target;

/// Checks the capability before any path is resolved.
pub(super) fn check(session: &OpenSession, request: Exec) -> Result<Exec, Refusal> {
    if session.layer.is_some() {
        return Err(Refusal::new(
            Code::UnsupportedTarget,
            "commands run in `local` sessions only: the files of a virtual or staged session are not on the disk",
        ));
    }
    if !session.capability.exec.allowed {
        return Err(Refusal::new(
            Code::ExecNotAllowed,
            "the capability of this session allows no commands; open a session whose `exec` is allowed",
        ));
    }
    if !request.is_ordered() && !session.capability.exec.uncaptured {
        return Err(Refusal::new(
            Code::ExecNotAllowed,
            "the capability of this session does not allow `capture` `none`; leave it out, or open a session with `exec.uncaptured` (`aos session open --uncaptured`)",
        ));
    }
    request.check()?;
    programs::check_names(&session.capability.exec, &request)?;
    Ok(request)
}

impl Operation for Exec {
    fn targets(&self) -> Vec<Target> {
        vec![Target::new(self.cwd.as_deref().unwrap_or("."), Op::Exec, Last::Follow)]
    }

    fn argv(&self) -> Option<&[String]> {
        Some(&self.argv)
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let (host, session) = (input.host, input.session);
        let form = input.form(self.output_mode)?;
        let cwd = folder(&input.found[0])?;
        let here = &host.executor.surroundings;
        let (applied, warning) =
            host.executor.abilities().apply(session.exec_config.isolation, session.exec_config.network)?;
        host.executor.abilities().check_runnable(
            session.exec_config.isolation,
            &applied,
            session.exec_config.allow_reduced,
        )?;
        let (name, home) = session.exec_config.user_and_home(here, &host.hidden[0], applied.namespaces);
        let patch = self.env_patch.iter().flat_map(|patch| &patch.0);
        let mut session_env = session.exec_config.env.0.clone();
        if applied.landlock && !applied.namespaces {
            session_env
                .entry("TMPDIR".to_owned())
                .or_insert_with(|| session.exec_config.tmp_path(&host.hidden[0]));
        }
        let env = here.environment(&home, &name, session_env.iter(), patch);
        let program = programs::allowed(session, &self.argv[0], &env, &here.path, &cwd.path)?;
        let stdin = self.stdin_ref.as_deref().map(|stdin| stdin_of(host, session, stdin)).transpose()?;
        let limits = &session.capability.exec;
        let mut warnings = input.warnings;
        warnings.extend(warning);
        Ok(Proposal::Command(Box::new(Command {
            argv: self.argv.clone(),
            env,
            program,
            cwd,
            stdin,
            timeout_ns: smaller_limit(self.timeout_ns, limits.max_timeout_ns),
            output_bytes_max: limits.max_output_bytes.unwrap_or(OUTPUT_BYTES_DEFAULT),
            form,
            applied,
            captured: self.is_ordered(),
            dry_run: self.dry_run == Some(true),
            warnings,
        })))
    }
}

/// The folder to run in, pinned as it was checked.
fn folder(found: &Found) -> Result<PinnedPath, Refusal> {
    let missing =
        |why: &str| Refusal::new(Code::CwdNotFound, format!("{}: {why}; nothing was run", found.display()));
    let Ok((place, meta)) = found.existing() else {
        return Err(missing("the working folder does not exist"));
    };
    if meta.kind != Kind::Dir {
        return Err(missing("it is not a folder"));
    }
    if meta.nlink == 0 {
        return Err(missing("the folder was deleted"));
    }
    Ok(PinnedPath { path: place.absolute.clone(), dev: meta.dev, ino: meta.ino })
}

/// Standard input from a blob, as a private copy that the command may modify.
fn stdin_of(host: &Host, session: &OpenSession, blob_ref: &str) -> Result<OwnedFd, Refusal> {
    let unknown = || {
        Refusal::new(
            Code::StdinRefNotFound,
            format!(
                "{}: no such blob for this session; make it with `aos blob put`",
                aos_model::text::escape(&blob_ref.chars().take(100).collect::<String>())
            ),
        )
    };
    if !may_name(host, session, blob_ref)? {
        return Err(unknown());
    }
    host.blobs.private_copy(blob_ref)?.ok_or_else(unknown)
}
