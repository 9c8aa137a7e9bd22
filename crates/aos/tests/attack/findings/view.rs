//! What a command sees of the machine, and what it may fill.

mod below;
mod homes;
mod rights;
mod room;

use crate::Case;

pub(super) fn cases() -> Vec<Case> {
    [homes::cases(), below::cases(), room::cases(), rights::cases()].into_iter().flatten().collect()
}
