//! Opening and closing the folders that are held open while a change works in them.

use std::os::fd::OwnedFd;

use aos_model::refusal::{Code, Refusal};
use rustix::io::Errno;

use super::apply::Work;
use super::hold_open::HeldDir;
use crate::disk::{self, Meta};
use crate::fault;

impl Work<'_> {
    /// Lets the owner of a folder work in it. If this does not survive a power cut, recovery finds the folder closed.
    pub(super) fn hold_open(&mut self, held: &HeldDir) -> Result<(), Refusal> {
        let dir = self.armed.open_held(held).map_err(|why| held_refusal(held, why))?;
        self.expect_mode(&dir, held, held.mode)?;
        self.begun = true;
        disk::set_mode_of_held(&dir, held.mode_while_open()).map_err(|why| held_refusal(held, why))
    }

    pub(super) fn close(&mut self, held: &HeldDir) -> Result<(), Refusal> {
        let fail = |why| held_refusal(held, why);
        let dir = self.armed.open_held(held).and_then(|dir| disk::open_dir(dir, b".")).map_err(fail)?;
        self.expect_mode(&dir, held, held.mode_while_open())?;
        self.begun = true;
        disk::set_mode(&dir, held.mode).map_err(fail)?;
        if self.sync { disk::sync(&dir).map_err(fail) } else { Ok(()) }
    }

    fn expect_mode(&self, dir: &OwnedFd, held: &HeldDir, mode: u32) -> Result<(), Refusal> {
        match Meta::of(dir) {
            Ok(now) if now.mode == mode => Ok(()),
            Ok(_) => Err(held_refusal(held, Errno::STALE)),
            Err(why) => Err(held_refusal(held, why)),
        }
    }
}

fn held_refusal(held: &HeldDir, why: Errno) -> Refusal {
    match why {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE | Errno::XDEV => Refusal::new(
            Code::StaleBase,
            format!(
                "{} changed while it was worked on; nothing was changed. Read it again and repeat",
                held.shown
            ),
        ),
        why => fault::refusal(&format!("cannot open and close the folder {}", held.shown), why),
    }
}
