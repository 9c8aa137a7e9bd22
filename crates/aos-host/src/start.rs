//! Starting a host on a home: recovery first, then the sessions that were open.

use std::sync::Arc;

use aos_model::entry::Fact;
use aos_model::limits::WALK_STACK_BYTES;
use aos_model::receipt::Durability;
use aos_model::records::{SessionRecord, SessionState};
use aos_model::state::{decode_session, session_key};
use aos_store::{Fault, Home, SqliteJournal};

use crate::capture;
use crate::change;
use crate::content::Contents;
use crate::exec::Executor;
use crate::host::Host;
use crate::jail::OwnFolders;
use crate::lifecycle;
use crate::lock::PathLocks;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::session::Sessions;
use crate::snapshot;

/// What was found at start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct StartReport {
    pub sessions_open: usize,
    pub sessions_closed: usize,
    pub rolled_back: usize,
}

impl Host {
    /// Opens a home, rolls back changes that the last daemon left incomplete, and reopens its sessions.
    pub fn start(home: Home, machine: Machine) -> Result<(Arc<Host>, StartReport), Fault> {
        let journal = Box::new(SqliteJournal::open(&home, machine.durability)?);
        let reserve = journal.reserve();
        let (blobs, preimages) = (Arc::new(home.blobs(machine.durability)?), Arc::new(home.preimages()?));
        let unfinished = blobs.remove_unfinished()?;
        if unfinished > 0 {
            tracing::info!(blobs = unfinished, "removed blobs that were not finished");
        }
        let manifests = Arc::new(home.manifests(machine.durability)?);
        if machine.durability == Durability::Power {
            home.sync()?;
        }
        let (hidden, own_folders) = hidden_paths(&home)?;
        let executor = Executor::new(&machine.spawner, home.command_dirs()?, home.overlays()?);
        let host = Host {
            machine,
            journal,
            contents: Arc::new(Contents::new(blobs.clone())),
            blobs,
            preimages,
            manifests,
            finalizer: Arc::default(),
            memory: Memory::default(),
            sessions: Sessions::default(),
            sessions_max: lifecycle::sessions_max(),
            locks: PathLocks::default(),
            baselines: Arc::default(),
            executor,
            hidden,
            own_folders: Arc::new(own_folders),
            reserve,
            home,
        };
        let mut report = StartReport { rolled_back: change::recover(&host)?, ..StartReport::default() };
        // No command runs yet, so changes of commands that were not committed can be dropped.
        let overlays = host.executor.overlays.sweep_all()?;
        if overlays > 0 {
            tracing::info!(overlays, "removing the overlays of interrupted commands");
        }
        let records = host.open_records()?;
        for (session_id, state, why) in lifecycle::reopen_all(&host, records) {
            report.sessions_closed += 1;
            let fact = Fact::SessionEnded { session_id: session_id.clone(), state };
            let kind =
                if state == SessionState::Expired { "host.session.expired" } else { "host.session.lost" };
            tracing::info!(session_id, ?state, why, "a session was not reopened");
            host.note(kind, &session_id, &why, Some(fact));
        }
        capture::recover(&host)?;
        host.drop_orphans()?;
        report.sessions_open = host.sessions.len();
        let host = Arc::new(host);
        let (finalizer, weak) = (host.finalizer.clone(), Arc::downgrade(&host));
        std::thread::Builder::new()
            .name("finalize".into())
            .stack_size(WALK_STACK_BYTES)
            .spawn(move || snapshot::run_finalizer(&finalizer, &weak))
            .map_err(|why| Fault::Refused(format!("cannot start a thread: {why}")))?;
        host.sessions.each(|session| host.finalizer.wake(session));
        Ok((host, report))
    }

    fn open_records(&self) -> Result<Vec<SessionRecord>, Fault> {
        let mut records = Vec::new();
        self.journal.state_below(&session_key(""), &mut |_, bytes| {
            records.extend(decode_session(bytes).filter(|record| record.state == SessionState::Open));
        })?;
        Ok(records)
    }

    /// Removes the pre-images and private folders of sessions that ended just before a crash.
    fn drop_orphans(&self) -> Result<(), Fault> {
        let mut removed = 0_usize;
        for dirs in [&self.preimages, &self.executor.command_dirs] {
            for session_id in dirs.sessions()? {
                if self.sessions.get(&session_id).is_none() {
                    dirs.drop_session(&session_id)?;
                    removed += 1;
                }
            }
        }
        for session_id in self.manifests.sessions()? {
            if self.sessions.get(&session_id).is_none() {
                self.manifests.drop_session(&session_id)?;
                removed += 1;
            }
        }
        if removed > 0 {
            tracing::info!(folders = removed, "removed what ended sessions left");
        }
        Ok(())
    }
}

/// Our own state and /proc entries. No session reaches them, not even one with the root `/`.
fn hidden_paths(home: &Home) -> Result<(Vec<Vec<u8>>, OwnFolders), Fault> {
    let fail = |why| Fault::io(format!("cannot open {}", home.path().display()), why);
    let root = crate::jail::Root::pin(home.path()).map_err(fail)?;
    let own_folders = OwnFolders::of(&root.fd).map_err(fail)?;
    let own_proc = format!("/proc/{}", rustix::process::getpid().as_raw_nonzero()).into_bytes();
    Ok((vec![root.path, own_proc, b"/proc/self".to_vec(), b"/proc/thread-self".to_vec()], own_folders))
}
