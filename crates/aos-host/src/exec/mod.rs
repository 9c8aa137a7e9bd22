//! What commands of all sessions share: the spawner, the machine's abilities, the environment, private folders.

mod config;
mod environment;
mod mask_cache;
mod sweeper;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use aos_sandbox::{Abilities, Spawner, probe};
use aos_store::SessionDirs;

pub(crate) use config::ExecConfig;
pub(crate) use environment::{Surroundings, account, acts_for, locate, resolved};
pub(crate) use mask_cache::ListedFolder;
pub(crate) use sweeper::{BASELINE_PREFIX, Sweeper};

/// What the host needs for commands of all sessions.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(crate) spawner: Spawner,
    abilities: OnceLock<Abilities>,
    pub(crate) surroundings: Surroundings,
    pub(crate) command_dirs: Arc<SessionDirs>,
    /// What running commands change, until it is committed.
    pub(crate) overlays: Arc<Sweeper>,
}

impl Executor {
    pub(crate) fn new(spawner: &Path, command_dirs: SessionDirs, overlays: SessionDirs) -> Executor {
        Executor {
            spawner: Spawner::new(spawner),
            abilities: OnceLock::new(),
            surroundings: Surroundings::of_this_process(),
            command_dirs: Arc::new(command_dirs),
            overlays: Arc::new(Sweeper::new(overlays)),
        }
    }

    /// Ends the spawner, and what is still running with it.
    pub(crate) fn retire(&self) {
        self.spawner.retire();
    }

    /// Probed once.
    pub(crate) fn abilities(&self) -> &Abilities {
        self.abilities.get_or_init(|| probe(&self.spawner))
    }
}
