//! What a command sees of the machine, and what it may fill.

mod below;
mod homes;
mod room;

use crate::Case;

pub(super) fn cases() -> Vec<Case> {
    [homes::cases(), below::cases(), room::cases()].into_iter().flatten().collect()
}
