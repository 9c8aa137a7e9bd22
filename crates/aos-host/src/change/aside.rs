//! What steps displaced: stored as pre-images, and kept aside under their temporary names while the change may fail.

use std::os::fd::AsFd as _;

use aos_model::path::is_below;
use aos_model::refusal::Refusal;
use rustix::io::Errno;

use super::apply::{Work, not_kept};
use super::arm::{Armed, Aside};
use super::hold_open::Action;
use super::preimage::{Object, drop_copied, store_preimage};
use crate::disk::{self, Meta};
use crate::fault;
use crate::host::Host;
use crate::steps::{Put, Step, StepTarget};

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

/// The kind of an intent that lists what a change left under temporary names until its receipt is recorded.
pub(super) const ASIDE: &str = "aside";

/// The intent of more steps would be long.
const ASIDE_MAX: usize = 32;

/// The place of a step that displaces something.
fn at_of<'s>(armed: &'s Armed<'_>, index: usize) -> &'s StepTarget {
    let Action::Step { step, .. } = &armed.actions[index] else {
        unreachable!("BUG: only steps displace something")
    };
    match step {
        Step::Put(Put { at, .. }) | Step::Remove { at, .. } | Step::Rename { from: at, .. } => at,
        Step::MakeDir { .. } | Step::SetMode { .. } => unreachable!("BUG: they displace nothing"),
    }
}

fn drop_displaced(armed: &Armed<'_>, index: usize) -> Result<(), Errno> {
    let intent = armed.step_intent(index);
    let dir = armed.dir(at_of(armed, index))?.ok_or(Errno::NOENT)?;
    intent.temporary().map_or(Ok(()), |temporary| drop_copied(dir.as_fd(), temporary.as_bytes()))
}

/// After the receipt was recorded, or the steps were taken back: nothing is aside any more.
pub(crate) fn finish_aside(host: &Host, armed: &Armed<'_>, is_recorded: bool) {
    let Some(aside) = armed.aside.lock().expect("BUG: lock poisoned").take() else { return };
    // Without the rights of the session the intent stays, too.
    let Ok(_rights) = armed.session.act() else { return };
    for index in aside.steps.into_iter().filter(|_| is_recorded) {
        if let Err(error) = drop_displaced(armed, index) {
            // The intent stays: the next start tries again.
            let path = &at_of(armed, index).shown;
            tracing::warn!(path, %error, "cannot remove what a change displaced");
            return;
        }
    }
    host.journal.abandon(aside.intent);
}
