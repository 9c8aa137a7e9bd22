//! Open sessions: the state each one holds while it is served, and the table of all of them.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use aos_model::capability::Capability;
use aos_model::policy::Policy;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::OnFailure;

use aos_store::{ActsFor, Manifests, Rights, SessionDirs, act_for, own_rights};

use crate::exec::ExecConfig;
use crate::jail::Layer;
use crate::jail::{Jail, View};
use crate::lane::Lane;
use crate::led_to::LedTo;
use crate::ledger::Ledger;
use crate::leftovers::log_leftover;

/// A session that is being served.
#[derive(Debug)]
pub(crate) struct OpenSession {
    pub(crate) id: String,
    pub(crate) jail: Arc<Jail>,
    pub(crate) capability: Capability,
    pub(crate) policy: Policy,
    pub(crate) expires_at_ns: Option<u64>,
    pub(crate) lane: Arc<Lane>,
    /// The roots, spelled as policy rules match them.
    pub(crate) workspaces: Vec<String>,
    pub(crate) workdir_shown: String,
    pub(crate) auto_snapshot: bool,
    pub(crate) snapshot_bytes_max: u64,
    /// Globs of folders that commands change directly, without capture.
    pub(crate) capture_exclude: Vec<String>,
    pub(crate) on_failure: OnFailure,
    pub(crate) ledger: Ledger,
    /// The settings of its commands, and the commands that are running.
    pub(crate) exec_config: ExecConfig,
    /// Holds the session's changes in memory and in the journal; `None` for a session that works on the disk.
    pub(crate) layer: Option<Arc<Layer>>,
    pub(crate) preimages: Preimages,
    /// A root is a home folder, or holds one: more names are protected.
    pub(crate) holds_home: bool,
    /// What protected names and git's configuration lead to.
    pub(crate) led_to: LedTo,
    pub(crate) ended: AtomicBool,
    /// Whose rights its effects have, if not the daemon's.
    pub(crate) acts_for: Option<ActsFor>,
}

impl OpenSession {
    /// Acts with the rights of the session's commands until the guard is dropped.
    pub(crate) fn act(&self) -> Result<Option<Rights>, Refusal> {
        let Some(user) = self.acts_for else { return Ok(None) };
        let fail = |why| crate::fault::refusal(&format!("cannot act as uid {}", user.uid), why);
        act_for(Some(user)).map(Some).map_err(fail)
    }

    /// Whether the session has a layer with no host folder below it.
    pub(crate) fn is_virtual(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| !layer.is_staged)
    }

    /// The newest version of its layer; `None` for a session that works on the disk.
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.layer.as_ref().map(|layer| View::now(layer, &self.jail))
    }

    /// Checked again after waiting in the lane: the session may have been closed meanwhile.
    pub(crate) fn still_open(&self) -> Result<(), Refusal> {
        if self.ended.load(Ordering::Acquire) { Err(self.closed()) } else { Ok(()) }
    }

    pub(crate) fn closed(&self) -> Refusal {
        Refusal::new(Code::SessionClosed, format!("session {} is closed; open a new one", self.id))
    }
}

impl Drop for OpenSession {
    /// Deletes the pre-images and private folders of an ended session. A mutation in progress holds an `Arc`, so this
    /// runs only after the last one.
    fn drop(&mut self) {
        if self.ended.load(Ordering::Acquire) {
            self.preimages.drop_all();
            self.exec_config.remove_private_dirs();
        }
    }
}

/// The store of the content that a session's changes displace.
#[derive(Debug)]
pub(crate) struct Preimages {
    acts_for: Option<ActsFor>,
    session_id: String,
    dirs: Arc<SessionDirs>,
    manifests: Arc<Manifests>,
    dir: OnceLock<OwnedFd>,
    opening: Mutex<()>,
}

impl Preimages {
    pub(crate) fn new(
        session_id: &str,
        acts_for: Option<ActsFor>,
        dirs: &Arc<SessionDirs>,
        manifests: &Arc<Manifests>,
    ) -> Preimages {
        Preimages {
            session_id: session_id.to_owned(),
            acts_for,
            dirs: dirs.clone(),
            manifests: manifests.clone(),
            dir: OnceLock::new(),
            opening: Mutex::new(()),
        }
    }

    /// The folder of the pre-images, opened when first needed.
    pub(crate) fn dir(&self) -> Result<&OwnedFd, Refusal> {
        if let Some(dir) = self.dir.get() {
            return Ok(dir);
        }
        let _one_at_a_time = self.opening.lock().expect("BUG: lock poisoned");
        if self.dir.get().is_none() {
            let dir = self.dirs.session(&self.session_id)?;
            if let Some(ActsFor { uid, gid }) = self.acts_for {
                let _own = own_rights();
                let fail = |why| crate::fault::refusal("cannot make the folder of the pre-images", why);
                crate::disk::set_owner_at(&dir, b".", uid, gid).map_err(fail)?;
            }
            let _ = self.dir.set(dir);
        }
        Ok(self.dir.get().expect("BUG: set above"))
    }

    fn drop_all(&self) {
        log_leftover("pre-images", &self.session_id, self.dirs.drop_session(&self.session_id));
        log_leftover("manifests", &self.session_id, self.manifests.drop_session(&self.session_id));
    }
}

/// All sessions that are open.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: RwLock<HashMap<String, Arc<OpenSession>>>,
}

impl Sessions {
    pub(crate) fn get(&self, session_id: &str) -> Option<Arc<OpenSession>> {
        self.open.read().expect("BUG: lock poisoned").get(session_id).cloned()
    }

    /// The roots of all other sessions that satisfy `wanted`.
    pub(crate) fn roots_of_others(&self, session_id: &str) -> Vec<Vec<u8>> {
        let open = self.open.read().expect("BUG: lock poisoned");
        let other_sessions = open.values().filter(|session| session.id != session_id);
        other_sessions.flat_map(|session| &session.jail.roots).map(|root| root.path.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.read().expect("BUG: lock poisoned").len()
    }

    pub(crate) fn each(&self, each: impl FnMut(&Arc<OpenSession>)) {
        self.open.read().expect("BUG: lock poisoned").values().for_each(each);
    }

    pub(crate) fn insert(&self, session: OpenSession) {
        self.open.write().expect("BUG: lock poisoned").insert(session.id.clone(), Arc::new(session));
    }

    /// Removes a session and ends its commands; with `grace`, commands that have not exited by then are killed. Its
    /// pre-images are deleted when the last request that uses the session has finished.
    pub(crate) fn end(&self, session_id: &str, grace: Option<Duration>) -> bool {
        let removed = self.open.write().expect("BUG: lock poisoned").remove(session_id);
        if let Some(session) = &removed {
            session.ended.store(true, Ordering::Release);
            session.exec_config.running.close(grace);
        }
        removed.is_some()
    }

    pub(crate) fn expired(&self, now_ns: u64) -> Vec<String> {
        let open = self.open.read().expect("BUG: lock poisoned");
        open.values()
            .filter(|session| session.expires_at_ns.is_some_and(|end| end <= now_ns))
            .map(|session| session.id.clone())
            .collect()
    }
}
