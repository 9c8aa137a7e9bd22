//! The folders of overlays: handed out per command, and removed beside the work.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use aos_store::{Bank, Fault};

/// Makes the folders of overlays, and throws them away beside the commands' work: nobody waits for that.
#[derive(Debug)]
pub(crate) struct Sweeper {
    pub(crate) bank: Arc<Bank>,
    /// What is to go; the thread that does it is started when first needed and ends with the sweeper.
    due: Mutex<Option<Sender<String>>>,
}

impl Sweeper {
    pub(crate) fn new(bank: Bank) -> Sweeper {
        Sweeper { bank: Arc::new(bank), due: Mutex::new(None) }
    }

    /// Throws away what commands of an earlier daemon had changed and nobody committed. It may be a million files, and
    /// no start waits for that. What cannot go now (a process that is just dying holds it, say) goes at the next start.
    pub(crate) fn sweep_all(&self) -> Result<(), Fault> {
        self.bank.sessions()?.iter().for_each(|change_id| self.sweep(change_id));
        Ok(())
    }

    pub(crate) fn sweep(&self, change_id: &str) {
        let mut due = self.due.lock().expect("BUG: lock poisoned");
        if due.is_none() {
            let (sender, receiver) = channel::<String>();
            let bank = self.bank.clone();
            let work = move || receiver.iter().for_each(|change_id| drop(bank.drop_session(&change_id)));
            let started = std::thread::Builder::new().name("sweep".into()).spawn(work);
            *due = started.is_ok().then_some(sender);
        }
        let left = due.as_ref().is_none_or(|due| due.send(change_id.to_owned()).is_err());
        if left {
            let _ = self.bank.drop_session(change_id);
        }
    }
}
