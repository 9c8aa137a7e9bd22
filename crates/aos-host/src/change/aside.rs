//! What steps displaced: stored as pre-images, and kept aside under their temporary names while the change may fail.

use std::os::fd::AsFd as _;

use rustix::io::Errno;

use super::apply::{Work, not_kept};
use super::hold_open::Action;
use super::preimage::{Object, drop_copied, store_preimage};
use super::step_intent::StepIntent;
use crate::disk::{self, Meta};
use crate::fault;
use crate::steps::{Put, Step, StepTarget};
use aos_model::refusal::Refusal;

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
        let actions: &'a [Action] = &self.armed.actions;
        if self.sync && !self.aside.is_empty() {
            // They may be on another disk: the names of the copies must be synced before the objects are removed.
            disk::sync(self.preimages).map_err(|why| fault::refusal("cannot sync the pre-images", why))?;
        }
        for index in std::mem::take(&mut self.aside) {
            let Action::Step { step, .. } = &actions[index] else {
                unreachable!("BUG: only steps displace something")
            };
            let (at, temporary) = match (step, self.armed.step_intent(index)) {
                (Step::Put(Put { at, .. }), StepIntent::Put { temporary, .. })
                | (Step::Remove { at, .. }, StepIntent::Remove { temporary, .. })
                | (Step::Rename { from: at, .. }, StepIntent::Rename { temporary, .. }) => (at, temporary),
                _ => unreachable!("BUG: only these steps displace something"),
            };
            drop_copied(self.dir(at)?.as_fd(), temporary.as_bytes())
                .map_err(|why| fault::refusal(&format!("cannot remove the old {}", at.shown), why))?;
            self.touch(at)?;
        }
        Ok(())
    }
}
