//! The host: the stores, sessions and commands of one `AOS_HOME`.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use aos_model::entry::{EntryDraft, Fact};
use aos_model::receipt::{Body, Receipt};
use aos_model::refusal::Status;
use aos_model::state::FoldInput;
use aos_sandbox::Origin;
use aos_store::{Append, Blobs, Home, Journal, Manifests, Reserve, SessionDirs};

use crate::baseline::{Baseline, Baselines};
use crate::content::Contents;
use crate::exec::Executor;
use crate::finalizer::Finalizer;
use crate::jail::OwnFolders;
use crate::lock::PathLocks;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::session::Sessions;

/// Executes effects. Front ends share one host; they open no files themselves.
#[derive(Debug)]
pub struct Host {
    pub(crate) machine: Machine,
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) blobs: Arc<Blobs>,
    /// File contents of virtual and staged layers.
    pub(crate) contents: Arc<Contents>,
    pub(crate) preimages: Arc<SessionDirs>,
    pub(crate) manifests: Arc<Manifests>,
    pub(crate) finalizer: Arc<Finalizer>,
    pub(crate) memory: Memory,
    pub(crate) sessions: Sessions,
    pub(crate) sessions_max: usize,
    pub(crate) locks: PathLocks,
    pub(crate) baselines: Arc<Baselines>,
    pub(crate) executor: Executor,
    /// Paths outside every session's boundary, whatever its roots are: our own state and /proc entries.
    pub(crate) hidden: Vec<Vec<u8>>,
    /// Our own state, by device and inode.
    pub(crate) own_folders: Arc<OwnFolders>,
    pub(crate) home: Home,
    pub(crate) reserve: Arc<Reserve>,
}

impl Host {
    /// Whether the disk of the home is full: reads, closing sessions and garbage collection work, changes are refused.
    pub fn is_disk_full(&self) -> bool {
        self.reserve.is_disk_full()
    }

    /// Journals an event that no request caused: a session expired or could not be pinned again.
    pub(crate) fn note(&self, kind: &str, session_id: &str, why: &str, fact: Option<Fact>) {
        let receipt = Receipt::success(Status::Ok, Body::Signaled {}, Vec::new()).to_json();
        let facts: Vec<Fact> = fact.into_iter().collect();
        let draft = EntryDraft {
            at_ns: (self.machine.now_ns)(),
            kind,
            session_id: Some(session_id),
            tool_call_id: None,
            turn_id: None,
            params: &serde_json::json!({ "reason": why }).to_string(),
            receipt: &receipt,
            blobs: &[],
            facts: &facts,
        };
        let body = draft.to_bytes();
        // On a full disk the append fails; the session stays ended in memory and the next start journals it again.
        let effects = FoldInput {
            session_id: Some(session_id.to_owned()),
            turn_id: None,
            blobs: Vec::new(),
            facts: facts.into(),
        };
        if let Err(error) = self.journal.append(Append { body, effects, closes: None }) {
            tracing::warn!(kind, session_id, %error, "cannot record the end of a session or snapshot");
        }
    }

    /// Ends all running commands and completes the state table before the daemon exits.
    pub fn retire(&self) {
        self.executor.retire();
        self.journal.fold_now();
    }

    /// Ends the commands that write past overlays, and returns how many there were. What they may not change is put back
    /// before their requests are answered.
    pub fn end_commands_without_overlay(&self) -> usize {
        let running = self.baselines.running();
        let end = |baseline: &Arc<Baseline>| {
            baseline.session.exec_config.running.cancel(&baseline.tool_call_id, Duration::from_secs(1))
        };
        running.iter().map(end).sum()
    }

    /// Probes the sandbox abilities and starts the helper processes, so that the first session does not wait for them.
    pub fn warm_up(&self) {
        self.executor.abilities();
    }

    /// Where a process comes from. What a command of a session started may not call the daemon.
    pub fn origin_of(&self, pid: i32, pidfd: BorrowedFd<'_>) -> Origin {
        self.executor.spawner.origin_of(pid, pidfd)
    }

    pub fn head(&self) -> u64 {
        self.journal.head()
    }

    pub fn sessions_open(&self) -> usize {
        self.sessions.len()
    }

    pub fn home(&self) -> &Home {
        &self.home
    }
}

/// Decodes a value of the journal's state. A damaged value counts as missing and is logged.
pub(crate) fn decode_state<T: serde::de::DeserializeOwned>(key: &str, bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes)
        .inspect_err(|error| tracing::error!(key, %error, "the state is damaged; run `aos verify`"))
        .ok()
}

impl Drop for Host {
    fn drop(&mut self) {
        self.finalizer.stop();
    }
}
