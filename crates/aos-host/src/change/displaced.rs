//! What a change left under temporary names: found by its step, and removed after the receipt.

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::io::Errno;

use super::arm::Armed;
use super::hold_open::Action;
use super::preimage::{drop_copied, drop_left};
use crate::host::Host;
use crate::steps::{Put, Step, StepTarget};

/// The kind of an intent that lists what a change left under temporary names until its receipt is recorded.
pub(super) const ASIDE: &str = "aside";

/// The place of a step that displaces something.
pub(super) fn at_of<'s>(armed: &'s Armed<'_>, index: usize) -> &'s StepTarget {
    let Action::Step { step, .. } = &armed.actions[index] else {
        unreachable!("BUG: only steps displace something")
    };
    match step {
        Step::Put(Put { at, .. }) | Step::Remove { at, .. } | Step::Rename { from: at, .. } => at,
        Step::MakeDir { .. } | Step::SetMode { .. } => unreachable!("BUG: they displace nothing"),
    }
}

pub(super) fn drop_displaced(armed: &Armed<'_>, index: usize) -> Result<(), Errno> {
    drop_with(armed, index, drop_copied)
}

fn drop_with(
    armed: &Armed<'_>,
    index: usize,
    drop: fn(BorrowedFd<'_>, &[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let intent = armed.step_intent(index);
    let dir = armed.dir(at_of(armed, index))?.ok_or(Errno::NOENT)?;
    intent.temporary().map_or(Ok(()), |temporary| drop(dir.as_fd(), temporary.as_bytes()))
}

/// After the receipt was recorded, or the steps were taken back: nothing is aside any more.
pub(crate) fn finish_aside(host: &Host, armed: &Armed<'_>, is_recorded: bool) {
    let Some(aside) = armed.aside.lock().expect("BUG: lock poisoned").take() else { return };
    // Without the rights of the session the intent stays, too.
    let Ok(_rights) = armed.session.act() else { return };
    let mut is_clean = true;
    for index in aside.steps.into_iter().filter(|_| is_recorded) {
        // Once more: what failed may have been a passing lack of something.
        let dropped = drop_displaced(armed, index).or_else(|_| drop_with(armed, index, drop_left));
        if let Err(error) = dropped {
            is_clean = false;
            let path = &at_of(armed, index).shown;
            tracing::warn!(path, %error, "cannot remove what a change displaced");
        }
    }
    // An intent that stays is tried again by the next start.
    if is_clean {
        host.journal.abandon(aside.intent);
    }
}
