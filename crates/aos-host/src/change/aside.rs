//! What steps displaced: stored as pre-images, and kept aside under their temporary names while the change may fail.

use std::os::fd::AsFd as _;

use aos_model::path::is_below;
use aos_model::refusal::Refusal;
use rustix::io::Errno;

use super::apply::{Work, not_kept};
use super::arm::{Armed, Aside};
use super::displaced::{ASIDE, at_of, drop_displaced};
use super::preimage::{Object, store_preimage};
use crate::disk::{self, Meta};
use crate::fault;
use crate::host::Host;
use crate::steps::{Step, StepTarget};

/// The intent of more steps would be long.
const ASIDE_MAX: usize = 32;

impl<'a> Work<'a> {
    /// What a move replaced is at the old name after the exchange.
    pub(super) fn keep_replaced(
        &mut self,
        index: usize,
        from: &'a StepTarget,
        to: &StepTarget,
        temporary: &[u8],
        preimage_name: &str,
    ) -> Result<(), Refusal> {
        let dir = self.dir(from)?;
        let dir = dir.as_fd();
        let kept = disk::rename_noreplace(dir, &from.name, dir, temporary)
            .and_then(|()| Meta::at(dir, temporary)?.ok_or(Errno::NOENT))
            .and_then(|meta| {
                self.keep(index, Object { dir, name: temporary, meta, open: None }, preimage_name)
            });
        kept.map_err(|why| not_kept(to, why))?;
        self.touch(from)
    }

    /// Stores what a step displaced as its pre-image.
    pub(super) fn keep(
        &mut self,
        index: usize,
        object: Object<'_>,
        preimage_name: &str,
    ) -> Result<(), Errno> {
        if store_preimage(object, self.preimages, preimage_name, self.sync)? {
            self.aside.push(index);
        }
        Ok(())
    }

    /// Removes the displaced objects of which the pre-images hold copies.
    pub(super) fn drop_aside(&mut self) -> Result<(), Refusal> {
        if self.sync && !self.aside.is_empty() {
            // They may be on another disk: the names of the copies must be synced before the objects are removed.
            disk::sync(self.preimages).map_err(|why| fault::refusal("cannot sync the pre-images", why))?;
        }
        let armed: &'a Armed<'a> = self.armed;
        for index in std::mem::take(&mut self.aside) {
            let at = at_of(armed, index);
            drop_displaced(armed, index)
                .map_err(|why| fault::refusal(&format!("cannot remove the old {}", at.shown), why))?;
            self.touch(at)?;
        }
        Ok(())
    }

    /// What is aside in a folder that a step takes must not go with it.
    pub(super) fn drop_aside_in(&mut self, step: &Step) -> Result<(), Refusal> {
        let is_in = |folder: &StepTarget, at: &StepTarget| is_below(at.parent_absolute(), &folder.absolute);
        let is_taken = |at: &StepTarget| match step {
            Step::Rename { from, to, .. } => is_in(from, at) || is_in(to, at),
            step => is_in(step.at(), at),
        };
        let aside = std::mem::take(&mut self.aside).into_iter();
        let (taken, others): (Vec<usize>, Vec<usize>) =
            aside.partition(|index| is_taken(at_of(self.armed, *index)));
        self.aside = taken;
        let dropped = self.drop_aside();
        self.aside = others;
        dropped
    }

    /// When all steps are applied: what is aside is removed after the receipt is recorded, and an intent says what, so
    /// that a later start removes it. It is removed now where such an intent costs too much, or there is no room for it.
    pub(super) fn leave_aside(&mut self, host: &Host) -> Result<(), Refusal> {
        if self.aside.is_empty() {
            return Ok(());
        }
        let may_wait = !self.sync && self.aside.len() <= ASIDE_MAX;
        let announced = may_wait.then(|| {
            let steps = self.aside.iter().map(|index| self.armed.step_intent(*index)).collect();
            let body = self.armed.intent_with(ASIDE, (host.machine.now_ns)(), "{}", steps);
            host.journal.begin_intent(body).ok()
        });
        let Some(intent) = announced.flatten() else { return self.drop_aside() };
        let aside = Aside { intent, steps: std::mem::take(&mut self.aside) };
        *self.armed.aside.lock().expect("BUG: lock poisoned") = Some(aside);
        Ok(())
    }
}
