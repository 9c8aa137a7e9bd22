//! Open sessions: what each holds while it is served, and the list of all of them.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use aos_model::capability::Capability;
use aos_model::policy::Policy;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::OnFailure;

use aos_store::{Bank, Manifests};

use crate::exec::ExecConfig;
use crate::jail::Layer;
use crate::jail::{Jail, View};
use crate::lane::Lane;
use crate::ledger::Ledger;

/// A session that is being served.
#[derive(Debug)]
pub(crate) struct OpenSession {
    pub(crate) id: String,
    pub(crate) jail: Arc<Jail>,
    pub(crate) capability: Capability,
    pub(crate) policy: Policy,
    pub(crate) expires_at_ns: Option<u64>,
    pub(crate) lane: Arc<Lane>,
    /// The roots as policy wants them.
    pub(crate) workspaces: Vec<String>,
    pub(crate) workdir_shown: String,
    pub(crate) auto_snapshot: bool,
    pub(crate) snapshot_bytes_max: u64,
    /// Folders that commands change for good, as globs.
    pub(crate) capture_exclude: Vec<String>,
    pub(crate) on_failure: OnFailure,
    pub(crate) ledger: Ledger,
    /// What its commands get, and which are running.
    pub(crate) exec_config: ExecConfig,
    /// The tree that its changes stay in, unless it works on the disk.
    pub(crate) layer: Option<Arc<Layer>>,
    pub(crate) preimages: Preimages,
    pub(crate) ended: AtomicBool,
}

impl OpenSession {
    /// It works in a tree with nothing of the host's below.
    pub(crate) fn is_virtual(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| !layer.is_staged)
    }

    /// The newest version of its tree, unless it works on the disk.
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.layer.as_ref().map(|layer| View::now(layer, &self.jail))
    }

    /// A mutation may have waited for its turn while the session was closed.
    pub(crate) fn still_open(&self) -> Result<(), Refusal> {
        if self.ended.load(Ordering::Acquire) { Err(self.closed()) } else { Ok(()) }
    }

    pub(crate) fn closed(&self) -> Refusal {
        Refusal::new(Code::SessionClosed, format!("session {} is closed; open a new one", self.id))
    }
}

impl Drop for OpenSession {
    /// Pre-images and private folders go with their session, but only when the last mutation under way has let go of it.
    fn drop(&mut self) {
        if self.ended.load(Ordering::Acquire) {
            self.preimages.drop_all();
            self.exec_config.remove_private_dirs();
        }
    }
}

/// Where the content that a session's changes displace is kept.
#[derive(Debug)]
pub(crate) struct Preimages {
    session_id: String,
    dirs: Arc<Bank>,
    manifests: Arc<Manifests>,
    dir: OnceLock<OwnedFd>,
    opening: Mutex<()>,
}

impl Preimages {
    pub(crate) fn new(session_id: &str, dirs: &Arc<Bank>, manifests: &Arc<Manifests>) -> Preimages {
        Preimages {
            session_id: session_id.to_owned(),
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
            let _ = self.dir.set(self.dirs.session(&self.session_id)?);
        }
        Ok(self.dir.get().expect("BUG: set above"))
    }

    fn drop_all(&self) {
        let _ = self.dirs.drop_session(&self.session_id);
        let _ = self.manifests.drop_session(&self.session_id);
    }
}

/// All sessions that are open.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: RwLock<HashMap<String, Arc<OpenSession>>>,
}

impl Sessions {
    pub(crate) fn get(&self, session_id: &str) -> Option<Arc<OpenSession>> {
        self.open.read().expect("BUG: nobody panics here").get(session_id).cloned()
    }

    /// The roots of all sessions but one, those that are wanted.
    pub(crate) fn roots_of_others(&self, session_id: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let open = self.open.read().expect("BUG: nobody panics here");
        let others = open.values().filter(|session| session.id != session_id);
        let roots = others.flat_map(|session| &session.jail.roots).filter(|root| wanted(&root.path));
        roots.map(|root| root.path.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.read().expect("BUG: nobody panics here").len()
    }

    pub(crate) fn each(&self, each: impl FnMut(&Arc<OpenSession>)) {
        self.open.read().expect("BUG: nobody panics here").values().for_each(each);
    }

    pub(crate) fn insert(&self, session: OpenSession) {
        self.open.write().expect("BUG: nobody panics here").insert(session.id.clone(), Arc::new(session));
    }

    /// Takes a session out and ends its commands, those that do not end by themselves after `grace`. Its pre-images go
    /// when the last one that works in it is done.
    pub(crate) fn end(&self, session_id: &str, grace: Option<Duration>) -> bool {
        let taken = self.open.write().expect("BUG: nobody panics here").remove(session_id);
        if let Some(session) = &taken {
            session.ended.store(true, Ordering::Release);
            session.exec_config.running.close(grace);
        }
        taken.is_some()
    }

    pub(crate) fn past_their_time(&self, now_ns: u64) -> Vec<String> {
        let open = self.open.read().expect("BUG: nobody panics here");
        open.values()
            .filter(|session| session.expires_at_ns.is_some_and(|end| end <= now_ns))
            .map(|session| session.id.clone())
            .collect()
    }
}
