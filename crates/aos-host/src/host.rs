//! The host: the journal, the blobs, the bank and the sessions of one home, held together.

use std::sync::Arc;

use aos_model::entry::{Draft, Fact};
use aos_model::limits::WALK_STACK_BYTES;
use aos_model::receipt::{Body, Durability, Receipt};
use aos_model::refusal::{Refusal, Status};
use aos_model::state::{Effects, SessionRecord, SessionState, decode_session, session_key};
use aos_store::{Append, Bank, Blobs, Fault, Home, Journal, Manifests, Reader, SqliteJournal, Swept};

use crate::change::{self, PathLocks};
use crate::exec::Executor;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::session::{self, Sessions};
use crate::snapshot::Finalizer;
use crate::tree::Contents;

/// Everything that acts. Doors hold one and call it; they touch nothing themselves.
#[derive(Debug)]
pub struct Host {
    pub(crate) machine: Machine,
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) blobs: Arc<Blobs>,
    /// Of the files of virtual and staged trees.
    pub(crate) contents: Arc<Contents>,
    pub(crate) bank: Arc<Bank>,
    pub(crate) manifests: Arc<Manifests>,
    pub(crate) finalizer: Arc<Finalizer>,
    pub(crate) memory: Memory,
    pub(crate) sessions: Sessions,
    pub(crate) sessions_max: usize,
    pub(crate) locks: PathLocks,
    pub(crate) executor: Executor,
    /// Paths that are outside for every session, whatever its roots are.
    pub(crate) hidden: Vec<Vec<u8>>,
    home: Home,
}

/// What starting found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct StartReport {
    pub sessions_open: usize,
    pub sessions_closed: usize,
    pub rolled_back: usize,
}

impl Host {
    /// Opens a home, rolls back what the last daemon left half done, and serves its open sessions again.
    pub fn start(home: Home, machine: Machine) -> Result<(Arc<Host>, StartReport), Fault> {
        let journal = Box::new(SqliteJournal::open(&home, machine.durability)?);
        let (blobs, bank) = (Arc::new(home.blobs(machine.durability)?), Arc::new(home.bank()?));
        let manifests = Arc::new(home.manifests(machine.durability)?);
        if machine.durability == Durability::Power {
            home.sync()?;
        }
        let hidden = hidden_paths(&home)?;
        let executor = Executor::new(&machine.spawner, home.rooms()?, home.overlays()?);
        let host = Host {
            machine,
            journal,
            contents: Arc::new(Contents::new(blobs.clone())),
            blobs,
            bank,
            manifests,
            finalizer: Arc::default(),
            memory: Memory::default(),
            sessions: Sessions::default(),
            sessions_max: session::sessions_max(),
            locks: PathLocks::default(),
            executor,
            hidden,
            home,
        };
        let mut report = StartReport { rolled_back: change::recover(&host)?, ..StartReport::default() };
        // Nothing of ours runs yet: what commands had changed and was not committed is nobody's.
        host.executor.overlays.sweep_all()?;
        let records = host.open_records()?;
        for (session_id, state, why) in session::revive(&host, records) {
            report.sessions_closed += 1;
            let fact = Fact::SessionEnded { session_id: session_id.clone(), state };
            let kind =
                if state == SessionState::Expired { "host.session.expired" } else { "host.session.lost" };
            host.note(kind, &session_id, &why, fact);
        }
        host.drop_orphans()?;
        report.sessions_open = host.sessions.len();
        let host = Arc::new(host);
        let (finalizer, weak) = (host.finalizer.clone(), Arc::downgrade(&host));
        std::thread::Builder::new()
            .name("finalize".into())
            .stack_size(WALK_STACK_BYTES)
            .spawn(move || Finalizer::run(&finalizer, &weak))
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

    /// A session that ended just before a crash may have left its pre-images and its private folders.
    fn drop_orphans(&self) -> Result<(), Fault> {
        for bank in [&self.bank, &self.executor.rooms] {
            for session_id in bank.sessions()? {
                if self.sessions.get(&session_id).is_none() {
                    bank.drop_session(&session_id)?;
                }
            }
        }
        for session_id in self.manifests.sessions()? {
            if self.sessions.get(&session_id).is_none() {
                self.manifests.drop_session(&session_id)?;
            }
        }
        Ok(())
    }

    /// Writes down something that nobody asked for: a session that expired or could not be pinned again.
    pub(crate) fn note(&self, kind: &str, session_id: &str, why: &str, fact: Fact) {
        let receipt = Receipt::success(Status::Ok, Body::Signaled {}, Vec::new()).to_json();
        let facts = vec![fact];
        let draft = Draft {
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
        // A full disk keeps the note out; the session stays ended in memory and the next start says it again.
        let effects = Effects {
            session_id: Some(session_id.to_owned()),
            turn_id: None,
            blobs: Vec::new(),
            facts: facts.into(),
        };
        let _ = self.journal.append(Append { body, effects, closes: None });
    }

    /// Makes a blob that the operator stored known to the journal, so that sessions may use it.
    pub fn adopt_blob(&self, blob_ref: &str) -> Result<u64, Fault> {
        if self.blobs.size_of(blob_ref)?.is_none() {
            return Err(Fault::Refused(format!("no blob {} is stored", aos_model::text::escape(blob_ref))));
        }
        let receipt = Receipt::success(Status::Ok, Body::Signaled {}, Vec::new()).to_json();
        let facts = vec![Fact::BlobPut { blob_ref: blob_ref.to_owned() }];
        let draft = Draft {
            at_ns: (self.machine.now_ns)(),
            kind: "blob.put",
            session_id: None,
            tool_call_id: None,
            turn_id: None,
            params: &serde_json::json!({ "blob_ref": blob_ref }).to_string(),
            receipt: &receipt,
            blobs: &[],
            facts: &facts,
        };
        let body = draft.to_bytes();
        let effects = Effects { session_id: None, turn_id: None, blobs: Vec::new(), facts: facts.into() };
        self.journal.append(Append { body, effects, closes: None })
    }

    /// Removes the blobs that nothing names.
    pub fn sweep(&self) -> Result<Swept, Fault> {
        let reader = Reader::open(self.home.path())?;
        self.blobs.sweep(&reader, &self.manifests, (self.machine.now_ns)())
    }

    /// Ends what still runs, for a daemon that is about to end itself.
    pub fn retire(&self) {
        self.executor.retire();
    }

    /// Ends the commands of one tool call, and nothing else of its session. Says how many were running.
    pub fn cancel(&self, session_id: &str, tool_call_id: &str) -> Result<usize, Refusal> {
        let session = session::find_session(self, session_id)?;
        Ok(session
            .exec_config
            .running
            .cancel(tool_call_id, std::time::Duration::from_nanos(session::GRACE_NS_DEFAULT)))
    }

    /// Finds out what the machine can do for commands, so that the first session need not wait for it; and the processes
    /// that commands need are there from the start.
    pub fn warm_up(&self) {
        self.executor.abilities();
    }

    /// Whether a process was started by a command of some session: such a one gives no orders.
    pub fn is_of_a_command(&self, pid: i32) -> bool {
        self.executor.started(pid)
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

impl Drop for Host {
    fn drop(&mut self) {
        self.finalizer.stop();
    }
}

/// Our state and our own /proc entries: no session reaches them, not even one with the root `/`.
fn hidden_paths(home: &Home) -> Result<Vec<Vec<u8>>, Fault> {
    let root = crate::jail::Root::pin(home.path())
        .map_err(|why| Fault::io(format!("cannot open {}", home.path().display()), why))?;
    let own_proc = format!("/proc/{}", rustix::process::getpid().as_raw_nonzero()).into_bytes();
    Ok(vec![root.path, own_proc, b"/proc/self".to_vec(), b"/proc/thread-self".to_vec()])
}
