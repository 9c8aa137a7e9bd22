//! Running one command: its view and its order are computed, it is launched, watched and waited for.

mod masks;
mod room;
mod wait;
mod watch;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aos_model::capability::FsOp;
use aos_model::limits::SHARED_MEMORY_BYTES;
use aos_model::policy::Op;
use aos_model::receipt::{Executed, Payload, Warning};
use aos_model::records::Coverage;
use aos_model::refusal::{Code, Refusal};
use aos_sandbox::{
    Applied, BindMount, Cgroups, LaunchError, LaunchFds, LaunchSpec, LaunchStage, Limits, Namespaces,
    PinnedPath, Running, Sandbox, View, ViewSpec, build_view, has_landlock, socket_pair,
};
use aos_store::Spool;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

pub use watch::{OutputChunk, Watcher};

use crate::host::Host;
use crate::output::Form;
use crate::overlay::{NotRun, Overlay};
use crate::session::OpenSession;
use room::Room;
use wait::{End, Stream, Wait};
use watch::Pump;

/// A command that may run: checked, its folder pinned, its arguments complete.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) program: Option<Vec<u8>>,
    pub(crate) cwd: PinnedPath,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) timeout_ns: Option<u64>,
    pub(crate) output_bytes_max: u64,
    pub(crate) form: Form,
    pub(crate) applied: Applied,
    pub(crate) captured: bool,
    pub(crate) dry_run: bool,
    pub(crate) warnings: Vec<Warning>,
}

/// A command that has ended, before its changes are read.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) executed: Executed,
    pub(crate) warnings: Vec<Warning>,
    /// Why it did not succeed, if it did not.
    pub(crate) fault: Option<(Code, String)>,
    /// It was ended by its timeout or by a signal.
    pub(crate) was_ended: bool,
}

/// The roots as the command sees them.
#[derive(Debug)]
pub(crate) struct Roots<'a> {
    /// What it changes goes there.
    pub(crate) overlay: Option<&'a Overlay>,
    /// Parts of the roots that are mounted on themselves.
    pub(crate) more: Vec<BindMount>,
}

/// Runs a command to its end and that of everything it started, over the overlay if there is one.
pub(crate) fn run(
    host: &Host,
    session: &OpenSession,
    command: &Command,
    roots: Roots<'_>,
    tool_call_id: &str,
    watcher: Option<Arc<dyn Watcher>>,
) -> Result<Ran, NotRun> {
    let limits = &session.capability.exec;
    let overlay = roots.overlay;
    let view = view_of(host, session, &command.applied, roots)?;
    let groups = Cgroups::create((host.machine.random)(), limits.max_processes, limits.max_memory_bytes);
    let order = order_of(session, command, view, &groups);
    let started_at_ns = (host.machine.now_ns)();
    let deadline = command.timeout_ns.map(|ns| Instant::now() + Duration::from_nanos(ns));
    let session_ends = session
        .expires_at_ns
        .map(|end| Instant::now() + Duration::from_nanos(end.saturating_sub(started_at_ns)));
    let (line, their_line) = socket_pair().map_err(not_started)?;
    let running = Running::new(line, order.sandbox.namespaces.is_some()).map_err(not_started)?;
    let running = Arc::new(running);
    // Listed before it starts, so that closing the session or interrupting its commands reaches it from the start.
    let Some(_listed) = session.exec_config.running.register(tool_call_id, &running) else {
        return Err(session.closed().into());
    };
    let [stdout, stderr] =
        launch(host, &order, their_line, command.stdin.as_ref(), &groups).map_err(not_started)?;
    let wait = Wait {
        tool_call_id,
        running: &running,
        streams: [
            Stream::new("stdout", stdout, command.output_bytes_max),
            Stream::new("stderr", stderr, command.output_bytes_max),
        ],
        blobs: &host.blobs,
        pump: watcher.and_then(|watcher| Pump::start(watcher, &session.id, tool_call_id)),
        deadline,
        session_ends,
        room: Room::new(&session.exec_config, limits, overlay, &host.reserve),
    };
    let (end, streams) = wait.wait();
    drop(groups);
    if end.unsure {
        tracing::warn!(session_id = session.id, tool_call_id, "processes of a command may still run");
    }
    match &end.failed {
        Some(trouble) if trouble.stage == LaunchStage::Overlay => {
            return Err(NotRun::without_overlay(&trouble.subject, trouble.errno()));
        }
        Some(trouble) => return Err(refused(trouble, &order).into()),
        None => {}
    }
    let mut warnings = command.warnings.clone();
    warnings.extend(order.limits.memory_bytes.map(memory_not_enforced));
    warnings.extend(end.gave_back.clone());
    let report = Report { form: &command.form, started_at_ns, timeout_ns: command.timeout_ns, warnings };
    Ok(report.ran(host, &end, streams, command.applied.receipt_text()))
}

/// Without a cgroup only the address space of each process and `/dev/shm` are bounded.
fn memory_not_enforced(limit: u64) -> Warning {
    let why = format!(
        "`max_memory_bytes` of {limit} bounds each process and /dev/shm, not all of the command: no cgroup can be made here. `aos doctor` says more"
    );
    Warning::new("limit_not_enforced", why)
}

fn order_of(session: &OpenSession, command: &Command, view: View, groups: &Cgroups) -> LaunchSpec {
    let (limits, applied) = (&session.capability.exec, &command.applied);
    let landlock = match applied.namespaces {
        true => applied.landlock.then(|| view.landlock_paths()),
        false => has_landlock().then(|| view.landlock_paths_without_mounts(applied.landlock)),
    };
    let keeps_attributes = !may_write(session);
    let namespaces = applied.namespaces.then_some(Namespaces {
        user: applied.user_namespace,
        network: applied.own_network,
        view,
    });
    LaunchSpec {
        argv: command.argv.clone(),
        env: command.env.clone(),
        program: command.program.clone(),
        cwd: command.cwd.clone(),
        user: session.exec_config.user.filter(|_| !applied.user_namespace),
        sandbox: Sandbox { namespaces, landlock, seccomp: applied.seccomp, keeps_attributes },
        limits: Limits {
            processes: limits.max_processes.filter(|_| !groups.has_controller("pids")),
            memory_bytes: limits.max_memory_bytes.filter(|_| !groups.has_controller("memory")),
        },
    }
}

/// What the command will see, computed from the session now.
fn view_of(host: &Host, session: &OpenSession, applied: &Applied, shown: Roots<'_>) -> Result<View, Refusal> {
    let exec_config = &session.exec_config;
    let state = &host.hidden[0];
    let unreadable = unreadable(host, session, applied)?;
    let (_, home) = exec_config.user_and_home(&host.executor.surroundings, state, true);
    let (home_mount, tmp) = exec_config.private_dirs(&home, state)?;
    let may_write = may_write(session);
    if !may_write && !applied.namespaces && !applied.landlock {
        return Err(writes_unavailable());
    }
    let root = |root: &Arc<crate::jail::Root>| BindMount {
        at: root.path.clone(),
        from: root.path.clone(),
        pin: Some((root.meta.dev, root.meta.ino)),
        writable: may_write,
        submounts: session.jail.cross_mounts,
        required: true,
        overlay: None,
    };
    let roots = session.jail.roots.iter().map(root);
    let view = build_view(ViewSpec {
        path: &host.executor.surroundings.path,
        home: home.as_bytes(),
        user_homes: exec_config.user_homes(),
        home_mount,
        tmp: Some(tmp),
        mounts: exec_config.mounts(may_write),
        roots: match shown.overlay {
            Some(overlay) => overlay.mount_over(roots).into_iter().chain(shown.more).collect(),
            None => roots.chain(shown.more).collect(),
        },
        state,
        other_session_roots: host.sessions.roots_of_others(&session.id),
        unreadable,
        network: !applied.own_network,
        uid_is_root: exec_config.uid_is_root(),
        can_disown: host.executor.abilities().disowns,
        shared_memory_bytes: session
            .capability
            .exec
            .max_memory_bytes
            .map_or(SHARED_MEMORY_BYTES, |limit| limit.min(SHARED_MEMORY_BYTES)),
    });
    if !applied.namespaces {
        exec_config.link_toolchains(&view, &home, state);
    }
    Ok(view)
}

fn may_write(session: &OpenSession) -> bool {
    session.capability.allowed_fs_ops.contains(&FsOp::Write)
}

fn writes_unavailable() -> Refusal {
    let why = "this session may not write, and without a sandbox a command cannot be kept from it; nothing was run. Use file effects, or open a session without `isolation: none`";
    Refusal::new(Code::IsolationUnavailable, why)
}

/// The paths that rules forbid to read. Without mounts they cannot be masked, so that no command runs.
fn unreadable(host: &Host, session: &OpenSession, applied: &Applied) -> Result<Vec<Vec<u8>>, Refusal> {
    let Some(rule) = session.policy.denying_globs(Op::Read).next() else { return Ok(Vec::new()) };
    if !applied.namespaces {
        return Err(masks::unavailable(
            &aos_model::text::escape(rule),
            "it cannot be masked without namespaces",
        ));
    }
    masks::unreadable(session, (host.machine.now_ns)())
}

/// Hands the order over. Returns the reading ends of the command's output.
fn launch(
    host: &Host,
    order: &LaunchSpec,
    line: OwnedFd,
    stdin: Option<&OwnedFd>,
    groups: &Cgroups,
) -> Result<[OwnedFd; 2], Errno> {
    let nothing;
    let stdin = match stdin {
        Some(stdin) => stdin,
        None => {
            nothing = crate::disk::open_null()?;
            &nothing
        }
    };
    let (stdout, their_stdout) = pipe()?;
    let (stderr, their_stderr) = pipe()?;
    let handed = LaunchFds {
        control: line.as_fd(),
        stdin: stdin.as_fd(),
        stdout: their_stdout.as_fd(),
        stderr: their_stderr.as_fd(),
        cgroups: groups.procs().map(|procs| procs.as_fd()).collect(),
    };
    host.executor.spawner.launch(order, &handed)?;
    // Only the command's processes hold it from here on: when all have ended, the line closes.
    drop(line);
    Ok([stdout, stderr])
}

/// A pipe whose reading end never makes us wait.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    crate::disk::set_nonblocking(&read)?;
    Ok((read, write))
}

fn not_started(why: Errno) -> NotRun {
    let refusal = Refusal::new(Code::SpawnFailed, format!("cannot start commands: {why}; nothing was run"));
    refusal.into()
}

fn refused(trouble: &LaunchError, order: &LaunchSpec) -> Refusal {
    let LaunchError { subject, .. } = trouble;
    let why = trouble.errno();
    match trouble.stage {
        LaunchStage::Sandbox | LaunchStage::Overlay => {
            let hint = match why {
                Errno::STALE | Errno::NOENT => "it was moved or replaced since the session was opened",
                _ => "`aos doctor` shows what this machine allows",
            };
            Refusal::new(Code::SpawnFailed, format!("{}: {why}; nothing was run. {hint}", subject.trim_end()))
        }
        LaunchStage::Cwd => Refusal::new(
            Code::CwdNotFound,
            format!("{subject}: {why}; the folder to run in is not there any more, nothing was run"),
        ),
        LaunchStage::Program => {
            let hint = match why {
                Errno::NOENT if order.argv.first().is_some_and(|program| program.contains('/')) => {
                    "; it, or the interpreter that it names, is not visible from the session"
                }
                Errno::NOENT => "; no folder on the command's PATH has it",
                Errno::TOOBIG => {
                    "; the arguments and the environment are too long for the system, pass them by a file"
                }
                Errno::ACCESS => "; it is not an executable file",
                _ => "",
            };
            Refusal::new(Code::SpawnFailed, format!("cannot run {subject}: {why}{hint}; nothing was run"))
        }
    }
}

/// What the receipt of a command is made from.
struct Report<'a> {
    form: &'a Form,
    started_at_ns: u64,
    timeout_ns: Option<u64>,
    warnings: Vec<Warning>,
}

impl Report<'_> {
    fn ran(mut self, host: &Host, end: &End, streams: [Stream; 2], isolation_applied: String) -> Ran {
        let [out, err] = streams.map(|stream| stream.spool);
        let (stdout_bytes, stderr_bytes) = (out.total_bytes(), err.total_bytes());
        let mut truncated = out.is_truncated() || err.is_truncated();
        let too_large = self.form.require_inline
            && [&out, &err].into_iter().any(|spool| !self.form.is_inline(spool.kept_bytes()));
        let mut payload = |name: &str, spool: Spool| {
            payload(host, self.form, spool).unwrap_or_else(|(start, why)| {
                truncated = true;
                let why = format!("{name} could not be kept ({why}); its beginning is all there is");
                self.warnings.push(Warning::new("output_lost", why));
                start
            })
        };
        let (stdout, stderr) = (payload("stdout", out), payload("stderr", err));
        if end.unsure {
            let why = "not all processes of the command were seen to end";
            self.warnings.push(Warning::new("processes_may_remain", why));
        }
        let (exit_code, signal) = how_it_ended(end.status);
        let executed = Executed {
            exit_code,
            signal: signal.clone(),
            stdout,
            stderr,
            stdout_bytes,
            stderr_bytes,
            truncated,
            started_at_ns: self.started_at_ns,
            ended_at_ns: (host.machine.now_ns)(),
            isolation_applied,
            changed_paths: None,
            changed_paths_count: None,
            denied_paths: Vec::new(),
            denied_paths_count: None,
            excluded_paths: Vec::new(),
            excluded_paths_count: None,
            coverage: Coverage::None,
            not_undoable: Vec::new(),
            not_undoable_count: None,
            withheld_paths: Vec::new(),
            withheld_paths_count: None,
            diff: None,
        };
        let was_ended = end.timed_out || signal.is_some();
        let fault = if let Some(why) = &end.exceeded {
            Some((Code::LimitExceeded, why.clone()))
        } else if end.timed_out {
            let limit = Duration::from_nanos(self.timeout_ns.unwrap_or_default());
            let why = format!(
                "it was ended after its time of {limit:?}; give it more with `timeout_ns`, or less to do"
            );
            Some((Code::Timeout, why))
        } else if let Some(signal) = signal {
            Some((Code::Signaled, format!("it was ended by {signal}")))
        } else if too_large {
            let most = self.form.inline_bytes_max;
            let why =
                format!("the output is over the inline ceiling of {most} bytes; use `output_mode` `auto`");
            Some((Code::InlineRequiredTooLarge, why))
        } else {
            None
        };
        Ran { executed, warnings: self.warnings, fault, was_ended }
    }
}

/// The payload of a stream; when it cannot be stored, its beginning and why.
fn payload(host: &Host, form: &Form, spool: Spool) -> Result<Payload, (Payload, String)> {
    let size_bytes = spool.kept_bytes();
    let preview = spool.start(form.inline_bytes_max.min(16 << 10) as usize).unwrap_or_default();
    let lost = |why: aos_store::Fault| (Payload::from_bytes(preview.clone()), why.to_string());
    if let Some(why) = spool.lost() {
        return Err(lost(aos_store::Fault::io("the disk", why)));
    }
    if form.is_inline(size_bytes) {
        return spool.into_bytes().map(Payload::from_bytes).map_err(lost);
    }
    let blob_ref = spool.into_blob(&host.blobs).map_err(lost)?;
    Ok(Payload::Blob { blob_ref, size_bytes, preview_bytes: form.preview(&preview) })
}

/// Exit code or signal, of a wait status. A command that ended with its init was killed.
fn how_it_ended(status: Option<i32>) -> (Option<i32>, Option<String>) {
    let Some(status) = status else { return (None, Some("SIGKILL".to_owned())) };
    if libc::WIFEXITED(status) {
        return (Some(libc::WEXITSTATUS(status)), None);
    }
    let number = libc::WTERMSIG(status);
    // Real-time signals have no names.
    let name = nix::sys::signal::Signal::try_from(number)
        .map_or_else(|_| format!("SIG{number}"), |signal| signal.as_str().to_owned());
    (None, Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_code_or_the_name_of_a_signal() {
        assert_eq!(how_it_ended(Some(7 << 8)), (Some(7), None));
        for (number, name) in [
            (1, "SIGHUP"),
            (6, "SIGABRT"),
            (9, "SIGKILL"),
            (15, "SIGTERM"),
            (29, "SIGIO"),
            (31, "SIGSYS"),
            (40, "SIG40"),
        ] {
            assert_eq!(how_it_ended(Some(number)), (None, Some(name.to_owned())));
        }
        assert_eq!(how_it_ended(None), (None, Some("SIGKILL".to_owned())));
    }
}
