//! After a daemon died while a command ran without an overlay: what that may not change is put back.

use std::time::{Duration, Instant};

use aos_store::{Fault, own_rights};

use super::paths::{self, Purpose};
use super::set_ids;
use crate::baseline::{self, Baseline};
use crate::host::Host;
use crate::session::OpenSession;

/// The processes of a dead daemon's commands are being killed; longer than this nobody waits for them.
const END_MAX: Duration = Duration::from_secs(2);

/// Puts back what commands of an earlier daemon may not have changed, in the sessions that are open again.
pub(crate) fn recover(host: &Host) -> Result<(), Fault> {
    let sweeper = &host.executor.overlays;
    let left = sweeper.baselines()?;
    if left.is_empty() {
        return Ok(());
    }
    let deadline = Instant::now() + END_MAX;
    while aos_sandbox::has_orphans() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    for name in left {
        match baseline::load(&name, sweeper, |session_id| host.sessions.get(session_id)) {
            Some(baseline) => put_back(host, &baseline),
            None => sweeper.sweep(&name),
        }
    }
    Ok(())
}

fn put_back(host: &Host, baseline: &Baseline) {
    let _own = own_rights();
    let session = &baseline.session;
    let mut listed = match paths::list(session, &baseline.folders, Purpose::PutBack, &mut |_| Ok(())) {
        Ok(listed) => listed,
        Err(why) => {
            tracing::error!(session.id, ?why, "cannot look for what an interrupted command changed");
            return;
        }
    };
    let changed = baseline.changed(&listed.paths, |_| true);
    let verdicts = baseline.judge(&changed, &mut Vec::new());
    let mut done = Vec::new();
    for verdict in &verdicts {
        let path = session.jail.display(&verdict.path);
        match baseline.put_back(&verdict.path, &mut listed.opened) {
            Ok(()) => done.push(path),
            Err(error) => tracing::error!(path, %error, "cannot put back what a command may not change"),
        }
    }
    drop_privileges(session, baseline);
    if !done.is_empty() {
        let why = format!(
            "the daemon ended while a command ran; what it may not change was put back: {}",
            crate::protection::named(&done)
        );
        tracing::warn!(session_id = session.id, tool_call_id = baseline.tool_call_id, "{why}");
        host.note("host.exec.put_back", &session.id, &why, None);
    }
}

fn drop_privileges(session: &OpenSession, baseline: &Baseline) {
    let started_at_ns = u64::try_from(baseline.listed_at_ns).unwrap_or(0);
    for warning in set_ids::drop_since(session, &baseline.folders, started_at_ns) {
        tracing::warn!(session_id = session.id, "after an interrupted command: {}", warning.message);
    }
}
